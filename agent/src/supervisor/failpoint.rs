//! Places where a test lets the supervisor die, to prove that every state it leaves behind is adopted rightly.

/// Dies here when the environment says `PODKEEP_FAILPOINT=<name>:kill`, or, once, when it says `@<file>` and that file
/// holds the name: it is removed first, so that the next supervisor lives. Compiled out of release builds.
#[cfg(debug_assertions)]
pub(super) fn hit(name: &str) {
    let wanted = std::env::var("PODKEEP_FAILPOINT").unwrap_or_default();
    let once = wanted.strip_prefix('@').is_some_and(|file| {
        std::fs::read_to_string(file).is_ok_and(|text| text.trim() == name)
            && std::fs::remove_file(file).is_ok()
    });
    if once || wanted.strip_suffix(":kill") == Some(name) {
        // as hard as the kernel can: no destructor, no flush
        super::best_effort(nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL));
    }
}

/// Nothing in a release build.
#[cfg(not(debug_assertions))]
#[inline]
pub(super) fn hit(_name: &str) {}
