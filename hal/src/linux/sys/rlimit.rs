//! Resource limits with 64 bits on every machine.

use nix::Result;
use nix::errno::Errno;
use nix::libc;

#[repr(C, align(8))]
struct Rlimit64 {
    soft: u64,
    hard: u64,
}

/// Sets limit `resource` (`RLIMIT_*` number) of this process; `u64::MAX` is unlimited.
pub fn set(resource: u32, soft: u64, hard: u64) -> Result<()> {
    let new = Rlimit64 { soft, hard };
    let old = core::ptr::null_mut::<Rlimit64>();
    // SAFETY: `new` is a valid rlimit64 that outlives the call; a null `old` is allowed; pid 0 is this process.
    Errno::result(unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, &raw const new, old) }).map(drop)
}
