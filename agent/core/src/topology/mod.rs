//! Topology manager: hints, merge, policies.
