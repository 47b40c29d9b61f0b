//! The HTTP server of test pods. `ROUTES`: entries `PATH STATUS [LOCATION]`, split by `;`, each optionally followed by
//! `if-host=NAME else STATUS`. `PORT` (default 8080) and `DELAY_MS` (before it listens) are variables too.
//! Any other path answers 404. Ends on SIGTERM as a program does that takes care of it.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

struct Route {
    path: String,
    status: u16,
    location: String,
    /// host name that gets `status`; the others get the second number
    only_host: Option<(String, u16)>,
}

fn routes(text: &str) -> Vec<Route> {
    let mut found = Vec::new();
    for entry in text.split(';') {
        let mut words = entry.split_whitespace().peekable();
        let (Some(path), Some(status)) = (words.next(), words.next()) else { continue };
        let location = words.next_if(|w| !w.starts_with("if-host=")).unwrap_or_default();
        let host = words.next().and_then(|w| w.strip_prefix("if-host="));
        let other = words.nth(1).and_then(|w| w.parse().ok()).unwrap_or(404);
        found.push(Route {
            path: path.into(),
            status: status.parse().unwrap_or(500),
            location: location.into(),
            only_host: host.map(|h| (h.to_string(), other)),
        });
    }
    found
}

fn answer(stream: TcpStream, routes: &[Route]) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_string();
    let mut host = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("host")
        {
            host = value.trim().to_string();
        }
    }
    let route = routes.iter().find(|r| r.path == path);
    let status = match route {
        None => 404,
        Some(Route { status, only_host: None, .. }) => *status,
        Some(Route { status, only_host: Some((name, other)), .. }) => {
            if host.split(':').next() == Some(name) { *status } else { *other }
        }
    };
    println!("{path} host={host} {status}");
    let location =
        route.map(|r| r.location.as_str()).filter(|l| !l.is_empty()).map(|l| format!("Location: {l}\r\n"));
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status} x\r\n{}Content-Length: 3\r\nConnection: close\r\n\r\nok\n",
        location.unwrap_or_default()
    )
}

fn main() -> std::io::Result<()> {
    // the first process of a pid namespace ignores signals that it does not take itself
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGTERM);
    ends.add(Signal::SIGINT);
    ends.thread_block()?;
    std::thread::spawn(move || {
        _ = ends.wait();
        std::process::exit(0);
    });
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    std::thread::sleep(Duration::from_millis(number("DELAY_MS", 0)));
    let routes = routes(&std::env::var("ROUTES").unwrap_or_default());
    let port = u16::try_from(number("PORT", 8080)).unwrap_or(8080);
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    println!("listening on {port}");
    for stream in listener.incoming() {
        if let Err(e) = answer(stream?, &routes) {
            println!("dropped: {e}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_with_location_and_host_are_read() {
        let all = routes("/ok 200; /away 302 http://other.test/ ;/h 200 if-host=a.test else 503");
        assert_eq!(all.len(), 3);
        assert_eq!(all.get(1).map(|r| r.location.as_str()), Some("http://other.test/"));
        assert_eq!(all.get(2).and_then(|r| r.only_host.clone()), Some(("a.test".to_string(), 503)));
    }
}
