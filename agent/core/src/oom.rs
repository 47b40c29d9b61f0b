//! oom_score_adj of a container.
