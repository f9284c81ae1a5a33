//! What a verdict leaves open, however narrow its intervals are.

use super::{
    ReportError,
    comparison::Comparison,
    dependence::Dependence,
    grouping::distinct,
    metric::Metric,
    order::Question,
    ranking::{Candidate, Ranking},
    run::Run,
};
use crate::units;

/// What makes settings validate on the same rows.
pub(super) const SAME_ROWS: &str =
    "the same seeds, and the same `data.split.seed` or none, give the same rows";

/// Maximum tasks of other validation rows whose settings are named.
const MOST_TASKS: usize = 4;

/// What settings of different validation rows are.
pub(super) const OTHER_ROWS: &str = "tasks, whose metrics are not comparable: the validation rows differ";

/// Columns of what the rows that trained a model say of it.
const FIT: [&str; 3] = ["epoch_train_loss", "final_train_loss", "final_train_accuracy"];

impl Comparison {
    /// Sentences on the verdicts of a question, each once.
    ///
    /// # Errors
    /// The question names a column that no run has, or no run can be ranked.
    pub fn caveats(&self, question: &Question) -> Result<Vec<String>, ReportError> {
        let judged = self.judged(question)?;
        let sorted =
            judged.iter().map(|(metric, places)| Ranking::sorted(self, places, metric, &question.by));
        let rankings = sorted.collect::<Result<Vec<_>, ReportError>>()?;
        Ok(distinct(rankings.iter().flat_map(|ranking| self.caveats_of(ranking))))
    }

    /// Sentences on the verdict of a ranking.
    pub(super) fn caveats_of(&self, ranking: &Ranking) -> Vec<String> {
        let Ranking { metric, settings, .. } = ranking;
        match &settings[..] {
            [] => return Vec::new(),
            [alone] if alone.samples.len() < 2 => return Vec::new(),
            _ => {}
        }
        let own = caveats(metric, settings.iter().map(|setting| (self, setting)));
        own.into_iter().chain(self.rows_apart(settings)).chain(self.test_rows_apart(settings)).collect()
    }

    /// That runs, which are compared, keep other rows for the test.
    fn test_rows_apart(&self, settings: &[Candidate]) -> Option<String> {
        let runs = settings.iter().flat_map(|setting| setting.places.iter().map(|&place| &self.runs[place]));
        let seeds = runs.filter(|run| run.has_test_rows()).map(|run| run.axis("data.split.seed"));
        (distinct(seeds).len() > 1).then(|| {
            "the test rows differ (`data.split.seed`): those of one run trained others, and test nothing that is chosen here".to_owned()
        })
    }

    /// `2 tasks, whose metrics are not comparable: the validation rows differ (#0, 1; #2)`; `None` if all settings of a ranking are
    /// judged by the same rows.
    fn rows_apart(&self, settings: &[Candidate]) -> Option<String> {
        let mut tasks: Vec<Vec<&Candidate>> = Vec::new();
        let mut others = 0;
        for setting in settings {
            match tasks.iter().position(|task| !task[0].is_of_other_rows(setting)) {
                Some(task) => tasks[task].push(setting),
                None if tasks.len() == MOST_TASKS => others += 1,
                None => tasks.push(vec![setting]),
            }
        }
        if tasks.len() < 2 {
            return None;
        }
        let numbers = |task: &Vec<&Candidate>| {
            self.numbers(&task.iter().map(|setting| setting.places[0]).collect::<Vec<_>>())
        };
        let named = tasks.iter().map(numbers).collect::<Vec<_>>().join("; ");
        let (count, others) = match others {
            0 => (tasks.len().to_string(), String::new()),
            more => (
                format!("{} or more", tasks.len() + 1),
                format!("; {}", units::counted(more, "more setting")),
            ),
        };
        Some(format!("{count} {OTHER_ROWS} ({named}{others}): {SAME_ROWS}"))
    }
}

/// Sentences on what a metric and the intervals of settings do not say.
pub(super) fn caveats<'a>(
    metric: &Metric,
    settings: impl Iterator<Item = (&'a Comparison, &'a Candidate)> + Clone,
) -> Vec<String> {
    if metric.is_fit() {
        let mut runs = settings.flat_map(|(of, setting)| setting.places.iter().map(|&place| &of.runs[place]));
        let is_validated =
            runs.any(|run| run.figure("final_validation_loss").is_some_and(|own| !own.is_empty()));
        let way_out = if is_validated { "" } else { " (`data.split.validation=0.2` sets rows aside)" };
        let name = &metric.name;
        return vec![format!("{name} is fit to the rows that train, and no prediction of others{way_out}")];
    }
    let is_of_same_rows =
        |(_, setting): &(&Comparison, &Candidate)| setting.dependence == Dependence::SameRows;
    let same = settings.filter(is_of_same_rows).find(|(_, setting)| setting.samples.len() > 1);
    let run = same.map(|(of, setting)| &of.runs[setting.places[0]]);
    run.map(same_rows).into_iter().collect()
}

/// That the seeds of a setting, of which this is a run, validate on the same rows.
fn same_rows(run: &Run) -> String {
    let has_folds = run.axis("data.folds").is_some();
    if run.axis("data.split.shuffle") == Some("false") {
        let each = if has_folds { " in each fold" } else { "" };
        return format!(
            "seeds have the same rows{each}: intervals and p are of what seeds draw, not of other times"
        );
    }
    let way_out = match (run.is_split(), has_folds) {
        (false, _) => "",
        // `data.split.seed` would draw other test rows, too.
        (true, true) if run.has_test_rows() => "",
        (true, false) if run.has_test_rows() => " (`data.folds` takes all in turn)",
        // Each seed has folds of its own.
        (true, true) if run.axis("data.split.seed").is_none() => "",
        (true, true) => " (`data.split.seed` divides them otherwise)",
        (true, false) => " (`data.split.seed=0..5` draws others, `data.folds` takes all in turn)",
    };
    format!(
        "seeds validate on the same rows: intervals and p are of what seeds draw; other rows may rank otherwise{way_out}"
    )
}

impl Run {
    /// Whether it keeps rows for a test, and a seed draws them.
    fn has_test_rows(&self) -> bool {
        let is_drawn = self.axis("data.split.shuffle") != Some("false");
        is_drawn
            && self
                .axis("data.split.test")
                .and_then(|test| test.parse().ok())
                .is_some_and(|test: f64| test > 0.0)
    }
}

impl Metric {
    /// Whether it says how well a model fits the rows that trained it.
    pub(super) fn is_fit(&self) -> bool {
        FIT.contains(&&*self.column())
    }
}
