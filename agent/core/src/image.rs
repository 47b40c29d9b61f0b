//! Decisions about images: which platform fits, when to pull, how long to wait after a failed pull.
//!
//! Rules as in the kubelet (`pkg/kubelet/images/image_manager.go`, back-off of client-go) and, for
//! platforms, as in the OCI image index (arm variants: an older variant runs on a newer CPU).

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

/// First wait after a failed pull.
pub const BACKOFF_INITIAL: Duration = Duration::from_secs(10);
/// Longest wait between two pulls of one image for one pod.
pub const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// A failure is forgotten after twice the longest wait.
const BACKOFF_FORGET: Duration = Duration::from_secs(600);

/// `imagePullPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// The word of the manifest; `None` for anything else.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "Always" => Some(Self::Always),
            "IfNotPresent" => Some(Self::IfNotPresent),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }
}

/// Waiting reasons of a container whose image cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullReason {
    ErrImagePull,
    ImagePullBackOff,
    ErrImageNeverPull,
    InvalidImageName,
    ImageInspectError,
    RegistryUnavailable,
    SignatureValidationFailed,
}

impl PullReason {
    /// The word shown in `state.waiting.reason`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ErrImagePull => "ErrImagePull",
            Self::ImagePullBackOff => "ImagePullBackOff",
            Self::ErrImageNeverPull => "ErrImageNeverPull",
            Self::InvalidImageName => "InvalidImageName",
            Self::ImageInspectError => "ImageInspectError",
            Self::RegistryUnavailable => "RegistryUnavailable",
            Self::SignatureValidationFailed => "SignatureValidationFailed",
        }
    }
}

/// What to do for one container's image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullAction {
    /// the image of the store is used
    Use,
    Pull,
    /// look again at `until` (same clock as `now`)
    Wait {
        until: Duration,
        reason: PullReason,
        message: String,
    },
    /// nothing to do until the image or the manifest changes
    Refuse {
        reason: PullReason,
        message: String,
    },
}

/// Decides for one container. `until` is [`PullBackoff::blocked_until`] of this pod and image.
#[must_use]
pub fn decide(image: &str, policy: PullPolicy, present: bool, until: Option<Duration>) -> PullAction {
    match (policy, present) {
        (PullPolicy::Never, true) | (PullPolicy::IfNotPresent, true) => PullAction::Use,
        (PullPolicy::Never, false) => PullAction::Refuse {
            reason: PullReason::ErrImageNeverPull,
            message: format!("Container image \"{image}\" is not present with pull policy of Never"),
        },
        (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, false) => match until {
            None => PullAction::Pull,
            Some(until) => PullAction::Wait {
                until,
                reason: PullReason::ImagePullBackOff,
                message: format!("Back-off pulling image \"{image}\""),
            },
        },
    }
}

#[derive(Clone, Copy, Debug)]
struct Failure {
    wait: Duration,
    at: Duration,
}

/// Waits after failed pulls, one entry a pod and image. All times are of one monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct PullBackoff {
    entries: BTreeMap<(String, String), Failure>,
}

impl PullBackoff {
    /// When the next pull is allowed; `None`: now.
    #[must_use]
    pub fn blocked_until(&self, pod_uid: &str, image: &str, now: Duration) -> Option<Duration> {
        let failure = self.entries.get(&(pod_uid.to_owned(), image.to_owned()))?;
        if is_forgotten(failure, now) {
            return None;
        }
        let until = failure.at.saturating_add(failure.wait);
        (now < until).then_some(until)
    }

    /// Notes a failed pull; gives the end of the wait: 10 s, doubled up to 300 s.
    pub fn failed(&mut self, pod_uid: &str, image: &str, now: Duration) -> Duration {
        let key = (pod_uid.to_owned(), image.to_owned());
        let wait = match self.entries.get(&key) {
            Some(old) if !is_forgotten(old, now) => old.wait.saturating_mul(2).min(BACKOFF_MAX),
            _ => BACKOFF_INITIAL,
        };
        self.entries.insert(key, Failure { wait, at: now });
        now.saturating_add(wait)
    }

    /// Drops what no longer counts; to be called now and then so that gone pods leave nothing behind.
    pub fn purge(&mut self, now: Duration) {
        self.entries.retain(|_, failure| !is_forgotten(failure, now));
    }

    /// Forgets a pod that is gone.
    pub fn forget_pod(&mut self, pod_uid: &str) {
        self.entries.retain(|(uid, _), _| uid != pod_uid);
    }
}

fn is_forgotten(failure: &Failure, now: Duration) -> bool {
    now.saturating_sub(failure.at) > BACKOFF_FORGET
}

/// An operating system and CPU in the words of the OCI index (`GOOS`, `GOARCH`, variant).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    pub os: String,
    pub architecture: String,
    /// `v6`, `v7`, `v8`…; empty where the architecture has none
    pub variant: String,
}

impl core::fmt::Display for Platform {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        if !self.variant.is_empty() {
            write!(f, "/{}", self.variant)?;
        }
        Ok(())
    }
}

impl Platform {
    /// From Rust's name of an architecture and the machine word of `uname`.
    #[must_use]
    pub fn from_machine(rust_arch: &str, machine: &str) -> Self {
        let (architecture, variant) = match rust_arch {
            "x86_64" => ("amd64", ""),
            "x86" => ("386", ""),
            "aarch64" => ("arm64", "v8"),
            "arm" if machine.starts_with("armv5") => ("arm", "v5"),
            "arm" if machine.starts_with("armv6") => ("arm", "v6"),
            // armv7l, and armv8l or aarch64 under a 64-bit kernel
            "arm" => ("arm", "v7"),
            "riscv64" => ("riscv64", ""),
            "powerpc64" => ("ppc64le", ""),
            other => (other, ""),
        };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: variant.to_owned() }
    }

    /// `OS/ARCHITECTURE[/VARIANT]`, as builders write it: `linux/arm/v7`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (os, architecture, variant) = (parts.next()?, parts.next()?, parts.next().unwrap_or_default());
        let is_word =
            |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
        let fits = is_word(os) && is_word(architecture) && (variant.is_empty() || is_word(variant));
        (fits && parts.next().is_none()).then(|| Self {
            os: os.to_owned(),
            architecture: canonical_architecture(architecture).to_owned(),
            variant: variant.to_owned(),
        })
    }

    /// How well an image made for `offer` runs here: 0 is best, `None` not at all.
    ///
    /// An empty operating system or architecture in `offer` is unknown and accepted last.
    #[must_use]
    pub fn rank(&self, offer: &Self) -> Option<u32> {
        if !offer.os.is_empty() && !offer.os.eq_ignore_ascii_case(&self.os) {
            return None;
        }
        let offered = canonical_architecture(&offer.architecture);
        if offered.is_empty() {
            return Some(1000);
        }
        match (self.architecture.as_str(), offered) {
            ("arm", "arm") => {
                newest_first(variant_number(&self.variant, 7)?, variant_number(&offer.variant, 7)?)
            }
            ("arm64", "arm64") => {
                newest_first(variant_number(&self.variant, 8)?, variant_number(&offer.variant, 8)?)
            }
            // 64-bit ARM CPUs mostly run 32-bit programs, too: only where nothing else is offered
            ("arm64", "arm") => {
                newest_first(8, variant_number(&offer.variant, 7)?).map(|rank| rank.saturating_add(100))
            }
            // v2 and up need instructions that small CPUs lack
            ("amd64", "amd64") if !matches!(offer.variant.as_str(), "" | "v1") => None,
            (ours, theirs) if ours == theirs => Some(0),
            _ => None,
        }
    }
}

fn canonical_architecture(word: &str) -> &str {
    match word {
        "x86_64" | "x86-64" => "amd64",
        "aarch64" => "arm64",
        "armhf" | "armel" => "arm",
        other => other,
    }
}

/// `v7` and `7` → 7; empty → `default`; `v8.2` → 8.
fn variant_number(variant: &str, default: u32) -> Option<u32> {
    if variant.is_empty() {
        return Some(default);
    }
    let digits = variant.trim_start_matches('v');
    digits.split('.').next().and_then(|major| major.parse().ok())
}

fn newest_first(ours: u32, offered: u32) -> Option<u32> {
    ours.checked_sub(offered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn p(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        Platform {
            os: parts.next().unwrap_or_default(),
            architecture: parts.next().unwrap_or_default(),
            variant: parts.next().unwrap_or_default(),
        }
    }

    fn best<'a>(host: &str, offers: &[&'a str]) -> Option<&'a str> {
        let host = p(host);
        let ranked: Vec<_> = offers.iter().filter_map(|o| host.rank(&p(o)).map(|r| (r, *o))).collect();
        ranked.into_iter().min_by_key(|(rank, _)| *rank).map(|(_, offer)| offer)
    }

    #[test]
    fn never_uses_what_is_there_and_refuses_the_rest() {
        assert_eq!(decide("a", PullPolicy::Never, true, None), PullAction::Use);
        let PullAction::Refuse { reason, message } = decide("a", PullPolicy::Never, false, None) else {
            panic!("not refused")
        };
        assert_eq!(reason.as_str(), "ErrImageNeverPull");
        assert_eq!(message, "Container image \"a\" is not present with pull policy of Never");
    }

    #[test]
    fn present_image_is_pulled_only_by_always() {
        assert_eq!(decide("a", PullPolicy::IfNotPresent, true, Some(s(5))), PullAction::Use);
        assert_eq!(decide("a", PullPolicy::IfNotPresent, false, None), PullAction::Pull);
        assert_eq!(decide("a", PullPolicy::Always, true, None), PullAction::Pull);
        assert!(matches!(
            decide("a", PullPolicy::Always, true, Some(s(5))),
            PullAction::Wait { reason: PullReason::ImagePullBackOff, .. }
        ));
    }

    #[test]
    fn waits_double_up_to_five_minutes_and_are_forgotten_after_ten() {
        let mut backoff = PullBackoff::default();
        let mut now = s(0);
        for wait in [10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(backoff.blocked_until("u", "i", now), None);
            let until = backoff.failed("u", "i", now);
            assert_eq!(until, now + s(wait));
            assert_eq!(backoff.blocked_until("u", "i", now + s(wait - 1)), Some(until));
            now = until;
        }
        assert_eq!(backoff.failed("other", "i", now), now + s(10), "each pod waits by itself");
        assert_eq!(backoff.failed("u", "i", now + s(601)), now + s(611), "forgotten");
        backoff.purge(now + s(2000));
        assert!(backoff.entries.is_empty());
    }

    #[test]
    fn arm_takes_the_newest_variant_it_can_run() {
        let offers = ["linux/arm/v5", "linux/arm/v6", "linux/arm/v7", "linux/arm64/v8", "linux/amd64"];
        assert_eq!(best("linux/arm/v7", &offers), Some("linux/arm/v7"));
        assert_eq!(best("linux/arm/v6", &offers), Some("linux/arm/v6"));
        assert_eq!(best("linux/arm/v5", &offers), Some("linux/arm/v5"));
        assert_eq!(best("linux/arm/v6", &["linux/arm/v7"]), None);
        assert_eq!(best("linux/arm64/v8", &offers), Some("linux/arm64/v8"));
        assert_eq!(best("linux/arm64/v8", &["linux/arm/v6", "linux/arm/v7"]), Some("linux/arm/v7"));
        assert_eq!(best("linux/arm64/v8", &["linux/arm64", "linux/arm"]), Some("linux/arm64"));
    }

    #[test]
    fn foreign_platforms_and_newer_x86_levels_do_not_fit() {
        assert_eq!(best("linux/amd64", &["windows/amd64", "linux/arm64"]), None);
        assert_eq!(best("linux/amd64", &["linux/amd64/v3", "linux/amd64"]), Some("linux/amd64"));
        assert_eq!(best("linux/amd64", &["linux/amd64/v3"]), None);
        assert_eq!(best("linux/riscv64", &["linux/riscv64"]), Some("linux/riscv64"));
    }

    #[test]
    fn platforms_are_read_as_builders_write_them() {
        assert_eq!(Platform::parse("linux/arm/v7"), Some(p("linux/arm/v7")));
        assert_eq!(Platform::parse("linux/aarch64"), Some(p("linux/arm64")));
        for bad in ["linux", "linux/", "/arm", "linux/arm/v7/x", "linux/a b", ""] {
            assert_eq!(Platform::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn machine_words_become_platforms() {
        assert_eq!(Platform::from_machine("arm", "armv6l"), p("linux/arm/v6"));
        assert_eq!(Platform::from_machine("arm", "aarch64"), p("linux/arm/v7"));
        assert_eq!(Platform::from_machine("x86_64", "x86_64"), p("linux/amd64"));
    }
}
