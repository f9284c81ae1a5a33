//! `--fail-if`: a bound on a figure, held against a baseline; it fails only where the interval excludes equality.

use super::{
    ReportError,
    comparison::Comparison,
    difference_of_means::{ALPHA, MeanDifference, Sample},
    filter::Operator,
    matched::Matched,
    metric::Metric,
    ranking::Candidate,
    statistics::{Estimate, are_too_few},
};

/// `median(steps_per_s) < 0.95 * baseline`.
struct Condition {
    statistic: Statistic,
    metric: Metric,
    operator: Operator,
    factor: f64,
    /// Whether the factor is of the baseline's statistic; else it is the bound.
    is_relative: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Statistic {
    Mean,
    Median,
}

/// What became of a gate.
pub struct Verdict {
    /// What was compared, a line for each setting.
    pub text: String,
    /// Whether the condition holds beyond doubt somewhere.
    pub fails: bool,
}

impl Condition {
    fn new(text: &str, comparison: &Comparison) -> Result<Self, ReportError> {
        let wrong = |message: String| {
            let hint =
                "as in `--fail-if 'median(steps_per_s) < 0.95 * baseline'` or `mean(validation.loss) > 0.1`";
            ReportError::Query { message, hint: Some(hint.to_owned()) }
        };
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
        let metric = Metric::new(rest.strip_suffix(')').ok_or_else(no_condition)?.trim(), &comparison.runs)?;
        let (factor, is_relative) = match right.strip_suffix("baseline") {
            None => (right, false),
            Some(factor) if factor.trim().is_empty() => ("1", true),
            Some(factor) => (factor.trim().strip_suffix('*').ok_or_else(no_condition)?.trim(), true),
        };
        let number = factor.parse().ok().filter(|number: &f64| number.is_finite());
        let factor = number.ok_or_else(|| wrong(format!("expected a number, found `{factor}`")))?;
        Ok(Self { statistic, metric, operator, factor, is_relative })
    }

    /// What is compared with what, and whether the condition holds beyond doubt.
    fn line(&self, own: &Candidate, base: &Candidate) -> (String, bool) {
        let statistic = |setting: &Candidate| {
            let values: Vec<f64> = setting.samples.iter().map(|(_, value)| *value).collect();
            match self.statistic {
                Statistic::Mean => MeanDifference::from_values(&values).mean,
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
        let interval = self.difference(&own.samples, &base.samples);
        let excludes = interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0);
        let difference = match interval {
            Some(interval) => {
                format!("; difference {}", self.metric.with_interval(value - bound, Some(interval)))
            }
            None if self.statistic == Statistic::Median => {
                "; too few runs for an interval of the median: take 6 or more of each".to_owned()
            }
            None => "; too few runs for an interval".to_owned(),
        };
        let outcome = match (holds, excludes) {
            (true, true) => "fails",
            (true, false) => "passes: the interval does not exclude equality",
            (false, _) => "passes",
        };
        (format!("{compared}{difference}: {outcome}"), holds && excludes)
    }

    /// An interval of 95 % for what the statistic is above the bound, where enough values tell.
    fn difference(&self, own: &[Sample], baseline: &[Sample]) -> Option<[f64; 2]> {
        match self.statistic {
            Statistic::Mean if self.is_relative => known(MeanDifference::new(own, baseline, self.factor)),
            Statistic::Mean => {
                let values: Vec<f64> = own.iter().map(|(_, value)| value - self.factor).collect();
                known(MeanDifference::from_values(&values))
            }
            Statistic::Median if self.is_relative => difference_of_medians(own, baseline, self.factor),
            Statistic::Median => median(own).map(|[low, high]| [low - self.factor, high - self.factor]),
        }
    }
}

/// Holds the runs against the condition; `base` has the baseline's.
///
/// # Errors
/// The condition cannot be read, or needs a baseline that is not there.
pub fn gate(text: &str, own: &Comparison, base: Option<&Comparison>) -> Result<Verdict, ReportError> {
    let condition = Condition::new(text, own)?;
    if condition.is_relative && base.is_none() {
        let message = format!("`{text}` needs a baseline");
        let hint = Some("`--baseline PATH`, or a second path: the first is the baseline".to_owned());
        return Err(ReportError::Query { message, hint });
    }
    let matched =
        Matched::new(own, base.filter(|_| condition.is_relative).unwrap_or(own), &condition.metric)?;
    let mut verdict = Verdict { text: format!("fail if {text}\n"), fails: false };
    for pair in &matched.pairs {
        let (line, fails) = condition.line(&pair.own, &pair.base);
        let name = matched.name(pair);
        let name = if name.is_empty() { name } else { format!("{name}: ") };
        verdict.text += &format!("  {name}{line}\n");
        verdict.fails |= fails;
    }
    for lost in &matched.lost {
        verdict.text += &format!("  {}: no run of it finished: fails\n", matched.words(&lost.values));
        verdict.fails = true;
    }
    let each = if matched.pairs.len() > 1 { ", each setting held to 95 %" } else { "" };
    verdict.text += &format!("{}{each}\n", if verdict.fails { "failed" } else { "passed" });
    Ok(verdict)
}

/// The interval of a difference. Values that do not vary have no spread: enough of them tell by their sign.
fn known(difference: MeanDifference) -> Option<[f64; 2]> {
    let is_certain = difference.p.is_some_and(|p| p < ALPHA);
    difference.interval.or_else(|| is_certain.then_some([difference.mean; 2]))
}

/// An interval of 95 % for the median.
fn median(samples: &[Sample]) -> Option<[f64; 2]> {
    let values: Vec<f64> = samples.iter().map(|(_, value)| *value).collect();
    Estimate::from_values(&values)?.interval.filter(|_| !are_too_few(values.len()))
}

/// The difference of two medians lies between the differences of their intervals' ends. Each interval misses on one side with
/// half of what it does not cover, so that both together mislead in no more than 5 %.
fn difference_of_medians(own: &[Sample], baseline: &[Sample], factor: f64) -> Option<[f64; 2]> {
    let ([low, high], [base_low, base_high]) = (median(own)?, median(baseline)?);
    Some([low - factor * base_high, high - factor * base_low])
}
