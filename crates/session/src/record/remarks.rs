//! Warnings about keys that have no effect, or less than they seem to have. Shown by `runner check` and at
//! the start of a run.

use super::schedule_remarks::{epochs, of_schedule, times};
use crate::{
    event::Confusion,
    plan::{Footprint, TargetSpread, Trial, global_batch},
    spec::{Placement, Policy, Scaling, Source, ValidateEvery},
    units::{self, count, counted},
};

/// One sentence per remark; `axes` are the keys that its sweep sweeps.
pub fn remarks(trial: &Trial, axes: &[String]) -> Vec<String> {
    let all = [
        batch(trial),
        placement(trial),
        outputs(trial),
        unscaled_targets(trial),
        validation(trial),
        max_steps(trial),
        swept_max_epochs(trial).filter(|_| axes.iter().any(|key| key == "trainer.max_epochs")),
        shuffle_seed(trial),
        validate_every(trial),
        patience(trial),
        threshold(trial),
        flush_every(trial),
    ];
    let data = trial.data_warnings.iter().cloned();
    all.into_iter().flatten().chain(of_schedule(trial)).chain(data).collect()
}

/// A model that predicts one class for every validation row, though they have several.
pub fn one_class(names: &[String], confusion: &Confusion, weighted: bool) -> Option<String> {
    let outputs = names.len() as u64;
    let (first, rows) =
        (confusion.first()?[0] % outputs, confusion.iter().map(|[_, count]| count).sum::<u64>());
    if confusion.len() < 2 || confusion.iter().any(|[cell, _]| cell % outputs != first) {
        return None;
    }
    let is_right = |[cell, count]: &[u64; 2]| (cell / outputs == first).then_some(*count);
    let right = confusion.iter().find_map(is_right).unwrap_or(0);
    let name = &names[usize::try_from(first).ok()?];
    // Where it is no more frequent than others, weights change nothing.
    let way = match weighted || right * outputs <= rows {
        true => "",
        false => "; `model.class_weights=balanced` lets rows of the others count for more",
    };
    let [right, rows] = [right, rows].map(count);
    Some(format!(
        "the model predicts `{name}` for every row to validate on: {right} of {rows} are `{name}`{way}"
    ))
}

/// A class of fewer rows to validate on may well be predicted for none of them.
const ROWS_TO_EXPECT: u64 = 10;

/// Classes that are named in a warning.
const CLASSES_SHOWN: usize = 3;

/// Classes that are predicted for hardly any row, though enough have them: a good accuracy hides that.
pub fn hardly_predicted(names: &[String], confusion: &Confusion, weighted: bool) -> Option<String> {
    let outputs = names.len();
    let mut rows_of = vec![[0_u64; 2]; outputs];
    for [cell, count] in confusion {
        let cell = usize::try_from(*cell).ok()?;
        rows_of.get_mut(cell / outputs)?[0] += count;
        rows_of.get_mut(cell % outputs)?[1] += count;
    }
    let words = |(name, [actual, predicted]): (&String, &[u64; 2])| {
        let is_it = *actual >= ROWS_TO_EXPECT && predicted * 10 < *actual;
        is_it.then(|| format!("`{name}` for {}, though {} have it", count(*predicted), count(*actual)))
    };
    let found: Vec<String> = names.iter().zip(&rows_of).filter_map(words).collect();
    let more = units::and_more(found.len().saturating_sub(CLASSES_SHOWN));
    let rows = count(rows_of.iter().map(|[actual, _]| actual).sum());
    let shown = found.iter().take(CLASSES_SHOWN).cloned().collect::<Vec<_>>().join("; ");
    let way = if weighted {
        ""
    } else {
        "; `model.class_weights=balanced` lets their rows count for more, and raises their probabilities"
    };
    (!found.is_empty())
        .then(|| format!("of {rows} rows to validate on, the model predicts {shown}{more}{way}"))
}

/// Targets with a root mean square above this produce gradients too large for usual learning rates.
const LARGE_TARGETS: f64 = 10.0;

/// Targets with a root mean square above this are rarely learned in the epochs of a usual run.
const FAR_TOO_LARGE_TARGETS: f64 = 100.0;

/// Targets that nobody scaled.
fn unscaled_targets(trial: &Trial) -> Option<String> {
    targets_above(FAR_TOO_LARGE_TARGETS, trial)
}

/// Advice about large targets, for a run that diverged.
pub fn large_targets(trial: &Trial) -> Option<String> {
    targets_above(LARGE_TARGETS, trial)
}

fn targets_above(limit: f64, trial: &Trial) -> Option<String> {
    let TargetSpread { mean, deviation } = trial.facts.target_spread?;
    let way = match &trial.spec.data.source {
        Source::Npy(_) => "write them scaled, `(y - y.mean()) / y.std()`".to_owned(),
        source => match source.table() {
            Some((key, table)) if !table.standardize_target => format!("set `{key}.standardize_target=true`"),
            _ => return None,
        },
    };
    (mean.hypot(deviation) > limit).then(|| {
        let [mean, deviation] = [mean, deviation].map(units::number);
        format!("the targets are large (mean {mean}, standard deviation {deviation}): {way}")
    })
}

/// A batch larger than the training rows.
fn batch(trial: &Trial) -> Option<String> {
    let (devices, rows) = (trial.world_size(), trial.facts.train_rows);
    if global_batch(&trial.spec, devices) <= rows {
        return None;
    }
    let each = match trial.spec.devices.scaling {
        Scaling::Weak if devices > 1 => format!(" for each of {devices} devices"),
        _ => String::new(),
    };
    let rows = match rows {
        1 => "there is 1 training row: a step takes it".to_owned(),
        rows => format!("there are {} training rows: a step takes them all", count(rows as u64)),
    };
    Some(format!("`data.batch_size` is {}{each}, and {rows}", count(trial.spec.data.batch_size as u64)))
}

/// Rows that are to be streamed to a device that already holds them.
fn placement(trial: &Trial) -> Option<String> {
    if trial.spec.data.placement != Placement::Streamed {
        return None;
    }
    let used = &trial.devices.used;
    if trial.devices.on_cpu() && !trial.facts.in_file() {
        let nothing = "`data.placement = \"streamed\"` changes nothing here: the CPU computes in the memory that holds \
                       the rows";
        return Some(nothing.to_owned());
    }
    let of = |footprint: &Footprint| footprint.in_host_memory(used);
    let [streamed, resident] = units::two_sizes(of(&trial.footprint), of(trial.resident.as_ref()?));
    Some(format!(
        "`data.placement = \"streamed\"` saves no memory here: chunks of rows make it {streamed}, and with all rows in \
         memory it would be {resident}"
    ))
}

/// Model outputs that no class uses.
fn outputs(trial: &Trial) -> Option<String> {
    let classes = trial.facts.classes?;
    let last = trial.layers.iter().rfind(|layer| layer.parameters > 0)?;
    let others = last.outputs.checked_sub(classes).filter(|others| *others > 0)?;
    let verb = if others == 1 { "stands" } else { "stand" };
    let numbers = counted(last.outputs as u64, "number");
    let have = match classes {
        1 => "1 class".to_owned(),
        classes => format!("{} classes", count(classes as u64)),
    };
    Some(format!(
        "the model puts out {numbers} per row, and the data have {have}: the other {} {verb} for none; `out_features = \
         {classes}` in the last linear layer fits",
        count(others as u64)
    ))
}

/// A validation fraction of less than one row.
fn validation(trial: &Trial) -> Option<String> {
    let (key, fraction) = trial.spec.data.validation_fraction()?;
    let nothing = fraction > 0.0 && trial.facts.validation_rows == 0;
    nothing.then(|| {
        let rows = counted(trial.facts.train_rows as u64, "row");
        format!("`{key}` is {fraction}, which of {rows} is none: nothing is validated")
    })
}

/// `max_steps` beyond the epochs' steps.
fn max_steps(trial: &Trial) -> Option<String> {
    let (most, of_epochs) = (trial.spec.trainer.max_steps?, trial.steps_of_epochs());
    (most > of_epochs).then(|| {
        let (epochs, steps) = (counted(trial.spec.trainer.max_epochs, "epoch"), counted(of_epochs, "step"));
        let most = count(most);
        format!(
            "`trainer.max_steps` is {most}, and `trainer.max_epochs` ends the run before, after {epochs}, {steps}"
        )
    })
}

/// `max_epochs` beyond `max_steps`. Only a sweep is warned of it: a single run may well be cut short.
fn swept_max_epochs(trial: &Trial) -> Option<String> {
    let (most, of_epochs) = (trial.spec.trainer.max_steps?, trial.steps_of_epochs());
    (most < of_epochs).then(|| {
        let epochs = count(trial.spec.trainer.max_epochs);
        let steps = counted(most, "step");
        format!(
            "`trainer.max_epochs` is {epochs}, and `trainer.max_steps` ends the run before, after {steps}"
        )
    })
}

/// A seed of an order that nothing draws.
fn shuffle_seed(trial: &Trial) -> Option<String> {
    let seed = trial.spec.data.shuffle_seed.filter(|_| !trial.spec.data.shuffle)?;
    Some(format!(
        "`data.shuffle_seed` is {seed}, and has no effect: `data.shuffle = false` leaves the rows in their order"
    ))
}

/// `validate_every_epochs` or `validate_every_steps` beyond the length of the run, or without validation rows. No warning for the
/// default of once per epoch.
fn validate_every(trial: &Trial) -> Option<String> {
    let rule = &trial.spec.trainer.validate_every;
    let (every, all, thing) = match *rule {
        ValidateEvery::Epochs(every) => (every, epochs(trial), "epoch"),
        ValidateEvery::Steps(every) => (every, trial.steps, "step"),
    };
    let why = match trial.facts.validation_rows {
        0 if !matches!(rule, ValidateEvery::Epochs(0 | 1)) => {
            "there is no row to validate on: nothing is validated".to_owned()
        }
        1.. if every > all => {
            format!("the run takes {}: it validates once, at its end", counted(all, thing))
        }
        _ => return None,
    };
    Some(format!("`trainer.{}` is {}, and {why}", rule.name(), count(every)))
}

/// Early stopping with too much patience to ever stop this run: the first validation always counts as an
/// improvement, and after the last one the run ends anyway.
fn patience(trial: &Trial) -> Option<String> {
    let rule = trial.spec.trainer.early_stopping.as_ref()?;
    let (patience, validations) = (rule.patience?, trial.validations());
    if patience.max(1).saturating_add(1) < validations {
        return None;
    }
    let (patience, times) = (count(patience), times(validations));
    let stops = match rule.stopping_threshold.filter(|_| threshold(trial).is_none()) {
        None => "it is never stopped early",
        Some(_) => "only the threshold stops it early",
    };
    Some(format!("`trainer.early_stopping.patience` is {patience}, and the run validates {times}: {stops}"))
}

/// A threshold that no value of the metric reaches: losses and errors are not negative, and the other metrics are 1 at most.
fn threshold(trial: &Trial) -> Option<String> {
    let rule = trial.spec.trainer.early_stopping.as_ref()?;
    let (limit, monitor) = (rule.stopping_threshold?, rule.metric?);
    let bound = match monitor.metric().more_is_better() {
        true if limit > 1.0 => "above 1",
        false if limit < 0.0 => "below 0",
        _ => return None,
    };
    let (limit, name) = (units::exact(limit), monitor.name().replace('.', " "));
    Some(format!(
        "`trainer.early_stopping.stopping_threshold` is {limit}, and no {name} is {bound}: it never stops the run"
    ))
}

/// `flush_every` with a logging policy that has no blocks.
fn flush_every(trial: &Trial) -> Option<String> {
    let logging = &trial.spec.logging;
    let words = "`logging.flush_every` changes nothing here: only `logging.policy = \"buffered\"` moves blocks of steps";
    (logging.flush_every.is_some() && logging.policy != Policy::Buffered).then(|| words.to_owned())
}
