//! The resolver's configuration of a pod. Rules: the kubelet's `network/dns`.
use crate::types::{Pod, PodDNSConfig, value};
use alloc::{
    collections::BTreeSet,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};
use core::fmt;

/// The most name servers the C library asks.
const NAMESERVERS_MAX: usize = 3;
/// The most search domains.
const SEARCHES_MAX: usize = 32;
/// The longest search domain, in bytes; some resolvers abort on longer ones.
const SEARCH_MAX: usize = 253;
/// The longest line of search domains, in bytes.
const SEARCH_LINE_MAX: usize = 2048;

/// A resolver's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    /// Addresses in the order they are asked.
    pub nameservers: Vec<String>,
    /// Search domains in order.
    pub searches: Vec<String>,
    /// `name` or `name:value`, each name once.
    pub options: Vec<String>,
}

/// A `nameserver` line without an address. Pods with any policy wait until the node's file is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverError {
    /// Number of the line, from 1.
    pub line: usize,
}

impl fmt::Display for ResolverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {} of the node's resolv.conf is 'nameserver' without an address: correct the file",
            self.line
        )
    }
}

impl core::error::Error for ResolverError {}

/// Something a user should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The policy wants a cluster's DNS and there is none; told for the node and for the pod.
    MissingClusterDns,
    /// More name servers than the resolver asks: the last ones are left out.
    Nameservers,
    /// Too many or too long search domains: some are left out.
    Searches,
}

impl Notice {
    /// Reason of its event.
    pub fn reason(self) -> &'static str {
        match self {
            Notice::MissingClusterDns => "MissingClusterDNS",
            Notice::Nameservers | Notice::Searches => "DNSConfigForming",
        }
    }
}

impl Resolver {
    /// Reads a resolv.conf: name servers add up, the last search line counts, options add up and the last value of a
    /// name counts. Unknown words are passed over.
    pub fn parse(text: &str) -> Result<Resolver, ResolverError> {
        let mut resolver = Resolver::default();
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => match words.next() {
                    Some(address) => resolver.nameservers.push(address.into()),
                    None => return Err(ResolverError { line: index.saturating_add(1) }),
                },
                Some("search") => {
                    let domains = words.filter(|d| *d != ".").map(|d| d.strip_suffix('.').unwrap_or(d));
                    resolver.searches = domains.map(ToString::to_string).collect();
                }
                Some("options") => words.for_each(|option| resolver.option(option)),
                _ => {}
            }
        }
        Ok(resolver)
    }

    /// Adds an option, or replaces the one of the same name.
    fn option(&mut self, option: &str) {
        let name = |o: &str| o.split_once(':').map_or(o, |(name, _)| name).to_string();
        match self.options.iter_mut().find(|o| name(o) == name(option)) {
            Some(slot) => *slot = option.into(),
            None => self.options.push(option.into()),
        }
    }

    /// The text of a resolv.conf.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.searches.is_empty() {
            text.push_str(&format!("search {}\n", self.searches.join(" ")));
        }
        for server in &self.nameservers {
            text.push_str(&format!("nameserver {server}\n"));
        }
        if !self.options.is_empty() {
            text.push_str(&format!("options {}\n", self.options.join(" ")));
        }
        text
    }

    fn add(&mut self, config: &PodDNSConfig) {
        self.nameservers.extend(config.nameservers.iter().cloned());
        self.searches.extend(config.searches.iter().cloned());
        without_repeats(&mut self.nameservers);
        without_repeats(&mut self.searches);
        for option in &config.options {
            match option.value.as_deref() {
                None | Some("") => self.option(&option.name),
                Some(value) => self.option(&format!("{}:{value}", option.name)),
            }
        }
    }

    /// Leaves out what the resolver would not use.
    fn fit(&mut self, notices: &mut Vec<Notice>) {
        if self.nameservers.len() > NAMESERVERS_MAX {
            self.nameservers.truncate(NAMESERVERS_MAX);
            notices.push(Notice::Nameservers);
        }
        let before = self.searches.len();
        self.searches.truncate(SEARCHES_MAX);
        self.searches.retain(|domain| domain.len() <= SEARCH_MAX);
        let length = |list: &[String]| {
            let letters = list.iter().map(String::len).fold(0, usize::saturating_add);
            letters.saturating_add(list.len().saturating_sub(1))
        };
        while length(&self.searches) > SEARCH_LINE_MAX {
            self.searches.pop();
        }
        if self.searches.len() != before {
            notices.push(Notice::Searches);
        }
    }
}

fn without_repeats(list: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    list.retain(|text| seen.insert(text.clone()));
}

/// What the node is set to.
#[derive(Clone, Copy, Debug)]
pub struct NodeDns<'a> {
    /// Text of the file named by `resolvConf`; none if it is set to an empty text.
    pub resolv_conf: Option<&'a str>,
    /// `clusterDNS`.
    pub cluster_dns: &'a [String],
    /// `clusterDomain`.
    pub cluster_domain: &'a str,
    /// Addresses of the node.
    pub node_ips: &'a [String],
}

/// The configuration of a pod with its defaults filled in, and what the user should know about it.
pub fn for_pod(pod: &Pod, node: &NodeDns<'_>) -> Result<(Resolver, Vec<Notice>), ResolverError> {
    // read whatever the policy is: a broken file is a fault of the node, not of some pods
    let host = node.resolv_conf.map(Resolver::parse).transpose()?.unwrap_or_default();
    let spec = &pod.spec;
    let mut notices = Vec::new();
    let cluster = match spec.dns_policy.as_str() {
        value::NONE | value::DNS_DEFAULT => false,
        value::CLUSTER_FIRST => !spec.host_network,
        _ => true,
    };
    let mut resolver = if spec.dns_policy == value::NONE {
        Resolver::default()
    } else if cluster && !node.cluster_dns.is_empty() {
        Resolver {
            nameservers: node.cluster_dns.to_vec(),
            searches: cluster_searches(&host, &pod.metadata.namespace, node.cluster_domain),
            options: vec!["ndots:5".into()],
        }
    } else {
        if cluster {
            notices.extend([Notice::MissingClusterDns, Notice::MissingClusterDns]);
        }
        match node.resolv_conf {
            Some(_) => host,
            None => local_only(node.node_ips),
        }
    };
    if let Some(config) = spec.dns_config.as_deref() {
        resolver.add(config);
    }
    resolver.fit(&mut notices);
    Ok((resolver, notices))
}

fn cluster_searches(host: &Resolver, namespace: &str, domain: &str) -> Vec<String> {
    if domain.is_empty() {
        return host.searches.clone();
    }
    let mut searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_string()];
    searches.extend(host.searches.iter().cloned());
    without_repeats(&mut searches);
    searches
}

/// No resolver was wanted: one that asks this machine, where nobody answers.
fn local_only(node_ips: &[String]) -> Resolver {
    let of_family = |ip: &String| if ip.contains(':') { "::1" } else { "127.0.0.1" };
    let mut nameservers: Vec<String> = node_ips.iter().map(|ip| of_family(ip).into()).collect();
    if nameservers.is_empty() {
        nameservers.push("127.0.0.1".into());
    }
    Resolver { nameservers, searches: vec![".".into()], options: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn long_search_lines_are_cut_at_whole_domains() {
        let domains: Vec<String> = (0..30).map(|n| format!("{}{n:02}", "a".repeat(98))).collect();
        let mut resolver = Resolver { searches: domains.clone(), ..Default::default() };
        let mut notices = Vec::new();
        resolver.fit(&mut notices);
        assert_eq!(resolver.searches, domains[..20]);
        assert_eq!(notices, [Notice::Searches]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(text in "(nameserver|search|options|domain|#x)( [a-z:.0-9]{1,6}){1,3}(\n(nameserver|search|options)( [a-z:.0-9]{1,6}){1,3}){0,4}") {
            let first = Resolver::parse(&text).unwrap();
            let again = Resolver::parse(&first.text()).unwrap();
            prop_assert_eq!(again.nameservers, first.nameservers);
            prop_assert_eq!(again.options, first.options);
        }
    }
}
