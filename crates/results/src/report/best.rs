//! The best setting of a sweep, and the best value of a run's monitored metric.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{
    ReportError,
    answer::SettingWords,
    comparison::Comparison,
    configurations::{FINISHED, STOPPED},
    find::{Found, find_one},
    grid::Column,
    grouping::{distinct, grouped},
    metric::Metric,
    order::TOP,
    ranking::{Candidate, Ranking},
    run::{DAMAGED, DELETED, FOLD, PLANNED, RUNNING, Run, UNFINISHED},
    sweep,
};
use crate::{host::escape_line, record::command_line, units};

/// The best setting of a sweep's finished trials: the one with the best mean over its seeds, as `compare` ranks them.
pub struct BestSetting {
    /// Its best trial.
    pub trial: Option<usize>,
    /// The folder of that trial.
    pub folder: PathBuf,
    /// The folders of all its trials that are ranked, of other seeds and folds, best first.
    pub ranked: Vec<PathBuf>,
    /// The same; of folds in the order of rows those of the last, which trains on most rows.
    pub folders: Vec<PathBuf>,
    /// The full name of the metric.
    pub metric: String,
    /// The mean of the metric.
    pub value: f64,
    /// Over how many seeds.
    pub count: usize,
    /// How many trials are damaged or deleted.
    pub lost: usize,
    /// How many trials failed or diverged.
    pub failed: usize,
    /// How many trials have not ended, of all.
    pub open: [usize; 2],
    /// `#3 lr 0.03, validation loss 0.0615 [0.0583, 0.0640], n 5`.
    pub words: String,
    /// What its ranking leaves open, as `compare` says it.
    pub caveats: Vec<String>,
}

impl BestSetting {
    /// Reads the sweep in `folder`. `None` if no trial finished; also if trials have no order, since they are of different tasks or
    /// are judged by different metrics.
    pub fn of_sweep(folder: &Path) -> Result<Option<Self>, ReportError> {
        Ok(Self::new(&Comparison::from_runs(sweep::read(folder, &mut None)?)))
    }

    /// The best setting of all runs and sweeps that a path names; `None` also if they have no order.
    pub fn of_path(path: &str) -> Option<Self> {
        Self::new(&Comparison::read(&[path.to_owned()], None).ok()?)
    }

    /// Why [`BestSetting::of_path`] finds none, and the command that shows the runs.
    pub fn why_none(path: &str) -> Option<String> {
        let comparison = Comparison::read(&[path.to_owned()], None).ok()?;
        let mut command = vec!["runner", "compare", path];
        if comparison.runs.iter().all(|run| run.kind() != "train") {
            return Some(format!("they train nothing; `{}` shows their times", command_line(command)));
        }
        command.extend(comparison.shared_metric().into_iter().flat_map(|name| ["--metric", name]));
        Some(format!("{}; `{}` shows them", comparison.why_none_is_best(), command_line(command)))
    }

    /// As a JSON object.
    pub fn json(&self) -> Value {
        let Self { trial, folder, metric, value, count, .. } = self;
        json!({ "trial": trial, "folder": folder.display().to_string(), "metric": metric, "value": value, "n": count })
    }

    pub(super) fn new(comparison: &Comparison) -> Option<Self> {
        let ranking = comparison.only_ranking().filter(|ranking| ranking.status == FINISHED)?;
        let best = ranking.settings.first()?;
        let (metric, run) = (&ranking.metric, &comparison.runs[best.places[0]]);
        let count_of =
            |all: &[&str]| comparison.runs.iter().filter(|run| all.contains(&&*run.status)).count();
        let words = match (best.samples.len(), comparison.folds(best), self::best(run)) {
            (1, 0 | 1, words) if !words.is_empty() => words,
            (1, 0 | 1, _) => format!("{} {}", metric.name, metric.word(best.value)),
            // One seed over several folds is one sample: their mean.
            (1, folds, _) => format!("{} {} over {folds} folds", metric.name, metric.word(best.value)),
            _ => {
                // As the table of `compare` has it.
                let shown: Vec<&Candidate> = ranking.settings.iter().take(TOP).collect();
                let value = SettingWords::new(&ranking, &shown).value(best);
                format!("{} {value}{}", metric.name, best.counted())
            }
        };
        let places = best.places.iter().map(|&place| &comparison.runs[place]);
        let ranked = places.clone().map(|run| PathBuf::from(&run.path)).collect();
        let last = places.filter(|own| own.fold_in_order() == run.fold_in_order());
        Some(Self {
            trial: run.trial,
            folder: PathBuf::from(&run.path),
            ranked,
            folders: last.map(|run| PathBuf::from(&run.path)).collect(),
            metric: metric.full_name().to_owned(),
            value: best.value,
            count: best.samples.len(),
            lost: count_of(&[DAMAGED, DELETED]),
            failed: count_of(&["failed", "diverged"]),
            open: [
                count_of(&[PLANNED, UNFINISHED, RUNNING, "interrupted", "waiting", "skipped"]),
                comparison.runs.len(),
            ],
            words: format!("{}, {words}", ranking.name(comparison, best)),
            caveats: comparison.caveats_of(&ranking),
        })
    }
}

/// The folder of the only run of a path.
///
/// # Errors
/// There is none, there are several, or it is a sweep; the hint names its best trial.
pub fn find_run(path: &str) -> Result<PathBuf, ReportError> {
    match find_one(path)? {
        Found::Run(folder) => Ok(folder),
        Found::Sweep(folder) => {
            let best = BestSetting::of_sweep(&folder).ok().flatten();
            let best = best.map(|best| format!(", such as `{}`, the best", best.folder.display()));
            let hint = format!(
                "name the folder of one trial{}; `runner compare A B` holds two sweeps against each other",
                best.unwrap_or_default()
            );
            Err(ReportError::Sweep { path: folder.display().to_string(), hint })
        }
    }
}

/// A run, or the best trial of a sweep.
pub struct BestRun {
    pub folder: PathBuf,
    /// The words of its setting, if it is a trial of a sweep.
    pub setting: Option<String>,
    /// As of [`BestSetting`]; a single run has its own folder here.
    pub ranked: Vec<PathBuf>,
    pub folders: Vec<PathBuf>,
}

/// Whether a run had a best validation.
pub fn has_best(folder: &Path) -> bool {
    Run::read_or_report(folder, &mut None).figure("best_value").is_some()
}

/// The only run of a path, or the best trial of the only sweep.
///
/// # Errors
/// There is none, there are several, or no trial of the sweep is the best.
pub fn find_best_run(path: &str) -> Result<BestRun, ReportError> {
    match find_one(path)? {
        Found::Run(folder) => {
            let [ranked, folders] = [(); 2].map(|()| vec![folder.clone()]);
            Ok(BestRun { folder, setting: None, ranked, folders })
        }
        Found::Sweep(folder) => {
            let mut fault = None;
            let comparison = Comparison::from_runs(sweep::read(&folder, &mut fault)?);
            let Some(best) = BestSetting::new(&comparison) else {
                let hint = format!("name the folder of one trial: {}", comparison.why_none_is_best());
                return Err(ReportError::Sweep { path: folder.display().to_string(), hint });
            };
            let counted = |what: &str, count: usize| match count {
                0 => String::new(),
                count => format!("; {what}: {}", units::counted(count as u64, "trial")),
            };
            let why = fault.map(|fault| format!(" ({fault})")).unwrap_or_default();
            let lost = counted("damaged or deleted", best.lost) + &why;
            let failed = counted("failed or diverged", best.failed);
            let open = match best.open {
                [0, _] => String::new(),
                [open, all] => {
                    format!("; not finished: {open} of {}", units::counted(all as u64, "trial"))
                }
            };
            let caveats: String = best.caveats.iter().map(|words| format!("; {words}")).collect();
            let setting = Some(format!("{}{lost}{failed}{open}{caveats}", best.words));
            let BestSetting { folder, ranked, folders, .. } = best;
            Ok(BestRun { folder, setting, ranked, folders })
        }
    }
}

/// The final models of the only sweep that a path names, which nothing ranks, if they differ in seeds alone.
pub fn find_final_models(path: &str) -> Option<BestRun> {
    let Found::Sweep(folder) = find_one(path).ok()? else { return None };
    let comparison = Comparison::from_runs(sweep::read(&folder, &mut None).ok()?);
    let [only] = &comparison.configurations[..] else { return None };
    let runs = || only.places.iter().map(|&place| &comparison.runs[place]);
    let folders: Vec<PathBuf> = runs().map(|run| PathBuf::from(&run.path)).collect();
    let setting = Some("final models, which nothing ranks".to_owned());
    let is_one = runs().all(|run| run.status == FINISHED && run.is_final_model());
    let folder = folders.first().filter(|_| is_one)?.clone();
    Some(BestRun { folder, setting, ranked: folders.clone(), folders })
}

/// Numbers of a run's `summary.csv`, by column.
pub fn run_numbers<const N: usize>(folder: &Path, columns: [&str; N]) -> [Option<f64>; N] {
    let run = Run::read_or_report(folder, &mut None);
    columns.map(|column| run.number(column))
}

impl Comparison {
    /// The ranking of runs that are of one task and judged by one metric, without p-values; `None` if they are not, or none can
    /// be ranked.
    pub(super) fn only_ranking(&self) -> Option<Ranking> {
        let all: Vec<usize> = (0..self.runs.len()).collect();
        let metric = self.ranked_by(None).ok()??;
        let ranking = Ranking::sorted(self, &all, &metric, &[]).ok()?;
        (self.task_difference(Some(&metric)).is_none() && !ranking.settings.is_empty()).then_some(ranking)
    }

    /// The folder of the best setting's model, as `predict` takes it.
    pub(super) fn best_run(&self, ranking: &Ranking) -> String {
        let Some(best) = ranking.settings.first() else { return String::new() };
        let is_in_order = self.runs[best.places[0]].fold_in_order().is_some();
        let luck = match self.folds(best) {
            0 | 1 => "",
            _ if is_in_order => " (its last fold, which trains on most rows)",
            _ => " (its luckiest fold: others did worse)",
        };
        format!("  {}{luck}\n", escape_line(&self.runs[best.places[0]].path))
    }

    /// On how many folds a setting was validated; 0 if its data have none.
    fn folds(&self, setting: &Candidate) -> usize {
        distinct(setting.places.iter().filter_map(|&place| self.runs[place].axis(FOLD))).len()
    }

    /// Why no setting is the best.
    fn why_none_is_best(&self) -> String {
        if !self.runs.iter().any(|run| run.status == FINISHED) {
            let ended = grouped(self.runs.iter().map(|run| (run.status.as_str(), ())));
            let counts = ended.iter().map(|(status, runs)| format!("{} {status}", runs.len()));
            return format!("none of them finished: {}", counts.collect::<Vec<_>>().join(", "));
        }
        if let Some(words) = self.task_difference(None) {
            return words;
        }
        let all: Vec<usize> = (0..self.runs.len()).collect();
        match Metric::declared(&self.runs, &all) {
            judged if judged.len() > 1 => self.in_words(&judged),
            _ if self.runs.iter().any(Run::is_final_model) => {
                "they are final models, which nothing ranks".to_owned()
            }
            _ => "none of them has a value of what it monitors".to_owned(),
        }
    }

    /// Whether the sweep of a setting judges single trials, so that `sweep.repeats` is refused.
    pub(super) fn takes_no_repeats(&self, setting: &Candidate) -> bool {
        let place = setting.places[0];
        let learns = || self.sweep_spec(place).is_some_and(|sweep| sweep.get("sweep.sampler") == Some("tpe"));
        let has_rungs = |folder: &str| Path::new(folder).join("rungs.csv").is_file();
        self.runs[place].sweep.as_deref().is_some_and(has_rungs) || learns()
    }

    /// The command that repeats the best setting, where its sweep takes no repeats. The seed by which it was chosen is not among
    /// its seeds, since that may have been luck; nor does its name put it among the runs of the sweep.
    pub(super) fn repeat_it(&self, ranking: &Ranking) -> String {
        let best = ranking.settings.first().filter(|best| best.samples.len() == 1);
        let Some(best) = best.filter(|best| self.takes_no_repeats(best)) else { return String::new() };
        let run = &self.runs[best.places[0]];
        let seed = run.axis("seed").and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(0);
        let [spec, seeds, name] = [
            format!("{}/spec.toml", run.path),
            format!("seed={}..{}", seed + 1, seed + 6),
            format!("name={}-repeats", run.axis("name").unwrap_or_default()),
        ];
        format!("  repeat it with: {}\n", escape_line(&command_line(["runner", &spec, &seeds, &name])))
    }

    /// `stopped #17 was better at its best epoch: 0.05890`: a trial that, as it turns out, successive halving
    /// stopped too early. Nothing if the best value is a mean: a single lower value may be luck.
    pub(super) fn better_stopped(&self, ranking: &Ranking) -> String {
        let Ranking { metric, settings, status: FINISHED, left_out, .. } = ranking else {
            return String::new();
        };
        let Some(best) = settings.first().filter(|best| best.samples.len() == 1) else {
            return String::new();
        };
        let stopped = left_out.iter().filter(|&&place| self.runs[place].status == STOPPED);
        let values = stopped.filter_map(|&place| Some((place, metric.value(&self.runs[place])?)));
        let better = values.min_by(|a, b| metric.cost(a.1).total_cmp(&metric.cost(b.1)));
        let better = better.filter(|(_, value)| metric.cost(*value) < metric.cost(best.value));
        let Some((place, value)) = better else { return String::new() };
        let is_best = !metric.is_last && metric.full_name() == self.runs[place].monitor();
        let when = if is_best { " at its best epoch" } else { "" };
        let judged = Some(self.runs[place].monitor()).filter(|own| *own != metric.full_name());
        let judged =
            judged.map(|own| format!("; rungs judged by {}", own.replace('.', " "))).unwrap_or_default();
        format!("  stopped {} was better{when}: {}{judged}\n", self.numbered(&[place]), metric.word(value))
    }
}

/// `validation loss 0.1000 in epoch 7`; empty if nothing was validated.
pub(super) fn best(run: &Run) -> String {
    let value = value(run);
    if value.is_empty() { value } else { format!("{} {value}", name(run)) }
}

/// The best value of each run. If all runs monitor the same metric, the title names it, otherwise each cell
/// does.
pub(super) fn column(runs: &[Run]) -> Column {
    let names = distinct(runs.iter().filter(|run| run.figure("best_value").is_some()).map(name));
    let column = match &names[..] {
        [name] => Column::of_numbers(&format!("best {name}"), runs.iter().map(value)),
        _ => Column::of_numbers("best", runs.iter().map(best)),
    };
    column.with_exact(runs.iter().map(|run| run.number("best_value")))
}

fn name(run: &Run) -> String {
    run.monitor().replace('.', " ")
}

fn value(run: &Run) -> String {
    let known = run.number("best_value").zip(place(run));
    known.map(|(value, place)| format!("{} in {place}", in_words(run, value))).unwrap_or_default()
}

/// `epoch 7`; `epoch 7, step 135` of a run that validates within its epochs.
pub(super) fn place(run: &Run) -> Option<String> {
    let number = |column| run.number(column).map(|number| units::count(number as u64));
    let epoch = number("best_epoch")?;
    let step = number("best_step").filter(|_| run.axis("trainer.validate_every_steps").is_some());
    Some(step.map_or_else(|| format!("epoch {epoch}"), |step| format!("epoch {epoch}, step {step}")))
}

fn in_words(run: &Run, value: f64) -> String {
    if run.monitor() == "validation.accuracy" { units::percent(value) } else { units::number(value) }
}
