//! podkeep itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::foreign::{crash, pod_manifest};
use super::samples::ms;
use super::stamps::{Stamps, now};
use super::{Effort, Samples};
use crate::image;
use crate::node::{Node, NodeOptions, find};
use crate::pods::Pod;
use crate::proc::{Cost, cost, pss_kib};
use crate::trouble::{Doing, Result, Trouble};

const LIMIT: Duration = Duration::from_secs(120);

/// Pods at once that are measured.
#[must_use]
pub fn counts(effort: Effort) -> Vec<u32> {
    [1, 10, 100].into_iter().filter(|n| *n <= effort.most).collect()
}

struct Bench {
    node: Node,
    stamps: Stamps,
    staging: PathBuf,
}

impl Bench {
    fn new(dir: &Path) -> Result<Self> {
        let node =
            Node::with(NodeOptions { images: vec![image::STAMP], no_watch: true, ..NodeOptions::default() })?;
        let staging = node.root.join("staging");
        fs::create_dir_all(&staging).doing("staging")?;
        Ok(Self { node, stamps: Stamps::new(&dir.join("out"))?, staging })
    }

    /// Puts the manifests of all names in place and returns the time before the first one.
    fn put(&self, names: &[String]) -> Result<u64> {
        for name in names {
            fs::write(self.staging.join(name), pod_manifest(name, &self.stamps.dir)).doing(name)?;
        }
        let began = now()?;
        for name in names {
            fs::rename(self.staging.join(name), self.file(name)).doing(name)?;
        }
        Ok(began)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.node.manifests.join(format!("{name}.yaml"))
    }

    /// Removes the manifests and waits until nothing of the pods is left; nanoseconds to the last one.
    fn remove(&self, pods: &[Pod], names: &[String]) -> Result<u64> {
        let records: Vec<PathBuf> =
            pods.iter().flat_map(Pod::containers).map(|c| self.node.run.join("c").join(c.id())).collect();
        let mut groups = Vec::new();
        for h in crate::cgroup::hierarchies()? {
            let top = h.mount.join(self.node.cgroup.trim_start_matches('/')).join("kubepods/besteffort");
            groups.extend(pods.iter().map(|p| top.join(format!("pod{}", p.uid()))));
        }
        groups.retain(|g| g.exists());
        if groups.is_empty() {
            return Err(Trouble::new("the pods have no cgroups where they are looked for"));
        }
        let began = now()?;
        for name in names {
            fs::remove_file(self.file(name)).doing(name)?;
        }
        let end = Instant::now() + LIMIT;
        loop {
            if groups.iter().chain(&records).all(|path| !path.exists()) {
                return Ok(now()?.saturating_sub(began));
            }
            if Instant::now() > end {
                return Err(Trouble::new(format!("pods are not gone\n{}", self.node.agent_log_tail())));
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    fn running(&self, names: &[String]) -> Result<Vec<Pod>> {
        self.node.wait("all pods running", LIMIT, |pods| {
            let found: Vec<Pod> =
                names.iter().filter_map(|n| find(pods, n)).filter(Pod::all_running).collect();
            (found.len() == names.len()).then_some(found)
        })
    }

    /// Agent and supervisor together.
    fn own_cost(&self) -> Result<Cost> {
        let (a, s) = (cost(self.node.agent()?.pid)?, cost(self.node.supervisor()?.pid)?);
        Ok(Cost {
            cpu_ns: a.cpu_ns + s.cpu_ns,
            voluntary: a.voluntary + s.voluntary,
            involuntary: a.involuntary + s.involuntary,
        })
    }

    fn memory(&self) -> Result<(u64, u64)> {
        Ok((pss_kib(self.node.agent()?.pid)?, pss_kib(self.node.supervisor()?.pid)?))
    }
}

/// # Errors
/// The node does not start, or a pod does not come up.
pub fn measure(dir: &Path, effort: Effort) -> Result<Value> {
    let mut bench = Bench::new(dir)?;
    let mut out = serde_json::Map::new();
    singles(&bench, effort, &mut out)?;
    // what the allocator keeps after the first pods is part of the price of none
    let (agent0, supervisor0) = bench.memory()?;
    out.insert("pss_kib_no_pods".into(), json!({"agent": agent0, "supervisor": supervisor0}));
    let mut at_once = serde_json::Map::new();
    for n in counts(effort) {
        let names: Vec<String> = (0..n).map(|i| format!("many-{n}-{i}")).collect();
        let began = bench.put(&names)?;
        let last = bench.stamps.wait(&names, 1, LIMIT)?;
        let pods = bench.running(&names)?;
        let (agent, supervisor) = bench.memory()?;
        let mut one = json!({
            "last_started_ms": ms(last.saturating_sub(began)),
            "pss_kib": {"agent": agent, "supervisor": supervisor},
        });
        if n >= 10 {
            let per_pod = (agent + supervisor).saturating_sub(agent0 + supervisor0) * 10 / u64::from(n);
            one["pss_kib_per_pod"] = json!(f64::from(u32::try_from(per_pod).unwrap_or(u32::MAX)) / 10.0);
        }
        if n == 10 {
            out.insert("idle".into(), idle(&bench, effort)?);
            out.insert("agent_restart_to_adopted".into(), adoption(&mut bench, &names, &pods, effort)?);
        }
        one["all_removed_ms"] = json!(ms(bench.remove(&pods, &names)?));
        at_once.insert(n.to_string(), one);
    }
    out.insert("at_once".into(), at_once.into());
    Ok(out.into())
}

/// One pod after the other: up, crash, up again, removed.
fn singles(bench: &Bench, effort: Effort, out: &mut serde_json::Map<String, Value>) -> Result<()> {
    let (mut start, mut restart, mut gone) = (Samples::default(), Samples::default(), Samples::default());
    let mut cpu = 0;
    for round in 0..effort.rounds {
        let name = format!("one-{round}");
        let names = std::slice::from_ref(&name);
        let before = bench.own_cost()?;
        let began = bench.put(names)?;
        start.add(bench.stamps.wait(names, 1, LIMIT)?.saturating_sub(began));
        // what the agent still does after the first instruction belongs to the start
        std::thread::sleep(Duration::from_millis(50));
        cpu += bench.own_cost()?.cpu_ns.saturating_sub(before.cpu_ns);
        let pods = bench.running(names)?;
        let pod = pods.first().ok_or_else(|| Trouble::new("no pod"))?;
        let process = bench.node.first_process(pod, "main")?;
        // the set-up runs in the process that becomes the program
        cpu += cost(process.pid)?.cpu_ns;
        let began = now()?;
        crash(process)?;
        restart.add(bench.stamps.wait(names, 2, LIMIT)?.saturating_sub(began));
        let pods = bench.running(names)?;
        gone.add(bench.remove(&pods, names)?);
    }
    out.insert("start".into(), start.json());
    out.insert("cpu_ms_per_start".into(), json!(ms(cpu / u64::from(effort.rounds.max(1)))));
    out.insert("crash_to_restarted".into(), restart.json());
    out.insert("stop".into(), gone.json());
    Ok(())
}

fn idle(bench: &Bench, effort: Effort) -> Result<Value> {
    std::thread::sleep(Duration::from_secs(2));
    let (agent, supervisor) = (bench.node.agent()?.pid, bench.node.supervisor()?.pid);
    let before = (cost(agent)?, cost(supervisor)?);
    std::thread::sleep(Duration::from_secs(effort.idle.into()));
    let after = (cost(agent)?, cost(supervisor)?);
    let told = |a: Cost, b: Cost| json!({"wakeups": b.voluntary - a.voluntary, "cpu_ms": ms(b.cpu_ns - a.cpu_ns), "preempted": b.involuntary - a.involuntary});
    Ok(json!({
        "seconds": effort.idle, "pods": 10, "agent": told(before.0, after.0), "supervisor": told(before.1, after.1),
    }))
}

/// SIGKILL to the agent, then from its next start to an answer that shows every container as it was.
fn adoption(bench: &mut Bench, names: &[String], pods: &[Pod], effort: Effort) -> Result<Value> {
    let ids =
        |pods: &[Pod]| -> Vec<String> { pods.iter().flat_map(Pod::containers).map(|c| c.id()).collect() };
    let wanted = ids(pods);
    let mut samples = Samples::default();
    for _ in 0..effort.rounds.min(10) {
        bench.node.kill_agent()?;
        let began = now()?;
        bench.node.spawn_agent()?;
        let end = Instant::now() + LIMIT;
        loop {
            if let Ok(now_there) = bench.node.get_pods() {
                let found: Vec<Pod> =
                    names.iter().filter_map(|n| find(&now_there, n)).filter(Pod::all_running).collect();
                if ids(&found) == wanted {
                    break;
                }
            }
            if Instant::now() > end {
                return Err(Trouble::new(format!(
                    "containers were not adopted\n{}",
                    bench.node.agent_log_tail()
                )));
            }
        }
        samples.add(now()?.saturating_sub(began));
    }
    Ok(samples.json())
}
