//! libFuzzer's end of `podkeep_tests::fuzz::supervisor_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| podkeep_tests::fuzz::supervisor_message(bytes));
