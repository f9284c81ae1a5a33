//! From a file and overrides to an experiment: every trial read and checked.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{
    Spec,
    diagnostic::{Failure, Sources},
    key, overrides,
    problem::{Place, Problem},
    reader::{self, MAX_PROBLEMS, Reading},
    resolved::hex8,
    sweep::{MAX_TRIALS, Sweep},
    tree::{self, Node, Span, Table, Value},
};

/// A larger file is no spec.
const MAX_BYTES: u64 = 16 << 20;

/// A spec and all its trials; one trial where nothing is swept.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The spec file as it was named.
    pub path: PathBuf,
    /// What is swept, the slowest first; `repeat` comes last where there are repeats. Empty for a single run.
    pub axes: Vec<Axis>,
    /// How often each point of the grid runs.
    pub repeats: u32,
    /// All trials in the order they run: a whole repeat before the next.
    pub trials: Vec<TrialSpec>,
    base: Table,
    sweep: Sweep,
    sources: Sources,
}

/// A key and the values it takes over the trials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The dotted key, or `repeat`.
    pub key: String,
    /// The values as they are shown.
    pub values: Vec<String>,
}

/// One trial of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialSpec {
    /// Its number, from 0, in the order they run.
    pub index: usize,
    /// Its value on each of the experiment's axes: dotted key and value as shown.
    pub axes: Vec<(String, String)>,
    /// Which repeat it belongs to, from 0.
    pub repeat: u32,
    /// What it runs.
    pub spec: Spec,
}

/// Reads a spec file, applies `overrides` and reads every trial.
///
/// # Errors
/// All that is wrong, whether in the file or in an override; problems that several trials share are told once.
pub fn load(path: &Path, overrides: &[String]) -> Result<Experiment, Failure> {
    let text = read_text(path).map_err(|p| Failure::new(vec![*p]))?;
    let folder = match path.parent() {
        Some(parent) => std::path::absolute(parent).unwrap_or_else(|_| parent.to_owned()),
        None => PathBuf::from("."),
    };
    load_text(path, &folder, text, overrides)
}

/// As [`load`], with the file's text at hand; relative paths are taken from `folder`.
pub(super) fn load_text(
    path: &Path,
    folder: &Path,
    text: String,
    overrides: &[String],
) -> Result<Experiment, Failure> {
    let parsed = tree::parse_document(&text, 0);
    let sources = Sources::new(path, text, overrides);
    let mut root = match parsed {
        Ok(root) => root,
        Err(problems) => return Err(Failure::of(problems, sources)),
    };
    let (keys, mut problems) = overrides::apply(&mut root, overrides);
    let sweep = take_sweep(&mut root, folder, &mut problems);
    sweep.check_overrides(&keys, &mut problems);
    let mut loader = Loader { path, folder, base: root, sweep, found: Vec::new() };
    let trials = loader.read_trials(&mut problems);
    if !problems.is_empty() {
        return Err(Failure::of(problems, sources));
    }
    let Loader { base, sweep, .. } = loader;
    Ok(Experiment {
        path: path.to_owned(),
        axes: axes(&sweep),
        repeats: sweep.repeats,
        trials,
        base,
        sweep,
        sources,
    })
}

/// Reads the file, if it is text of a bearable size.
fn read_text(path: &Path) -> Result<String, Box<Problem>> {
    let refuse = |message: String| Box::new(Problem::new(Place::Nowhere, message));
    let name = path.display();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|e| refuse(format!("cannot read `{name}`: {}", io_words(&e))))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(refuse(format!("`{name}` is larger than {} MiB: it is no spec", MAX_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&e.as_bytes()[..at]);
        let line = before.matches('\n').count() as u64 + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() as u64 + 1;
        let place = Place::File { path: path.to_owned(), line: Some(line), column: Some(column), text: None };
        Box::new(Problem::new(place, "not TOML: the file is not UTF-8 text"))
    })
}

fn io_words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// Takes `[sweep]` out of the tree: trials have none.
fn take_sweep(root: &mut Table, folder: &Path, problems: &mut Vec<Problem>) -> Sweep {
    let Some(entry) = root.remove("sweep") else { return Sweep::NONE };
    let table = Table { entries: vec![entry] };
    let mut reading = Reading::new(folder);
    let sweep = reader::read(&node(table), &mut reading, |t| {
        t.section("sweep", "many trials from one spec", |t| Sweep::read(t, problems))
    });
    problems.extend(reading.into_problems());
    sweep
}

fn node(table: Table) -> Node {
    Node { span: Span { source: 0, start: 0, end: 0 }, value: Value::Table(table) }
}

struct Loader<'a> {
    path: &'a Path,
    folder: &'a Path,
    base: Table,
    sweep: Sweep,
    /// What was found in trials: the problem, the first point that has it, how many have it.
    found: Vec<(Problem, usize, usize)>,
}

impl Loader<'_> {
    fn read_trials(&mut self, problems: &mut Vec<Problem>) -> Vec<TrialSpec> {
        let (points, repeats) = (self.sweep.points(), self.sweep.repeats);
        if points.saturating_mul(repeats as usize) > MAX_TRIALS {
            let message =
                format!("the sweep has {points} points and {repeats} repeats, more than {MAX_TRIALS} trials");
            let place =
                self.sweep.axes.first().and_then(|a| a.key.span()).map_or(Place::Nowhere, Span::place);
            problems.push(Problem::new(place, message).hint("run it in parts: fewer values per axis"));
            return Vec::new();
        }
        let name = default_name(self.path);
        let mut specs = Vec::new();
        for point in 0..points {
            match self.read_point(point, &name) {
                Ok(spec) => specs.push(spec),
                Err(found) => found.into_iter().for_each(|p| self.note(p, point)),
            }
            if self.found.len() >= MAX_PROBLEMS {
                break;
            }
        }
        for (mut problem, point, count) in std::mem::take(&mut self.found) {
            if count < points {
                let words = format!("in the trial where {}", shown_pairs(&pairs(&self.sweep, point)));
                problem.related.push((Place::Nowhere, words));
            }
            problems.push(problem);
        }
        if specs.len() < points { Vec::new() } else { expand(&self.sweep, &specs, problems) }
    }

    fn read_point(&self, point: usize, name: &str) -> Result<Spec, Vec<Problem>> {
        let tree = self.sweep.apply(&self.base, point).map_err(|p| vec![*p])?;
        let mut reading = Reading::new(self.folder);
        let root = node(tree);
        let spec = reader::read(&root, &mut reading, |t| Spec::read(t, name));
        let problems = reading.into_problems();
        let Value::Table(tree) = &root.value else { return Ok(spec) };
        if problems.is_empty() {
            Ok(spec)
        } else {
            Err(problems.into_iter().map(|p| locate(p, tree, self.path)).collect())
        }
    }

    fn note(&mut self, problem: Problem, point: usize) {
        match self.found.iter_mut().find(|(p, ..)| *p == problem) {
            Some((_, _, count)) => *count += 1,
            None => self.found.push((problem, point, 1)),
        }
    }
}

/// The trials of every repeat.
fn expand(sweep: &Sweep, specs: &[Spec], problems: &mut Vec<Problem>) -> Vec<TrialSpec> {
    let mut trials = Vec::with_capacity(specs.len() * sweep.repeats as usize);
    for repeat in 0..sweep.repeats {
        for (point, spec) in specs.iter().enumerate() {
            let mut spec = spec.clone();
            if sweep.repeat_seeds {
                spec.seed += u64::from(repeat);
            }
            if spec.seed > super::MAX_SEED {
                problems.push(Problem::new(
                    Place::Nowhere,
                    "`seed` plus `sweep.repeats` is too large for a seed",
                ));
                return Vec::new();
            }
            let mut axes = pairs(sweep, point);
            if sweep.repeats > 1 {
                axes.push(("repeat".to_owned(), repeat.to_string()));
            }
            trials.push(TrialSpec { index: trials.len(), axes, repeat, spec });
        }
    }
    trials
}

fn pairs(sweep: &Sweep, point: usize) -> Vec<(String, String)> {
    let values = sweep.values_at(point);
    sweep.axes.iter().zip(values).map(|(axis, value)| (axis.key.dotted(), value.value.display())).collect()
}

fn shown_pairs(pairs: &[(String, String)]) -> String {
    pairs.iter().map(|(key, value)| format!("`{key}` = `{value}`")).collect::<Vec<_>>().join(", ")
}

fn axes(sweep: &Sweep) -> Vec<Axis> {
    let shown = |nodes: &[Node]| nodes.iter().map(|n| n.value.display()).collect();
    let mut axes: Vec<Axis> =
        sweep.axes.iter().map(|a| Axis { key: a.key.dotted(), values: shown(&a.values) }).collect();
    if sweep.repeats > 1 {
        axes.push(Axis {
            key: "repeat".to_owned(),
            values: (0..sweep.repeats).map(|r| r.to_string()).collect(),
        });
    }
    axes
}

/// Finds the places of dotted keys in the tree; a key of which nothing is written stands for the whole file.
fn locate(mut problem: Problem, tree: &Table, path: &Path) -> Problem {
    let find = |place: Place| match place {
        Place::Key(key) => match key::nearest(tree, &key) {
            Some(span) => span.place(),
            None => Place::File { path: path.to_owned(), line: None, column: None, text: None },
        },
        other => other,
    };
    problem.place = find(problem.place);
    problem.related = problem.related.into_iter().map(|(place, words)| (find(place), words)).collect();
    problem
}

/// The file's stem, as far as it can name a folder.
fn default_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let fit: String = stem.chars().map(|c| if super::fits_name(c) { c } else { '_' }).collect();
    let mut fit = fit.trim_start_matches(['.', '-']).to_owned();
    while fit.len() > super::MAX_NAME_BYTES {
        fit.pop();
    }
    if fit.is_empty() { "experiment".to_owned() } else { fit }
}

impl Experiment {
    /// Whether there is a sweep folder to make: an axis or a repeat.
    pub fn is_sweep(&self) -> bool {
        !self.axes.is_empty()
    }

    /// Problems that later layers found in trials (by index), with their places found in the texts; those that several
    /// trials share are told once.
    pub fn failure(&self, problems: impl IntoIterator<Item = (usize, Problem)>) -> Failure {
        let points = self.sweep.points();
        let mut found: Vec<(Problem, usize)> = Vec::new();
        for (trial, problem) in problems {
            // An index beyond the last trial is taken as some trial: a message matters more than its place.
            let point = trial % points;
            let problem = match self.sweep.apply(&self.base, point) {
                Ok(tree) => locate(problem, &tree, &self.path),
                Err(_) => problem,
            };
            if !found.iter().any(|(p, _)| *p == problem) && found.len() < MAX_PROBLEMS {
                found.push((problem, point));
            }
        }
        let problems = found.into_iter().map(|(mut problem, point)| {
            if points > 1 {
                let words = format!("in the trial where {}", shown_pairs(&pairs(&self.sweep, point)));
                problem.related.push((Place::Nowhere, words));
            }
            problem
        });
        Failure::of(problems.collect(), self.sources.clone())
    }

    /// First 8 hex digits of SHA-256: of the resolved spec, or of those of all trials.
    pub fn hash8(&self) -> String {
        let mut hash = Sha256::new();
        for trial in &self.trials {
            hash.update(trial.spec.to_toml());
        }
        hex8(hash)
    }
}
