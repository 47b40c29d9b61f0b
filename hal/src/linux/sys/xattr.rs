//! Extended attributes of files by path, links not followed.

use std::ffi::{CStr, CString};

use nix::Result;
use nix::errno::Errno;
use nix::libc;

/// The kernel's own limits (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const MAX: usize = 65536;

/// Names of all attributes of `path`.
pub fn list(path: &CStr) -> Result<Vec<CString>> {
    let mut buffer = vec![0_u8; 256];
    loop {
        // SAFETY: the kernel writes at most the given length into the buffer.
        let size = unsafe { libc::llistxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
        match Errno::result(size) {
            Ok(size) => {
                buffer.truncate(usize::try_from(size).unwrap_or(0));
                break;
            }
            Err(Errno::ERANGE) if buffer.len() < MAX => buffer.resize(MAX, 0),
            Err(errno) => return Err(errno),
        }
    }
    Ok(buffer
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .filter_map(|n| CString::new(n).ok())
        .collect())
}

/// Value of one attribute.
pub fn get(path: &CStr, name: &CStr) -> Result<Vec<u8>> {
    let mut buffer = vec![0_u8; 256];
    loop {
        // SAFETY: the kernel writes at most the given length into the buffer.
        let size = unsafe {
            libc::lgetxattr(path.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
        };
        match Errno::result(size) {
            Ok(size) => {
                buffer.truncate(usize::try_from(size).unwrap_or(0));
                return Ok(buffer);
            }
            Err(Errno::ERANGE) if buffer.len() < MAX => buffer.resize(MAX, 0),
            Err(errno) => return Err(errno),
        }
    }
}

/// Sets one attribute.
pub fn set(path: &CStr, name: &CStr, value: &[u8]) -> Result<()> {
    // SAFETY: name and path are C strings, the kernel reads `value.len()` bytes.
    let set = unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    Errno::result(set).map(drop)
}
