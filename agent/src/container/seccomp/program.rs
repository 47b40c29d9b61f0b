//! From rules to a classic BPF program: a binary search over the call's number, then the arguments.
//!
//! The kernel hands a `struct seccomp_data` to the program: number (offset 0), calling convention (4), instruction
//! pointer (8), six arguments of 64 bits (16...). Jumps go forward only, conditional ones 255 instructions at most.

use std::collections::BTreeMap;

use super::table::Arch;

/// More instructions than this the kernel refuses (`BPF_MAXINSNS`).
pub(super) const MAX_INSTRUCTIONS: usize = 4096;
/// Calls of the x32 convention have this bit set.
const X32: u32 = 0x4000_0000;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_ARGUMENTS: u32 = 16;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u16,
    /// instructions to skip when the test holds
    pub(super) yes: u8,
    /// ... and when it does not
    pub(super) no: u8,
    pub(super) number: u32,
}

const fn plain(code: u16, number: u32) -> Instruction {
    Instruction { code, yes: 0, no: 0, number }
}

/// What becomes of a call: the program's return value (linux/seccomp.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Action(pub(super) u32);

impl Action {
    pub(super) const ALLOW: Self = Self(0x7fff_0000);
    pub(super) const LOG: Self = Self(0x7ffc_0000);
    pub(super) const TRAP: Self = Self(0x0003_0000);
    pub(super) const KILL_THREAD: Self = Self(0);
    pub(super) const KILL_PROCESS: Self = Self(0x8000_0000);
    pub(super) const NO_SUCH_CALL: Self = Self::errno(nix::libc::ENOSYS.cast_unsigned());

    pub(super) const fn errno(number: u32) -> Self {
        Self(0x0005_0000 | (number & 0xffff))
    }

    pub(super) const fn trace(number: u32) -> Self {
        Self(0x7ff0_0000 | (number & 0xffff))
    }
}

/// How an argument is compared, with 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    NotEqual,
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
    /// the argument and this mask
    MaskedEqual(u64),
}

/// One condition on an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    /// 0-5
    pub(super) index: u32,
    pub(super) compare: Compare,
    pub(super) value: u64,
}

/// All conditions hold: this action. The first rule of a call that fits decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) conditions: Vec<Condition>,
    pub(super) action: Action,
}

/// Rules of one calling convention.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) arch: Arch,
    pub(super) calls: BTreeMap<u32, Vec<Rule>>,
    /// for calls without a fitting rule
    pub(super) default: Action,
    /// calls with higher numbers do not exist: programs that try a newer call first then fall back
    pub(super) newest: Option<u32>,
}

/// What stands at the end of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Leaf {
    Return(Action),
    Rules(Vec<Rule>, Action),
}

/// The whole program. Calling conventions without a section kill the process: their numbers mean something else.
pub(super) fn assemble(sections: &[Section]) -> Vec<Instruction> {
    let mut code = vec![plain(LOAD, OFFSET_ARCH)];
    for section in sections {
        let body = section.assemble();
        code.push(Instruction { code: JUMP_EQUAL, yes: 1, no: 0, number: section.arch.audit() });
        code.push(plain(JUMP, length(&body)));
        code.extend(body);
    }
    code.push(plain(RETURN, Action::KILL_PROCESS.0));
    code
}

/// The bytes the kernel loads, in this machine's order.
pub(super) fn bytes(code: &[Instruction]) -> Vec<u8> {
    let one = |i: &Instruction| {
        let [a, b] = i.code.to_ne_bytes();
        let [c, d, e, f] = i.number.to_ne_bytes();
        [a, b, i.yes, i.no, c, d, e, f]
    };
    code.iter().flat_map(one).collect()
}

fn length(code: &[Instruction]) -> u32 {
    u32::try_from(code.len()).unwrap_or(u32::MAX)
}

impl Section {
    fn assemble(&self) -> Vec<Instruction> {
        let mut code = vec![plain(LOAD, OFFSET_NUMBER)];
        if self.arch == Arch::X86_64 {
            code.push(Instruction { code: JUMP_GREATER_EQUAL, yes: 0, no: 1, number: X32 });
            code.push(plain(RETURN, Action::NO_SUCH_CALL.0));
        }
        code.extend(search(&self.ranges()));
        code
    }

    /// First number of each range and what is done there; neighbours with the same end are one range.
    fn ranges(&self) -> Vec<(u32, Leaf)> {
        let mut ranges: Vec<(u32, Leaf)> = Vec::new();
        let mut add = |start: u32, leaf: Leaf| {
            if ranges.last().is_none_or(|(_, last)| *last != leaf) {
                ranges.push((start, leaf));
            }
        };
        add(0, self.unknown(0));
        for (number, rules) in &self.calls {
            add(*number, self.leaf(rules));
            let next = number.saturating_add(1);
            if !self.calls.contains_key(&next) {
                add(next, self.unknown(next));
            }
        }
        // where the end of what is known lies in the middle of a range, it is cut
        if let Some(next) = self.newest.map(|n| n.saturating_add(1)).filter(|n| !self.calls.contains_key(n)) {
            let at = ranges.partition_point(|(start, _)| *start < next);
            if ranges.get(at).is_none_or(|(start, _)| *start > next) {
                ranges.insert(at, (next, self.unknown(next)));
            }
        }
        // number 0 itself may have a rule
        if let [(0, _), (0, _), ..] = ranges.as_slice() {
            ranges.remove(0);
        }
        ranges
    }

    fn unknown(&self, number: u32) -> Leaf {
        let beyond = self.newest.is_some_and(|newest| number > newest);
        Leaf::Return(if beyond { Action::NO_SUCH_CALL } else { self.default })
    }

    fn leaf(&self, rules: &[Rule]) -> Leaf {
        match rules {
            [] => Leaf::Return(self.default),
            [first, ..] if first.conditions.is_empty() => Leaf::Return(first.action),
            _ => Leaf::Rules(rules.to_vec(), self.default),
        }
    }
}

/// The number is loaded; halves the ranges until one is left.
fn search(ranges: &[(u32, Leaf)]) -> Vec<Instruction> {
    let (left, right) = ranges.split_at(ranges.len() / 2);
    let Some((pivot, leaf)) = right.first() else { return Vec::new() };
    if left.is_empty() {
        return end(leaf);
    }
    let (left, right) = (search(left), search(right));
    let mut code = Vec::with_capacity(left.len() + right.len() + 2);
    match u8::try_from(left.len()) {
        Ok(yes) => code.push(Instruction { code: JUMP_GREATER_EQUAL, yes, no: 0, number: *pivot }),
        Err(_) => {
            code.push(Instruction { code: JUMP_GREATER_EQUAL, yes: 0, no: 1, number: *pivot });
            code.push(plain(JUMP, length(&left)));
        }
    }
    code.extend(left);
    code.extend(right);
    code
}

fn end(leaf: &Leaf) -> Vec<Instruction> {
    match leaf {
        Leaf::Return(action) => vec![plain(RETURN, action.0)],
        Leaf::Rules(rules, default) => {
            let mut code: Vec<Instruction> = rules.iter().flat_map(rule).collect();
            code.push(plain(RETURN, default.0));
            code
        }
    }
}

/// Built from its end, so that each condition knows how far "no" has to jump.
fn rule(rule: &Rule) -> Vec<Instruction> {
    let mut code = vec![plain(RETURN, rule.action.0)];
    for condition in rule.conditions.iter().rev() {
        // at most 6 conditions of 7 instructions: never near 255
        let behind = u8::try_from(code.len()).unwrap_or(u8::MAX);
        let mut head = test(condition, behind);
        head.extend(code);
        code = head;
    }
    code
}

/// Falls through when the condition holds, else skips `behind` instructions behind itself.
fn test(c: &Condition, behind: u8) -> Vec<Instruction> {
    let low_first = cfg!(target_endian = "little");
    let offset = OFFSET_ARGUMENTS + 8 * c.index;
    let (low, high) = if low_first { (offset, offset + 4) } else { (offset + 4, offset) };
    let (value_low, value_high) = (c.value as u32, (c.value >> 32) as u32);
    let jump = |code, number, yes, no| Instruction { code, yes, no, number };
    // a greater upper half decides: yes for "greater", no for "less"; a smaller one the other way round
    let greater = |code| {
        vec![
            plain(LOAD, high),
            jump(JUMP_GREATER, value_high, 3, 0),
            jump(JUMP_EQUAL, value_high, 0, behind + 2),
            plain(LOAD, low),
            jump(code, value_low, 0, behind),
        ]
    };
    let less = |code| {
        vec![
            plain(LOAD, high),
            jump(JUMP_GREATER, value_high, behind + 3, 0),
            jump(JUMP_EQUAL, value_high, 0, 2),
            plain(LOAD, low),
            jump(code, value_low, behind, 0),
        ]
    };
    match c.compare {
        Compare::Equal => vec![
            plain(LOAD, high),
            jump(JUMP_EQUAL, value_high, 0, behind + 2),
            plain(LOAD, low),
            jump(JUMP_EQUAL, value_low, 0, behind),
        ],
        Compare::NotEqual => vec![
            plain(LOAD, high),
            jump(JUMP_EQUAL, value_high, 0, 2),
            plain(LOAD, low),
            jump(JUMP_EQUAL, value_low, behind, 0),
        ],
        Compare::MaskedEqual(mask) => vec![
            plain(LOAD, high),
            plain(AND, (mask >> 32) as u32),
            jump(JUMP_EQUAL, value_high, 0, behind + 3),
            plain(LOAD, low),
            plain(AND, mask as u32),
            jump(JUMP_EQUAL, value_low, 0, behind),
        ],
        Compare::Greater => greater(JUMP_GREATER),
        Compare::GreaterOrEqual => greater(JUMP_GREATER_EQUAL),
        Compare::Less => less(JUMP_GREATER_EQUAL),
        Compare::LessOrEqual => less(JUMP_GREATER),
    }
}
