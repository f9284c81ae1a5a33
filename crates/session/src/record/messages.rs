//! The sentences about a run that the log and the console share.

use std::path::Path;

use super::{command_line, summary::logging_share};
use crate::{
    event::{Header, NoModel, Outcome, PhaseTime, Status, ValidationRow},
    host::load::{Load, TOO_BUSY},
    plan::{Bottleneck, FewerReads, Processor, TimeAccount},
    units,
};

/// From this part of the training time on, waits for a core stand with the bound: a run may be too short for counters of the
/// other processes' time.
pub(super) const MUCH: f64 = 0.1;

/// From this part of a run's wall time on, what lies outside of its training is what bounds it.
const MOSTLY: f64 = 0.5;

/// Seconds of training below which first steps and interruptions by the system can be much of the time.
const SHORT_S: f64 = 1.0;

/// `linreg: 10 epochs of 1,000 rows, 320 steps, on cpu (asked for 1 GPU), engine serial, f32`.
pub(super) fn started(name: &str, header: &Header) -> String {
    let devices = devices_in_words(&header.devices_requested, &header.devices_used);
    if let Some(what) = &header.lab {
        return format!("{name}: {what}, on {devices}");
    }
    let most =
        header.max_time_s.map(|most| format!("at most {}, ", units::seconds(most))).unwrap_or_default();
    let resumed = header.resumed_after.map(|step| format!(", resumed after step {}", units::count(step)));
    format!(
        "{name}: {most}{} of {}, {}{}, on {}, engine {}, {}",
        units::counted(header.epochs_planned, "epoch"),
        units::counted(header.train_rows, "row"),
        units::counted(header.steps_planned, "step"),
        resumed.unwrap_or_default(),
        devices,
        header.engine,
        header.precision,
    )
}

/// `epoch 3, step 96: validation loss 0.01234, accuracy 93.4 %`.
pub(super) fn validation(row: &ValidationRow) -> String {
    let accuracy = row.accuracy.map(|a| format!(", accuracy {}", units::percent(a))).unwrap_or_default();
    let scores = row.scores.iter().map(|(name, value)| format!(", {name} {}", units::number(*value)));
    let (epoch, step) = (units::count(row.epoch), units::count(row.step));
    let scores = scores.collect::<String>();
    format!("epoch {epoch}, step {step}: validation loss {}{accuracy}{scores}", units::number(row.loss))
}

/// `finished after 320 steps in 10 epochs, 12.3 ms: reason`; without training, `finished after 12.3 ms`.
pub(super) fn ended(outcome: &Outcome) -> String {
    let reason = outcome.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let epochs = outcome.epochs.map(|epochs| {
        format!("{} in {}, ", units::counted(outcome.steps, "step"), units::counted(epochs, "epoch"))
    });
    let (status, epochs) = (outcome.status.name(), epochs.unwrap_or_default());
    // Without validation, as the closing table has it.
    format!("{status} after {epochs}{}{reason}", units::seconds(outcome.train_s))
}

/// The warning shown next to times from such a build.
pub fn of_build(build: &str) -> Option<&'static str> {
    (build == "debug").then_some("debug: its times say nothing of a release build (`cargo build --release`)")
}

/// Explains why no model was written, to follow "no model was written", and names the command that exports
/// the last usable checkpoint, if there is one.
pub(super) fn no_model(outcome: &Outcome, folder: &Path) -> Option<String> {
    let (why, before) = match outcome.no_model? {
        // A step's loss belongs to the weights before the step, so the last good weights are those before the
        // last step but one.
        NoModel::Diverged => ("", 2),
        // Every loss was checked and finite, so the last update made the weights not finite.
        NoModel::NotFinite => (": not all weights are finite numbers", 1),
        NoModel::Device => (": after a device failure we cannot tell which step its parameters belong to", 0),
        NoModel::Unread => (": the device does not give its parameters back", 0),
    };
    let is_known = match outcome.status {
        Status::Diverged => true,
        Status::Finished => outcome.no_model == Some(NoModel::NotFinite),
        _ => false,
    };
    let again = match outcome.steps.saturating_sub(before) {
        steps if steps > 0 && is_known => {
            let spec = folder.join("spec.toml").display().to_string();
            let command = command_line(["runner", &spec, &format!("trainer.max_steps={steps}")]);
            format!(". For the weights after step {}: {command}", units::count(steps))
        }
        _ => String::new(),
    };
    Some(format!("{why}{again}"))
}

/// What checkpoints cost the training, if it made any.
pub(super) fn checkpoints(outcome: &Outcome) -> Option<String> {
    let is_wait = |row: &&PhaseTime| (row.phase, row.clock) == ("checkpoint", "host");
    let row = outcome.timing.iter().find(is_wait)?;
    let left_out = match outcome.checkpoints_left_out {
        0 => String::new(),
        n => format!("; {} left out", units::count(n)),
    };
    let (count, waited) = (units::count(row.count), units::seconds(row.total_s));
    Some(format!("{count}{}, for which training waited {waited}{left_out}", since_resume(outcome)))
}

/// What phases took, and the curve of validations, are known of the last part of a run alone, unlike its steps and losses.
pub(super) fn since_resume(outcome: &Outcome) -> &'static str {
    if outcome.earlier_s > 0.0 { " since the resume" } else { "" }
}

/// What bounds a run, in a few words. For a run that is over before it has done much, this is its start and
/// its files.
pub(super) fn bound_by(outcome: &Outcome, wall_s: f64) -> Option<String> {
    let outside = 1.0 - outcome.loop_s / wall_s.max(f64::MIN_POSITIVE);
    if outcome.status == Status::Diverged || outcome.steps == 0 {
        return None;
    }
    if outside >= MOSTLY {
        return Some(format!(
            "start-up and files, {} of {}",
            units::percent(outside),
            units::seconds(wall_s)
        ));
    }
    let account = outcome.account.as_ref()?;
    let largest = account.shares.first()?;
    let part = units::percent(account.part(largest));
    let waited = account.shares.iter().find(|share| share.cause == Bottleneck::Core);
    let waited = waited.map(|share| account.part(share)).filter(|part| *part >= MUCH);
    let busy = match (outcome.load.filter(Load::is_busy), waited) {
        (Some(_), _) => "; the machine was busy with others".to_owned(),
        (None, Some(part)) => format!("; {} went into waiting for a core", units::percent(part)),
        (None, None) => String::new(),
    };
    let part = format!("{part} of the training time{}", since_resume(outcome));
    Some(match largest.cause {
        Bottleneck::Unexplained if outcome.loop_s < SHORT_S => {
            format!("not known of so short a run: {part} is spread over what is not measured{busy}")
        }
        Bottleneck::Unexplained => format!("nothing that was measured: {part} has no known cause{busy}"),
        // Include what other processes used.
        Bottleneck::Core => format!("{}, {part}", cause(largest.cause, account.processor)),
        known => format!("{}, {part}{busy}", cause(known, account.processor)),
    })
}

/// A short name of what takes the time.
pub fn cause(cause: Bottleneck, processor: Processor) -> &'static str {
    match cause {
        Bottleneck::Arithmetic => "arithmetic",
        Bottleneck::Memory => "memory",
        Bottleneck::Overhead => match processor {
            Processor::Cpu => "call overhead",
            Processor::Gpu => "launch latency",
            Processor::GpuWalk => "barriers",
        },
        Bottleneck::Latency => "latency",
        Bottleneck::AllReduce => "all-reduce",
        // The CPU's memory is the host's: nothing moves.
        Bottleneck::Transfer if processor == Processor::Cpu => "preparing rows",
        Bottleneck::Transfer => "transfer",
        Bottleneck::File => "file reads",
        Bottleneck::Log => "log",
        Bottleneck::Checkpoint => "checkpoints",
        Bottleneck::Core => "waiting for a core",
        Bottleneck::PageFaults => "page faults",
        Bottleneck::Idle => "an idle GPU",
        Bottleneck::Unexplained => "unexplained",
    }
}

/// Details of a run, shown in `run.log` and on the console with `-v`.
pub(super) fn details(header: &Header, outcome: &Outcome) -> Vec<String> {
    if header.lab.is_some() {
        return Vec::new();
    }
    let logging = logging_share(outcome)
        .map(|share| format!("logging took {} of the training time", units::percent(share)));
    let profiler = profiler_overhead(outcome).map(|words| format!("profiler overhead: {words}"));
    let account = outcome.account.as_ref();
    let time =
        account.map(|account| format!("training time{}: {}", since_resume(outcome), time_account(account)));
    let advice = account.and_then(|account| account.fewer_reads).map(fewer_reads);
    let busy = outcome.load.as_ref().and_then(busy);
    [logging, profiler, time, busy, advice].into_iter().flatten().collect()
}

/// `log 64.0 %, unexplained 25.0 %, ...; a step takes 0.76 µs, 4.0x its estimate by measured rates`.
fn time_account(account: &TimeAccount) -> String {
    let shares = account.shares.iter().map(|share| {
        let part = units::percent(account.part(share));
        format!("{} {part}", cause(share.cause, account.processor))
    });
    format!(
        "{}; a step takes {}, {:.1}x its estimate by {} rates ({})",
        shares.collect::<Vec<_>>().join(", "),
        units::seconds(account.step_s),
        account.distance(),
        account.origin.name(),
        units::seconds(account.least_s),
    )
}

/// How to wait less often for losses, with the counts behind the advice.
fn fewer_reads(advice: FewerReads) -> String {
    let FewerReads { is_buffered, reads, instead } = advice;
    let way = match is_buffered {
        true => "leave `logging.flush_every` out",
        false => "set `logging.policy=buffered`",
    };
    let instead = units::counted(instead, "time");
    format!("to wait {instead} for the log instead of {}, {way}", units::count(reads))
}

/// `other processes used 0.90 of 2 cores`; `None` where that was little.
pub fn others_used(load: &Load) -> Option<String> {
    let cores = load.others_cores + load.stolen_cores;
    let all = units::counted(load.cores as u64, "core");
    load.is_busy().then(|| format!("other processes used {cores:.2} of {all}"))
}

/// How much of a run's time, 0 to 1, its main thread had no core; `None` where that was little.
pub fn waited_for_a_core(share: f64) -> Option<String> {
    (share >= MUCH).then(|| format!("{} of the time went into waiting for a core", units::percent(share)))
}

/// Why times compare nothing: what other processes used of the cores. `None` where they left enough of them.
pub fn too_busy(others: f64) -> Option<String> {
    let used = units::percent(others);
    above(others, || format!("other processes used {used} of the cores meanwhile"))
}

/// The same of runs too short to count that, by how long they waited for a core.
pub fn waited_too_long(share: f64) -> Option<String> {
    above(share, || {
        format!("{} of the time of short runs went into waiting for a core", units::percent(share))
    })
}

fn above(share: f64, words: impl FnOnce() -> String) -> Option<String> {
    let most = units::percent(TOO_BUSY);
    (share > TOO_BUSY).then(|| format!("{}, more than {most}; try again while the machine is quiet", words()))
}

/// What others did with the machine during a run; `None` where that was little.
fn busy(load: &Load) -> Option<String> {
    let mut words = Vec::new();
    words.extend(others_used(load));
    if load.throttles > 0 {
        words.push("the processor was thermally throttled".to_owned());
    }
    if load.withheld_s > 0.0 {
        let withheld = units::seconds(load.withheld_s);
        words.push(format!("the cgroup's CPU quota throttled this process for {withheld}"));
    }
    (!words.is_empty())
        .then(|| format!("in the last {}, {}", units::seconds(load.window_s), words.join(", ")))
}

/// `0.08 % of the time: 10,000 readings of the clock at 0.04 µs`.
fn profiler_overhead(outcome: &Outcome) -> Option<String> {
    let cost = outcome.instrument;
    (outcome.loop_s > 0.0 && cost.readings > 0).then(|| {
        format!(
            "{} of the time: {} of the clock at {:.0} ns",
            units::percent(cost.total_s() / outcome.loop_s),
            units::counted(cost.readings, "reading"),
            cost.each_s * 1e9
        )
    })
}

/// The devices that train and, if it differs, what was requested.
pub fn devices_in_words(asked: &str, devices_used: &[String]) -> String {
    let used = devices_used.join(", ");
    let on_cpu = devices_used.iter().all(|device| device == "cpu");
    match asked.parse::<usize>() {
        Ok(0) if on_cpu => used,
        Ok(n) if !on_cpu && n == devices_used.len() => used,
        Ok(n) => format!("{used} (asked for {})", units::counted(n as u64, "GPU")),
        Err(_) if asked == "all" && !on_cpu => used,
        Err(_) if asked == "all" => format!("{used} (asked for all GPUs)"),
        Err(_) if asked == devices_used.join(";") => used,
        Err(_) => format!("{used} (asked for {})", asked.replace(';', ", ")),
    }
}

/// Whether this status means that the run failed.
pub(super) fn is_fault(status: Status) -> bool {
    matches!(status, Status::Failed | Status::Diverged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_say_what_was_asked_where_it_is_something_else() {
        let words = |asked: &str, used: &[&str]| {
            devices_in_words(asked, &used.iter().map(|&d| d.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(words("0", &["cpu"]), "cpu");
        assert_eq!(words("1", &["cpu"]), "cpu (asked for 1 GPU)");
        assert_eq!(words("4", &["gpu:0", "gpu:1"]), "gpu:0, gpu:1 (asked for 4 GPUs)");
        assert_eq!(words("2", &["gpu:0", "gpu:1"]), "gpu:0, gpu:1");
        assert_eq!(words("all", &["cpu"]), "cpu (asked for all GPUs)");
        assert_eq!(words("all", &["gpu:0"]), "gpu:0");
        assert_eq!(words("cpu", &["cpu"]), "cpu");
        assert_eq!(words("gpu:1;gpu:2", &["virtual:1"]), "virtual:1 (asked for gpu:1, gpu:2)");
    }
}
