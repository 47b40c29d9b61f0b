//! Filters are run by an interpreter for every calling convention, and loaded into this machine's kernel.

use super::program::{Action, Compare, Condition, Instruction, Rule, Section, assemble, bytes};
use super::*;

const DEFAULT_CAPS: u64 = crate::container::caps::DEFAULT;
const EVERYTHING: u64 = u64::MAX;

/// Runs a program on a call, as the kernel would; jumps out of it are failures.
fn run(code: &[Instruction], arch: u32, number: u32, args: [u64; 6]) -> Action {
    let mut data = Vec::new();
    data.extend(number.to_ne_bytes());
    data.extend(arch.to_ne_bytes());
    data.extend(0_u64.to_ne_bytes());
    args.iter().for_each(|a| data.extend(a.to_ne_bytes()));
    let (mut at, mut a) = (0_usize, 0_u32);
    loop {
        let i = code[at];
        at += 1;
        let jump = |yes: bool| usize::from(if yes { i.yes } else { i.no });
        match i.code {
            0x20 => {
                let start = i.number as usize;
                assert!(start.is_multiple_of(4));
                a = u32::from_ne_bytes(data[start..start + 4].try_into().unwrap());
            }
            0x54 => a &= i.number,
            0x05 => at += i.number as usize,
            0x15 => at += jump(a == i.number),
            0x25 => at += jump(a > i.number),
            0x35 => at += jump(a >= i.number),
            0x06 => return Action(i.number),
            other => panic!("instruction {other:#x}"),
        }
    }
}

fn decode(program: &[u8]) -> Vec<Instruction> {
    let one = |b: &[u8]| Instruction {
        code: u16::from_ne_bytes([b[0], b[1]]),
        yes: b[2],
        no: b[3],
        number: u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
    };
    program.chunks(8).map(one).collect()
}

const EPERM: Action = Action::errno(1);

struct Default_ {
    arch: Arch,
    code: Vec<Instruction>,
}

impl Default_ {
    fn of(arch: Arch, caps: u64) -> Self {
        Self { arch, code: decode(&default_program(arch, caps)) }
    }

    fn call(&self, name: &str, args: &[u64]) -> Action {
        self.call_as(self.arch, name, args)
    }

    fn call_as(&self, arch: Arch, name: &str, args: &[u64]) -> Action {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        run(&self.code, arch.audit(), arch.calls()[name], all)
    }
}

#[test]
fn default_filter_of_every_convention() {
    for arch in Arch::ALL {
        let usual = Default_::of(arch, DEFAULT_CAPS);
        assert!(usual.code.len() < 1000, "{arch:?}: {} instructions", usual.code.len());
        for name in [
            "openat",
            "read",
            "write",
            "execve",
            "exit_group",
            "chroot",
            "ptrace",
            "landlock_add_rule",
            "futex",
        ] {
            assert_eq!(usual.call(name, &[]), Action::ALLOW, "{arch:?} {name}");
        }
        for name in [
            "mount",
            "setns",
            "unshare",
            "keyctl",
            "bpf",
            "reboot",
            "init_module",
            "io_uring_setup",
            "pivot_root",
            "acct",
        ] {
            assert_eq!(usual.call(name, &[]), EPERM, "{arch:?} {name}");
        }
        assert_eq!(usual.call("clone3", &[]), Action::NO_SUCH_CALL, "{arch:?}");
        let beyond = run(&usual.code, arch.audit(), 5000, [0; 6]);
        assert_eq!(beyond, Action::NO_SUCH_CALL, "{arch:?}");
        assert_eq!(usual.call("file_getattr", &[]), Action::NO_SUCH_CALL, "{arch:?}");
        assert_eq!(usual.call("open_tree_attr", &[]), Action::NO_SUCH_CALL, "{arch:?}");
        assert_eq!(run(&usual.code, 0x1234, 0, [0; 6]), Action::KILL_PROCESS, "{arch:?}");

        let all = Default_::of(arch, EVERYTHING);
        for name in ["mount", "setns", "clone3", "bpf", "reboot", "init_module", "open_tree_attr", "syslog"] {
            assert_eq!(all.call(name, &[]), Action::ALLOW, "{arch:?} {name}");
        }
        for name in ["keyctl", "userfaultfd", "kexec_load", "swapon"] {
            assert_eq!(all.call(name, &[]), EPERM, "{arch:?} {name}");
        }
    }
}

#[test]
fn arguments_decide_in_the_default_filter() {
    for arch in Arch::ALL {
        let usual = Default_::of(arch, DEFAULT_CAPS);
        let thread = 0x003d_0f00;
        assert_eq!(usual.call("clone", &[thread]), Action::ALLOW);
        for flag in
            [0x2_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000_u64]
        {
            assert_eq!(usual.call("clone", &[thread | flag]), EPERM, "{arch:?} {flag:#x}");
        }
        assert_eq!(Default_::of(arch, EVERYTHING).call("clone", &[0x1000_0000]), Action::ALLOW);
        for allowed in [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff] {
            assert_eq!(usual.call("personality", &[allowed]), Action::ALLOW, "{arch:?} {allowed:#x}");
        }
        for refused in [1, 9, 0x4_0000, 0x1_0000_0000, u64::MAX] {
            assert_eq!(usual.call("personality", &[refused]), EPERM, "{arch:?} {refused:#x}");
        }
        // unix, inet, inet6, netlink, packet, can, bluetooth, xdp
        for allowed in [1, 2, 10, 16, 17, 29, 31, 44] {
            assert_eq!(usual.call("socket", &[allowed]), Action::ALLOW, "{arch:?} {allowed}");
        }
        // decnet, irda, crypto, vsock, beyond, and a number that is small only in its lower half
        for refused in [12, 23, 34, 38, 40, 46, 0x1_0000_0001] {
            assert_eq!(usual.call("socket", &[refused]), EPERM, "{arch:?} {refused}");
        }
    }
}

#[test]
fn single_capabilities_open_their_calls_alone() {
    let with = |cap: u32| Default_::of(Arch::X86_64, DEFAULT_CAPS | 1 << cap);
    for (cap, name) in [
        (25, "clock_settime"),
        (19, "kcmp"),
        (39, "bpf"),
        (22, "reboot"),
        (16, "finit_module"),
        (23, "mbind"),
    ] {
        assert_eq!(with(cap).call(name, &[]), Action::ALLOW, "{name}");
        assert_eq!(with(cap).call("mount", &[]), EPERM, "{name}");
    }
    let without = Default_::of(Arch::X86_64, DEFAULT_CAPS & !(1 << 18));
    assert_eq!(without.call("chroot", &[]), EPERM);
}

#[test]
fn other_conventions_of_the_kernel() {
    let usual = Default_::of(Arch::X86_64, DEFAULT_CAPS);
    assert_eq!(usual.call_as(Arch::I386, "open", &[]), Action::ALLOW);
    assert_eq!(usual.call_as(Arch::I386, "mount", &[]), EPERM);
    assert_eq!(usual.call_as(Arch::Aarch64, "read", &[]), Action::KILL_PROCESS);
    let x32 = run(&usual.code, Arch::X86_64.audit(), 0x4000_0000, [0; 6]);
    assert_eq!(x32, Action::NO_SUCH_CALL);
    let board = Default_::of(Arch::Aarch64, DEFAULT_CAPS);
    assert_eq!(board.call_as(Arch::Arm, "set_tls", &[]), Action::ALLOW);
    assert_eq!(board.call_as(Arch::Arm, "cacheflush", &[]), Action::ALLOW);
    assert_eq!(run(&board.code, Arch::Arm.audit(), 0xf_0099, [0; 6]), Action::NO_SUCH_CALL);
}

#[test]
fn every_comparison_means_what_it_says() {
    let values = [0, 1, 5, 6, 7, 0xffff_ffff, 0x1_0000_0000, 0x1_0000_0006, 0x6_0000_0000, u64::MAX];
    let truth = |compare, a: u64, v: u64| match compare {
        Compare::NotEqual => a != v,
        Compare::Less => a < v,
        Compare::LessOrEqual => a <= v,
        Compare::Equal => a == v,
        Compare::GreaterOrEqual => a >= v,
        Compare::Greater => a > v,
        Compare::MaskedEqual(mask) => a & mask == v,
    };
    let compares = [
        Compare::NotEqual,
        Compare::Less,
        Compare::LessOrEqual,
        Compare::Equal,
        Compare::GreaterOrEqual,
        Compare::Greater,
        Compare::MaskedEqual(0x1_0000_0006),
    ];
    let filler = Condition { index: 5, compare: Compare::Equal, value: 77 };
    for compare in compares {
        for value in values {
            let tested = Condition { index: 2, compare, value };
            // before and behind another condition, so that jumps of all lengths are walked
            for conditions in [vec![tested], vec![tested, filler], vec![filler, tested, filler]] {
                let rules = vec![
                    Rule { conditions, action: Action::TRAP },
                    Rule { conditions: vec![filler], action: Action::LOG },
                ];
                let calls = [(3, rules)].into();
                let section = Section { arch: Arch::X86_64, calls, default: EPERM, newest: None };
                let code = assemble(&[section]);
                for argument in values {
                    let expected = if truth(compare, argument, value) { Action::TRAP } else { Action::LOG };
                    let got = run(&code, Arch::X86_64.audit(), 3, [0, 0, argument, 0, 0, 77]);
                    assert_eq!(got, expected, "{compare:?} {argument:#x} {value:#x}");
                }
            }
        }
    }
}

#[test]
fn the_search_finds_every_number() {
    // every third call with an action of its own, so that the tree is deep and its left halves long
    let action = |n: u32| if n.is_multiple_of(3) { Action::errno(n) } else { Action::LOG };
    let rule = |n| vec![Rule { conditions: Vec::new(), action: action(n) }];
    let calls = (0..1200).filter(|n| n % 3 == 0).map(|n| (n, rule(n))).collect();
    let section = Section { arch: Arch::Arm, calls, default: Action::LOG, newest: Some(1300) };
    let code = assemble(&[section]);
    for n in 0..1301 {
        let expected = if n < 1200 { action(n) } else { Action::LOG };
        assert_eq!(run(&code, Arch::Arm.audit(), n, [0; 6]), expected, "{n}");
    }
    assert_eq!(run(&code, Arch::Arm.audit(), 1301, [0; 6]), Action::NO_SUCH_CALL);
}

fn profile(text: &str, arch: Arch, caps: u64) -> Result<Vec<Instruction>, SeccompError> {
    profile_program(text.as_bytes(), arch, caps, (6, 1)).map(|p| decode(&p))
}

#[test]
fn profiles_in_the_plain_form() {
    let text = r#"{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 22,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
        "syscalls": [
            {"names": ["read", "write", "open", "no_such_call"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["kill"], "action": "SCMP_ACT_LOG", "args": [{"index": 1, "value": 9, "op": "SCMP_CMP_NE"}]},
            {"names": ["kill"], "action": "SCMP_ACT_KILL_PROCESS"},
            {"name": "close", "action": "SCMP_ACT_TRACE", "errnoRet": 7}]}"#;
    let code = profile(text, Arch::X86_64, 0).unwrap();
    let call = |arch: Arch, name: &str, args| run(&code, arch.audit(), arch.calls()[name], args);
    assert_eq!(call(Arch::X86_64, "read", [0; 6]), Action::ALLOW);
    assert_eq!(call(Arch::I386, "open", [0; 6]), Action::ALLOW);
    assert_eq!(call(Arch::X86_64, "dup", [0; 6]), Action::errno(22));
    assert_eq!(call(Arch::X86_64, "mount", [0; 6]), Action::NO_SUCH_CALL, "newer than all the profile names");
    assert_eq!(call(Arch::X86_64, "kill", [0, 15, 0, 0, 0, 0]), Action::LOG);
    assert_eq!(call(Arch::X86_64, "kill", [0, 9, 0, 0, 0, 0]), Action::KILL_PROCESS);
    assert_eq!(call(Arch::X86_64, "close", [0; 6]), Action::trace(7));
    let native_only = text.replace(", \"SCMP_ARCH_X86\"", "");
    let code = profile(&native_only, Arch::X86_64, 0).unwrap();
    assert_eq!(run(&code, Arch::I386.audit(), 5, [0; 6]), Action::KILL_PROCESS);
}

#[test]
fn profiles_in_the_form_of_the_engines() {
    let text = r#"{"defaultAction": "SCMP_ACT_ALLOW",
        "archMap": [{"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]},
                    {"architecture": "SCMP_ARCH_RISCV64", "subArchitectures": null}],
        "syscalls": [
            {"names": ["mount"], "action": "SCMP_ACT_ERRNO", "excludes": {"caps": ["CAP_SYS_ADMIN"]}},
            {"names": ["bpf"], "action": "SCMP_ACT_ERRNO", "includes": {"arches": ["arm"]}},
            {"names": ["ptrace"], "action": "SCMP_ACT_ERRNO", "includes": {"minKernel": "7.0"}},
            {"names": ["kcmp"], "action": "SCMP_ACT_ERRNO", "includes": {"minKernel": "4.8", "caps": ["CAP_BPF"]}}]}"#;
    let plain = profile(text, Arch::Aarch64, 0).unwrap();
    let strong = profile(text, Arch::Aarch64, 1 << 21 | 1 << 39).unwrap();
    let call =
        |code: &[Instruction], arch: Arch, name: &str| run(code, arch.audit(), arch.calls()[name], [0; 6]);
    assert_eq!(call(&plain, Arch::Aarch64, "mount"), EPERM);
    assert_eq!(call(&strong, Arch::Aarch64, "mount"), Action::ALLOW);
    assert_eq!(call(&plain, Arch::Aarch64, "bpf"), Action::ALLOW);
    assert_eq!(call(&plain, Arch::Arm, "bpf"), EPERM);
    assert_eq!(call(&plain, Arch::Aarch64, "ptrace"), Action::ALLOW);
    assert_eq!(call(&plain, Arch::Aarch64, "kcmp"), Action::ALLOW);
    assert_eq!(call(&strong, Arch::Aarch64, "kcmp"), EPERM);
    assert_eq!(
        run(&plain, Arch::Aarch64.audit(), 5000, [0; 6]),
        Action::ALLOW,
        "nothing is cut where all is allowed"
    );
    assert!(profile(text, Arch::Riscv64, 0).is_ok());
}

#[test]
fn bad_profiles_are_refused_by_field() {
    let error = |text: &str| profile(text, Arch::X86_64, 0).unwrap_err().to_string();
    assert!(error("{\n \"defaultAction\": 1}").contains("line 2"));
    assert!(error(r#"{"defaultAction": "ALLOW"}"#).contains("defaultAction: found 'ALLOW'"));
    let entry = |rest: &str| {
        let text =
            format!(r#"{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{{"names": ["read"], {rest}}}]}}"#);
        error(&text)
    };
    assert!(entry(r#""action": "SCMP_ACT_NOTIFY""#).contains("syscalls[0].action: found 'SCMP_ACT_NOTIFY'"));
    let args = |a: &str| entry(&format!(r#""action": "SCMP_ACT_ERRNO", "args": [{a}]"#));
    assert!(args(r#"{"index": 6, "value": 0, "op": "SCMP_CMP_EQ"}"#).contains("syscalls[0].args[0].index"));
    assert!(args(r#"{"index": 0, "value": 0, "op": "EQ"}"#).contains("syscalls[0].args[0].op: found 'EQ'"));
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("seccomp-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

#[test]
fn programs_are_made_once_and_profiles_stay_in_their_folder() {
    let folder = Folder::new("cache");
    let profiles = folder.0.join("profiles");
    std::fs::create_dir_all(profiles.join("a")).unwrap();
    let text = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}"#;
    std::fs::write(profiles.join("a/p.json"), text).unwrap();
    std::fs::write(folder.0.join("outside.json"), text).unwrap();
    std::os::unix::fs::symlink("../outside.json", profiles.join("out.json")).unwrap();
    std::os::unix::fs::symlink("a/p.json", profiles.join("in.json")).unwrap();
    let filters = Filters::open(&folder.0.join("run"), &profiles, (6, 1)).unwrap();

    let program = |filter: &Filter, caps| filters.program(filter, caps);
    assert_eq!(program(&Filter::Unconfined, 0).unwrap(), None);
    let first = program(&Filter::RuntimeDefault, DEFAULT_CAPS).unwrap().unwrap();
    let made = std::fs::metadata(&first).unwrap().modified().unwrap();
    // chown makes no difference to the filter
    assert_eq!(program(&Filter::RuntimeDefault, DEFAULT_CAPS & !1).unwrap().unwrap(), first);
    assert_eq!(std::fs::metadata(&first).unwrap().modified().unwrap(), made, "not written again");
    assert_ne!(program(&Filter::RuntimeDefault, EVERYTHING).unwrap().unwrap(), first);

    let local = |path: &str| program(&Filter::Localhost(path.to_owned()), 0);
    assert_eq!(local("a/p.json").unwrap(), local("in.json").unwrap());
    for path in ["", "/etc/passwd", "../outside.json", "a/../../outside.json", "out.json"] {
        assert!(matches!(local(path), Err(SeccompError::Path { .. })), "{path}");
    }
    assert!(matches!(local("none.json"), Err(SeccompError::Read { .. })));
    assert!(matches!(local("a"), Err(SeccompError::Read { .. })));
}

/// The kernel's own checker takes the programs, and they do what they say, in a process of their own.
#[test]
fn the_kernel_takes_and_obeys_the_filter() {
    let default = default_program(Arch::native(), DEFAULT_CAPS);
    let allow_all = Section { arch: Arch::native(), calls: [].into(), default: Action::ALLOW, newest: None };
    let allow_all = bytes(&assemble(&[allow_all]));
    // a filter belongs to a thread and to what it executes, so it goes with the thread
    let shell = |program: &[u8], script: &'static str| {
        let program = program.to_vec();
        let run = move || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            podkeep_hal::linux::sys::seccomp::load(&program).unwrap();
            let mut command = std::process::Command::new("sh");
            command
                .arg("-c")
                .arg(script)
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null());
            command.status().unwrap().success()
        };
        std::thread::spawn(run).join().unwrap()
    };
    assert!(shell(&allow_all, "true"));
    assert!(shell(&default, "ls / && echo x | cat && sleep 0"));
    if podkeep_hal::linux::sys::euid() == 0 {
        assert!(shell(&allow_all, "unshare -n true"));
    }
    assert!(!shell(&default, "unshare -n true"));
    assert!(!shell(&default, "unshare -U true"));
    let all = default_program(Arch::native(), EVERYTHING);
    assert!(shell(&all, "ls /"));
}

/// Figures of the decision record; run with `--nocapture`.
#[test]
fn default_programs_fit_the_kernel() {
    for arch in Arch::ALL {
        let start = std::time::Instant::now();
        let program = default_program(arch, DEFAULT_CAPS);
        println!("{arch:?}: {} instructions, made in {:?}", program.len() / 8, start.elapsed());
        assert!(program.len() / 8 < program::MAX_INSTRUCTIONS);
    }
}
