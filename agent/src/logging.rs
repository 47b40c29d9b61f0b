//! Log back end: one line a record on standard error, as text or as JSON, with pod and container named.

use std::fmt::Write as _;
use std::io::Write as _;

use log::kv::{self, Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::clock;

struct StderrLog {
    json: bool,
}

/// Takes the log over. `verbosity`: 0 what matters, 1 details, 2 everything.
pub fn init(json: bool, verbosity: u8) {
    let level = match verbosity {
        0 => LevelFilter::Info,
        1 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    let boxed: Box<dyn Log> = Box::new(StderrLog { json });
    // a second call (tests) keeps the first back end
    if log::set_boxed_logger(boxed).is_ok() {
        log::set_max_level(level);
    }
}

struct Pairs(Vec<(String, String)>);

impl<'kvs> VisitSource<'kvs> for Pairs {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        let value = value.to_string();
        if !value.is_empty() {
            self.0.push((key.to_string(), value));
        }
        Ok(())
    }
}

/// Control bytes never reach a terminal or a log reader.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() { out.extend(letter.escape_default()) } else { out.push(letter) }
    }
    out
}

fn line(record: &Record<'_>, json: bool) -> String {
    let mut pairs = Pairs(Vec::new());
    // collecting into a Vec cannot fail
    record.key_values().visit(&mut pairs).ok();
    let time = clock::rfc3339(clock::now().wall);
    let message = record.args().to_string();
    if json {
        let mut object = serde_json::Map::new();
        object.insert("ts".into(), time.into());
        object.insert("level".into(), record.level().as_str().to_lowercase().into());
        object.insert("msg".into(), message.into());
        object.extend(pairs.0.into_iter().map(|(key, value)| (key, value.into())));
        return serde_json::Value::Object(object).to_string();
    }
    let level = match record.level() {
        Level::Error => 'E',
        Level::Warn => 'W',
        Level::Info => 'I',
        Level::Debug => 'D',
        Level::Trace => 'T',
    };
    let mut text = format!("{time} {level} {}", escaped(&message));
    for (key, value) in pairs.0 {
        // writing to a String cannot fail
        write!(text, " {key}={}", escaped(&value)).ok();
    }
    text
}

impl Log for StderrLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        // our own words and the warnings of libraries
        let own = record.target().starts_with("podkeep") || record.level() <= Level::Warn;
        if own && self.enabled(record.metadata()) {
            let text = line(record, self.json) + "\n";
            // nowhere to complain to
            std::io::stderr().lock().write_all(text.as_bytes()).ok();
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_pod_and_container_and_escape_control_bytes() {
        let pairs = [("pod", "default/a"), ("container", "")];
        let text = line(
            &Record::builder()
                .args(format_args!("bad\u{1b}[2J name"))
                .level(Level::Warn)
                .key_values(&pairs)
                .build(),
            false,
        );
        assert!(text.ends_with("W bad\\u{1b}[2J name pod=default/a"), "{text}");
        let text = line(
            &Record::builder().args(format_args!("x")).level(Level::Info).key_values(&pairs).build(),
            true,
        );
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((json["level"].as_str(), json["pod"].as_str()), (Some("info"), Some("default/a")));
    }
}
