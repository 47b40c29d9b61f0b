//! The configuration file: read, checked, defaulted.
