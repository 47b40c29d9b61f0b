//! Control groups on v1, v2 and hybrid.
