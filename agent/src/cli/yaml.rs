//! A JSON value as YAML text for `-o yaml`. Texts that another reader could take for something else are quoted.

use serde_json::Value;

/// The document.
#[must_use]
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(value, 0, &mut out),
        Value::Array(list) if !list.is_empty() => block(value, 0, &mut out),
        other => {
            scalar(other, &mut out);
            out.push('\n');
        }
    }
    out
}

fn indent(depth: usize, out: &mut String) {
    out.extend(std::iter::repeat_n("  ", depth));
}

fn block(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(map) => {
            for (nth, (key, inner)) in map.iter().enumerate() {
                if nth > 0 {
                    indent(depth, out);
                }
                out.push_str(&quoted(key));
                out.push(':');
                member(inner, depth, out);
            }
        }
        Value::Array(list) => {
            for (nth, inner) in list.iter().enumerate() {
                if nth > 0 {
                    indent(depth, out);
                }
                out.push_str("- ");
                if is_block(inner) {
                    block(inner, depth + 1, out);
                } else {
                    scalar(inner, out);
                    out.push('\n');
                }
            }
        }
        other => scalar(other, out),
    }
}

fn member(inner: &Value, depth: usize, out: &mut String) {
    if is_block(inner) {
        let deeper = if inner.is_array() { depth } else { depth + 1 };
        out.push('\n');
        indent(deeper, out);
        block(inner, deeper, out);
    } else {
        out.push(' ');
        scalar(inner, out);
        out.push('\n');
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn scalar(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => out.push_str(&quoted(text)),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        other => out.push_str(&other.to_string()),
    }
}

/// Plain where no YAML reader could see anything but this text, else in JSON's quotes, which YAML shares.
fn quoted(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-@+ ()=".contains(c))
        && !text.ends_with(' ')
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null" | "nan" | "inf"
        );
    if plain { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_and_maps_nest_and_doubtful_texts_are_quoted() {
        let value =
            json!({"a": {"b": [1, {"c": "x", "d": []}, "no"]}, "e": "0644", "f": {}, "g": "a: b", "h": null});
        let want =
            "a:\n  b:\n  - 1\n  - c: x\n    d: []\n  - \"no\"\ne: \"0644\"\nf: {}\ng: \"a: b\"\nh: null\n";
        assert_eq!(text(&value), want);
    }
}
