//! The SRC cases of tests/data/cases: their scripts are played on a folder that a source watches.

use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;

use podkeep_core::desired::Object;

use super::*;
use crate::source::decode;
use crate::source::testing::Scratch;

const QUIET: Duration = Duration::from_millis(500);

/// What a listener makes of the updates.
#[derive(Default)]
struct World {
    /// objects in force by the name of their file, each as `name: last word of the command`
    files: BTreeMap<String, Vec<String>>,
    errors: BTreeMap<String, Vec<String>>,
    warnings: BTreeMap<String, Vec<String>>,
    notes: Vec<String>,
    complete: bool,
    /// every state a file was in, in order
    history: Vec<(String, Vec<String>)>,
    /// every error and warning, in order
    told: Vec<String>,
}

impl World {
    fn take(&mut self, update: SourceUpdate) {
        let words = |findings: &[Finding]| findings.iter().map(ToString::to_string).collect::<Vec<_>>();
        let key = |key: &FileKey| {
            display_path(Path::new(Path::new(OsStr::from_bytes(&key.path)).file_name().unwrap()))
        };
        for file in update.files {
            let name = key(&file.file);
            self.told.extend(words(&file.errors));
            self.told.extend(words(&file.warnings));
            self.errors.insert(name.clone(), words(&file.errors));
            self.warnings.insert(name.clone(), words(&file.warnings));
            if let Some(objects) = file.objects {
                let objects: Vec<String> = objects.iter().map(|placed| summary(&placed.object)).collect();
                self.history.push((name.clone(), objects.clone()));
                self.files.insert(name, objects);
            }
        }
        for file in update.removed {
            let name = key(&file);
            self.history.push((name.clone(), Vec::new()));
            self.files.remove(&name);
            self.errors.remove(&name);
        }
        self.notes = words(&update.notes);
        self.told.extend(self.notes.clone());
        self.complete = update.complete;
    }

    fn running(&self) -> Vec<String> {
        let mut all: Vec<String> = self.files.values().flatten().cloned().collect();
        all.sort();
        all
    }

    fn states_of(&self, file: &str) -> Vec<Vec<String>> {
        self.history.iter().filter(|(name, _)| name == file).map(|(_, state)| state.clone()).collect()
    }
}

/// `name: command of the first container [+ number of further containers]`
fn summary(object: &Object) -> String {
    let Object::Pod(pod) = object else { return object.kind().to_string() };
    let containers = &pod.spec.containers;
    let command = containers.first().and_then(|c| c.command.last()).cloned().unwrap_or_default();
    format!("{}: {command} x{}", pod.metadata.name, containers.len())
}

/// A source on a thread of its own.
struct Watched {
    updates: mpsc::Receiver<SourceUpdate>,
    thread: Option<JoinHandle<()>>,
    stop: smol::channel::Sender<()>,
    world: World,
}

impl Watched {
    fn start(path: &Path, quiet: Duration) -> Watched {
        let judge: Arc<Judge> = Arc::new(|_: &FileKey, object: &mut Object| match object {
            Object::Pod(pod) if pod.spec.containers.is_empty() => vec![decode::Complaint {
                path: "spec.containers".into(),
                message: "a pod needs a container".into(),
                hint: String::new(),
            }],
            _ => Vec::new(),
        });
        let options = DirOptions { path: path.to_path_buf(), quiet, rescan: Duration::ZERO, judge };
        let (to, from) = smol::channel::unbounded();
        let (stop, stopped) = smol::channel::bounded::<()>(1);
        let (forward, updates) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let listen = async {
                while let Ok(update) = from.recv().await {
                    if forward.send(update).is_err() {
                        break;
                    }
                }
            };
            let stopping = async {
                stopped.recv().await.ok();
            };
            let (source, _knock) = DirSource::new(options);
            smol::block_on(source.run(to).or(listen).or(stopping));
        });
        let mut watched = Watched { updates, thread: Some(thread), stop, world: World::default() };
        watched.until("the first update", |_| true);
        watched
    }

    /// Takes updates in until the world is as asked; fails after ten seconds.
    fn until(&mut self, what: &str, is_so: impl Fn(&World) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.updates.recv_timeout(left) {
                Ok(update) => self.world.take(update),
                Err(error) => panic!(
                    "{what}: {error}; running {:?}, errors {:?}",
                    self.world.running(),
                    self.world.told
                ),
            }
            if is_so(&self.world) {
                return;
            }
        }
    }

    /// Takes in all that comes until nothing has come for a while longer than the quiet period.
    fn settle(&mut self) {
        while let Ok(update) = self.updates.recv_timeout(QUIET * 2) {
            self.world.take(update);
        }
    }

    /// Plays the script of a case.
    fn play(&mut self, case: &str, folder: &Path) {
        let here = format!("{}/../tests/data/cases/src/{case}", env!("CARGO_MANIFEST_DIR"));
        let mut bystander = Command::new("sleep").arg("100").spawn().unwrap();
        let status = Command::new("sh")
            .arg(format!("{here}/ops.sh"))
            .env("HERE", &here)
            .env("M", folder)
            .env("SETTLE", "1.2")
            .env("A", bystander.id().to_string())
            .status();
        bystander.kill().ok();
        bystander.wait().ok();
        assert!(status.unwrap().success());
        self.settle();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.try_send(()).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Plays a case on an empty folder.
fn played(case: &str) -> (Scratch, World) {
    let dir = Scratch::new(case);
    let mut watched = Watched::start(dir.path(), QUIET);
    watched.play(case, dir.path());
    let world = std::mem::take(&mut watched.world);
    (dir, world)
}

#[test]
fn c_src_01_only_manifest_names_are_read_and_the_choice_is_stable() {
    let (dir, world) = played("C-SRC-01");
    // the backup is no manifest; which of the two others counts is decided in desired.rs
    assert_eq!(world.files.keys().collect::<Vec<_>>(), ["copy-of-web.yaml", "web.yaml"]);
    let mut again = Watched::start(dir.path(), QUIET);
    again.settle();
    assert_eq!(again.world.files, world.files);
}

#[test]
fn c_src_02_editor_save_is_one_change_without_noise() {
    let (_dir, world) = played("C-SRC-02");
    assert_eq!(
        world.states_of("svc.yaml"),
        [["svc: echo one; sleep 86400 x1"], ["svc: echo two; sleep 86400 x1"]]
    );
    assert_eq!(world.told, [] as [&str; 0]);
}

#[test]
fn c_src_03_same_content_is_no_change() {
    let (_dir, world) = played("C-SRC-03");
    let states = world.states_of("p.yaml");
    // the reordered text is another text with the same object: the identity is the same
    assert_eq!(states.len(), 2, "{states:?}");
    assert_eq!(states[0], states[1]);
    assert_eq!(world.told, [] as [&str; 0]);
}

#[test]
fn c_src_04_slow_writing_never_takes_a_running_pod_down() {
    let (_dir, world) = played("C-SRC-04");
    assert_eq!(
        world.states_of("two.yaml"),
        [["two: echo v1; sleep 86400 x2"], ["two: echo v2; sleep 86400 x2"]]
    );
    assert_eq!(world.errors["two.yaml"], [] as [&str; 0]);
}

#[test]
fn c_src_05_link_whose_target_appears_later() {
    let (_dir, world) = played("C-SRC-05");
    let states = world.states_of("late.yaml");
    assert_eq!(states.last().unwrap(), &["late: sleep 86401 x1"]);
    assert_eq!(states.iter().filter(|state| !state.is_empty()).count(), 2, "{states:?}");
    // one quiet note
    assert_eq!(world.told.len(), 1, "{:?}", world.told);
    assert!(world.told[0].contains("a link to a file that does not exist"), "{:?}", world.told);
}

#[test]
fn c_src_06_atomic_data_swap() {
    let (_dir, world) = played("C-SRC-06");
    assert_eq!(world.files.keys().collect::<Vec<_>>(), ["a.yaml", "b.yaml"]);
    assert_eq!(world.states_of("a.yaml"), [["data-a: sleep 86400 x1"]]);
    assert_eq!(world.states_of("b.yaml"), [["data-b: sleep 86400 x1"], ["data-b: sleep 4242 x1"]]);
    assert_eq!(world.told, [] as [&str; 0]);
}

#[test]
fn c_src_06_name_missing_from_the_new_folder_goes() {
    let dir = Scratch::new("swap-gone");
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("..1")).unwrap();
    fs::write(at("..1/a.yaml"), pod("a", 1)).unwrap();
    std::os::unix::fs::symlink("..1", at("..data")).unwrap();
    std::os::unix::fs::symlink("..data/a.yaml", at("a.yaml")).unwrap();
    let mut watched = Watched::start(dir.path(), Duration::from_millis(50));
    assert_eq!(watched.world.running(), ["a: 1 x1"]);
    fs::create_dir(at("..2")).unwrap();
    std::os::unix::fs::symlink("..2", at("..tmp")).unwrap();
    fs::rename(at("..tmp"), at("..data")).unwrap();
    watched.until("pod goes", |world| world.running().is_empty());
}

#[test]
fn c_src_07_folder_missing_at_start_and_made_again() {
    let dir = Scratch::new("C-SRC-07");
    let folder = dir.path().join("deep/er/manifests");
    let mut watched = Watched::start(&folder, QUIET);
    assert!(!watched.world.complete);
    assert!(watched.world.notes[0].contains("does not exist"), "{:?}", watched.world.notes);
    watched.play("C-SRC-07", &folder);
    assert!(watched.world.complete);
    assert_eq!(watched.world.running(), ["dir-late: sleep 86400 x1"]);
    // kept while the folder was away
    assert_eq!(watched.world.states_of("x.yaml").len(), 1);
    assert_eq!(watched.world.notes, [] as [&str; 0]);
    // the watch works on the new folder
    fs::write(folder.join("new.yaml"), pod("later", 1)).unwrap();
    watched.until("an edit is seen", |world| world.running().len() == 2);
    fs::remove_file(folder.join("x.yaml")).unwrap();
    watched.until("a removal is seen", |world| world.running().len() == 1);
}

#[test]
fn c_src_08_things_that_are_no_files() {
    let (dir, world) = played("C-SRC-08");
    let running = world.running();
    assert!(running.contains(&"ok-reg: sleep 86400 x1".to_string()), "{running:?}");
    assert!(!world.history.iter().any(|(name, _)| name.contains("inner")));
    for (name, why) in [
        ("aaa.yaml", "is a pipe"),
        ("bbb.yaml", "is a folder"),
        ("ccc.yaml", "is a device"),
        ("loop.yaml", "leads to itself"),
    ] {
        let said: Vec<&String> = world.told.iter().filter(|line| line.contains(name)).collect();
        assert_eq!(said.len(), 1, "{name}: {said:?}");
        assert!(said[0].contains(why), "{said:?}");
    }
    // root may read all; everybody else is told once
    if !nix::unistd::geteuid().is_root() {
        assert_eq!(world.told.iter().filter(|line| line.contains("secret.yaml")).count(), 1);
    }
    drop(dir);
}

#[test]
fn c_src_09_hostile_names_stay_apart() {
    let (_dir, world) = played("C-SRC-09");
    assert_eq!(world.running().len(), 5, "{:?}", world.files);
    for name in ["caf\\xe9.yaml", "caf\\xe8.yaml", "two\\nlines.yaml", "-rf.yaml"] {
        assert_eq!(world.files[name].len(), 1, "{name}");
    }
}

#[test]
fn c_lif_01_blink_is_not_noticed_and_a_gap_is() {
    let dir = Scratch::new("blink");
    let (file, away) = (dir.path().join("f.yaml"), dir.path().join("f.hold"));
    fs::write(&file, pod("fixed", 1)).unwrap();
    let mut watched = Watched::start(dir.path(), QUIET);
    fs::rename(&file, &away).unwrap();
    fs::rename(&away, &file).unwrap();
    watched.settle();
    assert_eq!(watched.world.states_of("f.yaml").len(), 1);
    fs::rename(&file, &away).unwrap();
    watched.until("removal", |world| world.running().is_empty());
    fs::rename(&away, &file).unwrap();
    watched.until("return", |world| world.running().len() == 1);
}

fn pod(name: &str, number: u32) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: i, command: [\"{number}\"]}}]}}\n"
    )
}

#[test]
fn new_and_replaced_files_count_at_once() {
    let dir = Scratch::new("latency");
    let mut watched = Watched::start(dir.path(), QUIET);
    let file = dir.path().join("a.yaml");
    let start = Instant::now();
    fs::write(&file, pod("a", 1)).unwrap();
    watched.until("new file", |world| world.running() == ["a: 1 x1"]);
    let new = start.elapsed();
    fs::write(dir.path().join(".a"), pod("a", 2)).unwrap();
    let start = Instant::now();
    fs::rename(dir.path().join(".a"), &file).unwrap();
    watched.until("renamed into place", |world| world.running() == ["a: 2 x1"]);
    let replaced = start.elapsed();
    println!("new file told after {new:?}, renamed one after {replaced:?}");
    assert!(new < QUIET && replaced < QUIET, "{new:?} {replaced:?}");
}

#[test]
fn broken_file_is_told_once_and_corrected() {
    let dir = Scratch::new("broken");
    let mut watched = Watched::start(dir.path(), Duration::from_millis(50));
    let file = dir.path().join("a.yaml");
    fs::write(&file, pod("a", 1)).unwrap();
    watched.until("good", |world| world.running() == ["a: 1 x1"]);
    fs::write(&file, "a: b: c\n").unwrap();
    watched.until("error", |world| world.errors["a.yaml"].len() == 1);
    assert_eq!(watched.world.running(), ["a: 1 x1"]);
    fs::File::open(&file).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    watched.settle();
    assert_eq!(watched.world.told.len(), 1, "{:?}", watched.world.told);
    fs::write(&file, "").unwrap();
    watched.until("empty", |world| world.warnings["a.yaml"].len() == 1);
    assert_eq!(watched.world.running(), ["a: 1 x1"]);
    fs::write(&file, pod("a", 1)).unwrap();
    watched.until("good again", |world| {
        world.errors["a.yaml"].is_empty() && world.warnings["a.yaml"].is_empty()
    });
    fs::write(&file, "# off\n").unwrap();
    watched.until("nothing but a comment: nothing is wanted", |world| world.running().is_empty());
}

#[test]
fn broken_file_at_start_is_told_with_the_first_update() {
    let dir = Scratch::new("broken-start");
    fs::write(dir.path().join("a.yaml"), "a: b: c\n").unwrap();
    fs::write(dir.path().join("b.yaml"), pod("b", 1)).unwrap();
    let watched = Watched::start(dir.path(), QUIET);
    assert!(watched.world.complete);
    assert_eq!(watched.world.errors["a.yaml"].len(), 1);
    assert_eq!(watched.world.running(), ["b: 1 x1"]);
}

#[test]
fn folder_that_appears_counts_as_whole_after_the_quiet_period() {
    let dir = Scratch::new("appears");
    let folder = dir.path().join("m");
    let mut watched = Watched::start(&folder, QUIET);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.yaml"), pod("a", 1)).unwrap();
    watched.until("the pod", |world| world.running() == ["a: 1 x1"]);
    let early = watched.world.complete;
    if !early {
        watched.until("the whole", |world| world.complete);
    }
    assert!(!early, "complete before the folder could be filled");
}

#[test]
fn single_file_of_any_name() {
    let dir = Scratch::new("single");
    let file = dir.path().join("the-pod");
    fs::write(&file, pod("a", 1)).unwrap();
    fs::write(dir.path().join("other.yaml"), pod("b", 1)).unwrap();
    let mut watched = Watched::start(&file, Duration::from_millis(50));
    assert_eq!(watched.world.running(), ["a: 1 x1"]);
    fs::write(&file, pod("a", 2)).unwrap();
    watched.until("change", |world| world.running() == ["a: 2 x1"]);
    fs::remove_file(&file).unwrap();
    watched.until("removal", |world| world.running().is_empty());
    fs::write(&file, pod("a", 3)).unwrap();
    watched.until("return", |world| world.running() == ["a: 3 x1"]);
}

#[test]
fn folder_behind_links_is_followed() {
    let dir = Scratch::new("linked");
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("a/m")).unwrap();
    fs::create_dir_all(at("b/m")).unwrap();
    fs::write(at("a/m/x.yaml"), pod("x", 1)).unwrap();
    fs::write(at("b/m/x.yaml"), pod("x", 2)).unwrap();
    std::os::unix::fs::symlink("a", at("now")).unwrap();
    let mut watched = Watched::start(&at("now/m"), Duration::from_millis(50));
    assert_eq!(watched.world.running(), ["x: 1 x1"]);
    std::os::unix::fs::symlink("b", at("next")).unwrap();
    fs::rename(at("next"), at("now")).unwrap();
    watched.until("the other folder", |world| world.running() == ["x: 2 x1"]);
    // an ancestor is renamed and made again
    fs::rename(at("b"), at("c")).unwrap();
    watched.until("missing", |world| !world.notes.is_empty());
    assert_eq!(watched.world.running(), ["x: 2 x1"]);
    fs::create_dir_all(at("b/m")).unwrap();
    fs::write(at("b/m/x.yaml"), pod("x", 3)).unwrap();
    watched.until("back", |world| world.running() == ["x: 3 x1"] && world.notes.is_empty());
}

#[test]
fn mount_over_the_folder_is_noticed() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root to mount");
        return;
    }
    let dir = Scratch::new("mount");
    let mut watched = Watched::start(dir.path(), Duration::from_millis(50));
    let none: Option<&str> = None;
    let mounted =
        nix::mount::mount(Some("tmpfs"), dir.path(), Some("tmpfs"), nix::mount::MsFlags::empty(), none);
    if let Err(error) = mounted {
        println!("skipped: cannot mount here: {error}");
        return;
    }
    fs::write(dir.path().join("a.yaml"), pod("a", 1)).unwrap();
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        watched.until("pod on the mounted file system", |world| world.running() == ["a: 1 x1"]);
    }));
    nix::mount::umount2(dir.path(), nix::mount::MntFlags::MNT_DETACH).unwrap();
    seen.unwrap();
}
