//! Passes libFuzzer's bytes to the target named by `RUNNER_FUZZ_TARGET`, within the folder
//! `RUNNER_FUZZ_FOLDER`.
#![no_main]

mod cases;

use std::{
    env,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::PathBuf,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use cases::{Cases, Ended};
use libfuzzer_sys::fuzz_target;

/// Runs the program within this process.
fn runner(arguments: &[String]) -> Ended {
    let arguments = ["runner".to_owned()].into_iter().chain(arguments.iter().cloned());
    let _ = runner::cli::main(arguments.map(Into::into), Instant::now());
    // A panic would have ended the process.
    Ended::InOrder
}

/// Runs `runner serve` on a thread and returns its port.
fn serve() -> u16 {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    thread::spawn(move || runner(&["serve", "runs", "--port", &port.to_string()].map(str::to_owned)));
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        thread::sleep(Duration::from_millis(10));
    }
    port
}

/// Sends a request and reads the whole answer.
fn request(port: u16, bytes: &[u8]) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    // A connection that is closed before all bytes were read is reset.
    let whole = stream.read_to_end(&mut answer).is_ok();
    assert!(!whole || answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{answer:?}");
}

fuzz_target!(|bytes: &[u8]| {
    static CASES: OnceLock<(String, Cases)> = OnceLock::new();
    static PORT: OnceLock<u16> = OnceLock::new();
    let (target, cases) = CASES.get_or_init(|| {
        let [target, folder] =
            ["TARGET", "FOLDER"].map(|name| env::var(format!("RUNNER_FUZZ_{name}")).expect(name));
        let cases = Cases::new(&PathBuf::from(folder), &runner);
        env::set_current_dir(&cases.folder).expect("the folder of cases");
        (target, cases)
    });
    if target == "serve" {
        request(*PORT.get_or_init(serve), bytes);
    } else {
        cases.run(target, bytes, &runner);
    }
});
