//! `trace.json`: what happened when, in Chrome's Trace Event Format ("JSON Object Format" in the document of
//! that name), which Perfetto (ui.perfetto.dev) and chrome://tracing open.
//!
//! A "process" is a device (or the host), a "thread" one of its lanes. Every span is a complete event (`"ph":
//! "X"`) with its start and length in microseconds; spans of a lane nest or follow each other. The first
//! steps are recorded in detail, or the blocks that hold them if steps are timed by blocks. What comes later
//! is summed up in windows, which name their steps (or, if they have none, what was done instead) and the
//! milliseconds of each phase.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use super::{RecordError, Sink};
use crate::{
    device::{DETAILED_STEPS, Span, Window},
    event::{Event, TraceLane},
    host::{Durability, write_atomically},
    program::Phase,
    units,
};

/// The sink of `trace.json`. The file is written completely at the end of a run, or not at all.
pub struct TraceJson {
    path: PathBuf,
}

impl TraceJson {
    /// For a file at this path.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }
}

impl Sink for TraceJson {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        let Event::Finished(outcome) = event else { return Ok(()) };
        write_atomically(&self.path, Durability::Process, |out| write(out, &outcome.traces))
            .map_err(|e| RecordError::write(&self.path, e))
    }
}

fn write(out: &mut impl Write, lanes: &[TraceLane]) -> io::Result<()> {
    let about = format!(
        "the first {DETAILED_STEPS} steps in detail (where steps are timed by blocks, the blocks that hold them), then sums \
         over windows"
    );
    writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"detail\":\"{about}\"}},\"traceEvents\":[")?;
    let mut first = true;
    let mut line = |event: Value| {
        let comma = if std::mem::take(&mut first) { "" } else { ",\n" };
        write!(out, "{comma}{event}")
    };
    let mut processes: Vec<&str> = Vec::new();
    for (thread, lane) in lanes.iter().enumerate() {
        let known = processes.iter().position(|process| *process == lane.process);
        let process = known.unwrap_or_else(|| {
            processes.push(&lane.process);
            processes.len() - 1
        });
        // Viewers show a thread with its process's number as the main thread, so use another number.
        let (pid, tid) = (process + 1, 101 + thread);
        let meta = |what: &str, arguments: Value| json!({ "name": what, "ph": "M", "pid": pid, "tid": tid, "args": arguments });
        line(meta("process_name", json!({ "name": lane.process })))?;
        line(meta("process_sort_index", json!({ "sort_index": pid })))?;
        line(meta("thread_name", json!({ "name": lane.name })))?;
        let mut spans = lane.trace.spans.clone();
        // Outer spans come before those they contain.
        spans.sort_by_key(|span| (span.start_ns, u64::MAX - span.end_ns));
        let mut step = 0;
        for span in &spans {
            line(complete(
                span_name(span, &lane.process),
                [span.start_ns, span.end_ns],
                pid,
                tid,
                arguments(span, step),
            ))?;
            step += span.steps;
        }
        for window in &lane.trace.windows {
            let between = [window.start_ns, window.end_ns];
            line(complete(window_name(window), between, pid, tid, sums(window)))?;
        }
    }
    writeln!(out, "\n]}}")
}

fn complete(name: String, [start, end]: [u64; 2], pid: usize, tid: usize, arguments: Value) -> Value {
    let us = |ns: u64| ns as f64 / 1000.0;
    let length = us(end.saturating_sub(start));
    json!({ "name": name, "cat": "train", "ph": "X", "ts": us(start), "dur": length, "pid": pid, "tid": tid, "args": arguments })
}

fn span_name(span: &Span, process: &str) -> String {
    match (span.phase, span.steps) {
        (Phase::Step, 1) if process != "host" => "step".to_owned(),
        (Phase::Step, steps) => format!("block of {}", units::counted(steps, "step")),
        (phase, _) => phase.name().to_owned(),
    }
}

/// `320 steps`; for a window without steps, what was done in it: `validation, log`.
fn window_name(window: &Window) -> String {
    if window.steps > 0 {
        return units::counted(window.steps, "step");
    }
    phases(window).map(|(phase, _)| phase.name()).collect::<Vec<_>>().join(", ")
}

/// What was done in a window, with its time in nanoseconds.
fn phases(window: &Window) -> impl Iterator<Item = (Phase, u64)> {
    Phase::ALL.into_iter().zip(window.phases_ns).filter(|(_, ns)| *ns > 0)
}

/// The steps in a span, counted from 1.
fn arguments(span: &Span, before: u64) -> Value {
    match span.steps {
        0 => json!({}),
        1 => json!({ "step": before + 1 }),
        steps => json!({ "first_step": before + 1, "last_step": before + steps }),
    }
}

/// Milliseconds by phase; on a device's lane `step` is the sum of the others.
fn sums(window: &Window) -> Value {
    let mut sums = Map::new();
    sums.insert("steps".to_owned(), window.steps.into());
    for (phase, ns) in phases(window) {
        sums.insert(format!("{}_ms", phase.name()), (ns as f64 / 1e6).into());
    }
    sums.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_named_by_its_steps_or_by_what_else_was_done() {
        let window = |steps, done: &[Phase]| {
            let mut phases_ns = [0; Phase::ALL.len()];
            done.iter().for_each(|phase| phases_ns[*phase as usize] = 1500);
            window_name(&Window { start_ns: 0, end_ns: 9000, steps, phases_ns })
        };
        assert_eq!(window(1, &[Phase::Step]), "1 step");
        assert_eq!(window(1920, &[Phase::Step, Phase::Log]), "1,920 steps");
        assert_eq!(window(0, &[Phase::Data]), "data");
        assert_eq!(window(0, &[Phase::Log, Phase::Validation]), "validation, log");
    }
}
