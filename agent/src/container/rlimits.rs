//! Resource limits of a container. The API has no field for them, so they come from an annotation of the pod:
//! `podkeep.dev/rlimits: "nofile=1024:65536,core=0,memlock=unlimited"`, or `podkeep.dev/rlimits.<container>` for one.

use podkeep_core::types::Pod;

use super::spec::Rlimit;

/// Annotation for all containers; with `.` and a container's name behind it, for that one alone.
pub const ANNOTATION: &str = "podkeep.dev/rlimits";

/// Names as in `RLIMIT_…` (getrlimit(2)) and their numbers on the kernel's common table, which x86, ARM and RISC-V share.
const NAMES: [(&str, u32); 16] = [
    ("cpu", 0),
    ("fsize", 1),
    ("data", 2),
    ("stack", 3),
    ("core", 4),
    ("rss", 5),
    ("nproc", 6),
    ("nofile", 7),
    ("memlock", 8),
    ("as", 9),
    ("locks", 10),
    ("sigpending", 11),
    ("msgqueue", 12),
    ("nice", 13),
    ("rtprio", 14),
    ("rttime", 15),
];

fn amount(text: &str) -> Option<u64> {
    if text == "unlimited" { Some(u64::MAX) } else { text.parse().ok().filter(|amount| *amount < u64::MAX) }
}

/// Reads `name=soft[:hard],…`; one number stands for both.
pub fn parse(text: &str) -> Result<Vec<Rlimit>, String> {
    let mut limits: Vec<Rlimit> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, amounts) =
            part.split_once('=').ok_or_else(|| format!("'{part}' is not name=soft:hard"))?;
        let known = NAMES.iter().find(|(known, _)| *known == name.trim());
        let (_, resource) = known.ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            format!("'{name}' is no resource limit; there are {}", names.join(", "))
        })?;
        let (soft, hard) = amounts.split_once(':').unwrap_or((amounts, amounts));
        let wrong = || {
            format!("'{amounts}' of '{name}' is not a number or 'unlimited', once or twice with ':' between")
        };
        let (soft, hard) = (amount(soft.trim()).ok_or_else(wrong)?, amount(hard.trim()).ok_or_else(wrong)?);
        if soft > hard {
            return Err(format!("the soft limit of '{name}' is above the hard one"));
        }
        if limits.iter().any(|limit| limit.resource == *resource) {
            return Err(format!("'{name}' stands twice"));
        }
        limits.push(Rlimit { resource: *resource, soft, hard });
    }
    Ok(limits)
}

/// Limits of a container: its own annotation, else the pod's.
pub fn of(pod: &Pod, container: &str) -> Result<Vec<Rlimit>, String> {
    let annotations = &pod.metadata.annotations;
    let own = format!("{ANNOTATION}.{container}");
    let Some((name, text)) = [own.as_str(), ANNOTATION]
        .into_iter()
        .find_map(|name| annotations.get(name).map(|text| (name.to_owned(), text)))
    else {
        return Ok(Vec::new());
    };
    parse(text).map_err(|error| format!("annotation '{name}': {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_wrong_ones_named() {
        let limits = parse("nofile=1024:65536, core=0,memlock=unlimited").expect("limits");
        let seen: Vec<(u32, u64, u64)> = limits.iter().map(|l| (l.resource, l.soft, l.hard)).collect();
        assert_eq!(seen, [(7, 1024, 65536), (4, 0, 0), (8, u64::MAX, u64::MAX)]);
        for (text, word) in [
            ("files=1", "'files' is no resource limit"),
            ("nofile=a", "'a' of 'nofile'"),
            ("nofile=2:1", "above the hard one"),
            ("core=0,core=1", "stands twice"),
            ("nofile", "not name=soft:hard"),
        ] {
            assert!(parse(text).is_err_and(|error| error.contains(word)), "{text}");
        }
    }

    #[test]
    fn a_containers_own_limits_replace_the_pods() {
        let mut pod = Pod::default();
        pod.metadata.annotations.insert(ANNOTATION.into(), "core=0".into());
        pod.metadata.annotations.insert(format!("{ANNOTATION}.b"), "core=5".into());
        assert_eq!(of(&pod, "a").map(|l| l[0].soft), Ok(0));
        assert_eq!(of(&pod, "b").map(|l| l[0].soft), Ok(5));
        assert_eq!(of(&Pod::default(), "a"), Ok(Vec::new()));
    }
}
