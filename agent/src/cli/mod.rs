//! Commands and their output. Words and tables are kubectl's where it has them.

mod args;
mod describe;
mod exec;
mod get;
mod image;
mod logs;
pub mod out;
pub mod table;
pub mod yaml;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgMatches;

/// Version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Exit codes: 0 done, 1 failed, 2 wrong use; `exec` gives the program's own.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let matches = match args::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let wrong = error.use_stderr();
            let text = error.render().to_string();
            if wrong {
                out::error(&text);
            } else {
                out::print(&text);
            }
            return ExitCode::from(if wrong { 2 } else { 0 });
        }
    };
    match dispatch(&matches) {
        Ok(code) => code,
        Err(error) => {
            out::error(&format!("podkeep: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Any failure of a command, ready to be shown.
pub type Failure = Box<dyn std::error::Error>;

fn dispatch(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(ExitCode::from(2)) };
    match name {
        "run" => Ok(crate::node::main(&run_options(matches))),
        "check" => Ok(check(matches)),
        "get" => get::run(matches),
        "describe" => describe::run(matches),
        "logs" => logs::run(matches),
        "exec" => exec::run(matches),
        "image" => image::run(matches),
        "version" => version(matches),
        "demo" => crate::demo::run(path(matches, "dir")),
        "demo-app" => Ok(crate::demo::app()),
        _ => Ok(ExitCode::from(2)),
    }
}

fn path(matches: &ArgMatches, name: &str) -> Option<PathBuf> {
    matches.get_one::<OsString>(name).map(PathBuf::from)
}

fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str)
}

/// The agent's socket: as given, else below the usual run folder.
fn socket(matches: &ArgMatches) -> PathBuf {
    path(matches, "socket").unwrap_or_else(|| PathBuf::from(crate::node::DEFAULT_SOCKET))
}

fn run_options(matches: &ArgMatches) -> crate::node::RunOptions {
    crate::node::RunOptions {
        config: path(matches, "config"),
        config_dir: path(matches, "config-dir"),
        manifests: path(matches, "manifests"),
        state_dir: path(matches, "state-dir"),
        run_dir: path(matches, "run-dir"),
        socket: path(matches, "socket"),
        node_name: text(matches, "node-name").map(str::to_owned),
        root: path(matches, "root"),
        log_format: text(matches, "log-format").map(str::to_owned),
        verbosity: matches.get_one::<u8>("v").copied(),
    }
}

fn check(matches: &ArgMatches) -> ExitCode {
    let paths: Vec<PathBuf> =
        matches.get_many::<OsString>("path").unwrap_or_default().map(PathBuf::from).collect();
    // of any name: a pod's name must leave room for it
    let checked = crate::source::check::check(&paths, "node");
    for finding in &checked.findings {
        out::print(&format!("{finding}\n"));
    }
    ExitCode::from(checked.exit_status())
}

fn version(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let mut lines = format!("podkeep {VERSION} ({} {})\n", std::env::consts::ARCH, std::env::consts::OS);
    if let Ok(crate::api::ApiReply::Version { version, node, supervisor }) =
        crate::api::client::ask(&socket(matches), &crate::api::ApiRequest::Version)
    {
        lines.push_str(&format!("agent      {version} on node {node}\nsupervisor {supervisor}\n"));
    }
    out::print(&lines);
    Ok(ExitCode::SUCCESS)
}

/// The pods as kubectl shows them.
#[must_use]
pub fn pod_table(pods: &[serde_json::Value]) -> String {
    get::pod_table(pods, false)
}
