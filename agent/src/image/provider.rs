//! Credential provider programs: exec protocol `credentialprovider.kubelet.k8s.io`, with its cache.
//!
//! A program that fails costs its own credentials only: the fault is logged with the program's first error line
//! and the pull goes on. What it prints to standard output may hold secrets and is never shown.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use podkeep_core::config::credential::{CredentialProvider, CredentialProviderConfig, validate};
use podkeep_core::config::{Duration as ConfigDuration, NodeConfiguration};
use podkeep_core::desired::Finding;
use serde::{Deserialize, Serialize};

use super::auth::{Credential, Keyring, matches};
use super::name::ImageName;
use crate::source::decode;
use crate::source::fill::Filling;

/// A program gets this long.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Bytes of an answer.
const ANSWER_LIMIT: usize = 1024 * 1024;
/// Characters of an error line that are shown.
const LINE_LIMIT: usize = 200;

/// What is wrong with a program's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderFault {
    /// it cannot be started
    Start {
        why: String,
    },
    /// no end within a minute
    Timeout,
    /// `code` `None`: ended by a signal
    Exit {
        code: Option<i32>,
        line: String,
    },
    TooMuch,
    NotJson {
        line: String,
    },
    Kind {
        found: String,
    },
    ApiVersion {
        found: String,
        wanted: String,
    },
    Field {
        why: String,
    },
}

impl fmt::Display for ProviderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |line: &str| if line.is_empty() { String::new() } else { format!(": {line}") };
        match self {
            Self::Start { why } => write!(f, "cannot be started: {why}"),
            Self::Timeout => write!(f, "gave no answer within {} seconds", TIME_LIMIT.as_secs()),
            Self::Exit { code: Some(code), line } => write!(f, "ended with exit code {code}{}", said(line)),
            Self::Exit { code: None, line } => write!(f, "was ended by a signal{}", said(line)),
            Self::TooMuch => write!(f, "printed more than {ANSWER_LIMIT} bytes"),
            Self::NotJson { line } => {
                write!(f, "printed no JSON; is it a program of another protocol?{}", said(line))
            }
            Self::Kind { found } => {
                write!(f, "answered with kind \"{found}\", CredentialProviderResponse is expected")
            }
            Self::ApiVersion { found, wanted } => {
                write!(f, "answered in apiVersion \"{found}\", its configuration says \"{wanted}\"")
            }
            Self::Field { why } => write!(f, "gave an answer that cannot be used: {why}"),
        }
    }
}

impl std::error::Error for ProviderFault {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    kind: &'static str,
    api_version: &'a str,
    image: &'a str,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    kind: String,
    api_version: String,
    cache_key_type: String,
    cache_duration: Option<String>,
    auth: Option<BTreeMap<String, Auth>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    username: String,
    password: String,
}

/// Counts for `kubelet_credential_provider_plugin_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderCounts {
    pub runs: u64,
    pub errors: u64,
    pub duration: Duration,
}

struct Kept {
    until: Instant,
    auth: Vec<(String, Credential)>,
}

#[derive(Default)]
struct State {
    kept: BTreeMap<String, Kept>,
    counts: ProviderCounts,
}

/// One configured program. The lock is held while it runs: others who want the same wait for its answer.
struct Provider {
    settings: CredentialProvider,
    program: PathBuf,
    state: Mutex<State>,
}

/// All configured programs.
#[derive(Default)]
pub struct Providers {
    providers: Vec<Provider>,
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.providers.iter().map(|provider| &provider.settings.name)).finish()
    }
}

impl Providers {
    /// The programs that the node's configuration names; faults come with their place.
    pub fn read(config: &NodeConfiguration) -> Result<Self, Vec<Finding>> {
        let path = &config.image_credential_provider_config;
        if path.is_empty() {
            return Ok(Self::default());
        }
        let programs = Path::new(&config.image_credential_provider_bin_dir);
        let mut settings = Vec::new();
        for file in config_files(Path::new(path)) {
            let name = file.display().to_string();
            let text =
                std::fs::read(&file).map_err(|e| vec![finding(&name, format!("cannot be read: {e}"))])?;
            settings.extend(read_config(&name, &text)?);
        }
        Ok(Self::new(settings, programs))
    }

    #[must_use]
    pub fn new(settings: Vec<CredentialProvider>, programs: &Path) -> Self {
        let provider = |settings: CredentialProvider| Provider {
            program: programs.join(&settings.name),
            settings,
            state: Mutex::default(),
        };
        Self { providers: settings.into_iter().map(provider).collect() }
    }

    /// Credentials of all programs that are for this image; runs them, or takes what is kept.
    #[must_use]
    pub fn credentials(&self, name: &ImageName) -> Keyring {
        let mut ring = Keyring::default();
        for provider in &self.providers {
            if !provider.settings.match_images.iter().any(|pattern| matches(pattern, name)) {
                continue;
            }
            match provider.credentials(name) {
                Ok(auth) => {
                    auth.into_iter().for_each(|(pattern, credential)| ring.push(&pattern, credential))
                }
                Err(fault) => log::warn!("credential provider \"{}\" {fault}", provider.settings.name),
            }
        }
        ring
    }

    /// Runs, errors and time of each program, by name.
    #[must_use]
    pub fn counts(&self) -> Vec<(String, ProviderCounts)> {
        let count = |provider: &Provider| {
            let state = provider.state.lock().unwrap_or_else(PoisonError::into_inner);
            (provider.settings.name.clone(), state.counts)
        };
        self.providers.iter().map(count).collect()
    }
}

/// The file, or the `.yaml`, `.yml` and `.json` files of a folder in the order of their names.
fn config_files(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return vec![path.to_owned()] };
    let is_config = |path: &PathBuf| {
        path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known))
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_config).collect();
    files.sort();
    files
}

fn finding(file: &str, message: String) -> Finding {
    Finding { file: file.to_owned(), message, ..Finding::default() }
}

/// Reads one file of `CredentialProviderConfig`.
pub fn read_config(name: &str, text: &[u8]) -> Result<Vec<CredentialProvider>, Vec<Finding>> {
    let nodes = decode::parse(text).map_err(|error| vec![decode::syntax_finding(error, name)])?;
    let mut providers = Vec::new();
    let mut faults = Vec::new();
    for node in nodes.iter().filter(|node| !node.is_null()) {
        let mut config = CredentialProviderConfig::default();
        let mut filling = Filling::new(name, true);
        filling.object(node, &mut config, &[]);
        let unknown = filling.unknown_keys();
        faults.append(&mut filling.errors);
        faults.extend(unknown);
        for fault in validate(&config) {
            let at = node.locate(&fault.path);
            let (line, column) = (at.line, at.column);
            faults.push(Finding { line, column, path: fault.path, ..finding(name, fault.message) });
        }
        providers.append(&mut config.providers);
    }
    if faults.is_empty() { Ok(providers) } else { Err(faults) }
}

impl Provider {
    fn credentials(&self, name: &ImageName) -> Result<Vec<(String, Credential)>, ProviderFault> {
        // there is no service account here; a program that cannot do without is not for us
        if self
            .settings
            .token_attributes
            .as_ref()
            .is_some_and(|wish| wish.require_service_account != Some(false))
        {
            return Ok(Vec::new());
        }
        let image = format!("{}/{}", name.registry, name.repository);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        state.kept.retain(|_, kept| kept.until > now);
        for key in [image.as_str(), name.registry.as_str(), ""] {
            if let Some(kept) = state.kept.get(key) {
                return Ok(kept.auth.clone());
            }
        }
        let answer = self.ask(&image);
        state.counts.runs = state.counts.runs.saturating_add(1);
        state.counts.duration = state.counts.duration.saturating_add(now.elapsed());
        state.counts.errors = state.counts.errors.saturating_add(u64::from(answer.is_err()));
        let response = answer?;
        let key = match response.cache_key_type.as_str() {
            "Image" => image,
            "Registry" => name.registry.clone(),
            "Global" => String::new(),
            other => {
                let why = format!("cacheKeyType is \"{other}\"; Image, Registry and Global are known");
                return Err(ProviderFault::Field { why });
            }
        };
        let length = match &response.cache_duration {
            Some(text) => ConfigDuration::parse(text).ok_or_else(|| ProviderFault::Field {
                why: format!("cacheDuration \"{text}\" is no length of time"),
            })?,
            None => self.settings.default_cache_duration.unwrap_or_default(),
        };
        let auth: Vec<_> = response
            .auth
            .unwrap_or_default()
            .into_iter()
            .map(|(pattern, Auth { username, password })| (pattern, Credential::Basic { username, password }))
            .collect();
        if let Some(until) = now.checked_add(length.to_std()).filter(|_| !length.is_zero()) {
            state.kept.insert(key, Kept { until, auth: auth.clone() });
        }
        Ok(auth)
    }

    fn ask(&self, image: &str) -> Result<Response, ProviderFault> {
        let wanted = self.settings.api_version.as_str();
        let request = Request { kind: "CredentialProviderRequest", api_version: wanted, image };
        let mut text = serde_json::to_vec(&request).unwrap_or_default();
        text.push(b'\n');
        let mut command = Command::new(&self.program);
        command.args(&self.settings.args);
        command.envs(self.settings.env.iter().map(|variable| (&variable.name, &variable.value)));
        let output = run(command, &text, TIME_LIMIT)?;
        let line = first_line(&output.errors);
        if !output.success {
            return Err(ProviderFault::Exit { code: output.code, line });
        }
        let response: Response =
            serde_json::from_slice(&output.answer).map_err(|_| ProviderFault::NotJson { line })?;
        let shown = |text: String| first_line(text.as_bytes());
        if response.kind != "CredentialProviderResponse" {
            return Err(ProviderFault::Kind { found: shown(response.kind) });
        }
        if response.api_version != wanted {
            let (found, wanted) = (shown(response.api_version), wanted.to_owned());
            return Err(ProviderFault::ApiVersion { found, wanted });
        }
        Ok(response)
    }
}

fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned();
    line.chars().filter(|c| !c.is_control()).take(LINE_LIMIT).collect()
}

struct Output {
    answer: Vec<u8>,
    errors: Vec<u8>,
    success: bool,
    code: Option<i32>,
}

/// Runs a program to its end, at most until `limit`.
fn run(mut command: Command, input: &[u8], limit: Duration) -> Result<Output, ProviderFault> {
    let deadline = Instant::now().checked_add(limit);
    // a group of its own, so that what it started ends with it
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|e| ProviderFault::Start { why: e.to_string() })?;
    if let Some(mut stdin) = child.stdin.take() {
        // smaller than a pipe, so it cannot block; a program that does not read is free to do so
        stdin.write_all(input).ok();
    }
    let outcome = collect(&mut child, deadline);
    if outcome.is_err() {
        // not waited for yet, so the number still is this child's
        let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
        if group.as_raw() > 0 {
            nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).ok();
        }
    }
    let status = child.wait().map_err(|e| ProviderFault::Start { why: e.to_string() })?;
    let (answer, errors) = outcome?;
    Ok(Output { answer, errors, success: status.success(), code: status.code() })
}

/// Both outputs until their ends, then the end of the program itself.
fn collect(child: &mut Child, deadline: Option<Instant>) -> Result<(Vec<u8>, Vec<u8>), ProviderFault> {
    use std::os::fd::AsFd;
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let (mut answer, mut errors) = (Vec::new(), Vec::new());
    let left = || {
        let left = deadline.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()));
        // rounded up: a wait of 0 would spin
        i32::try_from(left.as_millis().saturating_add(1)).unwrap_or(i32::MAX)
    };
    let wait_for = |fds: &mut [PollFd<'_>]| match poll(
        fds,
        PollTimeout::try_from(left()).unwrap_or(PollTimeout::ZERO),
    ) {
        Ok(0) => Err(ProviderFault::Timeout),
        _ if left() <= 1 => Err(ProviderFault::Timeout),
        _ => Ok(()),
    };
    while stdout.is_some() || stderr.is_some() {
        let (from_out, from_err) = {
            let mut fds = Vec::new();
            fds.extend(stdout.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
            fds.extend(stderr.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
            wait_for(&mut fds)?;
            let mut ready = fds.iter().map(|fd| fd.any().unwrap_or(false));
            let from_out = stdout.is_some() && ready.next().unwrap_or(false);
            (from_out, stderr.is_some() && ready.next().unwrap_or(false))
        };
        if from_out && !take(&mut stdout, &mut answer) {
            stdout = None;
        }
        if from_err && !take(&mut stderr, &mut errors) {
            stderr = None;
        }
        if answer.len() > ANSWER_LIMIT {
            return Err(ProviderFault::TooMuch);
        }
        // the first line is all that is shown
        errors.truncate(LINE_LIMIT * 8);
    }
    let pid = i32::try_from(child.id()).unwrap_or(0);
    // without pidfd (before Linux 5.3) the wait below has no limit; outputs are closed, so it is short
    if let Ok(end) = podkeep_hal::linux::sys::pidfd::open(pid) {
        wait_for(&mut [PollFd::new(end.as_fd(), PollFlags::POLLIN)])?;
    }
    Ok((answer, errors))
}

/// Reads what is there; `false`: the end.
fn take(pipe: &mut Option<impl Read>, into: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 8192];
    match pipe.as_mut().map(|pipe| pipe.read(&mut buffer)) {
        Some(Ok(count)) if count > 0 => {
            into.extend_from_slice(buffer.get(..count).unwrap_or_default());
            true
        }
        Some(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str) -> (PathBuf, CredentialProvider) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/cases/cfg/C-CFG-03");
        let text = std::fs::read(folder.join("provider.yaml")).unwrap();
        let mut settings = read_config("provider.yaml", &text).unwrap().pop().unwrap();
        settings.name = "sh".into();
        settings.args = vec![folder.join(name).to_str().unwrap().to_owned()];
        (PathBuf::from("/bin"), settings)
    }

    fn ask(script: &str, name: &str) -> (Providers, Result<Vec<(String, Credential)>, ProviderFault>) {
        let (programs, settings) = case(script);
        let providers = Providers::new(vec![settings], &programs);
        let answer = providers.providers[0].credentials(&ImageName::parse(name).unwrap());
        (providers, answer)
    }

    fn inline(script: &str) -> (Providers, Result<Vec<(String, Credential)>, ProviderFault>) {
        let (programs, mut settings) = case("good.sh");
        settings.args = vec!["-c".into(), script.into()];
        let providers = Providers::new(vec![settings], &programs);
        let answer = providers.providers[0].credentials(&ImageName::parse("registry.test/a").unwrap());
        (providers, answer)
    }

    #[test]
    fn c_cfg_03_each_fault_has_its_reason() {
        let fault = |script: &str| ask(script, "registry.test/app:1").1.unwrap_err();
        assert!(matches!(fault("not-json.sh"), ProviderFault::NotJson { .. }));
        assert!(!fault("not-json.sh").to_string().contains("hunter2"));
        let old = fault("old-version.sh").to_string();
        assert!(old.contains("v1alpha1") && old.contains("credentialprovider.kubelet.k8s.io/v1\""), "{old}");
        let wrong = fault("wrong-protocol.sh");
        assert!(
            matches!(&wrong, ProviderFault::Exit { code: Some(1), line } if line.starts_with("credentials not found")),
            "{wrong}"
        );
        let kind = r#"echo '{"kind":"Other","apiVersion":"x"}'"#;
        assert_eq!(inline(kind).1, Err(ProviderFault::Kind { found: "Other".into() }));
        let (programs, settings) = case("good.sh");
        let missing = Providers::new(
            vec![CredentialProvider { name: "no-such-program".into(), ..settings }],
            &programs,
        );
        let ring = missing.credentials(&ImageName::parse("registry.test/x").unwrap());
        assert_eq!(ring.find(&ImageName::parse("registry.test/x").unwrap()), [], "the pull goes on");
        assert_eq!(missing.counts()[0].1.errors, 1);
    }

    #[test]
    fn answer_is_used_and_kept_by_its_key() {
        let (providers, answer) = ask("good.sh", "registry.test/app:1");
        let expected = Credential::Basic { username: "u".into(), password: "p".into() };
        assert_eq!(answer.unwrap(), [("registry.test".to_owned(), expected.clone())]);
        let other = ImageName::parse(
            "registry.test/other@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        )
        .unwrap();
        assert_eq!(providers.credentials(&other).find(&other), [expected]);
        assert_eq!(providers.counts()[0].1.runs, 1, "the registry is the key");
        let elsewhere = ImageName::parse("registry.example.com/x").unwrap();
        assert_eq!(providers.credentials(&elsewhere).find(&elsewhere), []);
        let with_port = ImageName::parse("a.registry.test:5000/team/x").unwrap();
        assert_eq!(
            providers.credentials(&with_port).find(&with_port),
            [],
            "asked, but the answer is for another host"
        );
        assert_eq!(providers.counts()[0].1.runs, 2);
    }

    #[test]
    fn programs_that_hang_or_flood_are_ended() {
        let mut command = Command::new("/bin/sh");
        // the child keeps the output open, too
        command.args(["-c", "sleep 600 & sleep 600"]);
        let begin = Instant::now();
        let ended = run(command, b"", Duration::from_millis(100)).err();
        assert_eq!(ended, Some(ProviderFault::Timeout));
        assert!(begin.elapsed() < Duration::from_secs(30));
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec yes"]);
        assert_eq!(run(command, b"", TIME_LIMIT).err(), Some(ProviderFault::TooMuch));
    }

    #[test]
    fn faults_of_the_configuration_have_line_and_path() {
        let text = b"apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: a/b\n  matchImage: [x]\n";
        let faults = read_config("p.yaml", text).unwrap_err();
        let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert!(
            texts.iter().any(|t| t.starts_with("p.yaml:5:3") && t.contains("did you mean 'matchImages'")),
            "{texts:?}"
        );
        assert!(
            texts.iter().any(|t| t.starts_with("p.yaml:4:") && t.contains("providers[0].name")),
            "{texts:?}"
        );
    }
}
