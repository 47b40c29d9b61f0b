//! `kubelet_config_validation.json`: decoding, defaults and validation of the configuration.

use podkeep::config::{self, Stage};
use serde_json::Value;

pub(crate) fn check(row: &Value) -> Result<(), String> {
    let text = match row["input"]["configText"].as_str() {
        Some(text) => text.to_string(),
        None => row["input"]["config"].to_string(),
    };
    let expected = &row["expected"];
    match (config::from_texts(&[("config", text.as_bytes())]), expected["valid"].as_bool().unwrap()) {
        (Ok(settings), true) => {
            let warned = settings.warnings.iter().any(|w| {
                w.to_string().contains(expected["warning"].as_str().unwrap_or("lenient decoding used"))
            });
            if warned != expected["warning"].is_string() {
                return Err(format!("warnings: {:?}", settings.warnings));
            }
            let effective = serde_json::to_value(&settings.kubelet).map_err(|e| e.to_string())?;
            for (path, wanted) in expected["effective"].as_object().into_iter().flatten() {
                let found = path.split('.').fold(&effective, |value, key| &value[key]);
                // the API leaves out false, nothing and empty lists
                let same = found == wanted
                    || (found.is_null()
                        && (wanted == &Value::Bool(false)
                            || wanted == &Value::Array(Vec::new())
                            || wanted == 0));
                if !same {
                    return Err(format!("{path}: expected {wanted}, found {found}"));
                }
            }
            Ok(())
        }
        (Err(error), false) => {
            let stage = if error.stage == Stage::Decode { "decode" } else { "validate" };
            if expected["stage"] != stage {
                return Err(format!("failed at {stage}: {error}"));
            }
            let text = error.to_string();
            let names = expected["errorMentionsOneOf"].as_array();
            if names.is_some_and(|names| !names.iter().any(|name| text.contains(name.as_str().unwrap()))) {
                return Err(format!("does not name the field: {text}"));
            }
            Ok(())
        }
        (Ok(_), false) => Err("accepted".to_string()),
        (Err(error), true) => Err(format!("refused: {error}")),
    }
}
