//! `--fail-if`: a bound on a figure, possibly relative to a baseline. It fails only if the interval excludes
//! equality.

use super::{
    ReportError,
    caveats::SAME_ROWS,
    comparison::Comparison,
    configurations::FINISHED,
    dependence::Dependence,
    difference_of_means::{ALPHA, MeanDifference, Sample},
    filter::Operator,
    matched::{Matched, OTHER_ROWS, Pair},
    matching::lost_in_words,
    metric::Metric,
    rank_shift::{fewest_each, shift},
    ranking::Candidate,
    statistics::{Estimate, fewest},
};
use crate::units;

/// `median(steps_per_s) < 0.95 * baseline`.
struct Condition {
    statistic: Statistic,
    metric: Metric,
    operator: Operator,
    factor: f64,
    /// Whether the bound is the factor times the baseline's statistic; otherwise the factor itself is the
    /// bound.
    is_relative: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Statistic {
    Mean,
    Median,
}

/// The result for a setting.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Passes,
    Fails,
    /// The condition holds, but there are too few runs to exclude chance.
    Undecided,
}

/// The result of `--fail-if`.
pub struct Verdict {
    /// What was compared, one line per setting.
    pub text: String,
    /// Whether the condition holds beyond doubt for a setting.
    pub fails: bool,
    /// Why times may not be comparable, or what remains undecided.
    pub warnings: Vec<String>,
}

impl Condition {
    fn new(text: &str, own: &Comparison, base: Option<&Comparison>) -> Result<Self, ReportError> {
        let hint =
            "as in `--fail-if 'median(steps_per_s) < 0.95 * baseline'` or `mean(validation.loss) > 0.1`";
        let wrong = |message: String| ReportError::query(message, Some(hint));
        let no_condition = || wrong(format!("`{text}` is no condition"));
        let (left, operator, right) = Operator::split(text).ok_or_else(no_condition)?;
        let (name, rest) = left.split_once('(').ok_or_else(no_condition)?;
        let statistic = match name.trim() {
            "mean" => Statistic::Mean,
            "median" => Statistic::Median,
            other => return Err(wrong(format!("expected `mean` or `median`, found `{other}`"))),
        };
        if matches!(operator, Operator::Equal | Operator::Differs) {
            return Err(wrong("expected one of < <= > >=".to_owned()));
        }
        let name = rest.strip_suffix(')').ok_or_else(no_condition)?.trim();
        let (factor, is_relative) = match right.strip_suffix("baseline") {
            None => (right, false),
            Some(factor) if factor.trim().is_empty() => ("1", true),
            Some(factor) => (factor.trim().strip_suffix('*').ok_or_else(no_condition)?.trim(), true),
        };
        let metric = own.metric_against(base.filter(|_| is_relative).unwrap_or(own), Some(name))?;
        let number = factor.parse().ok().filter(|number: &f64| number.is_finite());
        let factor = number.ok_or_else(|| wrong(format!("expected a number, found `{factor}`")))?;
        Ok(Self { statistic, metric, operator, factor, is_relative })
    }

    /// A line on what is compared and the result, the result, and whether there is an interval (with error
    /// probability `alpha`, so no range).
    fn line(&self, pair: &Pair, alpha: f64) -> (String, Outcome, bool) {
        let Pair { own, base, .. } = pair;
        let statistic = |setting: &Candidate| {
            let values: Vec<f64> = setting.samples.iter().map(|(_, value)| *value).collect();
            match self.statistic {
                Statistic::Mean => MeanDifference::from_values(&values, Dependence::Independent).mean,
                Statistic::Median => {
                    Estimate::from_values(&values).map_or(f64::NAN, |estimate| estimate.median)
                }
            }
        };
        let value = statistic(own);
        let bound = if self.is_relative { self.factor * statistic(base) } else { self.factor };
        let word = |value: f64| self.metric.word(value);
        let of_base = match self.is_relative {
            true => format!(" = {} * {} of n {}", self.factor, word(statistic(base)), base.samples.len()),
            false => String::new(),
        };
        let compared = format!("{} of n {} against {}{of_base}", word(value), own.samples.len(), word(bound));
        let holds = self.operator.holds(value, bound);
        let interval = self.difference(own, base, alpha);
        let is_range = pair.is_in_order();
        let is_constant = interval.is_none() && self.mean(own, base).p.is_some();
        let difference = match interval {
            Some(interval) => {
                format!("; difference {}", self.metric.with_interval(value - bound, Some(interval)))
            }
            None if self.statistic == Statistic::Median && !is_range => {
                let fewest = if self.is_relative { fewest_each(alpha) } else { fewest(1.0 - alpha) };
                format!("; too few runs for an interval of the median: take {fewest} or more of each")
            }
            None if is_constant => {
                format!("; the difference is {} in each run", word(value - bound))
            }
            None => format!("; {}", pair.too_few()),
        };
        let (outcome, words) = match interval {
            _ if !holds => (Outcome::Passes, "passes".to_owned()),
            Some([low, high]) if low > 0.0 || high < 0.0 => (Outcome::Fails, "fails".to_owned()),
            Some(_) if is_range => (Outcome::Passes, "passes: it is not so on each fold".to_owned()),
            Some(interval) => {
                let more = decided_by(pair, value - bound, interval);
                let more = more.map(|runs| format!("; about {runs} of each would, if the difference stays"));
                let words = "undecided: the interval does not exclude equality";
                (Outcome::Undecided, format!("{words}{}", more.unwrap_or_default()))
            }
            None => (Outcome::Undecided, "undecided".to_owned()),
        };
        let uneven = match [own, base].map(|setting| setting.combinations[0]) {
            [own, base] if own != base && self.is_relative => {
                format!(
                    "; means over {own} combinations of the other axes against {base}, which may decide it"
                )
            }
            _ => String::new(),
        };
        (format!("{compared}{difference}{uneven}: {words}"), outcome, interval.is_some() && !is_range)
    }

    /// The mean minus the bound.
    fn mean(&self, own: &Candidate, baseline: &Candidate) -> MeanDifference {
        if self.is_relative {
            return own.minus(baseline, self.factor);
        }
        let above: Vec<f64> = own.samples.iter().map(|(_, value)| value - self.factor).collect();
        MeanDifference::from_values(&above, own.dependence)
    }

    /// An interval, with error probability `alpha`, for the statistic minus the bound; `None` with too few
    /// values.
    fn difference(&self, own: &Candidate, baseline: &Candidate, alpha: f64) -> Option<[f64; 2]> {
        let factor = self.factor;
        match self.statistic {
            // The range of folds is that of their differences, whatever the statistic.
            _ if own.is_in_order() || baseline.is_in_order() => self.mean(own, baseline).interval_at(alpha),
            Statistic::Mean => self.mean(own, baseline).interval_at(alpha),
            Statistic::Median if self.is_relative => {
                let values = |setting: &Candidate, factor: f64| -> Vec<f64> {
                    setting.samples.iter().map(|(_, value)| factor * value).collect()
                };
                shift(&values(own, 1.0), &values(baseline, factor), alpha)
            }
            Statistic::Median => median(&own.samples, alpha).map(|ends| ends.map(|end| end - factor)),
        }
    }
}

impl Verdict {
    /// A setting fails if runs of it, or of the baseline's if there is one, have no result: they may be the bad ones.
    fn fail_on_lost(&mut self, matched: &Matched, groups: [&Comparison; 2], has_baseline: bool) {
        let lost = matched.lost_in_words(groups, ["", "baseline: "]);
        let lost: Vec<_> = lost.into_iter().filter(|(group, _)| *group == 0 || has_baseline).collect();
        for (_, words) in &lost {
            self.text += &format!("  {words}: fails\n");
            self.fails = true;
        }
        if !lost.is_empty() {
            self.text += "  `--where 'status = finished'` holds finished runs alone against it\n";
        }
    }
}

/// # Errors
/// No run has finished.
fn refuse_unfinished(group: &Comparison) -> Result<(), ReportError> {
    if group.runs.iter().any(|run| run.status == FINISHED) {
        return Ok(());
    }
    let all: Vec<usize> = (0..group.runs.len()).collect();
    let ended = lost_in_words(group, &all, all.len());
    let message = format!("no run has finished, so that nothing can be held against a bound: {ended}");
    Err(ReportError::query(message, None))
}

/// Tests the runs against the condition, folded over everything except the keys of `by` if there are any;
/// `base` is the baseline.
///
/// # Errors
/// The condition cannot be parsed, or needs a baseline that is not given.
pub fn gate(
    text: &str,
    own: &Comparison,
    base: Option<&Comparison>,
    by: &[String],
) -> Result<Verdict, ReportError> {
    refuse_unfinished(own)?;
    let condition = Condition::new(text, own, base)?;
    if condition.is_relative && base.is_none() {
        let message = format!("`{text}` needs a baseline");
        let hint = "`--baseline PATH`, or a second path: the first is the baseline";
        return Err(ReportError::query(message, Some(hint)));
    }
    let base = base.filter(|_| condition.is_relative);
    base.map_or(Ok(()), refuse_unfinished)?;
    let mut warnings = Vec::new();
    let runs = own.runs.iter().chain(base.iter().flat_map(|base| &base.runs));
    let all = Comparison::from_runs(runs.cloned().collect());
    if !condition.metric.is_learned {
        warnings.extend(all.warning().into_iter().chain(all.builds()));
    }
    let matched = matched(&condition, &all, own, base, by)?;
    let mut verdict = Verdict { text: format!("fail if {text}\n"), fails: false, warnings };
    // With many equal settings, one is more likely to differ by chance (Bonferroni correction).
    let count = matched.pairs.len();
    let alpha = ALPHA / count as f64;
    let (mut undecided, mut has_intervals) = (0, false);
    for pair in &matched.pairs {
        let (line, outcome, has_interval) = condition.line(pair, alpha);
        has_intervals |= has_interval;
        let name = matched.name(pair);
        let name = if name.is_empty() { name } else { format!("{name}: ") };
        verdict.text += &format!("  {name}{line}\n");
        verdict.fails |= outcome == Outcome::Fails;
        undecided += usize::from(outcome == Outcome::Undecided);
    }
    verdict.fail_on_lost(&matched, [own, base.unwrap_or(own)], base.is_some());
    let caveats = matched.caveats(&condition.metric, own, base.unwrap_or(own));
    verdict.text.extend(caveats.iter().map(|words| format!("  {words}\n")));
    let covered = if count > 1 && has_intervals {
        let each = units::percent(1.0 - alpha);
        format!(": the intervals of {count} settings cover {each} each, 95 % together")
    } else {
        String::new()
    };
    let word = match verdict.fails {
        true => "failed",
        false if undecided > 0 => "undecided",
        false => "passed",
    };
    verdict.text += &format!("{word}{covered}\n");
    if undecided > 0 {
        let settings = units::counted(undecided as u64, "setting");
        verdict.warnings.push(format!("too few runs to decide {settings}"));
    }
    Ok(verdict)
}

/// The settings that are held against each other; `all` has the runs of both groups.
///
/// # Errors
/// The two learn different tasks, or share no setting.
fn matched(
    Condition { metric, .. }: &Condition,
    all: &Comparison,
    own: &Comparison,
    base: Option<&Comparison>,
    by: &[String],
) -> Result<Matched, ReportError> {
    let learned = base.filter(|_| metric.is_learned);
    if let Some(message) = learned.and_then(|_| all.task_difference(Some(metric))) {
        return Err(ReportError::query(message, Some("hold runs against a baseline of their own task")));
    }
    let matched = Matched::new(own, base.unwrap_or(own), metric, by)?;
    match learned.is_some_and(|base| matched.have_other_rows(own, base)) {
        true => Err(ReportError::query(OTHER_ROWS, Some(SAME_ROWS))),
        false => Ok(matched),
    }
}

/// With how many runs of each setting the interval would exclude 0: its half shrinks as the error of the mean does. `None` if none
/// would, since the part that comes of shared rows stays.
fn decided_by(pair: &Pair, difference: f64, [low, high]: [f64; 2]) -> Option<String> {
    let count = pair.own.samples.len().min(pair.base.samples.len()) as f64;
    let shared = match pair.own.dependence.or(pair.base.dependence) {
        Dependence::Redrawn(share) => share,
        _ => 0.0,
    };
    let half = if difference > 0.0 { difference - low } else { high - difference };
    let each = (difference / half).powi(2) * (1.0 / count + shared) - shared;
    let runs = (1.0 / each).ceil().max(count + 1.0);
    (each > 0.0 && runs < 1e6).then(|| units::counted(runs as u64, "run"))
}

/// An interval for the median with error probability `alpha`.
fn median(samples: &[Sample], alpha: f64) -> Option<[f64; 2]> {
    let values: Vec<f64> = samples.iter().map(|(_, value)| *value).collect();
    let is_enough = values.len() >= fewest(1.0 - alpha);
    Estimate::covering(1.0 - alpha, &values)?.interval.filter(|_| is_enough)
}
