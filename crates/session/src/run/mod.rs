//! `run`: plans, executes and records the trials of an experiment, the same way for every kind.
//!
//! ```text
//! prepare (plan every trial) -> Session (one run or a sweep, each recorded in its folder) -> Planned::run (the work)
//! ```
//!
//! A kind implements [`Planned`]: see `training.rs` and `lab.rs`.

mod about_times;
mod announce;
mod best_setting;
mod changes;
mod confusion;
mod cost;
mod datasets;
mod device_group;
mod draws;
mod engine_trials;
mod exit;
mod extension;
mod halving;
mod hosts;
mod kept_datasets;
mod kind;
mod lab;
mod leases;
mod nccl_ranks;
mod placement;
mod planned;
mod points;
mod prepare;
mod recording;
mod rehearsal;
mod resumed;
mod rung;
mod rungs;
mod samples;
mod save_weights;
mod session;
mod shared;
mod shared_plans;
mod stepper;
mod sweep;
mod sweep_engine;
mod sweep_folder;
mod sweep_progress;
mod sweep_start;
mod sweep_time;
mod training;
mod trial;
mod waiting;
mod warnings;

pub use about_times::{POLICY, concerns_learning};
pub use best_setting::{FOLD, REPEAT, Ranked, SEEDS, missing_folds, order, varies_setting};
pub use changes::{is_place_of_data, refused_changes};
pub use datasets::Datasets;
pub use device_group::{bf16_unit, executor};
pub use engine_trials::useful_threads;
pub use exit::{
    Exit, held_output, hold_output, print, print_bytes, print_coloured, print_coloured_stderr, print_error,
    print_json, print_or_end, print_stderr, refuse, warn,
};
pub use extension::{Extension, KnownTrials};
pub use hosts::{decline, leave, serve_trial};
pub use kind::Kind;
pub use placement::Placement;
pub use planned::{ExecuteError, Planned, Process, Resume, Role, RunFacts, Start};
pub use prepare::{Prepared, first_run, prepare, warnings};
pub use rehearsal::{
    LONGEST_STEP_S, Rehearsal, RoundEnd, Unmeasured, rehearse, round, shortened, stop_learning,
};
pub use rungs::waits_at_rung;
pub use samples::{
    Paired, Sample, SampleUnit, SeedsAndFold, TrialValue, is_of_fold, mean, pairs, sample_unit, samples,
};
pub use session::Session;
pub use stepper::Stepper;
pub use sweep::Ended;
pub use sweep_start::{plan_sweep, trials_left};
