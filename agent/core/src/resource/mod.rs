//! CPU, memory and device managers.
