//! Names of controllers and sets of them.

use core::fmt;

/// One kind of resource the kernel can account or limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    Cpu,
    /// v2: part of every group (`cpu.stat`)
    CpuAccounting,
    Cpuset,
    Memory,
    Pids,
    HugeTlb,
    /// v2: a BPF program
    Devices,
    /// v2: part of every group (`cgroup.freeze`)
    Freezer,
    /// `blkio` on v1
    Io,
}

impl Controller {
    /// Every one we know.
    pub const ALL: [Self; 9] = [
        Self::Cpu,
        Self::CpuAccounting,
        Self::Cpuset,
        Self::Memory,
        Self::Pids,
        Self::HugeTlb,
        Self::Devices,
        Self::Freezer,
        Self::Io,
    ];

    /// Name in /proc/cgroups and in mount options.
    #[must_use]
    pub fn v1_name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::CpuAccounting => "cpuacct",
            Self::Cpuset => "cpuset",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::HugeTlb => "hugetlb",
            Self::Devices => "devices",
            Self::Freezer => "freezer",
            Self::Io => "blkio",
        }
    }

    /// Name in `cgroup.controllers`; `None` for what v2 has in every group without a switch.
    #[must_use]
    pub fn v2_name(self) -> Option<&'static str> {
        match self {
            Self::CpuAccounting | Self::Devices | Self::Freezer => None,
            Self::Io => Some("io"),
            other => Some(other.v1_name()),
        }
    }

    fn from_v1(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.v1_name() == name)
    }

    fn from_v2(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.v2_name() == Some(name))
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.v1_name())
    }
}

/// A set of controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Controllers(u16);

impl Controllers {
    pub const NONE: Self = Self(0);

    #[must_use]
    pub fn of(list: &[Controller]) -> Self {
        list.iter().fold(Self::NONE, |set, c| set.with(*c))
    }

    /// What limits and accounting need; not `blkio`, for which there is no setting.
    #[must_use]
    pub fn usual() -> Self {
        use Controller::{Cpu, CpuAccounting, Cpuset, Devices, Freezer, HugeTlb, Memory, Pids};
        Self::of(&[Cpu, CpuAccounting, Cpuset, Memory, Pids, HugeTlb, Devices, Freezer])
    }

    #[must_use]
    pub fn with(self, c: Controller) -> Self {
        Self(self.0 | (1 << (c as u16)))
    }

    #[must_use]
    pub fn without(self, c: Controller) -> Self {
        Self(self.0 & !(1 << (c as u16)))
    }

    #[must_use]
    pub fn has(self, c: Controller) -> bool {
        self.0 & (1 << (c as u16)) != 0
    }

    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Controller> {
        Controller::ALL.into_iter().filter(move |c| self.has(*c))
    }

    /// From the options of a v1 mount (`rw,cpu,cpuacct`); words that are no controllers are skipped.
    #[must_use]
    pub fn from_mount_options(text: &str) -> Self {
        text.split(',').filter_map(Controller::from_v1).fold(Self::NONE, Self::with)
    }

    /// From `cgroup.controllers` or `cgroup.subtree_control`.
    #[must_use]
    pub fn from_v2_list(text: &str) -> Self {
        text.split_ascii_whitespace().filter_map(Controller::from_v2).fold(Self::NONE, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let v1 = Controllers::from_mount_options("rw,cpu,cpuacct,name=systemd,xattr");
        assert_eq!(v1, Controllers::of(&[Controller::Cpu, Controller::CpuAccounting]));
        let v2 = Controllers::from_v2_list("cpuset cpu io memory hugetlb pids rdma misc\n");
        assert!(v2.has(Controller::Io) && v2.has(Controller::HugeTlb) && !v2.has(Controller::Devices));
        assert_eq!(v2.iter().count(), 6);
        assert!(v2.without(Controller::Io).minus(v2).is_empty());
    }
}
