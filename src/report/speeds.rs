//! Speeds held against each other: only among runs whose steps do the same work, on devices whose times mean something.

use std::collections::HashMap;

use super::run::Run;

/// Per run: its steps per second over those of the first that does the same work. Virtual devices share one processor, so
/// that their times say nothing of real ones, and a run that diverged or failed did not do its work: they have no ratio
/// and give none.
pub(super) fn ratios(runs: &[Run]) -> Vec<Option<f64>> {
    // Of each kind of step: the first rate, and how many have one.
    let mut kinds: HashMap<_, (f64, usize)> = HashMap::new();
    for run in runs {
        if let Some((work, rate)) = rate(run) {
            kinds.entry(work).or_insert((rate, 0)).1 += 1;
        }
    }
    let ratio = |run: &Run| {
        let (work, rate) = rate(run)?;
        let &(base, count) = kinds.get(&work)?;
        // One that stands alone is held against nothing.
        (count > 1).then_some(rate / base)
    };
    runs.iter().map(ratio).collect()
}

/// What a run's steps work on, and how many it did per second; `None` where that says nothing.
fn rate(run: &Run) -> Option<(WorkSize<'_>, f64)> {
    let rate = run.number("steps_per_s").filter(|&speed| speed > 0.0 && is_timed(run))?;
    Some((work(run), rate))
}

/// Whether a run's times mean something.
pub(super) fn is_timed(run: &Run) -> bool {
    // A tour of tensors is no measurement.
    !run.is_virtual() && run.kind() != "tensors" && matches!(run.status.as_str(), "finished" | "interrupted")
}

/// What a step works on: runs that differ in it have steps of different sizes, whose rates say nothing of each other. `None`
/// where there is no spec.
type WorkSize<'a> = Option<(Vec<(&'a str, &'a str)>, Option<(usize, bool)>)>;

/// See [`WorkSize`].
pub(super) fn work(run: &Run) -> WorkSize<'_> {
    let kind = run.kind();
    let is_work = |key: &str| match kind {
        "train" => {
            let how = ["data.placement", "data.shuffle"].contains(&key) || key.starts_with("model.init");
            !how && (key.starts_with("data.") || key.starts_with("model."))
        }
        kind => {
            let own = key.strip_prefix(kind).is_some_and(|rest| rest.starts_with('.'));
            key == "kind" || (own && key != "matmul.order")
        }
    };
    let leaves = run.spec.as_ref()?.iter().filter(|(key, _)| is_work(key));
    // What experiments of the lab do depends on their devices: how many, and whether they have a memory of their own.
    let devices = run.figure("devices_used").filter(|_| kind != "train");
    let devices = devices.map(|names| (names.split(';').count(), names.split(';').all(|name| name == "cpu")));
    let devices = devices.map(|(count, on_host)| (count, on_host && kind == "transfer"));
    Some((leaves.map(|(key, value)| (key.as_str(), value.as_str())).collect(), devices))
}
