//! The loop: event, observe, plan, act, report.
