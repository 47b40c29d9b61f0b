//! States of pods and containers, and the plan that moves them.
