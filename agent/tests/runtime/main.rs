//! The container runtime against the real kernel: what a program sees inside is what the order says.
//!
//! Needs root and a static busybox. One thread: the runtime clones without exec and refuses to do so otherwise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod world;

mod bench;
mod exec;
mod files;
mod old_kernel;
mod process;
mod root;
mod sandbox;

type Test = (&'static str, fn());

fn main() {
    if world::reexecuted() {
        return;
    }
    old_kernel::pretend();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let wants_ignored = args.iter().any(|arg| arg == "--ignored" || arg == "--include-ignored");
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let all: Vec<Test> =
        [sandbox::TESTS, process::TESTS, root::TESTS, files::TESTS, exec::TESTS, old_kernel::TESTS].concat();
    let all = if wants_ignored { [all, bench::TESTS.to_vec()].concat() } else { all };
    if args.iter().any(|arg| arg == "--list") {
        all.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    if let Some(why) = world::impossible() {
        println!("skipped: {why}");
        return;
    }
    // as the supervisor is, whose children inherit it
    nix::sys::prctl::set_dumpable(false).unwrap();
    let mut failed = Vec::new();
    for (name, test) in all {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
            continue;
        }
        print!("test {name} ... ");
        match std::panic::catch_unwind(test) {
            Ok(()) => println!("ok"),
            Err(_) => {
                println!("FAILED");
                failed.push(name);
            }
        }
    }
    if !failed.is_empty() {
        println!("failures: {failed:?}");
        std::process::exit(101);
    }
}
