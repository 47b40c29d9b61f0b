//! `memory_manager_state`, versions 1 to 3.

use alloc::{
    boxed::Box,
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};

use podkeep_hal::numa_mask::NodeId;
use serde_json::Value;

use super::{
    CheckpointError, Format,
    dump::{hash, hash_data, list as dump_list, map as dump_map},
    json::{self, Object, Writer},
};
use crate::resource::memory_state::{
    Block, MachineMemory, MemoryAssignments, MemoryState, MemoryTable, NodeMemory,
};

/// File name in the kubelet's root folder.
pub const FILE: &str = "memory_manager_state";

const PREFIX: &str = "[memorymanager] ";

/// A file as read; what was never set is kept apart from what is empty, because the checksum tells them apart.
struct File {
    policy: String,
    machine: Option<BTreeMap<NodeId, Node>>,
    entries: Option<Vec<(String, Containers)>>,
    pods: Option<Vec<(String, Option<Vec<Piece>>)>>,
}

type Containers = Option<Vec<(String, Option<Vec<Piece>>)>>;

struct Node {
    assignments: u64,
    tables: Option<Vec<(String, MemoryTable)>>,
    cells: Option<Vec<NodeId>>,
}

struct Piece {
    affinity: Option<Vec<NodeId>>,
    kind: String,
    size: u64,
}

/// Reads a state file; an empty text is no state.
///
/// # Errors
/// The file is damaged, or was written under another policy.
pub fn restore(text: &str, policy: &str) -> Result<MemoryState, CheckpointError> {
    if text.is_empty() {
        return Ok(MemoryState::default());
    }
    let object = json::object(text)?;
    let (data, data_checksum) = (json::text(&object, "data")?, json::checksum(&object, "dataChecksum")?);
    let file = if data.is_empty() && data_checksum == 0 {
        let file = read(&object)?;
        verify(&file, json::checksum(&object, "checksum")?)?;
        file
    } else {
        let envelope =
            |inner, unreadable| CheckpointError::Envelope { version: 3, inner: Box::new(inner), unreadable };
        let inner = json::object(&data)
            .and_then(|object| read(&object))
            .map_err(|error| envelope(error, Some("memory")))?;
        let actual = hash_data(&data);
        if actual != data_checksum {
            return Err(envelope(CheckpointError::Corrupt { stored: data_checksum, actual }, None));
        }
        inner
    };
    if file.policy != policy {
        let configured = policy.to_string();
        return Err(CheckpointError::Policy { prefix: PREFIX, configured, stored: file.policy });
    }
    Ok(state(file))
}

fn state(file: File) -> MemoryState {
    let node = |node: Node| NodeMemory {
        assignments: node.assignments,
        tables: node.tables.unwrap_or_default().into_iter().collect(),
        cells: node.cells.unwrap_or_default(),
    };
    let block = |piece: Piece| Block {
        affinity: piece.affinity.unwrap_or_default(),
        kind: piece.kind,
        size: piece.size,
    };
    let blocks = |pieces: Option<Vec<Piece>>| {
        pieces.unwrap_or_default().into_iter().map(block).collect::<Vec<Block>>()
    };
    let machine: MachineMemory =
        file.machine.unwrap_or_default().into_iter().map(|(id, value)| (id, node(value))).collect();
    let mut assignments = MemoryAssignments::new();
    for (pod, containers) in file.entries.unwrap_or_default() {
        let held =
            containers.unwrap_or_default().into_iter().map(|(name, pieces)| (name, blocks(pieces))).collect();
        assignments.insert(pod, held);
    }
    MemoryState { machine, assignments }
}

fn read(object: &Object) -> Result<File, CheckpointError> {
    let machine = json::map(object, "machineState")?.map(|nodes| {
        let node = |(id, value): (&String, &Value)| {
            let id = id.parse::<NodeId>().map_err(|_| json::kind(id, "the number of a NUMA node"))?;
            Ok((id, read_node(json::inner("machineState", value)?)?))
        };
        nodes.into_iter().map(node).collect::<Result<_, CheckpointError>>()
    });
    let entries = json::map(object, "entries")?.map(|pods| {
        let containers = |(pod, value): (&String, &Value)| Ok((pod.clone(), read_containers(pod, value)?));
        pods.into_iter().map(containers).collect::<Result<_, CheckpointError>>()
    });
    let pods = json::map(object, "podEntries")?.map(|pods| {
        let pieces = |(pod, value): (&String, &Value)| {
            let blocks = json::get(json::inner(pod, value)?, "memoryBlocks").unwrap_or(&Value::Null);
            Ok((pod.clone(), read_pieces(pod, blocks)?))
        };
        pods.into_iter().map(pieces).collect::<Result<_, CheckpointError>>()
    });
    Ok(File {
        policy: json::text(object, "policyName")?,
        machine: machine.transpose()?,
        entries: entries.transpose()?,
        pods: pods.transpose()?,
    })
}

fn read_node(object: &Object) -> Result<Node, CheckpointError> {
    let table = |(kind, value): (&String, &Value)| {
        let object = json::inner(kind, value)?;
        let bytes = |key: &str| json::number(object, key);
        let table = MemoryTable {
            total: bytes("total")?,
            system_reserved: bytes("systemReserved")?,
            allocatable: bytes("allocatable")?,
            reserved: bytes("reserved")?,
            free: bytes("free")?,
        };
        Ok((kind.clone(), table))
    };
    let tables = json::get(object, "memoryMap").filter(|value| !value.is_null());
    let tables = tables.map(|value| {
        json::inner("memoryMap", value)?.iter().map(table).collect::<Result<_, CheckpointError>>()
    });
    Ok(Node {
        assignments: json::number(object, "numberOfAssignments")?,
        tables: tables.transpose()?,
        cells: json::numbers(object, "cells")?,
    })
}

fn read_containers(pod: &str, value: &Value) -> Result<Containers, CheckpointError> {
    if value.is_null() {
        return Ok(None);
    }
    let container = |(name, value): (&String, &Value)| Ok((name.clone(), read_pieces(name, value)?));
    json::inner(pod, value)?.iter().map(container).collect::<Result<_, CheckpointError>>().map(Some)
}

fn read_pieces(key: &str, value: &Value) -> Result<Option<Vec<Piece>>, CheckpointError> {
    let piece = |value: &Value| {
        let object = json::inner(key, value)?;
        Ok(Piece {
            affinity: json::numbers(object, "numaAffinity")?,
            kind: json::text(object, "type")?,
            size: json::number(object, "size")?,
        })
    };
    match value {
        Value::Null => Ok(None),
        Value::Array(pieces) => pieces.iter().map(piece).collect::<Result<_, CheckpointError>>().map(Some),
        _ => Err(json::kind(key, "a list")),
    }
}

/// A file is good if its checksum fits any of the forms it may have been written in.
fn verify(file: &File, stored: u32) -> Result<(), CheckpointError> {
    let actual = hash(&dump(file, false));
    if stored == 0 || stored == actual || stored == hash(&dump(file, true)) {
        return Ok(());
    }
    Err(CheckpointError::Corrupt { stored, actual })
}

fn dump(file: &File, with_pods: bool) -> String {
    let machine = file.machine.as_ref();
    let machine =
        dump_map(machine.map(|nodes| nodes.iter().map(|(id, node)| (*id, dump_node(node))).collect()));
    let containers = |held: &Containers| {
        let held = held.as_ref();
        dump_map(
            held.map(|held| held.iter().map(|(name, pieces)| (name.clone(), dump_pieces(pieces))).collect()),
        )
    };
    let entries = file.entries.as_ref();
    let entries = dump_map(
        entries.map(|pods| pods.iter().map(|(pod, held)| (pod.clone(), containers(held))).collect()),
    );
    let pod =
        |pieces: &Option<Vec<Piece>>| format!("{{MemoryBlocks:([]state.Block){}}}", dump_pieces(pieces));
    let pods = file.pods.as_ref();
    let pods =
        dump_map(pods.map(|pods| pods.iter().map(|(name, pieces)| (name.clone(), pod(pieces))).collect()));
    let pods =
        if with_pods { format!(" PodEntries:(state.PodMemoryAssignments){pods}") } else { String::new() };
    format!(
        "(*state.MemoryManagerCheckpoint){{PolicyName:(string){} MachineState:(state.NUMANodeMap){machine} \
         Entries:(state.ContainerMemoryAssignments){entries}{pods} Checksum:(checksum.Checksum)0}}",
        file.policy
    )
}

fn dump_node(node: &Node) -> String {
    let table = |table: &MemoryTable| {
        format!(
            "<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){} Allocatable:(uint64){} Reserved:(uint64){} \
             Free:(uint64){}}}",
            table.total, table.system_reserved, table.allocatable, table.reserved, table.free
        )
    };
    let tables = node.tables.as_ref();
    let tables = dump_map(
        tables.map(|tables| tables.iter().map(|(kind, bytes)| (kind.clone(), table(bytes))).collect()),
    );
    format!(
        "<*>{{NumberOfAssignments:(int){} MemoryMap:(map[v1.ResourceName]*state.MemoryTable){tables} Cells:([]int){}}}",
        node.assignments,
        dump_list(node.cells.clone())
    )
}

fn dump_pieces(pieces: &Option<Vec<Piece>>) -> String {
    let piece = |piece: &Piece| {
        format!(
            "{{NUMAAffinity:([]int){} Type:(v1.ResourceName){} Size:(uint64){}}}",
            dump_list(piece.affinity.clone()),
            piece.kind,
            piece.size
        )
    };
    dump_list(pieces.as_ref().map(|pieces| pieces.iter().map(piece).collect()))
}

/// Writes a state file.
#[must_use]
pub fn encode(state: &MemoryState, policy: &str, format: Format) -> String {
    match format {
        Format::Plain => {
            let checksum = hash(&dump(&as_file(state, policy), false));
            body(state, policy).raw("checksum", checksum).finish()
        }
        Format::Envelope => {
            let data = body(state, policy).finish();
            let checksum = hash_data(&data);
            body(state, policy).raw("checksum", 0).text("data", &data).raw("dataChecksum", checksum).finish()
        }
    }
}

fn as_file(state: &MemoryState, policy: &str) -> File {
    let node = |node: &NodeMemory| Node {
        assignments: node.assignments,
        tables: Some(node.tables.iter().map(|(kind, table)| (kind.clone(), *table)).collect()),
        cells: Some(node.cells.clone()),
    };
    let piece = |block: &Block| Piece {
        affinity: Some(block.affinity.clone()),
        kind: block.kind.clone(),
        size: block.size,
    };
    let pieces = |blocks: &Vec<Block>| Some(blocks.iter().map(piece).collect());
    let containers = |held: &BTreeMap<String, Vec<Block>>| {
        Some(held.iter().map(|(name, blocks)| (name.clone(), pieces(blocks))).collect())
    };
    File {
        policy: policy.to_string(),
        machine: Some(state.machine.iter().map(|(id, value)| (*id, node(value))).collect()),
        entries: Some(state.assignments.iter().map(|(pod, held)| (pod.clone(), containers(held))).collect()),
        pods: None,
    }
}

fn body(state: &MemoryState, policy: &str) -> Writer {
    let numbers = |list: &[NodeId]| json::array(list.iter().map(ToString::to_string));
    let table = |table: &MemoryTable| {
        Writer::new()
            .raw("total", table.total)
            .raw("systemReserved", table.system_reserved)
            .raw("allocatable", table.allocatable)
            .raw("reserved", table.reserved)
            .raw("free", table.free)
            .finish()
    };
    let node = |node: &NodeMemory| {
        Writer::new()
            .raw("numberOfAssignments", node.assignments)
            .raw("memoryMap", json::sorted(node.tables.iter().map(|(kind, bytes)| (kind, table(bytes)))))
            .raw("cells", numbers(&node.cells))
            .finish()
    };
    let block = |block: &Block| {
        Writer::new()
            .raw("numaAffinity", numbers(&block.affinity))
            .text("type", &block.kind)
            .raw("size", block.size)
            .finish()
    };
    let containers = |held: &BTreeMap<String, Vec<Block>>| {
        json::sorted(held.iter().map(|(name, blocks)| (name, json::array(blocks.iter().map(block)))))
    };
    let writer = Writer::new()
        .text("policyName", policy)
        .raw("machineState", json::sorted(state.machine.iter().map(|(id, value)| (id, node(value)))));
    if state.assignments.is_empty() {
        return writer;
    }
    writer.raw("entries", json::sorted(state.assignments.iter().map(|(pod, held)| (pod, containers(held)))))
}
