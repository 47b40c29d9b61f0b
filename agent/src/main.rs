//! The binary: all is in the library, so that tests reach it.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // hidden: `podkeep supervisor --run-dir DIR`, see `podkeep::supervisor::spawn`. It lives for months and touches no
    // page of memory that it does not need, the command line parser's first of all.
    if let [_, command, option, run_dir] = arguments.as_slice()
        && command == "supervisor"
        && option == "--run-dir"
    {
        return podkeep::supervisor::main(std::path::Path::new(run_dir));
    }
    podkeep::cli::main(arguments)
}
