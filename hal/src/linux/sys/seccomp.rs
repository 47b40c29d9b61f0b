//! Loading a system call filter.

use nix::Result;
use nix::errno::Errno;
use nix::libc;

const SECCOMP_SET_MODE_FILTER: libc::c_uint = 1;
/// Bytes of one `struct sock_filter`.
const INSTRUCTION: usize = 8;

#[repr(C)]
struct Program {
    length: libc::c_ushort,
    filter: *const u64,
}

/// Loads the classic BPF program given as the bytes of its `sock_filter` array, for this thread and all it executes.
/// Needs no_new_privs or CAP_SYS_ADMIN.
///
/// # Errors
/// `EINVAL` when the length is no multiple of 8, 0 or above what the kernel takes; else the kernel's answer.
pub fn load(program: &[u8]) -> Result<()> {
    if program.is_empty() || !program.len().is_multiple_of(INSTRUCTION) {
        return Err(Errno::EINVAL);
    }
    // A copy, since bytes of a file are not aligned for the kernel's structs.
    let aligned: Vec<u64> =
        program.as_chunks::<INSTRUCTION>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
    let length = libc::c_ushort::try_from(aligned.len()).map_err(|_| Errno::EINVAL)?;
    let program = Program { length, filter: aligned.as_ptr() };
    let flags: libc::c_uint = 0;
    // SAFETY: `program` points at `length` instructions in `aligned`; both outlive the call and are only read.
    let loaded = unsafe {
        libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, core::ptr::from_ref(&program))
    };
    Errno::result(loaded).map(drop)
}
