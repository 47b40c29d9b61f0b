//! `kubelet_internal_checkpoint`: which container holds which devices, with the plugin's answer.

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};

use serde_json::Value;

use super::{
    CheckpointError,
    dump::{hash, list as dump_list, map as dump_map},
    json::{self, Writer},
};

/// File name in the kubelet's `device-plugins` folder.
pub const FILE: &str = "kubelet_internal_checkpoint";

/// Devices of one resource held by one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// The resource.
    pub resource: String,
    /// Device ids by NUMA node; −1 for devices without one. A device of two nodes is listed twice.
    pub devices: BTreeMap<i64, Vec<String>>,
    /// The plugin's answer as it came (protobuf).
    pub answer: Vec<u8>,
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceState {
    /// Who holds what.
    pub entries: Vec<Entry>,
    /// Devices plugins had registered, by resource.
    pub registered: BTreeMap<String, Vec<String>>,
}

/// Reads a state file; an empty text is no state.
///
/// # Errors
/// The file is damaged.
pub fn restore(text: &str) -> Result<DeviceState, CheckpointError> {
    if text.is_empty() {
        return Ok(DeviceState::default());
    }
    let file = json::object(text)?;
    let Some(Value::Object(data)) = json::get(&file, "Data") else {
        return Err(json::kind("Data", "an object"));
    };
    let entries = match json::get(data, "PodDeviceEntries") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(entries)) => entries.iter().map(read_entry).collect::<Result<_, _>>()?,
        Some(_) => return Err(json::kind("PodDeviceEntries", "a list")),
    };
    let registered = json::map(data, "RegisteredDevices")?.unwrap_or_default();
    let registered =
        registered.into_iter().map(|(resource, ids)| Ok((resource.clone(), texts(resource, ids)?)));
    let state = DeviceState { entries, registered: registered.collect::<Result<_, CheckpointError>>()? };
    let stored = json::checksum(&file, "Checksum")?;
    let actual = hash(&dump(&state));
    if stored == actual { Ok(state) } else { Err(CheckpointError::Corrupt { stored, actual }) }
}

fn texts(key: &str, value: &Value) -> Result<Vec<String>, CheckpointError> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(ToString::to_string))
            .collect::<Option<_>>()
            .ok_or_else(|| json::kind(key, "a list of texts")),
        _ => Err(json::kind(key, "a list of texts")),
    }
}

fn read_entry(value: &Value) -> Result<Entry, CheckpointError> {
    let object = json::inner("PodDeviceEntries", value)?;
    let devices = json::map(object, "DeviceIDs")?.unwrap_or_default().into_iter().map(|(node, ids)| {
        let node = node.parse::<i64>().map_err(|_| json::kind(node, "the number of a NUMA node"))?;
        Ok((node, texts("DeviceIDs", ids)?))
    });
    Ok(Entry {
        pod: json::text(object, "PodUID")?,
        container: json::text(object, "ContainerName")?,
        resource: json::text(object, "ResourceName")?,
        devices: devices.collect::<Result<_, CheckpointError>>()?,
        answer: from_base64(&json::text(object, "AllocResp")?)
            .ok_or_else(|| json::kind("AllocResp", "base64"))?,
    })
}

/// Writes a state file.
#[must_use]
pub fn encode(state: &DeviceState) -> String {
    let ids = |ids: &Vec<String>| json::array(ids.iter().map(|id| json::quote(id)));
    let entry = |entry: &Entry| {
        Writer::new()
            .text("PodUID", &entry.pod)
            .text("ContainerName", &entry.container)
            .text("ResourceName", &entry.resource)
            .raw("DeviceIDs", json::sorted(entry.devices.iter().map(|(node, list)| (node, ids(list)))))
            .text("AllocResp", &to_base64(&entry.answer))
            .finish()
    };
    let entries = if state.entries.is_empty() {
        "null".to_string()
    } else {
        json::array(state.entries.iter().map(entry))
    };
    let registered = json::sorted(state.registered.iter().map(|(resource, list)| (resource, ids(list))));
    let data = Writer::new().raw("PodDeviceEntries", entries).raw("RegisteredDevices", registered).finish();
    Writer::new().raw("Data", data).raw("Checksum", hash(&dump(state))).finish()
}

fn dump(state: &DeviceState) -> String {
    let entry = |entry: &Entry| {
        let devices = entry.devices.iter().map(|(node, ids)| (*node, dump_list(Some(ids.clone())))).collect();
        format!(
            "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){} DeviceIDs:(checkpoint.DevicesPerNUMA){} \
             AllocResp:([]uint8){}}}",
            entry.pod,
            entry.container,
            entry.resource,
            dump_map(Some(devices)),
            dump_list(Some(entry.answer.clone()))
        )
    };
    let entries = (!state.entries.is_empty()).then(|| state.entries.iter().map(entry).collect());
    let registered =
        state.registered.iter().map(|(name, ids)| (name.clone(), dump_list(Some(ids.clone())))).collect();
    format!(
        "(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){} \
         RegisteredDevices:(map[string][]string){}}}",
        dump_list::<String>(entries),
        dump_map(Some(registered))
    )
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for (index, shift) in [18u32, 12, 6, 0].into_iter().enumerate() {
            let sign = ALPHABET.get((word >> shift & 63) as usize).copied().unwrap_or(b'=');
            text.push(if index <= chunk.len() { char::from(sign) } else { '=' });
        }
    }
    text
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let signs = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len().saturating_sub(signs.len()) > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(signs.len());
    let (mut word, mut bits) = (0u32, 0u32);
    for sign in signs.bytes() {
        let value = ALPHABET.iter().position(|known| *known == sign)?;
        word = word << 6 | u32::try_from(value).ok()?;
        bits = bits.saturating_add(6);
        if bits >= 8 {
            bits = bits.saturating_sub(8);
            bytes.push(u8::try_from(word >> bits & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_its_own_inverse() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\xfe", "//4=")]
        {
            assert_eq!(to_base64(bytes), text);
            assert_eq!(from_base64(text).as_deref(), Some(bytes));
        }
        assert_eq!(from_base64("Zg"), None);
        assert_eq!(from_base64("Z==="), None);
        assert_eq!(from_base64("Z*8="), None);
    }
}
