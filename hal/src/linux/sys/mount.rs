//! The mount calls that work on descriptors (kernel 5.2; attributes 5.12).

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::Result;
use nix::errno::Errno;
use nix::libc;

/// `MOUNT_ATTR_*` of `linux/mount.h`.
pub const ATTR_RDONLY: u64 = 0x1;
pub const ATTR_NOSUID: u64 = 0x2;
pub const ATTR_NODEV: u64 = 0x4;
pub const ATTR_NOEXEC: u64 = 0x8;
pub const ATTR_IDMAP: u64 = 0x0010_0000;

/// Propagation types [`set_attr`] understands: `MS_*`, whose type differs between machines.
pub const PRIVATE: u64 = 1 << 18;
pub const SLAVE: u64 = 1 << 19;
pub const SHARED: u64 = 1 << 20;

const OPEN_TREE_CLONE: libc::c_uint = 1;
const OPEN_TREE_CLOEXEC: libc::c_uint = libc::O_CLOEXEC as libc::c_uint;
const AT_RECURSIVE: libc::c_uint = 0x8000;
const AT_EMPTY_PATH: libc::c_uint = libc::AT_EMPTY_PATH as libc::c_uint;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: libc::c_uint = 0x40;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// `struct mount_attr`.
#[repr(C, align(8))]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// A detached copy of the mount(s) at `at`; `recursive` takes those below it, too.
pub fn clone_tree(at: BorrowedFd<'_>, recursive: bool) -> Result<OwnedFd> {
    let mut flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH;
    if recursive {
        flags |= AT_RECURSIVE;
    }
    // SAFETY: the path is a valid empty string; the rest are integers.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, at.as_raw_fd(), c"".as_ptr(), flags) };
    super::owned(Errno::result(fd)?)
}

/// Attaches the detached mount `tree` on the file or folder `target`, both given as descriptors: no path is walked.
pub fn attach(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<()> {
    let empty = c"".as_ptr();
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: both paths are valid empty strings; the rest are integers.
    let moved = unsafe {
        libc::syscall(libc::SYS_move_mount, tree.as_raw_fd(), empty, target.as_raw_fd(), empty, flags)
    };
    Errno::result(moved).map(drop)
}

/// Sets attributes (and, unless 0, the propagation) of the mount `tree`. Kernel 5.12.
pub fn set_attr(tree: BorrowedFd<'_>, recursive: bool, attr_set: u64, propagation: u64) -> Result<()> {
    mount_setattr(tree, recursive, &MountAttr { attr_set, attr_clr: 0, propagation, userns_fd: 0 })
}

/// Shows the ids of the detached mount `tree` through the user namespace: id 0 on disk is its root.
pub fn set_idmap(tree: BorrowedFd<'_>, user_ns: BorrowedFd<'_>) -> Result<()> {
    let userns_fd = user_ns.as_raw_fd().cast_unsigned().into();
    mount_setattr(tree, false, &MountAttr { attr_set: ATTR_IDMAP, attr_clr: 0, propagation: 0, userns_fd })
}

fn mount_setattr(tree: BorrowedFd<'_>, recursive: bool, attr: &MountAttr) -> Result<()> {
    let flags = if recursive { AT_EMPTY_PATH | AT_RECURSIVE } else { AT_EMPTY_PATH };
    let size = size_of::<MountAttr>();
    let attr = core::ptr::from_ref(attr);
    // SAFETY: the path is a valid empty string, `attr` a valid mount_attr of `size` bytes; both outlive the call.
    let set =
        unsafe { libc::syscall(libc::SYS_mount_setattr, tree.as_raw_fd(), c"".as_ptr(), flags, attr, size) };
    Errno::result(set).map(drop)
}

/// A file system being configured.
#[derive(Debug)]
pub struct FsContext(OwnedFd);

impl FsContext {
    pub fn open(kind: &CStr) -> Result<Self> {
        // SAFETY: the name is a valid C string.
        let fd = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) };
        super::owned(Errno::result(fd)?).map(Self)
    }

    /// `key=value`; the kernel takes values of at most 255 bytes.
    pub fn set(&self, key: &CStr, value: &CStr) -> Result<()> {
        self.config(FSCONFIG_SET_STRING, key.as_ptr(), value.as_ptr())
    }

    /// A key without a value.
    pub fn flag(&self, key: &CStr) -> Result<()> {
        self.config(FSCONFIG_SET_FLAG, key.as_ptr(), core::ptr::null())
    }

    /// Makes the file system and a detached mount of it with `attr` (`ATTR_*`).
    pub fn mount(self, attr: u64) -> Result<OwnedFd> {
        self.config(FSCONFIG_CMD_CREATE, core::ptr::null(), core::ptr::null())?;
        let attr = libc::c_uint::try_from(attr).map_err(|_| Errno::EINVAL)?;
        // SAFETY: takes integers only.
        let fd = unsafe { libc::syscall(libc::SYS_fsmount, self.0.as_raw_fd(), FSMOUNT_CLOEXEC, attr) };
        super::owned(Errno::result(fd)?)
    }

    /// Pointers are null or C strings of the callers above.
    fn config(
        &self,
        command: libc::c_uint,
        key: *const libc::c_char,
        value: *const libc::c_char,
    ) -> Result<()> {
        // SAFETY: key and value are null where the command takes none and else come from a live CStr.
        let done = unsafe { libc::syscall(libc::SYS_fsconfig, self.0.as_raw_fd(), command, key, value, 0) };
        Errno::result(done).map(drop)
    }
}
