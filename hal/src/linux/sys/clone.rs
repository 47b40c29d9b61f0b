//! A new process with its handle: clone3, with fork as the fallback where a sandbox refuses clone3.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::Result;
use nix::errno::Errno;
use nix::libc;

/// A child that was just made.
#[derive(Debug)]
pub struct Child {
    /// in the caller's pid namespace
    pub pid: i32,
    pub pidfd: OwnedFd,
}

/// `struct clone_args` up to and with `cgroup` (kernel 5.7).
#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Bytes of the first version of [`CloneArgs`] (kernel 5.3).
const CLONE_ARGS_V0: usize = 64;
/// Not in every libc: `linux/sched.h`.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const CLONE_PIDFD: u64 = 0x1000;

/// Runs `body` in a child with a copy of our memory and ends the child with the exit code it returns.
///
/// `namespaces` are `CLONE_NEW*` flags. `cgroup` is the open folder of a v2 cgroup to be born in. All descriptors but
/// 0-2 and `keep` are closed in the child before `body` runs, so nothing else of ours can leak into it.
///
/// # Errors
/// `EDEADLK` when this process has more than one thread: the child could not allocate memory then.
pub fn clone_process(
    namespaces: i32,
    cgroup: Option<BorrowedFd<'_>>,
    keep: &[RawFd],
    body: impl FnOnce() -> i32,
) -> Result<Child> {
    if thread_count() != Some(1) {
        return Err(Errno::EDEADLK);
    }
    let flags = u64::from(namespaces.cast_unsigned());
    let (pid, pidfd) = match clone3(flags, cgroup) {
        Err(Errno::ENOSYS) if cgroup.is_none() => fork(namespaces)?,
        other => other?,
    };
    if pid == 0 {
        super::fds::close_all_but(keep);
        let code = catch_unwind(AssertUnwindSafe(body)).unwrap_or(101);
        // SAFETY: ends this process without running anything of the parent's (no destructors, no atexit).
        unsafe { libc::_exit(code) }
    }
    let pidfd = match pidfd {
        Some(fd) => fd,
        None => super::pidfd::open(pid)?,
    };
    Ok(Child { pid, pidfd })
}

/// Threads of this process: /proc/self/task has two links and one for each of them.
fn thread_count() -> Option<u64> {
    std::fs::metadata("/proc/self/task").ok()?.nlink().checked_sub(2)
}

fn clone3(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> Result<(i32, Option<OwnedFd>)> {
    let mut pidfd: libc::c_int = -1;
    let mut args = CloneArgs {
        flags: flags | CLONE_PIDFD,
        pidfd: (&raw mut pidfd).addr() as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    let mut size = CLONE_ARGS_V0;
    if let Some(fd) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = fd.as_raw_fd().cast_unsigned().into();
        size = size_of::<CloneArgs>();
    }
    // SAFETY: `args` is a valid clone_args of `size` bytes that outlives the call; neither CLONE_VM nor a stack is
    // given, so the child goes on with its own copy of this stack. The process has one thread (checked by the caller).
    let pid = Errno::result(unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size) })?;
    let pid = i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)?;
    if pid == 0 {
        return Ok((0, None));
    }
    // SAFETY: the kernel stored a new descriptor there, and nobody else knows of it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((pid, Some(pidfd)))
}

/// Without clone3 the namespaces are made by a plain clone; the pidfd is opened afterwards, which is safe as nobody else
/// reaps our children.
fn fork(namespaces: i32) -> Result<(i32, Option<OwnedFd>)> {
    let flags = namespaces | libc::SIGCHLD;
    let none: libc::c_long = 0;
    // SAFETY: a clone without CLONE_VM, stack, tid or tls pointers (all zero, so their order does not matter) is a fork.
    let pid = Errno::result(unsafe {
        libc::syscall(libc::SYS_clone, libc::c_long::from(flags), none, none, none, none)
    })?;
    Ok((i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)?, None))
}
