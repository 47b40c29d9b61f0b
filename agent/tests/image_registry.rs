//! Pulls from Debian's `docker-registry`, filled by skopeo, and from a scripted server for all that a real one
//! does only on a bad day.

mod image_support;
#[path = "image_support/server.rs"]
mod server;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use image_support::{Folder, Tar, describe, has, run};
use podkeep::image::load::load;
use podkeep::image::pack::{PackOrder, PackSource, pack};
use podkeep::image::pull::pull;
use podkeep::image::{
    Credential, Digest, ImageConfig, ImageError, ImageStore, Keyring, Origin, Progress, RegistryEntry,
    RegistrySettings, Store,
};
use podkeep_core::image::{Platform, PullPolicy};
use server::{Answer, Server};

fn amd64() -> Platform {
    Platform { os: "linux".into(), architecture: "amd64".into(), variant: String::new() }
}

fn store(folder: &Folder) -> Store {
    Store::open_for(&folder.join("state"), amd64()).unwrap()
}

fn pull_plain(store: &Store, name: &str) -> Result<(), ImageError> {
    pull(store, &RegistrySettings::default(), name, &Keyring::default(), &Progress::default())
}

fn basic(username: &str, password: &str) -> Credential {
    Credential::Basic { username: username.into(), password: password.into() }
}

fn layer_folders(store: &Store) -> usize {
    let entries = std::fs::read_dir(store.root().join("layers")).unwrap();
    entries.filter(|e| e.as_ref().unwrap().file_type().unwrap().is_dir()).count()
}

fn is_tidy(store: &Store) -> bool {
    std::fs::read_dir(store.root().join("tmp")).unwrap().next().is_none()
}

// ---- a real registry ---------------------------------------------------------------------------------

struct Registry {
    child: Child,
    address: String,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn registry_program() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("PODKEEP_DOCKER_REGISTRY") {
        return Some(path.into());
    }
    has("docker-registry").then(|| "docker-registry".into())
}

/// Starts a registry on a free loopback port; `more` goes below `http:` and `auth:`.
fn start_registry(folder: &Folder, http: &str, auth: &str) -> Option<Registry> {
    let program = registry_program()?;
    if !has("skopeo") {
        return None;
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("localhost:{port}");
    let config = format!(
        "version: 0.1\nlog: {{level: info}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\nhttp:\n  addr: 127.0.0.1:{port}\n{http}{auth}",
        folder.join("registry").display()
    );
    std::fs::write(folder.join("registry.yml"), config).unwrap();
    let mut child = Command::new(program)
        .args(["serve", folder.join("registry.yml").to_str().unwrap()])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let listening = lines.by_ref().map_while(Result::ok).any(|line| line.contains("listening on"));
    assert!(listening, "docker-registry did not start");
    // its log must go on being read, or it stops when the pipe is full
    std::thread::spawn(move || lines.for_each(drop));
    Some(Registry { child, address })
}

fn source(folder: &Folder) -> PathBuf {
    let root = folder.join("source");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::write(root.join("bin/hello"), "#!/bin/sh\necho hello\n").unwrap();
    std::fs::write(
        root.join("data"),
        (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<_>>(),
    )
    .unwrap();
    root
}

fn layout(folder: &Folder) -> PathBuf {
    let layout = folder.join("layout");
    std::fs::create_dir_all(&layout).unwrap();
    let order = PackOrder {
        sources: vec![PackSource::parse(source(folder).to_str().unwrap())],
        config: ImageConfig { cmd: vec!["/bin/hello".into()], ..ImageConfig::default() },
        name: Some("demo:v1".into()),
        platform: amd64(),
        ..PackOrder::default()
    };
    pack(&order, &layout).unwrap();
    layout
}

fn push(folder: &Folder, registry: &Registry, options: &[&str], name: &str) {
    let from = format!("oci:{}:v1", layout(folder).display());
    let to = format!("docker://{}/{name}", registry.address);
    run("skopeo", &[&["copy", "-q"], options, &[&from, &to]].concat());
}

#[test]
fn pulled_image_is_the_loaded_one() {
    let folder = Folder::new("registry");
    let Some(registry) = start_registry(&folder, "", "") else { return };
    push(&folder, &registry, &["--dest-tls-verify=false"], "team/demo:v1");
    let store = store(&folder);
    let name = format!("{}/team/demo:v1", registry.address);
    let progress = Progress::default();
    pull(&store, &RegistrySettings::default(), &name, &Keyring::default(), &progress).unwrap();
    let image = store.get(&name).unwrap().unwrap();
    assert_eq!(image.config.cmd, ["/bin/hello"]);
    let step = progress.step();
    assert_eq!((step.layers, step.layers_done), (1, 1));
    assert!(step.bytes > 10_000 && step.bytes == step.bytes_total, "{step:?}");
    assert_eq!(store.list().unwrap()[0].source, Origin::Pulled);

    let other = Store::open_for(&folder.join("other"), amd64()).unwrap();
    load(&other, &folder.join("layout"), Some("x"), &Progress::default()).unwrap();
    let loaded = other.get("x").unwrap().unwrap();
    assert_eq!((loaded.id, loaded.manifest), (image.id, image.manifest));
    let (ours, theirs) = (describe(&image.layers[0]), describe(&loaded.layers[0]));
    assert!(ours.contains_key("/bin/hello"));
    assert_eq!(ours, theirs);

    // by digest, and again: nothing is fetched twice
    let pinned = format!("{}/team/demo@{}", registry.address, image.manifest.unwrap());
    let again = Progress::default();
    pull(&store, &RegistrySettings::default(), &pinned, &Keyring::default(), &again).unwrap();
    assert_eq!(again.step().bytes, 0);
    assert_eq!(store.get(&pinned).unwrap().unwrap().id, image.id);
    let missing = format!("{}/team/other:v1", registry.address);
    assert_eq!(pull_plain(&store, &missing), Err(ImageError::NotInRegistry { name: missing.clone() }));
    assert!(is_tidy(&store));
}

/// skopeo can push schema 2 and OCI; both come in.
#[test]
fn docker_schema_is_pulled_and_policy_obeyed() {
    let folder = Folder::new("schema2");
    let Some(registry) = start_registry(&folder, "", "") else { return };
    push(&folder, &registry, &["--dest-tls-verify=false", "--format", "v2s2"], "demo:v2");
    let name = format!("{}/demo:v2", registry.address);
    let images = ImageStore::from(store(&folder));
    smol::block_on(async {
        let ensure = |policy| {
            let (images, name) = (images.clone(), name.clone());
            async move { images.ensure(&name, policy, &Keyring::default(), Arc::default()).await }
        };
        assert!(matches!(ensure(PullPolicy::Never).await, Err(ImageError::NotFound { .. })));
        let image = ensure(PullPolicy::IfNotPresent).await.unwrap();
        assert_eq!(image.config.cmd, ["/bin/hello"]);
        drop(registry);
        assert_eq!(ensure(PullPolicy::IfNotPresent).await.unwrap(), image);
        assert_eq!(ensure(PullPolicy::Never).await.unwrap(), image);
        let gone = ensure(PullPolicy::Always).await.unwrap_err();
        assert!(matches!(gone, ImageError::Unreachable { .. }), "{gone:?}");
        assert_eq!(gone.reason().as_str(), "RegistryUnavailable");
    });
}

#[test]
fn password_of_a_real_registry() {
    let folder = Folder::new("htpasswd");
    std::fs::write(
        folder.join("htpasswd"),
        "user:$2b$04$Tms8VFfugHl.0hDc0ul2gOi1RbyCL/9cqHPVE17ALehc0K3tigEWm\n",
    )
    .unwrap();
    let auth = format!("auth:\n  htpasswd: {{realm: test, path: {}}}\n", folder.join("htpasswd").display());
    let Some(registry) = start_registry(&folder, "", &auth) else { return };
    push(&folder, &registry, &["--dest-tls-verify=false", "--dest-creds", "user:secret"], "demo:v1");
    let store = store(&folder);
    let name = format!("{}/demo:v1", registry.address);
    let with = |credentials: &[Credential]| {
        let mut ring = Keyring::default();
        credentials.iter().for_each(|credential| ring.push(&registry.address, credential.clone()));
        pull(&store, &RegistrySettings::default(), &name, &ring, &Progress::default())
    };
    assert!(matches!(with(&[]), Err(ImageError::Denied { status: 401, .. })));
    let wrong = with(&[basic("user", "wrong")]).unwrap_err();
    assert!(matches!(wrong, ImageError::Denied { status: 401, .. }), "{wrong:?}");
    assert!(!wrong.to_string().contains("wrong") || !wrong.to_string().contains("secret"));
    assert_eq!(wrong.reason().as_str(), "ErrImagePull");
    with(&[basic("user", "wrong"), basic("user", "secret")]).unwrap();

    // the same through Docker's file
    let config = format!(r#"{{"auths":{{"{}":{{"auth":"dXNlcjpzZWNyZXQ="}}}}}}"#, registry.address);
    std::fs::write(folder.join("config.json"), config).unwrap();
    let settings =
        RegistrySettings { docker_config: Some(folder.join("config.json")), ..RegistrySettings::default() };
    pull(&store, &settings, &name, &Keyring::default(), &Progress::default()).unwrap();
}

#[cfg(feature = "tls")]
#[test]
fn private_authority_is_trusted_where_it_is_named_and_only_there() {
    if !has("openssl") {
        return;
    }
    let folder = Folder::new("tls");
    let script = r#"
        set -e; cd "$1"
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca 2>/dev/null
        printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' > ext
        openssl req -newkey rsa:2048 -nodes -keyout key.pem -out req.pem -subj /CN=localhost 2>/dev/null
        openssl x509 -req -in req.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out cert.pem 2>/dev/null
        : > index; echo 01 > serial
        printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n' > ca.cnf
        openssl ca -batch -config ca.cnf -cert ca.pem -keyfile ca.key -in req.pem -extfile ext -out future.pem -notext \
            -startdate 20980101000000Z -enddate 20990101000000Z 2>/dev/null"#;
    run("sh", &["-c", script, "sh", folder.0.to_str().unwrap()]);
    let tls = |certificate: &str| {
        format!(
            "  tls: {{certificate: {}, key: {}}}\n",
            folder.join(certificate).display(),
            folder.join("key.pem").display()
        )
    };
    let Some(registry) = start_registry(&folder, &tls("cert.pem"), "") else { return };
    push(&folder, &registry, &["--dest-tls-verify=false"], "demo:v1");
    let name = format!("{}/demo:v1", registry.address);
    let trusting = |ca: &Path, address: &str| RegistrySettings {
        registries: [(
            address.to_owned(),
            RegistryEntry { ca_file: Some(ca.to_owned()), ..RegistryEntry::default() },
        )]
        .into(),
        ..RegistrySettings::default()
    };
    let try_pull = |settings: &RegistrySettings, name: &str| {
        let store = Store::open_for(&folder.join("state"), amd64()).unwrap();
        pull(&store, settings, name, &Keyring::default(), &Progress::default())
    };
    try_pull(&trusting(&folder.join("ca.pem"), &registry.address), &name).unwrap();
    // another authority
    let error = try_pull(&trusting(&folder.join("cert.pem"), &registry.address), &name).unwrap_err();
    assert!(matches!(&error, ImageError::Tls { .. }), "{error:?}");
    // an encrypted server spoken to in plain
    let plain = try_pull(&RegistrySettings::default(), &name).unwrap_err();
    assert!(matches!(plain, ImageError::Protocol { .. } | ImageError::Unreachable { .. }), "{plain:?}");
    drop(registry);
    let registry = start_registry(&folder, &tls("future.pem"), "").unwrap();
    let name = format!("{}/demo:v1", registry.address);
    let error = try_pull(&trusting(&folder.join("ca.pem"), &registry.address), &name).unwrap_err();
    assert!(error.to_string().contains("the clock of this machine is before"), "{error}");
}

// ---- a scripted server -------------------------------------------------------------------------------

/// An image of one plain layer, as a server gives it.
struct Served {
    manifest: Vec<u8>,
    config: Vec<u8>,
    layer: Vec<u8>,
}

fn served() -> Served {
    let body: String =
        (0..200_000u32).map(|n| char::from(b'a' + (n.wrapping_mul(7919) >> 3) as u8 % 26)).collect();
    let layer = Tar::default().file("etc/os", "test").file("big", &body).end();
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{"Cmd":["/x"]}},"rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
        Digest::of(&layer)
    )
    .into_bytes();
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{{"digest":"{}","size":{}}},"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"{}","size":{}}}]}}"#,
        Digest::of(&config),
        config.len(),
        Digest::of(&layer),
        layer.len()
    )
    .into_bytes();
    Served { manifest, config, layer }
}

impl Served {
    /// The plain answer of a registry to a path.
    fn answer(&self, path: &str) -> Answer {
        let find = |digest: Digest| path.ends_with(&digest.to_string());
        match path {
            _ if path.contains("/manifests/v1") || find(Digest::of(&self.manifest)) => {
                Answer::ok(&self.manifest)
            }
            _ if find(Digest::of(&self.config)) => Answer::ok(&self.config),
            _ if find(Digest::of(&self.layer)) => Answer::ok(&self.layer),
            _ => Answer::status(404),
        }
    }

    fn is_layer(&self, path: &str) -> bool {
        path.ends_with(&Digest::of(&self.layer).to_string())
    }
}

fn check_pulled(store: &Store, name: &str) {
    let image = store.get(name).unwrap().unwrap();
    assert_eq!(std::fs::read(image.layers[0].join("etc/os")).unwrap(), b"test");
    assert!(is_tidy(store));
}

#[test]
fn token_is_fetched_used_and_renewed() {
    let image = Arc::new(served());
    let served = Arc::clone(&image);
    let server = Server::start(move |request, number| {
        if request.path.starts_with("/token") {
            assert!(
                request.path.contains("service=svc") && request.path.contains("scope=repository"),
                "{}",
                request.path
            );
            return match request.header("authorization") {
                // me:pw
                Some("Basic bWU6cHc=") => Answer::ok(format!(r#"{{"token":"t{number}"}}"#).as_bytes()),
                _ => Answer::status(401),
            };
        }
        let challenge = format!(
            r#"Bearer realm="http://{}/token",service="svc",scope="repository:a/b:pull""#,
            request.host
        );
        let token =
            request.header("authorization").and_then(|a| a.strip_prefix("Bearer t")?.parse::<usize>().ok());
        // a token is good for two requests
        match token {
            Some(token) if number <= token + 2 => served.answer(&request.path),
            _ => Answer::status(401).with("www-authenticate", &challenge),
        }
    });
    let folder = Folder::new("token");
    let store = store(&folder);
    let name = format!("{}/a/b:v1", server.address);
    let mut ring = Keyring::default();
    ring.push(&server.address, basic("me", "pw"));
    pull(&store, &RegistrySettings::default(), &name, &ring, &Progress::default()).unwrap();
    check_pulled(&store, &name);
    let tokens = server.requests().iter().filter(|request| request.path.starts_with("/token")).count();
    assert_eq!(tokens, 2, "renewed once");

    let mut wrong = Keyring::default();
    wrong.push(&server.address, basic("me", "no"));
    let error = pull(&store, &RegistrySettings::default(), &name, &wrong, &Progress::default()).unwrap_err();
    assert!(matches!(error, ImageError::Denied { status: 401, .. }), "{error:?}");
}

#[test]
fn identity_token_is_exchanged() {
    let served = served();
    let server = Server::start(move |request, _| {
        if request.path.starts_with("/token") {
            assert_eq!(request.method, "POST");
            assert!(
                request.body.contains("grant_type=refresh_token")
                    && request.body.contains("refresh_token=idt"),
                "{}",
                request.body
            );
            return Answer::ok(br#"{"access_token":"acc"}"#);
        }
        match request.header("authorization") {
            Some("Bearer acc") => served.answer(&request.path),
            _ => Answer::status(401)
                .with("www-authenticate", &format!("Bearer realm=\"http://{}/token\"", request.host)),
        }
    });
    let folder = Folder::new("identity");
    let store = store(&folder);
    let name = format!("{}/a/b:v1", server.address);
    let mut ring = Keyring::default();
    ring.push(&server.address, Credential::Identity("idt".into()));
    pull(&store, &RegistrySettings::default(), &name, &ring, &Progress::default()).unwrap();
    check_pulled(&store, &name);
}

#[test]
fn broken_connections_are_taken_up_where_they_broke() {
    for with_ranges in [true, false] {
        let image = Arc::new(served());
        let served = Arc::clone(&image);
        let server = Server::start(move |request, _| {
            if !served.is_layer(&request.path) {
                return served.answer(&request.path);
            }
            let from: usize = request.header("range").map_or(0, |range| {
                range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse().unwrap()
            });
            let total = served.layer.len();
            let begin = if with_ranges { from } else { 0 };
            let mut answer = Answer::ok(&served.layer[begin..]);
            if with_ranges && from > 0 {
                answer = answer
                    .with_status(206)
                    .with("content-range", &format!("bytes {from}-{}/{total}", total - 1));
            }
            // each connection gives 70,000 new bytes and breaks
            answer.cut_after(from - begin + 70_000)
        });
        let folder = Folder::new("resume");
        let store = store(&folder);
        let name = format!("{}/a/b:v1", server.address);
        pull_plain(&store, &name).unwrap();
        check_pulled(&store, &name);
        let starts: Vec<String> = server
            .requests()
            .iter()
            .filter(|request| image.is_layer(&request.path))
            .map(|request| request.header("range").unwrap_or("-").to_owned())
            .collect();
        assert_eq!(starts[0], "-");
        assert!(
            starts.len() >= 3 && starts[1..].iter().all(|range| range.starts_with("bytes=")),
            "{starts:?}"
        );
    }
}

#[test]
fn server_that_restarts_in_the_middle_is_waited_for() {
    let image = Arc::new(served());
    let served = Arc::clone(&image);
    let first = Server::start(move |request, _| {
        let answer = served.answer(&request.path);
        if served.is_layer(&request.path) { answer.cut_after(70_000) } else { answer }
    });
    let folder = Folder::new("restart");
    let store = store(&folder);
    let name = format!("{}/a/b:v1", first.address);
    // the layer begins: the server goes, and a new one comes while the pull tries again
    let (begin, begun) = std::sync::mpsc::channel();
    let progress = Progress::with_listener(Box::new(move |step| {
        if step.bytes_total > 0 {
            begin.send(()).ok();
        }
    }));
    let second = std::thread::spawn(move || {
        begun.recv().unwrap();
        let address = first.address.clone();
        drop(first);
        std::thread::sleep(std::time::Duration::from_millis(400));
        Server::start_at(&address, move |request, _| image.answer(&request.path))
    });
    pull(&store, &RegistrySettings::default(), &name, &Keyring::default(), &progress).unwrap();
    drop(second.join().unwrap());
    check_pulled(&store, &name);
}

/// A pod without the secret that brought an image has to prove itself, one with it has not.
#[test]
fn image_of_a_secret_is_not_given_to_everybody() {
    let image = Arc::new(served());
    let served = Arc::clone(&image);
    let server = Server::start(move |request, _| match request.header("authorization") {
        // me:pw, you:pw
        Some("Basic bWU6cHc=" | "Basic eW91OnB3") => served.answer(&request.path),
        _ => Answer::status(401).with("www-authenticate", "Basic realm=x"),
    });
    let folder = Folder::new("access");
    let images = ImageStore::from(store(&folder));
    let name = format!("{}/a/b:v1", server.address);
    let secret = |title: &str, user: &str, password: &str| {
        let entry = format!(
            r#"{{"auths":{{"{}":{{"username":"{user}","password":"{password}"}}}}}}"#,
            server.address
        );
        let mut ring = Keyring::default();
        ring.add(title, entry.as_bytes()).unwrap();
        ring
    };
    let ensure = |policy, ring: Keyring| smol::block_on(images.ensure(&name, policy, &ring, Arc::default()));
    ensure(PullPolicy::IfNotPresent, secret("ns/mine", "me", "pw")).unwrap();
    let before = server.requests().len();
    // the same credentials from another secret; the same secret with another password
    ensure(PullPolicy::Never, secret("ns/other", "me", "pw")).unwrap();
    ensure(PullPolicy::Never, secret("ns/mine", "me", "changed")).unwrap();
    assert_eq!(server.requests().len(), before, "nothing was asked");
    assert!(matches!(ensure(PullPolicy::Never, Keyring::default()), Err(ImageError::NotFound { .. })));
    let denied = ensure(PullPolicy::IfNotPresent, secret("ns/yours", "you", "wrong")).unwrap_err();
    assert!(matches!(denied, ImageError::Denied { status: 401, .. }), "{denied:?}");
    let nobody = ensure(PullPolicy::IfNotPresent, Keyring::default());
    assert!(matches!(nobody, Err(ImageError::Denied { .. })), "{nobody:?}");
    // proven once, and from then on free of asking
    ensure(PullPolicy::IfNotPresent, secret("ns/yours", "you", "pw")).unwrap();
    ensure(PullPolicy::Never, secret("ns/yours", "you", "pw")).unwrap();
    // no password is written down
    let mut access = std::fs::read_dir(images.store().root().join("access")).unwrap();
    let text = std::fs::read_to_string(access.next().unwrap().unwrap().path()).unwrap();
    assert!(!text.contains("\"pw\"") && text.contains("ns/yours"), "{text}");
    // what was loaded from a file is everybody's
    let (source, archive) = (folder.join("loaded"), folder.join("loaded.tar"));
    std::fs::create_dir(&source).unwrap();
    let sources = vec![PackSource::parse(source.to_str().unwrap())];
    pack(&PackOrder { sources, platform: amd64(), ..PackOrder::default() }, &archive).unwrap();
    load(images.store(), &archive, Some("quay.io/x/loaded"), &Progress::default()).unwrap();
    let nothing = Keyring::default();
    let found = images.ensure("quay.io/x/loaded", PullPolicy::Never, &nothing, Arc::default());
    smol::block_on(found).unwrap();
}

#[test]
fn rate_limit_is_waited_out() {
    let served = served();
    let server = Server::start(move |request, number| match number {
        0 | 2 => Answer::status(429).with("retry-after", "1"),
        _ => served.answer(&request.path),
    });
    let folder = Folder::new("rate");
    let store = store(&folder);
    let name = format!("{}/a/b:v1", server.address);
    let begin = std::time::Instant::now();
    pull_plain(&store, &name).unwrap();
    assert!(begin.elapsed().as_secs() >= 2);
    check_pulled(&store, &name);

    let server = Server::start(|_, _| Answer::status(429).with("retry-after", "3600"));
    let error = pull_plain(&store, &format!("{}/a/b:v1", server.address)).unwrap_err();
    assert!(matches!(error, ImageError::RateLimited { retry_after: Some(3600), .. }), "{error:?}");
}

#[test]
fn wrong_content_is_never_kept() {
    let image = Arc::new(served());
    for victim in ["manifest", "config", "layer"] {
        let served = Arc::clone(&image);
        let server = Server::start(move |request, _| {
            let mut answer = served.answer(&request.path);
            let is_victim = match victim {
                "layer" => served.is_layer(&request.path),
                "config" => request.path.ends_with(&Digest::of(&served.config).to_string()),
                _ => request.path.contains("/manifests/sha256:"),
            };
            if is_victim {
                let middle = answer.body.len() / 2;
                answer.body[middle] ^= 1;
            }
            answer
        });
        let folder = Folder::new("wrong");
        let store = store(&folder);
        let name = match victim {
            "manifest" => format!("{}/a/b@{}", server.address, Digest::of(&image.manifest)),
            _ => format!("{}/a/b:v1", server.address),
        };
        let error = pull_plain(&store, &name).unwrap_err();
        assert!(matches!(error, ImageError::DigestMismatch { .. }), "{victim}: {error:?}");
        assert_eq!(store.get(&name).unwrap(), None);
        assert!(is_tidy(&store) && layer_folders(&store) == 0);
    }
}

#[test]
fn mirror_is_asked_first_and_the_registry_when_it_fails() {
    let served = Arc::new(served());
    let good = Arc::clone(&served);
    let origin = Server::start(move |request, _| good.answer(&request.path));
    let mirror = Server::start(|_, _| Answer::status(404));
    let mirrors = vec![format!("http://{}", mirror.address)];
    let settings = RegistrySettings {
        registries: [(origin.address.clone(), RegistryEntry { mirrors, ..RegistryEntry::default() })].into(),
        ..RegistrySettings::default()
    };
    let folder = Folder::new("mirror");
    let store = store(&folder);
    let name = format!("{}/a/b:v1", origin.address);
    pull(&store, &settings, &name, &Keyring::default(), &Progress::default()).unwrap();
    check_pulled(&store, &name);
    let asked = mirror.requests();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].path.ends_with(&format!("?ns={}", origin.address)), "{}", asked[0].path);
}

#[test]
fn credentials_do_not_follow_a_redirect() {
    let served = Arc::new(served());
    let content = Arc::clone(&served);
    let storage = Server::start(move |request, _| content.answer(&request.path));
    let target = storage.address.replace("localhost", "127.0.0.1");
    let image = Arc::clone(&served);
    let server = Server::start(move |request, _| match request.header("authorization") {
        None => Answer::status(401).with("www-authenticate", "Basic realm=x"),
        Some(_) if request.path.contains("/blobs/") => {
            Answer::status(307).with("location", &format!("http://{target}{}", request.path))
        }
        Some(_) => image.answer(&request.path),
    });
    let folder = Folder::new("redirect");
    let store = store(&folder);
    let name = format!("{}/a/b:v1", server.address);
    let mut ring = Keyring::default();
    ring.push(&server.address, basic("me", "pw"));
    pull(&store, &RegistrySettings::default(), &name, &ring, &Progress::default()).unwrap();
    check_pulled(&store, &name);
    assert!(
        storage.requests().len() == 2
            && storage.requests().iter().all(|r| r.header("authorization").is_none())
    );
}

#[test]
fn platform_is_chosen_from_an_index_and_its_digest_names_the_image() {
    let served = Arc::new(served());
    let index = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[
            {{"digest":"{}","size":1,"platform":{{"os":"linux","architecture":"arm64"}}}},
            {{"digest":"{}","size":{},"platform":{{"os":"linux","architecture":"amd64"}}}}]}}"#,
        Digest::of(b"other"),
        Digest::of(&served.manifest),
        served.manifest.len()
    );
    let (content, image) = (index.clone(), Arc::clone(&served));
    let server = Server::start(move |request, _| {
        if request.path.ends_with("/manifests/multi")
            || request.path.ends_with(&Digest::of(content.as_bytes()).to_string())
        {
            return Answer::ok(content.as_bytes());
        }
        image.answer(&request.path)
    });
    let folder = Folder::new("index");
    let first = store(&folder);
    let name = format!("{}/a/b:multi", server.address);
    pull_plain(&first, &name).unwrap();
    let digest = Digest::of(index.as_bytes());
    assert_eq!(first.get(&name).unwrap().unwrap().manifest, Some(digest));
    assert!(first.get(&format!("{}/a/b@{digest}", server.address)).unwrap().is_some());
    let riscv = Platform { os: "linux".into(), architecture: "riscv64".into(), variant: String::new() };
    let second = Store::open_for(&folder.join("riscv"), riscv).unwrap();
    assert!(matches!(pull_plain(&second, &name), Err(ImageError::Platform { .. })));
}

#[test]
fn short_names_are_pulled_only_where_configured() {
    let folder = Folder::new("short");
    let store = store(&folder);
    let error = pull_plain(&store, "demo:v1").unwrap_err();
    assert!(error.to_string().contains("write \"docker.io/library/demo:v1\""), "{error}");
    assert_eq!(error.reason().as_str(), "InvalidImageName");
    let served = served();
    let server = Server::start(move |request, _| {
        assert!(request.path.starts_with("/v2/demo/"), "{}", request.path);
        served.answer(&request.path)
    });
    let settings =
        RegistrySettings { short_names: vec![server.address.clone()], ..RegistrySettings::default() };
    pull(&store, &settings, "demo:v1", &Keyring::default(), &Progress::default()).unwrap();
    check_pulled(&store, "demo:v1");
}

#[test]
fn cancelled_pull_stops_and_leaves_nothing() {
    let image = served();
    let progress = Arc::new(Progress::default());
    let stop = Arc::clone(&progress);
    let server = Server::start(move |request, _| {
        if image.is_layer(&request.path) {
            stop.cancel();
        }
        image.answer(&request.path)
    });
    let folder = Folder::new("stop");
    let store = store(&folder);
    let name = format!("{}/a/b:v1", server.address);
    let done = pull(&store, &RegistrySettings::default(), &name, &Keyring::default(), &progress);
    assert_eq!(done, Err(ImageError::Cancelled));
    assert_eq!(store.get(&name).unwrap(), None);
    assert!(is_tidy(&store) && layer_folders(&store) == 0);
}

#[test]
fn answers_of_something_else_are_explained() {
    let folder = Folder::new("else");
    let store = store(&folder);
    let explain = |answer: fn() -> Answer| {
        let server = Server::start(move |_, _| answer());
        pull_plain(&store, &format!("{}/a/b:v1", server.address)).unwrap_err()
    };
    let html = explain(|| Answer::ok(b"<html>welcome</html>"));
    assert!(matches!(html, ImageError::Json { .. }), "{html:?}");
    let empty = explain(|| Answer::ok(b"{}"));
    assert!(matches!(empty, ImageError::Unsupported { .. }), "{empty:?}");
    let teapot = explain(|| Answer::status(418));
    assert!(matches!(teapot, ImageError::Protocol { .. }), "{teapot:?}");
    let huge = explain(|| Answer::ok(&vec![b' '; 5 << 20]));
    assert!(matches!(huge, ImageError::TooLarge { .. }), "{huge:?}");
    let realm =
        explain(|| Answer::status(401).with("www-authenticate", "Bearer realm=\"file:///etc/shadow\""));
    assert!(matches!(realm, ImageError::Protocol { .. }), "{realm:?}");
}
