//! Names and numbers of system calls, for each calling convention we filter.
//!
//! The table is text that is read when a filter is made: a static table of strings would cost three times its size in
//! relocations.

use std::collections::BTreeMap;

static TABLE: &str = include_str!("syscalls.txt");

/// A calling convention. The kernel tells it with each call (`AUDIT_ARCH_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Arch {
    X86_64,
    I386,
    Aarch64,
    Riscv64,
    Arm,
}

impl Arch {
    #[cfg(test)]
    pub(super) const ALL: [Self; 5] = [Self::X86_64, Self::I386, Self::Aarch64, Self::Riscv64, Self::Arm];

    /// The one this program was built for.
    pub(super) const fn native() -> Self {
        if cfg!(target_arch = "x86_64") {
            Self::X86_64
        } else if cfg!(target_arch = "x86") {
            Self::I386
        } else if cfg!(target_arch = "arm") {
            Self::Arm
        } else if cfg!(target_arch = "riscv64") {
            Self::Riscv64
        } else {
            Self::Aarch64
        }
    }

    /// 32-bit programs that run on the same kernel.
    pub(super) const fn compatible(self) -> Option<Self> {
        match self {
            Self::X86_64 => Some(Self::I386),
            Self::Aarch64 => Some(Self::Arm),
            Self::I386 | Self::Riscv64 | Self::Arm => None,
        }
    }

    /// `seccomp_data.arch` (linux/audit.h).
    pub(super) const fn audit(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::I386 => 0x4000_0003,
            Self::Aarch64 => 0xc000_00b7,
            Self::Riscv64 => 0xc000_00f3,
            Self::Arm => 0x4000_0028,
        }
    }

    /// Name in profiles.
    pub(super) const fn scmp(self) -> &'static str {
        match self {
            Self::X86_64 => "SCMP_ARCH_X86_64",
            Self::I386 => "SCMP_ARCH_X86",
            Self::Aarch64 => "SCMP_ARCH_AARCH64",
            Self::Riscv64 => "SCMP_ARCH_RISCV64",
            Self::Arm => "SCMP_ARCH_ARM",
        }
    }

    /// Name in the `includes` and `excludes` of profiles.
    pub(super) const fn go(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::I386 => "x86",
            Self::Aarch64 => "arm64",
            Self::Riscv64 => "riscv64",
            Self::Arm => "arm",
        }
    }

    const fn column(self) -> usize {
        match self {
            Self::X86_64 => 0,
            Self::I386 => 1,
            Self::Aarch64 | Self::Riscv64 => 2,
            Self::Arm => 3,
        }
    }

    /// All calls of this convention by name.
    pub(super) fn calls(self) -> BTreeMap<&'static str, u32> {
        let row = |line: &'static str| {
            let mut words = line.split(' ');
            let name = words.next()?;
            Some((name, words.nth(self.column())?.parse().ok()?))
        };
        TABLE.lines().filter(|l| !l.starts_with('#')).filter_map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_right_where_everyone_knows_them() {
        let known = [
            (Arch::X86_64, "read", 0),
            (Arch::X86_64, "clone3", 435),
            (Arch::I386, "exit", 1),
            (Arch::I386, "socketcall", 102),
            (Arch::Aarch64, "openat", 56),
            (Arch::Riscv64, "clone", 220),
            (Arch::Arm, "mmap2", 192),
            (Arch::Arm, "set_tls", 0xf_0005),
        ];
        for (arch, name, number) in known {
            assert_eq!(arch.calls().get(name), Some(&number), "{arch:?} {name}");
        }
        assert!(!Arch::Aarch64.calls().contains_key("open"));
    }

    #[test]
    fn the_table_is_whole_and_sorted() {
        let names: Vec<&str> =
            TABLE.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split(' ').next()).collect();
        assert!(names.is_sorted() && names.len() > 450);
        for arch in Arch::ALL {
            assert!(arch.calls().len() > 300, "{arch:?}");
            // common numbers since 5.1
            assert_eq!(arch.calls().get("pidfd_send_signal"), Some(&424), "{arch:?}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_c_library_agrees() {
        use nix::libc;
        let calls = Arch::X86_64.calls();
        for (name, number) in [
            ("openat", libc::SYS_openat),
            ("setns", libc::SYS_setns),
            ("bpf", libc::SYS_bpf),
            ("mount_setattr", libc::SYS_mount_setattr),
            ("ptrace", libc::SYS_ptrace),
        ] {
            assert_eq!(calls.get(name).copied().map(i64::from), Some(number), "{name}");
        }
    }
}
