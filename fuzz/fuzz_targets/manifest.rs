//! libFuzzer's end of `podkeep_tests::fuzz::manifest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| podkeep_tests::fuzz::manifest(bytes));
