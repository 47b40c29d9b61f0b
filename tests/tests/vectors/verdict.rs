//! What becomes of a case, and the differences from the kubelet this project has decided on.

use podkeep_core::types::Pod;
use serde_json::Value;

/// A difference from the kubelet that is wanted. Cases it applies to are checked against our answer.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
}

/// What becomes of a case.
pub(crate) enum Verdict {
    Pass,
    Fail(String),
    /// Why it was not checked; the kind of the case is part of the text.
    Skip(String),
    /// Our answer is right by this rule and is not that of the kubelet.
    Differs(&'static Rule),
}

impl From<Result<(), String>> for Verdict {
    fn from(result: Result<(), String>) -> Verdict {
        match result {
            Ok(()) => Verdict::Pass,
            Err(why) => Verdict::Fail(why),
        }
    }
}

/// How a file is checked.
pub(crate) enum Check {
    /// Passes or fails; an error that begins with `skip: ` is a skip.
    Plain(fn(&Value) -> Result<(), String>),
    /// Answers with any verdict.
    Full(fn(&Value) -> Verdict),
}

impl Check {
    pub(crate) fn run(&self, case: &Value) -> Verdict {
        match self {
            Check::Full(check) => check(case),
            Check::Plain(check) => match check(case) {
                Err(why) if why.starts_with("skip: ") => Verdict::Skip(why["skip: ".len()..].to_owned()),
                result => result.into(),
            },
        }
    }
}

/// A case of a kind nobody knows.
pub(crate) fn unknown(kind: &Value) -> Verdict {
    Verdict::Skip(format!("unknown kind {kind}"))
}

/// Equal, or both sides in the text of the failure.
pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: found {found:?}, wanted {wanted:?}")) }
}

/// A pod of a case as it is written.
pub(crate) fn raw_pod(value: &Value) -> Result<Pod, String> {
    serde_json::from_str(&value.to_string()).map_err(|error| error.to_string())
}

/// A pod of a case with its defaults filled in.
pub(crate) fn pod(value: &Value) -> Result<Pod, String> {
    let mut pod = raw_pod(value)?;
    podkeep_core::defaults::pod(&mut pod);
    Ok(pod)
}

/// A text of a case; empty if it is not there.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Anything of a case that reads as an API type.
pub(crate) fn read<T: for<'de> serde::Deserialize<'de>>(value: &Value) -> Result<T, String> {
    serde_json::from_str(&value.to_string()).map_err(|error| error.to_string())
}
