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
    plan::{ExpectedTime, Machine, Trial},
    record::RowLengths,
    spec::{Rule, Spec, ValidateEvery},
    train::{Emit, StopFlag},
};

/// Approximate time of one round, and the fewest rounds of short steps; more rounds begin until `LONG` has passed.
const ROUND_S: f64 = 15e-3;
const LEAST_ROUNDS: usize = 3;
const LONG: Duration = Duration::from_millis(75);

/// The longest round, in seconds and in steps by the rates of the machine, whichever is more.
const LONGEST_ROUND_S: f64 = 0.15;
const STEPS_OF_ROUND: f64 = 3.0;

/// A step that takes longer than this by the machine's rates, in seconds, is not measured.
pub const LONGEST_STEP_S: f64 = 0.5;

/// Rows that a run would read into memory when it begins are read for a rehearsal only if they are no more than this.
const MOST_READ_BYTES: u64 = 64 << 20;

impl fmt::Display for Unmeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHere => f.write_str("its devices are not here"),
            Self::TooLong => f.write_str("the first two take too long"),
            Self::Because(why) => f.write_str(why),
        }
    }
}

/// What was measured of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Rehearsal {
    /// Seconds of a step, with the handling of its rows and of its log; the median over the rounds.
    pub step_s: f64,
    /// Seconds to make the order of an epoch's rows.
    pub order_s: f64,
    /// Seconds of a pass over the validation rows, if one was short enough to be measured.
    pub validation_s: Option<f64>,
    /// Seconds to load the devices, and what the first trial of a process takes more.
    pub loading_s: f64,
    pub first_s: f64,
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
    /// Two steps take too long.
    TooLong,
    /// The reason, in words.
    Because(String),
}

/// Rehearses a trial.
pub fn rehearse(trial: &Trial, datasets: &mut Datasets) -> Result<Rehearsal, Unmeasured> {
    if !trial.is_timed_here() {
        return Err(Unmeasured::NotHere);
    }
    let about_s = trial.lower_bound.settled_s(trial.threads);
    if about_s > LONGEST_STEP_S {
        return Err(Unmeasured::TooLong);
    }
    let failed = |why: &dyn ToString| Unmeasured::Because(why.to_string());
    let dataset = datasets.open(&trial.spec).map_err(|_| failed(&"its data cannot be read"))?;
    if dataset.is_read_at_start && dataset.feature_bytes() > MOST_READ_BYTES {
        return Err(failed(&"its rows are read when it begins"));
    }
    let (mut short, mut is_longer) = (shortened(trial, [ROUND_S, LONGEST_ROUND_S]), false);
    let (mut rounds, mut lengths) = (Vec::new(), RowLengths::new(&short).map_err(|e| failed(&e))?);
    let (before, begun) = (load::counters(), Instant::now());
    while rounds.len() < LEAST_ROUNDS || begun.elapsed() < LONG {
        let ended = round(&short, datasets, &mut |events| {
            events.iter().try_for_each(|event| lengths.take(event)).map_err(|_| Closed)
        });
        match ended? {
            RoundEnd::Measured(round) => rounds.push(round),
            // It diverged: its steps take as long at a rate of 0.
            RoundEnd::Diverged if short.spec.optimizer.lr() != 0.0 => {
                stop_learning(&mut short.spec);
                continue;
            }
            RoundEnd::Diverged => return Err(failed(&"its loss is not a finite number")),
            // The order of its rows may be what takes long.
            RoundEnd::TooEarly { ordering_s, .. } if !is_longer => {
                is_longer = true;
                let more = Duration::from_secs_f64(2.0 * ordering_s);
                short.spec.trainer.max_time = short.spec.trainer.max_time.map(|most| most + more);
                continue;
            }
            RoundEnd::TooEarly { .. } => return Err(Unmeasured::TooLong),
        }
        // The second time a GPU is loaded as for each later trial.
        if begun.elapsed() > 2 * LONG || trial.engine.is_gpu() && rounds.len() > 1 {
            break;
        }
    }
    let used = before.zip(load::counters()).and_then(|(before, after)| Use::between(&before, &after));
    let median = |rounds: &[Round], of: fn(&Round) -> Option<f64>| {
        let mut values: Vec<f64> = rounds.iter().filter_map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let first_s = rounds.first().map_or(0.0, |round| round.loading_s);
    let later = rounds.get(1..).and_then(|later| median(later, |round| Some(round.loading_s)));
    let loading_s = later.unwrap_or(first_s);
    Ok(Rehearsal {
        step_s: median(&rounds, |round| Some(round.step_s)).unwrap_or(about_s),
        order_s: median(&rounds, |round| Some(round.order_s)).unwrap_or(0.0),
        validation_s: median(&rounds, |round| round.validation_s),
        loading_s,
        first_s: (first_s - loading_s).max(0.0),
        row_bytes: lengths.means(),
        others: used.map_or(0.0, |used| used.others),
    })
}

impl Rehearsal {
    /// A run as the rates of the machine foretell it; `None` if these do not say.
    pub fn by_rates(trial: &Trial, machine: &Machine) -> Option<Self> {
        let expected = ExpectedTime::new(trial, machine)?;
        Some(Self {
            step_s: expected.step_s,
            order_s: 0.0,
            validation_s: Some(expected.validation_s),
            loading_s: expected.loading_s,
            first_s: expected.start_s,
            row_bytes: [None; 2],
            others: 0.0,
        })
    }
}

/// A learning rate of 0, which leaves the weights as they are.
pub fn stop_learning(spec: &mut Spec) {
    spec.optimizer = spec.optimizer.with_lr_times(0.0).into();
    spec.schedule.rule = Rule::Constant;
}

/// The trial with as many steps as take about `round_s` by the rates of the machine, and at most about `longest_s`: nothing that
/// ends a run early, and no checkpoints.
pub fn shortened(trial: &Trial, [round_s, longest_s]: [f64; 2]) -> Trial {
    let (mut short, about_s) = (trial.clone(), trial.lower_bound.settled_s(trial.threads));
    let steps = (round_s / about_s) as u64; // the cast saturates
    short.steps = steps.clamp(2, 1 << 20).min(trial.steps);
    let pass_s = about_s * trial.validation_steps();
    let spec = &mut short.spec;
    let most_s = longest_s.max(STEPS_OF_ROUND * about_s);
    (spec.trainer.max_time, spec.trainer.early_stopping) = (Some(Duration::from_secs_f64(most_s)), None);
    if pass_s > round_s {
        spec.trainer.validate_every = ValidateEvery::NEVER;
    }
    (spec.checkpoint, spec.logging.trace) = (None, false);
    short
}

/// What a round measured, in seconds: a step but the first, the order of an epoch's rows, a validation, loading the devices.
pub struct Round {
    pub step_s: f64,
    pub order_s: f64,
    validation_s: Option<f64>,
    loading_s: f64,
}

/// How a round ended.
pub enum RoundEnd {
    Measured(Round),
    Diverged,
    /// Before its second step.
    TooEarly {
        ordering_s: f64,
        steps: u64,
        train_s: f64,
    },
}

/// Trains a trial; `emit` takes what it reports.
pub fn round(trial: &Trial, datasets: &mut Datasets, emit: Emit<'_>) -> Result<RoundEnd, Unmeasured> {
    let failed = |why: &dyn ToString| Unmeasured::Because(why.to_string());
    let opened = trial.open(datasets).map_err(|e| failed(&e))?;
    let begun = Instant::now();
    let ready = trial.ready(opened).map_err(|e| failed(&e))?;
    let loading_s = begun.elapsed().as_secs_f64();
    let trained = ready.train(&StopFlag::default(), emit);
    let outcome = trained.map_err(|_| failed(&"its rows cannot be formatted"))?.outcome;
    let Outcome { status, reason, steps, train_s, ordering_s, timing, .. } = outcome;
    match status {
        Status::Diverged => return Ok(RoundEnd::Diverged),
        // The first step is cold: the others are measured.
        Status::Finished if steps < trial.steps.min(2) => {
            return Ok(RoundEnd::TooEarly { ordering_s, steps, train_s });
        }
        Status::Finished => {}
        _ => return Err(Unmeasured::Because(reason.unwrap_or_else(|| status.name().to_owned()))),
    }
    let row = |phase: &str| timing.iter().find(|row| row.clock == "host" && row.phase == phase);
    // Resident rows are uploaded once.
    let once_s = if trial.chunks.is_none() { row("upload").map_or(0.0, |row| row.total_s) } else { 0.0 };
    let cold_s = row("warmup").map_or(0.0, |row| row.total_s);
    let steps_s = train_s - once_s - ordering_s;
    let warm_s = (steps_s - cold_s) / (steps - 1).max(1) as f64;
    let step_s = if steps > 1 && warm_s > 0.0 { warm_s } else { steps_s / steps as f64 };
    let order_s = ordering_s / steps.div_ceil(trial.steps_per_epoch.max(1)) as f64;
    let validation_s = row("validation").filter(|row| row.count > 0).map(|row| row.p50_s);
    Ok(RoundEnd::Measured(Round { step_s, order_s, validation_s, loading_s }))
}
