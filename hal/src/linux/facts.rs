//! What else the machine tells about itself: identity, sensors, watchdog, power, kernel.

use std::{format, string::String};

use super::inventory::numbered;
use crate::{
    board::{Board, Cooling, Kernel, Name, PowerSupply, ThermalZone, Watchdog, name},
    files::Files,
};

/// Reads everything but the topology.
pub(super) fn board(files: &impl Files) -> Board {
    let dmi = |file: &str| named(files, &format!("/sys/class/dmi/id/{file}"));
    let tree = |file: &str| {
        // texts of the device tree end in a zero byte, and lists hold several of them
        let text = files.text(&format!("/sys/firmware/devicetree/base/{file}")).unwrap_or_default();
        name(text.split('\0').next().unwrap_or_default())
    };
    let model = tree("model");
    let small = files.cpus("/sys/devices/cpu_atom/cpus").unwrap_or_default();
    let mut huge_sizes: std::vec::Vec<u64> = huge_kib(files).map(|kib| kib.saturating_mul(1024)).collect();
    huge_sizes.sort_unstable();
    Board {
        vendor: dmi("sys_vendor"),
        model: if model.is_empty() { dmi("product_name") } else { model },
        compatible: tree("compatible"),
        page_bytes: page_bytes(files),
        memory_bytes: meminfo(files, "MemTotal:").unwrap_or(0).saturating_mul(1024),
        small_cpus: small,
        huge_sizes: huge_sizes.into_iter().take(8).collect(),
        zones: zones(files),
        cooling: cooling(files),
        watchdogs: watchdogs(files),
        supplies: supplies(files),
        kernel: kernel(files),
    }
}

fn named(files: &impl Files, path: &str) -> Name {
    name(&files.text(path).unwrap_or_default())
}

fn meminfo(files: &impl Files, key: &str) -> Option<u64> {
    let text = files.text("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn huge_kib(files: &impl Files) -> impl Iterator<Item = u64> {
    let names = files.names("/sys/kernel/mm/hugepages");
    names.into_iter().filter_map(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok())
}

/// No file tells the page size. The kernel of the running machine is asked; else the huge page sizes give it away: a
/// 512 MiB page needs 64 KiB pages, a 32 MiB page beside no 64 KiB page needs 16 KiB pages.
fn page_bytes(files: &impl Files) -> u64 {
    let has = |kib: u64| huge_kib(files).any(|size| size == kib);
    files.page_bytes().unwrap_or(if has(524_288) {
        65_536
    } else if has(32_768) && !has(64) {
        16_384
    } else {
        4_096
    })
}

fn zones(files: &impl Files) -> heapless::Vec<ThermalZone, 32> {
    const FOLDER: &str = "/sys/class/thermal";
    let zone = |zone: String| ThermalZone {
        name: named(files, &format!("{FOLDER}/{zone}/type")),
        milli_celsius: files.number(&format!("{FOLDER}/{zone}/temp")),
    };
    numbered(files, FOLDER, "thermal_zone").into_iter().take(32).map(zone).collect()
}

fn cooling(files: &impl Files) -> heapless::Vec<Cooling, 64> {
    const FOLDER: &str = "/sys/class/thermal";
    let device = |device: String| Cooling {
        name: named(files, &format!("{FOLDER}/{device}/type")),
        state: files.number(&format!("{FOLDER}/{device}/cur_state")).unwrap_or(0),
        full: files.number(&format!("{FOLDER}/{device}/max_state")).unwrap_or(0),
    };
    numbered(files, FOLDER, "cooling_device").into_iter().take(64).map(device).collect()
}

fn watchdogs(files: &impl Files) -> heapless::Vec<Watchdog, 8> {
    const FOLDER: &str = "/sys/class/watchdog";
    let watchdog = |watchdog: String| Watchdog {
        name: named(files, &format!("{FOLDER}/{watchdog}/identity")),
        timeout_s: files.number(&format!("{FOLDER}/{watchdog}/timeout")),
    };
    numbered(files, FOLDER, "watchdog").into_iter().take(8).map(watchdog).collect()
}

fn supplies(files: &impl Files) -> heapless::Vec<PowerSupply, 16> {
    const FOLDER: &str = "/sys/class/power_supply";
    let supply = |supply: String| PowerSupply {
        name: name(&supply),
        kind: named(files, &format!("{FOLDER}/{supply}/type")),
        online: files.number::<u8>(&format!("{FOLDER}/{supply}/online")).map(|online| online != 0),
        percent: files.number(&format!("{FOLDER}/{supply}/capacity")),
    };
    files.names(FOLDER).into_iter().take(16).map(supply).collect()
}

fn kernel(files: &impl Files) -> Kernel {
    let controllers = files.text("/sys/fs/cgroup/cgroup.controllers");
    let swaps = files.text("/proc/swaps").unwrap_or_default();
    Kernel {
        release: named(files, "/proc/sys/kernel/osrelease"),
        cgroup_v2: controllers.is_some(),
        controllers: name(&controllers.unwrap_or_default()),
        pressure: files.read("/proc/pressure/memory").is_ok(),
        numa: files.read("/sys/devices/system/node/online").is_ok(),
        numa_balancing: files.number::<u8>("/proc/sys/kernel/numa_balancing").is_some_and(|on| on != 0),
        hugetlb: huge_kib(files).next().is_some(),
        swap: swaps.lines().count() > 1,
    }
}
