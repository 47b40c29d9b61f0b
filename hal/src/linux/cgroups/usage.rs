//! What a group uses, and whether the kernel ended something in it for lack of memory.

use nix::errno::Errno;

use super::controller::Controller;
use super::error::Error;
use super::files::{field, join, read_text};
use super::group::Group;

/// Counters of a group and all below it. `None`: the controller or file is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time since the group was made
    pub cpu_ns: Option<u64>,
    /// time for which the quota held it back
    pub cpu_throttled_ns: Option<u64>,
    /// all memory charged, page cache counted
    pub memory_bytes: Option<u64>,
    /// without the page cache that can go at once (inactive files): what eviction counts
    pub working_set_bytes: Option<u64>,
    /// anonymous memory
    pub rss_bytes: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    /// processes and threads
    pub pids: Option<u64>,
}

impl Group {
    fn text(&self, c: Controller, v1: &str, v2: &str) -> Result<Option<(String, bool)>, Error> {
        let Some(tree) = self.all.tree_of(c) else { return Ok(None) };
        let file = if tree.unified { v2 } else { v1 };
        match read_text(&tree.dir, &join(&self.path, file)) {
            Ok(text) => Ok(Some((text, tree.unified))),
            Err(Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP) => Ok(None),
            Err(errno) => Err(self.read_error(file, errno)),
        }
    }

    /// Counters now.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn usage(&self) -> Result<Usage, Error> {
        let mut usage = Usage::default();
        self.cpu_usage(&mut usage)?;
        self.memory_usage(&mut usage)?;
        if let Some((text, _)) = self.text(Controller::Pids, "pids.current", "pids.current")? {
            usage.pids = text.trim().parse().ok();
        }
        Ok(usage)
    }

    fn cpu_usage(&self, usage: &mut Usage) -> Result<(), Error> {
        let us = |n: u64| n.saturating_mul(1000);
        if let Some((text, v2)) = self.text(Controller::CpuAccounting, "cpuacct.usage", "cpu.stat")? {
            usage.cpu_ns = if v2 { field(&text, "usage_usec").map(us) } else { text.trim().parse().ok() };
        }
        if let Some((text, v2)) = self.text(Controller::Cpu, "cpu.stat", "cpu.stat")? {
            usage.cpu_throttled_ns =
                if v2 { field(&text, "throttled_usec").map(us) } else { field(&text, "throttled_time") };
        }
        Ok(())
    }

    fn memory_usage(&self, usage: &mut Usage) -> Result<(), Error> {
        if let Some((text, _)) = self.text(Controller::Memory, "memory.usage_in_bytes", "memory.current")? {
            usage.memory_bytes = text.trim().parse().ok();
        }
        if let Some((text, v2)) = self.text(Controller::Memory, "memory.stat", "memory.stat")? {
            let get = |v1: &str, v2_name: &str| field(&text, if v2 { v2_name } else { v1 });
            usage.rss_bytes = get("total_rss", "anon");
            usage.page_faults = get("total_pgfault", "pgfault");
            usage.major_page_faults = get("total_pgmajfault", "pgmajfault");
            let inactive = get("total_inactive_file", "inactive_file").unwrap_or(0);
            usage.working_set_bytes = usage.memory_bytes.map(|m| m.saturating_sub(inactive));
        }
        Ok(())
    }

    /// How many processes the kernel ended here for lack of memory since the group was made. Must be read before the
    /// group is removed. `None`: the kernel does not count (v1 before 4.13, no memory controller).
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn oom_kills(&self) -> Result<Option<u64>, Error> {
        // `memory.events` counts the groups below, too: a limit of a parent kills in the child
        let text = self.text(Controller::Memory, "memory.oom_control", "memory.events")?;
        Ok(text.and_then(|(text, _)| field(&text, "oom_kill")))
    }

    /// The memory limit in force; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn memory_max(&self) -> Result<Option<u64>, Error> {
        let text = self.text(Controller::Memory, "memory.limit_in_bytes", "memory.max")?;
        let value = text.and_then(|(t, _)| t.trim().parse::<u64>().ok());
        Ok(value.filter(|v| *v < (1 << 62)))
    }

    /// The CPUs its processes can really use.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn effective_cpus(&self) -> Result<Option<String>, Error> {
        let text = self.text(Controller::Cpuset, "cpuset.effective_cpus", "cpuset.cpus.effective")?;
        Ok(text.map(|(t, _)| t.trim().to_owned()))
    }
}
