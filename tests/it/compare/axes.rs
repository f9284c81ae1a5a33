//! Which axis matters, where the settings are no complete grid: sums whose shares are known.

use super::{Runs, answer::learned};

/// A trial: its axes' values, how it ended, its best loss.
pub(super) type Trial = (Vec<String>, &'static str, f64);

pub(super) fn sweep(runs: &Runs, axes: &[&str], trials: &[Trial]) {
    let mut rows = format!("trial,{},status,folder,reason\n", axes.join(","));
    for (trial, (values, status, loss)) in trials.iter().enumerate() {
        let summary =
            format!("run,status,devices_used,best_value,best_epoch\n{trial},{status},cpu,{loss},7\n");
        runs.write(&format!("S/{trial:03}/summary.csv"), &summary);
        let keys: String = axes
            .iter()
            .zip(values)
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| format!("{key} = \"{value}\"\n"))
            .collect();
        runs.write(&format!("S/{trial:03}/spec.toml"), &format!("seed = 0\n{keys}"));
        rows += &format!("{trial},{},{status},{trial:03},\n", values.join(","));
    }
    runs.write("S/sweep.csv", &rows);
    runs.write("S/sweep.toml", "[sweep.stop]\nasha = { min_epochs = 3, factor = 4 }\n");
}

/// What is said of the axes: the first line, and a name with its share in per cent for each further one.
fn said(runs: &Runs) -> (String, Vec<(String, f64)>) {
    let text = runs.answer(&["S"], 120);
    let part = text.split("\n\n").find(|part| part.starts_with("which axis matters")).unwrap();
    let share = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next().unwrap().to_owned(), words.next().unwrap().parse().unwrap())
    };
    let mut lines = part.lines();
    (lines.next().unwrap().to_owned(), lines.map(share).collect())
}

/// Forty points that fill a square: Halton's, in the bases 2 and 3.
fn plane() -> Vec<[f64; 2]> {
    let reversed = |mut number: u32, base: u32| {
        let (mut value, mut digit) = (0.0, 1.0);
        while number > 0 {
            digit /= f64::from(base);
            value += digit * f64::from(number % base);
            number /= base;
        }
        value
    };
    (1..41).map(|i| [reversed(i, 2), reversed(i, 3)]).collect()
}

/// Twice one axis and once another have 4/5 and 1/5 of the variance.
fn drawn(status: impl Fn(usize) -> &'static str, loss: impl Fn([f64; 2]) -> f64) -> Vec<Trial> {
    let trial = |(trial, at): (usize, [f64; 2])| {
        (vec![(1e-4 * 1000_f64.powf(at[0])).to_string(), at[1].to_string()], status(trial), loss(at))
    };
    plane().into_iter().enumerate().map(trial).collect()
}

fn near(found: &[(String, f64)], wanted: &[(&str, f64)]) {
    assert_eq!(found.len(), wanted.len(), "{found:?}");
    for ((name, share), (wanted_name, wanted)) in found.iter().zip(wanted) {
        assert!(name == wanted_name && (share - wanted).abs() < 6.0, "{found:?}");
    }
}

#[test]
fn drawn_settings_have_an_estimate() {
    let runs = Runs::new();
    sweep(&runs, &["optimizer.sgd.lr", "decay"], &drawn(|_| "finished", |at| 2.0 * at[0] + at[1]));
    let (title, shares) = said(&runs);
    assert_eq!(
        title,
        "which axis matters, estimated from 40 settings: shares of the variance of ranks, medians by value"
    );
    near(&shares, &[("lr", 80.0), ("decay", 20.0), ("rest", 0.0)]);
}

/// Drawn settings with the losses of their seeds.
fn repeated(runs: &Runs, settings: usize, losses: impl Fn(usize, [f64; 2]) -> Vec<f64>) {
    let drawn = plane().into_iter().take(settings).enumerate();
    let drawn = drawn.map(|(i, at)| (at[0].to_string(), at[1].to_string(), losses(i, at)));
    let drawn: Vec<(String, String, Vec<f64>)> = drawn.collect();
    let settings: Vec<(&str, &str, &[f64])> =
        drawn.iter().map(|(lr, width, losses)| (&**lr, &**width, &losses[..])).collect();
    learned(runs, "a", &settings);
}

/// What is counted, left out and shuffled is settings. Each of these twelve has its own loss in all its seeds, which looks like
/// chance over the axes.
#[test]
fn seeds_of_a_setting_count_once() {
    let runs = Runs::new();
    repeated(&runs, 40, |i, at| {
        let loss = 2.0 * at[0] + at[1];
        // The mean stays, and every other setting has a seed more.
        [vec![loss - 0.01, loss + 0.01], vec![loss; i % 2]].concat()
    });
    let text = runs.answer(&["a"], 120);
    let shares = "which axis matters, estimated from 40 settings over the 2 seeds that all settings share: shares of the variance of \
                  ranks, medians by value\n  lr     8";
    assert!(text.contains(shares), "{text}");
    let runs = Runs::new();
    repeated(&runs, 12, |i, _| (0..5).map(|seed| (5 * i % 12) as f64 + 0.01 * f64::from(seed)).collect());
    let text = runs.answer(&["a"], 120);
    let unknown = "\nwhich axis matters is not known: 12 settings do not tell what the axes do from chance\n";
    assert!(text.ends_with(unknown), "{text}");
}

/// One axis whose values have 3, 2 and 3 seeds: the seeds that all have count, or one setting would be of harder seeds. By hand: means
/// 2, 4 and 9 of 5 in all, so 52 of 58 squares are between them. One seed alone has no spread, and none in common no mean.
#[test]
fn the_seeds_that_all_settings_share_count() {
    let said = |second: &[f64], others: &str| {
        let runs = Runs::new();
        learned(
            &runs,
            "a",
            &[("0.1", "32", &[1.0, 3.0, 90.0]), ("0.01", "32", second), ("0.001", "32", &[8.0, 10.0, 5.0])],
        );
        for trial in 0..9 {
            let path = format!("a/S/{trial:03}/spec.toml");
            let spec = std::fs::read_to_string(runs.path(&path)).unwrap_or_default();
            if spec.contains("lr = 0.01\n") {
                runs.write(&path, &spec.replace("seed = ", others));
            }
        }
        let text = runs.answer(&["a"], 120);
        text.split_once("\nwhich axis matters").unwrap().1.to_owned()
    };
    assert_eq!(
        said(&[3.0, 5.0], "seed = "),
        " over the 2 seeds that all settings share: shares of the variance, means by value\n  \
         lr     89.7 %  0.1: 2.000, 0.01: 4.000, 0.001: 9.000\n  seeds  10.3 %\n"
    );
    assert_eq!(said(&[5.0], "seed = "), " is not known: the settings share one seed alone\n");
    assert_eq!(said(&[3.0, 5.0], "seed = 7"), " is not known: the settings share no seed\n");
}

/// Of more values than a line has, it says how many.
#[test]
fn means_that_are_left_out_are_counted() {
    let runs = Runs::new();
    let settings = ["1", "2", "3", "4", "5", "6"].map(|lr| (lr, lr.parse::<f64>().unwrap()));
    let values = settings.map(|(lr, value)| (lr, [value, value + 0.5]));
    learned(&runs, "a", &values.each_ref().map(|(lr, values)| (*lr, "32", &values[..])));
    let text = runs.answer(&["a"], 120);
    assert!(text.contains(" 1: 1.250, 2: 2.250, 3: 3.250, 4: 4.250 and 2 more\n"), "{text}");
}

/// The three that finished say nothing of the learning rate: at the first rung all forty were compared.
#[test]
fn halved_trials_are_taken_at_their_first_rung() {
    let runs = Runs::new();
    let status = |trial: usize| if trial < 3 { "finished" } else { "stopped" };
    sweep(&runs, &["optimizer.sgd.lr", "decay"], &drawn(status, |at| 1.0 + at[1]));
    let mut rungs = "epochs,trial,value,goes_on\n".to_owned();
    for (trial, at) in plane().into_iter().enumerate() {
        rungs += &format!("3,{trial},{},{}\n", 5.0 + 2.0 * at[0] + at[1], trial < 10);
    }
    runs.write("S/rungs.csv", &(rungs + "12,0,1.0,true\n12,1,1.0,true\n"));
    let (title, shares) = said(&runs);
    assert_eq!(
        title,
        "which axis matters, estimated from 40 settings in epoch 3: shares of the variance of ranks, medians by value"
    );
    near(&shares, &[("lr", 80.0), ("decay", 20.0), ("rest", 0.0)]);
}

/// While no trial has finished, there is no table, and the best so far has its number.
#[test]
fn trials_that_wait_have_no_table() {
    let runs = Runs::new();
    sweep(&runs, &["optimizer.sgd.lr", "decay"], &drawn(|_| "waiting", |at| 2.0 + at[1] - at[0]));
    insta::assert_snapshot!(runs.answer(&["S"], 120), @r"
    best: no run has finished
      not ranked: 40 waiting (#0 to 39, best so far 1.169 of #26)
    ");
}

/// Four by three without one cell: a failed trial does not take the answer away. By hand: the variance of rows is
/// 16 * 1.25 = 20, that of columns 2/3.
#[test]
fn a_grid_that_lacks_a_trial_has_an_estimate() {
    let runs = Runs::new();
    let cells = (0..4).flat_map(|row| (0..3).map(move |column| (row, column)));
    let trial = |(row, column): (u32, u32)| {
        let status = if (row, column) == (2, 1) { "failed" } else { "finished" };
        (vec![row.to_string(), column.to_string()], status, f64::from(4 * row + column))
    };
    sweep(&runs, &["width", "depth"], &cells.map(trial).collect::<Vec<_>>());
    let (title, shares) = said(&runs);
    assert!(title.starts_with("which axis matters, estimated from 11 settings: "), "{title}");
    near(&shares, &[("width", 96.0), ("depth", 4.0), ("rest", 0.0)]);
}

/// The optimizer decides all but what a momentum does, which only one of them has.
#[test]
fn conditional_keys_count_where_they_vary() {
    let runs = Runs::new();
    let trial = |i: u32| match i % 2 {
        0 => (vec!["sgd".to_owned(), format!("0.{}", 1 + i / 2 % 8)], "finished", f64::from(1 + i / 2 % 8)),
        _ => (vec!["adam".to_owned(), String::new()], "finished", 20.0),
    };
    let repeated: Vec<Trial> = (0..16).map(trial).collect();
    // Settings that are equal count once: one of adam.
    let is_first = |(place, trial): &(usize, &Trial)| trial.0[0] == "sgd" || *place == 1;
    let trials: Vec<Trial> =
        repeated.iter().enumerate().filter(is_first).map(|(_, trial)| trial.clone()).collect();
    sweep(&runs, &["optimizer", "momentum"], &trials);
    let (title, shares) = said(&runs);
    assert!(title.starts_with("which axis matters, estimated from 9 settings: "), "{title}");
    let share = |name: &str| shares.iter().find(|(own, _)| own == name).unwrap().1;
    assert!(share("momentum") > 40.0 && share("optimizer") > 5.0, "{shares:?}");
}
