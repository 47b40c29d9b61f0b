//! From a file in the folder to a pod, and back.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use podkeep_tests::node::{Node, NodeOptions, PATIENCE, find, full_name, shell_pod};
use podkeep_tests::trouble::{Doing, Result};
use podkeep_tests::{ensure, image, need_root};

/// A pod that ends at once when asked to.
pub(crate) fn quick(name: &str, word: &str) -> String {
    shell_pod(name, &format!("trap 'exit 0' TERM; echo {word}; while :; do sleep 0.1; done"), "")
}

#[test]
fn dropped_edited_and_removed_manifest_is_followed() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("web.yaml", &quick("web", "one"))?;
    let first = node.wait_running("web")?;
    node.wait_log("web", "main", "one")?;
    node.put("web.yaml", &quick("web", "two"))?;
    let second = node.wait("the edited pod", PATIENCE, |pods| {
        find(pods, "web").filter(|p| p.uid() != first.uid() && p.all_running())
    })?;
    node.wait_log("web", "main", "two")?;
    ensure!(second.uid() != first.uid(), "an edit is another pod");
    let id = second.container("main").map(|c| c.id()).unwrap_or_default();
    node.remove("web.yaml")?;
    node.wait_gone("web")?;
    ensure!(!node.run.join("c").join(&id).exists(), "nothing is kept of the container");
    let left: Vec<_> = fs::read_dir(node.state.join("pods"))
        .map(|e| e.flatten().map(|e| e.path()).collect())
        .unwrap_or_default();
    ensure!(left.is_empty(), "no folder of a pod is left: {left:?}");
    Ok(())
}

#[test]
fn json_lists_and_several_documents_are_read() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let one = |name: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"main","image":"{}","command":["sleep","600"]}}]}}}}"#,
            image::BUSYBOX
        )
    };
    node.put("a.json", &one("json"))?;
    node.put(
        "b.json",
        &format!(r#"{{"apiVersion":"v1","kind":"List","items":[{},{}]}}"#, one("list1"), one("list2")),
    )?;
    node.put(
        "c.yaml",
        &format!("{}---\n{}", shell_pod("doc1", "sleep 600", ""), shell_pod("doc2", "sleep 600", "")),
    )?;
    for name in ["json", "list1", "list2", "doc1", "doc2"] {
        node.wait_running(name)?;
    }
    Ok(())
}

#[test]
fn broken_manifest_keeps_the_last_good_pod_and_says_where_it_is_broken() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("web.yaml", &quick("web", "good"))?;
    let before = node.wait_running("web")?;
    node.put("web.yaml", &quick("web", "bad").replace("    image:", "   image:"))?;
    let end = std::time::Instant::now() + PATIENCE;
    let told = loop {
        let text = node.ok(&["get", "sources"])?;
        if text.contains("web.yaml") && text.contains(":7:") || std::time::Instant::now() > end {
            break text;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    ensure!(told.contains(":7:"), "file, line and column: {told}");
    let now = node.wait_running("web")?;
    ensure!(
        now.container("main").map(|c| c.id()) == before.container("main").map(|c| c.id()),
        "the pod was not touched"
    );
    node.put("web.yaml", &quick("web", "good"))?;
    loop {
        let text = node.ok(&["get", "sources"])?;
        if !text.contains(":7:") {
            break;
        }
        ensure!(std::time::Instant::now() < end, "the error goes away when mended: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let now = node.wait_running("web")?;
    ensure!(
        now.container("main").map(|c| c.id()) == before.container("main").map(|c| c.id()),
        "mended to what ran: untouched"
    );
    Ok(())
}

#[test]
fn two_files_that_claim_one_pod_are_an_error_and_the_first_keeps_running() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("one.yaml", &quick("web", "first"))?;
    let before = node.wait_running("web")?;
    node.put("two.yaml", &quick("web", "second"))?;
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        let text = node.ok(&["get", "sources"])?;
        if text.lines().any(|l| l.contains("one.yaml") && l.contains("two.yaml")) {
            break;
        }
        ensure!(std::time::Instant::now() < end, "both files are named: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let now = node.wait_running("web")?;
    ensure!(now.uid() == before.uid(), "the first one runs on");
    Ok(())
}

#[test]
fn unknown_field_runs_with_a_warning_and_fails_the_check() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    let text = quick("typo", "x").replace("    image:", "    imagePullPolcy: Never\n    image:");
    node.put("typo.yaml", &text)?;
    node.wait_running("typo")?;
    let sources = node.ok(&["get", "sources"])?;
    ensure!(
        sources.contains("imagePullPolcy") && sources.contains("imagePullPolicy"),
        "warned with what was meant: {sources}"
    );
    let file = node.manifests.join("typo.yaml");
    let out = std::process::Command::new(podkeep_tests::node::podkeep()?)
        .arg("check")
        .arg(&file)
        .output()
        .doing("check")?;
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    ensure!(
        !out.status.success() && said.contains("did you mean") && said.contains("imagePullPolicy"),
        "{said}"
    );
    Ok(())
}

#[test]
fn single_file_is_a_source_too() -> Result<()> {
    need_root!();
    let mut node = Node::prepare(NodeOptions::default())?;
    let file = node.root.join("only.yaml");
    fs::write(&file, quick("only", "x")).doing("only.yaml")?;
    node.manifests = file.clone();
    node.start_agent()?;
    node.load_image(image::BUSYBOX)?;
    node.wait_running("only")?;
    fs::write(node.root.join("new"), quick("other", "x")).doing("new")?;
    fs::rename(node.root.join("new"), &file).doing("rename")?;
    node.wait_running("other")?;
    node.wait_gone("only")
}

/// A web server of one page that can be changed while it runs.
struct Page {
    /// status and body; `None` hangs up
    answer: Mutex<Option<(u16, String)>>,
    /// header lines of each request
    seen: Mutex<Vec<String>>,
}

fn serve(page: Arc<Page>) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").doing("listen")?;
    let port = listener.local_addr().doing("port")?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut head = String::new();
            let Ok(copy) = stream.try_clone() else { continue };
            let mut reader = BufReader::new(copy);
            while reader.read_line(&mut head).is_ok_and(|n| n > 2) {}
            page.seen.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
            let answer = page.answer.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some((status, body)) = answer else { continue };
            let tag = format!("\"{}\"", body.len());
            let mut stream = stream;
            let sent = if status == 200 && head.to_lowercase().contains(&format!("if-none-match: {tag}")) {
                write!(
                    stream,
                    "HTTP/1.1 304 x\r\nETag: {tag}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
            } else {
                write!(
                    stream,
                    "HTTP/1.1 {status} x\r\nETag: {tag}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                )
            };
            if sent.is_err() {
                continue;
            }
        }
    });
    Ok(port)
}

#[test]
fn manifest_url_is_asked_conditionally_and_the_last_good_pod_is_kept() -> Result<()> {
    need_root!();
    let page =
        Arc::new(Page { answer: Mutex::new(Some((200, quick("fromurl", "x")))), seen: Mutex::default() });
    let port = serve(Arc::clone(&page))?;
    let config = format!(
        "staticPodURL: http://127.0.0.1:{port}/pods\nstaticPodURLHeader: {{X-Device: [board-7]}}\nhttpCheckFrequency: 300ms\n"
    );
    let node = Node::with(NodeOptions { config, images: vec![image::BUSYBOX], ..NodeOptions::default() })?;
    let pod = node.wait_running("fromurl")?;
    let requests = || page.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let wait_for = |what: &str, enough: &dyn Fn(&[String]) -> bool| -> Result<()> {
        let end = std::time::Instant::now() + PATIENCE;
        while !enough(&requests()) {
            ensure!(std::time::Instant::now() < end, "{what}: {:?}", requests());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    };
    wait_for("headers of the configuration", &|all| {
        all.iter().any(|h| h.to_lowercase().contains("x-device: board-7"))
    })?;
    wait_for("conditional requests", &|all| all.iter().any(|h| h.to_lowercase().contains("if-none-match:")))?;
    for bad in [Some((200, "{[ rubbish".to_string())), Some((500, String::new())), None] {
        *page.answer.lock().unwrap_or_else(PoisonError::into_inner) = bad;
        let asked = requests().len();
        wait_for("further requests", &|all| all.len() >= asked + 2)?;
        let now = node.wait_running("fromurl")?;
        ensure!(
            now.container("main").map(|c| c.id()) == pod.container("main").map(|c| c.id()),
            "the pod was not touched"
        );
    }
    *page.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some((200, quick("next", "x")));
    node.wait_running("next")?;
    node.wait_gone("fromurl")
}

#[test]
fn config_maps_and_secrets_of_the_folder_are_kept() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("settings.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {rate: \"10\"}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {token: hush-hush}\n")?;
    node.put("web.yaml", &quick("web", "x"))?;
    node.wait_running("web")?;
    let sources = node.ok(&["get", "sources"])?;
    let line = sources.lines().find(|l| l.contains("settings.yaml")).unwrap_or_default();
    ensure!(!line.is_empty() && !sources.contains("hush-hush"), "known without its secret: {sources}");
    ensure!(!node.agent_log()?.contains("hush-hush"), "not in the log");
    Ok(())
}

#[test]
fn static_pod_has_the_kubelets_identity() -> Result<()> {
    need_root!();
    let node = Node::start()?;
    node.put("id.yaml", &quick("id", "x"))?;
    let pod = node.wait_running("id")?;
    ensure!(
        pod.name() == full_name("id") && pod.namespace() == "default",
        "{} {}",
        pod.name(),
        pod.namespace()
    );
    ensure!(pod.uid().len() == 32 && pod.uid().bytes().all(|b| b.is_ascii_hexdigit()), "uid: {}", pod.uid());
    let note = |key: &str| {
        pod.json
            .pointer(&format!("/metadata/annotations/{}", key.replace('/', "~1")))
            .and_then(|v| v.as_str())
            .map(str::to_string)
    };
    ensure!(note("kubernetes.io/config.hash") == Some(pod.uid()), "hash annotation");
    ensure!(note("kubernetes.io/config.source") == Some("file".into()), "source annotation");
    ensure!(pod.json.pointer("/spec/nodeName").and_then(|v| v.as_str()) == Some("node1"), "node name");
    Ok(())
}
