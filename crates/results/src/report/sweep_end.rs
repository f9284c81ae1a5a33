//! The report at the end of a sweep.

use std::{fmt::Write, path::Path};

use super::{
    ReportError, columns,
    comparison::{Comparison, is_debug},
    configurations::{FINISHED, has_repeats},
    grid,
    grouping::grouped,
    lab::Findings,
    order::Question,
    run::{PLANNED, RUNNING, Run, SAME_AS},
    sweep,
    text::status_in_words,
    times::{Repeats, noise, policies, verdict},
};
use crate::{
    files::Leaves,
    host::escape_line,
    record::{Claims, SWEEP_FILE, of_build},
    run::POLICY,
    units,
};

/// Maximum reasons shown for trials that did not finish.
const MOST_REASONS: usize = 5;

/// The final report of the sweep in `folder`, for a terminal of `width` columns: the best setting, as
/// `compare` shows it, or times if the sweep is about these; scaling if the number of devices is an axis;
/// reasons of trials that did not finish; what `time` was spent on, if that is known; and the folder.
pub fn sweep_end(folder: &Path, time: Option<&str>, width: u16) -> Result<String, ReportError> {
    let mut runs = sweep::read(folder, &mut None)?;
    let is_shared = Claims::are_held(folder);
    let findings = Findings::read(&mut runs, &mut None);
    let mut comparison = Comparison::from_runs(runs);
    comparison.findings = findings;
    let Comparison { runs, configurations, .. } = &comparison;
    let mut text = format!("{}\n", headline(folder, runs));
    if is_shared {
        let running = runs.iter().filter(|run| run.status == RUNNING).count();
        let running = units::counted(running as u64, "trial");
        let _ = writeln!(text, "  other processes go on, with {running} running: this is of what has ended"); // cannot fail
    }
    text.push('\n');
    let is_about_times = comparison.is_about_times();
    text += &match is_about_times {
        true => times(&comparison, width),
        false => comparison.answer(&Question::default(), width)? + "\n",
    };
    let costs = policies::costs(runs, configurations);
    if let Some(costs) = &costs {
        let _ = writeln!(text, "{}\n\n{}", costs.title, costs.table(width)); // cannot fail
    }
    let verdict = verdict::verdict(runs, width)?;
    if is_about_times || costs.is_some() {
        text += &doubts(&comparison, verdict.is_some(), width);
    }
    if let Some(words) = of_build("debug").filter(|_| runs.iter().any(is_debug)) {
        let _ = writeln!(text, "  build {words}"); // writing to a String cannot fail
    }
    if let Some(verdict) = verdict {
        text += if text.ends_with("\n\n") { "" } else { "\n" };
        text += &verdict;
    }
    let is_explained = |run: &&Run| !run.reason.is_empty() && run.status != FINISHED;
    let explained = runs.iter().filter(is_explained);
    let reasons = grouped(explained.map(|run| ((status_in_words(run), reason(run)), run.trial)));
    for ((status, reason), trials) in reasons.iter().take(MOST_REASONS) {
        let trials = units::numbered("trial", &trials.iter().filter_map(|trial| *trial).collect::<Vec<_>>());
        let _ = writeln!(text, "  {trials} {status}: {}", escape_line(reason)); // cannot fail
    }
    if reasons.len() > MOST_REASONS {
        let _ = writeln!(text, "  {} more reasons are in sweep.csv", reasons.len() - MOST_REASONS); // cannot fail
    }
    // Trials side by side disturb each other's times.
    if let Some(words) = time.filter(|_| !is_about_times) {
        let _ = writeln!(text, "  {words}"); // writing to a String cannot fail
    }
    let path = escape_line(&folder.to_string_lossy()).into_owned();
    let is_left = |run: &Run| match run.status.as_str() {
        "interrupted" => true,
        "waiting" | PLANNED => !is_shared,
        _ => false,
    };
    if runs.iter().any(is_left) {
        let _ = writeln!(text, "  resume with: runner run --resume {path}"); // writing to a String cannot fail
    }
    let _ = writeln!(text, "  folder {path}");
    Ok(text)
}

/// A table of trials, or of combined repeats.
fn times(comparison: &Comparison, width: u16) -> String {
    let Comparison { runs, configurations, .. } = comparison;
    let table = if has_repeats(configurations) {
        // Single repeats say little: they are in `sweep.csv`, and `runner compare --times` lists them.
        Repeats::new(comparison, configurations).table(width)
    } else {
        let mut columns = columns::columns(comparison);
        let is_last = |run: &Run| {
            run.figure("best_step").is_none_or(|best_step| Some(best_step) == run.figure("steps"))
        };
        let all_end_best = runs.iter().all(is_last);
        columns.retain(|column| match column.title.as_str() {
            "h2d" | "d2h" | "logging" => false,
            title if title.starts_with("best") => !all_end_best,
            _ => true,
        });
        // A trial's values identify it better than its number.
        grid::table(&columns, 1 + comparison.axes.len(), width)
    };
    format!("{table}\n")
}

/// Results of the lab, and notes on what makes the times doubtful.
fn doubts(comparison: &Comparison, has_verdict: bool, width: u16) -> String {
    let Comparison { runs, configurations, findings, .. } = comparison;
    let names = |places: &[usize]| comparison.numbers(places);
    let mut text = String::new();
    if findings.has_figures() && !has_repeats(configurations) {
        let _ = writeln!(text, "{}", findings.text(&names, width).trim_start()); // cannot fail
    }
    // The verdict on devices says it of its own.
    if comparison.is_about_times()
        && !has_verdict
        && let Some(words) = comparison.virtual_times()
    {
        let has_policies = runs.iter().any(|run| run.axes.iter().any(|(key, _)| key == POLICY));
        let costs = if has_policies { "no table of what a logging policy costs: " } else { "" };
        let _ = writeln!(text, "  {costs}{words}"); // writing to a String cannot fail
    }
    for line in noise::warnings(runs, configurations, &names) {
        let _ = writeln!(text, "  noise: {line}");
    }
    text
}

/// `linreg: 4 trials, 3 finished, 1 diverged`.
fn headline(folder: &Path, runs: &[Run]) -> String {
    let spec = Leaves::read(&folder.join(SWEEP_FILE)).ok().flatten().unwrap_or_default();
    let name = escape_line(spec.get("name").unwrap_or_default());
    let counts = grouped(runs.iter().map(|run| (status_in_words(run), ()))).into_iter();
    let counts: String =
        counts.map(|(status, runs)| format!(", {} {status}", units::count(runs.len() as u64))).collect();
    format!("{name}: {}{counts}", units::counted(runs.len() as u64, "trial"))
}

/// Why a trial did not finish. Which devices one that repeats another lacks was said before the first one began.
fn reason(run: &Run) -> &str {
    match run.reason.split_once(": ") {
        Some((head, _)) if run.status == SAME_AS => head,
        _ => &run.reason,
    }
}
