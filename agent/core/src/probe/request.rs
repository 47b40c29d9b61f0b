//! The HTTP request of a probe or hook, and what its answer means.
use super::Outcome;
use crate::types::{Container, HTTPGetAction, IntOrString};
use alloc::{
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};
use core::fmt;

/// The most redirects that are followed.
pub const REDIRECTS_MAX: usize = 10;

/// What sends the request, for its `User-Agent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A probe.
    Probe,
    /// A hook.
    Lifecycle,
}

impl Use {
    /// The first part of the `User-Agent`.
    pub fn agent(self) -> &'static str {
        match self {
            Use::Probe => "kube-probe",
            Use::Lifecycle => "kube-lifecycle",
        }
    }
}

/// A request, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// `http` or `https`.
    pub scheme: String,
    /// Host to connect to, without brackets.
    pub host: String,
    /// Port to connect to.
    pub port: u16,
    /// Path with query, as it stands in the request line.
    pub target: String,
    /// Value of the `Host` header, if it is not host and port.
    pub host_header: Option<String>,
    /// All headers in canonical spelling, values of a repeated one in order. `Host` is among them if it is given.
    pub headers: Vec<(String, Vec<String>)>,
}

/// Why there is no request. The handler cannot run; that says nothing about the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// Not a port.
    Port {
        /// The number.
        port: i64,
    },
    /// No port of the container has this name.
    Name {
        /// The name.
        name: String,
    },
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Port { port } => write!(f, "invalid port number: {port}"),
            RequestError::Name { name } => write!(f, "couldn't find port named '{name}' in the container"),
        }
    }
}

impl core::error::Error for RequestError {}

/// The number of a port: itself, that of the container's port of this name, or a name that is a number.
pub fn port(port: &IntOrString, container: &Container) -> Result<u16, RequestError> {
    let number = match port {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::Str(name) => match container.ports.iter().find(|p| p.name == *name) {
            Some(port) => i64::from(port.container_port),
            None => name.parse().map_err(|_| RequestError::Name { name: name.clone() })?,
        },
    };
    u16::try_from(number).ok().filter(|p| *p > 0).ok_or(RequestError::Port { port: number })
}

/// Builds the request of an action. `pod_ip` is used if the action names no host; `version` is `major.minor`.
pub fn build(
    action: &HTTPGetAction,
    container: &Container,
    pod_ip: &str,
    sender: Use,
    version: &str,
) -> Result<HttpRequest, RequestError> {
    let scheme = if action.scheme.is_empty() { "http".into() } else { action.scheme.to_ascii_lowercase() };
    let host = if action.host.is_empty() { pod_ip } else { &action.host };
    let mut headers: Vec<(String, Vec<String>)> = Vec::new();
    for header in &action.http_headers {
        let name = canonical(&header.name);
        match headers.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(header.value.clone()),
            None => headers.push((name, vec![header.value.clone()])),
        }
    }
    let has = |headers: &[(String, Vec<String>)], name: &str| headers.iter().any(|(known, _)| known == name);
    if !has(&headers, "User-Agent") {
        headers.push(("User-Agent".into(), vec![format!("{}/{version}", sender.agent())]));
    }
    if has(&headers, "Accept") {
        // an empty one is how a user takes the header away
        headers.retain(|(name, values)| name != "Accept" || values.first().is_some_and(|v| !v.is_empty()));
    } else {
        headers.push(("Accept".into(), vec!["*/*".into()]));
    }
    let host_header = headers.iter().find(|(name, _)| name == "Host").and_then(|(_, values)| values.first());
    Ok(HttpRequest {
        scheme,
        host: host.into(),
        port: port(&action.port, container)?,
        target: target(&action.path),
        host_header: host_header.filter(|value| !value.is_empty()).cloned(),
        headers,
    })
}

impl HttpRequest {
    /// Host and port, brackets around an IPv6 address.
    pub fn authority(&self) -> String {
        match self.host.contains([':', '%']) {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The whole address.
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority(), self.target)
    }
}

/// `x-abc` to `X-Abc`. A name with other characters than a header may have stays as it is.
fn canonical(name: &str) -> String {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !name.bytes().all(token) {
        return name.into();
    }
    let mut upper = true;
    let letters = name.chars().map(|c| {
        let letter = if upper { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
        upper = c == '-';
        letter
    });
    letters.collect()
}

/// Path and query of what a user wrote as path. It is read as a reference, so a scheme and a host in it are dropped;
/// what cannot be read so is taken literally.
fn target(text: &str) -> String {
    let literal = || rooted(&encoded(text.as_bytes()));
    let control = |b: u8| b < b' ' || b == 0x7f;
    let text = text.split_once('#').map_or(text, |(before, _)| before);
    if text.bytes().any(control) {
        return literal();
    }
    let (reference, query) = match text.split_once('?') {
        Some((reference, query)) => (reference, Some(query)),
        None => (text, None),
    };
    let path = match reference.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => after_host(rest),
        _ => match reference.strip_prefix("//") {
            // three slashes are no host but an odd path
            Some(rest) if !rest.starts_with('/') => after_host(rest),
            _ => reference,
        },
    };
    let Some(path) = escaped_path(path) else { return literal() };
    match query {
        // a space would end the target in the request line
        Some(query) => format!("{}?{}", rooted(&path), query.replace(' ', "%20")),
        None => rooted(&path),
    }
}

fn is_scheme(text: &str) -> bool {
    let other = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(other)
}

fn after_host(text: &str) -> &str {
    text.find('/').and_then(|at| text.get(at..)).unwrap_or("")
}

fn rooted(path: &str) -> String {
    match path.starts_with('/') || path.is_empty() {
        true => path.to_string(),
        false => format!("/{path}"),
    }
}

/// A path as it is if everything in it may stand in a path; else decoded and encoded again. None if a `%` is not
/// followed by two hex digits.
fn escaped_path(path: &str) -> Option<String> {
    let decoded = decoded(path)?;
    let allowed = |b: u8| is_unreserved(b) || b"!$&'()*+,;=:@[]/%".contains(&b);
    match path.bytes().all(allowed) {
        true => Some(path.into()),
        false => Some(encoded(&decoded)),
    }
}

fn is_unreserved(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~')
}

fn decoded(path: &str) -> Option<Vec<u8>> {
    let mut bytes = path.bytes();
    let mut out = Vec::with_capacity(path.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut hex = || bytes.next().and_then(|b| char::from(b).to_digit(16));
        let (high, low) = (hex()?, hex()?);
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(out)
}

fn encoded(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        match is_unreserved(*byte) || b"$&+,/:;=@".contains(byte) {
            true => out.push(char::from(*byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// What to do after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Ask again at the place the `Location` header names.
    Follow,
    /// That was it.
    Done(Outcome),
    /// Well, with an event of reason `ProbeWarning`: it ended in a redirect that is not followed.
    Warning,
}

/// Judges an answer of a probe. `location` is the host name of the `Location` header, if there is one, with the host
/// of the request filled in for a relative one; `host` that of the first request; `followed` the redirects so far.
pub fn judge(status: u16, location: Option<&str>, host: &str, followed: usize) -> Answer {
    let redirect = matches!(status, 301 | 302 | 303 | 307 | 308);
    match (redirect, location) {
        (true, Some(to)) if to.eq_ignore_ascii_case(host) => match followed < REDIRECTS_MAX {
            true => Answer::Follow,
            false => Answer::Done(Outcome::Failure),
        },
        _ => match status {
            200..=299 => Answer::Done(Outcome::Success),
            300..=399 => Answer::Warning,
            _ => Answer::Done(Outcome::Failure),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_are_read_as_references() {
        for (text, wanted) in [
            ("", ""),
            ("/", "/"),
            ("x", "/x"),
            ("/a b", "/a%20b"),
            ("/a%2Fb", "/a%2Fb"),
            ("/a%zz?x", "/a%25zz%3Fx"),
            ("/a?b=%zz c", "/a?b=%zz%20c"),
            ("/a#frag", "/a"),
            ("http://other:81/p?q", "/p?q"),
            ("//other/p", "/p"),
            ("///p", "///p"),
            ("/\u{e9}", "/%C3%A9"),
            ("/a:b@c", "/a:b@c"),
            ("/a?", "/a?"),
        ] {
            assert_eq!(target(text), wanted, "{text}");
        }
    }

    #[test]
    fn only_redirects_to_the_same_host_are_followed() {
        assert_eq!(judge(302, Some("a"), "a", 0), Answer::Follow);
        assert_eq!(judge(302, Some("b"), "a", 0), Answer::Warning);
        assert_eq!(judge(302, Some("a"), "a", REDIRECTS_MAX), Answer::Done(Outcome::Failure));
        assert_eq!(judge(304, Some("a"), "a", 0), Answer::Warning);
        assert_eq!(judge(199, None, "a", 0), Answer::Done(Outcome::Failure));
    }

    proptest! {
        #[test]
        fn the_request_line_never_gets_a_line_break(text in "\\PC{0,10}[\r\n]?\\PC{0,10}") {
            prop_assert!(!target(&text).contains(['\r', '\n']));
        }
    }
}
