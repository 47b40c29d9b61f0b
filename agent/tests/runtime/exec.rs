//! exec
use crate::Test;
pub(crate) const TESTS: &[Test] = &[];
