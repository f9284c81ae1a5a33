//! The table of a ranking: its settings, best first, with what tells them apart and figures beside the metric.

use super::{SettingWords, notes::is_of_last_epoch, p_value};
use crate::{
    host::escape_line,
    report::{
        ReportError,
        comparison::Comparison,
        grid::{self, Column},
        grouping::{distinct, grouped},
        key::short,
        metric::Metric,
        order::{BESIDE, Question},
        ranking::{Candidate, Ranking},
        run::Run,
        statistics::Estimate,
    },
    units,
};

/// Maximum keys in a list.
const MOST_KEYS: usize = 8;

impl Comparison {
    pub(super) fn ranked_table(
        &self,
        ranking: &Ranking,
        shown: &[&Candidate],
        question: &Question,
        width: u16,
    ) -> Result<String, ReportError> {
        if shown.is_empty() {
            return Ok(String::new());
        }
        let (mut columns, count, constant) = self.screen_columns(ranking, shown, question);
        let needed = columns.len();
        let is_doubtful = self.warning().is_some();
        let tasks = self.tasks.by_run(self.runs.len());
        let tasks = distinct(shown.iter().flat_map(|setting| &setting.places).map(|&place| tasks[place]));
        let is_of_one_unit = |name: &str| !name.ends_with(".loss") || tasks.len() < 2;
        for (name, title) in BESIDE.iter().filter(|(name, _)| *name != ranking.metric.full_name()) {
            let known = Metric::find(name, &self.runs)?;
            let is_told = |metric: &Metric| metric.is_learned || !is_doubtful;
            let Some(metric) = known.filter(|metric| is_told(metric) && is_of_one_unit(name)) else {
                continue;
            };
            let cell = |setting: &&Candidate| self.beside(&metric, setting);
            // Beside means, a median is called so.
            let is_median = metric.is_learned && shown.iter().any(|setting| setting.samples.len() > 1);
            let mut runs = shown.iter().flat_map(|own| &own.places).map(|&place| &self.runs[place]);
            let last = if is_of_last_epoch(&metric, &mut runs) { "last " } else { "" };
            let median = if is_median { "median " } else { "" };
            let title = format!("{median}{last}{title}");
            columns.push(Column::of_numbers(&title, shown.iter().map(cell)));
        }
        while columns.len() > needed && grid::width(&columns) > usize::from(width) {
            columns.pop();
        }
        let mut more = more(shown, ranking.settings.len(), "setting");
        more.extend(self.worst_first(question).filter(|_| shown.len() < ranking.settings.len()));
        Ok(format!("\n{}{}{more}", grid::table(&columns, count, width), in_all_rows(&constant)))
    }

    /// The median of a figure beside the metric. Runs that learn the same on other devices are a setting, but their times have no mean
    /// or median of any device: it goes from the lowest to the highest of theirs.
    fn beside(&self, metric: &Metric, setting: &Candidate) -> String {
        let values = setting.places.iter().filter_map(|&place| {
            let run = &self.runs[place];
            Some(((!metric.is_learned).then(|| self.kinds_of_devices(run)), metric.value(run)?))
        });
        let by_devices = grouped(values);
        let medians = by_devices.iter().filter_map(|(_, values)| Some(Estimate::from_values(values)?.median));
        let [low, high] = medians
            .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], own| [low.min(own), high.max(own)]);
        let word = |value| metric.word(value);
        match by_devices.len() {
            0 => String::new(),
            1 => word(low),
            _ => format!("{} to {}", word(low), word(high)),
        }
    }

    /// What tells the devices of a run from others whose times differ.
    fn kinds_of_devices<'a>(&self, run: &'a Run) -> (Vec<&'a str>, String) {
        let kinds = run.device_kinds();
        let threads = if kinds == ["cpu"] { self.devices_of(run) } else { String::new() };
        (kinds, threads)
    }

    /// The devices of each setting, of runs on others one of each kind and count; `None` where all ran on the same, and no setting
    /// asks for others.
    fn devices_column(&self, ranking: &Ranking, shown: &[&Candidate]) -> Option<Column> {
        let of = |setting: &&Candidate| {
            let runs = setting.places.iter().map(|&place| &self.runs[place]);
            grouped(runs.map(|run| (self.kinds_of_devices(run), self.devices_of(run))))
        };
        let all: Vec<_> = shown.iter().map(of).collect();
        let kinds = distinct(all.iter().flatten().map(|(kinds, _)| kinds));
        let asks = ranking.keys.iter().any(|key| key == "devices.num_gpus" || key == "devices.use");
        let cell = |of: &Vec<(_, Vec<String>)>| {
            of.iter().map(|(_, devices)| devices[0].as_str()).collect::<Vec<_>>().join(", ")
        };
        (kinds.len() > 1 || asks).then(|| Column::of_words("devices", all.iter().map(cell)))
    }

    /// The columns of the settings that a question shows, how many of them tell the settings, and the keys that are equal in all.
    pub(in crate::report) fn screen_columns(
        &self,
        ranking: &Ranking,
        shown: &[&Candidate],
        question: &Question,
    ) -> (Vec<Column>, usize, Vec<Column>) {
        let mut columns = self.columns_of(ranking, shown);
        let first = if self.inputs.is_empty() { 1 } else { 2 };
        let keys: Vec<Column> = columns.splice(first..first + ranking.keys.len(), []).collect();
        // What was asked for is shown, and so is what tells a single setting.
        let is_left_out = |column: &Column| {
            let is_constant = column.cells.windows(2).all(|pair| pair[0] == pair[1]);
            is_constant && shown.len() > 1 && question.by.is_empty()
        };
        let (constant, keys): (Vec<Column>, Vec<Column>) = keys.into_iter().partition(is_left_out);
        let count = first + keys.len();
        columns.splice(first..first, keys);
        (columns, count, constant)
    }

    /// Columns: number, keys, devices where they differ, count, value with interval, difference from the best.
    pub(in crate::report) fn columns_of(&self, ranking: &Ranking, shown: &[&Candidate]) -> Vec<Column> {
        let numbers = |title: &str, cell: &dyn Fn(&Candidate) -> String| {
            Column::of_numbers(title, shown.iter().map(|setting| cell(setting)))
        };
        let exact = |figure: fn(&Candidate) -> Option<f64>| shown.iter().map(move |setting| figure(setting));
        let mut columns = vec![numbers("#", &|s| self.number(s.places[0]).to_string())];
        if !self.inputs.is_empty() {
            let letters = shown.iter().map(|setting| self.letters(&setting.places));
            columns.push(Column::of_words("input", letters));
        }
        for (key, title) in short(&ranking.keys).into_iter().enumerate() {
            columns.push(numbers(title, &|setting| setting.values[key].clone()));
        }
        columns.extend(self.devices_column(ranking, shown));
        let metric = &ranking.metric;
        if shown.iter().any(|setting| setting.samples.len() > 1) {
            columns.push(numbers("n", &|setting| setting.samples.len().to_string()));
        }
        let words = SettingWords::new(ranking, shown);
        let values = Column::of_numbers(&metric.name, words.values);
        columns.push(values.with_exact(exact(|setting| Some(setting.value))));
        if ranking.settings.len() > 1 {
            let first = match metric.has_direction() {
                _ if ranking.are_all_equal() => "equal",
                true => "best",
                false => "lowest",
            };
            let cells = words.differences.into_iter().map(|own| own.unwrap_or_else(|| first.to_owned()));
            let exact = exact(|setting| Some(setting.difference.map_or(0.0, |difference| difference.mean)));
            columns.push(Column::of_numbers("vs best", cells).with_exact(exact));
        }
        if ranking.pairs > 0 {
            let words = numbers("p-value", &|setting| {
                setting.p.filter(|_| !ranking.equals_best(setting)).map(p_value).unwrap_or_default()
            });
            columns.push(words.with_exact(exact(|setting| setting.p)));
        }
        columns
    }
}

/// The keys whose columns are left out, since all rows have the same value.
fn in_all_rows(constant: &[Column]) -> String {
    // A key that applies to no row says nothing.
    let told = constant.iter().filter(|column| !["", "-"].contains(&column.cells[0].as_str()));
    let mut words: Vec<String> =
        told.map(|column| format!("{} {}", column.title, escape_line(&column.cells[0]))).collect();
    let more = units::and_more(words.len().saturating_sub(MOST_KEYS));
    words.truncate(MOST_KEYS);
    if words.is_empty() { String::new() } else { format!("  in all rows: {}{more}\n", words.join(", ")) }
}

/// A line about those of `all` that are not shown.
pub(in crate::report) fn more<T>(shown: &[T], all: usize, what: &str) -> String {
    match all - shown.len() {
        0 => String::new(),
        more => {
            let more = units::counted(more as u64, &format!("more {what}"));
            format!("  {more}: `--top {all}` shows all\n")
        }
    }
}
