//! What else a machine is: its name, sensors, watchdog, power, kernel. Bounded values, and the trait that reads them.

use heapless::{String, Vec};

use crate::{cpu_set::CpuSet, error::HalError, topology::Topology};

/// Longest name kept of anything here; longer ones lose their end.
pub const NAME: usize = 96;

/// A short text of the board.
pub type Name = String<NAME>;

/// The first [`NAME`] bytes of a text.
#[must_use]
pub fn name(text: &str) -> Name {
    let mut name = Name::new();
    for sign in text.trim().chars() {
        if name.push(sign).is_err() {
            break;
        }
    }
    name
}

/// A temperature sensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThermalZone {
    /// What it measures.
    pub name: Name,
    /// Thousandths of a degree Celsius, if it can be read now.
    pub milli_celsius: Option<i32>,
}

/// Something that slows the machine down against heat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cooling {
    /// What it slows or turns.
    pub name: Name,
    /// How much it is in effect now.
    pub state: u32,
    /// Its full effect.
    pub full: u32,
}

/// A watchdog timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watchdog {
    /// Its driver.
    pub name: Name,
    /// Seconds until it fires.
    pub timeout_s: Option<u32>,
}

/// A mains adapter or battery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerSupply {
    /// Its name.
    pub name: Name,
    /// Mains, Battery, USB.
    pub kind: Name,
    /// Does it feed the machine now?
    pub online: Option<bool>,
    /// Charge in percent, of a battery.
    pub percent: Option<u8>,
}

/// What the kernel offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a list of independent features")]
pub struct Kernel {
    /// Its release.
    pub release: Name,
    /// Unified hierarchy at the root of the control groups.
    pub cgroup_v2: bool,
    /// Controllers of the unified hierarchy, as listed.
    pub controllers: Name,
    /// Pressure information.
    pub pressure: bool,
    /// Node folders: false on kernels without NUMA.
    pub numa: bool,
    /// Moves pages between nodes by itself.
    pub numa_balancing: bool,
    /// Huge pages can be set aside.
    pub hugetlb: bool,
    /// Swap is in use.
    pub swap: bool,
}

/// The machine but for its topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Board {
    /// Maker, from DMI; empty on device-tree boards.
    pub vendor: Name,
    /// Model, from the device tree or DMI.
    pub model: Name,
    /// First name of the device tree's compatible list, most special first.
    pub compatible: Name,
    /// Bytes of a memory page.
    pub page_bytes: u64,
    /// Memory in bytes, as the kernel counts it.
    pub memory_bytes: u64,
    /// CPUs of the weaker kind on hybrid x86 machines.
    pub small_cpus: CpuSet,
    /// Huge page sizes in bytes, ascending.
    pub huge_sizes: Vec<u64, 8>,
    /// Temperature sensors.
    pub zones: Vec<ThermalZone, 32>,
    /// Cooling devices.
    pub cooling: Vec<Cooling, 64>,
    /// Watchdogs.
    pub watchdogs: Vec<Watchdog, 8>,
    /// Power supplies.
    pub supplies: Vec<PowerSupply, 16>,
    /// The kernel.
    pub kernel: Kernel,
}

/// A machine that can be asked what it is. Asking changes nothing, and two answers without an event between are equal
/// but for sensor values.
pub trait Inventory {
    /// CPUs, caches, nodes and their memory as they are now. Online CPUs only; passes [`Topology::check`].
    ///
    /// # Errors
    /// A file that has to be there is not, or contradicts another.
    fn topology(&self) -> Result<Topology, HalError>;

    /// Everything else. What the machine does not have is left empty.
    fn board(&self) -> Board;
}
