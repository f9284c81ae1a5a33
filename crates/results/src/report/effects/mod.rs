//! Which axis matters: the analysis of variance of a complete grid, else an estimate.

mod additive;

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use super::{
    axes::{is_inferred, is_of_record},
    comparison::Comparison,
    configurations::THE_MACHINE,
    grouping::{distinct, grouped},
    key::short,
    ranking::{Candidate, Ranking},
    run::{Run, mean, varies_setting},
};
use crate::{
    files::{Texts, csv_file, csv_lines},
    host::escape_line,
    run::{SeedsAndFold, concerns_learning},
    units,
};
use additive::Point;

/// What samples are of.
type Seeds<'a> = HashSet<&'a [SeedsAndFold]>;

/// Values of an axis that are shown.
const MOST_LEVELS: usize = 4;

/// An axis.
pub(in crate::report) struct Effect {
    /// Its share of the variance.
    pub(in crate::report) share: f64,
    /// Its values, with the mean of the metric over everything else; of an estimate values or ranges of these, with the median.
    pub(in crate::report) levels: Vec<(String, f64)>,
    /// Whether the levels are ranges of numbers, ascending.
    are_ranges: bool,
}

/// How the variance of a metric is divided.
pub(in crate::report) struct Effects {
    /// By axis, in the order of the ranking's keys.
    pub(in crate::report) axes: Vec<Effect>,
    /// What no axis alone explains: a name, its share, and words on it.
    pub(in crate::report) rest: Vec<(String, f64, &'static str)>,
    /// What an estimate is from, and of ranks; none for the analysis of a complete grid.
    pub(in crate::report) estimate: Option<String>,
    /// ` over the 2 seeds that all settings share`, where some have more: others would be of the seeds as well.
    pub(in crate::report) of_seeds: String,
}

impl Effects {
    /// None where there is nothing to tell apart: it takes several axes, or one and repeats.
    ///
    /// # Errors
    /// A sentence on why the shares are not known.
    pub(in crate::report) fn new(comparison: &Comparison, ranking: &Ranking) -> Option<Result<Self, String>> {
        let rung = first_rung(comparison, ranking);
        let (shared, of_seeds) = if rung.is_none() { shared_seeds(ranking) } else { (None, String::new()) };
        let (runs, from) = match rung {
            Some((epoch, runs)) => (runs, format!(" in epoch {epoch}")),
            None => (points(ranking, None), String::new()),
        };
        let settings = additive::settings(&runs);
        let varies = |key: &usize| settings.iter().any(|(own, _)| own[*key] != settings[0].0[*key]);
        let axes = (0..ranking.keys.len()).filter(varies).count();
        if settings.len() < 3 || axes == 0 || (axes == 1 && settings.len() == runs.len()) {
            return None;
        }
        if from.is_empty()
            && let Some(words) = same_values(comparison, ranking)
        {
            return Some(Err(words));
        }
        match shared.as_ref().map(HashSet::len) {
            Some(0) => return Some(Err("the settings share no seed".to_owned())),
            Some(1) if axes == 1 => return Some(Err("the settings share one seed alone".to_owned())),
            _ => {}
        }
        let shared = shared.as_ref();
        let analysis = if from.is_empty() { of_grid(ranking, shared) } else { None };
        let analysis = analysis.unwrap_or_else(|| match shared {
            None => Self::estimate(ranking, &settings, &from),
            Some(_) => Self::estimate(ranking, &additive::settings(&points(ranking, shared)), &from),
        });
        Some(analysis.map(|effects| Self { of_seeds, ..effects }))
    }

    fn estimate(ranking: &Ranking, settings: &[Point<'_>], from: &str) -> Result<Self, String> {
        let values: Vec<f64> = settings.iter().map(|(_, value)| *value).collect();
        let of_key = |(key, name)| (name, settings.iter().map(|(own, _)| own[key]).collect());
        let axes: Vec<additive::Axis<'_>> =
            short(&ranking.keys).into_iter().enumerate().map(of_key).collect();
        let shares = additive::shares(&axes, &values)?;
        let rest = (1.0 - shares.iter().sum::<f64>()).max(0.0);
        let effect = |(share, (_, own)): (f64, &additive::Axis<'_>)| {
            let (levels, are_ranges) = additive::medians(own, &values);
            Effect { share, levels, are_ranges }
        };
        Ok(Self {
            axes: shares.into_iter().zip(&axes).map(effect).collect(),
            rest: vec![("rest".to_owned(), rest, "axes together, seeds, chance")],
            estimate: Some(format!(
                "estimated from {}{from}",
                units::counted(settings.len() as u64, "setting")
            )),
            of_seeds: String::new(),
        })
    }
}

/// In what settings with the same values of all axes differ; none where there are no such settings.
fn same_values(comparison: &Comparison, ranking: &Ranking) -> Option<String> {
    let by_values = grouped(ranking.settings.iter().map(|own| (&own.values, own.places[0])));
    let (_, same) = by_values.into_iter().find(|(_, own)| own.len() > 1)?;
    let runs: Vec<&Run> = same.into_iter().map(|place| &comparison.runs[place]).collect();
    let differs = |key: &&str| distinct(runs.iter().map(|run| run.fact(key))).len() > 1;
    // What is learned is the same on all machines.
    let of_machine = THE_MACHINE.into_iter().filter(|key| !ranking.metric.is_learned && differs(key));
    let is_free =
        |key: &&str| key == &"name" || !varies_setting(key) || is_of_record(key) || is_inferred(key);
    let specs = || runs.iter().filter_map(|run| run.spec.as_ref());
    let of_spec = specs().flat_map(|spec| specs().flat_map(|other| spec.differing(other)));
    let of_spec = of_spec.filter(|key| !is_free(key));
    let mut keys = distinct(of_machine.chain(of_spec));
    let more = units::and_more(keys.len().saturating_sub(MOST_LEVELS));
    keys.truncate(MOST_LEVELS);
    Some(match keys.is_empty() {
        true => "settings with the same values differ in something that is no axis".to_owned(),
        false => format!("settings with the same values differ in {}{more}", keys.join(", ")),
    })
}

/// The seeds that all settings have, and words on them; none where these are all seeds.
fn shared_seeds(ranking: &Ranking) -> (Option<Seeds<'_>>, String) {
    let mut of_settings =
        ranking.settings.iter().map(|own| own.samples.iter().map(|own| &*own.of).collect::<Seeds<'_>>());
    let (Some(mut shared), true) = (of_settings.next(), ranking.metric.is_learned) else {
        return (None, String::new());
    };
    let first = shared.len();
    let mut are_all = true;
    for own in of_settings {
        are_all &= own.len() == first && own.is_subset(&shared);
        shared.retain(|seed| own.contains(seed));
    }
    let words = match shared.len() {
        _ if are_all => return (None, String::new()),
        1 => format!(" over the one {} that all settings share", ranking.each),
        count => format!(" over the {count} {}s that all settings share", ranking.each),
    };
    (Some(shared), words)
}

/// The samples of a setting that are of these seeds, or all.
fn values_of<'a>(setting: &'a Candidate, seeds: Option<&'a Seeds<'a>>) -> impl Iterator<Item = f64> + 'a {
    let is_of = move |of: &[SeedsAndFold]| seeds.is_none_or(|seeds| seeds.contains(of));
    setting.samples.iter().filter(move |own| is_of(&own.of)).map(|own| own.value)
}

/// Whether an axis can change the metric.
fn can_tell(ranking: &Ranking, key: &str) -> bool {
    !ranking.metric.is_learned || concerns_learning(key)
}

/// A setting's values of the ranking's axes. An axis does not vary where it is empty, or can change nothing.
fn axis_values<'a>(ranking: &Ranking, values: impl Iterator<Item = Option<&'a str>>) -> Vec<Option<&'a str>> {
    let known = |value: &&str| !["", "-"].contains(value);
    let of_key =
        |(key, value): (&String, Option<&'a str>)| value.filter(known).filter(|_| can_tell(ranking, key));
    ranking.keys.iter().zip(values).map(of_key).collect()
}

/// The runs of a ranking's settings.
fn points<'a>(ranking: &'a Ranking, seeds: Option<&'a Seeds<'a>>) -> Vec<Point<'a>> {
    let mut points = Vec::new();
    for setting in &ranking.settings {
        let values = axis_values(ranking, setting.values.iter().map(|value| Some(value.as_str())));
        points.extend(values_of(setting, seeds).map(|value| (values.clone(), value)));
    }
    points
}

/// The epochs after which successive halving first compared trials, and their values there; none where it did not, or by
/// another metric. Those that finished are no fair sample of the space.
fn first_rung<'a>(comparison: &'a Comparison, ranking: &'a Ranking) -> Option<(String, Vec<Point<'a>>)> {
    let runs = &comparison.runs;
    let places = || ranking.settings.iter().flat_map(|own| &own.places).chain(&ranking.left_out).copied();
    let sweeps = distinct(places().map(|place| runs[place].sweep.as_deref()));
    let [Some(folder)] = sweeps[..] else { return None };
    let file = csv_file::read(&Path::new(folder).join("rungs.csv")).ok()?;
    let metric = runs[places().next()?].monitor();
    let [epochs, trial, value] = csv_lines::find_columns(&file.columns, ["epochs", "trial", "value"]).ok()?;
    let rung = file.rows.first()?.get(epochs)?.to_owned();
    let by_trial: HashMap<usize, &Run> =
        places().filter_map(|place| Some((runs[place].trial?, &runs[place]))).collect();
    let point = |row: &Texts| -> Option<Point<'a>> {
        let run = *by_trial.get(&row[trial].parse().ok()?)?;
        let value = row[value].parse().ok().filter(|value: &f64| !value.is_nan())?;
        Some((axis_values(ranking, ranking.keys.iter().map(|key| run.axis(key))), value))
    };
    let rows = file.rows.iter().filter(|row| row[epochs] == *rung);
    (metric == ranking.metric.full_name()).then(|| (rung.clone(), rows.filter_map(point).collect()))
}

/// The analysis of variance, if the settings are a complete grid whose settings ran equally often, or of one axis.
fn of_grid(ranking: &Ranking, seeds: Option<&Seeds<'_>>) -> Option<Result<Effects, String>> {
    let settings = &ranking.settings;
    let values = |setting: &Candidate| -> Vec<f64> { values_of(setting, seeds).collect() };
    let levels = |key: usize| distinct(settings.iter().map(|setting| &setting.values[key])).len();
    // Settings that were drawn may have a product of levels that no integer holds.
    let cells = (0..ranking.keys.len()).map(levels).fold(1, usize::saturating_mul);
    let several = (0..ranking.keys.len()).filter(|&key| levels(key) > 1).count() > 1;
    let is_uneven = || settings.iter().any(|setting| setting.samples.len() != settings[0].samples.len());
    if settings.len() != cells || (several && seeds.is_none() && is_uneven()) {
        return None;
    }
    let all: Vec<f64> = settings.iter().flat_map(values).collect();
    let grand = mean(&all);
    let total: f64 = all.iter().map(|value| (value - grand).powi(2)).sum();
    if total.is_nan() || total <= 0.0 {
        return Some(Err("all values are equal".to_owned()));
    }
    let of_group = |values: &Vec<f64>| values.len() as f64 * (mean(values) - grand).powi(2) / total;
    let axes: Vec<Effect> = (0..ranking.keys.len())
        .map(|key| {
            if !can_tell(ranking, &ranking.keys[key]) {
                return Effect { share: 0.0, levels: Vec::new(), are_ranges: false };
            }
            let by_level = grouped(
                settings.iter().flat_map(|s| values_of(s, seeds).map(move |value| (&s.values[key], value))),
            );
            let share = by_level.iter().map(|(_, values)| of_group(values)).sum();
            let levels = by_level.iter().map(|(level, values)| ((*level).clone(), mean(values)));
            Effect { share, levels: levels.collect(), are_ranges: false }
        })
        .collect();
    let between: f64 = settings.iter().map(|setting| of_group(&values(setting))).sum();
    let alone: f64 = axes.iter().map(|effect| effect.share).sum();
    let mut rest = Vec::new();
    if several {
        rest.push(("together".to_owned(), (between - alone).max(0.0), "beyond each alone"));
    }
    if settings.len() < all.len() {
        let name = if ranking.metric.is_learned { format!("{}s", ranking.each) } else { "noise".to_owned() };
        rest.push((name, (1.0 - between).max(0.0), ""));
    }
    Some(Ok(Effects { axes, rest, estimate: None, of_seeds: String::new() }))
}

impl Comparison {
    /// Which axis matters, below a ranking's table.
    pub(in crate::report) fn effects(&self, ranking: &Ranking) -> String {
        let metric = &ranking.metric;
        let effects = match Effects::new(self, ranking) {
            None => return String::new(),
            Some(Err(reason)) => return format!("\nwhich axis matters is not known: {reason}\n"),
            Some(Ok(effects)) => effects,
        };
        let of_axis = |(key, effect): (&str, &Effect)| {
            let mut levels: Vec<_> = effect.levels.iter().collect();
            if !effect.are_ranges {
                levels.sort_by(|a, b| metric.cost(a.1).total_cmp(&metric.cost(b.1)));
            }
            let more = units::and_more(levels.len().saturating_sub(MOST_LEVELS));
            let shown = levels.iter().take(MOST_LEVELS);
            let words =
                shown.map(|(level, value)| format!("{}: {}", escape_line(level), metric.word(*value)));
            [key.to_owned(), units::percent(effect.share), words.collect::<Vec<_>>().join(", ") + &more]
        };
        let axes =
            short(&ranking.keys).into_iter().zip(&effects.axes).filter(|(_, effect)| effect.levels.len() > 1);
        let rest = effects.rest.iter();
        let rest =
            rest.map(|(name, share, words)| [name.clone(), units::percent(*share), (*words).to_owned()]);
        let lines: Vec<[String; 3]> = axes.map(of_axis).chain(rest).collect();
        let width = |i: usize| lines.iter().map(|line| line[i].chars().count()).max().unwrap_or(0);
        let [first, second] = [0, 1].map(width);
        let seeds = &effects.of_seeds;
        let mut text = match &effects.estimate {
            None => format!("\nwhich axis matters{seeds}: shares of the variance, means by value\n"),
            Some(how) => {
                format!(
                    "\nwhich axis matters, {how}{seeds}: shares of the variance of ranks, medians by value\n"
                )
            }
        };
        for [name, share, words] in lines {
            text += format!("  {name:<first$}  {share:>second$}  {words}").trim_end();
            text.push('\n');
        }
        text
    }
}
