//! Frames of the supervisor's socket: u32 length (little-endian), then that many bytes of JSON.

use std::io;

use serde::Serialize;

use super::proto::MAX_FRAME;

/// Bytes of the length in front of each frame.
const HEAD: usize = 4;

/// One frame, ready to send.
///
/// # Errors
/// `InvalidData` when the value is longer than a peer takes
pub fn encode(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEAD];
    serde_json::to_writer(&mut bytes, value)?;
    let length = bytes.len().saturating_sub(HEAD);
    match (u32::try_from(length), bytes.first_chunk_mut::<HEAD>()) {
        (Ok(count), Some(head)) if length <= MAX_FRAME => *head = count.to_le_bytes(),
        _ => return Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
    Ok(bytes)
}

/// Collects bytes of a stream until a whole frame is there.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
}

impl FrameBuffer {
    /// Takes bytes as they were received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// `InvalidData` when the peer announces a frame longer than [`MAX_FRAME`]: the connection is of no use any more
    pub fn next_frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(head) = self.bytes.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let end = length.saturating_add(HEAD);
        if self.bytes.len() < end {
            return Ok(None);
        }
        let rest = self.bytes.split_off(end);
        let mut frame = core::mem::replace(&mut self.bytes, rest);
        frame.drain(..HEAD);
        Ok(Some(frame))
    }

    /// What was received and is no whole frame yet.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn too_long_a_frame_is_refused_before_its_bytes_are_stored() {
        let mut buffer = FrameBuffer::default();
        buffer.push(&u32::MAX.to_le_bytes());
        assert!(buffer.next_frame().is_err());
        assert!(encode(&"x".repeat(MAX_FRAME)).is_err());
    }

    proptest! {
        #[test]
        fn frames_come_out_whole_in_any_chunking(
            texts in proptest::collection::vec(".{0,40}", 0..8),
            cuts in proptest::collection::vec(1usize..9, 1..16),
        ) {
            let mut stream = Vec::new();
            for text in &texts {
                stream.extend(encode(text).unwrap());
            }
            let mut buffer = FrameBuffer::default();
            let mut got = Vec::new();
            let (mut at, mut cut) = (0, cuts.iter().cycle());
            while at < stream.len() {
                let end = (at + cut.next().unwrap()).min(stream.len());
                buffer.push(&stream[at..end]);
                at = end;
                while let Some(frame) = buffer.next_frame().unwrap() {
                    got.push(serde_json::from_slice::<String>(&frame).unwrap());
                }
            }
            prop_assert_eq!(got, texts);
            prop_assert!(buffer.pending().is_empty());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut buffer = FrameBuffer::default();
            buffer.push(&bytes);
            while let Ok(Some(frame)) = buffer.next_frame() {
                let _request: Result<super::super::proto::Request, _> = serde_json::from_slice(&frame);
            }
        }
    }
}
