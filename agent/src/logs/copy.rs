//! Copies a log to whoever asked for it, and follows it: woken by the kernel when something is written or rotated.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use async_io::{Async, Timer};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use smol::future::{FutureExt, or};
use smol::io::{AsyncWrite, AsyncWriteExt};

use super::reader::{Progress, Reader};
use super::{LogsError, Options, errno};

/// How often is looked where the kernel can tell nothing (its watches are used up).
const LOOK: Duration = Duration::from_secs(1);
/// A line whose end does not come for so long is ended, if it holds up the other stream.
const LINE_PATIENCE: Duration = Duration::from_secs(2);

/// Tells when something changes in the folder of a log.
struct Watch(Option<Async<Inotify>>);

impl Watch {
    fn new(path: &Path) -> Self {
        let flags = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM;
        let begin = || {
            let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok()?;
            inotify.add_watch(path.parent()?, flags).ok()?;
            Async::new_nonblocking(inotify).ok()
        };
        Self(begin())
    }

    async fn changed(&self) {
        let Some(inotify) = &self.0 else {
            Timer::after(LOOK).await;
            return;
        };
        // what happened is found out by looking; the events only wake
        let woken = inotify.read_with(|inotify| inotify.read_events().map_err(std::io::Error::from)).await;
        if woken.is_err() {
            Timer::after(LOOK).await;
        }
    }
}

/// Copies what `options` ask for from the log whose live file is `path` to `out`. With `follow` it goes on until
/// `ended` says that the container has ended, and then gives its last lines.
///
/// # Errors
/// `Missing` without `follow`; what the file system says; `Write` when `out` takes nothing more
pub async fn copy<W: AsyncWrite + Unpin>(
    path: &Path,
    options: Options,
    ended: impl Future<Output = ()>,
    mut out: W,
) -> Result<(), LogsError> {
    // before the first look, so that nothing is missed after it
    let watch = options.follow.then(|| Watch::new(path));
    let mut reader = Reader::open(path, options)?;
    let mut ended = Box::pin(ended);
    let mut is_last_round = watch.is_none();
    let mut bytes = Vec::new();
    loop {
        let progress = reader.read(&mut bytes)?;
        write(&mut out, &bytes, &mut reader, watch.as_ref()).await?;
        bytes.clear();
        match progress {
            Progress::Done => break,
            Progress::More => continue,
            Progress::AtEnd if reader.discover()? => continue,
            Progress::AtEnd if is_last_round => {
                if !reader.break_line(&mut bytes) {
                    break;
                }
                continue;
            }
            Progress::AtEnd => {}
        }
        let Some(watch) = &watch else {
            break;
        };
        let holds_back = reader.holds_back()?;
        let late = async {
            if !holds_back {
                smol::future::pending::<()>().await;
            }
            Timer::after(LINE_PATIENCE).await;
            Wake::LineIsLate
        };
        let over = async {
            (&mut ended).await;
            Wake::Ended
        };
        let changed = async {
            watch.changed().await;
            Wake::Changed
        };
        match or(over, or(changed, late)).await {
            Wake::Ended => is_last_round = true,
            Wake::Changed => {}
            Wake::LineIsLate => {
                reader.break_line(&mut bytes);
            }
        }
    }
    out.flush().await.map_err(|error| LogsError::Write { errno: errno(&error) })
}

enum Wake {
    Ended,
    Changed,
    LineIsLate,
}

/// Writes; meanwhile files that are rotated are held, however slow the other end is.
async fn write<W: AsyncWrite + Unpin>(
    out: &mut W,
    bytes: &[u8],
    reader: &mut Reader,
    watch: Option<&Watch>,
) -> Result<(), LogsError> {
    let written =
        async { out.write_all(bytes).await.map_err(|error| LogsError::Write { errno: errno(&error) }) };
    let Some(watch) = watch else {
        return written.await;
    };
    let holding = async {
        loop {
            watch.changed().await;
            // a failure shows when it is read
            if reader.discover().is_err() {
                smol::future::pending::<()>().await;
            }
        }
    };
    written.or(holding).await
}
