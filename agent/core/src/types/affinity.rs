//! Where a scheduler should put a pod. A node alone does not act on it, but knows and validates it.
use super::LabelSelector;
use crate::object;
use alloc::{boxed::Box, string::String, vec::Vec};

object! {
    /// Affinity of a pod.
    pub struct Affinity {
        node_affinity: Option<Box<NodeAffinity>> = "nodeAffinity",
        pod_affinity: Option<Box<PodAffinity>> = "podAffinity",
        pod_anti_affinity: Option<Box<PodAffinity>> = "podAntiAffinity",
    }

    /// Affinity to nodes.
    pub struct NodeAffinity {
        required: Option<Box<NodeSelector>> = "requiredDuringSchedulingIgnoredDuringExecution",
        preferred: Vec<PreferredSchedulingTerm> = "preferredDuringSchedulingIgnoredDuringExecution",
    }

    /// Any of these terms.
    pub struct NodeSelector {
        node_selector_terms: Vec<NodeSelectorTerm> = "nodeSelectorTerms" always,
    }

    /// All of these conditions.
    pub struct NodeSelectorTerm {
        match_expressions: Vec<NodeSelectorRequirement> = "matchExpressions",
        match_fields: Vec<NodeSelectorRequirement> = "matchFields",
    }

    /// One condition on a node.
    pub struct NodeSelectorRequirement {
        key: String = "key" always,
        operator: String = "operator" always,
        values: Vec<String> = "values",
    }

    /// A term with a weight.
    pub struct PreferredSchedulingTerm {
        weight: i32 = "weight" always,
        preference: NodeSelectorTerm = "preference" always,
    }

    /// Affinity to pods, or away from them.
    pub struct PodAffinity {
        required: Vec<PodAffinityTerm> = "requiredDuringSchedulingIgnoredDuringExecution",
        preferred: Vec<WeightedPodAffinityTerm> = "preferredDuringSchedulingIgnoredDuringExecution",
    }

    /// Pods in the same place.
    pub struct PodAffinityTerm {
        label_selector: Option<Box<LabelSelector>> = "labelSelector",
        namespaces: Vec<String> = "namespaces",
        topology_key: String = "topologyKey" always,
        namespace_selector: Option<Box<LabelSelector>> = "namespaceSelector",
        match_label_keys: Vec<String> = "matchLabelKeys",
        mismatch_label_keys: Vec<String> = "mismatchLabelKeys",
    }

    /// A term with a weight.
    pub struct WeightedPodAffinityTerm {
        weight: i32 = "weight" always,
        pod_affinity_term: PodAffinityTerm = "podAffinityTerm" always,
    }

    /// How pods spread over places.
    pub struct TopologySpreadConstraint {
        max_skew: i32 = "maxSkew" always,
        topology_key: String = "topologyKey" always,
        when_unsatisfiable: String = "whenUnsatisfiable" always,
        label_selector: Option<Box<LabelSelector>> = "labelSelector",
        min_domains: Option<i32> = "minDomains",
        node_affinity_policy: Option<String> = "nodeAffinityPolicy",
        node_taints_policy: Option<String> = "nodeTaintsPolicy",
        match_label_keys: Vec<String> = "matchLabelKeys",
    }
}
