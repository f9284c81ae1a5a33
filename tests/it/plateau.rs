//! A rate that falls when validations no longer improve; `parity.rs` compares it with PyTorch's.

use super::{
    process::Sandbox,
    remarks::{place, warned},
    resume::SPEC,
};

/// A rate that falls with each validation that is not better than the best by a tenth.
const FALLS: &str = "schedule.plateau={ factor = 0.5, patience = 0, threshold = 0.1 }";

/// The learning rates of a run's steps, the shortest list that has them in order.
fn rates(run: &super::process::Folder) -> Vec<String> {
    let metrics = run.metrics();
    let mut rates: Vec<String> =
        metrics.column("lr").iter().filter(|lr| !lr.is_empty()).map(|lr| (*lr).to_owned()).collect();
    rates.dedup();
    rates
}

#[test]
fn the_log_has_a_line_for_each_fall_of_the_rate() {
    let place = Sandbox::new(SPEC);
    let run = place.run(&[FALLS, "logging.metrics=[loss,lr]", "trainer.max_epochs=12"]).ended_by(0);
    let rates = rates(&run);
    assert!(rates.len() > 2, "{rates:?}");
    let log = run.text("run.log");
    let lines: Vec<&str> =
        log.lines().filter_map(|line| Some(line.split_once("the learning rate falls from ")?.1)).collect();
    for (line, pair) in lines.iter().zip(rates.windows(2)) {
        let wanted = format!(
            "{} to {}: 1 validation without an improvement on a validation loss of ",
            pair[0], pair[1]
        );
        assert!(line.starts_with(&wanted), "{line}\n{wanted}");
    }
    // The last validation may be one of them.
    assert!([rates.len() - 1, rates.len()].contains(&lines.len()), "{rates:?}\n{log}");
}

/// Each takes the rates from the process that judges.
#[test]
fn several_devices_have_the_rates_of_one() {
    let place = Sandbox::new(SPEC);
    let arguments = [FALLS, "logging.metrics=[loss,lr]", "trainer.max_epochs=12"];
    let one = rates(&place.run(&arguments).ended_by(0));
    assert!(one.len() > 2, "{one:?}");
    for count in ["2", "3"] {
        let devices = ["--virtual-gpus", count, &format!("devices.num_gpus={count}")];
        assert_eq!(rates(&place.run(&[&arguments[..], &devices].concat()).ended_by(0)), one, "{count}");
    }
}

#[test]
fn check_says_that_the_rate_follows_validations() {
    for (schedule, wanted) in [
        (
            "schedule.plateau={}",
            "lr 0.05 at first, times 0.1 after more than 10 validations without a better loss: plateau",
        ),
        (
            "schedule.chain=[{ steps = 10, linear = { start_factor = 0.1 } }, { plateau = { patience = 1, metric = \"validation.mae\" } }]",
            "lr 0.005 at first, at most 0.05, times 0.1 after more than 1 validation without a better mae: linear, then plateau",
        ),
    ] {
        let check = Sandbox::new(SPEC).runner(&["check", "spec.toml", schedule, "trainer.max_epochs=20"]);
        assert_eq!((check.code, check.stderr.as_str()), (Some(0), ""));
        let line = check.stdout.lines().find_map(|line| line.strip_prefix("  optimizer  ")).unwrap();
        assert_eq!(line, format!("adam, {wanted}"));
    }
}

#[test]
fn a_plateau_that_never_changes_the_rate_is_warned_of() {
    let place = place(100);
    let plateau = |keys: &str| format!("schedule.plateau={{ {keys} }}");
    warned(&place, &[&plateau("patience = 0")], &[]);
    let never = "the plateau of `schedule.plateau` never changes the rate: it";
    warned(
        &place,
        &[&plateau("patience = 1")],
        &[&format!("{never} would after 3 validations, and the run validates 3 times")],
    );
    warned(
        &place,
        &[&plateau("patience = 0, min_lr = 0.02")],
        &[&format!("{never} is 0.01, with a `min_lr` of 0.02 and an `eps` of 1e-8")],
    );
    let interval = "`schedule.interval` has no effect: a plateau counts validations";
    warned(&place, &[&plateau("patience = 0"), "schedule.interval=epoch"], &[interval]);
}

/// It is refused, as the final model has no validations; parity takes steps without any.
#[test]
fn what_has_no_validations_has_no_plateau() {
    let place = Sandbox::new(SPEC);
    let run = place.run(&[FALLS, "trainer.max_epochs=2"]).ended_by(0);
    let refit = place.runner(&["refit", run.0.to_str().unwrap(), "-q"]);
    assert_eq!(
        (refit.code, refit.stderr.as_str()),
        (
            Some(2),
            "error: `schedule.plateau`: a plateau follows validations, and the final model has none\n  \
             = hint: `'~schedule'` after RUN trains at a constant rate, and `'~schedule.plateau' \
             'schedule.multi_step={ milestones = [800, 1200] }'` reduces it after the steps that you name\n"
        )
    );
    for others in [&["~schedule"][..], &["~schedule.plateau", "schedule.multi_step={ milestones = [8, 12] }"]]
    {
        let refit = place.runner(&[&["refit", run.0.to_str().unwrap(), "-q"], others].concat());
        assert_eq!((refit.code, refit.stderr.as_str()), (Some(0), ""), "{others:?}");
    }
    let parity = place.runner(&["parity", "spec.toml", "--virtual-gpus", "2", "--steps", "8", FALLS]);
    assert_eq!((parity.code, parity.stderr.as_str()), (Some(0), ""), "{}", parity.stdout);
    let note = "the learning rate is constant: a plateau follows validations, of which there are none";
    assert!(parity.stdout.contains(note), "{}", parity.stdout);
}
