//! Effective amounts of a pod; CPU shares, quota, weight; cgroup names.
