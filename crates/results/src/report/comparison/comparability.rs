//! Whether runs' times can be compared: how their machines differ, and whether it matters.

use super::{Comparison, is_not_run};
use crate::{
    record::{VIRTUAL, of_build},
    report::{
        axes::{AVAILABLE, THREADS},
        grouping::distinct,
        machines::is_decisive,
        run::{DAMAGED, PLANNED, Run, SAME_AS},
    },
    units,
};

/// A remark on runs that had different numbers of threads available but used the same number: explains why
/// giving more threads changed nothing.
fn idle_threads(runs: &[Run]) -> Option<String> {
    let on_cpu = || runs.iter().filter(|run| run.figure("devices_used") == Some("cpu"));
    let counts = |key: &str| -> Vec<usize> {
        let mut counts: Vec<usize> = on_cpu().filter_map(|run| run.fact(key)?.parse().ok()).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    };
    let (used, there) = (counts(THREADS), counts(AVAILABLE));
    match used[..] {
        [used] if there.len() > 1 => {
            let each = units::counted(used as u64, "thread");
            let there: Vec<String> = there.iter().map(usize::to_string).collect();
            Some(format!("each on the CPU computed with {each}, though there were {}", there.join(" or ")))
        }
        _ => None,
    }
}

/// `a, b differ`.
fn differ(keys: &[String]) -> String {
    format!("{} {}", keys.join(", "), if keys.len() == 1 { "differs" } else { "differ" })
}

impl Comparison {
    /// A sentence that says whether the runs can be compared, by a metric if one is named.
    pub fn comparability(&self, metric: Option<&str>) -> String {
        let metric = self.ranked_by(metric).ok().flatten();
        let count_of = |status: &str| self.runs.iter().filter(|run| run.status == status).count();
        let (same, planned, damaged) = (count_of(SAME_AS), count_of(PLANNED), count_of(DAMAGED));
        let count = self.runs.len() - same - planned - damaged;
        let virtual_times = self.virtual_times();
        let mut sentence = units::counted(count as u64, "run");
        let as_what = if count == 1 { "it" } else { "one of them" };
        match same {
            0 => {}
            1 => sentence += &format!(" (1 more trial is the same as {as_what})"),
            more => {
                let more = units::count(more as u64);
                sentence += &format!(" ({more} more trials are the same as {as_what})");
            }
        }
        for (what, count) in [("not begun", planned), ("damaged", damaged)] {
            if count > 0 {
                sentence += &format!(" ({what}: {})", units::count(count as u64));
            }
        }
        if count < 2 {
            return sentence + &virtual_times.map(|words| format!("; {words}")).unwrap_or_default();
        }
        let kinds = self.kinds();
        let mut comparable = "comparable: ";
        if kinds.len() > 1 {
            sentence += &format!(" of {} kinds ({})", kinds.len(), kinds.join(", "));
            comparable = "comparable within each kind: ";
        }
        if let Some(difference) = self.task_difference(metric.as_ref()) {
            let and = if kinds.len() > 1 { " and" } else { "" };
            sentence += &format!("{and} of {difference};");
            comparable = "";
        }
        let join = if comparable.is_empty() { "" } else { "," };
        let unknown = self.places(|run| run.environment.is_none() && !is_not_run(run));
        let keys = self.environment.iter().map(|difference| difference.key.as_str());
        let threads = self.given_threads();
        let is_told = |key: &&str| *key != AVAILABLE && (*key != THREADS || threads.is_empty());
        let named: Vec<String> = keys.filter(is_told).map(|key| self.named(key)).collect();
        let decisive = self.decisive();
        sentence += &if !unknown.is_empty() {
            format!("{} no environment.toml in {unknown}", if comparable.is_empty() { "" } else { ";" })
        } else if !decisive.is_empty() {
            format!("{join} whose times say nothing of each other: {}", differ(&decisive))
        } else if named.is_empty() && virtual_times.is_some() {
            String::new()
        } else if named.is_empty() {
            let and_threads = if threads.is_empty() { ", threads and" } else { " and" };
            format!("{join} {comparable}same processor, instruction set{and_threads} version")
        } else {
            format!("{join} to be compared with care: {}", differ(&named))
        };
        sentence + &self.remarks(&threads)
    }

    /// What else is to be known of the runs' times and data, where they were given these numbers of threads.
    fn remarks(&self, threads: &[&str]) -> String {
        let on_threads = (!threads.is_empty())
            .then(|| format!("ran with other numbers of threads ({})", threads.join(", ")));
        let dirty = self.places(|run| run.fact("git.dirty") == Some("true"));
        let dirty = (!dirty.is_empty()).then(|| format!("uncommitted changes in {dirty}"));
        let virtual_times = self.virtual_times().map(str::to_owned);
        let all = [on_threads, virtual_times, self.sampled(), idle_threads(&self.runs), dirty];
        all.into_iter().flatten().map(|words| format!("; {words}")).collect()
    }

    /// A sentence on why the times of these runs cannot be compared; `None` if they can. The comparison on
    /// the screen has its own sentence.
    pub fn warning(&self) -> Option<String> {
        let decisive: Vec<String> = self.decisive().iter().map(|key| format!("`{key}`")).collect();
        let sentence =
            || format!("{} between the runs: their times say nothing of each other", differ(&decisive));
        (!decisive.is_empty()).then(sentence)
    }

    /// A sentence on times of virtual devices; `None` where there are none.
    pub(in crate::report) fn virtual_times(&self) -> Option<&'static str> {
        self.runs.iter().any(Run::is_virtual).then_some(VIRTUAL)
    }

    /// A sentence on data that are known by samples; `None` where all bytes count, or one run is alone.
    pub(in crate::report) fn sampled(&self) -> Option<String> {
        let runs = self.places(Run::is_sampled);
        let is_compared = self.runs.len() > 1 && !runs.is_empty();
        is_compared.then(|| {
            format!("the data of {runs} are compared by samples: the length of large files and 64 blocks")
        })
    }

    /// A sentence on the runs of a debug build; `None` if there are none.
    pub fn builds(&self) -> Option<String> {
        let runs = self.places(is_debug);
        let words = of_build("debug").filter(|_| !runs.is_empty())?;
        Some(format!("the build of {runs} is {words}"))
    }

    /// The kinds of experiment, in the order of their first run.
    pub(in crate::report) fn kinds(&self) -> Vec<&str> {
        distinct(self.runs.iter().filter(|run| !is_not_run(run)).map(Run::kind))
    }

    /// The differing keys that decide times.
    fn decisive(&self) -> Vec<String> {
        let keys = self.environment.iter().map(|difference| &difference.key);
        keys.filter(|key| is_decisive(key)).cloned().collect()
    }

    /// The numbers of threads that runs on the CPU computed with, if some were given fewer than others: who compares these asks what
    /// threads are worth. Empty if none were: using fewer of as many is the plan's choice for small steps, or the spec's.
    pub(in crate::report) fn given_threads(&self) -> Vec<&str> {
        let differing = |key: &str| self.environment.iter().find(|difference| difference.key == key);
        let used = differing(AVAILABLE).and_then(|_| differing(THREADS));
        let mut values: Vec<&str> =
            used.iter().flat_map(|own| &own.values).filter_map(|(value, _)| value.as_deref()).collect();
        values.sort_by_key(|value| value.parse::<u64>().ok());
        values
    }

    /// The devices that trained: `gpu:0 gpu:1`; `cpu 2 threads` where runs were given different numbers of them.
    pub(in crate::report) fn devices_of(&self, run: &Run) -> String {
        let devices = run.devices();
        let threads = run.fact(THREADS).filter(|_| devices == "cpu" && !self.given_threads().is_empty());
        match threads.and_then(|threads| threads.parse().ok()) {
            Some(threads) => format!("{devices} {}", units::counted(threads, "thread")),
            None => devices,
        }
    }

    /// A key, with the reason if the program caused the difference.
    fn named(&self, key: &str) -> String {
        let by_spec = self.spec.iter().any(|difference| difference.key == "devices.engine");
        match key {
            THREADS if by_spec => format!("{key} (asked for by `devices.engine`)"),
            THREADS => format!("{key} (chosen by the plan)"),
            _ => key.to_owned(),
        }
    }

    /// The matching runs: `#1, 3 to 5`, or `all runs`; empty if there are none.
    fn places(&self, so: impl Fn(&Run) -> bool) -> String {
        let places = self.runs.iter().enumerate().filter(|(_, run)| so(run));
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        match places.len() {
            0 => String::new(),
            count if count > 1 && count == self.runs.len() => "all runs".to_owned(),
            _ => self.numbers(&places),
        }
    }
}

/// Whether a run is of a debug build.
pub(in crate::report) fn is_debug(run: &Run) -> bool {
    run.fact("versions.build").is_some_and(|build| of_build(build).is_some())
}
