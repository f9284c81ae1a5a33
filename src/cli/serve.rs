//! `runner serve PATH ...`: the page of `runner report` over HTTP on this machine, renewed while runs go on. It answers one
//! address, `/`, and reads files only.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Mutex, PoisonError},
    thread,
};

use tiny_http::{Header, Method, Request, Response, Server};

use super::{args::ServeOptions, runs::refuse};
use crate::{
    report::{PageRequest, ReportError, fingerprint, page, waiting},
    run::{Exit, print, print_error, print_stderr},
};

/// Requests that are answered side by side.
const THREADS: usize = 4;

/// Names of this machine. A page of another site that points its own name at this address is refused.
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Runs the command until a signal ends it.
pub fn serve(options: &ServeOptions) -> Exit {
    // A path that does not exist is a slip; a folder without runs may have some soon.
    if let Err(e) = fingerprint(&options.paths)
        && !matches!(e, ReportError::NoRun(_))
    {
        return refuse(&e);
    }
    let address = (IpAddr::V4(Ipv4Addr::LOCALHOST), options.port);
    let server = match Server::http(address) {
        Ok(server) => server,
        Err(e) => {
            let message = format!("cannot listen on 127.0.0.1:{}: {e}", options.port);
            print_error(message, Some("`--port 0` takes any port that is free"));
            return Exit::Failed;
        }
    };
    let port = server.server_addr().to_ip().map_or(options.port, |address| address.port());
    let printed = print(&format!("http://127.0.0.1:{port}/\n"));
    print_stderr("open this address in a browser; Ctrl-C ends\n");
    let site = Site { paths: &options.paths, last: Mutex::default() };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| server.incoming_requests().for_each(|request| site.answer(request)));
        }
    });
    printed
}

/// The one page.
struct Site<'a> {
    paths: &'a [String],
    /// The last page, with its tag.
    last: Mutex<(String, String)>,
}

impl Site<'_> {
    fn answer(&self, request: Request) {
        let has_host = |request: &Request| header(request, "Host").is_some_and(|host| is_this_machine(&host));
        let (status, tag, text) = match (request.method(), request.url()) {
            _ if !has_host(&request) => (403, None, "This server answers this machine only.\n".to_owned()),
            (Method::Get | Method::Head, "/") => {
                let (tag, text) = self.page();
                match header(&request, "If-None-Match") {
                    Some(known) if known == tag => (304, Some(tag), String::new()),
                    _ => (200, Some(tag), text),
                }
            }
            (Method::Get | Method::Head, _) => (404, None, "The page is at `/`.\n".to_owned()),
            _ => (405, None, "This server is read only.\n".to_owned()),
        };
        let kind = if status == 200 { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" };
        let fields = [
            ("Content-Type", kind),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ];
        let mut response =
            Response::from_string(text).with_status_code(status).with_chunked_threshold(usize::MAX);
        for (name, value) in fields.into_iter().chain(tag.as_deref().map(|tag| ("ETag", tag))) {
            if let Ok(field) = Header::from_bytes(name, value) {
                response.add_header(field);
            }
        }
        // Who asked may be gone.
        let _ = request.respond(response);
    }

    /// The page of the files as they are, and a tag that changes with them.
    fn page(&self) -> (String, String) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken before the files are read: what changes meanwhile changes the next tag.
        let tag = fingerprint(self.paths).map_or_else(|e| e.to_string(), |number| format!("{number:016x}"));
        let tag = format!("\"{}\"", tag.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        if last.0 != tag {
            let request = PageRequest { paths: self.paths, metric: None, filter: None, is_live: true };
            *last = (tag, page(&request).map_or_else(|e| waiting(&e.to_string()), |page| page.html));
        }
        last.clone()
    }
}

fn header(request: &Request, name: &'static str) -> Option<String> {
    let found = request.headers().iter().find(|header| header.field.equiv(name));
    found.map(|header| header.value.to_string())
}

/// Whether a `Host` names this machine, with any port: a tunnel may lead here from another one.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    HOSTS.contains(&name)
}
