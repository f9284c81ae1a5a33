//! As much of HTTP/1.1 as one page needs: one request per connection, without a body. Everything a client can
//! use up is limited: connections, bytes and time.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Maximum simultaneous connections; further ones are closed.
const MOST_CONNECTIONS: usize = 16;

/// Maximum bytes of a request line and its header fields.
const MOST_BYTES: usize = 8 * 1024;

/// How long a request may take to arrive.
const TIME_TO_ASK: Duration = Duration::from_secs(5);

/// Time limit of a write, and of the whole answer.
const TIME_TO_WRITE: Duration = Duration::from_secs(5);
const TIME_TO_ANSWER: Duration = Duration::from_secs(60);

/// How long a client may keep sending after its answer: closing earlier would reset the connection and lose
/// the answer.
const TIME_TO_END: Duration = Duration::from_secs(1);

/// A request without its body.
pub struct Request<'a> {
    pub method: &'a str,
    pub target: &'a str,
    fields: Vec<(&'a str, &'a str)>,
}

impl<'a> Request<'a> {
    /// `None` unless the text is a request line with header fields.
    fn from_head(head: &'a str) -> Option<Self> {
        let mut lines = head.split("\r\n");
        let first: Vec<&str> = lines.next()?.split(' ').collect();
        let [method, target, "HTTP/1.0" | "HTTP/1.1"] = first[..] else { return None };
        let field = |line: &'a str| line.split_once(':').map(|(name, value)| (name, value.trim()));
        Some(Self { method, target, fields: lines.map(field).collect::<Option<_>>()? })
    }

    /// The values of a header field.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let own = self.fields.iter().filter(move |field| field.0.eq_ignore_ascii_case(name));
        own.map(|field| field.1)
    }
}

pub struct Answer {
    /// Status code and phrase.
    pub status: &'static str,
    /// The value of `ETag`.
    pub tag: Option<String>,
    /// HTML if the status is 200, otherwise plain text.
    pub text: Arc<str>,
}

impl Answer {
    pub fn plain(status: &'static str, text: &str) -> Self {
        Self { status, tag: None, text: text.into() }
    }
}

/// Answers requests forever.
pub fn answer_all(listener: &TcpListener, answer: impl Fn(&Request<'_>) -> Answer + Sync) {
    let answer = &answer;
    let seats = Arc::new(());
    thread::scope(|scope| {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // For example, no file descriptors are left; some will become free again.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            // Each connection's thread holds a reference to `seats`.
            if Arc::strong_count(&seats) > MOST_CONNECTIONS {
                continue;
            }
            let seat = Arc::clone(&seats);
            // If the client is gone or too slow, or no thread can be started, only this connection is lost.
            let _ = thread::Builder::new().spawn_scoped(scope, move || {
                let _ = converse(stream, answer);
                drop(seat);
            });
        }
    });
}

/// Reads one request and answers it.
fn converse(mut stream: TcpStream, answer: impl Fn(&Request<'_>) -> Answer) -> io::Result<()> {
    let (bytes, is_whole) = read_head(&mut stream)?;
    let request = std::str::from_utf8(&bytes).ok().and_then(Request::from_head);
    let (is_head, answer) = match request {
        _ if !is_whole => (false, Answer::plain("431 Request Header Fields Too Large", "Too long.\n")),
        Some(request) => (request.method == "HEAD", answer(&request)),
        None => (false, Answer::plain("400 Bad Request", "No HTTP request.\n")),
    };
    let text = if is_head { "" } else { &*answer.text };
    write(&mut stream, [&head(&answer), text])?;
    stream.shutdown(Shutdown::Write)?;
    let end = Instant::now() + TIME_TO_END;
    while read_until(&mut stream, end, &mut [0; MOST_BYTES])? > 0 {}
    Ok(())
}

/// Reads up to the empty line; also returns whether it arrived in time and within the limit.
fn read_head(stream: &mut TcpStream) -> io::Result<(Vec<u8>, bool)> {
    const END: &[u8] = b"\r\n\r\n";
    let end = Instant::now() + TIME_TO_ASK;
    let mut bytes = vec![0; MOST_BYTES];
    let mut length = 0;
    while length < MOST_BYTES {
        let count = read_until(stream, end, &mut bytes[length..])?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        // The empty line may arrive in two parts.
        let from = length.saturating_sub(END.len() - 1);
        length += count;
        if let Some(at) = bytes[from..length].windows(END.len()).position(|window| window == END) {
            bytes.truncate(from + at);
            return Ok((bytes, true));
        }
    }
    Ok((bytes, false))
}

/// Reads what is available; waits for it until `end`.
fn read_until(stream: &mut TcpStream, end: Instant, bytes: &mut [u8]) -> io::Result<usize> {
    stream.set_read_timeout(Some(left(end)?))?;
    stream.read(bytes)
}

fn write(stream: &mut TcpStream, parts: [&str; 2]) -> io::Result<()> {
    let end = Instant::now() + TIME_TO_ANSWER;
    for part in parts {
        let mut rest = part.as_bytes();
        while !rest.is_empty() {
            stream.set_write_timeout(Some(left(end)?.min(TIME_TO_WRITE)))?;
            let count = stream.write(rest)?;
            rest = &rest[count..];
        }
    }
    Ok(())
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The status and the header fields.
fn head(answer: &Answer) -> String {
    let kind = if answer.status.starts_with("200 ") { "text/html" } else { "text/plain" };
    let tag = answer.tag.as_ref().map(|tag| format!("ETag: {tag}\r\n")).unwrap_or_default();
    format!(
        "HTTP/1.1 {}\r\n\
         Content-Type: {kind}; charset=utf-8\r\n\
         Content-Length: {}\r\n\
         Connection: close\r\n\
         Allow: GET, HEAD\r\n\
         Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\n\
         X-Frame-Options: DENY\r\n\
         Referrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\n\
         {tag}\r\n",
        answer.status,
        answer.text.len()
    )
}
