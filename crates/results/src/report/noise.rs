//! Sentences about what makes measured times doubtful: wide intervals, too few repeats, a machine busy with
//! other processes, a throttled processor.

use super::{
    configurations::Configuration,
    run::Run,
    statistics::{are_too_few, coverage},
};
use crate::{host::load::BUSY, units};

/// An interval wider than this share of its median is reported.
const WIDE: f64 = 0.05;

/// All warnings, with those about configurations first. The first run is called `word` and `number`: `run 1`,
/// `trial 0`.
pub(super) fn warnings(
    runs: &[Run],
    configurations: &[Configuration],
    word: &str,
    number: usize,
) -> Vec<String> {
    let mut lines: Vec<String> = wide(runs, configurations).into_iter().collect();
    lines.extend(too_few(configurations));
    let during = |so: &dyn Fn(&Run) -> bool| -> Option<String> {
        let found = runs.iter().enumerate().filter(|(_, run)| so(run));
        let numbers: Vec<usize> = found.map(|(place, _)| place + number).collect();
        (!numbers.is_empty()).then(|| format!("during {}", units::numbered(word, &numbers)))
    };
    let most = |figure: &dyn Fn(&Run) -> f64| runs.iter().map(figure).fold(0.0, f64::max);
    let cores = |run: &Run| run.environment_number("cpu.logical_cores").unwrap_or(1.0);
    let taken = |run: &Run| load(run, "others_cores") + load(run, "stolen_cores");
    lines.extend(
        during(&|run| taken(run) > BUSY * cores(run))
            .map(|during| format!("other processes used up to {:.2} cores {during}", most(&taken))),
    );
    lines.extend(
        during(&|run| load(run, "throttles") > 0.0)
            .map(|during| format!("the processor was thermally throttled {during}")),
    );
    for (key, what) in [
        ("during.throttled", "a power or thermal limit throttled a GPU"),
        ("during.others", "other processes computed on a GPU"),
    ] {
        let found = |run: &Run| run.fact(key).filter(|text| *text != "[]").map(str::to_owned);
        lines.extend(during(&|run| found(run).is_some()).map(|during| {
            let which = runs.iter().find_map(found).unwrap_or_default();
            format!("{what} {during}: {which}")
        }));
    }
    let withheld = |run: &Run| load(run, "withheld_s");
    lines.extend(during(&|run| withheld(run) > 0.0).map(|during| {
        let most = units::seconds(most(&withheld));
        format!("the cgroup's CPU quota throttled this process for up to {most} {during}")
    }));
    lines
}

/// A figure of the machine's load during a run.
fn load(run: &Run, key: &str) -> f64 {
    run.environment_number(&format!("load.{key}")).unwrap_or(0.0)
}

fn wide(runs: &[Run], configurations: &[Configuration]) -> Option<String> {
    let widths =
        configurations.iter().filter_map(|c| Some((c.estimate(runs, "train_s")?.relative_width()?, c)));
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
    let counts = configurations.iter().map(Configuration::count).filter(|&count| count > 1);
    let fewest = counts.min().filter(|&count| are_too_few(count))?;
    let covers = units::percent(coverage(fewest));
    Some(format!(
        "with {fewest} repeats the interval covers the true median {covers} of the time; use 6 or more for 95 %"
    ))
}
