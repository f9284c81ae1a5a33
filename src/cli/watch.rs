//! `runner watch PATH`: a run or sweep that is at work, drawn anew each second; plain lines where there is no terminal.

use std::{
    io::{self, IsTerminal},
    path::Path,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use super::{args::WatchOptions, runs::refuse};
use crate::{
    host::{harmless, stop_on_signals},
    record::RunDir,
    report::{Moment, ReportError, Style},
    run::{Exit, print_or_end},
    train::StopFlag,
};

const EVERY: Duration = Duration::from_secs(1);

/// Looking takes at most this share of the time: a large `metrics.csv` is read whole.
const LEAST_REST: u32 = 5;

/// Lines of the curves.
const MOST_LINES: usize = 40;
const LEAST_LINES: usize = 4;

/// A screen of its own, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Runs the command until nothing is at work, nobody reads what it prints, or a signal ends it.
pub fn watch(options: &WatchOptions) -> Exit {
    match look(&options.path) {
        Ok(moment) => follow(options, moment).err().unwrap_or(Exit::Done),
        Err(e) => refuse(&e),
    }
}

/// An error is how the process ends because it can print no more.
fn follow(options: &WatchOptions, mut moment: Moment) -> Result<(), Exit> {
    let stop = StopFlag::default();
    stop.is_begun.store(true, Ordering::Relaxed);
    stop_on_signals(&stop.number, &stop.saves, &stop.is_begun);
    let is_screen = io::stdout().is_terminal() && !moment.is_over;
    let mut line = String::new();
    if is_screen {
        print_or_end(ENTER)?;
    }
    while !moment.is_over && stop.number.load(Ordering::Relaxed) == 0 {
        let begun = Instant::now();
        if is_screen {
            print_or_end(&frame(&moment, &options.metric))?;
        } else if line != moment.lines[1..].join("; ") {
            line = moment.lines[1..].join("; ");
            print_or_end(&format!("{}\n", harmless(&line)))?;
        }
        let rest = EVERY.max(begun.elapsed() * LEAST_REST);
        while begun.elapsed() < rest && stop.number.load(Ordering::Relaxed) == 0 {
            thread::sleep(Duration::from_millis(50));
        }
        // An error may be a file that is replaced at this moment.
        if let Ok(next) = look(&options.path) {
            moment = next;
        }
    }
    if is_screen {
        print_or_end(LEAVE)?;
    }
    print_or_end(&text(&moment, &options.metric))
}

fn look(path: &str) -> Result<Moment, ReportError> {
    Moment::now(path, |folder: &Path| RunDir::existing(folder.to_owned()).is_live())
}

/// The whole screen: each line replaces the one before it.
fn frame(moment: &Moment, metric: &str) -> String {
    let text = text(moment, metric);
    let (width, height) = size();
    let lines: Vec<&str> = text.lines().take(height.saturating_sub(wraps(moment, width))).collect();
    format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n"))
}

/// As high as the terminal, with room for a prompt.
fn text(moment: &Moment, metric: &str) -> String {
    let (width, height) = size();
    let color = anstream::stdout().current_choice() != anstream::ColorChoice::Never;
    let draw = |height: usize| {
        let height = height.clamp(LEAST_LINES, MOST_LINES);
        let curves = moment.curves(metric, Style { width, height, color, linear: false });
        format!("{}\n\n{curves}", moment.lines.join("\n"))
    };
    let whole = draw(height);
    let around = whole.lines().count().saturating_sub(height.clamp(LEAST_LINES, MOST_LINES));
    harmless(&draw(height.saturating_sub(around + wraps(moment, width) + 1))).into_owned()
}

/// Lines that a terminal adds where the words above the curves are wider than it.
fn wraps(moment: &Moment, width: usize) -> usize {
    moment.lines.iter().map(|line| line.chars().count().saturating_sub(1) / width).sum()
}

/// Columns and lines of the terminal.
fn size() -> (usize, usize) {
    let size = terminal_size::terminal_size_of(io::stdout());
    size.map_or((100, 24), |(width, height)| (width.0.clamp(40, 400).into(), height.0.into()))
}
