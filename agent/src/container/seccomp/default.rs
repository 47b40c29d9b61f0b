//! The RuntimeDefault filter, with the meaning it has in the container engines.
//!
//! Written the other way round than theirs: every call of the table is allowed except those named here. Calls newer than
//! [`NEWEST`] do not exist (`ENOSYS`), so that programs that try them fall back; refused ones answer `EPERM`.

use std::collections::BTreeMap;

use super::program::{Action, Compare, Condition, Rule, Section};
use super::table::Arch;
use crate::container::caps;

/// The newest call that was looked at (`removexattrat`, Linux 6.13). Numbers are common to all conventions since 5.1.
const NEWEST: u32 = 466;

const EPERM: Action = Action::errno(nix::libc::EPERM.cast_unsigned());

/// Refused whatever the capabilities: keyrings (not in a namespace), calls with a long record of holes (userfaultfd,
/// io_uring), what changes the whole machine (swap, kexec, root), what no program needs any more.
const REFUSED: &str = "_sysctl add_key afs_syscall bdflush break create_module ftime get_kernel_syms getpmsg gtty idle \
    io_uring_enter io_uring_register io_uring_setup kexec_file_load kexec_load keyctl lock migrate_pages move_pages mpx \
    nfsservctl oldfstat oldlstat oldolduname oldstat pciconfig_iobase pciconfig_read pciconfig_write pivot_root prof \
    profil putpmsg query_module request_key security sgetmask ssetmask stty swapoff swapon sysfs tuxcall ulimit uselib \
    userfaultfd ustat vm86 vm86old vserver";

/// Allowed with any of the capabilities beside them.
const WITH_CAPABILITY: [(u32, &str); 15] = [
    (caps::DAC_READ_SEARCH, "open_by_handle_at"),
    (
        caps::SYS_ADMIN,
        "bpf fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie lsm_get_self_attr lsm_list_modules \
         lsm_set_self_attr mount mount_setattr move_mount open_tree open_tree_attr perf_event_open quotactl quotactl_fd \
         setdomainname sethostname setns syslog umount umount2 unshare",
    ),
    (caps::SYS_BOOT, "reboot"),
    (caps::SYS_CHROOT, "chroot"),
    (caps::SYS_MODULE, "delete_module init_module finit_module"),
    (caps::SYS_PACCT, "acct"),
    // ptrace and process_vm_* are open to all since 4.8, where ptrace cannot step around a filter any more
    (caps::SYS_PTRACE, "kcmp pidfd_getfd process_madvise"),
    (caps::SYS_RAWIO, "iopl ioperm"),
    (caps::SYS_TIME, "settimeofday stime clock_settime clock_settime64"),
    (caps::SYS_TTY_CONFIG, "vhangup"),
    (caps::SYS_NICE, "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    (caps::SYSLOG, "syslog"),
    (caps::BPF, "bpf"),
    (caps::PERFMON, "perf_event_open"),
    (caps::SYS_ADMIN, "clone3"),
];

/// Namespaces a process may not make by `clone` without CAP_SYS_ADMIN:
/// `CLONE_NEWNS|NEWCGROUP|NEWUTS|NEWIPC|NEWUSER|NEWPID|NEWNET`.
const NEW_NAMESPACES: u64 = 0x7e02_0000;

/// `PER_LINUX`, `PER_LINUX32`, `UNAME26`, both, and the question (-1).
const PERSONALITIES: [u64; 5] = [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Address families of sockets, first to last. Left out are those nobody uses whose code is old (DECnet, Econet, IrDA,
/// ...), kernel crypto (38), and vsock (40), which reaches the host of a virtual machine past all network namespaces.
const FAMILIES: [(u64, u64); 10] =
    [(0, 11), (13, 18), (21, 22), (24, 24), (26, 33), (35, 36), (39, 39), (41, 42), (43, 44), (45, 45)];

/// Which capabilities make a difference; others need no filter of their own.
pub(super) fn relevant(bounding: u64) -> u64 {
    WITH_CAPABILITY.iter().fold(0, |mask, (cap, _)| mask | 1 << cap) & bounding
}

/// Rules for this convention, for a process that can have these capabilities at the most.
pub(super) fn section(arch: Arch, bounding: u64) -> Section {
    let calls = arch.calls();
    let number = |name: &str| calls.get(name).copied();
    let allow = |conditions| Rule { conditions, action: Action::ALLOW };
    let mut rules: BTreeMap<u32, Vec<Rule>> = calls
        .values()
        .filter(|n| **n <= NEWEST || **n > 0xffff)
        .map(|n| (*n, vec![allow(Vec::new())]))
        .collect();
    let mut refuse = |name: &str, answer: Action| {
        if let Some(n) = number(name) {
            rules.insert(n, vec![Rule { conditions: Vec::new(), action: answer }]);
        }
    };
    REFUSED.split_ascii_whitespace().for_each(|name| refuse(name, EPERM));
    let newer = |name: &str| number(name).is_some_and(|n| n > NEWEST && n <= 0xffff);
    for (_, names) in WITH_CAPABILITY {
        names.split_ascii_whitespace().filter(|n| !newer(n)).for_each(|name| refuse(name, EPERM));
    }
    // its flags lie in memory, which a filter cannot read: "no such call" makes programs take clone
    refuse("clone3", Action::NO_SUCH_CALL);
    for (cap, names) in WITH_CAPABILITY {
        if bounding >> cap & 1 == 1 {
            for n in names.split_ascii_whitespace().filter_map(number) {
                rules.insert(n, vec![allow(Vec::new())]);
            }
        }
    }
    let mut on_argument = |name: &str, tests: Vec<Vec<Condition>>| {
        if let Some(n) = number(name) {
            rules.insert(n, tests.into_iter().map(allow).collect());
        }
    };
    let first = |compare, value| Condition { index: 0, compare, value };
    if bounding >> caps::SYS_ADMIN & 1 == 0 {
        on_argument("clone", vec![vec![first(Compare::MaskedEqual(NEW_NAMESPACES), 0)]]);
    }
    on_argument("personality", PERSONALITIES.iter().map(|v| vec![first(Compare::Equal, *v)]).collect());
    let family = |(low, high): &(u64, u64)| match low == high {
        true => vec![first(Compare::Equal, *low)],
        false => vec![first(Compare::GreaterOrEqual, *low), first(Compare::LessOrEqual, *high)],
    };
    on_argument("socket", FAMILIES.iter().map(family).collect());
    Section { arch, calls: rules, default: EPERM, newest: Some(NEWEST) }
}
