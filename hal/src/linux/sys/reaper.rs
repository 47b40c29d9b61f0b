//! The first process of a shared pid namespace: reaps orphans, holds next to no memory.

use std::fs::File;
use std::io::Read;
use std::os::fd::{OwnedFd, RawFd};

use nix::libc;

/// The kernel's set of signals with SIGCHLD in it.
const CHILD_SIGNAL: u64 = 1 << (libc::SIGCHLD - 1);
const SET_BYTES: usize = 8;

/// Step for sparing memory; on machines with larger pages a little more is kept.
const PAGE: usize = 4096;

/// Gives the memory back that was copied from the parent and reaps children for ever. Everything else (descriptors,
/// root, credentials) must be given up before.
///
/// A forked child shares its pages with the parent only until the parent writes to them: from then on the old copy is
/// the child's alone. So the heap and all other anonymous memory but the stack is dropped; it reads as zeros
/// afterwards, and nothing may be called that wants it. The loop below uses system calls only; what those want of the C
/// library (the thread's own block with errno) is spared.
///
/// `smaps` is this process's open /proc/self/smaps (its root may have none); both descriptors are closed, `done` last:
/// its other end then knows that all is in place.
pub fn run(smaps: OwnedFd, done: RawFd) -> ! {
    let mut ranges: [(usize, usize); 64] = [(0, 0); 64];
    let mut count = 0;
    let mut text = String::new();
    if File::from(smaps).read_to_string(&mut text).is_ok() {
        for (slot, range) in ranges.iter_mut().zip(droppable(&text)) {
            *slot = range;
            count += 1;
        }
    }
    // SAFETY: has no preconditions and cannot fail.
    let block = unsafe { libc::pthread_self() } as usize & !(PAGE - 1);
    let (spared_start, spared_end) = (block.saturating_sub(PAGE), block.saturating_add(2 * PAGE));
    let set = CHILD_SIGNAL;
    call(
        libc::SYS_rt_sigprocmask,
        [libc::SIG_BLOCK as usize, (&raw const set).expose_provenance(), 0, SET_BYTES],
    );
    // from here on nothing of the heap is owned any more, `text` neither: it is about to vanish
    for (start, end) in ranges.iter().copied().take(count) {
        drop_memory(start, end.min(spared_start));
        drop_memory(start.max(spared_end), end);
    }
    call(libc::SYS_close, [done as usize, 0, 0, 0]);
    reap_for_ever()
}

/// All calls of this file, by one function of the C library: the fewer pages of the program are touched, the fewer count.
/// The answer is only looked at for its sign.
fn call(number: libc::c_long, args: [usize; 4]) -> libc::c_long {
    let [first, second, third, fourth] = args;
    // SAFETY: private to this file. rt_sigprocmask and rt_sigtimedwait read a set on the stack, and all other pointers are
    // null, which they allow; close gets the number of a descriptor whose owner is a frame that is never returned to;
    // madvise gets private memory of this process that is read from its file again or never used again (see `run`);
    // wait4 gets no pointers.
    unsafe { libc::syscall(number, first, second, third, fourth) }
}

fn drop_memory(start: usize, end: usize) {
    if start < end {
        call(libc::SYS_madvise, [start, end - start, libc::MADV_DONTNEED as usize, 0]);
    }
}

/// Address ranges that may be dropped: private memory without a file (but the stack), and what was only read from a
/// file, which comes back from there. Not what was read from a file and changed: the program's data, relocated tables.
fn droppable(smaps: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut range = None;
    smaps.lines().filter_map(move |line| {
        if let Some(found) = candidate(line) {
            range = found;
            return None;
        }
        let anonymous = line.strip_prefix("Anonymous:")?;
        let (start, end, from_file) = range.take()?;
        let clean = anonymous.trim() == "0 kB";
        (clean || !from_file).then_some((start, end))
    })
}

/// Reads the first line of a mapping: its range and whether it has a file, the inner `None` when it must stay. The
/// outer `None` for the lines of numbers that follow.
fn candidate(line: &str) -> Option<Option<(usize, usize, bool)>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let inode = words.nth(2)?;
    let name = words.next().unwrap_or_default();
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let from_file = inode != "0";
    let special = name.starts_with('[') && name != "[heap]" && !name.starts_with("[anon");
    let wanted =
        rights.starts_with('r') && rights.ends_with('p') && !special && from_file != rights.contains('w');
    Some(wanted.then_some((start, end, from_file)))
}

/// SIGCHLD is blocked and so kept pending, to be waited for instead of running code.
fn reap_for_ever() -> ! {
    // on the stack: the program's constants would be one more page
    let set = CHILD_SIGNAL;
    let any_child = usize::MAX;
    let options = (libc::WNOHANG | libc::__WALL) as usize;
    loop {
        while call(libc::SYS_wait4, [any_child, 0, options, 0]) > 0 {}
        call(libc::SYS_rt_sigtimedwait, [(&raw const set).expose_provenance(), 0, 0, SET_BYTES]);
    }
}

#[cfg(test)]
mod tests {
    use super::droppable;

    #[test]
    fn only_what_can_go_is_dropped() {
        let smaps = "\
00400000-00401000 r--p 00000000 fe:00 7  /bin/x\nAnonymous:             0 kB\n\
00401000-00500000 r-xp 00001000 fe:00 7  /bin/x\nAnonymous:             0 kB\n\
00500000-00510000 r--p 00100000 fe:00 7  /bin/x\nAnonymous:            64 kB\n\
00510000-00520000 rw-p 00110000 fe:00 7  /bin/x\nAnonymous:             8 kB\n\
00520000-00530000 rw-p 00000000 00:00 0\nAnonymous:            16 kB\n\
01000000-01100000 rw-p 00000000 00:00 0  [heap]\nAnonymous:             0 kB\n\
7f000000-7f001000 ---p 00000000 00:00 0\nAnonymous:             0 kB\n\
7f100000-7f200000 rw-s 00000000 00:01 9  /dev/zero\nAnonymous:             0 kB\n\
7ff00000-7ff21000 rw-p 00000000 00:00 0  [stack]\nAnonymous:            12 kB\n\
7ff30000-7ff31000 r-xp 00000000 00:00 0  [vdso]\nAnonymous:             0 kB\n";
        let expected = [
            (0x40_0000, 0x40_1000),
            (0x40_1000, 0x50_0000),
            (0x52_0000, 0x53_0000),
            (0x100_0000, 0x110_0000),
        ];
        assert_eq!(droppable(smaps).collect::<Vec<_>>(), expected);
    }
}
