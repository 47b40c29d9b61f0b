//! Small durable files: each write whole or absent.
