//! Schedules with every length filled in, and the update rule that follows from optimizer and schedule.

use crate::{
    program::UpdateRule,
    spec::{Curve, Interval, Optimizer, Problem, Rule, Schedule, Spec},
};

/// Fills in `t_max` and `total_steps`; problems go to `problems`.
pub fn resolve(spec: &mut Spec, steps: u64, steps_per_epoch: u64, problems: &mut Vec<Problem>) {
    let total = match spec.schedule.interval {
        Interval::Step => steps,
        Interval::Epoch => steps.div_ceil(steps_per_epoch.max(1)),
    };
    match &mut spec.schedule.rule {
        Rule::Constant => {}
        Rule::One(curve) => fill(curve, total, "schedule", problems),
        Rule::Chain { chain } => {
            let mut left = total;
            for (i, link) in chain.iter_mut().enumerate() {
                let own = link.steps.unwrap_or(left).min(left);
                fill(&mut link.curve, own, &format!("schedule.chain.{i}"), problems);
                left -= own;
            }
        }
    }
}

fn fill(curve: &mut Curve, counts: u64, key: &str, problems: &mut Vec<Problem>) {
    match curve {
        Curve::Cosine(c) => {
            c.t_max.get_or_insert(counts.max(1));
        }
        Curve::OneCycle(c) => {
            let total = *c.total_steps.get_or_insert(counts.max(1));
            if total < counts {
                let message = format!("`total_steps = {total}` ends before the run does: it takes {counts}");
                let problem = Problem::at_key(format!("{key}.one_cycle.total_steps"), message);
                problems.push(problem.hint("leave `total_steps` out: it is then the length of the run"));
            }
        }
        Curve::Step(_) | Curve::MultiStep(_) | Curve::Exponential(_) | Curve::Linear(_) => {}
    }
}

/// The update rule of an optimizer under a schedule.
pub fn update_rule(optimizer: &Optimizer, schedule: &Schedule) -> UpdateRule {
    match optimizer {
        Optimizer::Sgd(o) => UpdateRule::Sgd {
            momentum: o.momentum != 0.0 || moves_momentum(schedule),
            nesterov: o.nesterov,
            weight_decay: o.weight_decay as f32,
        },
        Optimizer::Adam(o) => adam(o.beta2, o.eps, o.weight_decay, false),
        Optimizer::Adamw(o) => adam(o.beta2, o.eps, o.weight_decay, true),
    }
}

fn adam(beta2: f64, eps: f64, weight_decay: f64, decoupled: bool) -> UpdateRule {
    UpdateRule::Adam {
        beta2: beta2 as f32,
        one_minus_beta2: (1.0 - beta2) as f32,
        eps: eps as f32,
        weight_decay: weight_decay as f32,
        decoupled,
    }
}

/// A OneCycle gives plain SGD a momentum, as PyTorch's does.
fn moves_momentum(schedule: &Schedule) -> bool {
    let moves = |curve: &Curve| matches!(curve, Curve::OneCycle(c) if c.cycle_momentum);
    match &schedule.rule {
        Rule::Constant => false,
        Rule::One(curve) => moves(curve),
        Rule::Chain { chain } => chain.iter().any(|link| moves(&link.curve)),
    }
}
