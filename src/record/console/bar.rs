//! The progress bar of a terminal, made once a run has lasted long enough to want one.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::plain;
use crate::event::{Header, Progress};

/// A run shorter than this never draws.
const PATIENCE_S: f64 = 0.25;

/// Redraws per second.
const DRAWS_PER_S: u8 = 10;

/// A bar that may never come to be.
#[derive(Default)]
pub(super) struct Bar(Option<ProgressBar>);

impl Bar {
    /// Shows how far the run is.
    pub(super) fn show(&mut self, header: &Header, progress: &Progress) {
        if self.0.is_none() && progress.elapsed_s < PATIENCE_S {
            return;
        }
        let bar = self.0.get_or_insert_with(|| new_bar(header.steps_planned));
        bar.set_message(plain::progress(header, progress));
        bar.set_position(progress.step);
    }

    /// Prints something with the bar out of its way.
    pub(super) fn aside(&self, print: impl FnOnce()) {
        match &self.0 {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes the bar away.
    pub(super) fn end(&mut self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(DRAWS_PER_S));
    // Not `wide_msg`: padded to the last column, the bar would leave no room for the `^C` that a terminal echoes, and
    // that would push it out of reach of its own clearing. The template is fixed, so it parses; were it not to, indicatif's own bar serves.
    let style = ProgressStyle::with_template("{bar:24} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─");
    bar.with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn a_short_run_never_draws() {
        let at = |elapsed_s| Progress { step: 1, epoch: 1, samples: 1, train_s: 0.1, elapsed_s, loss: None };
        let mut bar = Bar::default();
        bar.show(&sample::header(), &at(0.1));
        assert!(bar.0.is_none());
        bar.show(&sample::header(), &at(0.3));
        assert!(bar.0.is_some());
        bar.end();
        assert!(bar.0.is_none());
    }
}
