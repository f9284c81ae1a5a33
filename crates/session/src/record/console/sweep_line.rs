//! The progress of a sweep, on one line shared by its trials: redrawn on a terminal, printed from time to
//! time elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    sync::Mutex,
    time::Instant,
};

use super::bar::{CLEAR, REDRAW_S};
use crate::{
    host::{escape_line, lock},
    units,
};

/// Without a terminal, seconds between two lines of a short sweep; a long one prints a line per twentieth of
/// its time.
const LINE_INTERVAL_S: f64 = 5.0;

/// How the line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineMode {
    /// Not at all.
    Hidden,
    /// Redrawn on a terminal.
    Redrawn,
    /// As separate lines of text.
    Lines,
}

/// The progress line of a sweep.
#[derive(Debug)]
pub struct SweepLine {
    trials: usize,
    /// The work of the trials that are not settled, in units of one complete trial.
    work: f64,
    mode: LineMode,
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// For each trial, whether it will not run any more.
    over: Vec<bool>,
    /// How many of them there are.
    ended: usize,
    /// How many of them were not run.
    skipped: usize,
    failed: usize,
    running: BTreeSet<usize>,
    /// The completed share of each trial that has begun and will run on.
    shares: BTreeMap<usize, f64>,
    /// The sum of those of the others.
    done: f64,
    /// The best setting: its value, and its trial, such as `#12: lr 0.01 width 32`.
    best: Option<[String; 2]>,
    is_drawn: bool,
    last_s: f64,
}

impl SweepLine {
    /// For a sweep of `trials`. Those in `settled` ended before this process started, or repeat others; the
    /// rest take the time of `work` complete trials.
    pub fn new(trials: usize, settled: BTreeSet<usize>, work: f64, mode: LineMode) -> Self {
        let over: Vec<bool> = (0..trials).map(|trial| settled.contains(&trial)).collect();
        let state = Mutex::new(State { over, ended: settled.len(), ..State::default() });
        Self { trials, work, mode, begun: Instant::now(), state }
    }

    pub fn is_hidden(&self) -> bool {
        self.mode == LineMode::Hidden
    }

    /// Updates the completed share of a running trial.
    pub fn progress(&self, trial: usize, share: f64, err: &mut dyn Write) {
        let mut state = lock(&self.state);
        state.running.insert(trial);
        state.shares.insert(trial, share);
        self.show(&mut state, self.elapsed_s(), err);
    }

    /// From now on shows this setting as the best: its value, and its trial.
    pub fn show_best(&self, best: Option<[String; 2]>) {
        lock(&self.state).best = best;
    }

    pub fn ended(&self, trial: usize, is_failure: bool, err: &mut dyn Write) {
        let mut state = lock(&self.state);
        state.shares.insert(trial, 1.0);
        state.end(trial);
        state.failed += usize::from(is_failure);
        self.show(&mut state, self.elapsed_s(), err);
    }

    /// A trial waits at a rung, or it does not run any more.
    pub fn pauses(&self, trial: usize, is_over: bool) {
        let mut state = lock(&self.state);
        state.running.remove(&trial);
        if is_over {
            state.end(trial);
        }
    }

    pub fn skipped(&self, trial: usize) {
        let mut state = lock(&self.state);
        state.skipped += usize::from(state.end(trial));
    }

    /// Erases the line, then runs `print`, so that the two outputs do not mix.
    pub fn apart<R>(&self, err: &mut dyn Write, print: impl FnOnce(&mut dyn Write) -> R) -> R {
        let mut state = lock(&self.state);
        if std::mem::take(&mut state.is_drawn) {
            let _ = write!(err, "{CLEAR}"); // a write error is no reason to end a run
            let _ = err.flush();
        }
        print(err)
    }

    fn elapsed_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    fn show(&self, state: &mut State, elapsed_s: f64, err: &mut dyn Write) {
        let between_s = match self.mode {
            LineMode::Hidden => return,
            LineMode::Redrawn => REDRAW_S,
            LineMode::Lines => LINE_INTERVAL_S.max(elapsed_s / 20.0),
        };
        if elapsed_s - state.last_s < between_s || state.ended >= self.trials {
            return;
        }
        state.last_s = elapsed_s;
        let width =
            if self.mode == LineMode::Redrawn { super::width().saturating_sub(3) } else { usize::MAX };
        let text = escape_line(&self.text(state, elapsed_s, width)).into_owned();
        if self.mode == LineMode::Redrawn {
            let line: String = text.chars().take(width).collect();
            let _ = write!(err, "{CLEAR}{line}");
            state.is_drawn = true;
        } else {
            let _ = writeln!(err, "{text}");
        }
        let _ = err.flush();
    }

    /// `37/60  2 running  best 0.0615 (#12: lr 0.01 width 32)  40.0 s left`. If it is too wide, the trial is
    /// truncated.
    fn text(&self, state: &State, elapsed_s: f64, width: usize) -> String {
        let trial = state.best.as_ref().map_or("", |[_, trial]| trial.as_str());
        let whole = self.line_with(trial, state, elapsed_s);
        let over = whole.chars().count().saturating_sub(width);
        if over == 0 {
            return whole;
        }
        let stay = trial.chars().count().saturating_sub(over + 1);
        let cut: String = trial.chars().take(stay).chain(['…']).collect();
        self.line_with(&cut, state, elapsed_s)
    }

    fn line_with(&self, trial: &str, state: &State, elapsed_s: f64) -> String {
        let [ended, trials] = [state.ended, self.trials].map(|n| units::count(n as u64));
        let mut words = vec![format!("{ended}/{trials}")];
        if state.failed > 0 {
            words.push(format!("{} failed", units::count(state.failed as u64)));
        }
        if !state.running.is_empty() {
            words.push(format!("{} running", state.running.len()));
        }
        if let Some([value, _]) = &state.best {
            words.push(format!("best {value} ({trial})"));
        }
        let done = state.done + state.shares.values().sum::<f64>();
        let left = self.work - state.skipped as f64 - done;
        if done > 0.0 && left > 0.0 {
            words.push(format!("{} left", units::seconds(elapsed_s / done * left)));
        }
        words.join("  ")
    }
}

impl State {
    /// A trial will not run any more; returns whether that is new.
    fn end(&mut self, trial: usize) -> bool {
        self.running.remove(&trial);
        self.done += self.shares.remove(&trial).unwrap_or(0.0);
        let is_new = self.over.get_mut(trial).is_some_and(|over| !std::mem::replace(over, true));
        self.ended += usize::from(is_new);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &SweepLine, elapsed_s: f64) -> String {
        line.text(&lock(&line.state), elapsed_s, usize::MAX)
    }

    #[test]
    fn the_line_counts_what_is_left() {
        let line = SweepLine::new(60, (50..60).collect(), 50.0, LineMode::Lines);
        let mut page = Vec::new();
        assert_eq!(text(&line, 0.0), "10/60");
        (0..9).for_each(|trial| line.ended(trial, trial == 4, &mut page));
        line.skipped(11);
        // Each trial is counted once.
        [4, 11, 55].into_iter().for_each(|trial| line.pauses(trial, true));
        line.skipped(55);
        line.progress(12, 0.5, &mut page);
        line.progress(13, 0.5, &mut page);
        line.show_best(Some(["0.06150, n 3", "#12: lr 0.01 width 32"].map(str::to_owned)));
        // Ten of 49 trials took 10 s.
        assert_eq!(
            text(&line, 10.0),
            "20/60  1 failed  2 running  best 0.06150, n 3 (#12: lr 0.01 width 32)  39.0 s left"
        );
        assert_eq!(
            line.text(&lock(&line.state), 10.0, 67),
            "20/60  1 failed  2 running  best 0.06150, n 3 (#12: …)  39.0 s left"
        );
        assert_eq!(line.text(&lock(&line.state), 10.0, 78).chars().count(), 78);
        // A trial that took no time prints no line.
        assert!(page.is_empty());
    }

    #[test]
    fn a_terminal_has_one_line() {
        let line = SweepLine::new(2, BTreeSet::new(), 2.0, LineMode::Redrawn);
        let mut page = Vec::new();
        let mut show = |share: f64, elapsed_s: f64| {
            let mut state = lock(&line.state);
            state.running.insert(0);
            state.shares.insert(0, share);
            line.show(&mut state, elapsed_s, &mut page);
        };
        show(0.5, 9.0);
        show(0.6, 9.0);
        line.apart(&mut page, |page| page.write_all(b"warning: x\n").unwrap());
        line.apart(&mut page, |_| {});
        assert_eq!(
            String::from_utf8(page).unwrap(),
            "\r\x1b[2K0/2  1 running  27.0 s left\r\x1b[2Kwarning: x\n"
        );
    }
}
