//! Signals of a child before its exec.

use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

/// Signals of the kernel, and the bytes of its set of them.
const SIGNALS: libc::c_int = 64;
const SIGNALS_BYTES: usize = 8;

/// Default dispositions for all signals (ignored ones would survive an exec) and an empty mask.
pub fn reset() -> nix::Result<()> {
    // SIG_DFL, no flags, no restorer, empty mask: all zero, and larger than the kernel's struct on any machine
    let default = [0_u64; 16];
    let previous = core::ptr::null_mut::<u64>();
    for signal in 1..=SIGNALS {
        // Not through the C library, which keeps some signals for itself and could leave them ignored.
        // SAFETY: installs no code, reads at most the 128 zero bytes; a null old action is allowed. SIGKILL and SIGSTOP
        // are refused.
        let _set = unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), previous, SIGNALS_BYTES)
        };
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}
