//! `$(VAR)` expansion, the environment of a container, the downward API, host names, the hosts file.
pub mod downward;
pub mod env;
pub mod host;

use alloc::string::String;

/// Replaces `$(NAME)` by what `lookup` knows of it. An unknown name stays as it is, `$$` is a `$` that starts no
/// reference, and results are not expanded again. Rules: the kubelet's `expansion` package.
pub fn expand(text: &str, lookup: &mut dyn FnMut(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            // an ordinary dollar, or a reference that is never closed
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_text_without_known_names_only_loses_doubled_dollars(text in "[a$()]{0,20}") {
            let out = expand(&text, &mut |_| None);
            prop_assert_eq!(out.replace('$', ""), text.replace('$', ""));
        }

        #[test]
        fn an_escaped_text_comes_back_literally(text in "[a$()x]{0,20}") {
            let escaped = text.replace('$', "$$");
            prop_assert_eq!(expand(&escaped, &mut |_| Some("v".to_string())), text);
        }
    }
}
