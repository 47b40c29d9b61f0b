//! The grammars of names: DNS labels and subdomains, qualified names, label values, keys, ports, addresses.

/// What a DNS label must look like.
pub const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character, at most 63 characters";
/// What a DNS subdomain must look like.
pub const DNS_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character, at most 253 characters";
/// What a qualified name must look like.
pub const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character, at most 63 characters, with an optional DNS subdomain prefix and '/'";
/// What the value of a label must look like.
pub const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character, at most 63 characters";
/// What the name of a variable must look like.
pub const VARIABLE: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";
/// What the key of a ConfigMap or Secret must look like.
pub const CONFIG_KEY: &str =
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.', at most 253 characters";
/// What the name of a port must look like.
pub const PORT_NAME: &str = "must contain only lower case letters, digits and '-', at least one letter, no '-' at either end or beside another, at most 15 characters";
/// The range of port numbers.
pub const PORT_NUMBER: &str = "must be between 1 and 65535, inclusive";
/// What an address must look like.
pub const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
/// What the name of an HTTP header must look like.
pub const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-'";

fn is_lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn ends(text: &str, valid: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| valid(*b)) && bytes.last().is_some_and(|b| valid(*b))
}

fn is_dns_part(text: &str) -> bool {
    ends(text, is_lower_alnum) && text.bytes().all(|b| is_lower_alnum(b) || b == b'-')
}

/// A DNS label: lower case, at most 63 characters.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_dns_part(text)
}

/// A DNS subdomain: lower-case parts joined by dots, at most 253 characters.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_part)
}

/// A DNS subdomain whose parts may have `_`, as search paths do.
pub fn is_search_domain(text: &str) -> bool {
    let part = |part: &str| {
        let valid = |b: u8| is_lower_alnum(b) || b == b'_';
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|b| valid(*b))
            && bytes.last().is_some_and(|b| valid(*b))
            && bytes.iter().all(|b| valid(*b) || *b == b'-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

fn is_name_part(text: &str) -> bool {
    let alnum = |b: u8| b.is_ascii_alphanumeric();
    text.len() <= 63 && ends(text, alnum) && text.bytes().all(|b| alnum(b) || matches!(b, b'-' | b'_' | b'.'))
}

/// The name of a label: `name` or `prefix/name`.
pub fn is_qualified(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name_part(name),
        None => is_name_part(text),
    }
}

/// The value of a label.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

/// The key of a ConfigMap or Secret.
pub fn is_config_key(text: &str) -> bool {
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !text.is_empty() && text.len() <= 253 && text.bytes().all(valid) && text != "." && !text.starts_with("..")
}

/// The name of a port, an IANA service name.
pub fn is_port_name(text: &str) -> bool {
    text.len() <= 15
        && text.bytes().all(|b| is_lower_alnum(b) || b == b'-')
        && text.bytes().any(|b| b.is_ascii_lowercase())
        && !text.contains("--")
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A port number.
pub fn is_port_number(port: i64) -> bool {
    (1..=65535).contains(&port)
}

/// An IPv4 or IPv6 address. Leading zeros in an IPv4 part are taken as decimal, as the API server has always done.
pub fn is_ip(text: &str) -> bool {
    let mut parts = 0u32;
    let sloppy = text.split('.').all(|part| {
        parts = parts.saturating_add(1);
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) && part.parse::<u8>().is_ok()
    });
    text.parse::<core::net::IpAddr>().is_ok() || (sloppy && parts == 4)
}

/// The beginning of a DNS subdomain, which may end in one `-` because something follows it.
pub fn is_dns_prefix(text: &str) -> bool {
    let whole = text.strip_suffix('-').filter(|rest| !rest.is_empty()).unwrap_or(text);
    text.len() <= 253 && is_dns_subdomain(whole)
}

/// The name of an HTTP header.
pub fn is_header_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn long(length: usize) -> String {
        "a".repeat(length)
    }

    #[test]
    fn labels_and_subdomains() {
        for (text, label, subdomain) in [
            ("a", true, true),
            ("a-b", true, true),
            ("a.b", false, true),
            ("", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("A", false, false),
            ("a_b", false, false),
            ("a..b", false, false),
            ("a.-b", false, false),
            (&long(63), true, true),
            (&long(64), false, true),
            (&long(254), false, false),
        ] {
            assert_eq!((is_dns_label(text), is_dns_subdomain(text)), (label, subdomain), "{text}");
        }
    }

    #[test]
    fn other_names() {
        assert!(is_qualified("a.b/C_d.e-f") && is_qualified("X"));
        for bad in ["", "/a", "a/", "a/b/c", "A/b", "-a", "a b"] {
            assert!(!is_qualified(bad), "{bad}");
        }
        assert!(is_port_name("http") && is_port_name("a1-b") && is_port_name("1a"));
        for bad in ["", "123", "a--b", "-a", "HTTP", "aaaaaaaaaaaaaaaa"] {
            assert!(!is_port_name(bad), "{bad}");
        }
        assert!(is_search_domain("_sip._tcp.example") && !is_search_domain("") && !is_search_domain("a."));
        assert!(
            is_config_key("a_B.c-d") && !is_config_key("..") && !is_config_key(".") && !is_config_key("a/b")
        );
        assert!(
            is_ip("::1") && is_ip("1.2.3.4") && is_ip("01.2.3.4") && !is_ip("1.2.3") && !is_ip("1.2.3.256")
        );
    }
}
