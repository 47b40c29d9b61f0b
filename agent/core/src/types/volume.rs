//! Volumes: every source of the API by name.
use super::{
    LabelSelector, LocalObjectReference, ObjectFieldSelector, ObjectMeta, Quantity, ResourceFieldSelector,
    ResourceRequirements, StringMap, TypedLocalObjectReference, TypedObjectReference,
};
use crate::object;
use alloc::{boxed::Box, string::String, vec::Vec};

object! {
    /// A volume of a pod: a name and exactly one source.
    pub struct Volume {
        name: String = "name" always,
        host_path: Option<Box<HostPathVolumeSource>> = "hostPath",
        empty_dir: Option<Box<EmptyDirVolumeSource>> = "emptyDir",
        gce_persistent_disk: Option<Box<GCEPersistentDiskVolumeSource>> = "gcePersistentDisk",
        aws_elastic_block_store: Option<Box<AWSElasticBlockStoreVolumeSource>> = "awsElasticBlockStore",
        git_repo: Option<Box<GitRepoVolumeSource>> = "gitRepo",
        secret: Option<Box<SecretVolumeSource>> = "secret",
        nfs: Option<Box<NFSVolumeSource>> = "nfs",
        iscsi: Option<Box<ISCSIVolumeSource>> = "iscsi",
        glusterfs: Option<Box<GlusterfsVolumeSource>> = "glusterfs",
        persistent_volume_claim: Option<Box<PersistentVolumeClaimVolumeSource>> = "persistentVolumeClaim",
        rbd: Option<Box<RBDVolumeSource>> = "rbd",
        flex_volume: Option<Box<FlexVolumeSource>> = "flexVolume",
        cinder: Option<Box<CinderVolumeSource>> = "cinder",
        cephfs: Option<Box<CephFSVolumeSource>> = "cephfs",
        flocker: Option<Box<FlockerVolumeSource>> = "flocker",
        downward_api: Option<Box<DownwardAPIVolumeSource>> = "downwardAPI",
        fc: Option<Box<FCVolumeSource>> = "fc",
        azure_file: Option<Box<AzureFileVolumeSource>> = "azureFile",
        config_map: Option<Box<ConfigMapVolumeSource>> = "configMap",
        vsphere_volume: Option<Box<VsphereVirtualDiskVolumeSource>> = "vsphereVolume",
        quobyte: Option<Box<QuobyteVolumeSource>> = "quobyte",
        azure_disk: Option<Box<AzureDiskVolumeSource>> = "azureDisk",
        photon_persistent_disk: Option<Box<PhotonPersistentDiskVolumeSource>> = "photonPersistentDisk",
        projected: Option<Box<ProjectedVolumeSource>> = "projected",
        portworx_volume: Option<Box<PortworxVolumeSource>> = "portworxVolume",
        scale_io: Option<Box<ScaleIOVolumeSource>> = "scaleIO",
        storageos: Option<Box<StorageOSVolumeSource>> = "storageos",
        csi: Option<Box<CSIVolumeSource>> = "csi",
        ephemeral: Option<Box<EphemeralVolumeSource>> = "ephemeral",
        image: Option<Box<ImageVolumeSource>> = "image",
    }

    /// A file or folder of the node.
    pub struct HostPathVolumeSource {
        path: String = "path" always,
        path_type: Option<String> = "type",
    }

    /// An empty folder that lives as long as the pod.
    pub struct EmptyDirVolumeSource {
        medium: String = "medium",
        size_limit: Option<Quantity> = "sizeLimit",
    }

    /// A Secret as files.
    pub struct SecretVolumeSource {
        secret_name: String = "secretName",
        items: Vec<KeyToPath> = "items",
        default_mode: Option<i32> = "defaultMode",
        optional: Option<bool> = "optional",
    }

    /// A ConfigMap as files.
    pub struct ConfigMapVolumeSource {
        name: String = "name",
        items: Vec<KeyToPath> = "items",
        default_mode: Option<i32> = "defaultMode",
        optional: Option<bool> = "optional",
    }

    /// A key and the file it becomes.
    pub struct KeyToPath {
        key: String = "key" always,
        path: String = "path" always,
        mode: Option<i32> = "mode",
    }

    /// Fields of the pod as files.
    pub struct DownwardAPIVolumeSource {
        items: Vec<DownwardAPIVolumeFile> = "items",
        default_mode: Option<i32> = "defaultMode",
    }

    /// A file with a field of the pod.
    pub struct DownwardAPIVolumeFile {
        path: String = "path" always,
        field_ref: Option<Box<ObjectFieldSelector>> = "fieldRef",
        resource_field_ref: Option<Box<ResourceFieldSelector>> = "resourceFieldRef",
        mode: Option<i32> = "mode",
    }

    /// Several sources in one folder.
    pub struct ProjectedVolumeSource {
        sources: Vec<VolumeProjection> = "sources" always,
        default_mode: Option<i32> = "defaultMode",
    }

    /// One source of a projected volume.
    pub struct VolumeProjection {
        secret: Option<Box<ObjectProjection>> = "secret",
        downward_api: Option<Box<DownwardAPIProjection>> = "downwardAPI",
        config_map: Option<Box<ObjectProjection>> = "configMap",
        service_account_token: Option<Box<ServiceAccountTokenProjection>> = "serviceAccountToken",
        cluster_trust_bundle: Option<Box<ClusterTrustBundleProjection>> = "clusterTrustBundle",
        pod_certificate: Option<Box<PodCertificateProjection>> = "podCertificate",
    }

    /// A ConfigMap or Secret in a projected volume.
    pub struct ObjectProjection {
        name: String = "name",
        items: Vec<KeyToPath> = "items",
        optional: Option<bool> = "optional",
    }

    /// Fields of the pod in a projected volume.
    pub struct DownwardAPIProjection {
        items: Vec<DownwardAPIVolumeFile> = "items",
    }

    /// A token of a service account.
    pub struct ServiceAccountTokenProjection {
        audience: String = "audience",
        expiration_seconds: Option<i64> = "expirationSeconds",
        path: String = "path" always,
    }

    /// Trust anchors.
    pub struct ClusterTrustBundleProjection {
        name: Option<String> = "name",
        signer_name: Option<String> = "signerName",
        label_selector: Option<Box<LabelSelector>> = "labelSelector",
        optional: Option<bool> = "optional",
        path: String = "path" always,
    }

    /// A certificate of the pod.
    pub struct PodCertificateProjection {
        signer_name: String = "signerName",
        key_type: String = "keyType",
        max_expiration_seconds: Option<i32> = "maxExpirationSeconds",
        credential_bundle_path: String = "credentialBundlePath",
        key_path: String = "keyPath",
        certificate_chain_path: String = "certificateChainPath",
        user_annotations: StringMap = "userAnnotations",
    }

    /// A claim of a persistent volume.
    pub struct PersistentVolumeClaimVolumeSource {
        claim_name: String = "claimName" always,
        read_only: bool = "readOnly",
    }

    /// An image as a volume.
    pub struct ImageVolumeSource {
        reference: String = "reference",
        pull_policy: String = "pullPolicy",
    }

    /// A network file system.
    pub struct NFSVolumeSource {
        server: String = "server" always,
        path: String = "path" always,
        read_only: bool = "readOnly",
    }

    /// A volume of a storage driver.
    pub struct CSIVolumeSource {
        driver: String = "driver" always,
        read_only: Option<bool> = "readOnly",
        fs_type: Option<String> = "fsType",
        volume_attributes: StringMap = "volumeAttributes",
        node_publish_secret_ref: Option<Box<LocalObjectReference>> = "nodePublishSecretRef",
    }

    /// A claim that lives as long as the pod.
    pub struct EphemeralVolumeSource {
        volume_claim_template: Option<Box<PersistentVolumeClaimTemplate>> = "volumeClaimTemplate",
    }

    /// The claim to be made.
    pub struct PersistentVolumeClaimTemplate {
        metadata: ObjectMeta = "metadata",
        spec: PersistentVolumeClaimSpec = "spec" always,
    }

    /// What is claimed.
    pub struct PersistentVolumeClaimSpec {
        access_modes: Vec<String> = "accessModes",
        selector: Option<Box<LabelSelector>> = "selector",
        resources: ResourceRequirements = "resources",
        volume_name: String = "volumeName",
        storage_class_name: Option<String> = "storageClassName",
        volume_mode: Option<String> = "volumeMode",
        data_source: Option<Box<TypedLocalObjectReference>> = "dataSource",
        data_source_ref: Option<Box<TypedObjectReference>> = "dataSourceRef",
        volume_attributes_class_name: Option<String> = "volumeAttributesClassName",
    }

    /// A disk of Google Compute Engine.
    pub struct GCEPersistentDiskVolumeSource {
        pd_name: String = "pdName" always,
        fs_type: String = "fsType",
        partition: i32 = "partition",
        read_only: bool = "readOnly",
    }

    /// A disk of Amazon.
    pub struct AWSElasticBlockStoreVolumeSource {
        volume_id: String = "volumeID" always,
        fs_type: String = "fsType",
        partition: i32 = "partition",
        read_only: bool = "readOnly",
    }

    /// A git repository.
    pub struct GitRepoVolumeSource {
        repository: String = "repository" always,
        revision: String = "revision",
        directory: String = "directory",
    }

    /// A disk over iSCSI.
    pub struct ISCSIVolumeSource {
        target_portal: String = "targetPortal" always,
        iqn: String = "iqn" always,
        lun: i32 = "lun" always,
        iscsi_interface: String = "iscsiInterface",
        fs_type: String = "fsType",
        read_only: bool = "readOnly",
        portals: Vec<String> = "portals",
        chap_auth_discovery: bool = "chapAuthDiscovery",
        chap_auth_session: bool = "chapAuthSession",
        secret_ref: Option<Box<LocalObjectReference>> = "secretRef",
        initiator_name: Option<String> = "initiatorName",
    }

    /// A volume of Gluster.
    pub struct GlusterfsVolumeSource {
        endpoints: String = "endpoints" always,
        path: String = "path" always,
        read_only: bool = "readOnly",
    }

    /// A block device of Ceph.
    pub struct RBDVolumeSource {
        monitors: Vec<String> = "monitors" always,
        image: String = "image" always,
        fs_type: String = "fsType",
        pool: String = "pool",
        user: String = "user",
        keyring: String = "keyring",
        secret_ref: Option<Box<LocalObjectReference>> = "secretRef",
        read_only: bool = "readOnly",
    }

    /// A volume of an executable driver.
    pub struct FlexVolumeSource {
        driver: String = "driver" always,
        fs_type: String = "fsType",
        secret_ref: Option<Box<LocalObjectReference>> = "secretRef",
        read_only: bool = "readOnly",
        options: StringMap = "options",
    }

    /// A disk of OpenStack.
    pub struct CinderVolumeSource {
        volume_id: String = "volumeID" always,
        fs_type: String = "fsType",
        read_only: bool = "readOnly",
        secret_ref: Option<Box<LocalObjectReference>> = "secretRef",
    }

    /// A file system of Ceph.
    pub struct CephFSVolumeSource {
        monitors: Vec<String> = "monitors" always,
        path: String = "path",
        user: String = "user",
        secret_file: String = "secretFile",
        secret_ref: Option<Box<LocalObjectReference>> = "secretRef",
        read_only: bool = "readOnly",
    }

    /// A volume of Flocker.
    pub struct FlockerVolumeSource {
        dataset_name: String = "datasetName",
        dataset_uuid: String = "datasetUUID",
    }

    /// A disk over Fibre Channel.
    pub struct FCVolumeSource {
        target_wwns: Vec<String> = "targetWWNs",
        lun: Option<i32> = "lun",
        fs_type: String = "fsType",
        read_only: bool = "readOnly",
        wwids: Vec<String> = "wwids",
    }

    /// A share of Azure.
    pub struct AzureFileVolumeSource {
        secret_name: String = "secretName" always,
        share_name: String = "shareName" always,
        read_only: bool = "readOnly",
    }

    /// A disk of vSphere.
    pub struct VsphereVirtualDiskVolumeSource {
        volume_path: String = "volumePath" always,
        fs_type: String = "fsType",
        storage_policy_name: String = "storagePolicyName",
        storage_policy_id: String = "storagePolicyID",
    }

    /// A volume of Quobyte.
    pub struct QuobyteVolumeSource {
        registry: String = "registry" always,
        volume: String = "volume" always,
        read_only: bool = "readOnly",
        user: String = "user",
        group: String = "group",
        tenant: String = "tenant",
    }

    /// A disk of Azure.
    pub struct AzureDiskVolumeSource {
        disk_name: String = "diskName" always,
        disk_uri: String = "diskURI" always,
        caching_mode: Option<String> = "cachingMode",
        fs_type: Option<String> = "fsType",
        read_only: Option<bool> = "readOnly",
        kind: Option<String> = "kind",
    }

    /// A disk of Photon.
    pub struct PhotonPersistentDiskVolumeSource {
        pd_id: String = "pdID" always,
        fs_type: String = "fsType",
    }

    /// A volume of Portworx.
    pub struct PortworxVolumeSource {
        volume_id: String = "volumeID" always,
        fs_type: String = "fsType",
        read_only: bool = "readOnly",
    }

    /// A volume of ScaleIO.
    pub struct ScaleIOVolumeSource {
        gateway: String = "gateway" always,
        system: String = "system" always,
        secret_ref: Option<Box<LocalObjectReference>> = "secretRef" always,
        ssl_enabled: bool = "sslEnabled",
        protection_domain: String = "protectionDomain",
        storage_pool: String = "storagePool",
        storage_mode: String = "storageMode",
        volume_name: String = "volumeName",
        fs_type: String = "fsType",
        read_only: bool = "readOnly",
    }

    /// A volume of StorageOS.
    pub struct StorageOSVolumeSource {
        volume_name: String = "volumeName",
        volume_namespace: String = "volumeNamespace",
        fs_type: String = "fsType",
        read_only: bool = "readOnly",
        secret_ref: Option<Box<LocalObjectReference>> = "secretRef",
    }
}
