//! Schedules with every length filled in, and the update rule that follows from optimizer and schedule.

use crate::{
    program::UpdateRule,
    spec::{Curve, Interval, Optimizer, Problem, Rule, Schedule, Spec},
};

/// Fills in `t_max` and `total_steps`; errors are added to `problems`.
pub fn resolve(spec: &mut Spec, steps: u64, steps_per_epoch: u64, problems: &mut Vec<Problem>) {
    let total = match (spec.schedule.interval, spec.schedule.curve_epochs) {
        (Interval::Step, None) => steps,
        (Interval::Step, Some(epochs)) => steps_per_epoch.saturating_mul(epochs),
        (Interval::Epoch, None) => steps.div_ceil(steps_per_epoch.max(1)),
        (Interval::Epoch, Some(epochs)) => epochs,
    };
    // The spec is kept as TOML, which has no larger integers.
    resolve_rule(&mut spec.schedule.rule, total.min(i64::MAX as u64), problems);
}

fn resolve_rule(rule: &mut Rule, total: u64, problems: &mut Vec<Problem>) {
    match rule {
        Rule::Constant => {}
        Rule::One(curve) => fill(curve, total, "schedule", problems),
        Rule::Chain { chain } => {
            let mut left = total;
            for (i, stage) in chain.iter_mut().enumerate() {
                let own = stage.steps.unwrap_or(left).min(left);
                let key = format!("schedule.chain.{i}");
                // In PyTorch, constructing OneCycleLR changes the initial rate and momentum of the whole
                // chain. Not supported.
                if let Curve::OneCycle(_) = stage.curve {
                    let message = format!("`{key}.one_cycle` is not in this version");
                    let problem = Problem::at_key(format!("{key}.one_cycle"), message);
                    problems
                        .push(problem.hint("a `one_cycle` is the whole schedule: `[schedule.one_cycle]`"));
                } else {
                    fill(&mut stage.curve, own, &key, problems);
                }
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
                problems.push(problem.hint(
                    "leave it and `schedule.curve_epochs` out: it is then the length of the run, which keeps it when it goes on: for a \
                     longer cycle, train anew",
                ));
            }
            // PyTorch divides by zero there.
            if c.pct_start * total as f64 == 1.0 {
                let message = format!(
                    "`pct_start = {:?}` of {total} counts is one count, in which no rate can rise",
                    c.pct_start
                );
                let problem = Problem::at_key(format!("{key}.one_cycle.pct_start"), message);
                problems.push(problem.hint("let it rise for longer, or not at all: `pct_start = 0.0`"));
            }
        }
        Curve::Step(_)
        | Curve::MultiStep(_)
        | Curve::Exponential(_)
        | Curve::Linear(_)
        | Curve::Plateau(_) => {}
    }
}

/// The update rule of an optimizer under a schedule.
pub fn update_rule(optimizer: &Optimizer, schedule: &Schedule) -> UpdateRule {
    UpdateRule::new(optimizer, moves_momentum(schedule))
}

/// Whether the schedule changes the momentum. With a OneCycle even plain SGD has one, as in PyTorch.
fn moves_momentum(schedule: &Schedule) -> bool {
    let moves = |curve: &Curve| matches!(curve, Curve::OneCycle(c) if c.cycle_momentum);
    match &schedule.rule {
        Rule::Constant => false,
        Rule::One(curve) => moves(curve),
        Rule::Chain { chain } => chain.iter().any(|stage| moves(&stage.curve)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Anneal, OneCycle, Stage};

    fn one_cycle(pct_start: f64, three_phase: bool) -> Curve {
        Curve::OneCycle(OneCycle {
            max_lr: 0.1,
            total_steps: None,
            pct_start,
            anneal_strategy: Anneal::Cos,
            cycle_momentum: true,
            base_momentum: 0.85,
            max_momentum: 0.95,
            div_factor: 25.0,
            final_div_factor: 1e4,
            three_phase,
        })
    }

    /// The case in which `torch.optim.lr_scheduler.OneCycleLR` raises a ZeroDivisionError is refused, and no
    /// other.
    #[test]
    fn a_rise_of_no_length_is_refused() {
        for three_phase in [false, true] {
            let found = |counts, pct_start| {
                let mut problems = Vec::new();
                fill(&mut one_cycle(pct_start, three_phase), counts, "schedule", &mut problems);
                problems
            };
            for (counts, pct_start) in [(10, 0.1), (4, 0.25), (2, 0.5), (1, 1.0)] {
                let message = format!(
                    "`pct_start = {pct_start:?}` of {counts} counts is one count, in which no rate can rise"
                );
                let hint = "let it rise for longer, or not at all: `pct_start = 0.0`";
                let problem = Problem::at_key("schedule.one_cycle.pct_start", message).hint(hint);
                assert_eq!(found(counts, pct_start), [problem]);
            }
            for (counts, pct_start) in [(1, 0.3), (10, 0.0), (10, 0.05), (10, 0.11), (10, 0.55), (10, 1.0)] {
                assert_eq!(found(counts, pct_start), []);
            }
        }
    }

    #[test]
    fn a_chain_takes_no_one_cycle() {
        let chain = vec![Stage { steps: None, curve: one_cycle(0.3, false) }];
        let mut problems = Vec::new();
        resolve_rule(&mut Rule::Chain { chain }, 10, &mut problems);
        let key = "schedule.chain.0.one_cycle";
        let problem = Problem::at_key(key, format!("`{key}` is not in this version"));
        assert_eq!(problems, [problem.hint("a `one_cycle` is the whole schedule: `[schedule.one_cycle]`")]);
    }
}
