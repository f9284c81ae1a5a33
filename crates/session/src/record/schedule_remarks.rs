//! Warnings about parts of the learning rate's schedule that have no effect.

use crate::{
    plan::Trial,
    spec::{Cosine, Curve, Interval, Rule},
    units::{self, count, counted},
};

/// One sentence per remark.
pub(super) fn of_schedule(trial: &Trial) -> Vec<String> {
    let all =
        [lr(trial), momentum(trial), chain(trial), curve_epochs(trial), interval(trial), plateau(trial)];
    all.into_iter().flatten().chain(cosines(trial)).chain(milestones(trial)).collect()
}

/// A learning rate that no step takes.
fn lr(trial: &Trial) -> Option<String> {
    let Rule::One(Curve::OneCycle(cycle)) = &trial.spec.schedule.rule else { return None };
    let (key, lr) = (trial.spec.optimizer.name(), trial.spec.optimizer.lr());
    (lr != cycle.max_lr).then(|| {
        let [lr, most] = [lr, cycle.max_lr].map(units::exact);
        format!(
            "`optimizer.{key}.lr` is {lr}, and has no effect: the rates are those of `schedule.one_cycle`, whose `max_lr` is {most}"
        )
    })
}

/// A momentum that the schedule sets. That of Adam is its `beta1`, whose default hardly says what its user wants.
fn momentum(trial: &Trial) -> Option<String> {
    let Rule::One(Curve::OneCycle(cycle)) = &trial.spec.schedule.rule else { return None };
    let (key, own) = (trial.spec.optimizer.name(), trial.spec.optimizer.momentum());
    let is_replaced = cycle.cycle_momentum && own != cycle.max_momentum && !key.starts_with("adam");
    is_replaced.then(|| {
        let [own, least, most] = [own, cycle.base_momentum, cycle.max_momentum].map(units::exact);
        format!(
            "`schedule.one_cycle` moves the momentum of `{key}` between {most} and {least}; with `cycle_momentum = false` it stays {own}"
        )
    })
}

/// Cosines that are over before the run or their stage is: by PyTorch's formula the rate rises again.
fn cosines(trial: &Trial) -> Vec<String> {
    let thing = counts(trial).1;
    let told = |(key, curve, counts): (String, &Curve, u64)| {
        let Curve::Cosine(Cosine { t_max: Some(t_max), .. }) = curve else { return None };
        // The last count is one less than their number.
        (t_max.saturating_add(1) < counts).then(|| {
            let [over, counts] = [*t_max, counts].map(|n| counted(n, thing));
            format!(
                "the cosine of `{key}` is at its end after {over} of {counts}, and rises again from there"
            )
        })
    };
    stages(trial)
        .into_iter()
        .filter_map(|(key, curve, counts)| told((format!("{key}.cosine"), curve, counts)))
        .collect()
}

/// The curves that the run comes to, with the key of each and how many counts it lasts.
fn stages(trial: &Trial) -> Vec<(String, &Curve, u64)> {
    let counts = counts(trial).0;
    match &trial.spec.schedule.rule {
        Rule::Constant => Vec::new(),
        Rule::One(curve) => vec![("schedule".to_owned(), curve, counts)],
        Rule::Chain { chain } => {
            let mut left = counts;
            let stages = chain.iter().enumerate().map(|(index, link)| {
                let own = link.steps.unwrap_or(left).min(left);
                left -= own;
                (format!("schedule.chain.{index}"), &link.curve, own)
            });
            // A stage that never begins has its own warning.
            stages.filter(|(.., own)| *own > 0).collect()
        }
    }
}

/// A plateau that never reduces the rate: the first validation always counts as an improvement, and after the last one the run ends.
fn plateau(trial: &Trial) -> Option<String> {
    let (optimizer, schedule) = trial.effective_optimizer();
    let (key, plateau) = schedule.plateau()?;
    let begins = match &schedule.rule {
        Rule::Chain { chain } => chain.iter().filter_map(|stage| stage.steps).sum(),
        _ => 0,
    };
    // A stage that never begins has its own warning.
    if begins >= counts(trial).0 {
        return None;
    }
    let lr = optimizer.lr();
    let why = if lr - (lr * plateau.factor).max(plateau.min_lr) <= plateau.eps {
        let [lr, least, eps] = [lr, plateau.min_lr, plateau.eps].map(units::exact);
        format!("it is {lr}, with a `min_lr` of {least} and an `eps` of {eps}")
    } else {
        // It judges those that follow its own steps.
        let first = match schedule.interval {
            Interval::Step => begins,
            Interval::Epoch => begins.saturating_mul(trial.steps_per_epoch),
        };
        let every = trial.spec.trainer.validate_every.steps(trial.steps_per_epoch).max(1);
        let validations = trial.validations().saturating_sub(first / every);
        let needed = plateau.patience.saturating_add(2);
        if needed < validations {
            return None;
        }
        let after = if first == 0 { String::new() } else { format!(" after step {}", count(first)) };
        let needed = counted(needed, "validation");
        format!("it would after {needed}, and the run validates {}{after}", times(validations))
    };
    Some(format!("the plateau of `{key}` never changes the rate: {why}"))
}

/// `interval` without a curve that counts steps or epochs.
fn interval(trial: &Trial) -> Option<String> {
    let schedule = &trial.spec.schedule;
    let is_alone = matches!(schedule.rule, Rule::One(Curve::Plateau(_)));
    (is_alone && schedule.interval == Interval::Epoch)
        .then(|| "`schedule.interval` has no effect: a plateau counts validations".to_owned())
}

/// A length of the schedule that no curve takes: each has its own, or takes none.
fn curve_epochs(trial: &Trial) -> Option<String> {
    let schedule = &trial.spec.schedule;
    let epochs = schedule.curve_epochs?;
    let wanted = match schedule.interval {
        Interval::Step => trial.steps_per_epoch.saturating_mul(epochs),
        Interval::Epoch => epochs,
    };
    let why = match schedule.length() {
        Some((_, length)) if length == wanted => return None,
        Some((key, _)) => format!("`{key}` says how long the curve is"),
        None => "no curve takes a length from it".to_owned(),
    };
    Some(format!("`schedule.curve_epochs` is {}, and has no effect: {why}", count(epochs)))
}

/// How many of the schedule's units the run has, and the unit's name.
fn counts(trial: &Trial) -> (u64, &'static str) {
    match trial.spec.schedule.interval {
        Interval::Step => (trial.steps, "step"),
        Interval::Epoch => (epochs(trial), "epoch"),
    }
}

/// Drops of the learning rate after the end of the run or of their stage.
fn milestones(trial: &Trial) -> Vec<String> {
    let (_, thing) = counts(trial);
    let lasts = match &trial.spec.schedule.rule {
        Rule::Chain { .. } => "this part of the chain lasts",
        _ => "the run takes",
    };
    let told = |(key, curve, own): (String, &Curve, u64)| {
        never_dropped(curve, &key, (own, thing), &format!("{lasts} {}", counted(own, thing)))
    };
    stages(trial).into_iter().filter_map(told).collect()
}

/// A stage that starts after the run's end.
fn chain(trial: &Trial) -> Option<String> {
    let Rule::Chain { chain } = &trial.spec.schedule.rule else { return None };
    let (counts, thing) = counts(trial);
    let mut first = 0_u64;
    let index = chain.iter().position(|link| {
        let begins = first;
        if begins < counts {
            first = first.saturating_add(link.steps.unwrap_or(u64::MAX));
        }
        begins >= counts
    })?;
    let more = if index + 1 < chain.len() { " (and what comes after it)" } else { "" };
    let (first, counts) = (counted(first, thing), count(counts));
    Some(format!(
        "`schedule.chain.{index}`{more} is never reached: it begins after {first}, and the run takes {counts}"
    ))
}

/// A curve's drops that are outside the counts; the first count is 0.
fn never_dropped(curve: &Curve, key: &str, (counts, thing): (u64, &str), ends: &str) -> Option<String> {
    match curve {
        Curve::Step(step) if step.step_size >= counts => {
            let size = counted(step.step_size, thing);
            Some(format!("`{key}.step` never changes the rate: it would after {size}, and {ends}"))
        }
        Curve::MultiStep(steps) => {
            let beyond: Vec<u64> = steps.milestones.iter().copied().filter(|at| *at >= counts).collect();
            let list = beyond.iter().map(|at| count(*at)).collect::<Vec<_>>().join(" and ");
            let what = match beyond.len() {
                0 => return None,
                all if all == steps.milestones.len() => "any milestone".to_owned(),
                1 => format!("the milestone {list}"),
                2 => format!("the milestones {list}"),
                more => format!("its last {more} milestones"),
            };
            Some(format!("`{key}.multi_step` never reaches {what}: {ends}"))
        }
        _ => None,
    }
}

/// The epochs that have at least one step, if nothing ends the run early.
pub(super) fn epochs(trial: &Trial) -> u64 {
    trial.steps.div_ceil(trial.steps_per_epoch)
}

/// `once`, `twice`, `12 times`.
pub(super) fn times(validations: u64) -> String {
    match validations {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{} times", count(more)),
    }
}
