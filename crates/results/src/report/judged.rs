//! The metric by which runs are ranked: a named one, or the one that each run monitors.

use super::{
    ReportError,
    comparison::Comparison,
    configurations::FINISHED,
    grouping::distinct,
    metric::{Judged, Metric},
    order::Question,
    ranking::Ranking,
    run::Run,
};

impl Comparison {
    /// The named metric, or the one that all runs are judged by.
    ///
    /// # Errors
    /// No run has the metric, or the runs are judged by different ones.
    pub(super) fn metric(&self, name: Option<&str>) -> Result<Metric, ReportError> {
        if let Some(name) = name {
            return Metric::new(name, &self.runs);
        }
        let places: Vec<usize> = (0..self.runs.len()).collect();
        let mut declared = Metric::declared(&self.runs, &places);
        if declared.len() > 1 {
            let hint = "`--metric` ranks all runs by one";
            return Err(ReportError::query(self.in_words(&declared), Some(hint)));
        }
        declared.pop().map(|(metric, _)| metric).ok_or_else(nothing_learned)
    }

    /// The named metric, or the one that all trainings are judged by, if there is one.
    ///
    /// # Errors
    /// No run has the named metric.
    pub(super) fn ranked_by(&self, name: Option<&str>) -> Result<Option<Metric>, ReportError> {
        if let Some(name) = name {
            return Metric::new(name, &self.runs).map(Some);
        }
        let is_training = |place: &usize| self.runs[*place].kind() == "train";
        let trainings: Vec<usize> = (0..self.runs.len()).filter(is_training).collect();
        let mut declared = Metric::declared(&self.runs, &trainings);
        Ok(declared.pop().filter(|_| declared.is_empty()).map(|(metric, _)| metric))
    }

    /// The sentence on tasks that are ranked apart, and the metric that ranks them in one table, if there is one.
    pub(super) fn tasks_apart(&self, question: &Question) -> Result<Option<String>, ReportError> {
        let ranked_by = self.ranked_by(question.metric.as_deref())?;
        let Some(difference) = self.task_difference(ranked_by.as_ref()) else { return Ok(None) };
        let shared = self.shared_metric().map(|name| format!("; `--metric {name}` ranks all in one table"));
        Ok(Some(difference + &shared.unwrap_or_default()))
    }

    /// A metric in which runs of several tasks can be compared.
    pub(super) fn shared_metric(&self) -> Option<&str> {
        let trainings = || self.runs.iter().filter(|run| run.kind() == "train" && run.status == FINISHED);
        let is_shared = |name: &&str| {
            let full = format!("validation.{name}");
            let metric = Metric::find(&full, &self.runs).ok().flatten();
            trainings().all(|run| run.has_learned(&full))
                && metric.is_some_and(|metric| self.task_difference(Some(&metric)).is_none())
        };
        let names = trainings().next().into_iter().flat_map(Run::logged_names);
        let mut names = names.filter_map(|name| name.strip_prefix("validation.")).chain(["accuracy"]);
        names.find(is_shared)
    }

    /// The metric for a comparison with other runs: the named one, or the one these runs are judged by. A
    /// best value is never compared with a last one.
    pub(super) fn metric_against(&self, base: &Self, name: Option<&str>) -> Result<Metric, ReportError> {
        let own = self.metric(name)?;
        let all: Vec<_> = self.runs.iter().chain(&base.runs).cloned().collect();
        Metric::new(name.unwrap_or(own.full_name()), &all)
    }

    /// A sentence if the runs of `base` are judged by another metric than these, which they are compared by.
    ///
    /// # Errors
    /// The runs of either are judged by different metrics.
    pub(super) fn judged_apart_from(&self, base: &Self) -> Result<Option<String>, ReportError> {
        let [first, second] = [base.metric(None)?.name, self.metric(None)?.name];
        Ok((first != second).then(|| {
            format!(
                "runs are judged by different metrics: {first} (first), {second} (second), by which both are compared; \
                 `--metric` names another"
            )
        }))
    }

    /// A ranking for each task; if its runs monitor different metrics, one for each of these.
    pub(super) fn rankings(&self, question: &Question) -> Result<Vec<Ranking>, ReportError> {
        let ranking = |(metric, places): &Judged| Ranking::new(self, places, metric, &question.by);
        self.judged(question)?.iter().map(ranking).collect()
    }

    /// The runs of each task and metric that are ranked, those of the best setting first. Without p-values, which take long.
    pub(super) fn best_first(&self) -> Vec<Vec<usize>> {
        let judged = self.judged(&Question::default()).unwrap_or_default();
        let rankings =
            judged.iter().filter_map(|(metric, places)| Ranking::sorted(self, places, metric, &[]).ok());
        rankings
            .map(|ranking| ranking.settings.into_iter().flat_map(|setting| setting.places).collect())
            .collect()
    }

    /// What each task is judged by, with its runs.
    pub(super) fn judged(&self, question: &Question) -> Result<Vec<Judged>, ReportError> {
        let ranked_by = self.ranked_by(question.metric.as_deref())?;
        let tasks = self.tasks_of(ranked_by.as_ref()).places(self.runs.len());
        Ok(match ranked_by.filter(|_| question.metric.is_some()) {
            Some(metric) => tasks.into_iter().map(|places| (metric.clone(), places)).collect(),
            None => {
                // The lab's runs learn nothing.
                let is_training = |place: &usize| self.runs[*place].kind() == "train";
                let trainings = |places: Vec<usize>| places.into_iter().filter(is_training).collect();
                let tasks = tasks.into_iter().map(trainings);
                let tasks: Vec<Vec<usize>> = tasks.filter(|places: &Vec<usize>| !places.is_empty()).collect();
                let declared: Vec<_> =
                    tasks.iter().map(|places| Metric::declared(&self.runs, places)).collect();
                let any = declared.iter().flatten().next().ok_or_else(nothing_learned)?.0.clone();
                let of_task = |(declared, places): (Vec<Judged>, Vec<usize>)| match declared.is_empty() {
                    true => vec![(any.clone(), places)],
                    false => declared,
                };
                declared.into_iter().zip(tasks).flat_map(of_task).collect()
            }
        })
    }

    /// A sentence if runs of one task monitor different metrics and the question names none.
    pub(super) fn judged_apart(&self, question: &Question) -> Option<String> {
        let tasks = self.tasks.places(self.runs.len());
        let declared = tasks.iter().map(|places| Metric::declared(&self.runs, places));
        let several = declared.filter(|_| question.metric.is_none()).find(|declared| declared.len() > 1)?;
        Some(format!("{}; `--metric` ranks all by one", self.in_words(&several)))
    }

    /// `runs are judged by different metrics: validation loss (#1, 2), validation accuracy (#3)`.
    pub(super) fn in_words(&self, judged: &[Judged]) -> String {
        let one = |(metric, places): &Judged| format!("{} ({})", metric.name, self.numbers(places));
        let all = distinct(judged.iter().map(one)).join(", ");
        format!("runs are judged by different metrics: {all}")
    }
}

fn nothing_learned() -> ReportError {
    let hint = "`--metric` names another figure, such as `steps_per_s`";
    ReportError::query("no run learned anything that could rank it", Some(hint))
}
