//! A line in front of the content: `<magic> <version> <bytes of content> <crc32>`.
//!
//! The checksum covers version, length and content, so a flipped digit of the version is damage, not another version.

use core::fmt;

/// Longest header line.
const LINE_MAX: usize = 128;

/// Kind and version of some saved content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// a word without blanks
    pub magic: &'static str,
    /// what this program writes
    pub version: u32,
    /// the oldest version it still reads
    pub oldest: u32,
}

/// Why content is not what was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// no byte
    Empty,
    /// nothing but zero bytes: space was allocated, content never arrived
    Zeroed,
    /// not our header: another program's or another kind of file, or a damaged first line
    Foreign,
    /// cut off
    Short { want: u64, have: u64 },
    /// something stands behind the content
    Trailing { extra: u64 },
    /// the content was changed
    Checksum,
    /// whole, but older than we read
    Old { found: u32 },
    /// whole, but written by a newer program
    Future { found: u32 },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the file is empty"),
            Self::Zeroed => f.write_str("the file holds only zeros"),
            Self::Foreign => f.write_str("the first line is not ours"),
            Self::Short { want, have } => write!(f, "the file is cut off: {have} of {want} bytes"),
            Self::Trailing { extra } => write!(f, "{extra} bytes too many at the end"),
            Self::Checksum => f.write_str("the checksum is wrong"),
            Self::Old { found } => write!(f, "version {found} is too old"),
            Self::Future { found } => write!(f, "version {found} is from a newer program"),
        }
    }
}

impl core::error::Error for Damage {}

impl Envelope {
    /// Content with its header.
    #[must_use]
    pub fn seal(&self, content: &[u8]) -> Vec<u8> {
        let sum = checksum(self.version, content);
        let mut out = format!("{} {} {} {sum:08x}\n", self.magic, self.version, content.len()).into_bytes();
        out.extend_from_slice(content);
        out
    }

    /// Version and content, if all is whole.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open<'a>(&self, bytes: &'a [u8]) -> Result<(u32, &'a [u8]), Damage> {
        if bytes.is_empty() {
            return Err(Damage::Empty);
        }
        if bytes.iter().all(|b| *b == 0) {
            return Err(Damage::Zeroed);
        }
        let (line, content) = self.split(bytes)?;
        let (version, length, sum) = header(line).ok_or(Damage::Foreign)?;
        let have = content.len() as u64;
        if have < length {
            return Err(Damage::Short { want: length, have });
        }
        if have > length {
            return Err(Damage::Trailing { extra: have - length });
        }
        if checksum(version, content) != sum {
            return Err(Damage::Checksum);
        }
        if version < self.oldest {
            return Err(Damage::Old { found: version });
        }
        if version > self.version {
            return Err(Damage::Future { found: version });
        }
        Ok((version, content))
    }

    /// The rest of the first line behind the magic word, and what follows the line.
    fn split<'a>(&self, bytes: &'a [u8]) -> Result<(&'a str, &'a [u8]), Damage> {
        let magic = self.magic.as_bytes();
        let short = || Damage::Short { want: magic.len() as u64, have: bytes.len() as u64 };
        let Some(rest) = bytes.strip_prefix(magic) else {
            return Err(if magic.starts_with(bytes) { short() } else { Damage::Foreign });
        };
        let window = rest.get(..LINE_MAX.min(rest.len())).unwrap_or_default();
        let Some(end) = window.iter().position(|b| *b == b'\n') else {
            return Err(if rest.len() < LINE_MAX { short() } else { Damage::Foreign });
        };
        let line = rest.get(..end).and_then(|l| core::str::from_utf8(l).ok()).ok_or(Damage::Foreign)?;
        Ok((line, rest.get(end.saturating_add(1)..).unwrap_or_default()))
    }
}

fn header(line: &str) -> Option<(u32, u64, u32)> {
    let mut words = line.strip_prefix(' ')?.split(' ');
    let version = words.next()?.parse().ok()?;
    let length = words.next()?.parse().ok()?;
    let sum = u32::from_str_radix(words.next()?, 16).ok()?;
    // one way to write it: signs, leading zeros and capital letters are damage
    (line == format!(" {version} {length} {sum:08x}")).then_some((version, length, sum))
}

fn checksum(version: u32, content: &[u8]) -> u32 {
    let start = crc32(!0, &version.to_le_bytes());
    let start = crc32(start, &(content.len() as u64).to_le_bytes());
    !crc32(start, content)
}

/// CRC-32 (reflected, polynomial edb88320), bit by bit: state files are small, a table would be larger than they are.
fn crc32(mut crc: u32, bytes: &[u8]) -> u32 {
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1));
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OURS: Envelope = Envelope { magic: "state-test", version: 3, oldest: 2 };

    #[test]
    fn the_checksum_is_the_well_known_one() {
        assert_eq!(!crc32(!0, b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn versions_are_told_apart_from_damage() {
        let by = |version| Envelope { version, ..OURS }.seal(b"x");
        assert_eq!(OURS.open(&by(2)), Ok((2, b"x".as_slice())));
        assert_eq!(OURS.open(&by(1)), Err(Damage::Old { found: 1 }));
        assert_eq!(OURS.open(&by(4)), Err(Damage::Future { found: 4 }));
        let flipped = String::from_utf8(by(3)).unwrap().replace("test 3", "test 2");
        assert_eq!(OURS.open(flipped.as_bytes()), Err(Damage::Checksum));
    }

    proptest! {
        #[test]
        fn whole_content_comes_back(content in proptest::collection::vec(any::<u8>(), 0..300)) {
            let sealed = OURS.seal(&content);
            prop_assert_eq!(OURS.open(&sealed), Ok((3, content.as_slice())));
        }

        #[test]
        fn every_cut_and_every_flipped_bit_is_seen(
            content in proptest::collection::vec(any::<u8>(), 0..100), at in any::<usize>(), bit in 0..8_u32
        ) {
            let sealed = OURS.seal(&content);
            let at = at % sealed.len();
            prop_assert!(OURS.open(&sealed[..at]).is_err());
            let mut flipped = sealed.clone();
            flipped[at] ^= 1 << bit;
            prop_assert!(OURS.open(&flipped).is_err());
        }
    }
}
