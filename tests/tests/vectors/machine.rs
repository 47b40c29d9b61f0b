//! Machines named in `fixtures.json`, and readers for the values the manager vectors share.

use std::path::PathBuf;

use podkeep_core::resource::layout::CpuLayout;
use podkeep_hal::{
    cpu_set::CpuSet,
    numa_mask::NumaMask,
    topology::{Builder, Cpu, Topology},
};
use serde_json::Value;

/// Folder of the vector files: `PODKEEP_VECTORS`, else the one beside the tests.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("PODKEEP_VECTORS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/data/vectors")), PathBuf::from)
}

/// The machine a row names in `fixture`.
pub(crate) fn topology(row: &Value) -> Result<Topology, String> {
    let name = text(row, "fixture")?;
    let path = folder().join("fixtures.json");
    let file = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let all: Value = serde_json::from_str(&file).map_err(|error| error.to_string())?;
    let cpus = all[name]["cpus"].as_array().ok_or(format!("no fixture {name}"))?;
    let mut builder = Builder::new();
    for cpu in cpus {
        let field =
            |at: usize| cpu[at].as_u64().and_then(|value| u16::try_from(value).ok()).ok_or("bad fixture");
        let (id, core, package, node, uncore) = (field(0)?, field(1)?, field(2)?, field(3)?, field(4)?);
        let node = u8::try_from(node).map_err(|_| "bad fixture")?;
        let cpu = Cpu { core, package, node, uncore, ..Cpu::alone(id) };
        builder.cpu(cpu).map_err(|error| error.to_string())?;
    }
    builder.finish().map_err(|error| error.to_string())
}

pub(crate) fn layout(row: &Value) -> Result<CpuLayout, String> {
    Ok(CpuLayout::new(&topology(row)?))
}

pub(crate) fn text<'a>(row: &'a Value, key: &str) -> Result<&'a str, String> {
    row[key].as_str().ok_or_else(|| format!("no text \"{key}\""))
}

pub(crate) fn count(row: &Value, key: &str) -> Result<usize, String> {
    row[key]
        .as_u64()
        .and_then(|value| usize::try_from(value).ok())
        .ok_or_else(|| format!("no number \"{key}\""))
}

pub(crate) fn cpus(row: &Value, key: &str) -> Result<CpuSet, String> {
    CpuSet::parse(text(row, key)?).map_err(|error| error.to_string())
}

pub(crate) fn mask(value: &Value) -> Option<NumaMask> {
    value
        .as_array()
        .map(|nodes| nodes.iter().filter_map(Value::as_u64).filter_map(|id| u8::try_from(id).ok()).collect())
}

pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {wanted:?}")) }
}
