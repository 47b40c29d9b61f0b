//! Who a container runs as: names of the manifest and image resolved in the image's own files.
//!
//! As the kubelet and its runtimes do it (kubernetes/kubernetes#61967, #93666): `runAsUser` wins over the
//! image; of the image's `USER` only the part before `:` counts; the group is `runAsGroup`, else the one of
//! `/etc/passwd`, else 0. The groups that `/etc/group` lists for the user's name are added
//! (`supplementalGroupsPolicy: Merge`).

use std::path::PathBuf;

use super::error::ImageError;
use super::rootfs::read_file;

const FILE_LIMIT: u64 = 4 * 1024 * 1024;

/// The answer, and facts for `runAsNonRoot` and `supplementalGroupsPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedUser {
    pub uid: u32,
    pub gid: u32,
    /// of `/etc/passwd`, where it has the user
    pub name: Option<String>,
    /// groups of `/etc/group` that have the user as a member, ascending
    pub image_groups: Vec<u32>,
    /// of `/etc/passwd`, else `/`
    pub home: String,
    /// the image names its user by a word and the manifest no number: `runAsNonRoot` cannot be verified
    pub by_name: bool,
}

/// Resolves; `layers` the lowest first, `image_user` as in the image config.
pub fn resolve_user(
    layers: &[PathBuf],
    image_user: &str,
    run_as_user: Option<u32>,
    run_as_group: Option<u32>,
) -> Result<ResolvedUser, ImageError> {
    let word = image_user.split(':').next().unwrap_or_default();
    let (uid, word) = match run_as_user {
        Some(uid) => (Some(uid), ""),
        None if word.is_empty() => (Some(0), ""),
        None => (word.parse::<u32>().ok(), word),
    };
    let passwd = read_file(layers, "/etc/passwd", FILE_LIMIT)?.unwrap_or_default();
    let passwd = String::from_utf8_lossy(&passwd);
    let line = find_user(&passwd, uid, word);
    let Some(uid) = line.as_ref().map(|line| line.uid).or(uid) else {
        return Err(ImageError::NoUser { user: word.to_owned() });
    };
    let name = line.as_ref().map(|line| line.name.to_owned());
    let image_groups = match &name {
        Some(name) => {
            let group = read_file(layers, "/etc/group", FILE_LIMIT)?.unwrap_or_default();
            groups_of(&String::from_utf8_lossy(&group), name)
        }
        None => Vec::new(),
    };
    Ok(ResolvedUser {
        uid,
        gid: run_as_group.or(line.as_ref().map(|line| line.gid)).unwrap_or(0),
        home: line
            .map(|line| line.home.to_owned())
            .filter(|home| !home.is_empty())
            .unwrap_or_else(|| "/".to_owned()),
        name,
        image_groups,
        by_name: run_as_user.is_none() && !word.is_empty() && word.parse::<u32>().is_err(),
    })
}

struct Line<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

fn find_user<'a>(passwd: &'a str, uid: Option<u32>, name: &str) -> Option<Line<'a>> {
    passwd.lines().filter_map(passwd_line).find(|line| match uid {
        Some(uid) => line.uid == uid,
        None => line.name == name,
    })
}

fn passwd_line(line: &str) -> Option<Line<'_>> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with('#'))?;
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let home = fields.nth(1).unwrap_or_default();
    Some(Line { name, uid, gid, home })
}

fn groups_of(group: &str, name: &str) -> Vec<u32> {
    let of_line = |line: &str| {
        let mut fields = line.split(':');
        let gid = fields.nth(2)?.parse().ok()?;
        fields.next()?.split(',').any(|member| member.trim() == name).then_some(gid)
    };
    let mut groups: Vec<u32> = group.lines().filter_map(of_line).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}
