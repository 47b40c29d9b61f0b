//! Log back end: text or JSON lines on standard error.
