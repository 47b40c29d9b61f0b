//! Whole-system tests: real agents, supervisors and containers, each test on a node of its own. They need root and say
//! `skipped: why` where they cannot run.

mod cfg;
mod cgr;
mod commands;
mod containers;
mod kill;
mod lif;
mod log;
mod manifests;
mod security;
mod src;
mod sta;
mod supervision;
mod vol;
mod yml;

/// The output of a pod of one container `main` that ends by itself, after it has succeeded.
fn output_of(node: &podkeep_tests::Node, name: &str, manifest: &str) -> podkeep_tests::Result<String> {
    node.put(&format!("{name}.yaml"), manifest)?;
    node.wait_phase(name, "Succeeded").map_err(|e| {
        let said = node.logs(name, "main").unwrap_or_default();
        podkeep_tests::Trouble::new(format!("{e}\nits output:\n{said}"))
    })?;
    node.logs(name, "main")
}

/// The value of one line `KEY<blank>VALUE` of a text.
fn field(text: &str, key: &str) -> String {
    let line = text.lines().find_map(|l| l.strip_prefix(key));
    line.unwrap_or_default().trim().to_string()
}
