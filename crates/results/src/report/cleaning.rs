//! `clean`: finds runs and sweeps that are old, or far from the best.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs, iter, mem,
    path::{Path, PathBuf},
    time::Duration,
};

use chrono::{DateTime, Utc};

use super::{
    ReportError,
    comparison::Comparison,
    configurations::FINISHED,
    grid::{self, Columns},
    grouping::{distinct, grouped},
    listing::{self, Entry},
    run::{DAMAGED, Run},
    tasks::Tasks,
};
use crate::{host::escape_line, record::not_its_own, units};

/// What may be removed. Both paths are free of symbolic links.
pub struct CleanRequest<'a> {
    /// The folder of all runs: nothing outside it is removed.
    pub runs_dir: &'a Path,
    /// A folder inside it.
    pub path: &'a Path,
    /// How many of the best runs of each name and task are kept.
    pub keep_best: Option<usize>,
    /// Runs younger than this are kept.
    pub older_than: Option<Duration>,
    /// The present time.
    pub now: DateTime<Utc>,
}

/// The runs and sweeps that would be removed, the best, and how many are kept for which reason.
pub struct Cleaning {
    removable: Vec<Judged>,
    best: Vec<Judged>,
    kept: BTreeMap<&'static str, usize>,
    /// What stays for a reason that its owner must end: the reason in full.
    stays: Vec<String>,
    /// Whether runs of one name are of several tasks, so that each has its own best.
    has_tasks: bool,
}

/// A run or sweep with what decides on it.
struct Judged {
    /// Its path relative to the folder of all runs.
    name: String,
    entry: Entry,
    bytes: u64,
    why: String,
}

impl Cleaning {
    /// Chooses what to remove. `is_live` tells whether a process is at work in a folder.
    pub fn new(request: &CleanRequest<'_>, is_live: impl Fn(&Path) -> bool) -> Result<Self, ReportError> {
        let mut entries = listing::entries(&request.path.display().to_string())?;
        let best = best(&mut entries, request.keep_best);
        let (mut removable, mut best_ones, mut kept) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut stays = Vec::new();
        for entry in entries {
            let running = is_live(&entry.folder).then_some("running");
            let reason = running.or_else(|| request.reason_to_keep(&entry, &best));
            let inside = if reason.is_none() { not_its_own(&entry.folder) } else { None };
            let reason = reason.or(inside.is_some().then_some(WITH_OTHERS));
            stays.extend(inside.map(|path| in_it(&entry.folder, &path)));
            stays.extend(entry.tags_fault().filter(|_| reason == Some(TAGS_FAULT)).map(str::to_owned));
            reason.iter().for_each(|reason| *kept.entry(*reason).or_default() += 1);
            let (group, why) = match (reason, best.folders.get(&entry.folder)) {
                (None, _) => (&mut removable, request.reason_to_go(&entry, &best)),
                (Some(BEST), Some(why)) => (&mut best_ones, (*why).to_owned()),
                _ => continue,
            };
            let name = entry.folder.strip_prefix(request.runs_dir).unwrap_or(&entry.folder);
            let (name, bytes) = (name.display().to_string(), size(&entry.folder));
            group.push(Judged { name, entry, bytes, why });
        }
        for group in [&mut removable, &mut best_ones] {
            group.sort_by(|a: &Judged, b| a.entry.started().cmp(b.entry.started()));
        }
        Ok(Self { removable, best: best_ones, kept, stays, has_tasks: best.has_tasks })
    }

    /// The folders that would be removed.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.removable.iter().map(|removable| &*removable.entry.folder)
    }

    /// A table of these folders, one of the best, and what else is kept.
    pub fn text(&self, width: u16) -> String {
        let kept: Vec<_> = self.kept.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let mut kept = if kept.is_empty() { String::new() } else { format!("kept: {}\n", kept.join(", ")) };
        if self.has_tasks {
            kept += "each task has its own best: runs of other data, splits or losses are not comparable\n";
        }
        kept.extend(
            self.stays.iter().take(MOST_SHOWN).map(|words| format!("stays: {}\n", escape_line(words))),
        );
        if let more @ 1.. = self.stays.len().saturating_sub(MOST_SHOWN) {
            kept += &format!("stays: {more} more like these\n");
        }
        if self.removable.is_empty() {
            return format!("nothing to remove\n{kept}");
        }
        let bytes = units::bytes(self.removable.iter().map(|own| own.bytes).sum());
        let count = units::counted(self.removable.len() as u64, "folder");
        let best = match self.best.is_empty() {
            true => String::new(),
            false => format!("\nstays as best\n\n{}\n", table(&self.best, width)),
        };
        format!("{}\n{count}, {bytes}\n{best}{kept}", table(&self.removable, width))
    }
}

fn table(runs: &[Judged], width: u16) -> String {
    let mut columns = Columns::new(runs);
    let started = |own: &Judged| own.entry.started().get(..16).unwrap_or_default().replace('T', " ");
    columns.words("started", started);
    columns.words("run", |own| own.name.clone());
    columns.words("status", |own| own.entry.status());
    columns.numbers("best", |own| own.entry.value().map(units::number).unwrap_or_default());
    columns.numbers("size", |own| units::bytes(own.bytes));
    columns.words("why", |own| own.why.clone());
    grid::table(&columns.known(), 2, width)
}

impl CleanRequest<'_> {
    fn reason_to_keep(&self, entry: &Entry, best: &Best) -> Option<&'static str> {
        let is_finished = entry.runs.iter().any(|run| run.status == FINISHED);
        // Runs are at NAME/TIME-HASH: anything else was put there by someone else, or is part of a run.
        let below = entry.folder.strip_prefix(self.runs_dir).ok();
        let is_ours = below.is_some_and(|below| below.components().count() == 2);
        let is_link = fs::canonicalize(&entry.folder).ok().as_ref() != Some(&entry.folder);
        match self {
            _ if is_link => Some("behind a link"),
            _ if !is_ours => Some("not at RUNS/NAME/RUN"),
            _ if entry.runs.iter().any(|run| run.status == DAMAGED) => Some("damaged"),
            _ if entry.tags_fault().is_some() => Some(TAGS_FAULT),
            _ if !entry.tags().is_empty() => Some("tagged"),
            _ if best.folders.contains_key(&entry.folder) => Some(BEST),
            Self { keep_best: Some(_), .. } if is_finished && !best.judged.contains(&entry.folder) => {
                Some("without a value to judge by")
            }
            Self { older_than: Some(age), .. } if !is_older(entry, *age, self.now) => Some("too young"),
            _ => None,
        }
    }

    /// Why a folder is removed, and what is lost with it.
    fn reason_to_go(&self, entry: &Entry, best: &Best) -> String {
        let of_task = if best.has_tasks { " of its task" } else { "" };
        let of_best = self.keep_best.map(|count| match best.judged.contains(&entry.folder) {
            true => format!("not of the {count} best{of_task}"),
            false => "no value".to_owned(),
        });
        let old = self.older_than.and_then(|_| {
            let started = DateTime::parse_from_rfc3339(entry.started()).ok()?;
            let age = self.now - started.to_utc();
            let ages = [(age.num_days(), "day"), (age.num_hours(), "hour"), (age.num_minutes(), "minute")];
            let (count, unit) = ages.into_iter().find(|(count, _)| *count > 0).unwrap_or(ages[2]);
            Some(format!("{} old", units::counted(count as u64, unit)))
        });
        let resumable = entry.can_be_resumed().then(|| "can be resumed".to_owned());
        [of_best, old, resumable].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Whether a run is older than `age`; false if its start is unknown.
fn is_older(entry: &Entry, age: Duration, now: DateTime<Utc>) -> bool {
    let started = DateTime::parse_from_rfc3339(entry.started());
    started.is_ok_and(|started| (now - started.to_utc()).to_std().is_ok_and(|since| since > age))
}

/// Why the best are kept.
const BEST: &str = "best";

/// Why those stay of which nobody knows whether they are tagged.
const TAGS_FAULT: &str = "with tags that cannot be read";

/// Why those stay that hold what others put there.
const WITH_OTHERS: &str = "with something else inside";

/// How many that stay are named.
const MOST_SHOWN: usize = 10;

/// That a folder holds something that is not its own.
pub fn in_it(folder: &Path, path: &Path) -> String {
    let own = path.strip_prefix(folder).unwrap_or(path);
    format!("`{}` holds `{}`, which is no file of a run", folder.display(), own.display())
}

/// What is among the best.
struct Best {
    /// Each with what it is the best by.
    folders: HashMap<PathBuf, &'static str>,
    /// All that have a value to judge by; a sweep of several tasks has one of each.
    judged: HashSet<PathBuf>,
    /// Whether runs of a name are of several tasks.
    has_tasks: bool,
}

/// The best `count` of each name, task and metric, as `compare` ranks them, and the `count` of the best values: what has too few seeds
/// to rank first, or has not finished, is not therefore worse.
fn best(entries: &mut [Entry], keep: Option<usize>) -> Best {
    let count = keep.unwrap_or(0);
    let rankings = keep.map(|_| best_first(entries)).unwrap_or_default();
    let ranked: HashSet<usize> = rankings.values().flatten().flatten().copied().collect();
    let mut names: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    let is_judged = |place: &usize| entries[*place].cost().is_finite() || ranked.contains(place);
    let judged: Vec<usize> = (0..entries.len()).filter(is_judged).collect();
    for (place, entry) in judged.iter().map(|&place| (place, &entries[place])) {
        names.entry((entry.folder.parent(), entry.best().monitor())).or_default().push(place);
    }
    let (mut best, mut has_tasks) = (HashMap::new(), false);
    for ((parent, _), named) in &names {
        let rankings = rankings.get(&parent.map(Path::to_owned));
        let of_entries = tasks(&named.iter().map(|&place| &entries[place]).collect::<Vec<_>>());
        let groups = grouped(of_entries.into_iter().zip(named.iter().copied()));
        has_tasks |= groups.len() > 1;
        for (_, mut group) in groups {
            let own: HashSet<usize> = group.iter().copied().collect();
            let originals = originals(entries, &group);
            // Copies of a run count once.
            let first = |ranking: &Vec<usize>| {
                let own = ranking.iter().filter(|place| own.contains(place)).map(|place| originals[place]);
                distinct(own).into_iter().take(count).collect::<Vec<_>>()
            };
            group.sort_by(|a, b| entries[*a].cost().total_cmp(&entries[*b].cost()));
            let by_rank: HashSet<usize> = rankings.into_iter().flatten().flat_map(first).collect();
            let has_value = |place: &usize| entries[*place].cost().is_finite();
            let by_value = first(&group.into_iter().filter(has_value).collect());
            best.extend(by_rank.iter().chain(&by_value).map(|place| {
                let why = match (by_rank.contains(place), by_value.contains(place)) {
                    (true, true) => "by rank and value",
                    (true, false) => "by rank",
                    (false, _) => "by value",
                };
                (entries[*place].folder.clone(), why)
            }));
        }
    }
    let folder = |place: usize| entries[place].folder.clone();
    Best { folders: best, judged: judged.into_iter().map(folder).collect(), has_tasks }
}

/// Maps each entry to the first one that is the same: its runs finished with equal specs and figures.
fn originals(entries: &[Entry], group: &[usize]) -> HashMap<usize, usize> {
    let mut known = HashMap::new();
    let original = |&place: &usize| {
        let finished = entries[place].runs.iter().map(|run| Some(run).filter(|run| run.status == FINISHED));
        let outcomes: Option<Vec<_>> =
            finished.map(|run| run.and_then(|run| Some((run.spec.as_ref()?, run.outcome())))).collect();
        (place, outcomes.map_or(place, |outcomes| *known.entry(outcomes).or_insert(place)))
    };
    let mut group = group.to_vec();
    group.sort_unstable();
    group.iter().map(original).collect()
}

/// By name, and then by task and metric, its entries: that with the best setting first, as `compare` ranks all runs of the name.
fn best_first(entries: &mut [Entry]) -> BTreeMap<Option<PathBuf>, Vec<Vec<usize>>> {
    let names = grouped(entries.iter().map(|entry| entry.folder.parent().map(Path::to_owned)).zip(0..));
    let of_name = |(name, named): (_, Vec<usize>)| {
        let count = |&place: &usize| iter::repeat_n(place, entries[place].runs.len());
        let owners: Vec<usize> = named.iter().flat_map(count).collect();
        let runs = named.iter().flat_map(|&place| mem::take(&mut entries[place].runs));
        let comparison = Comparison::from_runs(runs.collect());
        let rankings = comparison.best_first().into_iter();
        let rankings = rankings.map(|runs| distinct(runs.into_iter().map(|run| owners[run]))).collect();
        owners.iter().zip(comparison.runs).for_each(|(owner, run)| entries[*owner].runs.push(run));
        (name, rankings)
    };
    names.into_iter().map(of_name).collect()
}

/// A run's fold and the seed of its split.
type Split = [Option<String>; 2];

/// The tasks of each of these, several for a sweep over data or losses, and the splits: one fold is no match for the mean over all.
fn tasks(entries: &[&Entry]) -> Vec<(Vec<Option<usize>>, Vec<Split>)> {
    // The task of a damaged run is unknown, and another run of its sweep tells it.
    let first_of_each = |entry: &&Entry| -> Vec<Run> {
        let by_run = Tasks::new(&entry.runs).by_run(entry.runs.len());
        let known = by_run.into_iter().zip(&entry.runs).filter_map(|(task, run)| Some((task?, run)));
        grouped(known).into_iter().map(|(_, runs)| runs[0].clone()).collect()
    };
    let splits = |entry: &&Entry| {
        let split = |run: &Run| {
            let spec = run.spec.as_ref()?;
            Some(["data.fold", "data.split.seed"].map(|key| spec.get(key).map(str::to_owned)))
        };
        let mut splits = distinct(entry.runs.iter().filter_map(split));
        splits.sort_unstable();
        splits
    };
    let firsts: Vec<Vec<Run>> = entries.iter().map(first_of_each).collect();
    let all = firsts.concat();
    let mut tasks = Tasks::new(&all).by_run(all.len()).into_iter();
    let of_entry = |own: &Vec<Run>| {
        let mut own: Vec<_> = tasks.by_ref().take(own.len()).collect();
        own.sort_unstable();
        own
    };
    firsts.iter().map(of_entry).zip(entries.iter().map(splits)).collect()
}

/// Bytes of all files in a folder, not counting links.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(facts) if facts.is_dir() => size(&entry.path()),
            Ok(facts) if facts.is_file() => facts.len(),
            _ => 0,
        })
        .sum()
}
