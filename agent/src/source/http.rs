//! Manifests of an address: asked for every `httpCheckFrequency`, told when they change.
//!
//! An answer is a Pod, a PodList or a List. Whatever goes wrong (no answer, another status, a text that cannot be used, an
//! empty one) keeps what the address gave last; to stop all pods of the address it must give a list without items.

use std::sync::Arc;
use std::time::Duration;

use async_io::Timer;
use podkeep_core::desired::{FileKey, FileReport, Finding, SourceKind, SourceUpdate};
use smol::channel::Sender;
use ureq::Agent;
use ureq::http::{HeaderMap, Response, StatusCode};

use super::Judge;
use super::decode::{self, MAX_FILE};

/// For one request, redirects included; as the kubelet.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where and how often to ask.
#[derive(Clone)]
pub struct HttpOptions {
    pub url: String,
    /// sent as they are
    pub headers: Vec<(String, String)>,
    pub every: Duration,
    pub judge: Arc<Judge>,
}

/// The source. [`HttpSource::run`] is its life.
pub struct HttpSource {
    options: HttpOptions,
    agent: Agent,
    /// what the last answer that was taken says of itself, for the next question
    validators: Validators,
    /// the last body that was judged
    body: Option<Vec<u8>>,
    note: String,
    complete: bool,
    told: bool,
}

/// `ETag` and `Last-Modified`.
#[derive(Clone, Debug, Default)]
struct Validators {
    etag: Option<String>,
    modified: Option<String>,
}

/// What came back.
enum Answer {
    Same,
    Body {
        bytes: Vec<u8>,
        validators: Validators,
    },
    /// what is wrong, in words
    Fault(String),
}

impl HttpSource {
    /// Fails when a header cannot be sent or this build cannot encrypt.
    pub fn new(options: HttpOptions) -> Result<Self, String> {
        let encrypted = options.url.starts_with("https://");
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TIMEOUT))
            .max_idle_connections(0)
            .user_agent(concat!("podkeep/", env!("CARGO_PKG_VERSION")));
        if encrypted {
            config = crate::image::tls::configure(config, None).map_err(|error| error.to_string())?;
        }
        Ok(HttpSource {
            agent: config.build().new_agent(),
            options,
            validators: Validators::default(),
            body: None,
            note: String::new(),
            complete: false,
            told: false,
        })
    }

    /// Asks, tells every change, waits; ends when nobody listens.
    pub async fn run(mut self, to: Sender<SourceUpdate>) {
        loop {
            let (agent, options, validators) =
                (self.agent.clone(), self.options.clone(), self.validators.clone());
            let answer = crate::offload::run(move || ask(&agent, &options, &validators)).await;
            if let Some(update) = self.take(answer)
                && to.send(update).await.is_err()
            {
                return;
            }
            if to.is_closed() {
                return;
            }
            Timer::after(self.options.every).await;
        }
    }

    fn take(&mut self, answer: Answer) -> Option<SourceUpdate> {
        let (note, files) = match answer {
            Answer::Fault(why) => (why, Vec::new()),
            Answer::Same => (String::new(), Vec::new()),
            Answer::Body { bytes, validators } => {
                let judged = self.judge(bytes);
                if judged.is_ok() {
                    self.validators = validators;
                }
                match judged {
                    Ok(files) => (String::new(), files),
                    Err(why) => (why, Vec::new()),
                }
            }
        };
        let news = !self.told || note != self.note || !files.is_empty();
        self.told = true;
        self.note = note;
        news.then(|| SourceUpdate {
            source: SourceKind::Http,
            files,
            removed: Vec::new(),
            notes: (!self.note.is_empty()).then(|| self.finding(&self.note)).into_iter().collect(),
            complete: self.complete,
        })
    }

    fn judge(&mut self, bytes: Vec<u8>) -> Result<Vec<FileReport>, String> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err("the answer is empty; what it gave before stays in force".to_string());
        }
        if self.body.as_ref() == Some(&bytes) {
            return Ok(Vec::new());
        }
        let file = FileKey { source: SourceKind::Http, path: self.options.url.clone().into_bytes() };
        let name = self.options.url.clone();
        let judge = &self.options.judge;
        let decoded = decode::decode_judged(&bytes, &name, &mut |object| judge(&file, object));
        self.body = Some(bytes);
        let usable = decoded.errors.is_empty();
        self.complete |= usable;
        Ok(vec![FileReport {
            file,
            name,
            objects: usable.then_some(decoded.objects),
            since: 0,
            warnings: decoded.warnings,
            errors: decoded.errors,
        }])
    }

    fn finding(&self, message: &str) -> Finding {
        Finding { file: self.options.url.clone(), message: message.to_string(), ..Finding::default() }
    }
}

/// One request; blocks.
fn ask(agent: &Agent, options: &HttpOptions, validators: &Validators) -> Answer {
    let mut request = agent.get(&options.url);
    for (name, value) in &options.headers {
        request = request.header(name, value);
    }
    for (name, value) in [("If-None-Match", &validators.etag), ("If-Modified-Since", &validators.modified)] {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    match request.call() {
        Ok(response) => answer(response),
        Err(error) => Answer::Fault(format!("does not answer: {error}")),
    }
}

fn answer(mut response: Response<ureq::Body>) -> Answer {
    match response.status() {
        StatusCode::NOT_MODIFIED => Answer::Same,
        StatusCode::OK => {
            let validators = validators(response.headers());
            match response.body_mut().with_config().limit(MAX_FILE).read_to_vec() {
                Ok(bytes) => Answer::Body { bytes, validators },
                Err(ureq::Error::BodyExceedsLimit(_)) => {
                    Answer::Fault(format!("the answer has more than {MAX_FILE} bytes"))
                }
                Err(error) => Answer::Fault(format!("the answer breaks off: {error}")),
            }
        }
        status => Answer::Fault(format!("answers with status {}", status.as_u16())),
    }
}

fn validators(headers: &HeaderMap) -> Validators {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    Validators { etag: text("etag"), modified: text("last-modified") }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::mpsc;

    use podkeep_core::desired::Object;

    use super::*;

    /// Answers each request with the next of `answers`, and tells what was asked.
    fn serve(answers: Vec<String>) -> (String, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/pods", listener.local_addr().unwrap());
        let (to, asked) = mpsc::channel();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = String::new();
                for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                    let line = line.unwrap();
                    if line.is_empty() {
                        break;
                    }
                    head.push_str(&line.to_ascii_lowercase());
                    head.push('\n');
                }
                to.send(head).ok();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        (url, asked)
    }

    fn http(status: &str, headers: &str, body: &str) -> String {
        format!(
            "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    fn pod(name: &str) -> String {
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{name}\"}}}}")
    }

    fn source(url: &str, headers: &[(&str, &str)]) -> HttpSource {
        let judge: Arc<Judge> = Arc::new(|_: &FileKey, _: &mut Object| Vec::new());
        let headers = headers.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        let every = Duration::from_millis(1);
        HttpSource::new(HttpOptions { url: url.into(), headers, every, judge }).unwrap()
    }

    fn names(update: &SourceUpdate) -> Vec<String> {
        let placed = update.files.iter().flat_map(|file| file.objects.iter().flatten());
        placed.map(|placed| placed.object.metadata().name.clone()).collect()
    }

    #[test]
    fn changes_are_told_and_faults_keep_the_last_good_answer() {
        let list =
            format!("{{\"apiVersion\":\"v1\",\"kind\":\"PodList\",\"items\":[{},{}]}}", pod("b"), pod("c"));
        let (url, asked) = serve(vec![
            http("503 Busy", "", "later"),
            http("200 OK", "ETag: \"1\"\r\n", &pod("a")),
            http("304 Not Modified", "", ""),
            http("200 OK", "ETag: \"2\"\r\n", &pod("a")),
            http("200 OK", "", "rubbish"),
            http("200 OK", "", ""),
            http("200 OK", "Last-Modified: x\r\n", &list),
            http("200 OK", "", "{\"apiVersion\":\"v1\",\"kind\":\"PodList\",\"items\":[]}"),
        ]);
        let (to, updates) = smol::channel::unbounded();
        let source = source(&url, &[("X-Token", "t"), ("X-Token", "u")]);
        let mut told = Vec::new();
        smol::block_on(smol::future::or(source.run(to), async {
            while told.len() < 6 {
                told.push(updates.recv().await.unwrap());
            }
        }));
        assert_eq!((told[0].complete, told[0].notes[0].message.as_str()), (false, "answers with status 503"));
        assert_eq!((told[1].complete, names(&told[1])), (true, vec!["a".into()]));
        assert_eq!(told[1].notes, []);
        // the same answers tell nothing
        assert!(told[2].files[0].objects.is_none() && !told[2].files[0].errors.is_empty());
        assert!(told[3].notes[0].message.contains("empty"));
        assert_eq!(names(&told[4]), ["b", "c"]);
        assert_eq!(told[5].files[0].objects, Some(Vec::new()));
        let asked: Vec<String> = asked.try_iter().take(8).collect();
        assert!(asked[0].contains("x-token: t") && asked[0].contains("x-token: u"), "{}", asked[0]);
        assert!(asked[2].contains("if-none-match: \"1\""), "{}", asked[2]);
        assert!(asked[4].contains("if-none-match: \"2\""), "{}", asked[4]);
        assert!(asked[7].contains("if-modified-since: x"), "{}", asked[7]);
    }

    #[test]
    fn large_answers_and_silence_are_faults() {
        let (url, _asked) =
            serve(vec![format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MAX_FILE + 1)]);
        let source = source(&url, &[]);
        let Answer::Fault(why) = ask(&source.agent, &source.options, &source.validators) else { panic!() };
        assert!(why.contains("more than") || why.contains("breaks off"), "{why}");
        let closed = HttpOptions { url: "http://127.0.0.1:1/".into(), ..source.options.clone() };
        let Answer::Fault(why) = ask(&source.agent, &closed, &source.validators) else { panic!() };
        assert!(why.starts_with("does not answer"), "{why}");
    }
}
