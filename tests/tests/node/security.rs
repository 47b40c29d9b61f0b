//! Whom a container runs as and what it may do.

use std::fs;

use podkeep_tests::node::{Node, NodeOptions, shell_pod};
use podkeep_tests::trouble::{Doing, Result};
use podkeep_tests::{ensure, image, need_root};

use crate::{field, output_of};

/// A pod that runs `script` once with this container and pod security context.
fn secured(name: &str, script: &str, container: &str, pod: &str) -> String {
    shell_pod(
        name,
        script,
        &format!(
            "    securityContext: {{{container}}}\n  restartPolicy: Never\n  securityContext: {{{pod}}}\n"
        ),
    )
}

const STATUS: &str = "grep -E '^(Cap|NoNewPrivs|Seccomp)' /proc/self/status";

#[test]
fn user_group_and_supplemental_groups() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let text = output_of(
        &node,
        "who",
        &secured(
            "who",
            "id -u; id -g; id -G",
            "",
            "runAsUser: 1000, runAsGroup: 3000, supplementalGroups: [4000]",
        ),
    )?;
    let lines: Vec<&str> = text.lines().collect();
    ensure!(lines.first() == Some(&"1000") && lines.get(1) == Some(&"3000"), "uid and gid: {text}");
    let groups: Vec<&str> = lines.get(2).unwrap_or(&"").split(' ').collect();
    // the image's own groups of uid 1000 are merged in: 2000
    ensure!(groups.contains(&"4000") && groups.contains(&"2000"), "groups: {text}");
    Ok(())
}

#[test]
fn fs_group_owns_volumes() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let more = "    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, emptyDir: {}}]\n  restartPolicy: Never\n  securityContext: {runAsUser: 1000, fsGroup: 5000}\n";
    let text = output_of(&node, "fsg", &shell_pod("fsg", "id -G; touch /v/f && ls -ldn /v /v/f", more))?;
    ensure!(
        text.lines().next().unwrap_or_default().split(' ').any(|g| g == "5000"),
        "in the process's groups: {text}"
    );
    ensure!(
        text.lines().filter(|l| l.contains(" 5000 ")).count() == 2,
        "folder and new file have the group: {text}"
    );
    Ok(())
}

#[test]
fn default_capabilities_seccomp_and_privilege_flags() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let text = output_of(&node, "plain", &secured("plain", STATUS, "", ""))?;
    ensure!(field(&text, "CapBnd:") == "00000000a80425fb", "the default set: {text}");
    ensure!(field(&text, "Seccomp:") == "2", "filter by default: {text}");
    ensure!(field(&text, "NoNewPrivs:") == "0", "{text}");
    let text = output_of(
        &node,
        "nnp",
        &secured(
            "nnp",
            STATUS,
            "allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}",
            "",
        ),
    )?;
    ensure!(field(&text, "NoNewPrivs:") == "1", "{text}");
    ensure!(field(&text, "CapEff:") == "0000000000000400", "only the added one: {text}");
    Ok(())
}

#[test]
fn non_root_has_no_effective_capabilities() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let text = output_of(&node, "user", &secured("user", STATUS, "runAsUser: 1000", ""))?;
    ensure!(field(&text, "CapEff:") == "0000000000000000", "{text}");
    Ok(())
}

#[test]
fn run_as_non_root_refuses_root() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("r.yaml", &secured("r", "true", "runAsNonRoot: true", ""))?;
    let state = node.wait("refused", podkeep_tests::node::PATIENCE, |pods| {
        let pod = podkeep_tests::node::find(pods, "r")?;
        match pod.container("main")?.state() {
            podkeep_tests::pods::State::Waiting { reason, message }
                if reason == "CreateContainerConfigError" =>
            {
                Some(message)
            }
            _ => None,
        }
    })?;
    ensure!(state.contains("root"), "says why: {state}");
    Ok(())
}

#[test]
fn privileged_container_has_all_capabilities_and_devices() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let text = output_of(
        &node,
        "priv",
        &secured(
            "priv",
            &format!(
                "{STATUS}; ls -d /sys/fs/cgroup; mount -t tmpfs x /tmp && echo mounted; ls /dev | wc -l"
            ),
            "privileged: true",
            "",
        ),
    )?;
    let own = fs::read_to_string("/proc/self/status").doing("status")?;
    ensure!(field(&text, "CapEff:") == field(&own, "CapBnd:"), "all that there are: {text}");
    ensure!(field(&text, "Seccomp:") == "0", "{text}");
    ensure!(text.contains("mounted"), "may mount: {text}");
    Ok(())
}

#[test]
fn read_only_root_is_read_only_and_volumes_are_not() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let more = "    securityContext: {readOnlyRootFilesystem: true}\n    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, emptyDir: {}}]\n  restartPolicy: Never\n";
    let text = output_of(
        &node,
        "ro",
        &shell_pod("ro", "touch /x 2>&1 || true; touch /v/x && echo volume ok", more),
    )?;
    ensure!(text.contains("Read-only file system") && text.contains("volume ok"), "{text}");
    Ok(())
}

#[test]
fn seccomp_default_refuses_and_unconfined_does_not() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    // a user namespace of one's own needs unshare, which the default filter keeps for CAP_SYS_ADMIN
    let script = "unshare -U true 2>&1 && echo allowed || echo refused";
    let text = output_of(&node, "filtered", &secured("filtered", script, "", ""))?;
    ensure!(text.contains("refused"), "{text}");
    let text = output_of(
        &node,
        "open",
        &secured("open", &format!("{script}; {STATUS}"), "seccompProfile: {type: Unconfined}", ""),
    )?;
    ensure!(field(&text, "Seccomp:") == "0", "{text}");
    Ok(())
}

#[test]
fn seccomp_localhost_profile_is_applied() -> Result<()> {
    need_root!();
    let node = Node::with(NodeOptions { images: vec![image::BUSYBOX], ..NodeOptions::default() })?;
    let dir = node.state.join("seccomp");
    fs::create_dir_all(&dir).doing("seccomp folder")?;
    fs::write(
        dir.join("nomkdir.json"),
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO","errnoRet":1}]}"#,
    )
    .doing("profile")?;
    let text = output_of(
        &node,
        "lh",
        &secured(
            "lh",
            "mkdir /x 2>&1 || echo no mkdir; touch /y && echo touch ok",
            "seccompProfile: {type: Localhost, localhostProfile: nomkdir.json}",
            "",
        ),
    )?;
    ensure!(text.contains("no mkdir") && text.contains("touch ok"), "{text}");
    Ok(())
}
