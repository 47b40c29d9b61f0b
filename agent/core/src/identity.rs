//! From a decoded manifest to a static pod: UID, names, annotations, tolerations, and what it may refer to.
//!
//! The UID of a manifest without one is a hash of what the manifest means: its metadata and specification with the
//! defaults filled in, and where it came from. So it is the same for another order of keys, comments, unknown fields
//! and defaults written out, and another one for any change of meaning, another file or another node.
use crate::defaults;
use crate::types::object::{Field, Object, View};
use crate::types::{Container, EnvVarSource, Pod, PodSpec, Toleration, Volume, value};
use crate::validation::{self, FieldError};
use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

/// Annotation with the UID of the manifest; always overwritten.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Annotation with the kind of source, `file` or `http`.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Annotation with the time the pod was first seen.
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
/// The namespace of a manifest without one.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Where a manifest came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// A file of this path.
    File(&'a str),
    /// An answer from this address.
    Http(&'a str),
}

impl Source<'_> {
    /// Value of [`CONFIG_SOURCE`].
    pub fn name(self) -> &'static str {
        match self {
            Source::File(_) => "file",
            Source::Http(_) => "http",
        }
    }
}

/// Which API objects the node serves itself, from manifests. The kubelet serves none and refuses every pod that
/// refers to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// ConfigMaps may be referred to.
    pub config_maps: bool,
    /// Secrets may be referred to.
    pub secrets: bool,
}

impl Served {
    /// Nothing, as the kubelet.
    pub const NONE: Served = Served { config_maps: false, secrets: false };
    /// ConfigMaps and Secrets, as this agent.
    pub const LOCAL: Served = Served { config_maps: true, secrets: true };
}

/// Why a manifest is not a static pod of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// The manifest has no name; `generateName` does not help, as nobody would know the name.
    NoName,
    /// The pod is not valid.
    Invalid(Vec<FieldError>),
    /// The pod needs an object of an API server.
    Reference {
        /// Which kind of object.
        resource: &'static str,
    },
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdentityError::NoName => f.write_str("metadata.name: Required value: a static pod needs a name"),
            IdentityError::Invalid(errors) => {
                for (index, error) in errors.iter().enumerate() {
                    write!(f, "{}{error}", if index == 0 { "" } else { "; " })?;
                }
                Ok(())
            }
            IdentityError::Reference { resource } => write!(f, "static pods may not reference {resource}"),
        }
    }
}

impl core::error::Error for IdentityError {}

/// Makes the static pod of a manifest: defaults, UID, the node's name behind the pod's, namespace, annotation,
/// toleration; then validation, and the check of references. `node` is the name of the node as it is configured.
pub fn static_pod(
    mut pod: Pod,
    node: &str,
    source: Source<'_>,
    served: Served,
) -> Result<Pod, IdentityError> {
    if pod.metadata.name.is_empty() {
        return Err(IdentityError::NoName);
    }
    defaults::pod(&mut pod);
    pod.status = Default::default();
    if pod.metadata.namespace.is_empty() {
        pod.metadata.namespace = DEFAULT_NAMESPACE.into();
    }
    if let Source::File(_) = source {
        tolerate_no_execute(&mut pod.spec);
    }
    for annotation in [CONFIG_HASH, CONFIG_SOURCE, CONFIG_SEEN] {
        pod.metadata.annotations.remove(annotation);
    }
    pod.spec.node_name.clear();
    if pod.metadata.uid.is_empty() {
        pod.metadata.uid = uid(&pod, node, source);
    }
    pod.metadata.annotations.insert(CONFIG_HASH.into(), pod.metadata.uid.clone());
    pod.metadata.name = format!("{}-{}", pod.metadata.name, node.to_ascii_lowercase());
    pod.spec.node_name = node.into();
    pod.status.phase = value::PENDING.into();
    let errors = validation::pod(&pod);
    if !errors.is_empty() {
        return Err(IdentityError::Invalid(errors));
    }
    match reference(&pod, served) {
        Some(resource) => Err(IdentityError::Reference { resource }),
        None => Ok(pod),
    }
}

/// Adds what the agent knows of the source. `seen` is the time the pod was first seen, in RFC 3339 with nanoseconds,
/// kept over updates. Neither counts as a change of the pod.
pub fn mark(pod: &mut Pod, source: Source<'_>, seen: &str) {
    pod.metadata.annotations.insert(CONFIG_SOURCE.into(), source.name().into());
    pod.metadata.annotations.insert(CONFIG_SEEN.into(), seen.into());
}

/// Whether a pod came from a manifest.
pub fn is_static(pod: &Pod) -> bool {
    pod.metadata.annotations.contains_key(CONFIG_SOURCE)
}

/// A pod of a file stays, whatever the node is tainted with.
fn tolerate_no_execute(spec: &mut PodSpec) {
    let wanted = Toleration { operator: "Exists".into(), effect: "NoExecute".into(), ..Default::default() };
    if !spec.tolerations.contains(&wanted) {
        spec.tolerations.push(wanted);
    }
}

/// FNV-1a with 128 bits.
struct Fnv(u128);

impl Fnv {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(Self::PRIME);
        }
    }

    /// A text with its length, so that two texts cannot pass for one.
    fn text(&mut self, kind: u8, text: &str) {
        self.bytes(&[kind]);
        self.bytes(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
        self.bytes(text.as_bytes());
    }

    fn field(&mut self, field: &dyn Field) {
        match field.view() {
            View::Bool(b) => self.bytes(&[b'b', u8::from(b)]),
            View::Int(i) => {
                self.bytes(b"i");
                self.bytes(&i.to_le_bytes());
            }
            View::Float(x) => {
                self.bytes(b"x");
                self.bytes(&x.to_le_bytes());
            }
            View::Str(s) => self.text(b's', s),
            // the canonical text: 1000m and 1 are one amount
            View::Text(t) => self.text(b't', &t.to_string()),
            View::Object(object) => self.object(object),
            View::List(list) => {
                self.bytes(b"[");
                let mut index = 0usize;
                while let Some(item) = list.item(index) {
                    self.field(item);
                    index = index.saturating_add(1);
                }
                self.bytes(b"]");
            }
            View::Map(map) => {
                self.bytes(b"<");
                map.each(&mut |key, value| {
                    self.text(b'k', key);
                    self.field(value);
                    true
                });
                self.bytes(b">");
            }
            View::Opt(None) => self.bytes(b"-"),
            View::Opt(Some(inner)) => {
                self.bytes(b"+");
                self.field(inner);
            }
        }
    }

    /// Named fields that are not empty, so that a new field of the API changes no UID.
    fn object(&mut self, object: &dyn Object) {
        self.bytes(b"{");
        for (index, name) in object.shape().fields.iter().enumerate() {
            let Some(field) = object.at(index) else { continue };
            let empty = match field.view() {
                View::Object(inner) => is_blank(inner),
                view => view.is_empty(),
            };
            if !empty {
                self.text(b'f', name);
                self.field(field);
            }
        }
        self.bytes(b"}");
    }
}

/// A struct inside its parent with nothing in it.
fn is_blank(object: &dyn Object) -> bool {
    (0..object.shape().fields.len()).all(|index| match object.at(index).map(Field::view) {
        Some(View::Object(inner)) => is_blank(inner),
        Some(view) => view.is_empty(),
        None => true,
    })
}

/// 32 hex digits of a defaulted pod and its source.
fn uid(pod: &Pod, node: &str, source: Source<'_>) -> String {
    let mut hash = Fnv(Fnv::OFFSET);
    hash.object(&pod.metadata);
    hash.object(&pod.spec);
    match source {
        Source::File(path) => {
            hash.text(b'h', node);
            hash.text(b'p', path);
        }
        Source::Http(url) => hash.text(b'u', url),
    }
    format!("{:032x}", hash.0)
}

/// The first kind of API object a pod needs and the node does not serve, in the words and the order of the kubelet.
pub fn reference(pod: &Pod, served: Served) -> Option<&'static str> {
    let spec = &pod.spec;
    if !spec.service_account_name.is_empty() || !spec.service_account.is_empty() {
        return Some("serviceaccounts");
    }
    if !served.secrets && needs_secret(spec) {
        return Some("secrets");
    }
    if !served.config_maps && needs_config_map(spec) {
        return Some("configmaps");
    }
    if !spec.resource_claims.is_empty() {
        return Some("resourceclaims");
    }
    spec.volumes.iter().find_map(needed_by_volume)
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().chain(&spec.containers)
}

fn variables(spec: &PodSpec) -> impl Iterator<Item = &EnvVarSource> {
    containers(spec).flat_map(|c| &c.env).filter_map(|v| v.value_from.as_deref())
}

fn needs_secret(spec: &PodSpec) -> bool {
    let in_volume = |v: &Volume| {
        let projected = v.projected.iter().flat_map(|p| &p.sources).any(|s| s.secret.is_some());
        let credentials = [
            v.cephfs.as_ref().and_then(|s| s.secret_ref.as_ref()),
            v.cinder.as_ref().and_then(|s| s.secret_ref.as_ref()),
            v.flex_volume.as_ref().and_then(|s| s.secret_ref.as_ref()),
            v.rbd.as_ref().and_then(|s| s.secret_ref.as_ref()),
            v.scale_io.as_ref().and_then(|s| s.secret_ref.as_ref()),
            v.iscsi.as_ref().and_then(|s| s.secret_ref.as_ref()),
            v.storageos.as_ref().and_then(|s| s.secret_ref.as_ref()),
            v.csi.as_ref().and_then(|s| s.node_publish_secret_ref.as_ref()),
        ];
        projected || v.secret.is_some() || v.azure_file.is_some() || credentials.iter().any(Option::is_some)
    };
    !spec.image_pull_secrets.is_empty()
        || containers(spec).flat_map(|c| &c.env_from).any(|e| e.secret_ref.is_some())
        || variables(spec).any(|v| v.secret_key_ref.is_some())
        || spec.volumes.iter().any(in_volume)
}

fn needs_config_map(spec: &PodSpec) -> bool {
    let in_volume = |v: &Volume| {
        v.config_map.is_some() || v.projected.iter().flat_map(|p| &p.sources).any(|s| s.config_map.is_some())
    };
    containers(spec).flat_map(|c| &c.env_from).any(|e| e.config_map_ref.is_some())
        || variables(spec).any(|v| v.config_map_key_ref.is_some())
        || spec.volumes.iter().any(in_volume)
}

/// What a volume needs beside ConfigMaps and Secrets.
fn needed_by_volume(volume: &Volume) -> Option<&'static str> {
    if volume.csi.is_some() {
        return Some("csidrivers (via CSI volumes)");
    }
    if volume.glusterfs.is_some() {
        return Some("endpoints (via glusterFS volumes)");
    }
    if volume.persistent_volume_claim.is_some() {
        return Some("persistentvolumeclaims");
    }
    if volume.ephemeral.is_some() {
        return Some("persistentvolumeclaims (via ephemeral volumes)");
    }
    if volume.azure_file.is_some() {
        return Some("secrets (via azureFile volumes)");
    }
    volume.projected.iter().flat_map(|p| &p.sources).find_map(|source| {
        if source.service_account_token.is_some() {
            Some("serviceaccounts (via projected volumes)")
        } else if source.cluster_trust_bundle.is_some() {
            Some("clustertrustbundles")
        } else if source.pod_certificate.is_some() {
            Some("podcertificates")
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str, node: &str, source: Source<'_>) -> Pod {
        let pod: Pod = serde_json::from_str(text).unwrap();
        static_pod(pod, node, source, Served::NONE).unwrap_or_else(|error| panic!("{error}"))
    }

    fn uid_of(text: &str) -> String {
        made(text, "n1", Source::File("/m/a.yaml")).metadata.uid
    }

    const PLAIN: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web"},
        "spec":{"containers":[{"name":"c","image":"nginx:1.27","resources":{"limits":{"cpu":"1"}}}]}}"#;

    #[test]
    fn the_same_meaning_has_the_same_uid() {
        let spelled = r#"{"spec":{"containers":[{"image":"nginx:1.27","resources":{"limits":{"cpu":"1000m"},
            "requests":{"cpu":1}},"name":"c","imagePullPolicy":"IfNotPresent","unknown":{"a":1},"env":[],"command":null,
            "terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],
            "restartPolicy":"Always","dnsPolicy":"ClusterFirst","terminationGracePeriodSeconds":30,"securityContext":{},
            "schedulerName":"default-scheduler","enableServiceLinks":true,"hostNetwork":false,
            "tolerations":[{"operator":"Exists","effect":"NoExecute"}]},"status":{"phase":"Running"},
            "metadata":{"namespace":"default","name":"web","labels":{},"annotations":{"kubernetes.io/config.hash":"x"}}}"#;
        assert_eq!(uid_of(PLAIN), uid_of(spelled));
        assert_eq!(uid_of(PLAIN).len(), 32);
    }

    #[test]
    fn another_meaning_has_another_uid() {
        let mut seen = alloc::collections::BTreeSet::from([uid_of(PLAIN)]);
        for (from, to) in [
            ("1.27", "1.28"),
            (r#""cpu":"1""#, r#""cpu":"2""#),
            (r#""name":"web""#, r#""name":"web","labels":{"a":"b"}"#),
            (r#""name":"web""#, r#""name":"web","labels":{"ab":""}"#),
            (r#""name":"web""#, r#""name":"web","namespace":"other""#),
            (r#""name":"c""#, r#""name":"c","args":["a","b"]"#),
            (r#""name":"c""#, r#""name":"c","args":["ab"]"#),
            (r#""name":"c""#, r#""name":"c","command":["a","b"]"#),
            (r#""name":"c""#, r#""name":"c","securityContext":{"privileged":false}"#),
            (r#""spec":{"#, r#""spec":{"volumes":[{"name":"v"}],"#),
        ] {
            assert!(seen.insert(uid_of(&PLAIN.replace(from, to))), "{to}");
        }
    }

    #[test]
    fn node_and_file_count_for_files_and_the_address_alone_for_http() {
        let uid = |node, source| made(PLAIN, node, source).metadata.uid;
        let file = uid("n1", Source::File("/m/a.yaml"));
        assert_ne!(file, uid("n2", Source::File("/m/a.yaml")));
        assert_ne!(file, uid("n1", Source::File("/m/b.yaml")));
        assert_eq!(uid("n1", Source::Http("http://a/")), uid("n2", Source::Http("http://a/")));
        assert_ne!(uid("n1", Source::Http("http://a/")), uid("n1", Source::Http("http://b/")));
    }

    #[test]
    fn a_node_name_in_upper_case_is_refused_as_the_pod_could_not_name_it() {
        let pod: Pod = serde_json::from_str(PLAIN).unwrap();
        let error = static_pod(pod, "Node1", Source::File("/a"), Served::NONE);
        assert!(
            matches!(error, Err(IdentityError::Invalid(e)) if e.iter().any(|e| e.field == "spec.nodeName"))
        );
    }
}
