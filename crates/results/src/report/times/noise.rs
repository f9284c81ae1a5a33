//! Sentences about what makes measured times doubtful: wide intervals, too few repeats, a machine busy with
//! other processes, a throttled processor.

use crate::{
    host::load::BUSY,
    record::{too_busy, waited_for_a_core, waited_too_long},
    report::{
        configurations::Configuration,
        grid,
        grouping::distinct,
        run::{Run, mean},
        statistics::{are_too_few, coverage},
    },
    units,
};

/// An interval wider than this share of its median is reported.
const WIDE: f64 = 0.05;

/// All warnings, with those about configurations first. Runs are called as `named` does: `trials 0 to 3`.
pub(in crate::report) fn warnings(
    runs: &[Run],
    configurations: &[Configuration],
    named: &dyn Fn(&[usize]) -> String,
) -> Vec<String> {
    let mut lines: Vec<String> = wide(runs, configurations).into_iter().collect();
    lines.extend(too_few(configurations));
    let which = |so: &dyn Fn(&Run) -> bool| -> Option<String> {
        let found = runs.iter().enumerate().filter(|(_, run)| so(run));
        let places: Vec<usize> = found.map(|(place, _)| place).collect();
        (!places.is_empty()).then(|| named(&places))
    };
    let during = |so: &dyn Fn(&Run) -> bool| which(so).map(|runs| format!("during {runs}"));
    let most = |figure: &dyn Fn(&Run) -> f64| runs.iter().map(figure).fold(0.0, f64::max);
    let cores = |run: &Run| run.environment_number("cpu.logical_cores").unwrap_or(1.0);
    let taken = |run: &Run| load(run, "others_cores") + load(run, "stolen_cores");
    let waited = |run: &Run| if is_short(run) { load(run, "core_wait_share") } else { 0.0 };
    let unknown = which(&|run| {
        run.environment.is_some() && is_short(run) && run.environment_number("load.core_wait_share").is_none()
    });
    let unknown = unknown.map(|runs| format!("; not known of {runs}")).unwrap_or_default();
    lines.extend(
        during(&|run| taken(run) > BUSY * cores(run))
            .map(|during| format!("other processes used up to {:.2} cores {during}{unknown}", most(&taken))),
    );
    // Of runs that were too short to count what others used.
    lines
        .extend(during(&|run| waited_for_a_core(waited(run)).is_some()).map(|during| {
            format!("up to {} {during}", waited_for_a_core(most(&waited)).unwrap_or_default())
        }));
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

/// Why the times of these runs compare nothing: others used the cores, or short runs waited for one. `None` where they compare.
pub(in crate::report) fn too_noisy<'a>(runs: impl Iterator<Item = &'a Run> + Clone) -> Option<String> {
    let of_all = |share: &dyn Fn(&Run) -> Option<f64>| -> f64 {
        let shares: Vec<f64> = runs.clone().filter_map(share).collect();
        if shares.is_empty() { 0.0 } else { mean(&shares) }
    };
    let others = |run: &Run| {
        let cores = run.environment_number("cpu.logical_cores").unwrap_or(1.0);
        Some((run.environment_number("load.others_cores")? + load(run, "stolen_cores")) / cores)
    };
    let waited = |run: &Run| match is_short(run) {
        true => run.environment_number("load.core_wait_share"),
        false => None,
    };
    too_busy(of_all(&others)).or_else(|| waited_too_long(of_all(&waited)))
}

/// Whether a run was too short to count what others used.
fn is_short(run: &Run) -> bool {
    run.environment_number("load.others_cores").is_none()
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
    let [_, time, _] = grid::done(&distinct(configurations.iter().map(|c| c.first(runs).kind())));
    Some(if configurations.len() == 1 {
        format!("the interval of the {time} spans {widest} of the median, more than {part}")
    } else {
        let (some, all) = (wide.len(), configurations.len());
        format!(
            "in {some} of {all} configurations the interval of the {time} spans more than {part} of the median, {widest} at most{at}"
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
