//! `podkeep logs`: the agent says where the log is and when its container has ended; the files are read here, so the
//! agent is not in the way of the bytes.

use std::path::Path;
use std::process::ExitCode;

use clap::ArgMatches;
use smol::io::AsyncWriteExt;

use super::{Failure, socket, text};
use crate::api::client::Call;
use crate::api::{ApiReply, ApiRequest};
use crate::clock;
use crate::logs::{LogsError, Options, copy};

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let follow = matches.get_flag("follow");
    let request = ApiRequest::Log {
        namespace: text(matches, "namespace").unwrap_or("default").to_owned(),
        pod: text(matches, "pod").unwrap_or_default().to_owned(),
        container: text(matches, "container").map(str::to_owned),
        previous: matches.get_flag("previous"),
        follow,
    };
    let options = Options {
        tail: matches.get_one::<u64>("tail").copied(),
        since_ns: since(matches)?,
        timestamps: matches.get_flag("timestamps"),
        limit_bytes: matches.get_one::<u64>("limit-bytes").copied(),
        ..Options::default()
    };
    let mut call = Call::start(&socket(matches), &request, &[])?;
    let (ApiReply::Log { path, running }, _) = call.answer()? else {
        return Err("the agent gave an answer to another question".into());
    };
    let options = Options { follow: follow && running, ..options };
    let ended = async {
        // an answer, or the end of the connection: nothing more will come (a restarted agent is asked by the next call)
        let (sender, receiver) = smol::channel::bounded::<()>(1);
        std::thread::spawn(move || {
            let last = call.next_reply();
            drop((last, sender));
        });
        receiver.recv().await.ok();
    };
    let done = smol::block_on(async {
        let mut out = smol::Unblock::new(std::io::stdout());
        let done = copy(Path::new(&path), options, ended, &mut out).await;
        // a reader that is gone is told by the copy
        out.flush().await.ok();
        done
    });
    match done {
        // `podkeep logs | head`: the reader has what it wants
        Ok(()) | Err(LogsError::Write { errno: nix::errno::Errno::EPIPE }) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.into()),
    }
}

/// `--since` and `--since-time` as Unix nanoseconds.
fn since(matches: &ArgMatches) -> Result<Option<i64>, Failure> {
    if let Some(time) = text(matches, "since-time") {
        let seconds = clock::parse_rfc3339(time)
            .ok_or_else(|| format!("'{time}' is not a time such as 2026-01-31T12:00:00Z (--since-time)"))?;
        return Ok(Some(seconds.saturating_mul(1_000_000_000)));
    }
    let Some(word) = text(matches, "since") else { return Ok(None) };
    let duration = podkeep_core::config::Duration::parse(word)
        .ok_or_else(|| format!("'{word}' is not a duration such as 30s, 5m or 2h (--since)"))?;
    let nanos = i64::try_from(duration.to_std().as_nanos()).unwrap_or(i64::MAX);
    Ok(Some(clock::now().wall.saturating_sub(nanos)))
}
