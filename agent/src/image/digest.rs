//! Digests of content: `sha256:<64 hex digits>`, and readers that compute them on the way.

use std::fmt;
use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

use super::error::ImageError;

/// A SHA-256 digest. Registries know others, none of which is in use for images.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// From `sha256:<hex>`, lower case only, as the OCI specification demands.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let invalid = |why: &str| {
            let why = format!("digest \"{text}\" is not valid: {why}");
            ImageError::InvalidName { name: text.to_owned(), why }
        };
        let hex =
            text.strip_prefix("sha256:").ok_or_else(|| invalid("digests have the form sha256:<hex>"))?;
        Self::from_hex(hex).ok_or_else(|| invalid("64 lower-case hex digits are expected after sha256:"))
    }

    /// From 64 lower-case hex digits.
    #[must_use]
    pub fn from_hex(hex: &str) -> Option<Self> {
        let hex = hex.as_bytes();
        if hex.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let [high, low] = pair else { return None };
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Some(Self(bytes))
    }

    /// Of a piece of memory.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// The 64 hex digits alone.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Name of a file or folder that holds this content.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("sha256-{}", self.hex())
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Passes bytes through and computes their digest and number.
pub struct Hashing<R> {
    inner: R,
    hash: Sha256,
    bytes: u64,
}

impl<R> Hashing<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new(), bytes: 0 }
    }

    pub fn into_inner(self) -> R {
        self.inner
    }

    /// Bytes passed so far.
    pub fn passed(&self) -> u64 {
        self.bytes
    }

    /// The digest of all bytes passed.
    pub fn digest(&self) -> Digest {
        Digest(self.hash.clone().finalize().into())
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(buffer.get(..count).unwrap_or_default());
        self.bytes = self.bytes.saturating_add(count as u64);
        Ok(count)
    }
}

impl<W: io::Write> io::Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.hash.update(buffer.get(..count).unwrap_or_default());
        self.bytes = self.bytes.saturating_add(count as u64);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_strictly() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(Digest::parse(empty).unwrap(), Digest::of(b""));
        for bad in
            [&empty.to_uppercase(), &empty[..70], "md5:00", "", &format!("{empty}0"), "sha256:../../etc"]
        {
            assert!(Digest::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hashing_sees_what_passes() {
        let mut reader = Hashing::new(&b"abc"[..]);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!((reader.digest(), reader.passed()), (Digest::of(b"abc"), 3));
    }
}
