//! The same tests once more on a kernel that lacks the newer calls: a filter answers them with ENOSYS.

use std::process::Command;

use nix::libc;

use crate::Test;
use crate::process::filter;

pub(crate) const TESTS: &[Test] = &[("old_kernel", old_kernel)];

const MARK: &str = "PODKEEP_TEST_OLD_KERNEL";

/// Kernel 5.6 (openat2), 5.12 (mount_setattr), 5.9 (close_range), 5.3 (clone3; refused by some sandboxes).
const NEWER: [libc::c_long; 4] =
    [libc::SYS_openat2, libc::SYS_mount_setattr, libc::SYS_close_range, libc::SYS_clone3];

/// Is this the run without the newer calls?
pub(crate) fn is_old() -> bool {
    std::env::var_os(MARK).is_some()
}

/// In that run: gives the newer calls up.
pub(crate) fn pretend() {
    if is_old() {
        let numbers: Vec<u32> = NEWER.iter().map(|number| u32::try_from(*number).unwrap()).collect();
        podkeep_hal::linux::sys::seccomp::load(&filter(&numbers, libc::ENOSYS)).unwrap();
    }
}

fn old_kernel() {
    if is_old() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "sandbox_",
            "root_",
            "files_",
            "exec_",
            "process_exit",
            "process_joins",
            "process_terminal",
            "process_waits",
        ])
        .env(MARK, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.matches("... ok").count() > 30, "{text}");
}
