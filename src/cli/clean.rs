//! `runner tag` and `runner clean`: deciding which runs to keep.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    fs::{self, File},
    io, iter,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use super::{
    args::{CleanOptions, on_terminal},
    runs::refuse,
    terminal::terminal_width,
};
use crate::{
    host::reason,
    record::{
        Claims, LineMode, RecordError, RunDir, RunLock, SWEEP_FILE, SweepLine, command_line, not_its_own, now,
    },
    report::{self, CleanRequest, Cleaning, Found},
    run::{Exit, print, warn},
    units,
};

/// Threads that remove files: the disk, for which each waits, serves several at a time.
const THREADS: usize = 8;

/// Adds words to a run's tags, or removes them.
pub fn tag(run: &str, words: &[String]) -> Result<Exit, Exit> {
    let (Found::Run(folder) | Found::Sweep(folder)) = report::find_one(run).map_err(refuse)?;
    for word in words {
        let name = word.strip_prefix('~').unwrap_or(word);
        let is_barred = |c: char| c.is_whitespace() || c.is_control() || "~<>=!'\"".contains(c);
        if name.is_empty() || name.starts_with('-') || name.contains(is_barred) {
            let hint = "a word without spaces, quotes, control characters and < > = ! ~, and no - before it";
            return Err(Exit::refused(format!("{word:?} is no tag"), Some(hint)));
        }
    }
    let _lock = lock_tags(&folder);
    let hint = "its tags are as they were: mend the file (text, one tag a line), or delete it";
    let mut tags = report::tags(&folder).map_err(|e| Exit::refused(e, Some(hint)))?;
    for word in words {
        let name = word.strip_prefix('~').unwrap_or(word);
        if name != word && !tags.iter().any(|tag| tag == name) {
            warn(format!("`{}` has no tag `{name}`", folder.display()));
        }
        tags.retain(|tag| tag != name);
        if name == word {
            tags.push(word.clone());
        }
    }
    let lines: String = tags.iter().map(|tag| format!("{tag}\n")).collect();
    RunDir::existing(folder.clone()).write(report::TAGS, &lines).map_err(|e| Exit::failed(e, None))?;
    Ok(print(&format!("{}: {}\n", folder.display(), tags.join(" "))))
}

/// Locks the tags against changes by other processes until this is dropped; without effect on a file system
/// without locks.
fn lock_tags(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    folder.lock().ok().map(|()| folder)
}

/// Shows the runs that may be removed, and with `--yes` removes them.
pub fn clean(options: &CleanOptions) -> Result<Exit, Exit> {
    let resolved =
        |path: &Path| fs::canonicalize(path).map_err(|_| report::not_found(path, &options.runs_dir));
    let runs_dir = &options.runs_dir;
    let all = resolved(runs_dir).map_err(refuse)?;
    let path = resolved(options.path.as_ref().unwrap_or(runs_dir)).map_err(refuse)?;
    if !path.starts_with(&all) {
        let message = format!("`{}` is outside the runs folder `{}`", path.display(), runs_dir.display());
        let all = holding(&path);
        let words = [all, &path].map(|path| from_here(path).display().to_string());
        let words = command_line(words.iter().take(if all == path { 1 } else { 2 }));
        let hint = format!("if runs are kept there, name the folder of all: `--runs-dir {words}`");
        return Err(Exit::refused(message, Some(&hint)));
    }
    let (keep_best, older_than, now) = (options.keep_best, options.older_than, now());
    let request = CleanRequest { runs_dir: &all, path: &path, keep_best, older_than, now };
    let is_live = |folder: &Path| RunDir::existing(folder.to_owned()).is_live();
    let cleaning = Cleaning::new(&request, is_live).map_err(refuse)?;
    let is_empty = cleaning.folders().next().is_none();
    let last = match options.yes {
        _ if is_empty => "",
        true => "removed\n",
        false => "nothing was removed: `--yes` removes them for good\n",
    };
    if options.yes {
        remove_all(cleaning.folders().collect())?;
    }
    Ok(print(&(cleaning.text(terminal_width()) + last)))
}

/// The folder of all runs if this resolved path is in it: runs are at RUNS/NAME/RUN, trials in the folder of their sweep.
fn holding(path: &Path) -> &Path {
    let is_run = |path: &Path| report::is_run(path) || report::is_sweep(path);
    let holds_runs = || fs::read_dir(path).into_iter().flatten().flatten().any(|own| is_run(&own.path()));
    let is_trial = path.parent().is_some_and(report::is_sweep);
    let up = if is_run(path) { 2 + usize::from(is_trial) } else { usize::from(holds_runs()) };
    path.ancestors().nth(up).unwrap_or(path)
}

/// A resolved path, from the present folder if it is inside.
fn from_here(path: &Path) -> &Path {
    let inside = fs::canonicalize(".").ok().and_then(|here| path.strip_prefix(here).ok());
    inside.map_or(path, |own| if own.as_os_str().is_empty() { Path::new(".") } else { own })
}

/// Removes folders of runs and sweeps; on a terminal, a line says how far that is.
fn remove_all(folders: Vec<&Path>) -> Result<(), Exit> {
    let runs = |folder: &&Path| RunDir::existing(folder.to_path_buf()).trials().len().max(1);
    let (mode, all) = match on_terminal() {
        true => (LineMode::Redrawn, folders.iter().map(runs).sum()),
        false => (LineMode::Hidden, 0),
    };
    let progress = Progress {
        line: SweepLine::new(all, BTreeSet::new(), all as f64, mode),
        removed: AtomicUsize::new(0),
    };
    // One after the other: an interrupt leaves a part of one.
    let ended = folders.iter().try_for_each(|folder| remove(folder, &progress));
    let removed = progress.removed.into_inner();
    progress.line.apart(&mut io::stderr(), |_| {
        if ended.is_err() && removed > 0 {
            warn(format!("{} removed before that", units::counted(removed as u64, "run")));
        }
        ended
    })
}

/// How many runs and trials are removed.
struct Progress {
    line: SweepLine,
    removed: AtomicUsize,
}

impl Progress {
    fn count(&self) {
        self.line.ended(self.removed.fetch_add(1, Ordering::Relaxed), false, &mut io::stderr());
    }
}

/// Does `work` for each item by several threads, which take no more items after an error.
fn side_by_side<T: Sync>(items: &[T], work: impl Fn(&T) -> Result<(), Exit> + Sync) -> Result<(), Exit> {
    let next = AtomicUsize::new(0);
    let worker = || {
        iter::from_fn(|| items.get(next.fetch_add(1, Ordering::Relaxed)))
            .try_for_each(|item| work(item).inspect_err(|_| next.store(items.len(), Ordering::Relaxed)))
    };
    thread::scope(|scope| {
        // Without more threads this one does all.
        let more = (1..THREADS.min(items.len()))
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, worker).ok());
        let more: Vec<_> = more.collect();
        let own = worker();
        more.into_iter().fold(own, |ended, other| ended.and(other.join().unwrap_or(Err(Exit::Failed))))
    })
}

/// Removes a folder, unless it was tagged or a process started working in it since it was chosen.
fn remove(folder: &Path, progress: &Progress) -> Result<(), Exit> {
    let failed = |folder: &Path, e: &dyn Display| {
        let words = format!("cannot remove `{}`: {e}", folder.display());
        progress.line.apart(&mut io::stderr(), |_| Exit::failed(words, None))
    };
    let _tags = lock_tags(folder);
    let locks = lock_runs(folder).map_err(|e| failed(folder, &e))?;
    let run = RunDir::existing(folder.to_owned());
    let trials = run.trials();
    if let Some(why) = reason_to_stay(&run, &trials, locks.is_some()) {
        let words = format!("`{}` stays: {why}", folder.display());
        progress.line.apart(&mut io::stderr(), |_| warn(words));
        return Ok(());
    }
    // Rename it first, so that nobody finds a partly removed run.
    let hidden = folder.with_file_name(format!(".{}", run.name()));
    fs::rename(folder, &hidden).map_err(|e| failed(folder, &reason(&e)))?;
    let removed = |folder: &Path| fs::remove_dir_all(folder).map_err(|e| failed(folder, &reason(&e)));
    let trials: Vec<PathBuf> = trials.values().map(|trial| hidden.join(trial.name())).collect();
    let ended = side_by_side(&trials, |trial| removed(trial).map(|()| progress.count()));
    if let Err(exit) = ended.and_then(|()| removed(&hidden)) {
        // What is left must be found, to be removed later.
        let _ = fs::rename(&hidden, folder);
        return Err(exit);
    }
    if trials.is_empty() {
        progress.count();
    }
    // This fails, as intended, if the folder of the name holds other runs.
    let _ = folder.parent().map(fs::remove_dir);
    Ok(())
}

/// Why a folder that was to be removed stays after all.
fn reason_to_stay(run: &RunDir, trials: &BTreeMap<usize, RunDir>, is_locked: bool) -> Option<String> {
    for own in trials.values().chain([run]) {
        match report::tags(own.path()) {
            Ok(tags) if tags.is_empty() => {}
            Ok(_) => return Some("it is tagged now".to_owned()),
            Err(e) => return Some(e.to_string()),
        }
    }
    if !is_locked {
        return Some("it is running now".to_owned());
    }
    not_its_own(run.path()).map(|path| report::in_it(run.path(), &path))
}

type Locks = (Option<Claims>, Option<RunLock>);

/// Locks a run or a sweep; `None` if another process holds its lock or that of one of its trials. The trials'
/// locks are only tested, not taken: that would need as many open files.
fn lock_runs(folder: &Path) -> Result<Option<Locks>, RecordError> {
    let run = RunDir::existing(folder.to_owned());
    if folder.join(SWEEP_FILE).is_file() {
        let claims = Claims::new(folder, false, || true)?;
        let is_free = !run.has_live_trial();
        return Ok(claims.filter(|_| is_free).map(|claims| (Some(claims), None)));
    }
    if !run.file("run.log").is_file() {
        return Ok(Some((None, None)));
    }
    Ok(RunLock::take(folder)?.map(|lock| (None, Some(lock))))
}
