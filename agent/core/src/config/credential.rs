//! `CredentialProviderConfig`: programs that give the credentials of registries. As the kubelet reads it.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::duration::Duration;
use super::validate::{ConfigFault, Faults};
use crate::object;

pub const API_VERSIONS: [&str; 3] =
    ["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"];
pub const KIND: &str = "CredentialProviderConfig";
/// Forms of the request and the answer.
pub const PROTOCOLS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];

object! {
    pub struct CredentialProviderConfig {
        api_version: String = "apiVersion",
        kind: String = "kind",
        providers: Vec<CredentialProvider> = "providers",
    }

    /// One program.
    pub struct CredentialProvider {
        /// its file in the folder of the programs
        name: String = "name",
        /// images it is asked for
        match_images: Vec<String> = "matchImages",
        /// how long an answer is kept that does not say it
        default_cache_duration: Option<Duration> = "defaultCacheDuration",
        /// form of request and answer
        api_version: String = "apiVersion",
        args: Vec<String> = "args",
        env: Vec<ExecVariable> = "env",
        /// needs tokens of an API server
        token_attributes: Option<Box<TokenAttributes>> = "tokenAttributes",
    }

    /// A variable of the program's environment.
    pub struct ExecVariable {
        name: String = "name",
        value: String = "value",
    }

    /// What a program wants of a service account.
    pub struct TokenAttributes {
        service_account_token_audience: String = "serviceAccountTokenAudience",
        cache_type: String = "cacheType",
        require_service_account: Option<bool> = "requireServiceAccount",
        required_annotations: Vec<String> = "requiredServiceAccountAnnotationKeys",
        optional_annotations: Vec<String> = "optionalServiceAccountAnnotationKeys",
    }
}

/// Judges one document.
#[must_use]
pub fn validate(config: &CredentialProviderConfig) -> Vec<ConfigFault> {
    let mut faults = Faults(Vec::new());
    faults.one_of("apiVersion", &config.api_version, &API_VERSIONS);
    faults.one_of("kind", &config.kind, &[KIND]);
    if config.providers.is_empty() {
        faults.add("providers", "at least one is needed");
    }
    for (i, provider) in config.providers.iter().enumerate() {
        let path = |field: &str| format!("providers[{i}].{field}");
        let name = &provider.name;
        if name.is_empty() || name.contains(['/', ' ']) || name == "." || name == ".." {
            faults.add(&path("name"), format!("'{name}' is not the plain name of a file"));
        }
        if config.providers.iter().take(i).any(|other| other.name == *name) {
            faults.add(&path("name"), format!("'{name}' is there already"));
        }
        if provider.match_images.is_empty() {
            faults.add(&path("matchImages"), "at least one is needed");
        }
        for (k, pattern) in provider.match_images.iter().enumerate() {
            if pattern.is_empty() || pattern.contains("://") {
                let message = format!("'{pattern}' is not HOST[:PORT][/PATH] without a scheme");
                faults.add(&path(&format!("matchImages[{k}]")), message);
            }
        }
        match provider.default_cache_duration {
            None => faults.add(&path("defaultCacheDuration"), "is missing"),
            Some(length) if length < Duration::ZERO => {
                faults.add(&path("defaultCacheDuration"), format!("{length} is less than 0"));
            }
            Some(_) => {}
        }
        faults.one_of(&path("apiVersion"), &provider.api_version, &PROTOCOLS);
    }
    faults.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_place() {
        let good = CredentialProvider {
            name: "ecr".into(),
            match_images: ["*.example.com".into()].into(),
            default_cache_duration: Some(Duration::ZERO),
            api_version: PROTOCOLS[0].into(),
            ..CredentialProvider::default()
        };
        let mut config = CredentialProviderConfig {
            api_version: API_VERSIONS[0].into(),
            kind: KIND.into(),
            providers: [good.clone()].into(),
        };
        assert_eq!(validate(&config), []);
        config.providers.push(good);
        config.providers.push(CredentialProvider { name: "a/b".into(), ..CredentialProvider::default() });
        config.providers[0].match_images.push("https://x".into());
        let paths: Vec<String> = validate(&config).into_iter().map(|fault| fault.path).collect();
        let expected = [
            "providers[0].matchImages[1]",
            "providers[1].name",
            "providers[2].name",
            "providers[2].matchImages",
            "providers[2].defaultCacheDuration",
            "providers[2].apiVersion",
        ];
        assert_eq!(paths, expected);
    }
}
