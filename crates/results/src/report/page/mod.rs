//! `runner report`: shows runs and sweeps as one HTML page that needs no network. The answer comes first,
//! then the details.

mod axes;
mod bars;
mod confusion;
mod curves;
mod document;
mod drawn;
mod facts;
mod heat;
mod html;
mod lab;
mod learned;
mod predicted;
mod roofline;
mod scale;
mod scaling;
mod setup;
mod svg;
mod system;
mod table;
mod times;
mod transfers;

use std::collections::HashMap;

use serde_json::Value;

use self::{
    curves::{Chart, label, notes},
    html::Html,
    svg::Svg,
};
use super::{
    ReportError, columns,
    comparison::{AxesByTask, Comparison},
    configurations::Configuration,
    grid::Column,
    grouping::distinct,
    key::short,
    live,
    ranking::Ranking,
    run::REPEAT,
    setting_name::named,
};
use crate::{files::MetricCurves, units};
pub use document::{HEAD, waiting};
pub use facts::{OfModel, RunRows, TestMetric};
pub use predicted::{Pairs, Predicted};
pub use svg::HEAD as SVG;

/// Warnings at the top of the page.
const MOST_WARNINGS: usize = 20;

/// A table with more rows than this is collapsed at first.
const MOST_ROWS: usize = 16;

/// The options of a page.
pub struct PageRequest<'a> {
    /// Paths as for `compare`.
    pub paths: &'a [String],
    /// The metric to rank by; by default what the runs are judged by.
    pub metric: Option<&'a str>,
    /// Only runs that pass this filter.
    pub filter: Option<&'a str>,
    /// The `ETag` if the page is served: it then polls and is renewed while runs go on.
    pub tag: Option<&'a str>,
    /// What a single run's model does, or why that is unknown.
    pub model: Option<&'a Result<OfModel, String>>,
}

/// A page with its drawings and warnings.
pub struct Page {
    /// The page.
    pub html: String,
    /// Its charts as SVG files.
    pub drawings: Vec<Drawing>,
    /// Sentences about what is missing, and why.
    pub warnings: Vec<String>,
}

/// The name of an SVG file, without extension, and its content.
pub type Drawing = (String, String);

/// Builds the page.
pub fn page(request: &PageRequest<'_>) -> Result<Page, ReportError> {
    let comparison = Comparison::read(request.paths, request.filter)?;
    let model = request.model.and_then(|model| model.as_ref().ok());
    let mut content = Content {
        comparison: &comparison,
        rows: model.map(|model| &model.rows),
        tasks: comparison.axes_by_task(comparison.ranked_by(request.metric)?.as_ref()),
        names: HashMap::new(),
        metrics: HashMap::new(),
        sections: Vec::new(),
        charts: Vec::new(),
        drawings: Vec::new(),
        warnings: comparison.unread().map(|reason| format!("left out: {reason}")).collect(),
    };
    let mut headline = content.learned(request.metric)?;
    content.warnings.extend(comparison.cut().map(str::to_owned));
    let learned = content.sections.len();
    if let Some(Err(why)) = request.model {
        content.warnings.push(format!("what the model predicts is not shown: {why}"));
    }
    content.predicted(model.and_then(|model| model.predicted.as_ref()));
    if model.is_some() && comparison.runs.len() == 1 {
        content.importance();
    }
    content.scaling();
    content.times();
    content.roofline();
    if comparison.runs.len() > 1 && request.metric.is_none() && comparison.is_about_times() {
        content.sections.rotate_left(learned);
    }
    content.system();
    if comparison.runs.len() > 1 {
        content.section("runs", "Runs", |content, html| {
            let count = units::counted(comparison.runs.len() as u64, "run");
            table::folded(html, &count, comparison.runs.len() > MOST_ROWS, |html| {
                let (caption, runs) = content.runs();
                table::table(html, caption, &runs);
            });
        });
    }
    content.setup();
    content.inputs();
    let title = distinct(comparison.runs.iter().filter_map(|run| run.axis("name"))).join(", ");
    let (warnings, drawings) = (std::mem::take(&mut content.warnings), std::mem::take(&mut content.drawings));
    warn(&mut headline, &warnings);
    let html = content.document(if title.is_empty() { "runs" } else { &title }, headline, request.tag);
    Ok(Page { html, drawings, warnings })
}

/// Adds what is missing to the top of the page.
fn warn(headline: &mut Html, warnings: &[String]) {
    let more = warnings.len().saturating_sub(MOST_WARNINGS);
    let more = (more > 0).then(|| format!("and {more} more"));
    let shown = warnings.iter().take(MOST_WARNINGS).chain(&more);
    shown.for_each(|words| headline.prose("warning", words));
}

/// A page under construction.
struct Content<'a> {
    comparison: &'a Comparison,
    /// The rows of a single run.
    rows: Option<&'a RunRows>,
    /// What distinguishes the runs of each task, and the task of each run.
    tasks: AxesByTask,
    /// The names of runs whose setting is ranked, with their places: the best setting's best run has 0.
    names: HashMap<usize, (usize, String)>,
    /// The curves of the runs that are drawn.
    metrics: HashMap<usize, Vec<MetricCurves>>,
    sections: Vec<Section>,
    /// Data of the charts that the page's script draws.
    charts: Vec<Value>,
    drawings: Vec<Drawing>,
    /// Sentences about what cannot be shown.
    warnings: Vec<String>,
}

/// A section with a heading.
struct Section {
    id: String,
    title: String,
    body: Html,
}

impl Content<'_> {
    /// Adds a section, unless it is empty.
    fn section(&mut self, id: &str, title: &str, write: impl FnOnce(&mut Self, &mut Html)) {
        let mut body = Html::default();
        write(self, &mut body);
        if !body.is_empty() {
            self.sections.push(Section { id: id.to_owned(), title: title.to_owned(), body });
        }
    }

    /// The curves of a run.
    fn curves_of(&mut self, place: usize) -> Vec<MetricCurves> {
        let Some(path) = self.comparison.runs[place].metrics() else { return Vec::new() };
        live::curves(&path).unwrap_or_else(|e| {
            self.warnings.push(format!("curves of {} are not shown: {e}", self.name(place)));
            Vec::new()
        })
    }

    /// Adds a drawing for a file of its own; numbered, so that names are unique.
    fn keep(&mut self, name: &str, text: String) {
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .collect();
        self.drawings.push((format!("{:02}-{}", self.drawings.len(), name.trim_matches('-')), text));
    }

    /// Adds a chart drawn by the script.
    fn chart(&mut self, html: &mut Html, chart: &Chart) {
        let number = self.charts.len();
        html.with("figure", &[("class", &"chart"), ("data-chart", &number)], |html| {
            html.words("figcaption", &[], &chart.title);
            let label = label(chart);
            html.empty(
                "div",
                &[("class", &"plot"), ("role", &"img"), ("tabindex", &0), ("aria-label", &label)],
            );
            notes(chart).iter().for_each(|words| html.prose("note", words));
        });
        self.charts.push(chart.json());
        if let Some(drawing) = chart.drawing() {
            self.keep(&chart.title, drawing.file(&chart.title));
        }
    }

    /// Adds a chart that is an SVG drawing: its file name, its title, and a description.
    fn figure(&mut self, html: &mut Html, (name, title, label): (&str, &str, &str), drawing: Svg) {
        html.with("figure", &[("class", &"drawn")], |html| {
            html.words("figcaption", &[], title);
            self.keep(name, drawing.file(title));
            drawing.inline(html, label);
        });
    }

    /// `#7 lr 0.03 width 32`: a run's number and what sets it apart.
    fn name(&self, place: usize) -> String {
        if let Some((_, name)) = self.names.get(&place) {
            return name.clone();
        }
        let is_told = |key: &&String| ![REPEAT, "seed", "name"].contains(&key.as_str());
        let run = &self.comparison.runs[place];
        let (tasks, axes) = &self.tasks;
        let keys: Vec<String> =
            axes.get(&tasks[place]).into_iter().flatten().filter(is_told).cloned().collect();
        let values = keys.iter().map(|key| run.axis(key).unwrap_or_default());
        self.comparison.numbered(&[place]) + &named(&keys, values) + &self.threads_of(place)
    }

    /// ` cpu 2 threads` where runs were given different numbers of them.
    fn threads_of(&self, place: usize) -> String {
        let run = &self.comparison.runs[place];
        let devices = self.comparison.devices_of(run);
        if devices == run.devices() { String::new() } else { format!(" {devices}") }
    }

    /// Names runs as a ranking does.
    fn take_names(&mut self, ranking: &Ranking) {
        for setting in &ranking.settings {
            for &place in &setting.places {
                let values = setting.values.iter().map(String::as_str);
                let name = ranking.name_of(self.comparison, &[place], values);
                self.names.insert(place, (self.names.len(), name + &self.threads_of(place)));
            }
        }
    }

    /// A run of each configuration: that by which its setting is named, or of the median time where nothing ranks them. The best
    /// first, unless the runs are about times.
    fn firsts(&self) -> Vec<usize> {
        if self.comparison.runs.len() == 1 {
            return vec![0];
        }
        let configurations = self.comparison.configurations.iter();
        let shown = |own: &Configuration| {
            let best = own.places.iter().copied().min_by_key(|place| self.rank(*place))?;
            let is_ranked = self.names.contains_key(&best);
            Some(if is_ranked { best } else { self.of_median_time(&own.places).unwrap_or(best) })
        };
        let mut first: Vec<usize> = configurations.filter_map(shown).collect();
        if !self.comparison.is_about_times() {
            first.sort_by_key(|place| self.rank(*place));
        }
        first
    }

    /// The run of the median training time, of an even number the faster of the two.
    fn of_median_time(&self, places: &[usize]) -> Option<usize> {
        let time = |&place: &usize| Some((self.comparison.runs[place].number("train_s")?, place));
        let mut times: Vec<(f64, usize)> = places.iter().filter_map(time).collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        times.get(times.len().checked_sub(1)? / 2).map(|(_, place)| *place)
    }

    /// The place of a run among those that are ranked, which come before all others.
    fn rank(&self, place: usize) -> usize {
        self.names.get(&place).map_or(usize::MAX, |(rank, _)| *rank)
    }

    /// A sentence about the first `shown` of [`Content::firsts`].
    fn part_of(&self, shown: usize, all: usize) -> String {
        match self.comparison.is_about_times() {
            true => format!("The first {shown} of {all} settings."),
            false => format!("{shown} of {all} settings: the ranked ones, the best first, then others."),
        }
    }

    /// Adds what each letter in the names of runs stands for, at the top.
    fn inputs(&mut self) {
        let columns = self.comparison.input_columns();
        let count = columns.first().map_or(0, |column| column.cells.len());
        if count > 0 {
            self.section("inputs", "Inputs", |_, html| {
                let all = units::counted(count as u64, "input");
                table::folded(html, &all, count > MOST_ROWS, |html| {
                    table::table(html, "What the letters in the names of runs stand for", &columns);
                });
            });
            self.sections.rotate_right(1);
        }
    }

    /// Figures of every run, formatted for people; the best first, if there are too many to show. And what they are.
    fn runs(&self) -> (&'static str, Vec<Column>) {
        let runs = &self.comparison.runs;
        let mut columns = match runs.len() {
            1 => columns::with_best(self.comparison),
            _ => columns::columns(self.comparison),
        };
        columns.push(Column::of_words("reason", runs.iter().map(|run| run.reason.clone())));
        columns.push(Column::of_words("folder", runs.iter().map(|run| run.path.clone())));
        columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
        let titles: Vec<String> = columns.iter().map(|column| column.title.clone()).collect();
        let titles: Vec<String> = short(&titles).into_iter().map(str::to_owned).collect();
        columns.iter_mut().zip(titles).for_each(|(column, title)| column.title = title);
        if runs.len() <= table::MOST_ROWS {
            return ("Every run with its figures", columns);
        }
        let mut order: Vec<usize> = (0..runs.len()).collect();
        order.sort_by_key(|place| self.rank(*place));
        columns.iter_mut().for_each(|column| column.pick(&order));
        ("Runs with their figures, the best first", columns)
    }
}
