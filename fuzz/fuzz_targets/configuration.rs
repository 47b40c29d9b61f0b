//! libFuzzer's end of `podkeep_tests::fuzz::configuration`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| podkeep_tests::fuzz::configuration(bytes));
