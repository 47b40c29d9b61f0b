//! The configuration file: read, checked, defaulted.
//!
//! One file holds a `KubeletConfiguration` document as the kubelet reads it and, optionally, a `NodeConfiguration`
//! document of our own; both may be absent. Drop-ins (`*.conf` of a folder, in the order of their names) are laid over
//! it: mappings key by key, lists and values replaced. Unknown, doubled and wrongly cased names are loud warnings, as
//! with the kubelet; all else is refused, all faults together. See docs/decisions/0012-configuration.md.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use podkeep_core::config::{self, ConfigFault, KubeletConfiguration, NodeConfiguration};
use podkeep_core::desired::Finding;
use podkeep_core::types::Object;

use crate::source::decode::{self, MAX_FILE};
use crate::source::fill::Filling;
use crate::source::node::{Node, Position, Value, display_path};

/// Settings with all defaults filled in, and what their author should know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub kubelet: KubeletConfiguration,
    pub node: NodeConfiguration,
    pub warnings: Vec<Finding>,
}

/// Where the settings failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// the file cannot be read, or its text has no such meaning
    Decode,
    /// it is understood, but not allowed
    Validate,
}

/// Why there are no settings: every fault, each on its line.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigError {
    pub stage: Stage,
    pub findings: Vec<Finding>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, finding) in self.findings.iter().enumerate() {
            write!(f, "{}{finding}", if i > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Settings of a file and a folder of drop-ins; the defaults where neither is given.
pub fn load(file: Option<&Path>, drop_ins: Option<&Path>) -> Result<Settings, ConfigError> {
    let mut paths: Vec<PathBuf> = file.map(Path::to_path_buf).into_iter().collect();
    if let Some(folder) = drop_ins {
        paths.extend(conf_files(folder)?);
    }
    let mut texts = Vec::new();
    for path in &paths {
        texts.push((display_path(path), read(path)?));
    }
    let texts: Vec<(&str, &[u8])> =
        texts.iter().map(|(name, text)| (name.as_str(), text.as_slice())).collect();
    from_texts(&texts)
}

/// Settings of texts with their names, later ones laid over earlier ones.
pub fn from_texts(texts: &[(&str, &[u8])]) -> Result<Settings, ConfigError> {
    let mut reading = Reading::default();
    for (name, text) in texts {
        reading.file(name, text);
    }
    reading.settings()
}

fn unreadable(path: &Path, what: &str) -> ConfigError {
    let finding = Finding { file: display_path(path), message: what.to_string(), ..Finding::default() };
    ConfigError { stage: Stage::Decode, findings: vec![finding] }
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let mut text = Vec::new();
    let file = fs::File::open(path).map_err(|e| unreadable(path, &format!("cannot be read: {e}")))?;
    file.take(MAX_FILE.saturating_add(1))
        .read_to_end(&mut text)
        .map_err(|e| unreadable(path, &format!("cannot be read: {e}")))?;
    Ok(text)
}

fn conf_files(folder: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let entries = fs::read_dir(folder).map_err(|e| unreadable(folder, &format!("cannot be read: {e}")))?;
    let mut names: Vec<OsString> = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| unreadable(folder, &format!("cannot be read: {e}")))?;
        names.push(entry.file_name());
    }
    names.retain(|name| name.as_bytes().ends_with(b".conf") && !name.as_bytes().starts_with(b"."));
    names.sort();
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// The two documents we know.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Document {
    Kubelet,
    Node,
}

#[derive(Default)]
struct Reading<'t> {
    kubelet: Layers<'t>,
    node: Layers<'t>,
    warnings: Vec<Finding>,
    errors: Vec<Finding>,
}

/// One document as every file has it, and all of them laid over each other.
#[derive(Default)]
struct Layers<'t> {
    files: Vec<(&'t str, Node<'t>)>,
    merged: Option<Node<'t>>,
}

impl<'t> Layers<'t> {
    fn add(&mut self, name: &'t str, node: Node<'t>) {
        match &mut self.merged {
            Some(merged) => merged.overlay(&node),
            None => self.merged = Some(node.clone()),
        }
        self.files.push((name, node));
    }

    /// Where a field was last written; the document's start if it was not.
    fn place(&self, path: &str) -> (&'t str, Position) {
        let written =
            self.files.iter().rev().find_map(|(name, node)| node.locate_exactly(path).map(|at| (*name, at)));
        let near = || self.files.last().map(|(name, node)| (*name, node.locate(path)));
        written.or_else(near).unwrap_or_default()
    }
}

impl<'t> Reading<'t> {
    fn file(&mut self, name: &'t str, text: &'t [u8]) {
        let (documents, duplicates) = match decode::parse_lenient(text) {
            Ok(parsed) => parsed,
            Err(error) => return self.errors.push(decode::syntax_finding(error, name)),
        };
        self.warnings.extend(duplicates.into_iter().map(|error| Finding {
            hint: "strict decoding failed; lenient decoding used: the last one counts".to_string(),
            ..decode::syntax_finding(error, name)
        }));
        for node in documents.into_iter().filter(|node| !node.is_null()) {
            let document = self.envelope(name, &node);
            let mut filling = Filling::new(name, false);
            match document {
                Document::Kubelet => filling.object(&node, &mut KubeletConfiguration::default(), &[]),
                Document::Node => filling.object(&node, &mut NodeConfiguration::default(), &[]),
            }
            self.warnings.extend(filling.unknown_keys().into_iter().map(|mut finding| {
                finding.message.push_str(" is left out: strict decoding failed; lenient decoding used");
                finding
            }));
            self.errors.append(&mut filling.errors);
            match document {
                Document::Kubelet => self.kubelet.add(name, node),
                Document::Node => self.node.add(name, node),
            }
        }
    }

    /// Which document this is; with a wrong head it is judged as the kubelet's, so that all faults are told at once.
    fn envelope(&mut self, name: &'t str, node: &Node<'t>) -> Document {
        let text = |key: &str| node.get(key).and_then(Node::text).unwrap_or("");
        let (version, kind) = (text("apiVersion"), text("kind"));
        let document = if kind == config::node::KIND { Document::Node } else { Document::Kubelet };
        let (own_version, own_kind) = match document {
            Document::Kubelet => (config::API_VERSION, config::KIND),
            Document::Node => (config::node::API_VERSION, config::node::KIND),
        };
        if !matches!(node.value, Value::Map(_)) {
            return document;
        }
        for (key, found, wanted) in [("apiVersion", version, own_version), ("kind", kind, own_kind)] {
            if found != wanted {
                let at = node.locate(key);
                let message = match node.get(key) {
                    None => format!("{key} is missing"),
                    Some(value) => format!("found {}", value.describe(false)),
                };
                self.errors.push(Finding {
                    file: name.to_string(),
                    line: at.line,
                    column: at.column,
                    path: key.to_string(),
                    message,
                    hint: format!("write '{key}: {wanted}'"),
                });
            }
        }
        document
    }

    fn settings(mut self) -> Result<Settings, ConfigError> {
        let mut settings = Settings::default();
        // what is wrong was found file by file
        if let Some(node) = &self.kubelet.merged {
            Filling::new("", false).object(node, &mut settings.kubelet, &[]);
        }
        if let Some(node) = &self.node.merged {
            Filling::new("", false).object(node, &mut settings.node, &[]);
        }
        self.note_without_use(&settings.kubelet);
        config::defaults::set_defaults(&mut settings.kubelet);
        config::node::set_defaults(&mut settings.node);
        let stage = if self.errors.is_empty() { Stage::Validate } else { Stage::Decode };
        let faults = config::validate::validate(&settings.kubelet);
        self.errors.extend(findings(&self.kubelet, faults));
        let faults = config::node::validate(&settings.node);
        self.errors.extend(findings(&self.node, faults));
        if self.errors.is_empty() {
            settings.warnings = self.warnings;
            return Ok(settings);
        }
        // an unknown name is often the cause of a fault
        self.errors.append(&mut self.warnings);
        Err(ConfigError { stage, findings: self.errors })
    }

    /// One line for all settings that do nothing here.
    fn note_without_use(&mut self, kubelet: &KubeletConfiguration) {
        let Some(Node { value: Value::Map(entries), .. }) = &self.kubelet.merged else { return };
        let idle = entries.iter().map(|entry| entry.key.as_ref());
        let mut idle: Vec<String> =
            idle.filter(|key| config::WITHOUT_USE.contains(key)).map(String::from).collect();
        let gates = kubelet.feature_gates.keys().filter(|gate| !config::GATES.contains(&gate.as_str()));
        idle.extend(gates.map(|gate| format!("featureGates.{gate}")));
        if !idle.is_empty() {
            let file = self.kubelet.files.first().map_or("", |(name, _)| name).to_string();
            let message = format!("has no effect on this node: {}", idle.join(", "));
            self.warnings.push(Finding { file, message, ..Finding::default() });
        }
    }
}

fn findings(layers: &Layers<'_>, faults: Vec<ConfigFault>) -> Vec<Finding> {
    let finding = |fault: ConfigFault| {
        let (file, at) = layers.place(&fault.path);
        let file = file.to_string();
        let (path, message) = (fault.path, fault.message);
        Finding { file, line: at.line, column: at.column, path, message, hint: String::new() }
    };
    faults.into_iter().map(finding).collect()
}

/// Field names of the two documents, for `podkeep` to print.
pub fn known_fields() -> (&'static [&'static str], &'static [&'static str]) {
    (KubeletConfiguration::default().shape().fields, NodeConfiguration::default().shape().fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Result<Settings, ConfigError> {
        from_texts(&[("c.yaml", text.as_bytes())])
    }

    fn case(name: &str) -> Result<Settings, ConfigError> {
        let path = format!("{}/../tests/data/cases/cfg/{name}", env!("CARGO_MANIFEST_DIR"));
        let bytes = fs::read(&path).unwrap();
        from_texts(&[(name.rsplit('/').next().unwrap(), &bytes)])
    }

    const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

    #[test]
    fn c_cfg_01_unknown_key_is_named_with_line_and_nearest_name() {
        let error = case("C-CFG-01/unknown.yaml").unwrap_err();
        // without the setting that was meant, the static policy has no CPU to leave to the system
        let error = error.to_string();
        assert!(error.starts_with("unknown.yaml:4:1: cpuManagerPolicy: 'static' needs"), "{error}");
        assert!(error.contains("unknown.yaml:5:1: reservedCpus: unknown field"), "{error}");
        assert!(error.contains("did you mean 'reservedSystemCPUs'?"), "{error}");
        let settings =
            text(&format!("{HEAD}reservedCpus: \"0,1\"\nmaxPods: 1\nmaxPods: 2\nMaxPods: 3\n")).unwrap();
        let warnings: Vec<String> = settings.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "c.yaml:5:1: key 'maxPods' stands twice in one mapping, at line 4 and at line 5 (strict decoding failed; lenient decoding used: the last one counts)",
                "c.yaml:3:1: reservedCpus: unknown field 'reservedCpus' in KubeletConfiguration is left out: strict decoding failed; lenient decoding used (did you mean 'reservedSystemCPUs'?)",
                "c.yaml:6:1: MaxPods: unknown field 'MaxPods' in KubeletConfiguration is left out: strict decoding failed; lenient decoding used (did you mean 'maxPods'? upper and lower case matter)",
            ]
        );
        assert_eq!(settings.kubelet.max_pods, 2);
    }

    #[test]
    fn c_cfg_01_bad_values_are_refused_by_path_all_together() {
        let error = case("C-CFG-01/range.yaml").unwrap_err().to_string();
        for part in ["apiVersion is missing", "kind is missing", "range.yaml:2:1: maxPods: -1 is less than 0"]
        {
            assert!(error.contains(part), "{error}");
        }
        let error = case("C-CFG-01/cpuset.yaml").unwrap_err().to_string();
        assert!(
            error.contains("cpuset.yaml:1:1: reservedSystemCPUs: '3-1,a' is not a list of CPUs"),
            "{error}"
        );
    }

    #[test]
    fn c_cfg_02_only_the_manifest_path_is_enough() {
        let settings = case("C-CFG-02/only.yaml").unwrap();
        assert_eq!(settings.kubelet.static_pod_path, "/etc/pods.d");
        assert_eq!(settings.warnings, []);
        let nothing = load(None, None).unwrap();
        assert_eq!(nothing.node.state_dir, "/var/lib/podkeep");
        assert_eq!(nothing.kubelet.max_pods, 110);
    }

    #[test]
    fn drop_ins_are_laid_over_in_the_order_of_names() {
        let base =
            format!("{HEAD}clusterDNS: [10.0.0.1]\nevictionHard: {{memory.available: 1Mi}}\nmaxPods: 5\n");
        let first = format!(
            "{HEAD}clusterDNS: [10.0.0.2]\nevictionHard: {{pid.available: 5%}}\nauthentication: {{x509: {{clientCAFile: /a}}}}\n"
        );
        let second = format!("{HEAD}maxPods: 7\nauthentication: {{anonymous: {{enabled: true}}}}\n");
        let files: [(&str, &[u8]); 3] =
            [("base", base.as_bytes()), ("10.conf", first.as_bytes()), ("20.conf", second.as_bytes())];
        let kubelet = from_texts(&files).unwrap().kubelet;
        assert_eq!(kubelet.cluster_dns, ["10.0.0.2"]);
        assert_eq!(kubelet.eviction_hard.len(), 2);
        assert_eq!(kubelet.max_pods, 7);
        assert_eq!(kubelet.authentication.x509.client_ca_file, "/a");
        assert_eq!(kubelet.authentication.anonymous.enabled, Some(true));
        // a fault is shown in the file that brought it
        let bad = format!("{HEAD}maxPods: -7\n");
        let error = from_texts(&[files[0], ("30.conf", bad.as_bytes())]).unwrap_err();
        assert_eq!(error.to_string(), "30.conf:3:1: maxPods: -7 is less than 0");
    }

    #[test]
    fn load_reads_file_and_folder() {
        let dir = std::env::temp_dir().join(format!("podkeep-config-{}", std::process::id()));
        fs::create_dir_all(dir.join("d")).unwrap();
        let file = dir.join("config.yaml");
        fs::write(&file, format!("{HEAD}port: 1\n")).unwrap();
        fs::write(dir.join("d/b.conf"), format!("{HEAD}port: 3\n")).unwrap();
        fs::write(dir.join("d/a.conf"), format!("{HEAD}port: 2\n")).unwrap();
        fs::write(dir.join("d/c.yaml"), format!("{HEAD}port: 4\n")).unwrap();
        let loaded = load(Some(&file), Some(&dir.join("d")));
        let missing = load(Some(&dir.join("none")), None);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(loaded.unwrap().kubelet.port, 3);
        let missing = missing.unwrap_err();
        assert_eq!(missing.stage, Stage::Decode);
        assert!(missing.to_string().contains("none: cannot be read: No such file"), "{missing}");
    }

    #[test]
    fn own_settings_stand_in_a_second_document() {
        let settings = text(&format!(
            "{HEAD}maxPods: 5\n---\napiVersion: podkeep.dev/v1alpha1\nkind: NodeConfiguration\nstateDir: /data\nsettlePeriod: 1s\nlogs: {{rate: 1Mi}}\n"
        ))
        .unwrap();
        assert_eq!((settings.kubelet.max_pods, settings.node.state_dir.as_str()), (5, "/data"));
        assert_eq!(settings.node.settle_period, config::Duration::from_secs(1));
        let error =
            text("apiVersion: podkeep.dev/v1\nkind: NodeConfiguration\nsocket: x\n").unwrap_err().to_string();
        assert!(error.contains("c.yaml:1:1: apiVersion: found the text 'podkeep.dev/v1'"), "{error}");
        assert!(error.contains("c.yaml:3:1: socket: 'x' is not an absolute path"), "{error}");
    }

    #[test]
    fn eviction_thresholds_are_judged_at_their_place() {
        let body = "evictionHard:\n  memory.available: 100Mi\n  mem.available: 10%\n";
        let error = text(&format!("{HEAD}{body}")).unwrap_err().to_string();
        assert!(
            error.starts_with("c.yaml:5:3: evictionHard[mem.available]: 'mem.available' is not a signal"),
            "{error}"
        );
        let error =
            text(&format!("{HEAD}evictionSoft: {{nodefs.available: 10%}}\n")).unwrap_err().to_string();
        assert!(error.contains("c.yaml:3:16: evictionSoft[nodefs.available]: no grace period"), "{error}");
    }

    #[test]
    fn settings_without_use_are_one_note() {
        let settings = text(&format!(
            "{HEAD}kubeAPIQPS: 5\nrotateCertificates: true\nfeatureGates: {{Foo: true, MemoryQoS: true}}\n"
        ))
        .unwrap();
        assert_eq!(
            settings.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["c.yaml: has no effect on this node: kubeAPIQPS, rotateCertificates, featureGates.Foo"]
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken_or_refused(words in proptest::collection::vec(proptest::sample::select(
            ["port", ": ", "\n", "  ", "- ", "1", "-1", "1s", "{", "}", "[", "]", "evictionHard", "kind", "logging", "\"", "&a ", "*a", "<<"].to_vec()
        ), 0..40)) {
            let body = words.concat();
            std::hint::black_box(from_texts(&[("f", format!("{HEAD}{body}").as_bytes())]).is_ok());
            std::hint::black_box(from_texts(&[("f", body.as_bytes())]).is_ok());
        }
    }
}
