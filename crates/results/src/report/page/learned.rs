//! What was learned: verdict, curves and ranking.

use super::{
    Content,
    curves::{COLORS, Chart},
    html::{Attributes, Html},
    table,
};
use crate::{
    files::Series,
    report::{
        ReportError,
        answer::notes,
        best::best,
        comparison::Comparison,
        configurations::{FINISHED, STOPPED},
        grouping::distinct,
        metric::Valued,
        order::Question,
        ranking::{Candidate, Ranking},
        run::RUNNING,
        watch::{progress, sweep_progress},
    },
    units,
};

/// Maximum intervals shown side by side.
const MOST_INTERVALS: usize = 12;

/// Maximum values in all curves of a page: some megabytes of text.
const MOST_VALUES: usize = 300_000;

/// Minimum and maximum points across a chart, for a narrow and a wide screen.
const POINTS: [usize; 2] = [200, 2000];

/// Maximum curves in a chart; if there are more, the best are drawn.
const MOST_CURVES: usize = 100;

/// Maximum runs whose curves are read for a chart.
const MOST_READ: usize = 1000;

/// The splits, in their order in a run's curves, behind which the means of training epochs follow.
const SPLITS: [&str; 2] = ["train", "validation"];
const MEANS: usize = 2;

/// A line's name, and the runs whose curves it combines.
type Group = (String, Vec<usize>);

/// A chart's lines: each has a name and the curves that it combines.
type Lines<'a> = Vec<(String, Vec<&'a Series>)>;

/// The line below that of means.
const EACH_STEP: &str = "train, each step";

impl Content<'_> {
    /// Adds curves and ranking of each task; returns the verdicts.
    pub(super) fn learned(&mut self, metric: Option<&str>) -> Result<Html, ReportError> {
        let question = Question { metric: metric.map(str::to_owned), top: usize::MAX, ..Question::default() };
        let rankings = match self.comparison.rankings(&question) {
            Err(e) if metric.is_some() => return Err(e),
            // Lab runs learn nothing.
            rankings => rankings.unwrap_or_default(),
        };
        self.warnings.extend(self.comparison.judged_apart(&question));
        let mut headline = Html::default();
        rankings.iter().for_each(|ranking| self.take_names(ranking));
        let names = self.names_of_tasks(&rankings);
        for (number, ranking) in rankings.iter().enumerate() {
            let (suffix, of) = match rankings.len() {
                1 => (String::new(), String::new()),
                _ => (format!("-{number}"), format!(": {}", names[number])),
            };
            // Runs that learn the same are not ranked by it.
            let is_final = ranking.has_final_models_alone(self.comparison);
            let is_about_times = metric.is_none() && !is_final && self.is_about_times(ranking);
            if !is_about_times || self.comparison.runs.len() == 1 {
                self.verdict(&mut headline, ranking, (rankings.len() > 1).then_some(&*names[number]));
            }
            self.section(&format!("curves{suffix}"), &format!("Curves{of}"), |content, html| {
                let groups = content.groups(ranking);
                content.curves(html, groups, ranking.metric.full_name());
            });
            if is_about_times {
                continue;
            }
            let shown = ranking.settings.len() + self.stopped(ranking);
            if shown > 1 {
                self.section(&format!("ranking{suffix}"), &format!("Ranking{of}"), |content, html| {
                    content.ranking(html, ranking);
                });
            }
            if shown > 2 && !ranking.keys.is_empty() {
                self.section(&format!("axes{suffix}"), &format!("What the axes do{of}"), |content, html| {
                    content.axes(html, ranking);
                });
            }
        }
        if rankings.is_empty() {
            let runs = (0..self.comparison.runs.len()).map(|place| (self.name(place), vec![place]));
            let groups = runs.filter(|(_, places)| self.has_curves(places)).collect();
            self.section("curves", "Curves", |content, html| content.curves(html, groups, "loss"));
        }
        if let [run] = &self.comparison.runs[..] {
            if !run.reason.is_empty() {
                headline.prose(if run.status == FINISHED { "note" } else { "doubt" }, &run.reason);
            }
            self.facts(&mut headline);
            self.comparison.virtual_times().iter().for_each(|words| headline.prose("warning", words));
        } else {
            if self.comparison.runs.iter().any(|run| run.status == RUNNING) {
                headline.prose("note", &sweep_progress(&self.comparison.runs, "run", false));
            }
            let class = if headline.is_empty() { "verdict" } else { "note" };
            headline.prose(class, &self.comparison.comparability(metric));
        }
        let warnings: Vec<String> =
            self.comparison.warning().into_iter().chain(self.comparison.builds()).collect();
        warnings.iter().for_each(|words| headline.prose("warning", words));
        Ok(headline)
    }

    /// The name of each task's specs, with the runs where several tasks have one name.
    fn names_of_tasks(&self, rankings: &[Ranking]) -> Vec<String> {
        let names: Vec<String> =
            rankings.iter().map(|own| self.comparison.task_name(own).trim().to_owned()).collect();
        let is_shared = |name: &String| names.iter().filter(|other| *other == name).count() > 1;
        let name = |(name, ranking): (&String, &Ranking)| match is_shared(name) {
            true => format!("{name}, {}", self.comparison.numbered(&ranking.all_places())),
            false => name.clone(),
        };
        names.iter().zip(rankings).map(name).collect()
    }

    /// The number of trials that their sweep stopped early, with a value of the metric.
    fn stopped(&self, ranking: &Ranking) -> usize {
        let left_out = ranking.left_out.iter().map(|&place| &self.comparison.runs[place]);
        left_out.filter(|run| run.status == STOPPED && ranking.metric.value(run).is_some()).count()
    }

    /// Whether the runs of a task differ in nothing that concerns what they learn.
    fn is_about_times(&self, ranking: &Ranking) -> bool {
        let places = ranking.all_places();
        let runs: Vec<_> = places.iter().map(|&place| &self.comparison.runs[place]).collect();
        let (tasks, axes) = &self.tasks;
        let task = places.first().and_then(|&place| tasks[place]);
        axes.get(&task).is_some_and(|axes| Comparison::are_about_times(axes, &runs))
    }

    /// The verdict on a ranking, with its task if there are several.
    fn verdict(&self, html: &mut Html, ranking: &Ranking, task: Option<&str>) {
        if let [run] = &self.comparison.runs[..] {
            let best = best(run);
            let words = match (best.is_empty(), run.number("epoch_train_loss")) {
                _ if run.status == RUNNING => format!("{RUNNING}: {}", progress(run, false)),
                (false, _) => format!("{}: best {best}", run.status),
                (true, Some(loss)) => {
                    let what = if run.is_final_model() { "final model, " } else { "" };
                    format!("{}: {what}train loss {}", run.status, units::number(loss))
                }
                (true, None) => run.status.clone(),
            };
            html.prose("verdict", &words);
            return;
        }
        let shown: Vec<&Candidate> = ranking.settings.iter().collect();
        let verdict = self.comparison.verdict(ranking, &shown, 0);
        let (answer, doubt) = verdict.split_once(";\n").unwrap_or((&verdict, ""));
        let task = task.map(|name| format!("{name}: ")).unwrap_or_default();
        html.prose("verdict", &(task + answer.trim()));
        if !doubt.is_empty() {
            html.prose("doubt", doubt.trim());
        }
        self.comparison.caveats_of(ranking).iter().for_each(|words| html.prose("doubt", words));
        let stopped = self.comparison.better_stopped(ranking);
        if !stopped.is_empty() {
            html.prose("doubt", stopped.trim());
        }
    }

    /// The settings, best first, then the runs that are not ranked, in the same form.
    fn groups(&self, ranking: &Ranking) -> Vec<Group> {
        // A single setting is shown as the mean of its runs; the name of the best run would hide that.
        let name = |setting: &Candidate| match setting.places.len() {
            runs @ 2.. if ranking.settings.len() == 1 => format!("{runs} runs"),
            _ => ranking.name(self.comparison, setting),
        };
        let settings = ranking.settings.iter().map(|setting| (name(setting), setting.places.clone()));
        let mut rest = ranking.left_out.clone();
        let cost = |place: usize| {
            let value = ranking.metric.value(&self.comparison.runs[place]);
            value.map_or(f64::INFINITY, |value| ranking.metric.cost(value))
        };
        rest.sort_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        let seeds = rest.iter().filter_map(|&place| self.comparison.runs[place].axis("seed"));
        let has_seeds = distinct(seeds).len() > 1;
        let name = |place| ranking.name_left_out(self.comparison, place, has_seeds);
        let rest = rest.into_iter().map(|place| (name(place), vec![place]));
        settings.chain(rest).filter(|(_, places)| self.has_curves(places)).collect()
    }

    /// Whether the runs have curves; without reading them, since of many runs only those that are drawn are
    /// read.
    fn has_curves(&self, places: &[usize]) -> bool {
        let metrics = |place: &usize| self.comparison.runs[*place].metrics();
        places.iter().filter_map(metrics).any(|path| path.exists())
    }

    /// A chart per metric. The one whose name `figure` ends with comes first; the others are collapsed.
    fn curves(&mut self, html: &mut Html, mut groups: Vec<Group>, figure: &str) {
        let all = groups.len();
        groups.truncate(MOST_CURVES);
        let most = MOST_READ / groups.len().max(1);
        let is_thinned = groups.iter().any(|(_, places)| places.len() > most);
        // They are in the order of their values: the best alone would be no fair sample.
        for (_, places) in &mut groups {
            let every = places.len().div_ceil(most);
            *places = places.iter().copied().step_by(every.max(1)).collect();
        }
        let places: Vec<usize> = groups.iter().flat_map(|(_, places)| places.iter().copied()).collect();
        for &place in &places {
            if !self.metrics.contains_key(&place) {
                let curves = self.curves_of(place);
                self.metrics.insert(place, curves);
            }
        }
        let curves = places.iter().flat_map(|place| &self.metrics[place]);
        let mut metrics = distinct(curves.map(|(name, _)| name.clone()));
        metrics.sort_by_key(|name| !figure.ends_with(name.as_str()));
        let charts = self.charts_of(&groups, &metrics);
        let first = metrics.first().map(String::as_str).unwrap_or_default();
        let (main, others): (Vec<&Chart>, Vec<&Chart>) =
            charts.iter().partition(|chart| chart.title.ends_with(first));
        main.into_iter().for_each(|chart| self.chart(html, chart));
        if all > groups.len() {
            let all = units::count(all as u64);
            let words = format!("The best {} of {all} curves are drawn.", groups.len());
            html.prose("note", &words);
        }
        if is_thinned {
            let words =
                format!("Of each setting {most} runs at most are drawn, evenly from its best to its worst.");
            html.prose("note", &words);
        }
        if !others.is_empty() {
            let names: Vec<&str> = others.iter().map(|chart| chart.title.as_str()).collect();
            table::folded(html, &format!("More: {}", names.join(", ")), true, |html| {
                others.into_iter().for_each(|chart| self.chart(html, chart));
            });
        }
    }

    /// For a single run, one chart per metric with both splits; for several runs, one chart per split,
    /// validation first.
    fn charts_of(&self, groups: &[Group], metrics: &[String]) -> Vec<Chart> {
        let series = |places: &[usize], metric: &str, split: usize| -> Vec<&Series> {
            let of_places = places.iter().flat_map(|place| &self.metrics[place]);
            let splits = of_places.filter(|(name, _)| name == metric).map(|(_, splits)| &splits[split]);
            splits.filter(|series| !series.is_empty()).collect()
        };
        let mut wanted: Vec<(String, Lines<'_>)> = Vec::new();
        for metric in metrics {
            if let [(_, places)] = groups
                && places.len() == 1
            {
                let [train, means, validation] = [0, MEANS, 1].map(|split| series(places, metric, split));
                let mut lines = vec![(SPLITS[1].to_owned(), validation)];
                if let ([train], [means]) = (&train[..], &means[..])
                    && train.hides(means)
                {
                    let lines_of = |name: &str, series| (name.to_owned(), vec![series]);
                    lines.extend([lines_of(SPLITS[0], *means), lines_of(EACH_STEP, *train)]);
                } else {
                    lines.push((SPLITS[0].to_owned(), train));
                }
                wanted.push((metric.clone(), lines));
                continue;
            }
            for split in [1, 0] {
                let lines = groups.iter().map(|(name, places)| (name.clone(), series(places, metric, split)));
                wanted.push((format!("{} {metric}", SPLITS[split]), lines.collect()));
            }
        }
        wanted.iter_mut().for_each(|(_, lines)| lines.retain(|(_, runs)| !runs.is_empty()));
        wanted.retain(|(_, lines)| !lines.is_empty());
        let values =
            |lines: &Vec<(String, Vec<&Series>)>| -> usize { lines.len() + 2 * lines.len().min(COLORS) };
        let curves: usize = wanted.iter().map(|(_, lines)| values(lines)).sum();
        let most = (MOST_VALUES / curves.max(1)).clamp(POINTS[0], POINTS[1]);
        let chart = |(title, lines): (String, Lines<'_>)| {
            let is_pale = lines.last().is_some_and(|(name, _)| name == EACH_STEP);
            let chart = Chart::new(title, "steps", &lines, most);
            if is_pale { chart.with_pale_line() } else { chart }
        };
        wanted.into_iter().map(chart).collect()
    }

    fn ranking(&self, html: &mut Html, ranking: &Ranking) {
        self.intervals(html, ranking);
        let all: Vec<&Candidate> = ranking.settings.iter().collect();
        let columns = self.comparison.columns_of(ranking, &all);
        table::table(html, &format!("Settings by {}, the best first", ranking.metric.name), &columns);
        let below = notes(self.comparison, ranking)
            + &self.comparison.uneven(ranking)
            + &self.comparison.left_out(ranking);
        below.lines().for_each(|line| html.prose("note", line.trim()));
    }

    /// The values of the best settings with their intervals, if they have any.
    fn intervals(&self, html: &mut Html, ranking: &Ranking) {
        let shown: Vec<&Candidate> = ranking.settings.iter().take(MOST_INTERVALS).collect();
        let ends = shown.iter().filter_map(|setting| setting.interval).flatten();
        let (low, high) = ends
            .chain(shown.iter().map(|setting| setting.value))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), end| (low.min(end), high.max(end)));
        if shown.iter().all(|setting| setting.interval.is_none()) || low >= high {
            return;
        }
        let at = |value: f64| format!("{:.2}%", 2.0 + 96.0 * (value - low) / (high - low));
        let values: Vec<Valued> = shown.iter().map(|setting| (setting.value, setting.interval)).collect();
        html.with("div", &[("class", &"bars")], |html| {
            for (setting, words) in shown.into_iter().zip(ranking.metric.in_column(&values)) {
                html.words("span", &[], &ranking.name(self.comparison, setting));
                let size: Attributes<'_> =
                    &[("width", &"100%"), ("height", &18), ("role", &"img"), ("aria-label", &words)];
                html.with("svg", size, |html| {
                    if let Some([low, high]) = setting.interval {
                        let (from, to) = (at(low), at(high));
                        html.empty(
                            "line",
                            &[("class", &"c0 main"), ("x1", &from), ("x2", &to), ("y1", &9), ("y2", &9)],
                        );
                    }
                    html.empty(
                        "circle",
                        &[("class", &"f0"), ("cx", &at(setting.value)), ("cy", &9), ("r", &4.5)],
                    );
                });
                html.words("span", &[("class", &"number")], &words);
            }
            html.with("span", &[("class", &"ends")], |html| {
                [low, high].iter().for_each(|&end| html.words("span", &[], &ranking.metric.word(end)));
            });
        });
    }
}
