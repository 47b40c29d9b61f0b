//! `podkeep-janitor DIR…`: removes what the test nodes below each DIR left behind. Run by `tests/run` at its end.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for dir in std::env::args_os().skip(1) {
        let (cleared, troubles) = podkeep_tests::janitor::sweep(Path::new(&dir), true);
        if cleared > 0 {
            eprintln!("janitor: removed {cleared} left-over test nodes");
        }
        for trouble in troubles {
            eprintln!("janitor: {trouble}");
            code = ExitCode::FAILURE;
        }
    }
    code
}
