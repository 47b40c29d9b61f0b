//! The environment of a container, its command, the command of an exec probe, and `subPathExpr`.
use super::downward::{self, Facts, FieldError};
use super::expand;
use crate::types::{ConfigMap, Container, EnvVar, KeySelector, Secret, StringMap};
use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

/// Objects of the pod's namespace, as far as the node serves them.
pub trait Objects {
    /// The ConfigMap of this name.
    fn config_map(&self, name: &str) -> Option<&ConfigMap>;
    /// The Secret of this name.
    fn secret(&self, name: &str) -> Option<&Secret>;
    /// The value of a key in a file of variables in a volume; none if the file or the key is missing.
    fn file_key(&self, volume: &str, path: &str, key: &str) -> Option<String>;
}

/// No object at all.
pub struct NoObjects;

impl Objects for NoObjects {
    fn config_map(&self, _: &str) -> Option<&ConfigMap> {
        None
    }
    fn secret(&self, _: &str) -> Option<&Secret> {
        None
    }
    fn file_key(&self, _: &str, _: &str, _: &str) -> Option<String> {
        None
    }
}

/// Why the environment cannot be made. The container waits with reason `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvError {
    /// An object that is not optional is not there.
    NoObject {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The object is there, the key is not.
    NoKey {
        /// `ConfigMap`, `Secret` or `file`.
        kind: &'static str,
        /// Name of the object, or path of the file.
        name: String,
        /// The key.
        key: String,
    },
    /// The value is not text.
    NotText {
        /// The variable.
        name: String,
    },
    /// A field or resource cannot be had.
    Field {
        /// The variable.
        name: String,
        /// Why.
        error: FieldError,
    },
    /// A variable of `subPathExpr` is missing or empty.
    NoVariable {
        /// The expression.
        expression: String,
        /// The first missing variable.
        name: String,
    },
    /// `subPathExpr` leads out of the volume.
    Outside {
        /// The expanded path.
        path: String,
    },
}

impl fmt::Display for EnvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EnvError::NoObject { kind, name } => write!(f, "{kind} \"{name}\" not found"),
            EnvError::NoKey { kind, name, key } => write!(f, "couldn't find key {key} in {kind} {name}"),
            EnvError::NotText { name } => write!(f, "the value of '{name}' is not text in UTF-8"),
            EnvError::Field { name, error } => write!(f, "the value of '{name}' cannot be had: {error}"),
            EnvError::NoVariable { expression, name } => {
                write!(f, "'{expression}' cannot be expanded: the variable '{name}' is missing or empty")
            }
            EnvError::Outside { path } => {
                write!(f, "'{path}' leads out of the volume: write a relative path without '..'")
            }
        }
    }
}

impl core::error::Error for EnvError {}

/// The variables of a container, each name once, in the order they are first named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Names and values.
    pub variables: Vec<(String, String)>,
    /// Keys of `envFrom` that are no names of variables and were left out.
    pub skipped: Vec<String>,
    index: BTreeMap<String, usize>,
}

impl Environment {
    fn set(&mut self, name: String, value: String) {
        match self.index.get(&name).and_then(|at| self.variables.get_mut(*at)) {
            Some(slot) => slot.1 = value,
            None => {
                self.index.insert(name.clone(), self.variables.len());
                self.variables.push((name, value));
            }
        }
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.variables.get(*self.index.get(name)?)?;
        Some(value)
    }

    /// Expands a text against these variables: an element of `command` or `args`.
    pub fn expand(&self, text: &str) -> String {
        expand(text, &mut |name| self.get(name).map(ToString::to_string))
    }

    /// Expands `subPathExpr`. Every variable must be there and not be empty, and the result must stay inside.
    pub fn sub_path(&self, expression: &str) -> Result<String, EnvError> {
        let mut missing = None;
        let path = expand(expression, &mut |name| {
            let value = self.get(name).filter(|v| !v.is_empty());
            if value.is_none() && missing.is_none() {
                missing = Some(name.to_string());
            }
            value.map(ToString::to_string)
        });
        if let Some(name) = missing {
            return Err(EnvError::NoVariable { expression: expression.into(), name });
        }
        if path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return Err(EnvError::Outside { path });
        }
        Ok(path)
    }
}

/// Whether a key may be the name of a variable: printable ASCII without `=`.
pub fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'=')
}

/// Builds the environment of a container: `envFrom` in order, then `env` in order, where a value sees what is
/// defined before it.
pub fn environment(
    container: &Container,
    facts: &Facts<'_>,
    objects: &dyn Objects,
) -> Result<Environment, EnvError> {
    let mut env = Environment::default();
    for source in &container.env_from {
        if let Some(reference) = &source.config_map_ref {
            match objects.config_map(&reference.name) {
                Some(map) => {
                    take_all(&mut env, &source.prefix, map.data.iter().map(|(k, v)| (k, Some(v.clone()))))?;
                }
                None if reference.optional == Some(true) => {}
                None => return Err(no_object("configmap", &reference.name)),
            }
        }
        if let Some(reference) = &source.secret_ref {
            match objects.secret(&reference.name) {
                Some(secret) => {
                    let plain = secret.string_data.iter().map(|(k, v)| (k, Some(v.clone())));
                    let coded = secret.data.iter().filter(|(k, _)| !secret.string_data.contains_key(*k));
                    let coded = coded.map(|(k, v)| (k, String::from_utf8(v.0.clone()).ok()));
                    take_all(&mut env, &source.prefix, coded.chain(plain))?;
                }
                None if reference.optional == Some(true) => {}
                None => return Err(no_object("secret", &reference.name)),
            }
        }
    }
    for variable in &container.env {
        if let Some(value) = value_of(variable, &env, container, facts, objects)? {
            env.set(variable.name.clone(), value);
        }
    }
    Ok(env)
}

fn take_all<'a>(
    env: &mut Environment,
    prefix: &str,
    entries: impl Iterator<Item = (&'a String, Option<String>)>,
) -> Result<(), EnvError> {
    for (key, value) in entries {
        let name = alloc::format!("{prefix}{key}");
        if !is_variable_name(&name) {
            env.skipped.push(name);
            continue;
        }
        let Some(value) = value else { return Err(EnvError::NotText { name }) };
        env.set(name, value);
    }
    Ok(())
}

fn no_object(kind: &'static str, name: &str) -> EnvError {
    EnvError::NoObject { kind, name: name.into() }
}

/// The value of one variable; none if it comes from something optional that is not there.
fn value_of(
    variable: &EnvVar,
    env: &Environment,
    container: &Container,
    facts: &Facts<'_>,
    objects: &dyn Objects,
) -> Result<Option<String>, EnvError> {
    let source = match &variable.value_from {
        Some(source) if variable.value.is_empty() => source,
        _ => return Ok(Some(env.expand(&variable.value))),
    };
    let field = |error| EnvError::Field { name: variable.name.clone(), error };
    if let Some(selector) = &source.field_ref {
        return downward::field(facts, &selector.field_path).map(Some).map_err(field);
    }
    if let Some(selector) = &source.resource_field_ref {
        let named = facts.container(&selector.container_name).unwrap_or(container);
        let divisor = selector.divisor.unwrap_or_default();
        return downward::resource(&named.resources, &selector.resource, divisor, facts.allocatable)
            .map(Some)
            .map_err(field);
    }
    if let Some(selector) = &source.config_map_key_ref {
        let found = objects.config_map(&selector.name).map(|map| map.data.get(&selector.key).cloned());
        return pick(selector, found, "configmap", "ConfigMap");
    }
    if let Some(selector) = &source.secret_key_ref {
        let found = match objects.secret(&selector.name) {
            Some(secret) => Some(match secret.string_data.get(&selector.key) {
                Some(plain) => Some(plain.clone()),
                None => match secret.data.get(&selector.key) {
                    Some(bytes) => Some(
                        String::from_utf8(bytes.0.clone())
                            .map_err(|_| EnvError::NotText { name: variable.name.clone() })?,
                    ),
                    None => None,
                },
            }),
            None => None,
        };
        return pick(selector, found, "secret", "Secret");
    }
    if let Some(selector) = &source.file_key_ref {
        let found = objects.file_key(&selector.volume_name, &selector.path, &selector.key);
        if found.is_none() && selector.optional != Some(true) {
            let (name, key) = (selector.path.clone(), selector.key.clone());
            return Err(EnvError::NoKey { kind: "file", name, key });
        }
        return Ok(found);
    }
    Ok(Some(String::new()))
}

fn pick(
    selector: &KeySelector,
    found: Option<Option<String>>,
    lower: &'static str,
    kind: &'static str,
) -> Result<Option<String>, EnvError> {
    let optional = selector.optional == Some(true);
    match found {
        Some(Some(value)) => Ok(Some(value)),
        _ if optional => Ok(None),
        Some(None) => Err(EnvError::NoKey { kind, name: selector.name.clone(), key: selector.key.clone() }),
        None => Err(no_object(lower, &selector.name)),
    }
}

/// The command of an exec probe. It sees the literal values of `env` only, unexpanded; a variable with another source
/// counts as empty.
pub fn probe_command(command: &[String], env: &[EnvVar]) -> Vec<String> {
    let values: StringMap = env.iter().map(|v| (v.name.clone(), v.value.clone())).collect();
    command.iter().map(|part| expand(part, &mut |name| values.get(name).cloned())).collect()
}
