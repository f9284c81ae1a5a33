//! `runner run ... --plot`: the run goes on in a process of its own, and its curves are drawn while it does. When the screen
//! is given back, the whole curves stay, with what it printed below.

use std::{
    env,
    ffi::OsString,
    io::{self, Read},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::Instant,
};

use super::{
    at_work::run_folders,
    watch::{INTERVAL, Screen, look, text},
};
use crate::{
    host::{end_with_parent, reason, signal_in_words},
    record::pass_output_width,
    report::{is_run, is_sweep},
    run::{Exit, print_coloured, print_coloured_stderr, print_error},
};

const ENDING: &str =
    "the run was asked to end, and saves what it has; Ctrl-C again, after two seconds, ends it at once";

/// Runs the command with the same arguments except `--plot`.
pub fn run(arguments: &[OsString]) -> Result<Exit, Exit> {
    let own = arguments.iter().skip(1).filter(|argument| *argument != "--plot");
    let mut command = Command::new(env::current_exe().map_err(not_started)?);
    command.args(own).stdout(Stdio::piped()).stderr(Stdio::piped());
    if anstream::stdout().current_choice() != anstream::ColorChoice::Never {
        command.env("CLICOLOR_FORCE", "1");
    }
    pass_output_width(&mut command);
    end_with_parent(&mut command);
    let screen = Screen::new(); // from now on no signal ends this process
    let mut child = command.spawn().map_err(not_started)?;
    let printed = [child.stdout.take().map(collect), child.stderr.take().map(collect)];
    screen.signals.pass_on_to(Some(&child));
    let (drawn, has_folder) = draw(&mut child, screen);
    let status = child.wait();
    let [out, err] = printed.map(|text| text.and_then(|text| text.join().ok()).unwrap_or_default());
    let curves = printed_folder(&out).and_then(|folder| look(&folder.to_string_lossy()).ok());
    let shown =
        curves.map_or(Exit::Done, |moment| print_coloured(&format!("{}\n", text(&moment, None, None))));
    print_coloured_stderr(&err);
    let exit = match status.map(|status| (status.code(), status.signal())) {
        Ok((Some(0), _)) => Exit::Done,
        Ok((Some(2), _)) => Exit::Refused,
        Ok((Some(3), _)) => Exit::Missing,
        Ok((Some(code @ 129..), _)) => Exit::Signal((code - 128) as u8),
        Ok((_, Some(signal))) => {
            let message = format!("the run was killed by signal {}", signal_in_words(signal));
            print_error(message, has_folder.then_some("rows that were written are kept"));
            Exit::Signal(signal as u8)
        }
        _ => Exit::Failed,
    };
    let printed = shown.more_severe(print_coloured(&out));
    Ok(exit.more_severe(printed).more_severe(drawn.err().unwrap_or(Exit::Done)))
}

/// Draws until the run ends; also returns whether it had a folder. Fails if the terminal is gone.
fn draw(child: &mut Child, mut screen: Screen) -> (Result<(), Exit>, bool) {
    let (mut result, mut has_folder) = (Ok(()), false);
    while matches!(child.try_wait(), Ok(None)) {
        let (begun, count) = (Instant::now(), screen.signals.count());
        if let Some(folder) = folder_of(child.id()) {
            has_folder = true;
            if let (Ok(()), Ok(mut moment)) = (&result, look(&folder.to_string_lossy())) {
                moment.lines.extend((count > 0).then(|| ENDING.to_owned()));
                result = screen.draw(&moment, None);
            }
        }
        while begun.elapsed() < INTERVAL
            && screen.signals.count() == count
            && matches!(child.try_wait(), Ok(None))
        {
            screen.rest();
        }
    }
    screen.signals.pass_on_to(None);
    (result.and(screen.leave()), has_folder)
}

/// The folder of the run or its sweep.
fn folder_of(pid: u32) -> Option<PathBuf> {
    let run = run_folders(pid).into_iter().next()?;
    let sweep = run.parent().filter(|folder| is_sweep(folder)).map(PathBuf::from);
    Some(sweep.unwrap_or(run))
}

/// The folder that a run, which may have been too short to be drawn, names at its end.
fn printed_folder(out: &str) -> Option<PathBuf> {
    let path = |line: &str| {
        let line = line.trim();
        PathBuf::from(line.strip_prefix("folder ").unwrap_or(line).trim_start())
    };
    out.lines().rev().map(path).find(|path| is_run(path) || is_sweep(path))
}

/// Reads to the end, beside what else is done.
fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes); // on an error, what was read so far is printed
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn not_started(error: io::Error) -> Exit {
    Exit::failed(
        format!("cannot start a process for the run: {}", reason(&error)),
        Some("leave out `--plot`"),
    )
}
