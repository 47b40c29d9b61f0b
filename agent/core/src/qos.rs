//! Guaranteed, Burstable, BestEffort.
