//! `runner serve PATH ...`: serves the page of `runner report` over HTTP on this machine and renews it while
//! runs go on. It answers one address, `/`, and only reads files.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::{Arc, Mutex},
};

use super::{
    args::ServeOptions,
    http::{Answer, Request, answer_all},
    report::model,
    runs::refuse,
};
use crate::{
    host::{lock, reason},
    report::{PageRequest, ReportError, fingerprint, page, waiting},
    run::{Exit, print, print_stderr},
};

/// Names of this machine. Requests with another `Host` are refused: a foreign site may point its own name at
/// this address (DNS rebinding).
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Runs the command until a signal ends it.
pub fn serve(options: &ServeOptions) -> Result<Exit, Exit> {
    // A path that does not exist is a mistake; a folder without runs may get some later.
    if let Err(e) = fingerprint(&options.paths)
        && !matches!(e, ReportError::NoRun(_))
    {
        return Err(refuse(e));
    }
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port));
    let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = bound.map_err(|e| {
        let message = format!("cannot listen on 127.0.0.1:{}: {}", options.port, reason(&e));
        Exit::failed(message, Some("`--port 0` takes any port that is free"))
    })?;
    let printed = print(&format!("http://{address}/\n"));
    print_stderr("open this address in a browser; Ctrl-C or SIGTERM ends\n");
    let site = Site { paths: &options.paths, last: Mutex::default() };
    answer_all(&listener, |request| site.answer(request));
    Ok(printed)
}

/// The one page.
struct Site<'a> {
    paths: &'a [String],
    last: Mutex<Last>,
}

/// The last page and what it was made from.
#[derive(Default)]
struct Last {
    tag: String,
    html: Arc<str>,
}

impl Site<'_> {
    fn answer(&self, request: &Request<'_>) -> Answer {
        let mut hosts = request.values("Host");
        match (request.method, request.target) {
            _ if !(hosts.next().is_some_and(is_this_machine) && hosts.next().is_none()) => {
                Answer::plain("403 Forbidden", "This server answers this machine only.\n")
            }
            ("GET" | "HEAD", "/") => {
                let (tag, text) = self.page();
                if request.values("If-None-Match").any(|known| known == tag) {
                    return Answer { tag: Some(tag), ..Answer::plain("304 Not Modified", "") };
                }
                Answer { status: "200 OK", tag: Some(tag), text }
            }
            ("GET" | "HEAD", _) => Answer::plain("404 Not Found", "The page is at `/`.\n"),
            _ => Answer::plain("405 Method Not Allowed", "This server is read only.\n"),
        }
    }

    /// The page for the current files, and a tag that changes with them.
    fn page(&self) -> (String, Arc<str>) {
        let mut last = lock(&self.last);
        // Taken before the files are read, so that a change meanwhile changes the next tag.
        let files = fingerprint(self.paths).map_or_else(|e| e.to_string(), |number| format!("{number:016x}"));
        let tag = format!("\"{}\"", files.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        if last.tag != tag {
            let model = model(self.paths);
            let request = PageRequest {
                paths: self.paths,
                metric: None,
                filter: None,
                tag: Some(&tag),
                model: model.as_ref(),
            };
            let html = page(&request).map_or_else(|e| waiting(&e.to_string(), &tag), |page| page.html);
            *last = Last { tag, html: html.into() };
        }
        (last.tag.clone(), last.html.clone())
    }
}

/// Whether a `Host` header names this machine, with any port: a tunnel may forward another port to this one.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    HOSTS.contains(&name)
}
