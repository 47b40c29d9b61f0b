//! Decompresses zstd: frames one after another, skippable ones left out (seekable layers have them).

use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The window a decoder must keep in memory; it is touched only as far as the content goes. RFC 8878 asks
/// for 8 MiB, but skopeo's and podman's writers declare 32 MiB whatever the layer. More needs a decision of
/// who compresses (`zstd --long`), and no board has room for it.
const WINDOW_MAX: u64 = 32 * 1024 * 1024;
const BUFFER: usize = 64 * 1024;

/// A reader of the decompressed bytes.
pub(super) struct ZstdReader<R> {
    source: BufReader<R>,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: Read> ZstdReader<R> {
    pub(super) fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_MAX);
        Self { source: BufReader::with_capacity(BUFFER, source), decoder, in_frame: false }
    }

    /// Begins the next frame; `false`: the stream ends.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: Read> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            if !self.in_frame {
                self.in_frame = self.next_frame()?;
                if !self.in_frame {
                    break;
                }
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.decoder.is_finished() {
                self.in_frame = false;
                continue;
            }
            let step = BlockDecodingStrategy::UptoBlocks(1);
            self.decoder.decode_blocks(&mut self.source, step).map_err(io::Error::other)?;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    fn read(stored: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        ZstdReader::new(stored).read_to_end(&mut text).map(|_| text)
    }

    #[test]
    fn frames_follow_one_another_and_skippable_ones_are_skipped() {
        let one = vec![b'a'; 300_000];
        let two: Vec<u8> = (0..500_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let skippable = [0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9];
        let stored = [
            &skippable[..],
            &compress_to_vec(one.as_slice(), CompressionLevel::Fastest),
            &skippable,
            &compress_to_vec(two.as_slice(), CompressionLevel::Uncompressed),
            &skippable,
        ]
        .concat();
        assert_eq!(read(&stored).unwrap(), [one, two].concat());
        assert!(read(&stored[..stored.len() / 2]).is_err());
        assert!(read(&stored[..stored.len() - 1]).is_err());
        assert_eq!(read(b"").unwrap(), b"");
        assert!(read(b"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn window_larger_than_the_limit_is_refused() {
        // frame header: no single segment, window exponent 31 (2 TiB)
        let error = read(&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 0, 0, 0]).unwrap_err();
        assert!(error.to_string().contains("window"), "{error}");
    }
}
