//! Composition root.

use std::process::ExitCode;

fn main() -> ExitCode {
    // hidden: `podkeep supervisor --run-dir DIR`, see `podkeep::supervisor::spawn`
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [command, option, run_dir] if command == "supervisor" && option == "--run-dir" => {
            podkeep::supervisor::main(std::path::Path::new(run_dir))
        }
        _ => ExitCode::SUCCESS,
    }
}
