//! The one error of the harness: a sentence, because a person reads it.

use std::fmt;

/// What went wrong, in words.
#[derive(Clone, PartialEq, Eq)]
pub struct Trouble {
    text: String,
}

pub type Result<T> = std::result::Result<T, Trouble>;

impl Trouble {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

// a test that returns an error prints its `Debug` form; escapes would make logs unreadable there
impl fmt::Debug for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Trouble {}

/// Adds what was being done to an error of the system.
pub trait Doing<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|e| Trouble::new(format!("{what}: {e}")))
    }
}
