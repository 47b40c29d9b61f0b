//! The command line: every command with an example.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command, value_parser};

fn os(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_parser(value_parser!(OsString)).help(help)
}

fn socket() -> Arg {
    os("socket", "Socket of the agent [default: /run/podkeep/podkeep.sock]").value_name("PATH")
}

fn namespace() -> Arg {
    Arg::new("namespace")
        .short('n')
        .long("namespace")
        .value_name("NAME")
        .help("Namespace of the pod [default: default]")
}

fn container() -> Arg {
    Arg::new("container")
        .short('c')
        .long("container")
        .value_name("NAME")
        .help("Container of the pod [default: the first one]")
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// All commands.
pub(super) fn command() -> Command {
    Command::new("podkeep")
        .about("Runs Kubernetes static pods on this node, without an API server")
        .version(super::VERSION)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(
            "Examples:\n  podkeep run --manifests /etc/podkeep/manifests\n  podkeep check web.yaml\n  podkeep get pods -o wide\n  podkeep logs -f web-board1\n  podkeep exec -it web-board1 -- sh",
        )
        .subcommands([run(), check(), get(), describe(), logs(), exec(), image(), version(), demo()])
        .subcommands(hidden())
}

fn run() -> Command {
    Command::new("run")
        .about("Runs the agent")
        .args([
            os("config", "KubeletConfiguration v1beta1, and our own NodeConfiguration as a second document").value_name("FILE"),
            os("config-dir", "Folder of *.conf files merged over the configuration in the order of their names").value_name("DIR"),
            os("manifests", "Folder or file with manifests; replaces staticPodPath").value_name("DIR"),
            os("state-dir", "What survives a reboot: images, volumes, records [default: /var/lib/podkeep]").value_name("DIR"),
            os("run-dir", "What lives until the reboot: sockets, namespaces [default: /run/podkeep]").value_name("DIR"),
            socket(),
            Arg::new("node-name").long("node-name").value_name("NAME").help("Name of the node [default: the host name]"),
            os("root", "Reads /sys, /proc, /dev and /etc below this folder (tests, snapshots of boards)").value_name("DIR"),
            Arg::new("log-format").long("log-format").value_name("FORMAT").value_parser(["text", "json"]).help("Form of the log lines [default: text]"),
            Arg::new("v").short('v').long("v").value_name("LEVEL").value_parser(value_parser!(u8)).help("Log more: 1 details, 2 everything"),
        ])
        .after_help("Examples:\n  podkeep run --manifests /etc/podkeep/manifests\n  podkeep run --config /etc/podkeep/node.yaml --log-format json\n\nA TERM or a kill of the agent leaves every container running; the next start takes them over.")
}

fn check() -> Command {
    Command::new("check")
        .about("Checks manifests without running them")
        .arg(Arg::new("path").value_name("FILE|DIR").required(true).num_args(1..).value_parser(value_parser!(OsString)).help("Manifests, or folders of them"))
        .after_help("Examples:\n  podkeep check web.yaml\n  podkeep check /etc/podkeep/manifests\n\nFails on unknown fields, too, and names the field that was meant. The agent runs such a pod and warns.")
}

fn output() -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FORM")
        .value_parser(["wide", "json", "yaml"])
        .help("wide: more columns; json, yaml: the v1 objects with their status")
}

fn get() -> Command {
    Command::new("get")
        .about("Lists pods, events or sources")
        .arg_required_else_help(true)
        .args([
            Arg::new("what").required(true).value_name("KIND").value_parser(["pods", "pod", "po", "events", "ev", "sources"]).help("pods, events, or sources (manifest files and what is wrong with them)"),
            Arg::new("name").value_name("NAME").help("One pod only, with or without the node's name at the end"),
            output(),
            Arg::new("watch").short('w').long("watch").action(ArgAction::SetTrue).help("Stay, and print every change"),
            Arg::new("namespace").short('n').long("namespace").value_name("NAME").help("One namespace only [default: all]"),
            socket(),
        ])
        .after_help("Examples:\n  podkeep get pods\n  podkeep get pods -o wide -w\n  podkeep get pod web-board1 -o yaml\n  podkeep get sources")
}

fn describe() -> Command {
    Command::new("describe")
        .about("Tells all about a pod, with its events")
        .args([
            Arg::new("what")
                .required(true)
                .value_name("KIND")
                .value_parser(["pod", "pods", "po"])
                .help("pod"),
            Arg::new("name").value_name("NAME").help("Name of the pod [default: all pods]"),
            Arg::new("namespace")
                .short('n')
                .long("namespace")
                .value_name("NAME")
                .help("One namespace only [default: all]"),
            socket(),
        ])
        .after_help("Example:\n  podkeep describe pod web-board1")
}

fn logs() -> Command {
    Command::new("logs")
        .about("Prints what a container wrote")
        .args([
            Arg::new("pod").required(true).value_name("POD").help("Name of the pod"),
            container(),
            namespace(),
            Arg::new("follow").short('f').long("follow").action(ArgAction::SetTrue).help("Stay until the container ends"),
            Arg::new("previous").short('p').long("previous").action(ArgAction::SetTrue).help("The run before the last restart"),
            Arg::new("tail").long("tail").value_name("N").value_parser(value_parser!(u64)).help("Only the last N lines"),
            Arg::new("since").long("since").value_name("DURATION").help("Only what is younger: 30s, 5m, 2h"),
            Arg::new("since-time").long("since-time").value_name("TIME").help("Only what is younger: 2026-01-31T12:00:00Z"),
            flag("timestamps", "Print the time before every line"),
            Arg::new("limit-bytes").long("limit-bytes").value_name("N").value_parser(value_parser!(u64)).help("Stop after so many bytes"),
            socket(),
        ])
        .after_help("Examples:\n  podkeep logs -f web-board1\n  podkeep logs --tail 100 --timestamps web-board1 -c sidecar\n  podkeep logs --previous web-board1")
}

fn exec() -> Command {
    Command::new("exec")
        .about("Runs a program in a running container")
        .args([
            Arg::new("stdin").short('i').long("stdin").action(ArgAction::SetTrue).help("Pass standard input on"),
            Arg::new("tty").short('t').long("tty").action(ArgAction::SetTrue).help("Give the program a terminal"),
            Arg::new("pod").required(true).value_name("POD").help("Name of the pod"),
            container(),
            namespace(),
            Arg::new("command").required(true).num_args(1..).last(true).value_name("COMMAND").help("Program and its arguments"),
            socket(),
        ])
        .after_help("Examples:\n  podkeep exec web-board1 -- ls /\n  podkeep exec -it web-board1 -c main -- sh\n\nThe exit code is the program's own; 128 + n when signal n ended it, 127 when it was not found.")
}

fn image() -> Command {
    let state = || {
        os("state-dir", "Work on this state folder when no agent answers [default: /var/lib/podkeep]")
            .value_name("DIR")
    };
    Command::new("image")
        .about("Loads, lists, removes and packs images")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("load")
                .about("Takes an image into the store")
                .args([
                    Arg::new("path")
                        .required(true)
                        .value_name("PATH")
                        .value_parser(value_parser!(OsString))
                        .help("OCI layout folder, OCI archive or docker-save archive (also gzip, zstd)"),
                    Arg::new("name")
                        .required(true)
                        .value_name("NAME")
                        .help("Name that manifests use, e.g. registry.example/web:1"),
                    socket(),
                    state(),
                ])
                .after_help("Example:\n  podkeep image load web.tar registry.example/web:1"),
            Command::new("ls")
                .about("Lists the images")
                .args([socket(), state()])
                .after_help("Example:\n  podkeep image ls"),
            Command::new("pull")
                .about("Fetches an image from its registry")
                .args([
                    Arg::new("name")
                        .required(true)
                        .value_name("NAME")
                        .help("Name with registry and tag or digest"),
                    socket(),
                    state(),
                ])
                .after_help("Example:\n  podkeep image pull registry.example/web:1"),
            Command::new("rm")
                .about("Removes an image that no pod uses")
                .args([
                    Arg::new("name").required(true).value_name("NAME").help("Name of the image"),
                    socket(),
                    state(),
                ])
                .after_help("Example:\n  podkeep image rm registry.example/web:1"),
            pack(),
            bake(),
        ])
}

fn platform() -> Arg {
    Arg::new("platform")
        .long("platform")
        .value_name("OS/ARCH[/VARIANT]")
        .help("Machine the image is for, e.g. linux/arm/v7 [default: this one]")
}

fn bake() -> Command {
    Command::new("bake")
        .about("Unpacks images into a folder for a read-only partition, to be used in place (imageDirs)")
        .args([
            Arg::new("source")
                .required(true)
                .num_args(1..)
                .value_name("SRC[=NAME]")
                .help("OCI layout folder, OCI or docker-save archive, and the image's name where it states none"),
            os("out", "New folder to write").value_name("DIR").required(true),
            platform(),
        ])
        .after_help("Example:\n  podkeep image bake --out baked web.tar=registry.example/web:1\n  mksquashfs baked images.squashfs")
}

fn pack() -> Command {
    let many = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("TEXT").action(ArgAction::Append).help(help)
    };
    Command::new("pack")
        .about("Makes an image from a folder or from files, the same bytes each time")
        .args([
            Arg::new("source").required(true).num_args(1..).value_name("SRC").value_parser(value_parser!(OsString)).help("A folder that becomes the root, or files as SRC or SRC:/path/in/image"),
            os("out", "OCI archive (*.tar) or layout folder to write").value_name("PATH").required(true),
            many("entrypoint", "Argument of the entry point; repeat it"),
            many("cmd", "Default argument; repeat it"),
            many("env", "NAME=value; repeat it"),
            many("link", "Symlink to add, as /path/in/image=target; repeat it"),
            Arg::new("name").long("name").value_name("NAME").help("Name written into the archive"),
            Arg::new("user").long("user").value_name("USER").help("User of the program: uid[:gid] or name"),
            Arg::new("workdir").long("workdir").value_name("DIR").help("Working folder"),
            platform(),
        ])
        .after_help("Examples:\n  podkeep image pack rootfs/ --out web.tar --entrypoint /bin/web\n  podkeep image pack /bin/busybox:/bin/busybox --out box.tar --entrypoint /bin/busybox --cmd sh")
}

fn version() -> Command {
    Command::new("version")
        .about("Prints the version of this program, of the agent and of the supervisor")
        .arg(socket())
}

fn demo() -> Command {
    Command::new("demo")
        .about("Runs a small node with two pods, offline, from an image packed out of this very program")
        .arg(
            os("dir", "Where it lives [default: a new folder in the temporary folder, removed at the end]")
                .value_name("DIR"),
        )
        .after_help("Example:\n  podkeep demo\n\nEnds, with everything it made, at Ctrl-C.")
}

fn hidden() -> [Command; 1] {
    [Command::new("demo-app").hide(true)]
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
