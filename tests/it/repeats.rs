//! Summaries of repeats, costs of logging policies, and remarks on noise: full texts of synthetic sweeps.

use std::{fs, path::Path};

use runner::report::{Comparison, Question, sweep_end};

use super::process::Sandbox;

/// A sweep over logging policies with given training times by policy and repeat. The policies of a repeat run
/// one after the other.
fn sweep(folder: &Path, times_ms: &[(&str, &[f64])], others_cores: f64) {
    let columns = "trial,logging.policy,repeat,status,folder,reason,run,virtual,steps,train_s,steps_per_s,logging_share";
    let mut text = format!("{columns}\n");
    let mut trial = 0;
    for repeat in 0..times_ms[0].1.len() {
        for (policy, times) in times_ms {
            let name = format!("{trial:03}-logging.policy={policy}+repeat={repeat}");
            let own = folder.join(&name);
            fs::create_dir_all(&own).unwrap();
            let seconds = times[repeat] / 1e3;
            let share = if *policy == "off" { 0.0 } else { 0.25 };
            let figures = format!("{name},false,1000,{seconds},{},{share}", 1000.0 / seconds);
            text += &format!("{trial},{policy},{repeat},finished,{name},,{figures}\n");
            let spec = format!("name = \"x\"\nseed = {repeat}\n[logging]\npolicy = \"{policy}\"\n");
            fs::write(own.join("spec.toml"), spec).unwrap();
            let environment = format!(
                "[cpu]\nmodel = \"A\"\nlogical_cores = 2\n[load]\nothers_cores = {others_cores}\nstolen_cores = 0.0\n"
            );
            fs::write(own.join("environment.toml"), environment).unwrap();
            let summary = format!(
                "run,status,virtual,steps,train_s,steps_per_s,logging_share\n{}\n",
                figures.replacen(',', ",finished,", 1)
            );
            fs::write(own.join("summary.csv"), summary).unwrap();
            trial += 1;
        }
    }
    fs::write(folder.join("sweep.toml"), "name = \"costs\"\n").unwrap();
    fs::write(folder.join("sweep.csv"), text).unwrap();
}

fn end(times_ms: &[(&str, &[f64])], others_cores: f64) -> String {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("costs/S");
    sweep(&own, times_ms, others_cores);
    sweep_end(&own, None, 160).unwrap().replace(&folder.path().display().to_string(), "RUNS")
}

/// A machine that slows down over time: times vary, ratios do not.
const DRIFTING: [(&str, &[f64]); 3] = [
    ("immediate", &[2.0, 2.2, 2.4, 2.6, 2.8, 3.0, 3.2]),
    ("buffered", &[1.1, 1.21, 1.32, 1.43, 1.54, 1.65, 1.76]),
    ("off", &[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]),
];

#[test]
fn medians_intervals_and_the_cost_of_a_policy() {
    insta::assert_snapshot!(end(&DRIFTING, 0.0), @r"
    costs: 21 trials, 21 finished

     logging.policy  runs  train time  98.4 % interval  steps/s     98.4 % interval  rows/s vs immediate
          immediate     7     2.60 ms  2.00 to 3.20 ms  384.6 k    312.5 to 500.0 k                1.00x
           buffered     7     1.43 ms  1.10 to 1.76 ms  699.3 k    568.2 to 909.1 k                1.82x
                off     7     1.30 ms  1.00 to 1.60 ms  769.2 k  625.0 k to 1.000 M                2.00x

    what a logging policy costs, compared with `off`

        policy  train time  vs off  98.4 % interval  more per step  98.4 % interval      p  verdict
     immediate     2.60 ms   2.00x   2.00x to 2.00x        1.30 µs  1.30 to 1.30 µs  0.031  slower
      buffered     1.43 ms   1.10x   1.10x to 1.10x        0.13 µs  0.13 to 0.13 µs  0.031  slower
           off     1.30 ms
      p: sign test against changes below 2 %, by Holm for 2 comparisons at once

      noise: in 3 of 3 configurations the interval of the train time spans more than 5.00 % of the median, 46.2 % at most (at logging.policy=off)
      folder RUNS/costs/S
    ");
}

#[test]
fn steady_times_on_a_quiet_machine_have_no_noise() {
    let steady: [(&str, &[f64]); 2] =
        [("immediate", &[2.0, 2.01, 2.0, 1.99, 2.02, 2.0]), ("off", &[1.0, 1.01, 1.0, 1.0, 0.99, 1.0])];
    let text = end(&steady, 0.01);
    assert!(!text.contains("noise"), "{text}");
    assert!(text.contains("2.00x"), "{text}");
}

#[test]
fn few_repeats_on_a_busy_machine_are_told() {
    let few: [(&str, &[f64]); 2] = [("immediate", &[2.0, 2.5, 2.1]), ("off", &[1.0, 1.0, 1.0])];
    let text = end(&few, 0.8);
    let noise: Vec<&str> = text.lines().filter(|line| line.contains("noise")).collect();
    assert_eq!(
        noise,
        [
            "  noise: in 1 of 2 configurations the interval of the train time spans more than 5.00 % of the median, 23.8 % \
             at most (at logging.policy=immediate)",
            "  noise: with 3 repeats the interval covers the true median 75.0 % of the time; use 6 or more for 95 %",
            "  noise: other processes used up to 0.80 cores during #0 to 5",
        ]
    );
}

#[test]
fn compare_takes_repeats_together_too() {
    let folder = tempfile::tempdir().unwrap();
    sweep(&folder.path().join("S"), &DRIFTING, 0.0);
    let compared = Comparison::read(&[folder.path().display().to_string()], None).unwrap();
    let text = compared.times(&Question::default(), 160).unwrap();
    let own = end(&DRIFTING, 0.0);
    let table = own.split("\n\n").nth(1).unwrap();
    assert!(text.contains(&format!("repeats taken together\n\n{table}\n")), "{text}");
    assert!(text.contains("what a logging policy costs, compared with `off`\n"), "{text}");
    assert!(text.contains("\nnoise\n"), "{text}");
}

/// Through the program: real runs in the requested number, and the values in `sweep.csv`.
#[test]
fn a_sweep_over_the_policies_ends_with_their_cost() {
    let spec = super::run::LINREG.to_owned()
        + "[sweep]\ngrid = { \"logging.policy\" = [\"immediate\", \"off\"] }\nrepeats = 3\n";
    let place = Sandbox::new(&spec);
    let ended = place.runner(&["spec.toml"]).ended_by(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines[0], "spec: 6 trials, 6 finished");
    let row = |policy: &str, of: usize| {
        let rows: Vec<&&str> = lines.iter().filter(|line| line.trim_start().starts_with(policy)).collect();
        assert_eq!(rows.len(), 3, "{lines:#?}");
        rows[of].split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // Columns of times, losses and costs.
    assert_eq!((row("immediate", 0)[1].as_str(), row("immediate", 1)[1].as_str()), ("3", "3"));
    assert!(lines.iter().any(|line| line.contains(" validation loss ")), "{lines:#?}");
    assert!(lines.contains(&"what a logging policy costs, compared with `off`"), "{lines:#?}");
    assert!(row("immediate", 2).iter().any(|word| word.ends_with('x')));
    assert!(row("off", 2).iter().all(|word| !word.ends_with('x')));
}

/// Where every trial logs, the policy that logs most rarely is what others are compared with, and may take longer than they do.
#[test]
fn a_policy_may_take_less_than_the_one_it_is_compared_with() {
    let row = |immediate: &[f64], buffered: &[f64]| {
        let text = end(&[("immediate", immediate), ("buffered", buffered)], 0.0);
        let cost = text.split("compared with `buffered`").nth(1).unwrap();
        cost.lines().find(|line| line.trim_start().starts_with("immediate")).unwrap().trim_end().to_owned()
    };
    let five = [5.0, 5.1, 5.2, 5.0, 5.1, 5.0];
    let one = [1.0, 1.1, 1.2, 1.0, 1.1, 1.0];
    let slower = row(&five, &one);
    assert!(slower.ends_with("  4.01 µs  3.50 to 4.20 µs  0.031  slower"), "{slower}");
    let faster = row(&one, &five);
    assert!(faster.ends_with("0.031  faster"), "{faster}");
    let like = row(&[4.0, 5.2, 5.0, 6.0, 5.1, 5.0], &five);
    assert!(like.ends_with("1.00  within noise"), "{like}");
}

/// One of several comparisons looks expensive by chance: each verdict is corrected for all of them. The cost of a step follows
/// from the factor.
#[test]
fn one_dear_repeat_of_many_is_no_cost() {
    let lucky: [(&str, &[f64]); 4] = [
        ("immediate", &[1.2, 1.1, 1.3, 1.2, 1.4, 9.0]),
        ("buffered", &[1.0, 1.1, 0.9, 1.0, 1.0, 1.1]),
        ("per_epoch", &[1.1, 0.9, 1.0, 1.1, 0.9, 1.0]),
        ("off", &[1.0; 6]),
    ];
    let text = end(&lucky, 0.0);
    assert!(text.contains(" 1.25x   1.10x to 9.00x        0.25 µs   0.10 to 8.00 µs\n"), "{text}");
    let note = "\n  no verdict: 3 comparisons at once can be told from noise by `sweep.repeats=7` or more\n";
    assert!(text.contains(note) && !text.contains("slower"), "{text}");
}

/// A lost turn of one comparison takes no verdict from the other.
#[test]
fn a_diverged_repeat_takes_no_other_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("costs/S");
    sweep(&own, &DRIFTING, 0.0);
    let diverge = |policy: &str, repeat: usize| {
        let path = own.join("sweep.csv");
        let (text, row) = (fs::read_to_string(&path).unwrap(), format!(",{policy},{repeat},finished,"));
        assert!(text.contains(&row), "{text}");
        fs::write(path, text.replace(&row, &format!(",{policy},{repeat},diverged,"))).unwrap();
        let trial = 3 * repeat + usize::from(policy == "buffered");
        let summary = own.join(format!("{trial:03}-logging.policy={policy}+repeat={repeat}/summary.csv"));
        let text = fs::read_to_string(&summary).unwrap();
        fs::write(summary, text.replace(",finished,", ",diverged,")).unwrap();
        sweep_end(&own, None, 160).unwrap()
    };
    let costs = |text: &str| text.split_once("what a logging policy costs").unwrap().1.to_owned();
    let one = costs(&diverge("buffered", 2));
    let row =
        |policy: &str| one.lines().find(|line| line.trim_start().starts_with(policy)).unwrap().trim_end();
    assert!(row("immediate").ends_with("0.031  slower"), "{one}");
    assert!(row("buffered").ends_with("0.031  slower"), "{one}");
    assert!(
        one.contains("p: sign test against changes below 2 %, by Holm for 2 comparisons at once"),
        "{one}"
    );
    let both = costs(&diverge("immediate", 0));
    let note = "\n  no verdict: 6 of 7 turns finished with both; 7 can tell 2 comparisons from noise\n";
    assert!(both.contains(note) && !both.contains("slower"), "{both}");
}

/// Short runs tell how long they waited for a core, and not what others used of the cores.
#[test]
fn no_cost_is_told_of_short_runs_that_waited() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("costs/S");
    sweep(&own, &DRIFTING, 0.0);
    for entry in fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let text = "[cpu]\nmodel = \"A\"\nlogical_cores = 2\n[load]\ncore_wait_share = 0.3\n";
        fs::write(entry.join("environment.toml"), text).unwrap();
    }
    let text = sweep_end(&own, None, 160).unwrap();
    let note = "\n  no verdict: 30.0 % of the time of short runs went into waiting for a core, more than 25.0 %; try again while \
                the machine is quiet\n";
    assert!(text.contains(note) && !text.contains("other processes"), "{text}");
}

/// As `check --advise` has it.
#[test]
fn no_cost_is_told_on_a_busy_machine() {
    let text = end(&DRIFTING, 0.8);
    let note = "\n  no verdict: other processes used 40.0 % of the cores meanwhile, more than 25.0 %; try again while the machine is \
                quiet\n";
    assert!(text.contains(note) && !text.contains("slower") && text.contains("2.00x"), "{text}");
}

/// Runs too short to count what others used tell how long they waited for a core.
#[test]
fn short_runs_have_their_noise_too() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("costs/S");
    sweep(&own, &DRIFTING, 0.8);
    let trial = |name: &str, load: &str| {
        let environment = format!("[cpu]\nmodel = \"A\"\nlogical_cores = 2\n{load}");
        fs::write(own.join(name).join("environment.toml"), environment).unwrap();
    };
    trial("000-logging.policy=immediate+repeat=0", "[load]\ncore_wait_share = 0.98\n");
    trial("001-logging.policy=buffered+repeat=0", "");
    let text = sweep_end(&own, None, 160).unwrap();
    let noise: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  noise: ")).skip(1).collect();
    assert_eq!(
        noise,
        [
            "other processes used up to 0.80 cores during #2 to 20; not known of #1",
            "up to 98.0 % of the time went into waiting for a core during #0",
        ]
    );
}
