//! The console: progress while it runs, and at the end a short table that names the folder.
//!
//! The table is the result and goes to standard output; everything else goes to standard error. Times come
//! from the events, so the output depends only on them.

mod bar;
mod closing;
mod plain;
mod sparkline;
mod steps;
mod sweep_line;
mod validated;

use std::{
    collections::BTreeSet,
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Instant,
};

use bar::Bar;
use plain::PrintInterval;
pub use sweep_line::{LineMode, SweepLine};
use terminal_size::terminal_size_of;
use validated::Validated;

use super::{
    LabTable, RecordError, Sink, error::STANDARD_OUTPUT, lab::step_in_words, messages, terminal::folded,
};
use crate::{
    event::{Best, Event, Header, Level, Outcome, Progress, ValidationRow},
    host::{Stream, escape_line, escape_uncoloured, lock},
};

/// How much is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// `-q`: warnings and, at the end, the folder.
    Quiet,
    /// Progress, warnings and the table.
    Normal,
    /// `-v`: also every notice, every validation and the details at the end.
    Verbose,
}

/// Warnings already printed. The trials of a sweep share this set, so that each warning is printed once.
#[derive(Clone, Debug, Default)]
pub struct Warned(Arc<Mutex<BTreeSet<String>>>);

impl Warned {
    /// Records a warning that was printed elsewhere.
    pub fn note(&self, warning: &str) {
        self.is_new(warning);
    }

    /// Whether the warning is new; records it. Another trial's counts do not make it another one.
    fn is_new(&self, warning: &str) -> bool {
        let is_number = |word: &&str| !word.contains(|c: char| !c.is_ascii_digit() && c != ',');
        let words: Vec<&str> = warning.split(' ').filter(|word| !is_number(word)).collect();
        // A poisoned set is still usable: at worst a warning is printed twice.
        lock(&self.0).insert(words.join(" "))
    }
}

#[derive(Clone, Debug)]
pub struct ConsoleOptions {
    pub verbosity: Verbosity,
    /// Whether standard error is a terminal, so that a bar can be drawn.
    pub terminal: bool,
    /// Whether no other trial runs at the same time; if one does, `-v` only prints how trials ended.
    pub is_alone: bool,
    /// Whether standard output gets the events and no text for people.
    pub json: bool,
    /// Whether standard output takes colours.
    pub color: bool,
    /// Columns of the terminal that standard output goes to, if it goes to one.
    pub width: Option<u16>,
    /// The trial, if the run belongs to a sweep. A sweep has a progress line and, at its end, a table; with
    /// `-v` each trial prints its own lines. A single run ends with a table on standard output.
    pub trial: Option<TrialOfSweep>,
    pub warned: Warned,
}

/// A trial's place in its sweep.
#[derive(Clone, Debug)]
pub struct TrialOfSweep {
    /// From 0.
    pub number: usize,
    /// Trials of the sweep.
    pub of: usize,

    pub line: Arc<SweepLine>,
}

/// The sink that prints to the console.
pub struct Console {
    options: ConsoleOptions,
    folder: PathBuf,
    begun: Instant,
    header: Option<Box<Header>>,
    /// Rows of products and copies.
    table: LabTable,
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    bar: Bar,
    /// The best validation by the monitored metric.
    best: Option<Best>,
    validated: Validated,
    pace: PrintInterval,
    /// Text for standard output, printed once the other sinks have written their files.
    waiting: String,
}

impl Console {
    /// For the run in `folder`, which started at `begun`.
    pub fn new(folder: &Path, begun: Instant, options: ConsoleOptions) -> Self {
        let out: Box<dyn Write + Send> =
            if options.json { Box::new(io::sink()) } else { Box::new(Stream::Output) };
        Self::with_streams(folder, begun, options, out, Box::new(Stream::Error))
    }

    fn with_streams(
        folder: &Path,
        begun: Instant,
        options: ConsoleOptions,
        out: Box<dyn Write + Send>,
        err: Box<dyn Write + Send>,
    ) -> Self {
        Self {
            options,
            folder: folder.to_owned(),
            begun,
            header: None,
            table: LabTable::default(),
            out,
            err,
            bar: Bar::default(),
            best: None,
            validated: Validated::default(),
            pace: PrintInterval::default(),
            waiting: String::new(),
        }
    }

    /// Prints a line to standard error. A write error is ignored: it is no reason to end a run.
    fn print_line(&mut self, line: &str) {
        self.bar.clear(&mut self.err);
        let mut line = escape_line(line);
        if self.options.terminal {
            line = folded(&line, width()).into();
        }
        match &self.options.trial {
            Some(trial) => trial.line.apart(&mut self.err, |err| drop(writeln!(err, "{line}"))),
            None => drop(writeln!(self.err, "{line}")),
        }
    }

    /// Whether lines are printed about this run or trial itself.
    fn is_shown(&self) -> bool {
        match self.options.verbosity {
            Verbosity::Quiet => false,
            Verbosity::Normal => self.options.trial.is_none(),
            Verbosity::Verbose => self.options.is_alone,
        }
    }

    fn progress(&mut self, progress: &Progress) {
        let Some(header) = &self.header else { return };
        if let Some(trial) = &self.options.trial {
            trial.line.progress(trial.number, plain::share(header, progress), &mut self.err);
        }
        if !self.is_shown() {
            return;
        }
        if self.options.terminal {
            self.bar.show(header, (progress, self.best), width(), &mut self.err);
        } else if self.pace.progress_is_due(header, progress) {
            let line = plain::progress(header, progress, self.best);
            self.print_line(&line);
        }
    }

    fn see_best(&mut self, row: &ValidationRow) {
        let Some(header) = &self.header else { return };
        let Some(monitor) = header.monitor else { return self.validated.see(header, row, false) };
        let value = row.value(monitor).filter(|value| value.is_finite());
        let is_better = |best: Best, value| monitor.cost(value) < monitor.cost(best.value);
        let new_best = value.filter(|value| self.best.is_none_or(|best| is_better(best, *value)));
        self.validated.see(header, row, new_best.is_some());
        if let Some(value) = new_best {
            self.best = Some(Best { monitor, value, epoch: row.epoch, step: row.step, is_restored: false });
        }
    }

    fn validation(&mut self, row: &ValidationRow) {
        let Some(header) = &self.header else { return };
        let due = match self.options.verbosity {
            Verbosity::Quiet => false,
            // The bar or the sweep's line shows this.
            Verbosity::Normal if self.options.terminal || self.options.trial.is_some() => false,
            Verbosity::Normal => self.pace.validation_is_due(header, row),
            Verbosity::Verbose => true,
        };
        if due {
            self.print_line(&messages::validation(row));
        }
    }

    fn finished(&mut self, outcome: &Outcome) {
        self.bar.clear(&mut self.err);
        let Some(header) = self.header.take() else { return };
        let quiet = self.options.verbosity == Verbosity::Quiet;
        if self.options.verbosity == Verbosity::Verbose {
            messages::details(&header, outcome).iter().for_each(|line| self.print_line(line));
        }
        let wall_s = outcome.earlier_s + self.begun.elapsed().as_secs_f64();
        let color = self.options.color;
        let width = self.options.width.map_or(usize::MAX, usize::from);
        if self.options.trial.is_some() {
            if self.options.verbosity == Verbosity::Verbose {
                self.print_line(&closing::line(outcome, &closing::folder_name(&self.folder)));
            }
        } else if quiet {
            self.waiting.push_str(&format!("{}\n", escape_line(&self.folder.to_string_lossy())));
        } else if header.lab.is_some() {
            let table = std::mem::take(&mut self.table);
            self.waiting.push_str(&closing::lab(&header, outcome, (table, wall_s), &self.folder, color));
        } else {
            self.waiting.push_str(&closing::table(
                &header,
                (outcome, &self.validated),
                wall_s,
                &self.folder,
                (color, width),
            ));
        }
    }
}

/// Width of the terminal on standard error.
fn width() -> usize {
    terminal_size_of(io::stderr()).map_or(80, |(width, _)| usize::from(width.0))
}

impl Sink for Console {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        match event {
            Event::Started(header) => {
                if self.is_shown() {
                    // A trial is identified by its folder, a single run by its name.
                    let name = match &self.options.trial {
                        None => header.name.clone(),
                        Some(trial) => closing::trial_name(&self.folder, trial),
                    };
                    self.print_line(&messages::started(&name, header));
                }
                if let Some(trial) = &self.options.trial {
                    trial.line.progress(trial.number, 0.0, &mut self.err);
                }
                // With `-v` it is printed as a notice.
                if let (Some(words), Verbosity::Normal) = (&header.weak_scaling, self.options.verbosity) {
                    self.print_line(words);
                }
                self.best = header.best;
                self.header = Some(header.clone());
            }
            Event::Progress(progress) => self.progress(progress),
            Event::Validation(row) => {
                self.see_best(row);
                self.validation(row);
            }
            Event::Notice(Level::Warning, message) => {
                if self.options.warned.is_new(message) {
                    let of =
                        self.options.trial.as_ref().map(|trial| format!("first in trial {}: ", trial.number));
                    self.print_line(&format!("warning: {}{message}", of.unwrap_or_default()));
                }
            }
            Event::Notice(Level::Info | Level::Error, message) => {
                if self.options.verbosity == Verbosity::Verbose {
                    self.print_line(message);
                }
            }
            Event::Product(_) | Event::Together(_) | Event::Copy(_) => self.table.take(event),
            Event::Step(row) if self.options.verbosity > Verbosity::Quiet => {
                self.waiting.push_str(&step_in_words(row));
            }
            Event::Finished(outcome) => self.finished(outcome),
            Event::Train(_) | Event::Checkpoint(_) | Event::Norms(_) | Event::Step(_) => {}
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let text = std::mem::take(&mut self.waiting);
        match self.out.write_all(escape_uncoloured(&text).as_bytes()).and_then(|()| self.out.flush()) {
            // A closed pipe, as in `runner spec.toml | head -1`, is no error.
            Err(e) if e.kind() != ErrorKind::BrokenPipe => {
                Err(RecordError::write(Path::new(STANDARD_OUTPUT), e))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
