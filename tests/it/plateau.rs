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
    // After a warm-up it judges what follows: 3 steps to an epoch, validations after steps 3, 6 and 9.
    let chain = |steps: u64| {
        format!("schedule.chain=[{{ steps = {steps}, linear = {{}} }}, {{ plateau = {{ patience = 0 }} }}]")
    };
    warned(&place, &[&chain(2)], &[]);
    let after = "the plateau of `schedule.chain` never changes the rate: it would after 2 validations, and the run validates twice after step 3";
    warned(&place, &[&chain(3)], &[after]);
    warned(&place, &[&chain(1), "schedule.interval=epoch"], &[after]);
    let reached = "`schedule.chain.1` is never reached: it begins after 9 steps, and the run takes 9";
    warned(&place, &[&chain(9)], &[reached]);
    let interval = "`schedule.interval` has no effect: a plateau counts validations";
    warned(&place, &[&plateau("patience = 0"), "schedule.interval=epoch"], &[interval]);
}

/// Epochs with the rate of their steps, each once.
fn rates_of_epochs(run: &super::process::Folder) -> Vec<(String, String)> {
    let train = run.metrics().only("split", "train");
    let pairs = train.column("epoch").into_iter().zip(train.column("lr"));
    let mut pairs: Vec<_> = pairs.map(|(epoch, lr)| (epoch.to_owned(), lr.to_owned())).collect();
    pairs.dedup();
    pairs
}

/// It is refused, as the final model has no validations, and the hint's schedule has the rates of the run.
#[test]
fn a_final_model_without_validations_has_no_plateau() {
    let place = Sandbox::new(SPEC);
    let falls = FALLS.replace("threshold = 0.1", "threshold = 0.5, cooldown = 1");
    let run = place.run(&[&falls, "logging.metrics=[loss,lr]", "trainer.max_epochs=12"]).ended_by(0);
    let (path, rates) = (run.0.to_str().unwrap(), rates_of_epochs(&run));
    let best: usize = run.summary("best_epoch").parse().unwrap();
    let falls: Vec<usize> = (1..best).filter(|epoch| rates[*epoch].1 != rates[epoch - 1].1).collect();
    assert!(falls.len() > 1, "{best} {rates:?}");
    let listed: Vec<String> = falls.iter().map(usize::to_string).collect();
    let (last, rest) = listed.split_last().unwrap();
    let schedule = format!(
        "schedule={{ interval = \"epoch\", multi_step = {{ milestones = [{}], gamma = 0.5 }} }}",
        listed.join(", ")
    );
    let refit = place.runner(&["refit", path, "-q"]);
    let wanted = format!(
        "error: `schedule.plateau`: a plateau follows validations, and the final model has none\n  = hint: `'~schedule'` after \
         RUN trains at a constant rate, and `'{schedule}'` reduces it as it fell in the run, after epochs {} and {last}; the \
         plateau stays if rows validate: set aside some, such as `data.synthetic_regression.validation_rows = 1000`\n",
        rest.join(", ")
    );
    assert_eq!((refit.code, refit.stderr.as_str()), (Some(2), wanted.as_str()));
    // A key of the plateau names no other schedule.
    for word in ["schedule.plateau.factor=0.9", "schedule.interval=epoch"] {
        let refit = place.runner(&["refit", path, "-q", word]);
        assert_eq!((refit.code, refit.stderr.as_str()), (Some(2), wanted.as_str()), "{word}");
    }
    for (words, name) in [(&[schedule.as_str()][..], "falls"), (&["~schedule"], "constant")] {
        let ended = place.runner(&[&["refit", path, "-q", "--runs-dir", name], words].concat());
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{words:?}");
    }
    let last = super::process::Folder::within(&place.path().join("falls")).unwrap();
    assert_eq!(rates_of_epochs(&last), rates[..best]);
    // Falls after the end of a shorter model are none of its own: of epochs, of steps, and where several lengths are swept.
    let steps = falls[0] * (run.summary("steps").parse::<usize>().unwrap() / 12);
    for (length, unit, first) in [
        (format!("trainer.max_epochs={}", falls[0] + 1), "epoch", Some(falls[0])),
        (format!("trainer.max_epochs={}", falls[0]), "epoch", None),
        (format!("trainer.max_steps={}", steps + 1), "step", Some(steps)),
        (format!("trainer.max_steps=1,{steps}"), "step", None),
    ] {
        let way = match first {
            None => "as that of the run was for as long".to_owned(),
            Some(first) => {
                let interval = if unit == "epoch" { "interval = \"epoch\", " } else { "" };
                format!(
                    "and `'schedule={{ {interval}multi_step = {{ milestones = [{first}], gamma = 0.5 }} }}'` reduces it as it \
                     fell in the run, after {unit} {first}"
                )
            }
        };
        let wanted = format!(
            "error: `schedule.plateau`: a plateau follows validations, and the final model has none\n  = hint: `'~schedule'` after \
             RUN trains at a constant rate, {way}; the plateau stays if rows validate: set aside some, such as \
             `data.synthetic_regression.validation_rows = 1000`\n",
        );
        let refit = place.runner(&["refit", path, "-q", &length]);
        assert_eq!((refit.code, refit.stderr.as_str()), (Some(2), wanted.as_str()), "{length}");
    }
}

/// Where one `multi_step` cannot do as the plateau did, the hint says where the rate fell, and no more.
#[test]
fn a_plateau_that_no_multi_step_repeats_is_told_by_its_falls() {
    let plateau = "{ factor = 0.5, patience = 0, threshold = 0.5, cooldown = 1";
    let chain = format!("schedule.chain=[{{ steps = 2, linear = {{}} }}, {{ plateau = {plateau} }} }}]");
    for (lr, schedule, key, unit, way) in [
        (
            "0.05",
            format!("schedule.plateau={plateau}, min_lr = 0.02 }}"),
            "schedule.plateau",
            "epoch",
            "and that of the run fell, not always to 0.5 of what it was",
        ),
        (
            "0.02",
            chain,
            "schedule.chain",
            "step",
            "and a stage of a chain counts its own steps; the rate fell by those of the run",
        ),
    ] {
        let place = Sandbox::new(SPEC);
        let lr = format!("optimizer.adam.lr={lr}");
        let run =
            place.run(&[&schedule, &lr, "logging.metrics=[loss,lr]", "trainer.max_epochs=12"]).ended_by(0);
        let best: u64 = run.summary("best_epoch").parse().unwrap();
        let train = run.metrics().only("split", "train");
        let number = |name: &str| -> Vec<f64> {
            train.column(name).iter().map(|cell| cell.parse().unwrap()).collect()
        };
        let [epochs, steps, rates] = ["epoch", "step", "lr"].map(number);
        let falls =
            (1..rates.len()).filter(|row| rates[*row] < rates[row - 1] && epochs[row - 1] < best as f64);
        let falls: Vec<String> = falls
            .map(|row| if unit == "epoch" { epochs[row - 1] } else { steps[row - 1] }.to_string())
            .collect();
        assert!(falls.len() > 1, "{best} {rates:?}");
        let (last, rest) = falls.split_last().unwrap();
        let refit = place.runner(&["refit", run.0.to_str().unwrap(), "-q"]);
        let wanted = format!(
            "error: `{key}`: a plateau follows validations, and the final model has none\n  = hint: `'~schedule'` after RUN \
             trains at a constant rate, {way}, after {unit}s {} and {last}; the plateau stays if rows validate: set aside some, \
             such as `data.synthetic_regression.validation_rows = 1000`\n",
            rest.join(", ")
        );
        assert_eq!((refit.code, refit.stderr.as_str()), (Some(2), wanted.as_str()));
    }
}

/// With rows that validate after all, the final model has a plateau as the run has.
#[test]
fn a_final_model_with_validations_keeps_the_plateau() {
    let place = Sandbox::new(SPEC);
    let run = place.run(&[FALLS, "trainer.max_epochs=3"]).ended_by(0);
    let rows = "data.synthetic_regression.validation_rows=20";
    let refit = place.runner(&["refit", run.0.to_str().unwrap(), rows, "-q", "--runs-dir", "more"]);
    assert_eq!((refit.code, refit.stderr.as_str()), (Some(0), ""));
    let spec = super::process::Folder::within(&place.path().join("more")).unwrap().text("spec.toml");
    assert!(spec.contains("[schedule.plateau]\n") && spec.contains("validation_rows = 20\n"), "{spec}");
}

/// Parity takes steps without any.
#[test]
fn what_has_no_validations_has_no_plateau() {
    let place = Sandbox::new(SPEC);
    let parity = place.runner(&["parity", "spec.toml", "--virtual-gpus", "2", "--steps", "8", FALLS]);
    assert_eq!((parity.code, parity.stderr.as_str()), (Some(0), ""), "{}", parity.stdout);
    let note = "the learning rate is constant: a plateau follows validations, of which there are none";
    assert!(parity.stdout.contains(note), "{}", parity.stdout);
}
