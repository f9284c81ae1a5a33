//! What to change first, by what bounds a run.

use super::{Bottleneck, Engine, LowerBound, RunConfig, StepBound, Trial, gpu};
use crate::spec::{EngineChoice, Placement, Policy, Precision};

/// What makes a run longer, by what ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLimit {
    /// `trainer.max_epochs` ends it.
    Epochs,
    /// `trainer.max_steps` does.
    Steps,
    /// `trainer.max_time` does.
    Time,
}

impl RunLimit {
    /// Of a trial that neither time nor its own course ends.
    pub fn from_trial(trial: &Trial) -> Self {
        if trial.steps < trial.steps_of_epochs() { Self::Steps } else { Self::Epochs }
    }

    /// What to give it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Epochs => "more epochs",
            Self::Steps => "a larger `trainer.max_steps`",
            Self::Time => "a longer `trainer.max_time`",
        }
    }
}

/// Said where more rows per step would help, and there are none.
const ALL_ROWS: &str = "a step takes every row already";

/// The first thing to change where a step takes `step_s`, in words.
pub fn advice(limit: Bottleneck, lower_bound: &LowerBound, setting: &RunConfig, step_s: f64) -> String {
    let takes_all = setting.steps_per_epoch == 1;
    // What the plan itself would reject is no advice.
    let pays = lower_bound.settled_s(setting.cores) < super::TEAM_MARGIN * lower_bound.settled_s(1);
    let threads = (!setting.on_gpu && setting.threads < setting.cores && pays)
        .then(|| format!("more threads (`--threads {}`, `devices.engine=team`)", setting.cores));
    match limit {
        Bottleneck::Log => match setting.policy {
            Policy::Immediate => "`logging.policy=buffered` moves the losses in blocks".to_owned(),
            Policy::Buffered if setting.flush_every.is_some_and(|n| n < setting.steps_per_epoch) => {
                "a larger `logging.flush_every`".to_owned()
            }
            Policy::Buffered => "`logging.policy=per_epoch` moves one row per epoch".to_owned(),
            Policy::PerEpoch => "`logging.policy=off`".to_owned(),
            Policy::Off => "longer epochs: each hands over its validation".to_owned(),
        },
        Bottleneck::Transfer | Bottleneck::Step(StepBound::Transfer) if !setting.streamed => {
            match setting.longer {
                Some(longer) => format!("{}: the rows are moved once", longer.words()),
                None => "fewer rows: they are moved once, whatever the number of steps".to_owned(),
            }
        }
        Bottleneck::Transfer | Bottleneck::Step(StepBound::Transfer)
            if setting.placement == Placement::Streamed =>
        {
            "`data.placement=auto` keeps the rows on the device where they fit".to_owned()
        }
        Bottleneck::Transfer | Bottleneck::Step(StepBound::Transfer) => {
            "a device with memory for the rows: they are brought to it anew in every epoch".to_owned()
        }
        Bottleneck::File | Bottleneck::Step(StepBound::File) if setting.placement == Placement::Streamed => {
            "`data.placement=auto` keeps the rows in memory where they fit".to_owned()
        }
        Bottleneck::File | Bottleneck::Step(StepBound::File) => {
            match lower_bound.fetch.and_then(|fetch| fetch.rates.disk) {
                Some(_) => "more memory, or a quicker disk: the rows come from their file",
                None => "more memory: each row is copied out of its file, which the system has in its own",
            }
            .to_owned()
        }
        Bottleneck::AllReduce | Bottleneck::Step(StepBound::AllReduce) if takes_all => {
            format!("fewer devices: gradients are summed once per step, and {ALL_ROWS}")
        }
        Bottleneck::AllReduce | Bottleneck::Step(StepBound::AllReduce) => {
            "a larger `data.batch_size`: gradients are summed once per step".to_owned()
        }
        Bottleneck::Step(StepBound::Overhead) if setting.asked == EngineChoice::Launch => {
            "`devices.engine=auto`: the plan has ways to run a step without a launch per instruction"
                .to_owned()
        }
        Bottleneck::Step(StepBound::Overhead) if takes_all => {
            format!("more rows, or fewer layers: {ALL_ROWS}, and they share its fixed costs")
        }
        Bottleneck::Step(StepBound::Overhead) => {
            "a larger `data.batch_size`: more rows share a step's fixed costs".to_owned()
        }
        Bottleneck::Step(StepBound::Memory) if lower_bound.rows_s > 0.5 * lower_bound.memory_s => {
            threads.unwrap_or_else(|| "fewer features: a step's rows are read from memory".to_owned())
        }
        Bottleneck::Step(StepBound::Memory) if takes_all => {
            format!("a smaller model, or more rows: weights are read once per step, and {ALL_ROWS}")
        }
        Bottleneck::Step(StepBound::Memory) => {
            "a larger `data.batch_size`: weights are read once per step, for however many rows".to_owned()
        }
        Bottleneck::Step(StepBound::Arithmetic)
            if setting.on_gpu
                && setting.precision == Precision::F32
                && matches!(setting.engine, Engine::Graph | Engine::Launch) =>
        {
            "`devices.precision=tf32`, if products of 10 bits of mantissa will do; or more GPUs".to_owned()
        }
        Bottleneck::Step(StepBound::Arithmetic) => threads.unwrap_or_else(|| {
            let gpu_may_pay = gpu::overhead_s(lower_bound.instructions) < step_s;
            match (setting.on_gpu, gpu_may_pay) {
                (true, _) => "more GPUs, or a smaller model",
                (false, true) => "a GPU, or a smaller model",
                (false, false) => "a smaller model: a step is shorter than its launches on a GPU",
            }
            .to_owned()
        }),
    }
}
