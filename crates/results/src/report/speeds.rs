//! Compares speeds, but only among runs that do the same work on devices whose times are meaningful.
//! Trainings are compared by rows per second, so that batch sizes may differ; lab experiments by what they do
//! per second.

use super::{
    axes::{file_name, is_path},
    grid::{self, Column},
    grouping::grouped,
    machines::Machine,
    run::Run,
};
use crate::units;

/// The work, and its speed.
pub(super) struct Speed<'a> {
    pub work: WorkSize<'a>,
    pub rate: f64,
}

/// A speed relative to the first one with the same work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    /// The index of that first run.
    pub base: usize,
    pub times: f64,
}

/// The ratio of each known speed to the first one with the same work on a similar machine. A speed that has
/// none to compare with gets no ratio.
pub(super) fn ratios(speeds: &[Option<Speed<'_>>], machines: &[Machine<'_>]) -> Vec<Option<Ratio>> {
    let known = || speeds.iter().enumerate().filter_map(|(place, speed)| Some((place, speed.as_ref()?)));
    let classes = grouped(known().map(|(place, speed)| ((&speed.work, &machines[place]), place)));
    let mut ratios = vec![None; speeds.len()];
    for ((work, machine), members) in &classes {
        let is_like =
            |(other, theirs): &(&WorkSize<'_>, &Machine<'_>)| other == work && theirs.is_like(machine);
        let like = || classes.iter().filter(|(class, _)| is_like(class)).map(|(_, members)| members);
        let Some(base) = like().map(|members| members[0]).min() else { continue };
        let is_alone = like().map(Vec::len).sum::<usize>() < 2;
        let rate = |place: usize| speeds[place].as_ref().map_or(f64::NAN, |speed| speed.rate);
        for &place in members.iter().filter(|_| !is_alone) {
            ratios[place] = Some(Ratio { base, times: rate(place) / rate(base) });
        }
    }
    ratios
}

/// A column of ratios that names the compared quantity and the reference: in the title, or in each cell if
/// they differ.
pub(super) fn column(ratios: &[Option<Ratio>], kinds: &[&str], name: impl Fn(usize) -> String) -> Column {
    let mut bases: Vec<usize> = ratios.iter().flatten().map(|ratio| ratio.base).collect();
    bases.sort_unstable();
    bases.dedup();
    let rate = match kinds {
        [] | ["train"] => "rows/s",
        kinds => grid::done(kinds)[2],
    };
    let title = match bases[..] {
        [base] => format!("{rate} vs {}", name(base)),
        _ => format!("{rate} vs others"),
    };
    let cell = |ratio: &Option<Ratio>| match ratio {
        None => String::new(),
        Some(ratio) if bases.len() == 1 => times(ratio.times),
        Some(ratio) => format!("{} vs {}", times(ratio.times), name(ratio.base)),
    };
    Column::of_numbers(&title, ratios.iter().map(cell))
}

/// `1.82x`; four digits for very small and very large ratios.
pub(super) fn times(ratio: f64) -> String {
    format!("{}x", units::factor(ratio))
}

/// A run's work and speed; `None` if the speed is meaningless: virtual devices share one processor, so their
/// times say nothing about real ones, and a run that diverged or failed did not do its work.
pub(super) fn speed(run: &Run) -> Option<Speed<'_>> {
    let rate = run.number("samples_per_s").or_else(|| run.number("steps_per_s"))?;
    let work = work(run)?;
    (rate > 0.0 && is_timed(run)).then_some(Speed { work, rate })
}

/// Whether a run's times mean something.
pub(super) fn is_timed(run: &Run) -> bool {
    // A tour of tensors does not measure anything.
    !run.is_virtual() && run.kind() != "tensors" && matches!(run.status.as_str(), "finished" | "interrupted")
}

/// The work of a run. If it differs, rows have different sizes and their rates cannot be compared.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct WorkSize<'a> {
    keys: Vec<(&'a str, &'a str)>,
    /// For lab experiments, whose work depends on their devices: their number, and whether they use the
    /// host's memory.
    devices: Option<(usize, bool)>,
}

/// The work of a run; `None` if it has no spec.
pub(super) fn work(run: &Run) -> Option<WorkSize<'_>> {
    let kind = run.kind();
    let is_work = |key: &str| match kind {
        "train" => {
            let how = ["data.batch_size", "data.placement", "data.shuffle"].contains(&key)
                || key.starts_with("model.init");
            !how && (key.starts_with("data.") || key.starts_with("model."))
        }
        kind => {
            let own = key.strip_prefix(kind).is_some_and(|rest| rest.starts_with('.'));
            key == "kind" || (own && key != "matmul.order")
        }
    };
    // Which file holds the rows says nothing of their size.
    let is_file = |key: &str, value: &str| key.starts_with("data.") && is_path(value);
    let leaves = run.spec.as_ref()?.iter().filter(|(key, value)| is_work(key) && !is_file(key, value));
    // What experiments of the lab do depends on their devices: how many, and whether they have a memory of their own.
    let devices = run.figure("devices_used").filter(|_| kind != "train");
    let devices = devices.map(|names| (names.split(';').count(), names.split(';').all(|name| name == "cpu")));
    let devices = devices.map(|(count, on_host)| (count, on_host && kind == "transfer"));
    Some(WorkSize { keys: leaves.map(|(key, value)| (key, file_name(value))).collect(), devices })
}
