//! Any bytes in a manifest file: never a panic, never an endless loop.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let decoded = podkeep::source::decode::decode_file(bytes, "fuzz.yaml");
    // what a person is shown is made from the same bytes
    let _ = format!("{decoded:?}");
});
