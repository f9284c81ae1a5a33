//! From a file and overrides to an experiment: every trial read and checked.

use std::{collections::BTreeSet, path::Path, sync::OnceLock};

use super::{
    Kind, LabSpec, Launcher, Spec,
    base_file::{Files, OF_FILES},
    diagnostic::{Failure, Sources},
    experiment::{Experiment, Found, TrialSpec, axes},
    folders::Folders,
    key::Key,
    launcher, overrides,
    points::{Points, folder_of, node},
    problem::{Location, Problem},
    reader::{self, Fields, Item, Read, Reading},
    schema,
    spec_text::read_text,
    sweep::{self, Judged, MAX_TRIALS, Sweep},
    swept_keys::at_axis,
    tree::{self, Table, Value},
};
use runner_base::host;

/// An experiment of either family of kinds.
#[derive(Clone, Debug)]
pub enum Loaded {
    /// `kind = "train"`.
    Train(Box<Experiment>),
    /// One of [`Kind::LABS`].
    Lab(Box<Experiment<LabSpec>>),
}

impl Loaded {
    /// Adds options of `sbatch` from the command line to those of the spec: of two that are the same, `sbatch` takes the last.
    ///
    /// # Errors
    /// One is none, or is set by the launcher itself.
    pub fn add_sbatch(&mut self, options: &[String]) -> Result<(), Failure> {
        if let Some(other) = options.iter().find(|own| !launcher::is_option(own)) {
            let message = format!("`--sbatch`: expected {}, found `{other}`", launcher::OPTION);
            return Err(Failure::new(vec![Problem::new(Location::Nowhere, message)]));
        }
        let launcher = match self {
            Self::Train(experiment) => &mut experiment.launcher,
            Self::Lab(experiment) => &mut experiment.launcher,
        };
        launcher.slurm.extra.extend_from_slice(options);
        Ok(())
    }
}

/// Reads a training spec; see [`read`].
///
/// # Errors
/// Those of [`read`], and a spec of another kind.
pub fn load(path: &Path, overrides: &[String]) -> Result<Experiment, Failure> {
    match read(path, overrides)? {
        Loaded::Train(experiment) => Ok(*experiment),
        Loaded::Lab(experiment) => {
            let message = "parity needs `kind = \"train\"`";
            Err(experiment.failure([(0, Problem::at_key("kind", message))]))
        }
    }
}

/// Reads a spec file (`-` is standard input), applies `overrides` and reads every trial.
///
/// # Errors
/// All problems, in the file and in overrides. A problem that several trials share is reported once.
pub fn read(path: &Path, overrides: &[String]) -> Result<Loaded, Failure> {
    read_refit(path, overrides, 0)
}

/// Like [`read`]; `refit` derived the first `derived` overrides, and the user gave the others.
///
/// # Errors
/// Those of [`read`].
pub fn read_refit(path: &Path, overrides: &[String], derived: usize) -> Result<Loaded, Failure> {
    let is_piped = path == Path::new("-");
    let path = if is_piped { Path::new(host::STANDARD_INPUT) } else { path };
    let text = read_text(path, is_piped).map_err(|p| Failure::new(vec![*p]))?;
    load_text(path, &folder_of(path), text, (overrides, derived))
}

/// The keys of a spec file, with those of the files that it extends, as far as these can be read.
pub fn written(path: &Path) -> Option<toml::Table> {
    let mut root = tree::parse_document(&read_text(path, false).ok()?, 0).ok()?;
    let mut files = Files::new(Sources::default(), &folder_of(path));
    match files.extend(root.clone(), &mut vec![path.to_owned()]) {
        Ok(extended) => root = extended,
        Err(_) => OF_FILES.iter().for_each(|key| drop(root.remove(key))),
    }
    Value::Table(root).to_toml().try_into().ok()
}

/// Number of earlier specs with which a spec shares the tables that are equal.
const SHARED_WITH: usize = 16;

/// Maximum number of values in all trials together. Each trial has its own copy, so this bounds time and
/// memory.
const MAX_VALUES: usize = 20_000_000;

/// Like [`read`], for a text that was read already. Its relative paths start at `folder`.
pub(super) fn load_text(
    path: &Path,
    folder: &Path,
    text: String,
    (overrides, derived): (&[String], usize),
) -> Result<Loaded, Failure> {
    let parsed = tree::parse_document(&text, 0);
    if parsed.is_err() && path.extension().is_some_and(|end| end == "csv" || end == "tsv") {
        let message = format!("`{}` is a table, not a spec", path.display());
        let hint = "`runner new csv` writes a spec for one";
        return Err(Failure::new(vec![Problem::new(Location::Nowhere, message).hint(hint)]));
    }
    let sources = Sources::new(path, text, overrides, derived);
    let mut files = Files::new(sources, folder);
    let extended = parsed.and_then(|root| files.extend(root, &mut vec![path.to_owned()]));
    let Files { sources, folders, given, problems: of_files } = files;
    let mut root = match extended {
        Ok(root) => root,
        Err(problems) => return Err(Failure::from_problems(problems, sources)),
    };
    let (mut keys, mut problems) = overrides::apply(&mut root, overrides);
    keys.extend(given);
    problems.extend(of_files);
    let written = root.clone();
    let sweep = take_sweep(&mut root, &folders, &mut problems);
    let launcher = take_launcher(&mut root, &folders, &mut problems);
    sweep.check_overrides(&keys, &root, &mut problems);
    let kind = kind_of(&root);
    let parts = (written, root, sweep, launcher);
    Ok(match kind {
        Kind::Train => Loaded::Train(Box::new(finish(path, folders, parts, kind, problems, sources)?)),
        _ => Loaded::Lab(Box::new(finish(path, folders, parts, kind, problems, sources)?)),
    })
}

/// What the loader needs of a spec, whatever its kind.
pub(super) trait AnySpec: Clone + Judged {
    fn read_as(v: Item<'_>, kind: Kind) -> Self;

    fn name_and_seed(&mut self) -> (&mut String, &mut u64);

    /// The seed that draws its test rows, if a seed draws some.
    fn test_seed(&self) -> Option<u64> {
        None
    }

    /// Keeps what equals a part of `other` only once.
    fn share_with(&mut self, _: &Self) {}
}

impl AnySpec for Spec {
    fn read_as(v: Item<'_>, _: Kind) -> Self {
        Self::read(v)
    }

    fn name_and_seed(&mut self) -> (&mut String, &mut u64) {
        (&mut self.name, &mut self.seed)
    }

    fn test_seed(&self) -> Option<u64> {
        self.data.test_seed()
    }

    fn share_with(&mut self, other: &Self) {
        self.share_with(other);
    }
}

impl AnySpec for LabSpec {
    fn read_as(v: Item<'_>, kind: Kind) -> Self {
        v.table(|t| Self::read(t, kind))
    }

    fn name_and_seed(&mut self) -> (&mut String, &mut u64) {
        (&mut self.name, &mut self.seed)
    }
}

/// The kind that a tree is read as. An unknown kind is read as training, whose reader reports it.
fn kind_of(root: &Table) -> Kind {
    let Some(Value::String(kind)) = root.get("kind").map(|entry| &entry.node.value) else {
        return Kind::Train;
    };
    Kind::LABS.into_iter().find(|lab| lab.name() == kind).unwrap_or(Kind::Train)
}

/// Removes `[sweep]` from the tree and reads it: trials have no such table.
fn take_sweep(root: &mut Table, folders: &Folders, problems: &mut Vec<Problem>) -> Sweep {
    let Some(entry) = root.remove("sweep") else { return Sweep::NONE };
    let written = entry.node.value.as_table().cloned().unwrap_or_default();
    let table = Table { entries: vec![entry] };
    let mut reading = Reading::new(folders);
    let mut sweep = reader::read(&node(table), &mut reading, |v| {
        v.table(|t| t.section("sweep", sweep::DOC, |v| v.table(|t| Sweep::read(t, problems))))
    });
    reading.hint_elsewhere(|path| {
        let schema = match kind_of(root) {
            Kind::Train => reader::describe(Spec::read),
            kind => reader::describe(|v| LabSpec::read_as(v, kind)),
        };
        at_axis(path, &written, root, &schema)
    });
    problems.extend(reading.into_problems());
    sweep.written = written;
    sweep
}

/// Removes `[launcher]` from the tree and reads it: it applies to the sweep, not to a trial.
fn take_launcher(root: &mut Table, folders: &Folders, problems: &mut Vec<Problem>) -> Launcher {
    let table = Table { entries: root.remove("launcher").into_iter().collect() };
    let mut reading = Reading::new(folders);
    let read =
        |v: Item<'_>| v.table(|t: &mut Fields<'_>| t.section("launcher", launcher::DOC, Launcher::read));
    let launcher = reader::read(&node(table), &mut reading, read);
    reading.hint_elsewhere(|path| {
        schema::hint_at_key(&reader::describe(read), path.rsplit_once('.')?, |_| false)
    });
    problems.extend(reading.into_problems());
    launcher
}

fn count_values(table: &Table) -> usize {
    fn count(value: &Value) -> usize {
        match value {
            Value::Array(items) => items.iter().map(|n| 1 + count(&n.value)).sum(),
            Value::Table(table) => count_values(table),
            _ => 0,
        }
    }
    table.entries.iter().map(|e| 1 + count(&e.node.value)).sum()
}

/// Reads a spec; without a `name` it gets the file's.
fn read_named<S: AnySpec>(v: Item<'_>, kind: Kind, path: &Path) -> S {
    let mut spec = S::read_as(v, kind);
    let (name, _) = spec.name_and_seed();
    if name.is_empty() {
        *name = default_name(path);
    }
    spec
}

fn finish<S: AnySpec>(
    path: &Path,
    folders: Folders,
    (written, base, sweep, launcher): (Table, Table, Sweep, Launcher),
    kind: Kind,
    mut problems: Vec<Problem>,
    sources: Sources,
) -> Result<Experiment<S>, Failure> {
    let read: fn(Item<'_>, Kind, &Path) -> S = read_named;
    let points =
        Points { read, kind, path: path.to_owned(), folders, written, base, sweep, schema: OnceLock::new() };
    let trials = read_trials(&points, &mut problems);
    if !problems.is_empty() {
        return Err(Failure::from_problems(problems, sources));
    }
    let sweep = &points.sweep;
    let known = sweep.known(trials.len());
    Ok(Experiment {
        path: path.to_owned(),
        axes: axes(sweep),
        excluded: sweep.excluded(),
        stop: sweep.stop,
        share: sweep.share,
        launcher,
        repeats: sweep.repeats,
        known,
        trials,
        points,
        sources,
    })
}

/// Reads every trial.
fn read_trials<S: AnySpec>(reader: &Points<S>, problems: &mut Vec<Problem>) -> Vec<TrialSpec<S>> {
    let sweep = &reader.sweep;
    let (points, repeats, values) = (sweep.points(), sweep.repeats, count_values(&reader.base));
    let too_many = if points.saturating_mul(repeats as usize) > MAX_TRIALS {
        let before = if sweep.is_uncut() { " before `sweep.when`" } else { "" };
        format!("the sweep has {points} points{before} and {repeats} repeats, more than {MAX_TRIALS} trials")
    } else if points > 1 && points.saturating_mul(values) > MAX_VALUES {
        format!("the sweep has {points} points of a spec with {values} values: too many to plan")
    } else {
        String::new()
    };
    if !too_many.is_empty() {
        let place = sweep.keys().next().map_or(Location::Nowhere, Key::place);
        problems.push(Problem::new(place, too_many).hint("run it in parts: fewer values per axis"));
        return Vec::new();
    }
    let (mut specs, mut found) = (Vec::<S>::new(), Found::default());
    for point in 0..points {
        match reader.read(&sweep.values_at(point)) {
            Ok(mut spec) => {
                specs.iter().rev().take(SHARED_WITH).for_each(|earlier| spec.share_with(earlier));
                let stop = sweep.stop.map(|halving| ("stop", spec.check(&halving)));
                let value = sweep.known(points) < points;
                let value = value.then(|| ("sampler", spec.check_value()));
                for (key, checked) in stop.into_iter().chain(value) {
                    let Err([why, hint]) = checked else { continue };
                    let place = place_of(sweep, key);
                    found.add(Problem::new(place, format!("`sweep.{key}`: {why}")).hint(hint), point);
                }
                specs.push(spec);
            }
            Err(problems) => problems.into_iter().for_each(|problem| found.add(problem, point)),
        }
        if found.is_full() {
            break;
        }
    }
    problems.extend(found.into_problems(sweep));
    problems.extend(other_test_rows(sweep, &specs));
    if specs.len() < points { Vec::new() } else { expand(sweep, &specs, problems) }
}

/// A sweep whose trials keep other rows for the test: what one is tested with has trained others, and so has chosen the setting.
fn other_test_rows<S: AnySpec>(sweep: &Sweep, specs: &[S]) -> Option<Problem> {
    let above = ["data", "data.split", "data.split.seed"];
    let key = sweep.keys().find(|key| above.contains(&key.dotted().as_str()))?;
    let seeds: BTreeSet<u64> = specs.iter().filter_map(S::test_seed).collect();
    let message = "`data.split.seed` draws the test rows, too: each trial would train on test rows of others, and none would be \
                   left to test what the sweep chooses";
    let hint = "sweep `seed` instead, and set no `data.split.seed`: that draws the rows to validate on alone; or keep no test rows: \
                `data.split.test=0`";
    (seeds.len() > 1).then(|| Problem::new(key.place(), message).hint(hint))
}

fn place_of(sweep: &Sweep, key: &str) -> Location {
    sweep.written.get(key).map_or(Location::Nowhere, |entry| entry.key_span.place())
}

/// Makes the trials of every repeat.
fn expand<S: AnySpec>(sweep: &Sweep, specs: &[S], problems: &mut Vec<Problem>) -> Vec<TrialSpec<S>> {
    let seeds = sweep.keys().find(|key| key.dotted() == "seed").filter(|_| sweep.repeats > 1);
    if let Some(key) = seeds.filter(|_| sweep.repeat_seeds) {
        let message = "an axis on `seed` and repeats that count seeds up would run the same seeds twice";
        let hint = "set `sweep.repeat_seeds = false`, or leave the axis out";
        problems.push(Problem::new(key.place(), message).hint(hint));
        return Vec::new();
    }
    let mut trials = Vec::with_capacity(specs.len() * sweep.repeats as usize);
    for repeat in 0..sweep.repeats {
        for (point, spec) in specs.iter().enumerate() {
            let mut spec = spec.clone();
            let (_, seed) = spec.name_and_seed();
            if sweep.repeat_seeds {
                *seed += u64::from(repeat);
            }
            if *seed > super::MAX_SEED {
                let message = "`seed` plus `sweep.repeats` is too large for a seed";
                problems.push(Problem::new(Location::Nowhere, message));
                return Vec::new();
            }
            trials.push(TrialSpec { index: trials.len(), repeat, point, drawn: None, spec });
        }
    }
    trials
}

/// The name of a spec that sets none: its file's stem, without characters that a folder's name may not have.
pub fn default_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let stem = stem.trim_matches(['<', '>']); // the brackets of `<standard input>`
    let fit: String = stem.chars().map(|c| if super::fits_name(c) { c } else { '_' }).collect();
    let mut fit = fit.trim_start_matches(['.', '-']).to_owned();
    while fit.len() > super::MAX_NAME_BYTES {
        fit.pop();
    }
    if fit.is_empty() { "experiment".to_owned() } else { fit }
}
