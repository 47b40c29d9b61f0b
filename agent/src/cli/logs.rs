//! `podkeep logs`.
use std::process::ExitCode;

use clap::ArgMatches;

use super::Failure;

pub(super) fn run(_matches: &ArgMatches) -> Result<ExitCode, Failure> {
    Err("not yet".into())
}
