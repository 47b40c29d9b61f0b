//! `resolv_conf.json`: the node's resolver file, and the resolver of a pod.

use podkeep_core::resolv::{self, NodeDns, Notice, Resolver};
use serde_json::Value;

use super::verdict::{Verdict, equal, pod, text, unknown};

pub(crate) fn check(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expected"]);
    match text(input, "op") {
        "parse" => {
            let found = Resolver::parse(text(input, "text")).map(|r| (r, Vec::new()));
            same(found.map_err(|error| error.to_string()), expected).into()
        }
        "podDNS" => pod_dns(input, expected).into(),
        _ => unknown(&input["op"]),
    }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn pod_dns(input: &Value, expected: &Value) -> Result<(), String> {
    let pod = pod(&input["pod"])?;
    let (cluster_dns, node_ips) = (strings(&input["clusterDNS"]), strings(&input["nodeIPs"]));
    let node = NodeDns {
        resolv_conf: input["hostResolvConf"].as_str(),
        cluster_dns: &cluster_dns,
        cluster_domain: text(input, "clusterDomain"),
        node_ips: &node_ips,
    };
    same(resolv::for_pod(&pod, &node).map_err(|error| error.to_string()), expected)
}

fn same(found: Result<(Resolver, Vec<Notice>), String>, expected: &Value) -> Result<(), String> {
    let (resolver, notices) = match (found, expected["error"] == true) {
        (Ok(found), true) => return Err(format!("accepted as {found:?}")),
        (Err(_), true) => return Ok(()),
        (found, false) => found?,
    };
    equal("nameservers", resolver.nameservers, strings(&expected["nameservers"]))?;
    equal("searches", resolver.searches, strings(&expected["searches"]))?;
    let (mut found, mut wanted) = (resolver.options, strings(&expected["options"]));
    found.sort();
    wanted.sort();
    equal("options", found, wanted)?;
    if expected["events"].is_array() {
        let mut reasons: Vec<String> = notices.iter().map(|n| n.reason().to_owned()).collect();
        reasons.sort();
        equal("events", reasons, strings(&expected["events"]))?;
    }
    Ok(())
}
