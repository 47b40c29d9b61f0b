//! Which file is executed, with what environment, where.

use std::ffi::CString;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access, chdir, execve, getcwd};

use super::report::{At, failed};
use super::spec::ProcessSpec;
use crate::supervisor::proto::{Failure, FailureKind};

/// Where programs are looked for when the environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Bytes of /etc/passwd that are looked at.
const MAX_USERS: u64 = 1 << 20;

/// All an exec takes, in the kernel's form.
pub(super) struct Program {
    file: CString,
    args: Vec<CString>,
    env: Vec<CString>,
}

/// A failed exec: the user's mistake more often than ours.
fn no_program(name: &str, errno: Errno) -> Failure {
    Failure { kind: FailureKind::Exec, ..failed("exec", name, errno) }
}

fn c_strings(step: &str, texts: &[String]) -> Result<Vec<CString>, Failure> {
    let convert = |text: &String| {
        CString::new(text.as_bytes())
            .map_err(|_| Failure { kind: FailureKind::Invalid, ..failed(step, text, Errno::EINVAL) })
    };
    texts.iter().map(convert).collect()
}

fn variable<'a>(process: &'a ProcessSpec, name: &str) -> Option<&'a str> {
    process.env.iter().rev().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
}

/// Finds the program inside the container, as its user.
pub(super) fn find(process: &ProcessSpec) -> Result<Program, Failure> {
    let name = process.args.first().map_or("", String::as_str);
    let file = look_up(name, variable(process, "PATH").unwrap_or(DEFAULT_PATH))?;
    let mut env = c_strings("environment", &process.env)?;
    if variable(process, "HOME").is_none() {
        env.extend(c_strings("environment", &[format!("HOME={}", home(process.uid))])?);
    }
    let file = c_strings("exec", &[file])?.pop().ok_or_else(|| no_program(name, Errno::EINVAL))?;
    Ok(Program { file, args: c_strings("exec", &process.args)?, env })
}

fn look_up(name: &str, path: &str) -> Result<String, Failure> {
    if name.is_empty() {
        return Err(no_program(name, Errno::ENOENT));
    }
    if name.contains('/') {
        return executable(name).map(|()| name.to_owned()).map_err(|errno| no_program(name, errno));
    }
    // as execvp: a file that may not be executed is remembered, the search goes on
    let mut answer = Errno::ENOENT;
    for folder in path.split(':') {
        let folder = if folder.is_empty() { "." } else { folder };
        let file = format!("{folder}/{name}");
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(errno) => answer = errno,
        }
    }
    Err(no_program(name, answer))
}

fn executable(file: &str) -> nix::Result<()> {
    access(file, AccessFlags::X_OK)?;
    let meta = std::fs::metadata(file).map_err(|_| Errno::ENOENT)?;
    if meta.is_file() && meta.permissions().mode() & 0o111 != 0 { Ok(()) } else { Err(Errno::EACCES) }
}

/// Home folder of a user, as /etc/passwd of the container has it.
fn home(uid: u32) -> String {
    let users = read_users().unwrap_or_default();
    let entry = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let own = fields.nth(2)?.parse() == Ok(uid);
        own.then(|| fields.nth(2)).flatten()
    });
    entry.filter(|home| !home.is_empty()).unwrap_or("/").to_owned()
}

/// An image may have anything in the place of the file: a pipe would hold us up for ever.
fn read_users() -> std::io::Result<String> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(nix::libc::O_NONBLOCK).open("/etc/passwd")?;
    let mut text = String::new();
    if file.metadata()?.is_file() {
        file.take(MAX_USERS).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// Goes to the working folder. Tried as root first, then (`again`) as the user: either may lack the right.
pub(super) fn enter_folder(process: &ProcessSpec, again: bool) -> Result<(), Failure> {
    let folder = if process.cwd.is_empty() { "/" } else { &process.cwd };
    match chdir(folder) {
        Err(Errno::EACCES) if !again => return Ok(()),
        other => other.at("cwd", folder)?,
    }
    if again { inside(folder) } else { Ok(()) }
}

/// A folder outside of the root (through a leaked descriptor, say) has no path the kernel could name.
fn inside(folder: &str) -> Result<(), Failure> {
    let real = getcwd().at("cwd", folder)?;
    if real.starts_with(Path::new("/")) { Ok(()) } else { Err(failed("cwd", folder, Errno::EXDEV)) }
}

impl Program {
    /// Returns only when it failed.
    pub(super) fn execute(&self) -> Failure {
        let errno = match execve(&self.file, &self.args, &self.env) {
            Ok(never) => match never {},
            Err(errno) => errno,
        };
        no_program(&self.file.to_string_lossy(), errno)
    }
}
