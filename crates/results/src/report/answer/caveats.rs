//! What a verdict leaves open, however narrow its intervals are.

use crate::{
    report::{
        ReportError,
        comparison::Comparison,
        grouping::distinct,
        metric::Metric,
        order::Question,
        ranking::{Candidate, Ranking},
        run::Run,
        statistics::Dependence,
    },
    units,
};

/// What makes settings validate on the same rows.
pub(in crate::report) const SAME_ROWS: &str =
    "the same seeds, and the same `data.split.seed` or none, give the same rows";

/// What settings of different validation rows are.
pub(in crate::report) const OTHER_ROWS: &str =
    "tasks, whose metrics are not comparable: the validation rows differ";

/// Why settings whose runs lack a record have no interval.
const UNKNOWN_ROWS: &str =
    "runs do not record which rows validate (environment.toml): no interval or p-value is known to hold";

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
    pub(in crate::report) fn caveats_of(&self, ranking: &Ranking) -> Vec<String> {
        let Ranking { metric, settings, .. } = ranking;
        match &settings[..] {
            [] => return Vec::new(),
            [alone] if alone.samples.len() < 2 => return Vec::new(),
            _ => {}
        }
        let own = caveats(metric, settings.iter().map(|setting| (self, setting)));
        let name = &metric.name;
        let undirected = (settings.len() > 1 && !metric.has_direction())
            .then(|| format!("no value of {name} is known to be better than others: the lowest is first"));
        undirected
            .into_iter()
            .chain(own)
            .chain(self.rows_apart(ranking))
            .chain(self.test_rows_apart(settings))
            .collect()
    }

    /// That runs, which are compared, keep other rows for the test.
    fn test_rows_apart(&self, settings: &[Candidate]) -> Option<String> {
        let runs = settings.iter().flat_map(|setting| setting.places.iter().map(|&place| &self.runs[place]));
        let seeds =
            runs.filter(|run| run.has_test_rows()).map(|run| run.axis("data.split.seed").unwrap_or("0"));
        (distinct(seeds).len() > 1).then(|| {
            "the test rows differ (`data.split.seed`): those of one run trained others, and test nothing that is chosen here".to_owned()
        })
    }

    /// `1 setting is judged by other validation rows than the best, and not comparable with it (#2)`; `None` if there is none.
    fn rows_apart(&self, ranking: &Ranking) -> Option<String> {
        let others: Vec<usize> = ranking.of_other_rows().map(|setting| setting.places[0]).collect();
        let is = if others.len() == 1 { "is" } else { "are" };
        let settings = units::counted(others.len() as u64, "setting");
        (!others.is_empty()).then(|| {
            format!(
                "{settings} {is} judged by other validation rows than the best, and not comparable with it ({}): {SAME_ROWS}",
                self.numbers(&others)
            )
        })
    }
}

/// Sentences on what a metric and the intervals of settings do not say.
pub(in crate::report) fn caveats<'a>(
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
    let several = || settings.clone().filter(|(_, setting)| setting.samples.len() > 1);
    let same = several().find(|(_, setting)| setting.dependence == Dependence::SameRows);
    let same = same.map(|(of, setting)| same_rows(&of.runs[setting.places[0]]));
    let is_unknown = several().any(|(_, setting)| setting.lacks_rows());
    same.into_iter().chain(is_unknown.then(|| UNKNOWN_ROWS.to_owned())).collect()
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
        // The seeds are those of weights or of the order of rows.
        (true, true) if run.axis("data.split.seed").is_none() => " (`seed=0..5` divides them otherwise)",
        (true, true) => " (`data.split.seed=0..5` divides them otherwise)",
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
    pub(in crate::report) fn is_fit(&self) -> bool {
        FIT.contains(&&*self.column())
    }
}
