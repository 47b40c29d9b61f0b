//! All manifests to the desired set: duplicates, last good version of a file.
