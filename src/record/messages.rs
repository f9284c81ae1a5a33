//! What the log and the console say of a run, in the same words.

use crate::{
    event::{Header, NoModel, Outcome, Status, ValidationRow},
    plan::{Origin, Verdict},
    units,
};

/// From this part of a run's wall time on, what lies outside of its training is what bounds it.
const MOSTLY: f64 = 0.5;

/// `linreg: 10 epochs of 1,000 rows, 320 steps, on cpu (asked for 1 GPU), engine serial, f32`.
pub(super) fn started(name: &str, header: &Header) -> String {
    let devices = devices_in_words(&header.devices_requested, &header.devices_used);
    if let Some(what) = &header.lab {
        return format!("{name}: {what}, on {devices}");
    }
    let most =
        header.max_time_s.map(|most| format!("at most {}, ", units::seconds(most))).unwrap_or_default();
    format!(
        "{name}: {most}{} of {}, {}, on {}, engine {}, {}",
        units::counted(header.epochs_planned, "epoch"),
        units::counted(header.train_rows, "row"),
        units::counted(header.steps_planned, "step"),
        devices,
        header.engine,
        header.precision,
    )
}

/// `epoch 3, step 96: validation loss 0.01234, accuracy 93.4 %`.
pub(super) fn validation(row: &ValidationRow) -> String {
    let accuracy = row.accuracy.map(|a| format!(", accuracy {}", units::percent(a))).unwrap_or_default();
    let (epoch, step) = (units::count(row.epoch), units::count(row.step));
    format!("epoch {epoch}, step {step}: validation loss {}{accuracy}", units::number(row.loss))
}

/// `finished after 320 steps in 10 epochs, 12.3 ms: reason`; without training, `finished after 12.3 ms`.
pub(super) fn ended(outcome: &Outcome) -> String {
    let reason = outcome.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let epochs = outcome.epochs.map(|epochs| {
        format!("{} in {}, ", units::counted(outcome.steps, "step"), units::counted(epochs, "epoch"))
    });
    let (status, epochs) = (outcome.status.name(), epochs.unwrap_or_default());
    format!("{status} after {epochs}{}{reason}", units::seconds(outcome.loop_s))
}

/// What is to be said wherever times are shown of a program that was built so.
pub(crate) fn of_build(build: &str) -> Option<&'static str> {
    (build == "debug").then_some("debug: its times say nothing of a release build (`cargo build --release`)")
}

const NOT_FINITE: &str = "not all weights are finite numbers";

/// Why no model was written and, where there is one, the way to get the last that can be.
pub(super) fn no_model(outcome: &Outcome) -> Option<String> {
    let (why, before) = match outcome.no_model? {
        // The loss of a step is that of the weights before it: the last that is finite is of those before the last step but one.
        NoModel::Diverged => ("weights that have no finite loss mean nothing", 2),
        // Every loss was looked at: it is the last update that made them.
        NoModel::NotFinite if outcome.status == Status::Finished => (NOT_FINITE, 1),
        NoModel::NotFinite => return Some(NOT_FINITE.to_owned()),
        NoModel::Device => {
            return Some("of which step the parameters of a device that failed are is not known".to_owned());
        }
        NoModel::Unread => return Some("the device does not give its parameters back".to_owned()),
    };
    Some(match outcome.steps.saturating_sub(before) {
        0 => why.to_owned(),
        steps => format!(
            "{why}; the command in `spec.toml` with `trainer.max_steps={steps}` writes the last whose loss is finite"
        ),
    })
}

/// What bounds a run: of one that is over before it has done much, its start and its files; what bounds its training comes
/// after that.
pub(super) fn bound_by(outcome: &Outcome, wall_s: f64) -> Option<String> {
    let training = outcome.verdict.as_ref().map(verdict);
    let outside = 1.0 - outcome.loop_s / wall_s.max(f64::MIN_POSITIVE);
    if outside < MOSTLY || outcome.steps == 0 {
        return training;
    }
    let longer = outcome.longer.map(|longer| format!("{}, or ", longer.words())).unwrap_or_default();
    let start = format!(
        "start-up and files, {} of {}; first: {longer}several trials in one sweep",
        units::percent(outside),
        units::seconds(wall_s)
    );
    Some(match training {
        Some(training) => format!("{start}. The training itself: {training}"),
        None => start,
    })
}

/// `log, 64.0 % of the time; a step of 0.76 µs is 4.0x its lower_bound by measured rates; first: ...`.
pub(super) fn verdict(verdict: &Verdict) -> String {
    format!(
        "{}, {} of the time; a step of {} is {:.1}x its floor by {}; first: {}",
        verdict.limit_name,
        units::percent(verdict.share),
        units::seconds(verdict.step_s),
        verdict.distance(),
        rates(verdict.origin, verdict.file_origin),
        verdict.advice
    )
}

/// `typical rates`; where rows come from a file, `typical rates and measured ones of the file`.
pub(crate) fn rates(machine: Origin, file: Option<Origin>) -> String {
    let name = machine.name();
    match file {
        None => format!("{name} rates"),
        Some(file) if file == machine => format!("{name} rates of machine and file"),
        Some(file) => format!("{name} rates of the machine and {} ones of the file", file.name()),
    }
}

/// `0.08 % of the time: 10,000 readings of the clock at 0.04 µs`.
pub(super) fn instrument(outcome: &Outcome) -> Option<String> {
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

/// The devices that train and, where it is something else, what was asked for.
pub(crate) fn devices_in_words(asked: &str, devices_used: &[String]) -> String {
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

/// Whether a run that ends so has failed.
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
