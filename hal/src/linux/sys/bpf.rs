//! bpf(2): device programs of control groups.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    code: u8,
    /// destination in the low four bits, source in the high ones
    registers: u8,
    offset: i16,
    number: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, number: i32) -> Instruction {
    // the kernel's bit field: low nibble first on little endian, high nibble first on big endian
    let registers = if cfg!(target_endian = "little") { to | from << 4 } else { to << 4 | from };
    Instruction { code, registers, offset, number }
}

/// `to = *(u32 *)(from + offset)`
#[must_use]
pub const fn load_word(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x61, to, from, offset, 0)
}

/// `to = from`, 32 bits
#[must_use]
pub const fn move_register(to: u8, from: u8) -> Instruction {
    instruction(0xbc, to, from, 0, 0)
}

/// `to = number`
#[must_use]
pub const fn move_number(to: u8, number: i32) -> Instruction {
    instruction(0xb7, to, 0, 0, number)
}

/// `to &= number`, 32 bits
#[must_use]
pub const fn and(to: u8, number: i32) -> Instruction {
    instruction(0x54, to, 0, 0, number)
}

/// `to >>= number`, 32 bits
#[must_use]
pub const fn shift_right(to: u8, number: i32) -> Instruction {
    instruction(0x74, to, 0, 0, number)
}

/// skips `by` instructions unless `register == number`
#[must_use]
pub const fn jump_if_not_equal(register: u8, number: i32, by: i16) -> Instruction {
    instruction(0x55, register, 0, by, number)
}

/// the answer is in register 0
#[must_use]
pub const fn exit() -> Instruction {
    instruction(0x95, 0, 0, 0, 0)
}

const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const PROG_DETACH: libc::c_int = 9;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const PROG_QUERY: libc::c_int = 16;

const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const ATTACH_CGROUP_DEVICE: u32 = 6;
const ALLOW_MULTI: u32 = 1 << 1;
const REPLACE: u32 = 1 << 2;

/// Head of the `BPF_PROG_LOAD` attributes; the kernel takes shorter ones than its own.
#[repr(C)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
}

#[repr(C)]
struct Attach {
    target_fd: u32,
    attach_bpf_fd: u32,
    attach_type: u32,
    attach_flags: u32,
    replace_bpf_fd: u32,
}

#[repr(C)]
struct Query {
    target_fd: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    prog_cnt: u32,
    padding: u32,
}

#[repr(C)]
struct ById {
    prog_id: u32,
    next_id: u32,
    open_flags: u32,
}

fn call<T>(command: libc::c_int, attributes: &mut T) -> Result<libc::c_long, Errno> {
    let size = libc::c_long::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: `attributes` is a live, exclusively borrowed value of `size` bytes laid out as the kernel's union for this
    // command; pointers inside it are the callers' business and outlive the call there.
    let result = unsafe { libc::syscall(libc::SYS_bpf, libc::c_long::from(command), attributes, size) };
    Errno::result(result)
}

fn owned(fd: libc::c_long) -> Result<OwnedFd, Errno> {
    let fd = i32::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just returned this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: &impl AsFd) -> u32 {
    fd.as_fd().as_raw_fd().unsigned_abs()
}

/// Checks and loads a device program.
///
/// # Errors
/// `EINVAL`: kernel without such programs, or a bad program; `EPERM`: no right.
pub fn load_device_program(code: &[Instruction]) -> Result<OwnedFd, Errno> {
    let license = c"Apache-2.0";
    let mut attributes = Load {
        prog_type: PROG_TYPE_CGROUP_DEVICE,
        insn_cnt: u32::try_from(code.len()).map_err(|_| Errno::E2BIG)?,
        insns: code.as_ptr() as usize as u64,
        license: license.as_ptr() as usize as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
    };
    owned(call(PROG_LOAD, &mut attributes)?)
}

/// Programs attached to this very group (not to those above).
///
/// # Errors
/// The kernel's.
pub fn attached_device_programs(group: &impl AsFd) -> Result<Vec<OwnedFd>, Errno> {
    let mut ids = [0_u32; 64];
    let mut attributes = Query {
        target_fd: number(group),
        attach_type: ATTACH_CGROUP_DEVICE,
        query_flags: 0,
        attach_flags: 0,
        prog_ids: ids.as_mut_ptr() as usize as u64,
        prog_cnt: 64,
        padding: 0,
    };
    call(PROG_QUERY, &mut attributes)?;
    let count = usize::try_from(attributes.prog_cnt).unwrap_or(0);
    let by_id = |id: &u32| {
        let mut attributes = ById { prog_id: *id, next_id: 0, open_flags: 0 };
        owned(call(PROG_GET_FD_BY_ID, &mut attributes)?)
    };
    ids.iter().take(count).map(by_id).collect()
}

/// Attaches, in place of `old` when given.
///
/// # Errors
/// `EINVAL`: the kernel cannot replace (before 5.6).
pub fn attach_device_program(group: &impl AsFd, new: &OwnedFd, old: Option<&OwnedFd>) -> Result<(), Errno> {
    let mut attributes = Attach {
        target_fd: number(group),
        attach_bpf_fd: number(new),
        attach_type: ATTACH_CGROUP_DEVICE,
        attach_flags: ALLOW_MULTI | if old.is_some() { REPLACE } else { 0 },
        replace_bpf_fd: old.map_or(0, number),
    };
    call(PROG_ATTACH, &mut attributes).map(drop)
}

/// # Errors
/// The kernel's.
pub fn detach_device_program(group: &impl AsFd, program: &OwnedFd) -> Result<(), Errno> {
    let mut attributes = Attach {
        target_fd: number(group),
        attach_bpf_fd: number(program),
        attach_type: ATTACH_CGROUP_DEVICE,
        attach_flags: 0,
        replace_bpf_fd: 0,
    };
    call(PROG_DETACH, &mut attributes).map(drop)
}
