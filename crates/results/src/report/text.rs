//! A comparison as text for the screen.

use std::fmt::Write;

use super::{
    ReportError,
    answer::more,
    axes::Difference,
    columns,
    comparison::{Comparison, is_not_run},
    configurations::{Configuration, has_repeats, jobs},
    grid,
    order::Question,
    run::{Run, SAME_AS},
    times::{Repeats, noise, policies},
};
use crate::{files::curve::CurveDifference, host::escape_line, units};

impl Comparison {
    /// Times and costs, for a terminal of `width` columns: whether they can be compared, each run, repeats
    /// combined, the cost of logging, lab results, and noise.
    pub fn times(&self, question: &Question, width: u16) -> Result<String, ReportError> {
        let builds = self.builds().map(|words| format!("{words}\n")).unwrap_or_default();
        let shown = self.shown_runs(question)?;
        let mut columns = columns::columns(self);
        columns.iter_mut().for_each(|column| column.pick(&shown));
        let mut table = grid::table(&columns, 1, width) + &more(&shown, self.runs.len(), "run");
        table.extend(self.worst_first(question).filter(|_| shown.len() < self.runs.len()));
        let mut text = format!("{}\n{builds}\n{table}", self.comparability(question.metric.as_deref()));
        let jobs = jobs(&self.runs, &self.configurations);
        for job in jobs.iter().filter(|job| has_repeats(job)) {
            let of = self.runs_of(job, jobs.len());
            let swept = job.iter().any(|configuration| !configuration.axes.is_empty());
            let mut repeats = if swept { Repeats::new(self, job) } else { Repeats::of_single(self, job) };
            let places: Vec<&[usize]> = job.iter().map(|configuration| &configuration.places[..]).collect();
            let shown = self.shown(question, &places)?;
            repeats.pick(&shown);
            let table = repeats.table(width) + &more(&shown, job.len(), "setting");
            let _ = write!(text, "\nrepeats taken together{of}\n\n{table}"); // cannot fail
        }
        for job in &jobs {
            if let Some(costs) = policies::costs(&self.runs, job) {
                let of = self.runs_of(job, jobs.len());
                let _ = write!(text, "\n{}{of}\n\n{}", costs.title, costs.table(width));
            }
        }
        text += &self.findings.text(&|places| self.numbers(places), width);
        let noise = noise::warnings(&self.runs, &self.configurations, &|places| self.numbers(places));
        section(&mut text, "noise", noise.into_iter().map(|line| ("noise:".to_owned(), line)).collect());
        Ok(text)
    }

    /// The runs' folders, where their loss curves diverge, and the differences of spec and environment.
    pub fn detail(&self) -> String {
        let mut text = String::new();
        section(&mut text, "runs", self.run_lines());
        if let Some(reference) = self.curve_reference {
            section(
                &mut text,
                &format!("train loss against {}", self.numbers(&[reference])),
                self.curve_lines(),
            );
        }
        section(&mut text, "differences of spec", self.difference_lines(&self.spec));
        section(&mut text, "differences of environment", self.difference_lines(&self.environment));
        text
    }

    /// The runs of one of several jobs: `, #1 to 4`; empty if there is only one job.
    fn runs_of(&self, job: &[Configuration], jobs: usize) -> String {
        let mut places: Vec<usize> = job.iter().flat_map(|own| own.places.iter().copied()).collect();
        places.sort_unstable();
        if jobs < 2 { String::new() } else { format!(", {}", self.numbers(&places)) }
    }

    /// A line per run: its folder and, if it did not finish, the reason.
    fn run_lines(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        for (place, run) in self.runs.iter().enumerate() {
            let mut words = vec![run.path.clone()];
            if !run.reason.is_empty() {
                words.push(format!("{}: {}", status_in_words(run), run.reason));
            }
            if run.torn {
                words.push("the last line of its metrics.csv is torn and was left out".to_owned());
            }
            lines.push((self.numbers(&[place]), words.join("; ")));
        }
        lines
    }

    fn curve_lines(&self) -> Vec<(String, String)> {
        let ran = self
            .runs
            .iter()
            .zip(&self.curves)
            .enumerate()
            .filter(|(place, (run, _))| Some(*place) != self.curve_reference && !is_not_run(run));
        ran.map(|(place, (_, curve))| (self.numbers(&[place]), curve_words(curve.as_ref()))).collect()
    }

    /// One line per key: each value with the runs that have it.
    fn difference_lines(&self, differences: &[Difference]) -> Vec<(String, String)> {
        let words = |(value, numbers): &(Option<String>, Vec<usize>)| {
            let places: Vec<usize> = numbers.iter().map(|number| number - 1).collect();
            format!("{} ({})", value.as_deref().unwrap_or("absent"), self.numbers(&places))
        };
        let line = |difference: &Difference| {
            let values: Vec<String> = difference.values.iter().map(words).collect();
            (difference.key.clone(), values.join("  "))
        };
        differences.iter().map(line).collect()
    }
}

fn curve_words(curve: Option<&CurveDifference>) -> String {
    match curve {
        None => "no training rows".to_owned(),
        Some(CurveDifference::NothingInCommon) => "no step in common".to_owned(),
        Some(CurveDifference::MeansAndSteps) => {
            "not compared: one has the loss of every step, the other the mean of every epoch".to_owned()
        }
        Some(CurveDifference::OtherTask) => "not compared: it learns another task".to_owned(),
        Some(CurveDifference::Same { common }) => {
            format!("the same bits over {} in common", units::counted(*common, "step"))
        }
        Some(CurveDifference::Parts { parting, common }) => {
            let (largest_step, largest) = parting.largest;
            let more = if largest_step == parting.step {
                String::new()
            } else {
                let verb = if largest.is_finite() { "at most" } else { "then" };
                format!("; {verb} {}, at step {}", relative(largest), units::count(largest_step))
            };
            format!(
                "parts at step {}: {} and {}, {}{more}; {} in common",
                units::count(parting.step),
                parting.first,
                parting.other,
                relative(parting.relative),
                units::counted(*common, "step"),
            )
        }
    }
}

/// The status for people: `same_as` is only for files.
pub(super) fn status_in_words(run: &Run) -> &str {
    if run.status == SAME_AS { "not run" } else { &run.status }
}

/// A relative difference in per cent, or in scientific notation if it is small.
fn relative(value: f64) -> String {
    match value {
        v if v.is_infinite() => "one of them not a finite number".to_owned(),
        v if v >= 0.001 => format!("{} apart", units::percent(v)),
        v => format!("{v:.1e} of their size apart"),
    }
}

/// Adds a heading with lines in two columns; adds nothing if there are no lines.
pub(super) fn section(text: &mut String, title: &str, mut lines: Vec<(String, String)>) {
    if lines.is_empty() {
        return;
    }
    lines.iter_mut().for_each(|(head, _)| *head = escape_line(head).into_owned());
    let width = lines.iter().map(|(head, _)| head.chars().count()).max().unwrap_or(0);
    let _ = writeln!(text, "\n{title}"); // writing to a String cannot fail
    for (head, words) in lines {
        let _ = writeln!(text, "  {head:<width$}  {}", escape_line(&words));
    }
}
