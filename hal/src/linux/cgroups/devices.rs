//! Which device nodes a group may use: rule text on v1, a BPF program on v2.
//!
//! Rules only allow; what no rule allows is denied.

use nix::errno::Errno;

use super::controller::Controller;
use super::error::{Degraded, Error};
use super::files::{join, read_text, write_each, write_text};
use super::group::Group;
use super::layout::Tree;
use crate::linux::sys::bpf::{self, Instruction};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    Char,
    Block,
}

/// What may be done with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub read: bool,
    pub write: bool,
    pub mknod: bool,
}

impl Access {
    pub const ALL: Self = Self { read: true, write: true, mknod: true };
    pub const MKNOD: Self = Self { read: false, write: false, mknod: true };

    /// From letters (`rwm`); `None` when another letter or nothing is there.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let known = !text.is_empty() && text.chars().all(|c| "rwm".contains(c));
        known.then(|| Self { read: text.contains('r'), write: text.contains('w'), mknod: text.contains('m') })
    }

    fn letters(self) -> String {
        let letter = |on: bool, c: &str| if on { c.to_owned() } else { String::new() };
        letter(self.read, "r") + &letter(self.write, "w") + &letter(self.mknod, "m")
    }

    /// `BPF_DEVCG_ACC_*`: mknod 1, read 2, write 4
    fn bits(self) -> i32 {
        i32::from(self.mknod) | i32::from(self.read) << 1 | i32::from(self.write) << 2
    }
}

/// Allows access; `None` stands for every number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRule {
    pub kind: DeviceKind,
    pub major: Option<u32>,
    pub minor: Option<u32>,
    pub access: Access,
}

/// What a group may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DevicePolicy {
    /// every device
    All,
    /// nothing but these
    Only(Vec<DeviceRule>),
}

impl DevicePolicy {
    /// The devices of the OCI runtime specification (null, zero, full, random, urandom, tty, console, ptmx, ptys) and
    /// the right to make any node, plus `extra`.
    #[must_use]
    pub fn usual(extra: &[DeviceRule]) -> Self {
        let rule = |kind, major, minor, access| DeviceRule { kind, major, minor, access };
        let char = |major, minor| rule(DeviceKind::Char, Some(major), minor, Access::ALL);
        let mut rules = vec![
            rule(DeviceKind::Char, None, None, Access::MKNOD),
            rule(DeviceKind::Block, None, None, Access::MKNOD),
            char(1, Some(3)),
            char(1, Some(5)),
            char(1, Some(7)),
            char(1, Some(8)),
            char(1, Some(9)),
            char(5, Some(0)),
            char(5, Some(1)),
            char(5, Some(2)),
            char(136, None),
        ];
        rules.extend_from_slice(extra);
        Self::Only(rules)
    }
}

fn v1_line(r: &DeviceRule) -> String {
    let kind = match r.kind {
        DeviceKind::Char => 'c',
        DeviceKind::Block => 'b',
    };
    let number = |n: Option<u32>| n.map_or_else(|| "*".to_owned(), |n| n.to_string());
    format!("{kind} {}:{} {}", number(r.major), number(r.minor), r.access.letters())
}

/// The program: one block of comparisons a rule, then "no".
///
/// Context (`bpf_cgroup_dev_ctx`): access in the upper and kind in the lower half of the first word, major, minor.
fn program(policy: &DevicePolicy) -> Vec<Instruction> {
    use bpf::{and, exit, jump_if_not_equal, load_word, move_number, move_register, shift_right};
    let DevicePolicy::Only(rules) = policy else {
        return vec![move_number(0, 1), exit()];
    };
    let mut code = vec![
        load_word(2, 1, 0),
        move_register(3, 2),
        and(2, 0xffff),
        shift_right(3, 16),
        load_word(4, 1, 4),
        load_word(5, 1, 8),
    ];
    for rule in rules {
        let kind = match rule.kind {
            DeviceKind::Block => 1,
            DeviceKind::Char => 2,
        };
        let mut block = vec![(2_u8, kind)];
        if rule.access != Access::ALL {
            block.push((0, 0));
        }
        #[expect(clippy::cast_possible_wrap, reason = "compared as 32 bits")]
        let number = |n: u32| n as i32;
        block.extend(rule.major.map(|n| (4, number(n))));
        block.extend(rule.minor.map(|n| (5, number(n))));
        // instructions from here to behind the block: each comparison one, the access test three, the answer two
        let mut left: i16 = 2;
        left = block.iter().fold(left, |sum, (register, _)| sum + if *register == 0 { 3 } else { 1 });
        for (register, value) in block {
            if register == 0 {
                code.push(move_register(0, 3));
                code.push(and(0, 7 & !rule.access.bits()));
                left -= 2;
            }
            left -= 1;
            code.push(jump_if_not_equal(register, value, left));
        }
        code.extend([move_number(0, 1), exit()]);
    }
    code.extend([move_number(0, 0), exit()]);
    code
}

impl Group {
    /// Puts the policy in force, in place of an earlier one. The v2 program is exchanged in one step: at no time is more
    /// allowed than by the old or the new one.
    ///
    /// # Errors
    /// [`Error::Refused`] when the kernel does not take a rule.
    pub fn devices(&self, policy: &DevicePolicy) -> Result<Vec<Degraded>, Error> {
        let lose = |reason: String| Ok(vec![Degraded { setting: "device rules".to_owned(), reason }]);
        let Some(tree) = self.all.tree_of(Controller::Devices) else {
            return lose(self.all.why_missing(Controller::Devices));
        };
        let done = if tree.unified { self.devices_v2(tree, policy) } else { self.devices_v1(tree, policy) };
        match done {
            Ok(()) => Ok(Vec::new()),
            Err((
                _,
                errno @ (Errno::ENOENT | Errno::EACCES | Errno::EPERM | Errno::EROFS | Errno::ENOSYS),
            )) => lose(format!("no right or no way to set them in '{}': {}", self.path, errno.desc())),
            Err((_, Errno::EINVAL)) if tree.unified => lose(
                "the kernel has no device programs (see CONFIG_CGROUP_BPF in its configuration)".to_owned(),
            ),
            Err((value, errno)) => {
                let file = if tree.unified { "device program" } else { "devices.allow" };
                Err(Error::Refused { path: self.path.clone(), file: file.to_owned(), value, errno })
            }
        }
    }

    fn devices_v1(&self, tree: &Tree, policy: &DevicePolicy) -> Result<(), (String, Errno)> {
        let write =
            |file: &str| write_text(&tree.dir, &join(&self.path, file), "a").map_err(|e| ("a".to_owned(), e));
        match policy {
            DevicePolicy::All => {
                // a new group has its parent's rules; writing them again is refused where the parent has less
                let list = read_text(&tree.dir, &join(&self.path, "devices.list")).unwrap_or_default();
                if list.trim() == "a *:* rwm" { Ok(()) } else { write("devices.allow") }
            }
            DevicePolicy::Only(rules) => {
                write("devices.deny")?;
                write_each(&tree.dir, &join(&self.path, "devices.allow"), rules.iter().map(v1_line))
            }
        }
    }

    pub(super) fn devices_v2(&self, tree: &Tree, policy: &DevicePolicy) -> Result<(), (String, Errno)> {
        let failed = |what: &'static str| move |e: Errno| (what.to_owned(), e);
        let dir = nix::fcntl::openat(
            &tree.dir,
            self.path.as_str(),
            nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_DIRECTORY | nix::fcntl::OFlag::O_CLOEXEC,
            nix::sys::stat::Mode::empty(),
        )
        .map_err(failed("open"))?;
        let old = bpf::attached_device_programs(&dir).map_err(failed("query"))?;
        if old.is_empty() && *policy == DevicePolicy::All {
            return Ok(());
        }
        let new = bpf::load_device_program(&program(policy)).map_err(failed("load"))?;
        match old.as_slice() {
            [one] => match bpf::attach_device_program(&dir, &new, Some(one)) {
                // kernels before 5.6 cannot exchange: both hold for a moment, which allows less, not more
                Err(Errno::EINVAL) => {
                    bpf::attach_device_program(&dir, &new, None).map_err(failed("attach"))?;
                    bpf::detach_device_program(&dir, one).map_err(failed("detach"))
                }
                done => done.map_err(failed("replace")),
            },
            several => {
                bpf::attach_device_program(&dir, &new, None).map_err(failed("attach"))?;
                several.iter().try_for_each(|p| bpf::detach_device_program(&dir, p)).map_err(failed("detach"))
            }
        }
    }
}
