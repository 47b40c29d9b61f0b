//! Container output through the log writer to files and back through the reader (cases C-LOG-01 and C-LOG-02).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails says where")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use podkeep::container::spec::LogSpec;
use podkeep::logs::record::Stream::{self, Stderr, Stdout};
use podkeep::logs::{LogsError, Options, Progress, Reader, copy, files};
use podkeep::supervisor::logs::{LogWriter, News};
use proptest::prelude::*;
use support::Place;

const NOW: i64 = 1_796_076_780_000_000_000;
const SECOND: i64 = 1_000_000_000;

fn spec(path: &Path, max_size: u64, max_files: u32) -> LogSpec {
    LogSpec { path: path.to_owned(), max_size, max_files }
}

/// A log with a clock that stands still unless told otherwise.
struct Log {
    writer: LogWriter,
    scratch: Vec<u8>,
    now_ns: i64,
}

impl Log {
    fn new(path: &Path, max_size: u64, max_files: u32) -> Self {
        Self { writer: LogWriter::open(spec(path, max_size, max_files)), scratch: Vec::new(), now_ns: NOW }
    }

    fn write(&mut self, stream: Stream, text: impl AsRef<[u8]>) {
        self.writer.write(stream, text.as_ref(), self.now_ns, &mut self.scratch);
    }

    fn finish(&mut self) {
        for stream in [Stdout, Stderr] {
            self.writer.finish(stream, self.now_ns, &mut self.scratch);
        }
    }
}

fn read_all(path: &Path, options: Options) -> Vec<u8> {
    let mut reader = Reader::open(path, options).unwrap();
    let (mut all, mut out) = (Vec::new(), Vec::new());
    loop {
        let progress = reader.read(&mut out).unwrap();
        assert!(out.len() <= 128 * 1024, "output at once is bounded: {}", out.len());
        all.append(&mut out);
        match progress {
            Progress::More => {}
            Progress::Done => return all,
            Progress::AtEnd if reader.break_line(&mut all) => {}
            Progress::AtEnd => return all,
        }
    }
}

fn read_text(path: &Path, options: Options) -> String {
    String::from_utf8(read_all(path, options)).unwrap()
}

fn files_of(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        files::rotated(path).unwrap().iter().map(|suffix| suffix.path(path)).collect();
    all.push(path.to_owned());
    all
}

fn numbers(range: std::ops::Range<u32>) -> String {
    range.map(|number| format!("line {number}\n")).collect()
}

#[test]
fn long_line_comes_back_whole_and_other_stream_is_not_mixed_in() {
    let place = Place::new("long");
    let path = place.log("0.log");
    let mut log = Log::new(&path, 0, 5);
    let mut line = "x".repeat(102_400);
    line.push_str("END");
    for (number, piece) in line.as_bytes().chunks(30_000).enumerate() {
        log.write(Stdout, piece);
        log.write(Stderr, format!("err{number}\n"));
    }
    log.write(Stdout, "\nlast-ten-b");
    log.finish();
    let raw = fs::read_to_string(&path).unwrap();
    let tags: Vec<&str> = raw.lines().map(|record| record.split(' ').nth(2).unwrap()).collect();
    assert_eq!(tags.iter().filter(|tag| **tag == "P").count(), 6);
    assert!(raw.lines().all(|record| record.splitn(4, ' ').nth(3).unwrap().len() <= 16_384));
    let stdout_first = format!("{line}\nerr0\nerr1\nerr2\nerr3\nlast-ten-b\n");
    assert_eq!(read_text(&path, Options::default()), stdout_first);
    for (stream, text) in
        [(Stdout, format!("{line}\nlast-ten-b\n")), (Stderr, "err0\nerr1\nerr2\nerr3\n".to_owned())]
    {
        assert_eq!(read_text(&path, Options { stream: Some(stream), ..Options::default() }), text);
    }
    // the last lines, with a long one among them
    for (lines, text) in [
        (0, String::new()),
        (1, "last-ten-b\n".to_owned()),
        (2, format!("{line}\nlast-ten-b\n")),
        (3, format!("{line}\nerr3\nlast-ten-b\n")),
        (6, stdout_first.clone()),
        (1000, stdout_first.clone()),
    ] {
        assert_eq!(read_text(&path, Options { tail: Some(lines), ..Options::default() }), text, "{lines}");
    }
    let limited = read_text(&path, Options { limit_bytes: Some(70_000), ..Options::default() });
    assert_eq!(limited, stdout_first[..70_000]);
}

#[test]
fn huge_line_is_read_in_bounded_pieces() {
    let place = Place::new("huge");
    let path = place.log("0.log");
    let mut log = Log::new(&path, 0, 5);
    let chunk = vec![b'y'; 1 << 20];
    for _ in 0..64 {
        log.write(Stdout, &chunk);
    }
    log.write(Stderr, "between\n");
    log.write(Stdout, "\n");
    drop(log);
    // a record that another program wrote, far longer than ours
    let foreign = place.log("1.log");
    let mut text = b"2026-11-30T22:13:00Z stdout F ".to_vec();
    text.resize(8 << 20, b'z');
    text.push(b'\n');
    fs::write(&foreign, &text).unwrap();
    let out = read_all(&path, Options::default());
    assert_eq!(out.len(), (64 << 20) + 1 + "between\n".len());
    assert!(out.ends_with(b"y\nbetween\n"));
    assert_eq!(read_all(&foreign, Options::default()).len(), (8 << 20) + 1 - 30);
    assert_eq!(read_all(&foreign, Options { tail: Some(1), ..Options::default() }).len(), (8 << 20) + 1 - 30);
}

#[test]
fn no_file_is_ever_longer_than_allowed_and_no_more_are_kept() {
    let place = Place::new("sizes");
    for (max_size, max_files) in [(4096, 3), (200, 2), (70, 4), (1, 3), (100, 1)] {
        let path = place.log(&format!("{max_size}.log"));
        let mut log = Log::new(&path, max_size, max_files);
        for number in 0..500 {
            log.write(if number % 3 == 0 { Stderr } else { Stdout }, format!("line {number}\n"));
            for file in files_of(&path) {
                let length = fs::metadata(&file).map_or(0, |about| about.len());
                // one byte of text is the least a record can have
                assert!(length <= max_size.max(43), "{}: {length}", file.display());
            }
            assert!(files_of(&path).len() <= max_files.max(1) as usize);
        }
        assert_eq!(log.writer.news(), None);
    }
    // after a restart with a lower limit the first write rotates
    let path = place.log("4096.log");
    let before = fs::metadata(&path).unwrap().len();
    assert!(before > 200);
    let mut log = Log::new(&path, 200, 3);
    log.write(Stdout, "after\n");
    assert!(fs::metadata(&path).unwrap().len() < 200);
    assert!(read_text(&path, Options::default()).ends_with("line 499\nafter\n"));
}

#[test]
fn rotated_files_stay_in_order_when_the_clock_steps_back() {
    let place = Place::new("clock");
    let path = place.log("0.log");
    let mut log = Log::new(&path, 400, 1000);
    for number in 0..200 {
        log.write(Stdout, format!("line {number}\n"));
        log.now_ns += if number % 50 == 49 { -3600 * SECOND } else { SECOND / 3 };
    }
    assert!(files_of(&path).len() > 15);
    assert_eq!(read_text(&path, Options::default()), numbers(0..200));
    // in the small files the last lines lie in many of them
    for lines in [1, 7, 50, 199] {
        let options = Options { tail: Some(u64::from(lines)), ..Options::default() };
        assert_eq!(read_text(&path, options), numbers(200 - lines..200));
    }
}

#[test]
fn since_and_timestamps_look_at_the_time_a_line_began() {
    let place = Place::new("since");
    let path = place.log("0.log");
    let mut log = Log::new(&path, 1000, 1000);
    for number in 0..60 {
        log.now_ns = NOW + number * SECOND;
        log.write(Stdout, format!("line {number}\n"));
    }
    // begun before, ended after: not wanted
    log.write(Stderr, "s".repeat(20_000));
    log.now_ns += 10 * SECOND;
    log.write(Stderr, "\nlast\n");
    assert!(files_of(&path).len() > 3);
    let options = Options { since_ns: Some(NOW + 30 * SECOND), ..Options::default() };
    let out = read_text(&path, options);
    assert!(out.starts_with(&numbers(30..60)) && out.ends_with("s\nlast\n"));
    let options = Options { since_ns: Some(NOW + 60 * SECOND), timestamps: true, ..Options::default() };
    assert_eq!(read_text(&path, options), "2026-11-30T22:14:09.000000000Z last\n");
}

#[test]
fn record_that_was_cut_by_a_crash_spoils_no_other() {
    let place = Place::new("cut");
    let path = place.log("0.log");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "2026-11-30T22:13:00Z stdout F one\n2026-11-30T22:13:01Z std").unwrap();
    let mut log = Log::new(&path, 0, 5);
    log.write(Stdout, "two\n");
    assert_eq!(read_text(&path, Options::default()), "one\ntwo\n");
    assert_eq!(read_text(&path, Options { tail: Some(2), ..Options::default() }), "one\ntwo\n");
    assert!(matches!(
        Reader::open(&place.log("none.log"), Options::default()),
        Err(LogsError::Missing { .. })
    ));
}

#[test]
fn full_disk_drops_counts_and_recovers() {
    let place = Place::new("full");
    if podkeep_hal::linux::sys::euid() != 0 {
        println!("skipped: not root, cannot mount a small file system");
        return;
    }
    let disk = place.path.join("disk");
    fs::create_dir_all(&disk).unwrap();
    let mount = nix::mount::mount(
        Some("podkeep-test"),
        &disk,
        Some("tmpfs"),
        nix::mount::MsFlags::empty(),
        Some("size=64k"),
    );
    if let Err(errno) = mount {
        println!("skipped: cannot mount a small file system: {errno}");
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let path = disk.join("0.log");
        let mut log = Log::new(&path, 0, 5);
        log.write(Stdout, numbers(0..100));
        assert_eq!(log.writer.news(), None);
        fs::write(disk.join("filler"), vec![0; 64 * 1024]).unwrap_err();
        for round in 0..50 {
            log.write(Stdout, numbers(1000 + round * 100..1100 + round * 100));
        }
        let News { errno, dropped_bytes } = log.writer.news().unwrap();
        assert_eq!(errno, nix::libc::ENOSPC);
        assert!(dropped_bytes > 0);
        assert_eq!(log.writer.news(), None, "told once");
        // whole records only, in order, whatever was lost
        let kept = read_text(&path, Options::default());
        assert!(kept.starts_with(&numbers(0..100)) && kept.ends_with('\n'));
        assert!(kept.lines().all(|line| line.starts_with("line ")));
        fs::remove_file(disk.join("filler")).unwrap();
        log.write(Stdout, "back\n");
        let news = log.writer.news().unwrap();
        assert_eq!(news.errno, 0);
        assert!(news.dropped_bytes > dropped_bytes);
        assert_eq!(read_text(&path, Options::default()), format!("{kept}back\n"));
        // read-only; nothing may be open for writing while that is made
        drop(log);
        let path = disk.join("1.log");
        Log::new(&path, 100, 3).write(Stdout, numbers(0..1));
        let remount = nix::mount::MsFlags::MS_REMOUNT | nix::mount::MsFlags::MS_RDONLY;
        nix::mount::mount(None::<&str>, &disk, None::<&str>, remount, None::<&str>).unwrap();
        let mut log = Log::new(&path, 100, 3);
        log.write(Stdout, numbers(0..50));
        assert_eq!(log.writer.news().map(|news| news.errno), Some(nix::libc::EROFS));
    });
    nix::mount::umount2(&disk, nix::mount::MntFlags::MNT_DETACH).unwrap();
    outcome.unwrap();
}

/// Follows while a thread writes numbered lines and rotates many times.
#[test]
fn follower_sees_every_line_once_over_many_rotations_and_ends_with_the_last() {
    let place = Place::new("follow");
    let path = place.log("0.log");
    let mut log = Log::new(&path, 20_000, 5);
    log.write(Stdout, numbers(0..10));
    let (end, ended) = smol::channel::bounded::<()>(1);
    let total = 20_000;
    let writer = std::thread::spawn({
        let path = path.clone();
        move || {
            for number in 10..total {
                log.write(Stdout, format!("line {number}\n"));
                if number % 500 == 0 {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            log.write(Stdout, "no newline");
            log.finish();
            drop(end);
            files_of(&path).len()
        }
    });
    let mut out = Vec::new();
    let follow = Options { follow: true, ..Options::default() };
    let over = async { ended.recv().await.unwrap_or_default() };
    smol::block_on(copy(&path, follow, over, &mut out)).unwrap();
    assert_eq!(writer.join().unwrap(), 5);
    assert_eq!(String::from_utf8(out).unwrap(), numbers(0..total) + "no newline\n");
}

#[test]
fn follower_waits_for_a_log_that_is_not_there_yet_and_for_late_ends_of_lines() {
    let place = Place::new("late");
    let path = place.log("0.log");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let (end, ended) = smol::channel::bounded::<()>(1);
    let (reader, writer) = std::io::pipe().unwrap();
    let follower = std::thread::spawn({
        let path = path.clone();
        move || {
            let out = smol::Async::new(writer).unwrap();
            let over = async { ended.recv().await.unwrap_or_default() };
            smol::block_on(copy(&path, Options { follow: true, ..Options::default() }, over, out)).unwrap();
        }
    });
    let mut reader = std::io::BufReader::new(reader);
    let mut next = || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
        line
    };
    let mut log = Log::new(&path, 0, 5);
    log.write(Stdout, "one\n");
    assert_eq!(next(), "one\n");
    // the end of a long line does not come: it holds up the other stream only so long
    let long = "x".repeat(40_000);
    log.write(Stdout, &long);
    log.write(Stderr, "error\n");
    assert_eq!(next().len(), 32_769);
    assert_eq!(next(), "error\n");
    log.write(Stdout, "end\n");
    assert_eq!(next(), "x".repeat(40_000 - 32_768) + "end\n");
    drop(end);
    follower.join().unwrap();
    assert_eq!(next(), "");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is written in whatever chunks comes back line by line, for any size of file and of buffers.
    #[test]
    fn any_output_in_any_chunks_comes_back(
        chunks in proptest::collection::vec(
            (any::<bool>(), prop_oneof![
                3 => proptest::collection::vec(prop_oneof![4 => any::<u8>(), 1 => Just(b'\n')], 0..200),
                1 => (any::<u8>(), 15_000usize..50_000).prop_map(|(byte, length)| vec![byte; length]),
            ]),
            0..24,
        ),
        max_size in prop_oneof![Just(0u64), 60u64..300, 10_000u64..100_000],
        lines in 0u64..12,
    ) {
        let place = Place::new("any");
        let path = place.log("0.log");
        let mut log = Log::new(&path, max_size, 1_000_000);
        let mut expected = [Vec::new(), Vec::new()];
        for (error, chunk) in &chunks {
            // more files than can be open would lose the oldest
            let chunk = if max_size > 0 && max_size < 300 { &chunk[..chunk.len().min(20)] } else { chunk };
            log.write(if *error { Stderr } else { Stdout }, chunk);
            expected[usize::from(*error)].extend_from_slice(chunk);
        }
        log.finish();
        for text in &mut expected {
            if text.last().is_some_and(|&byte| byte != b'\n') {
                text.push(b'\n');
            }
        }
        for (stream, text) in [Stdout, Stderr].into_iter().zip(&expected) {
            let got = read_all(&path, Options { stream: Some(stream), ..Options::default() });
            prop_assert!(got == *text, "{stream:?}");
            let all: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
            let last = all[all.len().saturating_sub(usize::try_from(lines).unwrap())..].concat();
            let got = read_all(&path, Options { stream: Some(stream), tail: Some(lines), ..Options::default() });
            prop_assert!(got == last, "the last {lines} of {stream:?}");
        }
        let sorted = |text: &[u8]| {
            let mut lines: Vec<Vec<u8>> = text.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
            lines.sort();
            lines
        };
        let both = read_all(&path, Options::default());
        prop_assert!(sorted(&both) == sorted(&expected.concat()), "whole lines of both streams");
    }

    /// Files that nobody wrote are read without harm.
    #[test]
    fn arbitrary_files_never_panic(
        bytes in proptest::collection::vec(prop_oneof![
            3 => proptest::collection::vec(any::<u8>(), 0..60),
            1 => Just(b"2026-11-30T22:13:00Z stdout P a\n".to_vec()),
            1 => Just(b"2026-11-30T22:13:00Z stderr F b\n".to_vec()),
            1 => Just(b"2026-11-30T22:13:00Z std".to_vec()),
        ], 0..12),
        tail in proptest::option::of(0u64..5),
    ) {
        let place = Place::new("noise");
        let path = place.log("0.log");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes.concat()).unwrap();
        let out = read_all(&path, Options { tail, ..Options::default() });
        prop_assert!(out.len() <= bytes.concat().len() + 2);
    }
}
