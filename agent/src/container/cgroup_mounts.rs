//! The container's own view of its cgroups: one mount on v2, one a hierarchy below a small tmpfs on v1.

use std::os::fd::AsFd;

use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::symlinkat;
use podkeep_hal::linux::sys::mount::{self as tree, FsContext};

use super::mounts::{Detached, Target, attach_at, attributes, restrict, text, tmpfs};
use super::report::At;
use super::spec::MountSpec;
use crate::supervisor::proto::Failure;

/// To be called in the container's cgroup namespace.
pub(super) fn place(
    target: &Target<'_>,
    mount: &MountSpec,
    degraded: &mut Vec<String>,
) -> Result<(), Failure> {
    let attr = attributes(mount);
    if statfs("/sys/fs/cgroup").is_ok_and(|fs| fs.filesystem_type() == CGROUP2_SUPER_MAGIC) {
        let made =
            FsContext::open(c"cgroup2").and_then(|context| context.mount(attr)).at("mount", &mount.target)?;
        return attach_at(target, &Detached::plain(made), &mount.target);
    }
    let top = tmpfs(target, 0, 0o755, attr & !tree::ATTR_RDONLY).at("mount", &mount.target)?;
    let top = Detached::plain(top);
    attach_at(target, &top, &mount.target)?;
    let own = std::fs::read_to_string("/proc/self/cgroup").at("open", "/proc/self/cgroup")?;
    for line in own.lines() {
        let Some((id, rest)) = line.split_once(':') else { continue };
        let Some((controllers, _)) = rest.split_once(':') else { continue };
        if let Err(errno) = hierarchy(&top, id, controllers, attr) {
            degraded.push(format!("cgroup hierarchy '{controllers}' is not mounted: {}", errno.desc()));
        }
    }
    if mount.readonly {
        restrict(top.fd.as_fd(), tree::ATTR_RDONLY).at("mount", &mount.target)?;
    }
    Ok(())
}

/// Mounts one line of /proc/self/cgroup in a folder of its name.
fn hierarchy(top: &Detached, id: &str, controllers: &str, attr: u64) -> nix::Result<()> {
    let (context, folder) = if id == "0" {
        (FsContext::open(c"cgroup2")?, "unified")
    } else {
        let context = FsContext::open(c"cgroup")?;
        for word in controllers.split(',') {
            match word.strip_prefix("name=") {
                Some(name) => {
                    context.flag(c"none")?;
                    context.set(c"name", &text(name)?)?;
                }
                None => context.flag(&text(word)?)?,
            }
        }
        (context, controllers.strip_prefix("name=").unwrap_or(controllers))
    };
    let made = context.mount(attr)?;
    mkdirat(&top.fd, folder, Mode::from_bits_truncate(0o755))?;
    let place = super::resolve::resolve(
        top.fd.as_fd(),
        folder,
        super::resolve::Scope::Root,
        super::resolve::Missing::Refuse,
    )?;
    tree::attach(made.as_fd(), place.as_fd())?;
    for word in controllers.split(',').filter(|word| controllers.contains(',') && !word.contains('=')) {
        symlinkat(controllers, &top.fd, word)?;
    }
    Ok(())
}
