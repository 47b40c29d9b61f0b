//! Where manifests come from: folder, file, address; and how their text is read.
