//! `$(VAR)` expansion, the downward API, host names, the hosts file.
