//! Limits as they are asked for, and the file writes they mean on either version. Pure: nothing is written here.

use super::controller::Controller;

/// "No limit" for every amount below.
pub const UNLIMITED: u64 = u64::MAX;

/// What is asked for; `None` is left as it is. Amounts are bytes or microseconds; [`UNLIMITED`] lifts a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// 2-262144 (1024 is one full share); on v2 turned into a weight by `weight_rule`
    pub cpu_shares: Option<u64>,
    pub weight_rule: WeightRule,
    /// microseconds of CPU time a period
    pub cpu_quota_us: Option<u64>,
    /// 1000-1000000
    pub cpu_period_us: Option<u64>,
    /// CPU list (`0-3,8`)
    pub cpuset_cpus: Option<String>,
    /// list of NUMA nodes
    pub cpuset_mems: Option<String>,
    pub memory_max: Option<u64>,
    /// v2 only
    pub memory_min: Option<u64>,
    /// v2 only
    pub memory_low: Option<u64>,
    /// v2 only
    pub memory_high: Option<u64>,
    /// swap alone; v1 counts memory and swap together, so there it needs `memory_max`
    pub memory_swap_max: Option<u64>,
    /// v2 only: out of memory ends the whole group
    pub memory_oom_group: Option<bool>,
    pub pids_max: Option<u64>,
    /// page size in bytes and amount in bytes
    pub hugetlb: Vec<(u64, u64)>,
    /// further v2 files and values, written as they are
    pub unified: Vec<(String, String)>,
}

/// How v1 shares (2-262144) become a v2 weight (1-10000).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightRule {
    /// `1 + (shares - 2) * 9999 / 262142`: 1024 is 39
    #[default]
    Linear,
    /// the curve of current OCI runtimes: 1024 is 100, the v2 default
    Curve,
}

impl WeightRule {
    /// v2 weight for these shares.
    #[must_use]
    pub fn weight(self, shares: u64) -> u64 {
        let shares = shares.clamp(2, 262_144);
        match self {
            Self::Linear => 1 + (shares - 2) * 9999 / 262_142,
            Self::Curve => curve(shares),
        }
    }
}

/// `ceil(10^((l^2 + 125 l) / 612 - 7/34))`, `l = log2(shares)`; both ends are exact by definition.
fn curve(shares: u64) -> u64 {
    match shares {
        0..=2 => 1,
        262_144.. => 10_000,
        _ => {
            #[expect(clippy::cast_precision_loss, reason = "at most 18 bits")]
            let l = (shares as f64).log2();
            let exponent = l.mul_add(l, 125.0 * l) / 612.0 - 7.0 / 34.0;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 1 and 10000"
            )]
            let weight = 10_f64.powf(exponent).ceil() as u64;
            weight.clamp(1, 10_000)
        }
    }
}

/// What the file must show after the write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    /// the same words
    Same,
    /// the amount, rounded down to a multiple of the unit; `max`, `-1` and huge numbers are "no limit"
    Amount { want: u64, unit: u64 },
    /// the same set of numbers
    Set,
    /// nothing is known about the answer
    Any,
}

/// One file write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) setting: &'static str,
    pub(super) controller: Option<Controller>,
    pub(super) file: String,
    pub(super) value: String,
    pub(super) expect: Expect,
    /// when the kernel refuses, the next write goes first and this one is tried again
    pub(super) swap_with_next: bool,
    /// absence of the file is no loss
    pub(super) optional: bool,
}

/// Something asked for that this version has no file for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Write(Write),
    Impossible { setting: &'static str, controller: Option<Controller>, reason: &'static str },
}

struct Plan<F> {
    steps: Vec<Step>,
    /// `Some(true)`: the controller is on v2; `None`: it is nowhere
    version: F,
    page: u64,
}

/// `version(c)`: is the controller on v2 (`true`) or v1, or nowhere. `page`: bytes of a memory page.
pub(super) fn plan(limits: &Limits, page: u64, version: impl Fn(Controller) -> Option<bool>) -> Vec<Step> {
    let mut plan = Plan { steps: Vec::new(), version, page };
    plan.cpuset(limits);
    plan.cpu(limits);
    plan.memory(limits);
    plan.pids(limits);
    plan.hugetlb(limits);
    plan.raw(limits);
    plan.steps
}

fn amount(value: u64, none: &str) -> String {
    if value == UNLIMITED { none.to_owned() } else { value.to_string() }
}

impl<F: Fn(Controller) -> Option<bool>> Plan<F> {
    fn write(&mut self, setting: &'static str, c: Controller, file: &str, value: String, expect: Expect) {
        self.steps.push(Step::Write(Write {
            setting,
            controller: Some(c),
            file: file.to_owned(),
            value,
            expect,
            swap_with_next: false,
            optional: false,
        }));
    }

    fn last(&mut self) -> Option<&mut Write> {
        match self.steps.last_mut() {
            Some(Step::Write(w)) => Some(w),
            _ => None,
        }
    }

    /// Version of a controller; where it is nowhere, the loss is written down.
    fn on(&mut self, setting: &'static str, c: Controller) -> Option<bool> {
        let version = (self.version)(c);
        if version.is_none() {
            self.steps.push(Step::Impossible { setting, controller: Some(c), reason: "" });
        }
        version
    }

    fn cpuset(&mut self, limits: &Limits) {
        // memory nodes first: with both moving, the pages follow the processes
        for (setting, file, value) in [
            ("memory nodes", "cpuset.mems", &limits.cpuset_mems),
            ("cpu set", "cpuset.cpus", &limits.cpuset_cpus),
        ] {
            let Some(value) = value else { continue };
            if self.on(setting, Controller::Cpuset).is_some() {
                self.write(setting, Controller::Cpuset, file, value.clone(), Expect::Set);
            }
        }
    }

    fn cpu(&mut self, limits: &Limits) {
        if let Some(shares) = limits.cpu_shares {
            let shares = shares.clamp(2, 262_144);
            match self.on("cpu shares", Controller::Cpu) {
                Some(true) => {
                    let weight = limits.weight_rule.weight(shares).to_string();
                    self.write("cpu shares", Controller::Cpu, "cpu.weight", weight, Expect::Same);
                }
                Some(false) => {
                    self.write("cpu shares", Controller::Cpu, "cpu.shares", shares.to_string(), Expect::Same);
                }
                None => {}
            }
        }
        self.bandwidth(limits.cpu_quota_us, limits.cpu_period_us);
    }

    fn bandwidth(&mut self, quota: Option<u64>, period: Option<u64>) {
        const SETTING: &str = "cpu limit";
        if quota.is_none() && period.is_none() {
            return;
        }
        match self.on(SETTING, Controller::Cpu) {
            Some(true) => {
                let quota = amount(quota.unwrap_or(UNLIMITED), "max");
                let value = period.map_or(quota.clone(), |p| format!("{quota} {p}"));
                let expect = if period.is_some() { Expect::Same } else { Expect::Any };
                self.write(SETTING, Controller::Cpu, "cpu.max", value, expect);
            }
            Some(false) => {
                if let Some(period) = period {
                    self.write(
                        SETTING,
                        Controller::Cpu,
                        "cpu.cfs_period_us",
                        period.to_string(),
                        Expect::Same,
                    );
                    if let Some(last) = self.last() {
                        last.swap_with_next = quota.is_some();
                    }
                }
                if let Some(quota) = quota {
                    self.write(
                        SETTING,
                        Controller::Cpu,
                        "cpu.cfs_quota_us",
                        amount(quota, "-1"),
                        Expect::Same,
                    );
                }
            }
            None => {}
        }
    }

    fn memory(&mut self, limits: &Limits) {
        let asked = [
            limits.memory_max,
            limits.memory_min,
            limits.memory_low,
            limits.memory_high,
            limits.memory_swap_max,
        ];
        if asked.iter().all(Option::is_none) && limits.memory_oom_group.is_none() {
            return;
        }
        match self.on("memory limit", Controller::Memory) {
            Some(true) => self.memory_v2(limits),
            Some(false) => self.memory_v1(limits),
            None => {}
        }
    }

    fn memory_v2(&mut self, limits: &Limits) {
        let files = [
            ("memory.min", "memory protection", limits.memory_min),
            ("memory.low", "memory protection", limits.memory_low),
            ("memory.high", "memory throttling", limits.memory_high),
            ("memory.max", "memory limit", limits.memory_max),
            ("memory.swap.max", "swap limit", limits.memory_swap_max),
        ];
        for (file, setting, value) in files {
            let Some(want) = value else { continue };
            let expect = Expect::Amount { want, unit: self.page };
            self.write(setting, Controller::Memory, file, amount(want, "max"), expect);
            // without swap support there is no file, and nothing to swap to
            if let (Some(last), "memory.swap.max") = (self.last(), file) {
                last.optional = want == 0;
            }
        }
        if let Some(group) = limits.memory_oom_group {
            let value = u8::from(group).to_string();
            self.write(
                "group kill on out of memory",
                Controller::Memory,
                "memory.oom.group",
                value,
                Expect::Same,
            );
            if let Some(last) = self.last() {
                last.optional = !group;
            }
        }
    }

    fn memory_v1(&mut self, limits: &Limits) {
        let only_v2 = [
            ("memory protection", limits.memory_min.or(limits.memory_low).filter(|v| *v > 0).is_some()),
            ("memory throttling", limits.memory_high.is_some_and(|v| v != UNLIMITED)),
            ("group kill on out of memory", limits.memory_oom_group == Some(true)),
        ];
        for (setting, asked) in only_v2 {
            if asked {
                let reason = "needs control groups v2";
                self.steps.push(Step::Impossible { setting, controller: None, reason });
            }
        }
        if let Some(want) = limits.memory_max {
            let expect = Expect::Amount { want, unit: self.page };
            self.write(
                "memory limit",
                Controller::Memory,
                "memory.limit_in_bytes",
                amount(want, "-1"),
                expect,
            );
        }
        let Some(swap) = limits.memory_swap_max else { return };
        let Some(memory) = limits.memory_max else {
            let reason = "on control groups v1 a swap limit needs a memory limit";
            self.steps.push(Step::Impossible { setting: "swap limit", controller: None, reason });
            return;
        };
        if let Some(last) = self.last() {
            last.swap_with_next = true;
        }
        let want = if swap == UNLIMITED { UNLIMITED } else { memory.saturating_add(swap) };
        let expect = Expect::Amount { want, unit: self.page };
        self.write(
            "swap limit",
            Controller::Memory,
            "memory.memsw.limit_in_bytes",
            amount(want, "-1"),
            expect,
        );
        if let Some(last) = self.last() {
            last.optional = swap == 0;
        }
    }

    fn pids(&mut self, limits: &Limits) {
        let Some(want) = limits.pids_max else { return };
        if self.on("process limit", Controller::Pids).is_some() {
            let expect = Expect::Amount { want, unit: 1 };
            self.write("process limit", Controller::Pids, "pids.max", amount(want, "max"), expect);
        }
    }

    fn hugetlb(&mut self, limits: &Limits) {
        const SETTING: &str = "huge page limit";
        if limits.hugetlb.is_empty() {
            return;
        }
        let Some(v2) = self.on(SETTING, Controller::HugeTlb) else { return };
        for (size, want) in &limits.hugetlb {
            let name = page_size_name(*size);
            let (usage, reserved, none) = if v2 {
                (format!("hugetlb.{name}.max"), format!("hugetlb.{name}.rsvd.max"), "max")
            } else {
                (
                    format!("hugetlb.{name}.limit_in_bytes"),
                    format!("hugetlb.{name}.rsvd.limit_in_bytes"),
                    "-1",
                )
            };
            let expect = Expect::Amount { want: *want, unit: *size };
            self.write(SETTING, Controller::HugeTlb, &usage, amount(*want, none), expect.clone());
            // counted when reserved, so that a mapping fails at once and not by a signal (since 5.7)
            self.write(SETTING, Controller::HugeTlb, &reserved, amount(*want, none), expect);
            if let Some(last) = self.last() {
                last.optional = true;
            }
        }
    }

    fn raw(&mut self, limits: &Limits) {
        for (file, value) in &limits.unified {
            self.steps.push(Step::Write(Write {
                setting: "unified setting",
                controller: None,
                file: file.clone(),
                value: value.clone(),
                expect: Expect::Any,
                swap_with_next: false,
                optional: false,
            }));
        }
    }
}

/// `2MB`, `1GB`, `64KB`: the kernel's names of huge page sizes.
#[must_use]
pub fn page_size_name(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{}GB", b >> 30),
        b if b >= 1 << 20 => format!("{}MB", b >> 20),
        b => format!("{}KB", b >> 10),
    }
}

impl Expect {
    /// Does the text read back mean what was written?
    pub(super) fn agrees(&self, written: &str, read: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Same => written.split_ascii_whitespace().eq(read.split_ascii_whitespace()),
            Self::Set => number_set(written).is_some_and(|set| Some(set) == number_set(read)),
            Self::Amount { want, unit } => {
                let read = match read.trim() {
                    "max" | "-1" => UNLIMITED,
                    text => match text.parse::<u64>() {
                        Ok(n) => n,
                        Err(_) => return false,
                    },
                };
                // v1 shows "no limit" as the largest page multiple below 2^63
                let huge = (i64::MAX as u64).saturating_sub(1 << 40);
                if *want >= huge {
                    return read >= huge;
                }
                let unit = (*unit).max(1);
                read / unit == want / unit
            }
        }
    }
}

/// Members of a kernel list (`0-3,8`), sorted; `None` when it is none.
fn number_set(text: &str) -> Option<Vec<u32>> {
    let mut set = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high): (u32, u32) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        if high < low || high > 1 << 16 {
            return None;
        }
        set.extend(low..=high);
    }
    set.sort_unstable();
    set.dedup();
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(limits: &Limits, v2: bool) -> Vec<(String, String)> {
        let steps = plan(limits, 4096, |_| Some(v2));
        steps
            .into_iter()
            .map(|s| match s {
                Step::Write(w) => (w.file, w.value),
                Step::Impossible { setting, reason, .. } => (setting.to_owned(), reason.to_owned()),
            })
            .collect()
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn nothing_asked_nothing_written() {
        assert!(writes(&Limits::default(), true).is_empty());
        assert!(writes(&Limits::default(), false).is_empty());
    }

    #[test]
    fn both_versions_get_their_files() {
        let limits = Limits {
            cpu_shares: Some(512),
            cpu_quota_us: Some(50_000),
            cpu_period_us: Some(100_000),
            cpuset_cpus: Some("0-1".into()),
            memory_max: Some(64 << 20),
            memory_swap_max: Some(0),
            memory_oom_group: Some(true),
            pids_max: Some(UNLIMITED),
            hugetlb: vec![(2 << 20, 0)],
            ..Limits::default()
        };
        let v2 = [
            ("cpuset.cpus", "0-1"),
            ("cpu.weight", "20"),
            ("cpu.max", "50000 100000"),
            ("memory.max", "67108864"),
            ("memory.swap.max", "0"),
            ("memory.oom.group", "1"),
            ("pids.max", "max"),
            ("hugetlb.2MB.max", "0"),
            ("hugetlb.2MB.rsvd.max", "0"),
        ];
        assert_eq!(writes(&limits, true), pairs(&v2));
        let v1 = [
            ("cpuset.cpus", "0-1"),
            ("cpu.shares", "512"),
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "50000"),
            ("group kill on out of memory", "needs control groups v2"),
            ("memory.limit_in_bytes", "67108864"),
            ("memory.memsw.limit_in_bytes", "67108864"),
            ("pids.max", "max"),
            ("hugetlb.2MB.limit_in_bytes", "0"),
            ("hugetlb.2MB.rsvd.limit_in_bytes", "0"),
        ];
        assert_eq!(writes(&limits, false), pairs(&v1));
    }

    #[test]
    fn answers_are_judged_with_the_kernel_s_rounding() {
        let page = |want| Expect::Amount { want, unit: 4096 };
        assert!(page(5000).agrees("5000", "4096"));
        assert!(!page(5000).agrees("5000", "8192"));
        assert!(page(UNLIMITED).agrees("-1", "9223372036854771712"));
        assert!(page(UNLIMITED).agrees("max", "max"));
        assert!(!page(4096).agrees("4096", "max"));
        assert!(Expect::Set.agrees("0,1,2", "0-2") && !Expect::Set.agrees("0-3", "0-2"));
        assert!(Expect::Same.agrees("max 100000", "max 100000\n"));
    }

    #[test]
    fn weights_follow_both_rules() {
        assert_eq!(WeightRule::Linear.weight(1024), 39);
        assert_eq!(WeightRule::Linear.weight(2), 1);
        assert_eq!(WeightRule::Linear.weight(0), 1);
        assert_eq!(WeightRule::Linear.weight(262_144), 10_000);
        assert_eq!(WeightRule::Curve.weight(1024), 100);
        assert_eq!(WeightRule::Curve.weight(2), 1);
        assert_eq!(WeightRule::Curve.weight(1_000_000), 10_000);
    }

    #[test]
    fn page_sizes_have_the_kernel_s_names() {
        assert_eq!(page_size_name(64 << 10), "64KB");
        assert_eq!(page_size_name(2 << 20), "2MB");
        assert_eq!(page_size_name(1 << 30), "1GB");
        assert_eq!(page_size_name(16 << 30), "16GB");
    }
}
