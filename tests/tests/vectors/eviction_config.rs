//! `eviction_config.json`: thresholds of node pressure from the settings.

use std::collections::BTreeMap;

use podkeep_core::eviction::{self, Amount, Settings, Threshold};
use podkeep_core::quantity::Quantity;
use serde_json::Value;

use super::verdict::{Verdict, equal, text, unknown};

pub(crate) fn check(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expected"]);
    if !expected["thresholds"].is_array() && expected["error"] != true {
        return unknown(expected);
    }
    let (hard, soft) = (map(&input["evictionHard"]), map(&input["evictionSoft"]));
    let (grace, min_reclaim) =
        (map(&input["evictionSoftGracePeriod"]), map(&input["evictionMinimumReclaim"]));
    let enforced = input["enforceNodeAllocatable"].as_array();
    let settings = Settings {
        hard: &hard,
        soft: &soft,
        grace: &grace,
        min_reclaim: &min_reclaim,
        enforce_pods: enforced.is_some_and(|list| list.iter().any(|entry| entry == "pods")),
    };
    match (eviction::thresholds(&settings), expected["error"] == true) {
        (Ok(found), true) => Verdict::Fail(format!("accepted as {found:?}")),
        (Err(_), true) => Verdict::Pass,
        (Err(error), false) => Verdict::Fail(error.to_string()),
        (Ok(found), false) => same(&found, &expected["thresholds"]).into(),
    }
}

fn map(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned()))).collect()
}

fn same(found: &[Threshold], wanted: &Value) -> Result<(), String> {
    let wanted = wanted.as_array().ok_or("no list")?;
    equal("count", found.len(), wanted.len())?;
    for (found, wanted) in found.iter().zip(wanted) {
        equal("signal", found.signal.name(), text(wanted, "signal"))?;
        equal("operator", "LessThan", text(wanted, "operator"))?;
        let seconds = wanted["gracePeriodSeconds"].as_f64().ok_or("no grace")?;
        equal("grace", found.grace, (seconds * 1e9) as i64)?;
        amount(Some(found.value), &wanted["quantity"], &wanted["percentage"])?;
        amount(found.min_reclaim, &wanted["minReclaimQuantity"], &wanted["minReclaimPercentage"])?;
    }
    Ok(())
}

fn amount(found: Option<Amount>, quantity: &Value, share: &Value) -> Result<(), String> {
    match (found, quantity.as_str(), share.as_f64()) {
        (None, None, None) => Ok(()),
        (Some(Amount::Quantity(found)), Some(wanted), None) => {
            let wanted = wanted.parse::<Quantity>().map_err(|error| error.to_string())?;
            equal("quantity", found, wanted)
        }
        (Some(Amount::Share(found)), None, Some(wanted)) if (found - wanted).abs() < 1e-6 => Ok(()),
        (found, quantity, share) => Err(format!("found {found:?}, wanted {quantity:?} {share:?}")),
    }
}
