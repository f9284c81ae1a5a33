//! `runner run ... --plot`: the run goes on in a process of its own, and its curves are drawn while it does. What it prints
//! stands below when the screen is given back.

use std::{
    env,
    ffi::OsString,
    io::{self, Read},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::Ordering,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    at_work::run_folders,
    watch::{EVERY, Screen, look},
};
use crate::{
    host::{reason, stop_on_signals},
    report::{follow_files, is_sweep},
    run::{Exit, print_coloured, print_coloured_stderr, print_error},
    train::StopFlag,
};

/// Runs the command with the same arguments, but for `--plot`.
pub fn run(arguments: &[OsString]) -> Exit {
    let own = arguments.iter().skip(1).filter(|argument| *argument != "--plot");
    let mut command = match env::current_exe() {
        Ok(program) => Command::new(program),
        Err(e) => return not_started(&e),
    };
    command.args(own).stdout(Stdio::piped()).stderr(Stdio::piped());
    if anstream::stdout().current_choice() != anstream::ColorChoice::Never {
        command.env("CLICOLOR_FORCE", "1");
    }
    let stop = StopFlag::default();
    stop.is_begun.store(true, Ordering::Relaxed);
    stop_on_signals(&stop.number, &stop.saves, &stop.is_begun);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return not_started(&e),
    };
    let printed = [child.stdout.take().map(collect), child.stderr.take().map(collect)];
    let drawn = draw(&mut child, &stop);
    let status = child.wait();
    let [out, err] = printed.map(|text| text.and_then(|text| text.join().ok()).unwrap_or_default());
    print_coloured_stderr(&err);
    if let Some(signal) = status.as_ref().ok().and_then(ExitStatusExt::signal) {
        print_error(format!("the run was killed by signal {signal}"), None);
    }
    let exit = match status.map(|status| status.code()) {
        Ok(Some(0)) => Exit::Done,
        Ok(Some(2)) => Exit::Refused,
        Ok(Some(3)) => Exit::Missing,
        Ok(Some(code @ 129..)) => Exit::Signal((code - 128) as u8),
        _ => Exit::Failed,
    };
    exit.more_severe(print_coloured(&out)).more_severe(drawn.err().unwrap_or(Exit::Done))
}

/// Draws until the run ends, and passes a signal on to it. An error is that there is no terminal any more.
fn draw(child: &mut Child, stop: &StopFlag) -> Result<(), Exit> {
    follow_files(true);
    let (mut screen, mut is_passed_on) = (Screen::default(), false);
    let mut result = Ok(());
    while matches!(child.try_wait(), Ok(None)) {
        let begun = Instant::now();
        if let (Some(folder), Ok(())) = (folder_of(child.id()), &result)
            && let Ok(moment) = look(&folder.to_string_lossy())
        {
            result = screen.draw(&moment, "loss");
        }
        while begun.elapsed() < EVERY && matches!(child.try_wait(), Ok(None)) {
            let signal = stop.number.load(Ordering::Relaxed);
            if signal != 0 && !std::mem::replace(&mut is_passed_on, true) {
                // The terminal's own signals reach the run, too, which takes both as one.
                let _ = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status();
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    result.and(screen.leave())
}

/// The folder of the run, or of its sweep.
fn folder_of(pid: u32) -> Option<PathBuf> {
    let run = run_folders(pid).into_iter().next()?;
    let sweep = run.parent().filter(|folder| is_sweep(folder)).map(PathBuf::from);
    Some(sweep.unwrap_or(run))
}

/// Reads to the end, beside what else is done.
fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes); // what was read until then is printed
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn not_started(error: &io::Error) -> Exit {
    print_error(format!("cannot start a process for the run: {}", reason(error)), Some("leave out `--plot`"));
    Exit::Failed
}
