//! The local socket: status, logs, exec, images for the command line.
