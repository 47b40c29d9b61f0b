//! Which hierarchies this machine has, which controllers are missing, and how they are switched on.
//!
//! Everything is read below a root folder given as a parameter: `/` for real, a folder of files in tests.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::controller::{Controller, Controllers};

/// How control groups are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// controllers in v1 hierarchies only
    V1,
    /// v1 hierarchies and a v2 one beside them
    Hybrid,
    /// one v2 hierarchy
    V2,
    None,
}

/// One mounted hierarchy.
#[derive(Debug)]
pub(super) struct Tree {
    /// all work is relative to this folder
    pub(super) dir: OwnedFd,
    /// mount point, below the root folder
    pub(super) mount: PathBuf,
    pub(super) controllers: Controllers,
    pub(super) unified: bool,
}

/// A controller that is not there, and what can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingController {
    pub controller: Controller,
    /// why it is missing and how it is switched on
    pub hint: String,
}

pub(super) struct Layout {
    pub(super) trees: Vec<Tree>,
    pub(super) flavour: Flavour,
    pub(super) missing: Vec<MissingController>,
    /// kernel version, (0, 0) when unknown
    pub(super) kernel: (u32, u32),
}

/// Controllers whose absence is worth a word.
const EXPECTED: [Controller; 6] = [
    Controller::Cpu,
    Controller::Cpuset,
    Controller::Memory,
    Controller::Pids,
    Controller::HugeTlb,
    Controller::Devices,
];

fn text(root: &Path, file: &str) -> Option<String> {
    std::fs::read(root.join(file)).ok().map(|b| String::from_utf8_lossy(&b).into_owned())
}

pub(super) fn detect(root: &Path) -> Layout {
    let trees: Vec<Tree> = mounts(root).into_iter().filter_map(|m| open_tree(root, &m)).collect();
    let unified = trees.iter().any(|t| t.unified);
    let v1 = trees.iter().any(|t| !t.unified);
    let flavour = match (v1, unified) {
        (true, true) => Flavour::Hybrid,
        (true, false) => Flavour::V1,
        (false, true) => Flavour::V2,
        (false, false) => Flavour::None,
    };
    let missing = missing(root, &trees);
    let kernel = text(root, "proc/sys/kernel/osrelease").as_deref().map_or((0, 0), kernel_version);
    Layout { trees, flavour, missing, kernel }
}

/// `6.18.44-x` is (6, 18).
fn kernel_version(release: &str) -> (u32, u32) {
    let mut parts = release.trim().split(|c: char| !c.is_ascii_digit()).map(|p| p.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    point: String,
    unified: bool,
    controllers: Controllers,
}

/// Mounts of control groups; the first mount of a controller wins. Order of trust: mountinfo, mounts, the usual places.
fn mounts(root: &Path) -> Vec<Mount> {
    let mut found = text(root, "proc/self/mountinfo").map(|t| parse_mountinfo(&t)).unwrap_or_default();
    if found.is_empty() {
        found = text(root, "proc/mounts").map(|t| parse_mounts(&t)).unwrap_or_default();
    }
    if found.is_empty() {
        for point in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            if root.join(&point[1..]).join("cgroup.controllers").exists() {
                found.push(Mount { point: point.into(), unified: true, controllers: Controllers::NONE });
                break;
            }
        }
    }
    let mut seen = Controllers::NONE;
    let mut unified_seen = false;
    found.retain_mut(|m| {
        if m.unified {
            return !core::mem::replace(&mut unified_seen, true);
        }
        m.controllers = m.controllers.minus(seen);
        m.controllers.iter().for_each(|c| seen = seen.with(c));
        !m.controllers.is_empty()
    });
    found
}

/// proc(5): id, parent, device, root, point, options, optional fields, `-`, type, source, super options.
fn parse_mountinfo(text: &str) -> Vec<Mount> {
    let line = |l: &str| {
        let (left, right) = l.split_once(" - ")?;
        let point = left.split(' ').nth(4)?;
        let mut right = right.split(' ');
        mount(right.next()?, point, right.nth(1).unwrap_or(""))
    };
    text.lines().filter_map(line).collect()
}

/// fstab(5) form: source, point, type, options.
fn parse_mounts(text: &str) -> Vec<Mount> {
    let line = |l: &str| {
        let mut fields = l.split_ascii_whitespace().skip(1);
        let point = fields.next()?;
        mount(fields.next()?, point, fields.next().unwrap_or(""))
    };
    text.lines().filter_map(line).collect()
}

fn mount(kind: &str, point: &str, options: &str) -> Option<Mount> {
    let unified = kind == "cgroup2";
    if !unified && kind != "cgroup" {
        return None;
    }
    Some(Mount { point: unescape(point), unified, controllers: Controllers::from_mount_options(options) })
}

/// The kernel writes blank, tab, newline and backslash as `\ooo`.
fn unescape(field: &str) -> String {
    let mut out = String::new();
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let code = after.get(..3).and_then(|d| u8::from_str_radix(d, 8).ok());
        out.push(code.map_or('\\', char::from));
        rest = if code.is_some() { after.get(3..).unwrap_or("") } else { after };
    }
    out.push_str(rest);
    out
}

fn open_tree(root: &Path, m: &Mount) -> Option<Tree> {
    let point = root.join(m.point.trim_start_matches('/'));
    let dir = open(&point, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    let controllers = if m.unified {
        let list = std::fs::read_to_string(point.join("cgroup.controllers")).unwrap_or_default();
        Controllers::from_v2_list(&list)
    } else {
        m.controllers
    };
    Some(Tree { dir, mount: point, controllers, unified: m.unified })
}

/// What of [`EXPECTED`] no hierarchy has.
fn missing(root: &Path, trees: &[Tree]) -> Vec<MissingController> {
    let unified = trees.iter().any(|t| t.unified);
    let present =
        |c: Controller| trees.iter().any(|t| t.controllers.has(c)) || (unified && c.v2_name().is_none());
    let absent: Vec<Controller> = EXPECTED.into_iter().filter(|c| !present(*c)).collect();
    if absent.is_empty() {
        return Vec::new();
    }
    let table = text(root, "proc/cgroups");
    let cmdline = text(root, "proc/cmdline").unwrap_or_default();
    let hint = |controller| MissingController {
        controller,
        hint: hint(controller, table.as_deref(), cmdline.trim(), unified),
    };
    absent.into_iter().map(hint).collect()
}

/// Row of /proc/cgroups: hierarchy number (0: none or v2) and whether it is enabled.
fn table_row(table: &str, c: Controller) -> Option<(u32, bool)> {
    let row = table.lines().find(|l| l.split_ascii_whitespace().next() == Some(c.v1_name()))?;
    let mut fields = row.split_ascii_whitespace().skip(1);
    let hierarchy = fields.next()?.parse().ok()?;
    Some((hierarchy, fields.nth(1)? == "1"))
}

fn hint(c: Controller, table: Option<&str>, cmdline: &str, unified: bool) -> String {
    let Some(table) = table else {
        return format!(
            "no hierarchy with it is mounted and '/proc/cgroups' cannot be read; try 'mount -t cgroup -o {c} {c} \
             /sys/fs/cgroup/{c}'"
        );
    };
    match table_row(table, c) {
        // since 6.17 kernels with v1 switched off list controllers only in the v2 file
        None if unified && table.lines().count() > 1 && c != Controller::Memory => {
            format!("the kernel was built without it or the group above does not hand '{c}' down")
        }
        None => format!("the kernel was built without it (see {} in its configuration)", config_name(c)),
        Some((_, false)) => switched_off(c, cmdline),
        Some((0, true)) if unified => {
            format!(
                "the kernel has it, but it is not handed down: write '+{c}' to the 'cgroup.subtree_control' above"
            )
        }
        Some((_, true)) => format!(
            "the kernel has it, but no hierarchy with it is mounted: 'mount -t cgroup -o {c} {c} /sys/fs/cgroup/{c}'"
        ),
    }
}

/// The boot command line decides; firmware may have put the word there.
fn switched_off(c: Controller, cmdline: &str) -> String {
    let off = cmdline.split_ascii_whitespace().find(|word| {
        word.strip_prefix("cgroup_disable=").is_some_and(|list| list.split(',').any(|n| n == c.v1_name()))
    });
    match off {
        Some(word) => format!(
            "switched off by '{word}' on the kernel command line: remove it, or add 'cgroup_enable={c}' where firmware \
             puts it there (the command line is '{cmdline}')"
        ),
        None => format!(
            "switched off in this kernel: add 'cgroup_enable={c}' to the kernel command line (it is '{cmdline}')"
        ),
    }
}

fn config_name(c: Controller) -> &'static str {
    match c {
        Controller::Cpu => "CONFIG_CGROUP_SCHED",
        Controller::CpuAccounting => "CONFIG_CGROUP_CPUACCT",
        Controller::Cpuset => "CONFIG_CPUSETS",
        Controller::Memory => "CONFIG_MEMCG",
        Controller::Pids => "CONFIG_CGROUP_PIDS",
        Controller::HugeTlb => "CONFIG_CGROUP_HUGETLB",
        Controller::Devices => "CONFIG_CGROUP_DEVICE",
        Controller::Freezer => "CONFIG_CGROUP_FREEZER",
        Controller::Io => "CONFIG_BLK_CGROUP",
    }
}
