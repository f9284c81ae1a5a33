//! Exit codes, and printing of messages and errors.

use std::{
    fmt::Display,
    process::{ExitCode, Termination},
    sync::Mutex,
};

use anstyle::AnsiColor;

use crate::{
    host::{escape_controls, escape_line, escape_uncoloured, json_text, lock},
    spec::Failure,
};

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 1: a run failed.
    Failed,
    /// 2: the command line, the spec or the data it names is wrong; nothing was started.
    Refused,
    /// 3: a declared device is not there.
    Missing,
    /// 128 + the signal's number: interrupted, all rows were kept.
    Signal(u8),
}

impl Exit {
    /// Prints an error for which nothing was started.
    pub fn refused(message: impl Display, hint: Option<&str>) -> Self {
        print_error(message, hint);
        Self::Refused
    }

    /// Prints an error that ended the work.
    pub fn failed(message: impl Display, hint: Option<&str>) -> Self {
        print_error(message, hint);
        Self::Failed
    }

    /// The number that the process ends with.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Refused => 2,
            Self::Missing => 3,
            Self::Signal(signal) => 128 + signal,
        }
    }

    /// Ends the process without running the exit handlers of libraries, which may wait for other processes.
    pub fn at_once(self) -> ! {
        signal_hook::low_level::exit(self.code().into())
    }

    /// The more severe of two exit codes.
    pub fn more_severe(self, other: Self) -> Self {
        let weight = |exit: &Self| match exit {
            Self::Done => 0,
            Self::Missing => 1,
            Self::Failed => 2,
            Self::Refused => 3,
            Self::Signal(_) => 4,
        };
        if weight(&other) > weight(&self) { other } else { self }
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self.code())
    }
}

/// Prints an error that has no location in a spec.
pub fn print_error(message: impl Display, hint: Option<&str>) {
    let red = AnsiColor::Red.on_default().bold();
    let hint = hint.map(|hint| format!("  = hint: {}\n", escape_line(hint))).unwrap_or_default();
    print_coloured_stderr(&format!("{red}error{red:#}: {}\n{hint}", escape_line(&message.to_string())));
}

/// Prints what is wrong with a spec or its data.
pub fn refuse(failure: &Failure) -> Exit {
    print_coloured_stderr(&failure.render(true));
    Exit::Refused
}

/// Text held back by [`hold_output`], to be reported by another process (rank 0).
static HELD: Mutex<Option<String>> = Mutex::new(None);

/// From now on errors are held back instead of printed.
pub fn hold_output() {
    *lock(&HELD) = Some(String::new());
}

/// Returns the held text and prints directly from now on.
pub fn held_output() -> String {
    let text = lock(&HELD).take().unwrap_or_default();
    anstream::adapter::strip_str(&text).to_string()
}

/// Prints to standard error; failures are ignored.
pub fn print_stderr(text: &str) {
    print_coloured_stderr(&escape_controls(text));
}

/// Prints a warning to standard error.
pub fn warn(words: impl Display) {
    print_stderr(&format!("warning: {words}\n"));
}

/// Like [`print_stderr`], for text with colours.
pub fn print_coloured_stderr(text: &str) {
    use std::io::Write;
    if let Some(held) = &mut *lock(&HELD) {
        return held.push_str(text);
    }
    let _ = anstream::stderr().lock().write_all(escape_uncoloured(text).as_bytes());
}

/// Prints text for people to standard output. A broken pipe is no error; a full disk is.
pub fn print(text: &str) -> Exit {
    print_or_end(&escape_controls(text)).err().unwrap_or(Exit::Done)
}

/// Like [`print()`], for text with colours.
pub fn print_coloured(text: &str) -> Exit {
    print_or_end(&escape_uncoloured(text)).err().unwrap_or(Exit::Done)
}

/// Prints JSON to standard output.
pub fn print_json(json: &impl std::fmt::Display) -> Exit {
    print_bytes(json_text(json).as_bytes())
}

/// Prints to standard output, including control characters.
///
/// # Errors
/// How the process is to end, if standard output cannot be written and printing more is useless.
pub fn print_or_end(text: &str) -> Result<(), Exit> {
    write(&mut anstream::stdout().lock(), text.as_bytes())
}

/// Prints data to standard output unchanged: a file format keeps its control characters.
pub fn print_bytes(bytes: &[u8]) -> Exit {
    write(&mut std::io::stdout().lock(), bytes).err().unwrap_or(Exit::Done)
}

fn write(out: &mut impl std::io::Write, bytes: &[u8]) -> Result<(), Exit> {
    use std::io::ErrorKind;
    if lock(&HELD).is_some() {
        return Ok(());
    }
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| {
        if e.kind() == ErrorKind::BrokenPipe {
            return Exit::Done;
        }
        Exit::failed(format!("cannot write to standard output: {}", crate::host::reason(&e)), None)
    })
}
