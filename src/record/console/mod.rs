//! The console: progress while it runs, and at the end a short table that names the folder.
//!
//! The table is the result and goes to standard output; everything else goes to standard error. Times come from the
//! events, so that what is printed depends on nothing else.

mod bar;
mod closing;
mod plain;

use std::{
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    time::Instant,
};

use bar::Bar;
use plain::Pace;

use super::{RecordError, Sink, story};
use crate::event::{Event, Header, Level, Outcome, Progress, ValidationRow};

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// `-q`: warnings and, at the end, the folder.
    Quiet,
    /// Progress, warnings and the table.
    Normal,
    /// `-v`: every notice and every validation, too.
    Verbose,
}

/// What the end of a run prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A table on standard output: a run of its own.
    Table,
    /// A line on standard error: a trial of a sweep, whose table comes later.
    Line,
}

/// The console's manners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsoleOptions {
    /// How much is said.
    pub verbosity: Verbosity,
    /// Whether standard error is a terminal, so that a bar can be drawn.
    pub terminal: bool,
    /// Whether standard output takes colours.
    pub color: bool,
    /// What the end prints.
    pub ending: Ending,
}

/// The sink that talks to the user.
pub struct Console {
    options: ConsoleOptions,
    folder: PathBuf,
    begun: Instant,
    header: Option<Box<Header>>,
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    bar: Bar,
    pace: Pace,
    /// Said once the other sinks have written their files.
    closing: Option<String>,
}

impl Console {
    /// A console for the run in `folder`. Its time as a whole is counted from `begun`.
    pub fn new(folder: &Path, begun: Instant, options: ConsoleOptions) -> Self {
        Self::with_streams(folder, begun, options, Box::new(io::stdout()), Box::new(io::stderr()))
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
            out,
            err,
            bar: Bar::default(),
            pace: Pace::default(),
            closing: None,
        }
    }

    /// A line on standard error. Nobody being there to read it is no reason to end a run.
    fn say(&mut self, line: &str) {
        let err = &mut self.err;
        self.bar.aside(|| {
            let _ = writeln!(err, "{line}");
        });
    }

    fn progress(&mut self, progress: &Progress) {
        let Some(header) = &self.header else { return };
        if self.options.verbosity == Verbosity::Quiet {
            return;
        }
        if self.options.terminal {
            self.bar.show(header, progress);
        } else if self.pace.progress_is_due(progress) {
            let line = plain::progress(header, progress);
            self.say(&line);
        }
    }

    fn validation(&mut self, row: &ValidationRow) {
        let Some(header) = &self.header else { return };
        let due = match self.options.verbosity {
            Verbosity::Quiet => false,
            Verbosity::Normal => !self.options.terminal && self.pace.validation_is_due(header, row),
            Verbosity::Verbose => true,
        };
        if due {
            self.say(&story::validation(row));
        }
    }

    fn finished(&mut self, outcome: &Outcome) {
        self.bar.end();
        let Some(header) = self.header.take() else { return };
        let quiet = self.options.verbosity == Verbosity::Quiet;
        match self.options.ending {
            Ending::Table if quiet => self.closing = Some(format!("{}\n", self.folder.display())),
            Ending::Table => {
                let wall_s = self.begun.elapsed().as_secs_f64();
                self.closing =
                    Some(closing::table(&header, outcome, wall_s, &self.folder, self.options.color));
            }
            Ending::Line if quiet => {}
            Ending::Line => {
                let line = closing::line(outcome, &self.folder);
                self.say(&line);
            }
        }
    }
}

impl Sink for Console {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        match event {
            Event::Started(header) => {
                if self.options.verbosity > Verbosity::Quiet {
                    // A trial is known by its folder, a run of its own by its name.
                    let name = match self.options.ending {
                        Ending::Table => header.name.clone(),
                        Ending::Line => closing::folder_name(&self.folder),
                    };
                    self.say(&story::started(&name, header));
                }
                self.header = Some(header.clone());
            }
            Event::Progress(progress) => self.progress(progress),
            Event::Validation(row) => self.validation(row),
            Event::Notice(Level::Warning, message) => self.say(&format!("warning: {message}")),
            Event::Notice(Level::Info, message) => {
                if self.options.verbosity == Verbosity::Verbose {
                    self.say(message);
                }
            }
            Event::Finished(outcome) => self.finished(outcome),
            Event::Train(_) => {}
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        let Some(text) = self.closing.take() else { return Ok(()) };
        match self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            // `runner spec.toml | head -1` is no error.
            Err(e) if e.kind() != ErrorKind::BrokenPipe => {
                Err(RecordError::write(Path::new("standard output"), e))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::record::sample;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Broken(ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const OPTIONS: ConsoleOptions =
        ConsoleOptions { verbosity: Verbosity::Normal, terminal: false, color: false, ending: Ending::Line };

    fn printed(options: ConsoleOptions, events: &[Event]) -> String {
        let (out, err) = (Page::default(), Page::default());
        let mut console = Console::with_streams(
            Path::new("runs/linreg/20270115T080000Z-0123abcd"),
            Instant::now(),
            options,
            Box::new(out.clone()),
            Box::new(err.clone()),
        );
        for event in events {
            console.event(event).unwrap();
            console.flush().unwrap();
        }
        let text = |page: Page| String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        format!("{}--\n{}", text(err), text(out))
    }

    #[test]
    fn without_a_terminal_there_are_lines() {
        insta::assert_snapshot!(printed(OPTIONS, &sample::events()), @r"
        20270115T080000Z-0123abcd: 2 epochs of 80 rows, 6 steps, on cpu (asked for 1 GPU), engine serial, f32
        warning: `gpu:0` is not there: training on the CPU
        epoch 1, step 3: validation loss 0.1235, accuracy 90.0 %
        epoch 2, step 6: validation loss 0.1000, accuracy 95.0 %
        20270115T080000Z-0123abcd: finished after 6 steps in 2 epochs, 500 ms
        --
        ");
    }

    #[test]
    fn verbose_tells_every_notice() {
        let options = ConsoleOptions { verbosity: Verbosity::Verbose, terminal: true, ..OPTIONS };
        insta::assert_snapshot!(printed(options, &sample::events()), @r"
        20270115T080000Z-0123abcd: 2 epochs of 80 rows, 6 steps, on cpu (asked for 1 GPU), engine serial, f32
        warning: `gpu:0` is not there: training on the CPU
        epoch 1, step 3: validation loss 0.1235, accuracy 90.0 %
        two
        lines
        epoch 2, step 6: validation loss 0.1000, accuracy 95.0 %
        20270115T080000Z-0123abcd: finished after 6 steps in 2 epochs, 500 ms
        --
        ");
    }

    #[test]
    fn quiet_tells_warnings_and_the_folder() {
        let options = ConsoleOptions { verbosity: Verbosity::Quiet, ending: Ending::Table, ..OPTIONS };
        insta::assert_snapshot!(printed(options, &sample::events()), @r"
        warning: `gpu:0` is not there: training on the CPU
        --
        runs/linreg/20270115T080000Z-0123abcd
        ");
    }

    #[test]
    fn a_run_that_never_started_says_nothing() {
        let options = ConsoleOptions { ending: Ending::Table, ..OPTIONS };
        assert_eq!(printed(options, &sample::events()[2..]), "--\n");
    }

    #[test]
    fn a_broken_pipe_is_no_error_and_a_full_disk_is() {
        let flush = |kind| {
            let options = ConsoleOptions { ending: Ending::Table, ..OPTIONS };
            let out = Box::new(Broken(kind));
            let mut console =
                Console::with_streams(Path::new("x"), Instant::now(), options, out, Box::new(Broken(kind)));
            for event in sample::events() {
                console.event(&event).unwrap();
            }
            console.flush()
        };
        flush(ErrorKind::BrokenPipe).unwrap();
        let error = flush(ErrorKind::StorageFull).unwrap_err();
        assert_eq!(error.to_string(), "cannot write `standard output`: no storage space");
    }
}
