//! An HTTP server whose every answer is scripted.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// What came in.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) host: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What goes out.
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    cut: Option<usize>,
}

impl Answer {
    pub(crate) fn ok(body: &[u8]) -> Self {
        Self { status: 200, headers: Vec::new(), body: body.to_vec(), cut: None }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self { status, ..Self::ok(b"") }
    }

    pub(crate) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The connection breaks after so many bytes of the body.
    pub(crate) fn cut_after(mut self, bytes: usize) -> Self {
        self.cut = (bytes < self.body.len()).then_some(bytes);
        self
    }
}

/// Runs until dropped, one request a connection.
pub(crate) struct Server {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl Server {
    /// `script` gets each request and its number from 0.
    pub(crate) fn start(script: impl Fn(&Request, usize) -> Answer + Send + 'static) -> Self {
        Self::start_at("localhost:0", script)
    }

    /// The same at an address that was used before.
    pub(crate) fn start_at(
        address: &str,
        script: impl Fn(&Request, usize) -> Answer + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address.replace("localhost", "127.0.0.1")).unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, stopped) = (Arc::clone(&requests), Arc::clone(&stop));
        let worker = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let Some((request, stream)) = stream.ok().and_then(read_request) else { continue };
                let number = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(request.clone());
                    seen.len() - 1
                };
                write_answer(stream, script(&request, number));
            }
        });
        Self { address, requests, stop, worker: Some(worker) }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(&self.address));
        let ended = self.worker.take().unwrap().join();
        // a script that panicked is a test that failed
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

fn read_request(stream: TcpStream) -> Option<(Request, TcpStream)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((key, value)) = line.trim_end().split_once(':') else { break };
        headers.push((key.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut request = Request { method, path, host: String::new(), headers, body: String::new() };
    request.host = request.header("host")?.to_owned();
    let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    reader.by_ref().take(length).read_to_string(&mut request.body).ok()?;
    Some((request, reader.into_inner()))
}

fn write_answer(mut stream: TcpStream, answer: Answer) {
    let mut head = format!(
        "HTTP/1.1 {} X\r\nConnection: close\r\nContent-Length: {}\r\n",
        answer.status,
        answer.body.len()
    );
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let body = &answer.body[..answer.cut.unwrap_or(answer.body.len())];
    // the other side may have gone: that is its business
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}
