//! Standard output and error of the command line; a reader that goes away is no error.

use std::io::Write;

/// Writes to standard output.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    // `podkeep get pods | head -1`: nothing is left to be told, to nobody
    drop(written);
}

/// Writes a line to standard error.
pub fn error(text: &str) {
    let mut out = std::io::stderr().lock();
    let written = out.write_all(text.trim_end().as_bytes()).and_then(|()| out.write_all(b"\n"));
    drop(written);
}
