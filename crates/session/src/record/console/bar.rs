//! A terminal's progress bar: one line that is redrawn, for runs that take long enough.
//!
//! The cursor stays behind the text, which is cut to the window's width, so that clearing one line is enough
//! even after an echoed `^C`.

use std::io::Write;

use super::plain;
use crate::event::{Best, Header, Progress};

/// Runs shorter than this draw no bar.
const FIRST_DRAW_S: f64 = 0.25;

/// Seconds between two redraws.
pub(super) const REDRAW_S: f64 = 0.1;

/// Width of the bar itself in cells.
const CELLS: u64 = 24;

/// Carriage return and erase line.
pub(super) const CLEAR: &str = "\r\x1b[2K";

/// A bar, drawn or not.
#[derive(Default)]
pub(super) struct Bar {
    is_drawn: bool,
    last_s: f64,
}

impl Bar {
    /// Draws the progress in at most `width` columns.
    pub(super) fn show(
        &mut self,
        header: &Header,
        (progress, best): (&Progress, Option<Best>),
        width: usize,
        err: &mut dyn Write,
    ) {
        let due_s = if self.last_s == 0.0 { FIRST_DRAW_S } else { self.last_s + REDRAW_S };
        if progress.elapsed_s < due_s {
            return;
        }
        (self.is_drawn, self.last_s) = (true, progress.elapsed_s);
        let line = line(header, progress, best);
        // Leaves two columns for an echoed `^C` and one for the cursor.
        let line: String = line.chars().take(width.saturating_sub(3)).collect();
        let _ = write!(err, "{CLEAR}{line}"); // a closed terminal does not end a run
        let _ = err.flush();
    }

    /// Erases the bar, before a line of text or at the end.
    pub(super) fn clear(&mut self, err: &mut dyn Write) {
        if std::mem::take(&mut self.is_drawn) {
            let _ = write!(err, "{CLEAR}");
            let _ = err.flush();
        }
    }
}

/// `━━━━━━╸───────────────── epoch 3/10, loss 0.01234, best 0.01100 in epoch 3, step 96, 5.126 M rows/s, 12.3
/// s left`.
fn line(header: &Header, progress: &Progress, best: Option<Best>) -> String {
    let done = (plain::share(header, progress) * CELLS as f64) as usize; // a share of 1 at most
    let cells = CELLS as usize;
    let (head, rest) = if done < cells { ("╸", cells - done - 1) } else { ("", 0) };
    format!("{}{head}{} {}", "━".repeat(done), "─".repeat(rest), plain::progress(header, progress, best))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    fn at(elapsed_s: f64, step: u64) -> Progress {
        Progress { step, epoch: 1, samples: 64, train_s: 0.5, elapsed_s, loss: Some(0.25) }
    }

    #[test]
    fn a_short_run_never_draws_and_clears_nothing() {
        let (mut bar, mut page) = (Bar::default(), Vec::new());
        bar.show(&sample::header(), (&at(0.1, 1), None), 80, &mut page);
        bar.clear(&mut page);
        assert!(page.is_empty());
    }

    #[test]
    fn drawn_ten_times_a_second_over_itself_and_cleared_once() {
        let (mut bar, mut page) = (Bar::default(), Vec::new());
        for (elapsed_s, step) in [(0.3, 2), (0.35, 3), (1.0, 3)] {
            bar.show(&sample::header(), (&at(elapsed_s, step), None), 40, &mut page);
        }
        bar.clear(&mut page);
        bar.clear(&mut page);
        let text = String::from_utf8(page).unwrap();
        let drawn: Vec<&str> = text.split(CLEAR).collect();
        assert_eq!(
            drawn,
            ["", "━━━━━━━━╸─────────────── epoch 1/2, l", "━━━━━━━━━━━━╸─────────── epoch 1/2, l", ""]
        );
    }

    #[test]
    fn a_full_bar_has_as_many_cells() {
        let lines = [0, 3, 6, 9].map(|step| line(&sample::header(), &at(1.0, step), None));
        for line in &lines {
            assert_eq!(line.split(' ').next().unwrap().chars().count(), 24, "{line}");
        }
        assert!(lines[2].starts_with(&"━".repeat(24)));
    }
}
