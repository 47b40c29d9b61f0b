//! API defaults of a pod.
