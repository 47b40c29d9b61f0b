//! One line of a log file in the CRI form: `<RFC 3339 time> stdout|stderr F|P <text>\n`.
//!
//! `P` marks a piece of a line that goes on in the next record of the same stream, `F` its last (or only) piece.

use super::timestamp;

/// Text of one record at the most; longer lines are cut into pieces (the size containerd and CRI-O use).
pub const MAX_TEXT: usize = 16 * 1024;
/// Bytes of a record beside its text: time, stream and tag with a blank each, newline.
pub const OVERHEAD: usize = timestamp::LENGTH + " stdout F \n".len();

/// Where a line was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// For tables with one entry a stream.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Stdout => 0,
            Self::Stderr => 1,
        }
    }

    const fn name(self) -> &'static [u8; 6] {
        match self {
            Self::Stdout => b"stdout",
            Self::Stderr => b"stderr",
        }
    }
}

/// The front of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Unix nanoseconds
    pub time_ns: i64,
    pub stream: Stream,
    /// the line ends with this record
    pub last: bool,
    /// bytes before the text
    pub length: usize,
}

/// Longest prefix that is understood: a time with its offset, and more tags than anyone writes today.
pub const MAX_PREFIX: usize = 128;

impl Prefix {
    /// From the first bytes of a record ([`MAX_PREFIX`] are enough). `None`: this is no CRI record.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..bytes.len().min(MAX_PREFIX))?;
        let mut at = 0_usize;
        let mut word = || {
            let rest = bytes.get(at..)?;
            let length = rest.iter().position(|&byte| byte == b' ')?;
            at = at.checked_add(length)?.checked_add(1)?;
            rest.get(..length)
        };
        let time_ns = timestamp::parse(word()?)?;
        let stream = match word()? {
            b"stdout" => Stream::Stdout,
            b"stderr" => Stream::Stderr,
            _ => return None,
        };
        // more tags may follow, divided by colons
        let last = match word()?.split(|&byte| byte == b':').next()? {
            b"F" => true,
            b"P" => false,
            _ => return None,
        };
        Some(Self { time_ns, stream, last, length: at })
    }
}

/// Appends a record whose text is `first` and then `second`.
pub fn append(
    into: &mut Vec<u8>,
    time: &[u8; timestamp::LENGTH],
    stream: Stream,
    last: bool,
    first: &[u8],
    second: &[u8],
) {
    into.extend_from_slice(time);
    into.push(b' ');
    into.extend_from_slice(stream.name());
    into.extend_from_slice(if last { b" F " } else { b" P " });
    into.extend_from_slice(first);
    into.extend_from_slice(second);
    into.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn record_reads_as_it_was_written() {
        let mut bytes = Vec::new();
        append(&mut bytes, &timestamp::rfc3339(5), Stream::Stderr, false, b"a ", b"b");
        assert_eq!(bytes, b"1970-01-01T00:00:00.000000005Z stderr P a b\n");
        assert_eq!(bytes.len(), OVERHEAD + 3);
        let prefix = Prefix::parse(&bytes).unwrap();
        assert_eq!(prefix, Prefix { time_ns: 5, stream: Stream::Stderr, last: false, length: OVERHEAD - 1 });
    }

    #[test]
    fn foreign_records_are_judged() {
        for (text, good) in [
            ("2026-11-30T22:13:00.5+01:00 stdout F hello", true),
            ("2026-11-30T22:13:00Z stdout P:x:y hello", true),
            ("2026-11-30T22:13:00Z stdout F ", true),
            ("2026-11-30T22:13:00Z stdout F", false),
            ("2026-11-30T22:13:00Z stdlog F x", false),
            ("2026-11-30T22:13:00Z stdout X x", false),
            ("hello", false),
            ("", false),
        ] {
            assert_eq!(Prefix::parse(text.as_bytes()).is_some(), good, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Prefix::parse(&bytes).is_none_or(|prefix| prefix.length <= bytes.len()));
        }
    }
}
