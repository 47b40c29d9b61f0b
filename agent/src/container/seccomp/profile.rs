//! Localhost profiles: the JSON of the OCI runtime specification, and the form with `archMap`, `includes` and `excludes`
//! that container engines ship.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::SeccompError;
use super::program::{Action, Compare, Condition, Rule, Section};
use super::table::Arch;
use crate::container::caps;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Profile {
    default_action: String,
    default_errno_ret: Option<u32>,
    #[serde(default)]
    architectures: Vec<String>,
    #[serde(default)]
    arch_map: Vec<ArchMap>,
    #[serde(default)]
    syscalls: Vec<Calls>,
    listener_path: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchMap {
    architecture: String,
    #[serde(default)]
    sub_architectures: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Calls {
    #[serde(default)]
    names: Vec<String>,
    name: Option<String>,
    action: String,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Option<Vec<Argument>>,
    #[serde(default)]
    includes: Filter,
    #[serde(default)]
    excludes: Filter,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Argument {
    index: u32,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Filter {
    caps: Vec<String>,
    arches: Vec<String>,
    min_kernel: Option<String>,
}

/// What the conditions of a profile are about.
pub(super) struct Facts {
    pub(super) bounding: u64,
    pub(super) kernel: (u32, u32),
}

/// Reads the text.
pub(super) fn parse(text: &[u8]) -> Result<Profile, SeccompError> {
    let profile: Profile = serde_json::from_slice(text).map_err(|e| SeccompError::Syntax {
        line: e.line(),
        column: e.column(),
        message: e.to_string(),
    })?;
    if profile.listener_path.as_deref().is_some_and(|p| !p.is_empty()) {
        return Err(value("listenerPath", "a listener", "no listener"));
    }
    Ok(profile)
}

fn value(field: impl Into<String>, found: impl Into<String>, allowed: &'static str) -> SeccompError {
    SeccompError::Value { field: field.into(), found: found.into(), allowed }
}

impl Profile {
    /// Rules for each calling convention that the profile names; without names for the native one.
    pub(super) fn sections(&self, native: Arch, facts: &Facts) -> Result<Vec<Section>, SeccompError> {
        let mut arches = vec![native];
        arches.extend(native.compatible().filter(|arch| self.names(native, *arch)));
        arches.into_iter().map(|arch| self.section(arch, facts)).collect()
    }

    fn names(&self, native: Arch, arch: Arch) -> bool {
        let mapped = self.arch_map.iter().filter(|m| m.architecture == native.scmp());
        let mut subs = mapped.flat_map(|m| m.sub_architectures.iter().flatten());
        self.architectures.iter().any(|a| a == arch.scmp()) || subs.any(|a| a == arch.scmp())
    }

    fn section(&self, arch: Arch, facts: &Facts) -> Result<Section, SeccompError> {
        let default = action("defaultAction", &self.default_action, self.default_errno_ret)?;
        let known = arch.calls();
        let mut calls: BTreeMap<u32, Vec<Rule>> = BTreeMap::new();
        for (i, entry) in self.syscalls.iter().enumerate() {
            let field = format!("syscalls[{i}]");
            if !entry.includes.includes(arch, facts, &field)?
                || entry.excludes.excludes(arch, facts, &field)?
            {
                continue;
            }
            let conditions = entry.conditions(&field)?;
            let action = action(&format!("{field}.action"), &entry.action, entry.errno_ret)?;
            // names of other conventions are no mistake
            for number in entry.names.iter().chain(&entry.name).filter_map(|n| known.get(n.as_str())) {
                calls.entry(*number).or_default().push(Rule { conditions: conditions.clone(), action });
            }
        }
        // as in the engines: a profile that refuses says "no such call" for all that are newer than itself
        let refuses =
            !matches!(default, Action::ALLOW | Action::LOG) && default.0 & 0xffff_0000 != 0x7ff0_0000;
        let newest = calls.keys().rev().find(|n| **n <= 0xffff).copied();
        Ok(Section { arch, calls, default, newest: newest.filter(|_| refuses) })
    }
}

impl Calls {
    fn conditions(&self, field: &str) -> Result<Vec<Condition>, SeccompError> {
        self.args
            .iter()
            .flatten()
            .enumerate()
            .map(|(i, a)| a.condition(&format!("{field}.args[{i}]")))
            .collect()
    }
}

impl Argument {
    fn condition(&self, field: &str) -> Result<Condition, SeccompError> {
        if self.index > 5 {
            return Err(value(format!("{field}.index"), self.index.to_string(), "0 to 5"));
        }
        let (compare, wanted) = match self.op.as_str() {
            "SCMP_CMP_NE" => (Compare::NotEqual, self.value),
            "SCMP_CMP_LT" => (Compare::Less, self.value),
            "SCMP_CMP_LE" => (Compare::LessOrEqual, self.value),
            "SCMP_CMP_EQ" => (Compare::Equal, self.value),
            "SCMP_CMP_GE" => (Compare::GreaterOrEqual, self.value),
            "SCMP_CMP_GT" => (Compare::Greater, self.value),
            "SCMP_CMP_MASKED_EQ" => (Compare::MaskedEqual(self.value), self.value_two),
            other => {
                return Err(value(
                    format!("{field}.op"),
                    other,
                    "SCMP_CMP_ and NE, LT, LE, EQ, GE, GT or MASKED_EQ",
                ));
            }
        };
        Ok(Condition { index: self.index, compare, value: wanted })
    }
}

impl Filter {
    /// Every condition that is there has to hold.
    fn includes(&self, arch: Arch, facts: &Facts, field: &str) -> Result<bool, SeccompError> {
        let arches = self.arches.is_empty() || self.arches.iter().any(|a| a == arch.go());
        let caps = self.caps.is_empty() || self.has_cap(facts);
        Ok(arches && caps && self.kernel(facts, field)?.unwrap_or(true))
    }

    /// One condition that holds is enough.
    fn excludes(&self, arch: Arch, facts: &Facts, field: &str) -> Result<bool, SeccompError> {
        let arches = self.arches.iter().any(|a| a == arch.go());
        Ok(arches || self.has_cap(facts) || self.kernel(facts, field)?.unwrap_or(false))
    }

    fn has_cap(&self, facts: &Facts) -> bool {
        self.caps.iter().filter_map(|name| caps::number(name)).any(|n| facts.bounding >> n & 1 == 1)
    }

    fn kernel(&self, facts: &Facts, field: &str) -> Result<Option<bool>, SeccompError> {
        let Some(text) = self.min_kernel.as_deref().filter(|t| !t.is_empty()) else { return Ok(None) };
        let wanted = text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let wanted: (u32, u32) =
            wanted.ok_or_else(|| value(format!("{field}.minKernel"), text, "like '4.8'"))?;
        Ok(Some(facts.kernel >= wanted))
    }
}

fn action(field: &str, name: &str, errno: Option<u32>) -> Result<Action, SeccompError> {
    let errno_or = |other: i32| errno.unwrap_or(other.cast_unsigned());
    Ok(match name {
        "SCMP_ACT_ALLOW" => Action::ALLOW,
        "SCMP_ACT_LOG" => Action::LOG,
        "SCMP_ACT_ERRNO" => Action::errno(errno_or(nix::libc::EPERM)),
        "SCMP_ACT_TRACE" => Action::trace(errno_or(nix::libc::EPERM)),
        "SCMP_ACT_TRAP" => Action::TRAP,
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Action::KILL_THREAD,
        "SCMP_ACT_KILL_PROCESS" => Action::KILL_PROCESS,
        other => {
            let allowed = "SCMP_ACT_ and ALLOW, ERRNO, LOG, TRAP, TRACE, KILL, KILL_THREAD or KILL_PROCESS";
            return Err(value(field, other, allowed));
        }
    })
}
