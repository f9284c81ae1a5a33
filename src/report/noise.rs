//! What makes measured times doubtful, in sentences: intervals that are wide, too few repeats, a machine that was busy
//! with others, a processor that was slowed down.

use super::{
    configurations::Configuration,
    run::Run,
    statistics::{are_too_few, coverage},
};
use crate::{host::load::BUSY, units};

/// An interval wider than this part of its median is reported.
const WIDE: f64 = 0.05;

/// All that is to be said, the configurations first. The first run is called `word` and `number`: `run 1`, `trial 0`.
pub(super) fn warnings(
    runs: &[Run],
    configurations: &[Configuration],
    word: &str,
    number: usize,
) -> Vec<String> {
    let mut lines: Vec<String> = wide(configurations).into_iter().collect();
    lines.extend(too_few(configurations));
    let cores = |run: &Run| run.environment_number("cpu.logical_cores").unwrap_or(1.0);
    let places = |so: &dyn Fn(&Run) -> bool| -> Option<String> {
        let found = runs.iter().enumerate().filter(|(_, run)| so(run));
        let numbers: Vec<usize> = found.map(|(place, _)| place + number).collect();
        (!numbers.is_empty()).then(|| units::numbers(&numbers))
    };
    let worst = |key: &str| runs.iter().filter_map(|run| load(run, key)).fold(0.0, f64::max);
    let taken =
        |run: &Run| load(run, "others_cores").unwrap_or(0.0) + load(run, "stolen_cores").unwrap_or(0.0);
    if let Some(places) = places(&|run| taken(run) > BUSY * cores(run)) {
        let most = runs.iter().map(taken).fold(0.0, f64::max);
        lines.push(format!("other processes used up to {most:.2} cores during {word} {places}"));
    }
    if let Some(places) = places(&|run| load(run, "throttles").is_some_and(|count| count > 0.0)) {
        lines.push(format!("the processor slowed down for its heat during {word} {places}"));
    }
    let gpus =
        |run: &Run| run.environment.as_ref()?.get("during.throttled").filter(|text| *text != "[]").cloned();
    if let Some(places) = places(&|run| gpus(run).is_some()) {
        let which = runs.iter().find_map(gpus).unwrap_or_default();
        lines.push(format!(
            "a limit of power or heat held a GPU's clocks back during {word} {places}: {which}"
        ));
    }
    if let Some(places) = places(&|run| load(run, "withheld_s").is_some_and(|seconds| seconds > 0.0)) {
        let most = units::seconds(worst("withheld_s"));
        lines.push(format!(
            "the control group's limit withheld the processor for up to {most} during {word} {places}"
        ));
    }
    lines
}

/// A figure of the machine's load during a run.
fn load(run: &Run, key: &str) -> Option<f64> {
    run.environment_number(&format!("load.{key}"))
}

fn wide(configurations: &[Configuration]) -> Option<String> {
    let widths = configurations.iter().filter_map(|c| Some((c.train_s?.relative_width()?, c)));
    let wide: Vec<(f64, &Configuration)> = widths.filter(|(width, _)| *width > WIDE).collect();
    let (widest, configuration) = wide.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let axes: Vec<String> = configuration.axes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let at = if axes.is_empty() { String::new() } else { format!(" (at {})", axes.join(" ")) };
    let (part, widest) = (units::percent(WIDE), units::percent(*widest));
    Some(if configurations.len() == 1 {
        format!("the interval of the train time spans {widest} of the median, more than {part}")
    } else {
        let (some, all) = (wide.len(), configurations.len());
        format!(
            "in {some} of {all} configurations the interval of the train time spans more than {part} of the median, {widest} at most{at}"
        )
    })
}

fn too_few(configurations: &[Configuration]) -> Option<String> {
    let counts = configurations.iter().map(|c| c.places.len()).filter(|&count| count > 1);
    let fewest = counts.min().filter(|&count| are_too_few(count))?;
    let covers = units::percent(coverage(fewest));
    Some(format!(
        "with {fewest} repeats the interval covers the true median {covers} of the time; use 6 or more for 95 %"
    ))
}
