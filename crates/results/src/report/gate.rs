//! `--fail-if`: a bound on a figure, possibly relative to a baseline. It fails only if the interval excludes
//! equality.

mod json;
mod without_statistic;

use serde_json::{Value, json};
use without_statistic::without_statistic;

use super::{
    ReportError,
    against::{Matched, Pair, Unjudged},
    answer::{OTHER_ROWS, SAME_ROWS, shared_training},
    comparison::Comparison,
    configurations::FINISHED,
    filter::Operator,
    matching::lost_in_words,
    metric::Metric,
    ranking::Candidate,
    statistics::{ALPHA, Dependence, Estimate, MOST_RUNS, MeanDifference, Shift, fewest, fewest_each},
};
use crate::{run::Sample, units};

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
    /// The condition holds, but that may be chance.
    Undecided,
}

/// The result of `--fail-if`.
pub struct Verdict {
    /// What was compared, one line per setting.
    pub text: String,
    /// The same as JSON: the condition, the result, the settings, and notes.
    pub json: String,
    /// Whether the condition holds beyond doubt for a setting.
    pub fails: bool,
    /// Whether it holds for a setting, but that may be chance, or is not known yet.
    pub is_undecided: bool,
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
        let meant = || without_statistic(text, [left, right], operator, own);
        let (name, rest) = left.split_once('(').ok_or_else(|| meant().unwrap_or_else(no_condition))?;
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

    /// # Errors
    /// Each value is of other validation rows out of the same rows, or that is not known, and the interval of a median knows nothing of it.
    fn refuse_drawn_median(&self, matched: &Matched) -> Result<(), ReportError> {
        if self.statistic == Statistic::Mean {
            return Ok(());
        }
        let settings = || matched.pairs.iter().flat_map(|pair| [&pair.own, &pair.base]);
        let (why, way_out) = if settings().any(|setting| matches!(setting.dependence, Dependence::Redrawn(_)))
        {
            let way_out = "take `mean`, whose interval allows for the training rows that they share";
            ("over runs that validate on other rows of the same table", Some(way_out))
        } else if settings().any(Candidate::lacks_rows) {
            ("where runs do not record their validation rows", None)
        } else {
            return Ok(());
        };
        Err(ReportError::query(format!("the median of {} has no interval {why}", self.metric.name), way_out))
    }

    /// A line on what is compared and the result, the result, and whether there is an interval (with error
    /// probability `alpha`, so no range).
    fn line(&self, pair: &Pair, alpha: f64) -> (String, Outcome, bool) {
        let Pair { own, base, .. } = pair;
        let word = |value: f64| self.metric.word(value);
        let [value, of_base] = [own, base].map(|setting| self.statistic_of(setting));
        let bound = if self.is_relative { self.factor * of_base } else { self.factor };
        let of_base = match self.is_relative {
            true => format!(" = {} * {} of n {}", self.factor, word(of_base), base.samples.len()),
            false => String::new(),
        };
        let compared = format!("{} of n {} against {}{of_base}", word(value), own.samples.len(), word(bound));
        let above = self.above(pair, alpha);
        let is_range = pair.is_in_order();
        let over = above.over.as_deref().unwrap_or_default();
        let apart = self.metric.of_differences();
        let difference = match above.interval {
            Some(own) => format!("; difference{over} {}", apart.with_interval(above.value, Some(own))),
            None if above.is_constant => {
                format!("; the difference{over} is {} in each run", apart.word(above.value))
            }
            None if self.statistic == Statistic::Median && !is_range => {
                let (fewest, each) = match self.is_relative {
                    true => (fewest_each(alpha), " of each"),
                    false => (fewest(1.0 - alpha), ""),
                };
                format!("; too few runs for an interval of the median: take {fewest} or more{each}")
            }
            None => format!("; {}", pair.too_few()),
        };
        let (outcome, words) = match above.interval {
            Some(interval) if interval.iter().all(|end| self.operator.holds(*end, 0.0)) => {
                (Outcome::Fails, "fails".to_owned())
            }
            // What is equal in each run is equal beyond doubt.
            None if above.is_constant && above.value == 0.0 && self.operator.holds(0.0, 0.0) => {
                (Outcome::Fails, "fails".to_owned())
            }
            _ if !self.operator.holds(above.value, 0.0) => (Outcome::Passes, "passes".to_owned()),
            Some(_) if is_range => (Outcome::Passes, "passes: it is not so on each fold".to_owned()),
            Some(_) => {
                let each = if self.is_relative { " of each" } else { "" };
                let more = match above.decided_by.map(|count| units::counted(count as u64, "run")) {
                    Some(runs) => format!("about {runs}{each} would, if the difference stays"),
                    None => "no number of such runs would, if the difference stays".to_owned(),
                };
                let words = format!("undecided: the interval does not exclude equality; {more}");
                (Outcome::Undecided, words)
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
        let has_interval = above.interval.is_some() && !is_range;
        (format!("{compared}{difference}{uneven}: {words}"), outcome, has_interval)
    }

    fn statistic_of(&self, setting: &Candidate) -> f64 {
        match self.statistic {
            Statistic::Mean => setting.value,
            Statistic::Median => Estimate::from_values(&values(setting)).map_or(f64::NAN, |own| own.median),
        }
    }

    /// Whether each run of a setting is equal to each bound.
    fn are_equal(&self, Pair { own, base, .. }: &Pair) -> bool {
        let bounds = match self.is_relative {
            true => values(base).iter().map(|value| self.factor * value).collect(),
            false => vec![self.factor],
        };
        [values(own), bounds].concat().windows(2).all(|pair| pair[0] == pair[1])
    }

    /// How far a setting is above its bound, with an interval of error probability `alpha`.
    fn above(&self, pair: &Pair, alpha: f64) -> Above {
        let Pair { own, base, .. } = pair;
        let are_equal = self.are_equal(pair);
        let counts = [own, base].map(|setting| setting.samples.len());
        // The range of folds is that of their differences, whatever the statistic.
        if self.statistic == Statistic::Mean || own.is_in_order() || base.is_in_order() {
            let mean = match self.is_relative {
                true => own.minus(base, self.factor),
                false => MeanDifference::from_bound(&own.samples, self.factor, own.dependence),
            };
            let over = match mean.pairs > 0 && counts.iter().any(|count| *count > mean.pairs) {
                true => Some(format!(
                    " over {} of both",
                    units::counted(mean.pairs as u64, &own.each.to_string())
                )),
                false => mean.is_of_some.then(|| " over the runs of both".to_owned()),
            };
            let interval = mean.interval_at(alpha);
            return Above {
                value: mean.mean,
                interval,
                over,
                is_constant: are_equal || (interval.is_none() && mean.p.is_some()),
                decided_by: mean.decided_by(alpha),
            };
        }
        let (value, interval, over) = if self.is_relative {
            let scaled: Vec<f64> = values(base).iter().map(|value| self.factor * value).collect();
            let shift = Shift::new(&values(own), &scaled, alpha);
            (shift.median, shift.interval, Some(" (median of all pairs)".to_owned()))
        } else {
            let interval = median(&own.samples, alpha).map(|ends| ends.map(|end| end - self.factor));
            (self.statistic_of(own) - self.factor, interval, None)
        };
        let count = if self.is_relative { counts[0].min(counts[1]) } else { counts[0] };
        let half = interval.map(|[low, high]| if value > 0.0 { value - low } else { high - value });
        // Ends at ranks approach the median as the error of a mean does.
        let runs = half.map(|half| ((half / value).powi(2) * count as f64).ceil().max(count as f64 + 1.0));
        let decided_by = runs.filter(|runs| *runs < MOST_RUNS as f64).map(|runs| runs as usize);
        Above { value, interval, over, is_constant: are_equal, decided_by }
    }
}

/// How far a setting is above its bound.
struct Above {
    value: f64,
    interval: Option<[f64; 2]>,
    /// The pairs that it is over, in words, if it is not over all runs.
    over: Option<String>,
    /// Whether it is the same in each run.
    is_constant: bool,
    /// With how many runs the interval would exclude 0.
    decided_by: Option<usize>,
}

fn values(setting: &Candidate) -> Vec<f64> {
    setting.samples.iter().map(|own| own.value).collect()
}

impl Verdict {
    /// A setting fails if runs of it, or of the baseline's if there is one, ended without a result: they may be the bad ones. Returns
    /// the results, undecided where runs are under way.
    fn judge_lost(&mut self, matched: &Matched, groups: [&Comparison; 2], has_baseline: bool) -> Vec<Value> {
        let lost = matched.lost_in_words(groups, ["", "baseline: "]);
        let lost: Vec<_> = lost.into_iter().filter(|lost| lost.group == 0 || has_baseline).collect();
        let mut judged = Vec::new();
        for Unjudged { words, is_under_way, .. } in &lost {
            let (word, outcome) =
                if *is_under_way { ("undecided", Outcome::Undecided) } else { ("fails", Outcome::Fails) };
            self.text += &format!("  {words}: {word}\n");
            self.take(outcome);
            judged.push(json!({ "setting": words, "result": outcome.name() }));
        }
        if !lost.is_empty() {
            self.text += "  `--where 'status = finished'` holds finished runs alone against it\n";
        }
        judged
    }

    fn take(&mut self, outcome: Outcome) {
        self.fails |= outcome == Outcome::Fails;
        self.is_undecided |= outcome == Outcome::Undecided;
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
        warnings.extend(all.virtual_times().map(str::to_owned));
    }
    let matched = matched(&condition, &all, own, base, by)?;
    condition.refuse_drawn_median(&matched)?;
    let title = format!("fail if {text}\n");
    let mut verdict =
        Verdict { text: title, json: String::new(), fails: false, is_undecided: false, warnings };
    // With many equal settings, one is more likely to differ by chance (Bonferroni correction).
    let count = matched.pairs.len();
    let alpha = ALPHA / count as f64;
    let (mut judged, mut has_intervals) = (Vec::new(), false);
    for pair in &matched.pairs {
        let (line, outcome, has_interval) = condition.line(pair, alpha);
        has_intervals |= has_interval;
        let name = matched.name(pair);
        judged.push(condition.json(&name, pair, alpha, outcome));
        let name = if name.is_empty() { name } else { format!("{name}: ") };
        verdict.text += &format!("  {name}{line}\n");
        verdict.take(outcome);
    }
    judged.extend(verdict.judge_lost(&matched, [own, base.unwrap_or(own)], base.is_some()));
    let mut notes = matched.left_out_in_words(&condition.metric, own, base);
    notes.extend(matched.caveats(&condition.metric, [own, base.unwrap_or(own)], ["runs", "baseline"]));
    let settings = matched.pairs.iter().flat_map(|pair| [&pair.own, &pair.base]);
    notes.extend(shared_training(settings).filter(|_| has_intervals));
    verdict.text.extend(notes.iter().map(|words| format!("  {words}\n")));
    let covered = if count > 1 && has_intervals {
        let each = units::percent(1.0 - alpha);
        format!(": the intervals of {count} settings cover {each} each, 95 % together")
    } else {
        String::new()
    };
    let outcome = match verdict.fails {
        true => Outcome::Fails,
        false if verdict.is_undecided => Outcome::Undecided,
        false => Outcome::Passes,
    };
    verdict.text += &format!("{}{covered}\n", outcome.name());
    if verdict.is_undecided {
        let undecided = judged.iter().filter(|own| own["result"] == Outcome::Undecided.name()).count();
        let settings = units::counted(undecided as u64, "setting");
        verdict.warnings.push(format!("{settings} undecided, which `--strict` counts as a failure"));
    }
    let all = json!({ "condition": text, "result": outcome.name(), "settings": judged, "notes": notes });
    verdict.json = format!("{all}\n");
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
    let lacks = |group: &Comparison| !group.runs.iter().any(|run| metric.value(run).is_some());
    let whose = if lacks(own) { "" } else { " of the baseline" };
    if base.map_or(matched.pairs.is_empty(), |base| lacks(own) || lacks(base)) {
        let message = format!("no finished run{whose} has {}", metric.name);
        return Err(ReportError::query(message, Some("`logging.metrics` adds it to later runs")));
    }
    if let Some(message) = matched.share_nothing() {
        let hint = "`compare` without `--fail-if` ranks the runs of both together";
        return Err(ReportError::query(message, Some(hint)));
    }
    match base.is_some() && matched.have_other_rows() {
        true => Err(ReportError::query(format!("2 {OTHER_ROWS}"), Some(SAME_ROWS))),
        false => Ok(matched),
    }
}

/// An interval for the median with error probability `alpha`.
fn median(samples: &[Sample], alpha: f64) -> Option<[f64; 2]> {
    let values: Vec<f64> = samples.iter().map(|own| own.value).collect();
    let is_enough = values.len() >= fewest(1.0 - alpha);
    Estimate::covering(1.0 - alpha, &values)?.interval.filter(|_| is_enough)
}
