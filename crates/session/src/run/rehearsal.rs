//! Runs the first steps of a trial a few times over, on its own rows and without a folder, to see what the whole run will take.
//! What they learn is thrown away.

use std::{
    fmt,
    time::{Duration, Instant},
};

use super::{Datasets, Planned};
use crate::{
    event::{Closed, Outcome, Status},
    host::load::{self, Use},
    plan::Trial,
    record::RowLengths,
    train::StopFlag,
    units,
};

/// Approximate time of one round, and the fewest rounds of short steps; more rounds begin until `LONG` has passed.
const ROUND_S: f64 = 15e-3;
const LEAST_ROUNDS: usize = 3;
const LONG: Duration = Duration::from_millis(75);

/// A round that takes longer ends, whatever the rates of the machine foretold.
const LONGEST_ROUND: Duration = Duration::from_millis(150);

/// A step that takes longer than this by the machine's rates, in seconds, is not measured.
const LONGEST_STEP_S: f64 = 0.5;

/// Rows that a run would read into memory when it begins are read for a rehearsal only if they are no more than this.
const MOST_READ_BYTES: u64 = 64 << 20;

impl fmt::Display for Unmeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHere => f.write_str("its devices are not here"),
            Self::TooLong => write!(f, "longer than {}", units::seconds(LONGEST_STEP_S)),
            Self::Because(why) => f.write_str(why),
        }
    }
}

/// What was measured of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Rehearsal {
    /// Seconds of a step, with the handling of its rows and of its log; the median over the rounds.
    pub step_s: f64,
    /// Seconds of a pass over the validation rows, if one was short enough to be measured.
    pub validation_s: Option<f64>,
    /// Seconds to load the devices.
    pub loading_s: f64,
    /// Mean bytes of a row of `metrics.csv`: see [`RowLengths::means`].
    pub row_bytes: [Option<f64>; 2],
    /// Share of the processors' time that others took meanwhile.
    pub others: f64,
}

/// Why nothing was measured.
#[derive(Clone, Debug)]
pub enum Unmeasured {
    /// The devices are not the real ones, or not all of them are here.
    NotHere,
    /// A step takes too long.
    TooLong,
    /// The reason, in words.
    Because(String),
}

/// Rehearses a trial.
pub fn rehearse(trial: &Trial, datasets: &mut Datasets) -> Result<Rehearsal, Unmeasured> {
    if trial.devices.any_virtual() || trial.devices.over_hosts() {
        return Err(Unmeasured::NotHere);
    }
    let about_s = trial.lower_bound.settled_s(trial.threads);
    if about_s > LONGEST_STEP_S {
        return Err(Unmeasured::TooLong);
    }
    let failed = |why: &dyn ToString| Unmeasured::Because(why.to_string());
    let dataset = datasets.open(&trial.spec).map_err(|_| failed(&"its data cannot be read"))?;
    if dataset.is_read_at_start && dataset.feature_bytes() > MOST_READ_BYTES {
        return because("its rows are read when it begins".to_owned());
    }
    let short = shortened(trial, about_s);
    let (mut rounds, mut lengths) = (Vec::new(), RowLengths::new(&short).map_err(|e| failed(&e))?);
    let (before, begun) = (load::sample(), Instant::now());
    while rounds.len() < LEAST_ROUNDS || begun.elapsed() < LONG {
        rounds.push(round(&short, datasets, &mut lengths)?);
        // A GPU takes longer to load than to measure.
        if trial.engine.is_gpu() || begun.elapsed() > 2 * LONG {
            break;
        }
    }
    let used = before.zip(load::sample()).and_then(|(before, after)| Use::between(&before, &after));
    let median = |of: fn(&Round) -> Option<f64>| {
        let mut values: Vec<f64> = rounds.iter().filter_map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    Ok(Rehearsal {
        step_s: median(|round| Some(round.step_s)).unwrap_or(about_s),
        validation_s: median(|round| round.validation_s),
        loading_s: median(|round| Some(round.loading_s)).unwrap_or(0.0),
        row_bytes: lengths.means(),
        others: used.map_or(0.0, |used| used.others),
    })
}

impl Rehearsal {
    /// A step as the rates of the machine foretell it.
    pub fn by_rates(trial: &Trial) -> Self {
        let step_s = trial.lower_bound.settled_s(trial.threads);
        Self { step_s, validation_s: None, loading_s: 0.0, row_bytes: [None; 2], others: 0.0 }
    }
}

fn because<T>(why: String) -> Result<T, Unmeasured> {
    Err(Unmeasured::Because(why))
}

/// The trial with as many steps as a round has time for: nothing that ends a run early, and no checkpoints.
fn shortened(trial: &Trial, about_s: f64) -> Trial {
    let mut short = trial.clone();
    let steps = (ROUND_S / about_s) as u64; // the cast saturates
    short.steps = steps.clamp(2, 1 << 20).min(trial.steps);
    let pass_s = about_s * trial.validation_steps();
    let spec = &mut short.spec;
    (spec.trainer.max_time, spec.trainer.early_stopping) = (Some(LONGEST_ROUND), None);
    if pass_s > ROUND_S {
        spec.trainer.validate_every_epochs = 0;
    }
    (spec.checkpoint, spec.logging.trace) = (None, false);
    short
}

/// What a round measured.
struct Round {
    step_s: f64,
    validation_s: Option<f64>,
    loading_s: f64,
}

fn round(trial: &Trial, datasets: &mut Datasets, lengths: &mut RowLengths) -> Result<Round, Unmeasured> {
    let failed = |e: super::ExecuteError| Unmeasured::Because(e.to_string());
    let opened = trial.open(datasets).map_err(failed)?;
    let begun = Instant::now();
    let ready = trial.ready(opened).map_err(failed)?;
    let loading_s = begun.elapsed().as_secs_f64();
    let trained = ready.train(&StopFlag::default(), &mut |events| {
        events.iter().try_for_each(|event| lengths.take(event)).map_err(|_| Closed)
    });
    let outcome =
        trained.map_err(|_| Unmeasured::Because("its rows cannot be formatted".to_owned()))?.outcome;
    let Outcome { status: Status::Finished, steps: steps @ 1.., train_s, timing, .. } = outcome else {
        return because(outcome.reason.unwrap_or_else(|| outcome.status.name().to_owned()));
    };
    let row = |phase: &str| timing.iter().find(|row| row.clock == "host" && row.phase == phase);
    // The first step is cold, and resident rows are uploaded once.
    let once_s = if trial.chunks.is_none() { row("upload").map_or(0.0, |row| row.total_s) } else { 0.0 };
    let cold_s = row("warmup").map_or(0.0, |row| row.total_s);
    let warm_s = (train_s - once_s - cold_s) / (steps - 1).max(1) as f64;
    let step_s = if steps > 1 && warm_s > 0.0 { warm_s } else { train_s / steps as f64 };
    let validation_s = row("validation").filter(|row| row.count > 0).map(|row| row.p50_s);
    Ok(Round { step_s, validation_s, loading_s })
}
