//! Folders of pods that are long gone: taken away once it is known which pods are wanted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::Node;

/// First pause after a folder could not be taken away; it doubles up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);
/// In front of the name of a folder on its way out: no pod has such a uid, so a pod that comes back finds its name free.
const PREFIX: &str = ".leftover-";

/// Takes away every pod folder that belongs to no pod of the node. What cannot be taken away is told once and tried again
/// with growing pauses.
pub(super) fn start(node: &Rc<Node>) {
    let dir = node.settings.state_dir.join("pods");
    let doomed = {
        let pods = node.pods.borrow();
        set_aside(&dir, |uid| pods.entries.contains_key(uid))
    };
    match doomed {
        Ok(doomed) if doomed.is_empty() => {}
        Ok(doomed) => node.executor.spawn(sweep(doomed)).detach(),
        Err(error) => log::warn!("'{}' cannot be searched for left-over pod folders: {error}", dir.display()),
    }
}

/// Renames what is not wanted and answers all that has to go.
fn set_aside(dir: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut doomed = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(PREFIX) {
            doomed.push(entry.path());
        } else if !wanted(&name) {
            let away = dir.join(format!("{PREFIX}{name}"));
            // refused where something is mounted on the folder itself: then it goes under its own name
            let renamed = fs::rename(entry.path(), &away).is_ok();
            doomed.push(if renamed { away } else { entry.path() });
        }
    }
    Ok(doomed)
}

async fn sweep(mut doomed: Vec<PathBuf>) {
    let mut pause = FIRST;
    let mut told = false;
    loop {
        let batch = doomed;
        doomed =
            crate::offload::run(move || batch.into_iter().filter(|dir| !gone(dir, told)).collect()).await;
        if doomed.is_empty() {
            return;
        }
        told = true;
        async_io::Timer::after(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST);
    }
}

fn gone(dir: &Path, told: bool) -> bool {
    match crate::volume::teardown(dir) {
        Ok(()) => {
            log::info!("left-over pod folder '{}' is taken away", dir.display());
            true
        }
        Err(error) => {
            if !told {
                log::warn!("left-over pod folder stays, it is tried again later: {error}");
            }
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_wants_goes() {
        let dir = std::env::temp_dir().join(format!("leftovers-{}", std::process::id()));
        for name in ["wanted/volumes", "old/volumes", ".leftover-older/x"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        let mut doomed = set_aside(&dir, |uid| uid == "wanted").unwrap();
        doomed.sort();
        assert_eq!(doomed, [dir.join(".leftover-old"), dir.join(".leftover-older")]);
        assert!(doomed.iter().all(|dir| gone(dir, false)));
        assert!(dir.join("wanted/volumes").is_dir() && !dir.join("old").exists());
        assert_eq!(set_aside(&dir, |uid| uid == "wanted").unwrap(), Vec::<PathBuf>::new());
        assert_eq!(set_aside(&dir.join("none"), |_| false).unwrap(), Vec::<PathBuf>::new());
        fs::remove_dir_all(&dir).unwrap();
    }
}
