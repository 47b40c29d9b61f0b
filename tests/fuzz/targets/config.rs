//! Any bytes in a configuration file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(e) = podkeep::config::from_texts(&[("fuzz.yaml", bytes)]) {
        let _ = e.to_string();
    }
});
