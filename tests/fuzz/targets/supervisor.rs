//! Any bytes where a message between agent and supervisor is expected; what can be read is written again as it was.
#![no_main]

use podkeep::supervisor::proto::{Reply, Request};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<Request>(bytes) {
        let once = serde_json::to_vec(&request).expect("written");
        let again: Request = serde_json::from_slice(&once).expect("read again");
        assert_eq!(once, serde_json::to_vec(&again).expect("written again"));
    }
    if let Ok(reply) = serde_json::from_slice::<Reply>(bytes) {
        let once = serde_json::to_vec(&reply).expect("written");
        let again: Reply = serde_json::from_slice(&once).expect("read again");
        assert_eq!(once, serde_json::to_vec(&again).expect("written again"));
    }
});
