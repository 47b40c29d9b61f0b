//! Commands and their output.
