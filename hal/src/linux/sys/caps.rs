//! Capability sets of the calling thread, as bit masks.

use nix::Result;
use nix::errno::Errno;
use nix::libc;

/// CAP_SYS_ADMIN.
pub const SYS_ADMIN: u32 = 21;

const VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const fn low(mask: u64) -> u32 {
    (mask & 0xffff_ffff) as u32
}

const fn high(mask: u64) -> u32 {
    (mask >> 32) as u32
}

/// Sets the three sets at once.
pub fn set(effective: u64, permitted: u64, inheritable: u64) -> Result<()> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let data = [
        Data { effective: low(effective), permitted: low(permitted), inheritable: low(inheritable) },
        Data { effective: high(effective), permitted: high(permitted), inheritable: high(inheritable) },
    ];
    // SAFETY: version 3 reads a header and two data structs, which outlive the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) }).map(drop)
}

/// The permitted set.
pub fn permitted() -> Result<u64> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: version 3 reads a header and writes two data structs, which outlive the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) })?;
    let [first, second] = data;
    Ok(u64::from(first.permitted) | u64::from(second.permitted) << 32)
}

/// Drops from the bounding set every capability this kernel knows and `keep` lacks. Needs CAP_SETPCAP.
pub fn limit_bounding(keep: u64) -> Result<()> {
    for cap in 0..64_u32 {
        if keep >> cap & 1 == 1 {
            continue;
        }
        match prctl(libc::PR_CAPBSET_DROP, cap, 0) {
            // beyond the last one of this kernel
            Err(Errno::EINVAL) => break,
            other => other?,
        }
    }
    Ok(())
}

/// Makes `mask` the ambient set; its members must be permitted and inheritable.
pub fn set_ambient(mask: u64) -> Result<()> {
    match prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL.cast_unsigned(), 0) {
        // kernel without ambient capabilities: nothing to clear
        Err(Errno::EINVAL) if mask == 0 => return Ok(()),
        other => other?,
    }
    for cap in (0..64_u32).filter(|cap| mask >> cap & 1 == 1) {
        prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE.cast_unsigned(), cap)?;
    }
    Ok(())
}

fn prctl(option: libc::c_int, second: u32, third: u32) -> Result<()> {
    let (second, third) = (second as libc::c_ulong, third as libc::c_ulong);
    let none: libc::c_ulong = 0;
    // SAFETY: these options take integers only.
    Errno::result(unsafe { libc::prctl(option, second, third, none, none) }).map(drop)
}
