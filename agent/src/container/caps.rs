//! Capabilities: names and numbers, the default set of container runtimes, and what `add` and `drop` make of it.

use crate::container::spec::CapabilitySets;

/// Names by number (linux/capability.h), without `CAP_`.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

pub const DAC_READ_SEARCH: u32 = 2;
pub const SYS_MODULE: u32 = 16;
pub const SYS_RAWIO: u32 = 17;
pub const SYS_CHROOT: u32 = 18;
pub const SYS_PTRACE: u32 = 19;
pub const SYS_PACCT: u32 = 20;
pub const SYS_ADMIN: u32 = 21;
pub const SYS_BOOT: u32 = 22;
pub const SYS_NICE: u32 = 23;
pub const SYS_TIME: u32 = 25;
pub const SYS_TTY_CONFIG: u32 = 26;
pub const SYSLOG: u32 = 34;
pub const PERFMON: u32 = 38;
pub const BPF: u32 = 39;

/// What a container gets unless it says otherwise: the 14 of the container runtimes.
pub const DEFAULT: u64 = {
    // CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW SYS_CHROOT MKNOD
    // AUDIT_WRITE SETFCAP
    let numbers = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31];
    let mut mask = 0;
    let mut i = 0;
    while i < numbers.len() {
        mask |= 1 << numbers[i];
        i += 1;
    }
    mask
};

/// Number of a capability; `CAP_` in front and lower case are accepted as the runtimes do.
#[must_use]
pub fn number(name: &str) -> Option<u32> {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
    NAMES.iter().position(|n| *n == bare).and_then(|i| u32::try_from(i).ok())
}

/// Name with `CAP_`; `None` for numbers nobody has named yet.
#[must_use]
pub fn name(number: u32) -> Option<String> {
    NAMES.get(usize::try_from(number).ok()?).map(|n| format!("CAP_{n}"))
}

/// What was asked for and cannot be had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// names that no kernel knows
    pub unknown: Vec<String>,
    /// names of what this machine's bounding set lacks
    pub unavailable: Vec<String>,
}

/// The set of a container: the default one, with `ALL` in `add` everything the host has, with `ALL` in `drop` nothing;
/// then single ones are added, then dropped. What `host` (its bounding set) lacks is left out and told.
#[must_use]
pub fn set(add: &[String], drop: &[String], host: u64) -> (u64, Lost) {
    let is_all = |name: &String| name.eq_ignore_ascii_case("ALL");
    let mut lost = Lost::default();
    let mut mask = if add.iter().any(is_all) { host } else { DEFAULT & host };
    if drop.iter().any(is_all) {
        mask = 0;
    }
    for name in add.iter().filter(|n| !is_all(n)) {
        match number(name) {
            Some(n) if host >> n & 1 == 1 => mask |= 1 << n,
            Some(_) => lost.unavailable.push(name.clone()),
            None => lost.unknown.push(name.clone()),
        }
    }
    for name in drop.iter().filter(|n| !is_all(n)) {
        match number(name) {
            Some(n) => mask &= !(1 << n),
            None => lost.unknown.push(name.clone()),
        }
    }
    (mask, lost)
}

/// The five sets from which the program is executed. Nothing is inheritable or ambient, so that a user other than root
/// has no capability after exec but those of the file it executes; until then it may use them to reach that file.
#[must_use]
pub fn sets(mask: u64) -> CapabilitySets {
    CapabilitySets { bounding: mask, permitted: mask, effective: mask, inheritable: 0, ambient: 0 }
}

/// The agent's bounding set from the text of /proc/self/status: all that a privileged container can have. `None` when the
/// line is missing.
#[must_use]
pub fn host_bounding(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapBnd:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: u64 = (1 << 41) - 1;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| (*s).to_owned()).collect()
    }

    fn of(add: &[&str], drop: &[&str]) -> u64 {
        set(&texts(add), &texts(drop), HOST).0
    }

    #[test]
    fn names_and_numbers_are_the_kernel_s() {
        for (name_, number_) in
            [("CAP_CHOWN", 0), ("sys_admin", 21), ("cap_bpf", 39), ("CHECKPOINT_RESTORE", 40)]
        {
            assert_eq!(number(name_), Some(number_), "{name_}");
        }
        assert_eq!(number("ALL"), None);
        assert_eq!(number("CAP_"), None);
        assert_eq!(name(12).as_deref(), Some("CAP_NET_ADMIN"));
        assert_eq!(name(41), None);
        for n in [
            (DAC_READ_SEARCH, "DAC_READ_SEARCH"),
            (SYS_MODULE, "SYS_MODULE"),
            (SYS_RAWIO, "SYS_RAWIO"),
            (SYS_CHROOT, "SYS_CHROOT"),
            (SYS_PTRACE, "SYS_PTRACE"),
            (SYS_PACCT, "SYS_PACCT"),
            (SYS_ADMIN, "SYS_ADMIN"),
            (SYS_BOOT, "SYS_BOOT"),
            (SYS_NICE, "SYS_NICE"),
            (SYS_TIME, "SYS_TIME"),
            (SYS_TTY_CONFIG, "SYS_TTY_CONFIG"),
            (SYSLOG, "SYSLOG"),
            (PERFMON, "PERFMON"),
            (BPF, "BPF"),
        ] {
            assert_eq!(number(n.1), Some(n.0));
        }
    }

    #[test]
    fn the_default_set_has_fourteen() {
        // 00000000a80425fb is what `docker run busybox grep Cap /proc/self/status` shows
        assert_eq!(DEFAULT, 0xa804_25fb);
        assert_eq!(of(&[], &[]), DEFAULT);
    }

    #[test]
    fn all_comes_first_and_single_names_after_it() {
        assert_eq!(of(&["ALL"], &[]), HOST);
        assert_eq!(of(&[], &["all"]), 0);
        assert_eq!(of(&["NET_ADMIN"], &["ALL"]), 1 << 12);
        assert_eq!(of(&["ALL"], &["SYS_ADMIN"]), HOST & !(1 << 21));
        assert_eq!(of(&["ALL", "KILL"], &["ALL"]), 1 << 5);
        assert_eq!(of(&["CHOWN"], &["CHOWN"]), DEFAULT & !1);
    }

    #[test]
    fn what_the_host_lacks_is_told() {
        let (mask, lost) = set(&texts(&["SYS_RESOURCE", "FLY"]), &texts(&["SWIM"]), HOST & !(1 << 24));
        assert_eq!(mask, DEFAULT);
        assert_eq!(lost.unavailable, ["SYS_RESOURCE"]);
        assert_eq!(lost.unknown, ["FLY", "SWIM"]);
    }

    #[test]
    fn the_bounding_set_is_read() {
        assert_eq!(host_bounding("Name:\tx\nCapBnd:\t000001fffeffffff\nCapAmb:\t0\n"), Some(0x1ff_feff_ffff));
        assert_eq!(host_bounding("Name:\tx\n"), None);
        assert!(host_bounding(&std::fs::read_to_string("/proc/self/status").unwrap()).is_some());
    }
}
