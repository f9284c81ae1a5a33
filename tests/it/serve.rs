//! `runner serve`: one page for this machine, updated as its runs progress; any other request is rejected.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{ends::LIMIT, process::Sandbox};

struct Served {
    child: Child,
    port: String,
}

impl Served {
    fn start(place: &Sandbox, path: &str) -> Self {
        let mut command = place.command(&["serve", path, "--port", "0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("http://127.0.0.1:").unwrap().trim_end_matches('/').to_owned();
        Self { child, port }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(format!("127.0.0.1:{}", self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// The beginning of the response to these bytes; empty if the server closes the connection.
    fn answer_to(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may stop reading early.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    /// Its thread count, and its peak memory in KiB.
    fn size(&self) -> [u64; 2] {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        ["Threads:", "VmHWM:"].map(|name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        })
    }

    /// The response's status, `ETag` and body.
    fn ask(&self, request: &str, headers: &str) -> (u16, String, String) {
        let mut stream = self.connect();
        write!(stream, "{request} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let tag = head.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap_or_default();
        (status, tag.to_owned(), text.to_owned())
    }

    fn get(&self, headers: &str) -> (u16, String, String) {
        self.ask("GET /", &format!("Host: localhost\r\n{headers}"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A run in progress.
fn run(place: &Path, rows: &str) {
    let folder = place.join("runs/a/1");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("spec.toml"), "name = \"a\"\n").unwrap();
    fs::write(folder.join("metrics.csv"), format!("step,epoch,split,rows,loss,elapsed_s\n{rows}")).unwrap();
}

#[test]
fn the_page_is_renewed_as_a_run_goes_on() {
    let place = Sandbox::new("");
    fs::create_dir(place.path().join("runs")).unwrap();
    let served = Served::start(&place, "runs");
    let (status, none, text) = served.get("");
    assert!(status == 200 && text.contains("No run yet"), "{text}");
    run(place.path(), "1,1,train,8,3.5,0.1\n2,1,train,8,2.5,0.1\n");
    let (status, first, text) = served.get(&format!("If-None-Match: {none}\r\n"));
    assert!(status == 200 && first != none && text.contains("[3.5,2.5]"), "{text}");
    assert!(text.contains(&format!("id=\"tag\">{:?}<", first)), "{text}");
    assert!(text.contains("fetch(\"/\"") && text.contains("; connect-src &#39;self&#39;"), "{text}");
    let known = format!("If-None-Match: {first}\r\n");
    assert_eq!(served.get(&known), (304, first.clone(), String::new()));
    run(place.path(), "1,1,train,8,3.5,0.1\n2,1,train,8,2.5,0.1\n3,1,train,8,1.5,0.1\n");
    let (status, second, text) = served.get(&known);
    assert!(status == 200 && second != first && text.contains("[3.5,2.5,1.5]"), "{text}");
}

#[test]
fn nothing_but_the_page_is_answered_and_on_this_machine_alone() {
    let place = Sandbox::new("");
    run(place.path(), "1,1,train,8,3.5,0.1\n");
    let served = Served::start(&place, "runs");
    for (request, headers, expected) in [
        ("GET /", "Host: localhost:1234\r\n", 200),
        ("HEAD /", "Host: [::1]:9\r\n", 200),
        // Another site's name that resolves to this address (DNS rebinding).
        ("GET /", "Host: example.org\r\n", 403),
        ("GET /", "Host: localhost.example.org\r\n", 403),
        ("GET /", "Host: example.org:localhost\r\n", 403),
        ("GET /", "", 403),
        ("GET /", "Host: localhost\r\nHost: example.org\r\n", 403),
        ("GET /a/1/metrics.csv", "Host: localhost\r\n", 404),
        ("GET /../../spec.toml", "Host: localhost\r\n", 404),
        ("GET /%2e%2e/spec.toml", "Host: localhost\r\n", 404),
        ("GET /?path=/etc/passwd", "Host: localhost\r\n", 404),
        ("POST /", "Host: localhost\r\nContent-Length: 0\r\n", 405),
        ("POST /", "Host: localhost\r\nContent-Length: 1000000000000000000\r\n", 405),
        ("DELETE /", "Host: localhost\r\n", 405),
        ("GET  /", "Host: localhost\r\n", 400),
        ("GET /", "no field\r\n", 400),
    ] {
        let (status, _, text) = served.ask(request, headers);
        assert_eq!(status, expected, "{request} {headers}");
        assert!(status == 200 || !text.contains("3.5"), "{request}: {text}");
        assert!(request != "HEAD /" || text.is_empty(), "{text}");
    }
    let port = format!(":{:04X} ", served.port.parse::<u16>().unwrap());
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let own =
        sockets.lines().filter(|line| line.contains(&port) && line.contains(" 0A ")).collect::<Vec<_>>();
    assert!(own.len() == 1 && own[0].contains(" 0100007F:"), "{own:?}");

    let taken = place.runner(&["serve", "runs", "--port", &served.port]);
    assert_eq!(taken.code, Some(1));
    assert!(taken.stderr.contains("`--port 0` takes any port that is free"), "{taken:?}");
    assert_eq!(place.runner(&["serve", "none"]).code, Some(2));
}

#[test]
fn no_client_takes_more_than_its_share() {
    let place = Sandbox::new("");
    run(place.path(), "1,1,train,8,3.5,0.1\n");
    let served = Served::start(&place, "runs");
    let begun = Instant::now();
    // A request that never ends, and never pauses for long.
    let mut slow = served.connect();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n").unwrap();
    let dribble = thread::spawn(move || {
        while slow.write_all(b"a").is_ok() && begun.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(100));
        }
        begun.elapsed()
    });
    assert_eq!(served.get("").0, 200);
    assert!(!dribble.is_finished(), "a quick client does not wait for a slow one");

    let body = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000000000\r\n\r\n";
    assert!(served.answer_to(&[&body[..], &[b'a'; 100_000]].concat()).starts_with("HTTP/1.1 405 "));
    let mut endless = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec();
    endless.resize(100_000, b'a');
    assert!(served.answer_to(&endless).starts_with("HTTP/1.1 431 "));
    endless.resize(100_000_000, b'a');
    served.answer_to(&endless);
    assert!(served.answer_to(b"\xff\xfe\r\n\r\n").starts_with("HTTP/1.1 400 "));

    let idle: Vec<TcpStream> = (0..200).map(|_| served.connect()).collect();
    let [threads, memory] = served.size();
    assert!(threads <= 17 && memory < 100_000, "{threads} threads, {memory} KiB");
    // Until idle connections time out, there is no room for another.
    let asked = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    while !served.answer_to(asked).starts_with("HTTP/1.1 200 ") {
        assert!(begun.elapsed() < LIMIT);
        thread::sleep(Duration::from_millis(50));
    }
    drop(idle);
    assert!(dribble.join().unwrap() < LIMIT);
}

#[test]
fn the_corpus_of_requests_is_answered_or_closed() {
    let place = Sandbox::new("");
    run(place.path(), "1,1,train,8,3.5,0.1\n");
    let server = Served::start(&place, "runs");
    for input in super::fuzz::corpus("serve") {
        let mut stream = server.connect();
        let _ = stream.write_all(&fs::read(&input).unwrap());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{}", input.display());
    }
    assert_eq!(server.get("").0, 200);
}
