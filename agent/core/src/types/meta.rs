//! Metadata of objects, lists, references, selectors, ConfigMap and Secret.
use super::{Bytes, Dropped, Pod, StringMap, Time};
use crate::object;
use alloc::{collections::BTreeMap, string::String, vec::Vec};

object! {
    /// Metadata of an object.
    pub struct ObjectMeta {
        name: String = "name",
        generate_name: String = "generateName",
        namespace: String = "namespace",
        self_link: String = "selfLink",
        uid: String = "uid",
        resource_version: String = "resourceVersion",
        generation: i64 = "generation",
        creation_timestamp: Option<Time> = "creationTimestamp",
        deletion_timestamp: Option<Time> = "deletionTimestamp",
        deletion_grace_period_seconds: Option<i64> = "deletionGracePeriodSeconds",
        labels: StringMap = "labels",
        annotations: StringMap = "annotations",
        owner_references: Vec<OwnerReference> = "ownerReferences",
        finalizers: Vec<String> = "finalizers",
        managed_fields: Vec<ManagedFieldsEntry> = "managedFields",
    }

    /// What an object belongs to.
    pub struct OwnerReference {
        api_version: String = "apiVersion" always,
        kind: String = "kind" always,
        name: String = "name" always,
        uid: String = "uid" always,
        controller: Option<bool> = "controller",
        block_owner_deletion: Option<bool> = "blockOwnerDeletion",
    }

    /// Who set which fields; of no use on a node.
    pub struct ManagedFieldsEntry {
        manager: String = "manager",
        operation: String = "operation",
        api_version: String = "apiVersion",
        time: Option<Time> = "time",
        fields_type: String = "fieldsType",
        fields_v1: Dropped = "fieldsV1",
        subresource: String = "subresource",
    }

    /// Metadata of a list.
    pub struct ListMeta {
        self_link: String = "selfLink",
        resource_version: String = "resourceVersion",
        continue_token: String = "continue",
        remaining_item_count: Option<i64> = "remainingItemCount",
    }

    /// A list of pods.
    pub struct PodList {
        kind: String = "kind",
        api_version: String = "apiVersion",
        metadata: ListMeta = "metadata",
        items: Vec<Pod> = "items" always,
    }

    /// Plain configuration for containers.
    pub struct ConfigMap {
        kind: String = "kind",
        api_version: String = "apiVersion",
        metadata: ObjectMeta = "metadata",
        immutable: Option<bool> = "immutable",
        data: StringMap = "data",
        binary_data: BTreeMap<String, Bytes> = "binaryData",
    }

    /// Secret configuration for containers.
    pub struct Secret {
        kind: String = "kind",
        api_version: String = "apiVersion",
        metadata: ObjectMeta = "metadata",
        immutable: Option<bool> = "immutable",
        data: BTreeMap<String, Bytes> = "data",
        string_data: StringMap = "stringData",
        secret_type: String = "type",
    }

    /// The name of an object of the same namespace.
    pub struct LocalObjectReference {
        name: String = "name",
    }

    /// Selects objects by label.
    pub struct LabelSelector {
        match_labels: StringMap = "matchLabels",
        match_expressions: Vec<LabelSelectorRequirement> = "matchExpressions",
    }

    /// One condition on a label.
    pub struct LabelSelectorRequirement {
        key: String = "key" always,
        operator: String = "operator" always,
        values: Vec<String> = "values",
    }

    /// An object of another API group.
    pub struct TypedObjectReference {
        api_group: Option<String> = "apiGroup" always,
        kind: String = "kind" always,
        name: String = "name" always,
        namespace: Option<String> = "namespace",
    }

    /// An object of another API group in the same namespace.
    pub struct TypedLocalObjectReference {
        api_group: Option<String> = "apiGroup" always,
        kind: String = "kind" always,
        name: String = "name" always,
    }
}
