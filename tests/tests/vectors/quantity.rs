//! `quantity.json`: text to amount, canonical text, rounding, arithmetic.

use podkeep_core::quantity::Quantity;
use serde_json::Value;

use super::verdict::{Verdict, equal, text, unknown};

pub(crate) fn check(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expected"]);
    match (&input["text"], input["op"].as_str()) {
        (Value::String(text), None) => parsed(text, expected).into(),
        (Value::Null, Some(op)) if input["a"].is_string() && input["b"].is_string() => {
            for name in op.split(',') {
                if !["compare", "add", "subtract"].contains(&name) {
                    return unknown(&input["op"]);
                }
            }
            arithmetic(input, expected).into()
        }
        _ => unknown(input),
    }
}

fn read(text: &str) -> Result<Quantity, String> {
    text.parse::<Quantity>().map_err(|error| error.to_string())
}

fn parsed(text: &str, expected: &Value) -> Result<(), String> {
    if expected["error"] == true {
        return match read(text) {
            Ok(quantity) => Err(format!("accepted as {quantity}")),
            Err(_) => Ok(()),
        };
    }
    let quantity = read(text)?;
    equal("canonical", quantity.to_string().as_str(), expected["canonical"].as_str().unwrap_or("?"))?;
    equal("format", quantity.format().name(), expected["format"].as_str().unwrap_or("?"))?;
    equal("sign", Some(i64::from(quantity.sign())), expected["sign"].as_i64())?;
    equal("value", quantity.value(), expected["value"].as_i64())?;
    equal("milliValue", quantity.milli_value(), expected["milliValue"].as_i64())
}

fn arithmetic(input: &Value, expected: &Value) -> Result<(), String> {
    let (a, b) = (read(text(input, "a"))?, read(text(input, "b"))?);
    if let Some(wanted) = expected["compare"].as_i64() {
        equal("compare", a.cmp(&b) as i64, wanted)?;
    }
    if let Some(wanted) = expected["sum"].as_str() {
        equal("sum", a.plus(b).to_string().as_str(), wanted)?;
    }
    if let Some(wanted) = expected["difference"].as_str() {
        equal("difference", a.minus(b).to_string().as_str(), wanted)?;
    }
    Ok(())
}
