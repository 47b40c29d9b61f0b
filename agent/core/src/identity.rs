//! From a decoded manifest to a static pod: UID, names, annotations, tolerations.
