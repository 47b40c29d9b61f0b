//! Validation of probes and hooks.
use super::{Path, Report, container, names};
use crate::types::{
    Container, ExecAction, HTTPGetAction, IntOrString, Lifecycle, LifecycleHandler, PodSpec, Probe,
};
use alloc::format;

/// Signals a Linux container can be stopped with.
pub(super) const LINUX_SIGNALS: &[&str] = &[
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMAX-1",
    "SIGRTMAX-2",
    "SIGRTMAX-3",
    "SIGRTMAX-4",
    "SIGRTMAX-5",
    "SIGRTMAX-6",
    "SIGRTMAX-7",
    "SIGRTMAX-8",
    "SIGRTMAX-9",
    "SIGRTMAX-10",
    "SIGRTMAX-11",
    "SIGRTMAX-12",
    "SIGRTMAX-13",
    "SIGRTMAX-14",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

/// Probes and hooks of a container that may have them.
pub(super) fn all(report: &mut Report, c: &Container, spec: &PodSpec, path: &Path<'_>) {
    if let Some(hooks) = &c.lifecycle {
        lifecycle(report, hooks, spec, &path.child("lifecycle"));
    }
    for (name, probe) in probes(c) {
        let Some(probe) = probe else { continue };
        let at = path.child(name);
        check(report, probe, &at);
        if name == "readinessProbe" {
            if let Some(seconds) = probe.termination_grace_period_seconds {
                let grace = at.child("terminationGracePeriodSeconds");
                report.invalid_number(&grace, seconds, "must not be set for readinessProbes");
            }
        } else if probe.success_threshold != 1 {
            report.invalid_number(&at.child("successThreshold"), probe.success_threshold.into(), "must be 1");
        }
    }
}

/// An init container that ends has neither.
pub(super) fn none(report: &mut Report, c: &Container, path: &Path<'_>) {
    let detail = "may not be set for init containers without restartPolicy=Always";
    if c.lifecycle.is_some() {
        report.forbidden(&path.child("lifecycle"), detail);
    }
    for (name, probe) in probes(c) {
        if probe.is_some() {
            report.forbidden(&path.child(name), detail);
        }
    }
}

fn probes(c: &Container) -> [(&'static str, Option<&Probe>); 3] {
    [
        ("livenessProbe", c.liveness_probe.as_deref()),
        ("readinessProbe", c.readiness_probe.as_deref()),
        ("startupProbe", c.startup_probe.as_deref()),
    ]
}

fn check(report: &mut Report, probe: &Probe, path: &Path<'_>) {
    let mut count = 0u32;
    let mut first =
        |report: &mut Report, present: bool, name: &str| only_one(report, present, &mut count, path, name);
    if first(report, probe.exec.is_some(), "exec") {
        exec(report, probe.exec.as_deref(), &path.child("exec"));
    }
    if first(report, probe.http_get.is_some(), "httpGet") {
        http_get(report, probe.http_get.as_deref(), &path.child("httpGet"));
    }
    if first(report, probe.tcp_socket.is_some(), "tcpSocket") {
        let at = path.child("tcpSocket");
        port(report, probe.tcp_socket.as_ref().map(|t| &t.port), &at.child("port"));
    }
    if first(report, probe.grpc.is_some(), "grpc") {
        let at = path.child("grpc");
        let number = probe.grpc.as_ref().map_or(0, |g| i64::from(g.port));
        container::port_number(report, number, &at.child("port"));
    }
    if count == 0 {
        report.required(path, "must specify a handler type");
    }
    for (name, number) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        report.not_negative(path, name, number.into());
    }
    if let Some(seconds) = probe.termination_grace_period_seconds.filter(|s| *s <= 0) {
        report.invalid_number(
            &path.child("terminationGracePeriodSeconds"),
            seconds,
            "must be greater than 0",
        );
    }
}

/// Whether this handler is the first one; a second one is a fault.
fn only_one(report: &mut Report, present: bool, count: &mut u32, path: &Path<'_>, name: &str) -> bool {
    if present && *count > 0 {
        report.forbidden(&path.child(name), "may not specify more than 1 handler type");
    }
    let first = present && *count == 0;
    *count = count.saturating_add(u32::from(present));
    first
}

fn exec(report: &mut Report, action: Option<&ExecAction>, path: &Path<'_>) {
    if action.is_some_and(|a| a.command.is_empty()) {
        report.required(&path.child("command"), "");
    }
}

fn http_get(report: &mut Report, action: Option<&HTTPGetAction>, path: &Path<'_>) {
    let Some(action) = action else { return };
    report.need(path, "path", &action.path);
    port(report, Some(&action.port), &path.child("port"));
    report.one_of(&path.child("scheme"), &action.scheme, &["HTTP", "HTTPS"]);
    for header in &action.http_headers {
        report.grammar(&path.child("httpHeaders"), &header.name, names::is_header_name, names::HEADER);
    }
}

fn port(report: &mut Report, port: Option<&IntOrString>, path: &Path<'_>) {
    match port {
        None => {}
        Some(IntOrString::Int(number)) => container::port_number(report, i64::from(*number), path),
        Some(IntOrString::Str(name)) => report.grammar(path, name, names::is_port_name, names::PORT_NAME),
    }
}

fn lifecycle(report: &mut Report, hooks: &Lifecycle, spec: &PodSpec, path: &Path<'_>) {
    for (name, handler) in [("postStart", &hooks.post_start), ("preStop", &hooks.pre_stop)] {
        if let Some(handler) = handler {
            hook(report, handler, spec, &path.child(name));
        }
    }
    let Some(signal) = &hooks.stop_signal else { return };
    let at = path.child("stopSignal");
    match spec.os.as_ref().map(|os| os.name.as_str()) {
        None | Some("") => report.forbidden(&at, "may not be set for containers with empty `spec.os.name`"),
        Some("windows") => report.one_of(&at, signal, &["SIGKILL", "SIGTERM"]),
        Some(_) => report.one_of(&at, signal, LINUX_SIGNALS),
    }
}

fn hook(report: &mut Report, handler: &LifecycleHandler, spec: &PodSpec, path: &Path<'_>) {
    let mut count = 0u32;
    let mut first =
        |report: &mut Report, present: bool, name: &str| only_one(report, present, &mut count, path, name);
    if first(report, handler.exec.is_some(), "exec") {
        exec(report, handler.exec.as_deref(), &path.child("exec"));
    }
    if first(report, handler.http_get.is_some(), "httpGet") {
        http_get(report, handler.http_get.as_deref(), &path.child("httpGet"));
    }
    if first(report, handler.tcp_socket.is_some(), "tcpSocket") {
        let at = path.child("tcpSocket");
        port(report, handler.tcp_socket.as_ref().map(|t| &t.port), &at.child("port"));
    }
    if first(report, handler.sleep.is_some(), "sleep") {
        let seconds = handler.sleep.as_ref().map_or(0, |s| s.seconds);
        // without a grace period that fault is told elsewhere
        if let Some(grace) = spec.termination_grace_period_seconds.filter(|g| seconds < 0 || seconds > *g) {
            let detail =
                format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
            report.invalid_number(&path.child("sleep"), seconds, &detail);
        }
    }
    if count == 0 {
        report.required(path, "must specify a handler type");
    }
}
