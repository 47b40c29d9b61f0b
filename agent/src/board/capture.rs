//! Recording a machine: only files on a list are read, so that serial numbers, addresses, host and user names cannot be
//! among them; of the kernel's command line only words about CPUs, memory and control groups are kept.

use podkeep_hal::{
    files::Files,
    snapshot::{Entry, Snapshot},
};

/// Files as they are. `*` stands for one name, `#` for digits.
const KEPT: &[&str] = &[
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/offline",
    "/sys/devices/system/cpu/present",
    "/sys/devices/system/cpu/possible",
    "/sys/devices/system/cpu/kernel_max",
    "/sys/devices/system/cpu/isolated",
    "/sys/devices/system/cpu/nohz_full",
    "/sys/devices/system/cpu/smt/active",
    "/sys/devices/system/cpu/smt/control",
    "/sys/devices/system/cpu/cpu#/online",
    "/sys/devices/system/cpu/cpu#/cpu_capacity",
    "/sys/devices/system/cpu/cpu#/topology/*",
    "/sys/devices/system/cpu/cpu#/cache/index#/level",
    "/sys/devices/system/cpu/cpu#/cache/index#/type",
    "/sys/devices/system/cpu/cpu#/cache/index#/size",
    "/sys/devices/system/cpu/cpu#/cache/index#/id",
    "/sys/devices/system/cpu/cpu#/cache/index#/shared_cpu_list",
    "/sys/devices/system/cpu/cpu#/cpufreq/cpuinfo_max_freq",
    "/sys/devices/system/cpu/cpu#/cpufreq/cpuinfo_min_freq",
    "/sys/devices/system/cpu/cpu#/cpufreq/scaling_governor",
    "/sys/devices/system/node/online",
    "/sys/devices/system/node/possible",
    "/sys/devices/system/node/has_cpu",
    "/sys/devices/system/node/has_memory",
    "/sys/devices/system/node/node#/cpulist",
    "/sys/devices/system/node/node#/distance",
    "/sys/devices/system/node/node#/meminfo",
    "/sys/devices/system/node/node#/hugepages/*/nr_hugepages",
    "/sys/devices/system/node/node#/hugepages/*/free_hugepages",
    "/sys/devices/system/node/node#/hugepages/*/surplus_hugepages",
    "/sys/devices/cpu_core/cpus",
    "/sys/devices/cpu_atom/cpus",
    "/sys/kernel/mm/hugepages/*/nr_hugepages",
    "/sys/kernel/mm/hugepages/*/free_hugepages",
    "/sys/firmware/devicetree/base/model",
    "/sys/firmware/devicetree/base/compatible",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/class/dmi/id/product_name",
    "/sys/class/thermal/thermal_zone#/type",
    "/sys/class/thermal/thermal_zone#/temp",
    "/sys/class/thermal/cooling_device#/type",
    "/sys/class/thermal/cooling_device#/cur_state",
    "/sys/class/thermal/cooling_device#/max_state",
    "/sys/class/watchdog/watchdog#/identity",
    "/sys/class/watchdog/watchdog#/timeout",
    "/sys/class/power_supply/*/type",
    "/sys/class/power_supply/*/online",
    "/sys/class/power_supply/*/capacity",
    "/sys/fs/cgroup/cgroup.controllers",
    "/sys/fs/cgroup/cgroup.subtree_control",
    "/sys/fs/cgroup/cpuset.cpus.effective",
    "/sys/fs/cgroup/cpuset.mems.effective",
    "/proc/cgroups",
    "/proc/filesystems",
    "/proc/meminfo",
    "/proc/pressure/cpu",
    "/proc/pressure/io",
    "/proc/pressure/memory",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/pid_max",
];

/// Beginnings of the words kept of the kernel's command line.
const WORDS: &[&str] = &[
    "cgroup",
    "default_hugepagesz",
    "hugepage",
    "isolcpus",
    "maxcpus",
    "mem=",
    "nohz",
    "nosmt",
    "nr_cpus",
    "numa",
    "psi",
    "rcu_nocbs",
    "swapaccount",
    "systemd.unified_cgroup_hierarchy",
    "transparent_hugepage",
];

/// Records the machine behind `files`.
#[must_use]
pub fn capture(files: &impl Files) -> Snapshot {
    let mut snapshot = Snapshot::new();
    for pattern in KEPT {
        let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
        keep(files, String::new(), &parts, &mut snapshot);
    }
    let cmdline = files.text("/proc/cmdline").unwrap_or_default();
    let words: Vec<&str> = cmdline
        .split_ascii_whitespace()
        .filter(|word| WORDS.iter().any(|start| word.starts_with(start)))
        .collect();
    snapshot.put_text("/proc/cmdline", &format!("{}\n", words.join(" ")));
    let swaps = files.text("/proc/swaps").unwrap_or_default();
    if let Some(header) = swaps.lines().next() {
        // paths of swap files can name people: only how many there are is kept
        let lines = swaps.lines().skip(1).zip(0..).map(|(_, at)| format!("/swap{at}\tfile\t0\t0\t0\n"));
        snapshot.put_text("/proc/swaps", &format!("{header}\n{}", lines.collect::<String>()));
    }
    snapshot
}

fn keep(files: &impl Files, folder: String, parts: &[&str], snapshot: &mut Snapshot) {
    let Some((part, rest)) = parts.split_first() else {
        if let Ok(bytes) = files.read(&folder) {
            snapshot.put(&folder, Entry::File(bytes));
        }
        return;
    };
    if !part.contains(['*', '#']) {
        return keep(files, format!("{folder}/{part}"), rest, snapshot);
    }
    for name in files.names(if folder.is_empty() { "/" } else { &folder }) {
        if matches(part, &name) {
            keep(files, format!("{folder}/{name}"), rest, snapshot);
        }
    }
}

/// Does a name fit `*`, or a beginning followed by digits?
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('#') {
        Some(start) => name
            .strip_prefix(start)
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())),
        None => pattern == "*" || pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use podkeep_hal::{board::Inventory, linux::inventory::Machine};

    use super::*;

    const PRIVATE: &str = "# a machine with secrets
/sys/devices/system/cpu/online = 0-1
/sys/devices/system/cpu/cpu0/topology/core_cpus_list = 0-1
/sys/class/dmi/id/product_name = Some Board
/sys/class/dmi/id/product_serial = SECRET-SERIAL
/sys/class/dmi/id/product_uuid = SECRET-UUID
/sys/class/net/eth0/address = 02:00:5e:cr:et:01
/proc/sys/kernel/hostname = SECRET-HOST
/proc/sys/kernel/osrelease = 6.1.0
/proc/cmdline = root=UUID=SECRET-DISK isolcpus=1 user=SECRET-USER
/proc/meminfo = MemTotal: 1000 kB
";

    #[test]
    fn capture_holds_no_personal_data() {
        let snapshot = capture(&Snapshot::from_lines(PRIVATE));
        let text = serde_json::to_string(&snapshot).unwrap();
        assert!(!text.contains("SECRET") && !text.contains("02:00"), "{text}");
        assert_eq!(snapshot.text("/proc/cmdline").as_deref(), Some("isolcpus=1"));
        assert_eq!(snapshot.text("/sys/class/dmi/id/product_name").as_deref(), Some("Some Board"));
    }

    #[test]
    fn captured_machine_is_the_same_machine() {
        let machine = Machine::at("/");
        let snapshot = capture(machine.files());
        let text = serde_json::to_string(&snapshot).unwrap();
        let again = Machine::new(super::super::parse(&text).unwrap());
        let (before, after) = (machine.topology().unwrap(), again.topology().unwrap());
        assert_eq!(after.cpus, before.cpus);
        assert_eq!(after.online(), before.online());
        assert_eq!(after.memory_bytes(), before.memory_bytes());
        assert_eq!(again.board().model, machine.board().model);
    }
}
