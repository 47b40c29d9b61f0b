//! `podkeep image load|ls|rm|pull|pack`. The agent does the work, so that its view is never stale; where none runs
//! (a build host, a firmware being made) the store is opened here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::ArgMatches;
use podkeep_core::image::Platform;

use super::table::{Table, size};
use super::{Failure, out, path, socket, text};
use crate::api::client::{ClientError, ask};
use crate::api::{ApiReply, ApiRequest, ImageStatus};
use crate::image::pack::{PackOrder, PackSource, epoch_of_environment};
use crate::image::{ImageConfig, ImageStore, Progress, pack};

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(ExitCode::from(2)) };
    // `ls`, `pack` and `bake` have no such operand
    let image = matches.try_get_one::<String>("name").ok().flatten().cloned().unwrap_or_default();
    match name {
        "load" => load(matches, image)?,
        "ls" => list(matches)?,
        "rm" => remove(matches, &image)?,
        "bake" => baked(matches)?,
        "pull" => done(ask(&socket(matches), &ApiRequest::ImagePull { name: image })?),
        _ => packed(matches)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn done(reply: ApiReply) {
    if let ApiReply::Done { message } = reply {
        out::print(&format!("{message}\n"));
    }
}

/// The agent's answer, or the store itself where no agent runs.
fn agent_or_store(
    matches: &ArgMatches,
    request: &ApiRequest,
) -> Result<Result<ApiReply, ImageStore>, Failure> {
    match ask(&socket(matches), request) {
        Ok(reply) => Ok(Ok(reply)),
        Err(ClientError::NoAgent { .. }) => {
            let dir = path(matches, "state-dir").unwrap_or_else(|| PathBuf::from("/var/lib/podkeep"));
            Ok(Err(smol::block_on(ImageStore::open(&dir))?))
        }
        Err(error) => Err(error.into()),
    }
}

fn load(matches: &ArgMatches, name: String) -> Result<(), Failure> {
    let file = std::path::absolute(path(matches, "path").unwrap_or_default())?;
    let shown = file.to_str().ok_or("the path is not UTF-8")?.to_owned();
    match agent_or_store(matches, &ApiRequest::ImageLoad { path: shown, name: name.clone() })? {
        Ok(reply) => done(reply),
        Err(store) => {
            let names = smol::block_on(store.load(file, Some(name), Arc::new(Progress::default())))?;
            out::print(&format!("loaded {}\n", names.join(", ")));
        }
    }
    Ok(())
}

fn remove(matches: &ArgMatches, name: &str) -> Result<(), Failure> {
    match agent_or_store(matches, &ApiRequest::ImageRemove { name: name.to_owned() })? {
        Ok(reply) => done(reply),
        Err(store) => {
            let names = smol::block_on(store.remove(name, std::collections::BTreeSet::new()))?;
            out::print(&format!("removed {}\n", names.join(", ")));
        }
    }
    Ok(())
}

fn list(matches: &ArgMatches) -> Result<(), Failure> {
    let images = match agent_or_store(matches, &ApiRequest::ImageList)? {
        Ok(ApiReply::Images { images }) => images,
        Ok(_) => Vec::new(),
        Err(store) => statuses(&store)?,
    };
    let mut table = Table::new(&["NAME", "IMAGE ID", "SIZE", "USE", "STATE"]);
    for image in images {
        let id: String = image.id.trim_start_matches("sha256:").chars().take(12).collect();
        let state = if image.problem.is_empty() {
            if image.pinned { "pinned" } else { "ok" }
        } else {
            &image.problem
        };
        let usage = if image.in_use { "in use" } else { "-" };
        table.row(vec![image.name, id, size(image.size), usage.to_owned(), state.to_owned()]);
    }
    if table.is_empty() {
        out::error("No images (load one: podkeep image load PATH NAME)");
    } else {
        out::print(&table.text());
    }
    Ok(())
}

/// One line a name.
pub(crate) fn statuses(store: &ImageStore) -> Result<Vec<ImageStatus>, Failure> {
    let mut lines = Vec::new();
    for image in smol::block_on(store.list())? {
        lines.extend(image.names.iter().map(|name| ImageStatus {
            name: name.clone(),
            id: image.id.clone(),
            size: image.size,
            in_use: false,
            pinned: image.pinned,
            problem: image.problem.clone(),
        }));
    }
    Ok(lines)
}

fn packed(matches: &ArgMatches) -> Result<(), Failure> {
    let many = |name: &str| matches.get_many::<String>(name).unwrap_or_default().cloned().collect::<Vec<_>>();
    let sources = matches
        .get_many::<OsString>("source")
        .unwrap_or_default()
        .map(|source| source.to_str().map(PackSource::parse).ok_or("a source path is not UTF-8"))
        .collect::<Result<Vec<_>, _>>()?;
    let order = PackOrder {
        sources,
        config: ImageConfig {
            entrypoint: many("entrypoint"),
            cmd: many("cmd"),
            env: many("env"),
            user: text(matches, "user").unwrap_or_default().to_owned(),
            working_dir: text(matches, "workdir").unwrap_or_default().to_owned(),
            ..ImageConfig::default()
        },
        links: many("link")
            .iter()
            .filter_map(|link| link.split_once('='))
            .map(|(at, to)| (at.into(), to.into()))
            .collect(),
        epoch: epoch_of_environment(),
        platform: platform(matches)?,
        name: text(matches, "name").map(str::to_owned),
    };
    let target = path(matches, "out").unwrap_or_default();
    let made = pack::pack(&order, Path::new(&target))?;
    out::print(&format!("packed {} ({})\n", target.display(), made.config));
    Ok(())
}

/// The machine the image is for: this one unless told otherwise.
fn platform(matches: &ArgMatches) -> Result<Platform, Failure> {
    match text(matches, "platform") {
        None => Ok(crate::image::store::host_platform()),
        Some(word) => Platform::parse(word)
            .ok_or_else(|| format!("platform '{word}' is not OS/ARCH[/VARIANT], e.g. linux/arm/v7").into()),
    }
}

/// Unpacks images into a folder for a read-only partition.
fn baked(matches: &ArgMatches) -> Result<(), Failure> {
    let mut sources = Vec::new();
    for source in matches.get_many::<String>("source").unwrap_or_default() {
        // a path may hold the sign itself
        let (path, name) = match source.rsplit_once('=') {
            Some((path, name)) if !Path::new(source).exists() => (path, Some(name.to_owned())),
            _ => (source.as_str(), None),
        };
        sources.push((PathBuf::from(path), name));
    }
    let target = path(matches, "out").unwrap_or_default();
    let names = crate::image::bake::bake(&target, &sources, platform(matches)?, &Progress::default())?;
    out::print(&format!("baked {} into {}\n", names.join(", "), target.display()));
    Ok(())
}
