//! What the machine has: /sys and /proc below a root folder.
