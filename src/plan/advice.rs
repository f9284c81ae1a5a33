//! What to change first, by what bounds a run.

use super::{Bound, Engine, Floor, Limit, Setting};
use crate::spec::{EngineChoice, Placement, Policy, Precision};

/// The first thing to change, in words.
pub fn advice(limit: Limit, floor: &Floor, setting: &Setting) -> String {
    // What the plan itself would reject is no advice.
    let pays = floor.team_s(setting.cores) < super::TEAM_MARGIN * floor.serial_s();
    let threads = (!setting.on_gpu && setting.threads < setting.cores && pays)
        .then(|| format!("more threads (`--threads {}`, `devices.engine=team`)", setting.cores));
    match limit {
        Limit::Log => match setting.policy {
            Policy::Immediate => "`logging.policy=buffered` moves the losses in blocks".to_owned(),
            Policy::Buffered if setting.flush_every.is_some_and(|n| n < setting.steps_per_epoch) => {
                "a larger `logging.flush_every`".to_owned()
            }
            Policy::Buffered => "`logging.policy=per_epoch` moves one row per epoch".to_owned(),
            Policy::PerEpoch => "`logging.policy=off`".to_owned(),
            Policy::Off => "longer epochs: each hands over its validation".to_owned(),
        },
        Limit::Transfer | Limit::Step(Bound::Transfer) if !setting.streamed => {
            "more epochs: the rows are moved once".to_owned()
        }
        Limit::Transfer | Limit::Step(Bound::Transfer) if setting.placement == Placement::Streamed => {
            "`data.placement=auto` keeps the rows on the device where they fit".to_owned()
        }
        Limit::Transfer | Limit::Step(Bound::Transfer) => {
            "more memory or a quicker disk: the rows come from their file".to_owned()
        }
        Limit::AllReduce | Limit::Step(Bound::AllReduce) => {
            "a larger `data.batch_size`: gradients are summed once per step".to_owned()
        }
        Limit::Step(Bound::Overhead) if setting.asked == EngineChoice::Launch => {
            "`devices.engine=auto`: the plan has ways to run a step without a launch per instruction"
                .to_owned()
        }
        Limit::Step(Bound::Overhead) => {
            "a larger `data.batch_size`: more rows share a step's fixed costs".to_owned()
        }
        Limit::Step(Bound::Memory) if floor.rows_s > 0.5 * floor.memory_s => {
            threads.unwrap_or_else(|| "fewer features: a step's rows are read from memory".to_owned())
        }
        Limit::Step(Bound::Memory) => {
            "a larger `data.batch_size`: weights are read once per step, for however many rows".to_owned()
        }
        Limit::Step(Bound::Arithmetic)
            if setting.on_gpu
                && setting.precision == Precision::F32
                && matches!(setting.engine, Engine::Graph | Engine::Launch) =>
        {
            "`devices.precision=tf32`, if products of 10 bits of mantissa will do; or more GPUs".to_owned()
        }
        Limit::Step(Bound::Arithmetic) => threads.unwrap_or_else(|| {
            if setting.on_gpu { "more GPUs, or a smaller model" } else { "a GPU, or a smaller model" }
                .to_owned()
        }),
    }
}
