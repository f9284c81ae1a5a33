//! The closing lines on steps and their speed: of all parts of a run, and of the last one alone.

use super::super::{messages, summary::per_second};
use crate::{
    event::{Header, Outcome},
    units,
};

/// The lines with their titles.
pub(super) fn rows(header: &Header, outcome: &Outcome) -> Vec<(&'static str, String)> {
    let [steps_here, speed_here] = since_resume(header, outcome).unwrap_or_default();
    let (steps, train_s) = (units::count(outcome.steps), units::seconds(outcome.train_s));
    let mut rows = vec![match outcome.epochs {
        Some(epochs) => {
            ("steps", format!("{steps} in {}, {train_s}{steps_here}", units::counted(epochs, "epoch")))
        }
        None => ("steps", format!("{steps} were recorded")),
    }];
    let per_second = |count: u64| per_second(count, outcome.train_s);
    let rates = (per_second(outcome.steps), outcome.samples.and_then(per_second));
    if let (Some(steps), Some(samples)) = rates {
        // Virtual devices share the host's cores.
        let of = if header.virtual_devices { ", of virtual devices" } else { "" };
        let (steps, samples) = (units::rate(steps), units::rate(samples));
        rows.push(("speed", format!("{steps} steps/s, {samples} rows/s{of}{speed_here}")));
    }
    rows
}

/// What follows the steps and the speed of a run that was resumed and took a step since.
fn since_resume(header: &Header, outcome: &Outcome) -> Option<[String; 2]> {
    let steps = outcome.steps.checked_sub(header.resumed_after?).filter(|steps| *steps > 0)?;
    let seconds = outcome.train_s - outcome.earlier_train_s;
    let (since, speed) = (messages::since_resume(outcome), per_second(steps, seconds)?);
    Some([
        format!("; {} in {}{since}", units::count(steps), units::seconds(seconds)),
        format!("; {} steps/s{since}", units::rate(speed)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    /// Of 10 s for 100 steps, 5 s were for the 20 since the resume.
    #[test]
    fn what_was_done_since_a_resume() {
        let header = Header { resumed_after: Some(80), ..sample::header() };
        let outcome = Outcome {
            steps: 100,
            samples: Some(3_200),
            epochs: Some(4),
            earlier_s: 6.0,
            earlier_train_s: 5.0,
            train_s: 10.0,
            ..sample::outcome()
        };
        let wanted = [
            ("steps", "100 in 4 epochs, 10.0 s; 20 in 5.00 s since the resume".to_owned()),
            ("speed", "10.00 steps/s, 320.0 rows/s; 4.000 steps/s since the resume".to_owned()),
        ];
        assert_eq!(rows(&header, &outcome), wanted);
        // A signal may come before the first step.
        let none = Header { resumed_after: Some(100), ..header };
        assert_eq!(rows(&none, &outcome)[0].1, "100 in 4 epochs, 10.0 s");
    }
}
