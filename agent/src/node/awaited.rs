//! Waiting for a path of the host to appear.

use std::path::Path;

use async_io::Async;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// Comes back when something appears under this name, or when its folder goes away. Its folder has to be there.
///
/// # Errors
/// The kernel's, when it cannot be watched.
pub(super) async fn appears(path: &Path, may_be_there: bool) -> Result<(), Errno> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::EINVAL) };
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let mask = AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_ONLYDIR;
    inotify.add_watch(folder, mask)?;
    // it may have come between the look that failed and the watch
    if !may_be_there && path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let inotify =
        Async::new_nonblocking(inotify).map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(0)))?;
    let ends = AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_IGNORED
        | AddWatchFlags::IN_Q_OVERFLOW;
    loop {
        match inotify.get_ref().read_events() {
            Ok(events) => {
                let fits = |e: &nix::sys::inotify::InotifyEvent| {
                    e.name.as_deref() == Some(name) || e.mask.intersects(ends)
                };
                if events.iter().any(fits) {
                    return Ok(());
                }
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        inotify.readable().await.map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(0)))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smol::future::FutureExt;
    use std::fs;
    use std::time::Duration;

    #[test]
    fn the_name_alone_wakes() {
        let dir = std::env::temp_dir().join(format!("awaited-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("file");
        smol::block_on(async {
            let task = smol::spawn({
                let path = path.clone();
                async move { appears(&path, false).await }
            });
            fs::write(dir.join("other"), "").unwrap();
            // still waiting, however late the other name was told
            let early = async { Some(smol::Timer::after(Duration::from_millis(50)).await) };
            let task = std::cell::RefCell::new(task);
            let woken = async {
                std::future::poll_fn(|cx| std::pin::Pin::new(&mut *task.borrow_mut()).poll(cx))
                    .await
                    .unwrap();
                None
            };
            assert!(early.or(woken).await.is_some(), "another name does not wake");
            fs::write(&path, "").unwrap();
            task.into_inner().await.unwrap();
            // what is there already, unless it is the wrong thing
            appears(&path, false).await.unwrap();
            let gone = smol::spawn({
                let path = path.clone();
                async move { appears(&path, true).await }
            });
            fs::remove_dir_all(&dir).unwrap();
            gone.await.ok();
            assert_eq!(appears(&path, false).await, Err(Errno::ENOENT));
        });
    }
}
