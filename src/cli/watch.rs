//! `runner watch PATH`: shows a run or sweep that is at work, redrawn every second; prints plain lines if
//! there is no terminal.

use std::{
    io::{self, IsTerminal, Write},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{args::WatchOptions, at_work::AtWork, keys::Keys, runs::refuse};
use crate::{
    host::{ViewerSignals, escape_controls, escape_line, escape_uncoloured},
    record::{RunDir, folded},
    report::{Moment, ReportError, Style},
    run::{Exit, print_or_end},
};

pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// The pause between two updates is at least this multiple of the time that the last update took.
const LEAST_REST: u32 = 5;

/// Maximum height of the curves in lines.
const MOST_LINES: usize = 40;
const LEAST_LINES: usize = 4;

/// Switches to the alternate screen without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Runs the command until nothing is at work, the output is closed, or a signal or `q` ends it.
pub fn watch(options: &WatchOptions) -> Result<Exit, Exit> {
    follow(options, look(&options.path).map_err(refuse)?).map(|()| Exit::Done)
}

/// Shows updates until the end. The error is the exit code if printing fails.
fn follow(options: &WatchOptions, mut moment: Moment) -> Result<(), Exit> {
    let is_terminal = io::stdout().is_terminal();
    let (mut line, mut screen, mut has_failed) = (String::new(), Screen::new(), false);
    while !moment.is_over && !screen.is_to_end() {
        let begun = Instant::now();
        if is_terminal {
            screen.draw(&moment, options.metric.as_deref())?;
        } else if line != moment.lines[1..].join("; ") {
            line = moment.lines[1..].join("; ");
            print_or_end(&format!("{}\n", escape_controls(&line)))?;
        }
        let rest = INTERVAL.max(begun.elapsed() * LEAST_REST);
        while begun.elapsed() < rest && !screen.is_to_end() {
            screen.rest();
        }
        match look(&options.path) {
            Ok(next) => (moment, has_failed) = (next, false),
            Err(e) if has_failed && !moment.folder.exists() => {
                screen.leave()?;
                return Err(refuse(e));
            }
            // Tolerate the first error: the file may be in the middle of being replaced.
            Err(e) if std::mem::replace(&mut has_failed, true) => {
                moment.lines.truncate(1);
                moment.lines.push(e.to_string());
            }
            Err(_) => {}
        }
    }
    screen.leave()?;
    moment = look(&options.path).unwrap_or(moment);
    print_or_end(&text(&moment, None, options.metric.as_deref()))
}

pub(super) fn look(path: &str) -> Result<Moment, ReportError> {
    Moment::now(path, |folder: &Path| RunDir::existing(folder.to_owned()).is_live())
}

/// Uses the terminal's alternate screen, starting with the first frame.
pub(super) struct Screen {
    is_entered: bool,
    keys: Option<Keys>,
    /// Whether `q` was pressed.
    is_left: bool,
    at_work: AtWork,
    pub(super) signals: Arc<ViewerSignals>,
}

impl Screen {
    /// From now on signals are counted and do not end the process.
    pub(super) fn new() -> Self {
        let (at_work, signals) = (AtWork::default(), ViewerSignals::listen());
        Self { is_entered: false, keys: None, is_left: false, at_work, signals }
    }

    /// Whether a signal or `q` asked to end.
    fn is_to_end(&self) -> bool {
        self.is_left || self.signals.count() > 0
    }

    /// Waits a moment. After Ctrl-Z, restores the terminal and waits until the process is continued.
    pub(super) fn rest(&mut self) {
        thread::sleep(Duration::from_millis(20));
        self.is_left |= self.keys.as_ref().is_some_and(|keys| keys.pressed(b"qQ"));
        let signals = Arc::clone(&self.signals);
        signals.pause(|| _ = self.leave());
    }

    /// Draws the whole screen, overwriting the previous lines.
    pub(super) fn draw(&mut self, moment: &Moment, metric: Option<&str>) -> Result<(), Exit> {
        let enter = if std::mem::replace(&mut self.is_entered, true) { "" } else { ENTER };
        if !enter.is_empty() {
            self.keys = Keys::listen();
        }
        let machine = self.at_work.line(&moment.folder);
        let text = text(moment, machine.as_deref(), metric);
        let (width, height) = size();
        let lines: Vec<&str> = text.lines().take(height.saturating_sub(wraps(&text, width))).collect();
        as_it_is(&format!("{enter}\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n")))
    }

    /// Restores the previous content of the terminal.
    pub(super) fn leave(&mut self) -> Result<(), Exit> {
        self.keys = None;
        if std::mem::take(&mut self.is_entered) { as_it_is(LEAVE) } else { Ok(()) }
    }
}

/// Prints escape sequences to the terminal, even if colours are off.
fn as_it_is(text: &str) -> Result<(), Exit> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|_| Exit::Done)
}

/// As high as the terminal, with room for a prompt.
pub(super) fn text(moment: &Moment, machine: Option<&str>, metric: Option<&str>) -> String {
    let (width, height) = size();
    let color = anstream::stdout().current_choice() != anstream::ColorChoice::Never;
    let most = if io::stdout().is_terminal() { width } else { usize::MAX };
    let head = moment.lines.iter().map(String::as_str).chain(machine);
    let head = head.map(|line| folded(&escape_line(line), most)).collect::<Vec<_>>().join("\n");
    let draw = |height: usize| {
        let height = height.clamp(LEAST_LINES, MOST_LINES);
        let curves = moment.curves(metric, Style { width, height, color });
        format!("{head}\n\n{curves}")
    };
    let whole = draw(height);
    let around = whole.lines().count().saturating_sub(height.clamp(LEAST_LINES, MOST_LINES));
    escape_uncoloured(&draw(height.saturating_sub(around + wraps(&head, width) + 1))).into_owned()
}

/// Number of extra lines that the terminal needs for text lines, above the curves, that are wider than it.
fn wraps(text: &str, width: usize) -> usize {
    let words = text.lines().take_while(|line| !line.is_empty());
    words.map(|line| line.chars().count().saturating_sub(1) / width).sum()
}

/// Width and height of the terminal in characters.
fn size() -> (usize, usize) {
    let size = terminal_size::terminal_size_of(io::stdout());
    size.map_or((100, 24), |(width, height)| (width.0.clamp(40, 400).into(), height.0.into()))
}
