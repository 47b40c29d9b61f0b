//! The v1 API types: Pod, ConfigMap, Secret, lists.
