//! The verdict: which setting is best where not all have the same seeds, and what is said of it.

use super::Runs;

/// A trial of a sweep: its learning rate, its seeds as lines of a spec, how it ended, and its best loss.
struct Trial {
    lr: &'static str,
    seeds: [(&'static str, u32); 2],
    status: &'static str,
    value: f64,
}

/// A sweep of these trials.
fn sweep(runs: &Runs, trials: &[Trial]) {
    let [first, second] = trials[0].seeds.map(|(key, _)| key);
    let mut rows = format!("trial,optimizer.sgd.lr,{first},{second},status,folder,reason\n");
    for (number, trial) in trials.iter().enumerate() {
        let Trial { lr, seeds, status, value } = trial;
        let [one, two] = seeds.map(|(_, seed)| seed);
        if *status != "planned" {
            let summary = format!(
                "run,status,devices_used,steps,train_s,best_value,best_epoch\n{number},{status},cpu,100,0.{},{value},7\n",
                number + 1
            );
            runs.write(&format!("a/S/{number:03}/summary.csv"), &summary);
            let seeds: String = seeds
                .iter()
                .filter(|(key, _)| *key != "repeat")
                .map(|(key, seed)| format!("{key} = {seed}\n"))
                .collect();
            // Rows that seeds make are independent.
            let data = if seeds.contains("data.") { "data.synthetic_regression.noise = 0.1\n" } else { "" };
            if !data.is_empty() {
                let rows =
                    format!("[data]\ndigest = \"{one}\"\nrows_to_train_on = 80\nrows_to_validate_on = 20\n");
                runs.write(&format!("a/S/{number:03}/environment.toml"), &rows);
            }
            let seed = match seeds.starts_with("seed = ") {
                true => String::new(),
                false if data.is_empty() => "seed = 0\n".to_owned(),
                false => format!("seed = {one}\n"),
            };
            runs.write(
                &format!("a/S/{number:03}/spec.toml"),
                &format!("{seed}{seeds}{data}optimizer.sgd.lr = {lr}\n"),
            );
        }
        let folder = if *status == "planned" { String::new() } else { format!("{number:03}") };
        rows += &format!("{number},{lr},{one},{two},{status},{folder},\n");
    }
    runs.write("a/S/sweep.csv", &rows);
}

/// Trials of two learning rates, seed by seed, with these losses; `None` has not begun, and one that is not a number diverged.
fn two(first: &[f64], second: &[Option<f64>]) -> Vec<Trial> {
    let trial = |lr, seed: usize, value: Option<f64>| Trial {
        lr,
        seeds: [("seed", seed as u32), ("repeat", seed as u32)],
        status: match value {
            None => "planned",
            Some(value) if value.is_nan() => "diverged",
            Some(_) => "finished",
        },
        value: value.unwrap_or_default(),
    };
    let of_seed = |(seed, (first, second)): (usize, (&f64, &Option<f64>))| {
        [trial("1e-5", seed, Some(*first)), trial("1e-2", seed, *second)]
    };
    first.iter().zip(second).enumerate().flat_map(of_seed).collect()
}

const WORSE: [f64; 4] = [1.95, 1.98, 1.96, 1.982];

/// After an interrupted sweep the first setting has one seed more. The figures are those of `scipy.stats.ttest_rel` over the seeds
/// that both have, and of `scipy.stats.t.interval` of each.
#[test]
fn an_interrupted_sweep_names_the_setting_that_is_better() {
    let runs = Runs::new();
    sweep(&runs, &two(&WORSE, &[Some(0.1), Some(0.09), Some(0.103), None]));
    insta::assert_snapshot!(runs.answer(&["a"], 120), @r"
    best: #3 lr 1e-2, validation loss 0.098 [0.081, 0.115], n 3;
      better than all others, of which #0 is next (paired difference 1.87 [1.81, 1.92], p <0.001)
      RUNS/a/S/003

     #    lr  n       validation loss            vs best  p-value    time
     3  1e-2  3  0.098 [0.081, 0.115]               best           400 ms
     0  1e-5  4  1.968 [1.943, 1.993]  1.87 [1.81, 1.92]   <0.001  400 ms
      means and paired differences over n seeds [95 %, Student]; p by Holm, 1 pair
      Student's intervals assume normally distributed values
      fewer seeds, compared by those that both have: #3
      not ranked: 1 planned (#7)
    ");
}

#[test]
fn one_shared_seed_names_the_better_too() {
    let runs = Runs::new();
    sweep(&runs, &two(&WORSE[..2], &[Some(0.1), None]));
    insta::assert_snapshot!(runs.answer(&["a"], 120), @r"
    best: #1 lr 1e-2, validation loss 0.1000; one shared seed cannot tell it from #0 (paired difference +1.850)
      RUNS/a/S/001

     #    lr  n          validation loss  vs best    time
     1  1e-2  1                   0.1000     best  200 ms
     0  1e-5  2  1.9650 [1.7744, 2.1556]   +1.850  200 ms
      means over n seeds [95 %, Student]
      Student's intervals assume normally distributed values
      fewer seeds, compared by those that both have: #1
      not ranked: 1 planned (#3)
    ");
}

/// After an interruption within the first seed, the rest of the sweep is the way out.
#[test]
fn the_seeds_that_are_left_are_the_way_out() {
    let runs = Runs::new();
    sweep(&runs, &two(&[1.95], &[Some(0.1)]));
    let table = std::fs::read_to_string(runs.path("a/S/sweep.csv")).unwrap();
    let said = |status: &str| {
        runs.write("a/S/sweep.csv", &format!("{table}2,1e-5,1,1,{status},,\n"));
        runs.answer(&["a"], 120).lines().nth(1).unwrap().to_owned()
    };
    let way_out = |command: &str| {
        format!("  one seed each cannot tell whether that is more than luck (`{command}` can)")
    };
    assert_eq!(said("planned"), way_out("runner run --resume RUNS/a/S"));
    assert_eq!(said("skipped"), way_out("sweep.repeats=5"));
}

/// Two sweeps of which settings share some seeds: `n` says how many.
#[test]
fn shared_seeds_are_counted() {
    let runs = Runs::new();
    let path = |name: &str| runs.named(&format!("{name}/S"));
    let few = [0.1, 0.12, 0.11, 0.13];
    sweep(&runs, &two(&few, &few.map(Some)));
    std::fs::rename(runs.path("a"), runs.path("b")).unwrap();
    let more = [0.11, 0.1, 0.12, 0.125, 0.13, 0.1, 0.11];
    let mut trials = two(&more, &more.map(Some));
    trials.iter_mut().for_each(|trial| trial.seeds[0].1 += 2);
    sweep(&runs, &trials);
    let ended = crate::process::Sandbox::new("").runner(&["compare", &path("b"), &path("a")]);
    insta::assert_snapshot!(runs.masked(&ended.stdout), @r"
    2 shared settings, validation loss: second better in 0, worse in 0, unclear in 2
      first   RUNS/b/S
              best #0 lr 1e-5, 0.115 [0.094, 0.136]
      second  RUNS/a/S
              best #2 lr 1e-5, 0.114 [0.103, 0.124]

       lr               n                 first                second           difference  p-value
     1e-5  4, 7, 2 shared  0.115 [0.094, 0.136]  0.114 [0.103, 0.124]  -0.01 [-0.21, 0.18]     1.00
     1e-2  4, 7, 2 shared  0.115 [0.094, 0.136]  0.114 [0.103, 0.124]  -0.01 [-0.21, 0.18]     1.00
      differences of means, paired by seed [95 %, Student]; p by Holm
    ");
}

/// The seed that diverged may be the hard one: a setting that lost it is no better, whatever its others are.
#[test]
fn a_setting_that_diverged_is_behind_and_the_words_say_why() {
    let runs = Runs::new();
    sweep(&runs, &two(&WORSE, &[Some(0.1), Some(0.09), Some(0.103), Some(f64::NAN)]));
    insta::assert_snapshot!(runs.answer(&["a"], 120), @r"
    best: #0 lr 1e-5, validation loss 1.968 [1.943, 1.993], n 4;
      #3 is lower on the 3 seeds that both have (paired difference -1.87 [-1.92, -1.81], p <0.001), but of it 1 of 4 runs diverged (#7)
      RUNS/a/S/000

     #    lr  n       validation loss               vs best  p-value    time
     0  1e-5  4  1.968 [1.943, 1.993]                  best           400 ms
     3  1e-2  3  0.098 [0.081, 0.115]  -1.87 [-1.92, -1.81]   <0.001  400 ms
      means and paired differences over n seeds [95 %, Student]; p by Holm, 1 pair
      Student's intervals assume normally distributed values
      fewer seeds, ranked last: #3
      not ranked: 1 diverged (#7)
    ");
}

/// Without a spread there is no test by Student: the note names the one that gave the p-value.
#[test]
fn equal_differences_have_a_sign_test() {
    let runs = Runs::new();
    sweep(&runs, &two(&[0.25, 0.5, 0.75], &[Some(0.5), Some(0.75), Some(1.0)]));
    let text = runs.answer(&["a"], 200);
    assert!(text.contains("(paired difference +0.2500, p 0.25)"), "{text}");
    assert!(
        text.contains("\n  a difference that is the same in every seed has the p of a sign test\n"),
        "{text}"
    );
    let runs = Runs::new();
    sweep(&runs, &two(&[0.25, 0.5, 0.75], &[Some(0.5), Some(0.75), Some(1.25)]));
    assert!(!runs.answer(&["a"], 200).contains("sign test"));
}

/// A setting that lost a seed may be the worse for it, and the best may, too: the verdict says so in its sentence.
#[test]
fn the_verdict_names_the_runs_that_a_rival_lost() {
    let runs = Runs::new();
    let best = [0.1, 0.12, 0.11, 0.13];
    sweep(&runs, &two(&best, &[Some(0.104), Some(0.12), Some(0.113), Some(f64::NAN)]));
    let said = |runs: &Runs| runs.answer(&["a"], 200).lines().next().unwrap().to_owned();
    let rival = said(&runs);
    let words = "; not distinguishable from #1 (paired difference 0.002 [-0.003, 0.008], p 0.19), but of #1 1 of 4 runs diverged (#7)";
    assert!(rival.ends_with(words), "{rival}");
    let summary = runs.path("a/S/000/summary.csv");
    let failed = std::fs::read_to_string(&summary).unwrap().replace("finished", "failed");
    std::fs::write(&summary, failed).unwrap();
    let both = runs.answer(&["a"], 200);
    assert!(both.contains(" 1 of 4 runs diverged (#7), but of the best 1 of 4 runs failed (#0)\n"), "{both}");
}

/// Whatever draws random numbers makes a replicate, alone or together: settings are paired by all of it.
#[test]
fn every_seed_makes_a_replicate() {
    for keys in [
        ["model.init_seed", "repeat"],
        ["data.shuffle_seed", "repeat"],
        ["data.split.seed", "repeat"],
        ["model.init_seed", "data.shuffle_seed"],
    ] {
        let runs = Runs::new();
        let values = [[0.5074, 0.52], [0.4848, 0.49], [0.5424, 0.551], [0.51, 0.519], [0.53, 0.536]];
        let trials = values.iter().zip(0..).flat_map(|(values, seed)| {
            ["0.1", "0.01"].into_iter().zip(values).map(move |(lr, value)| Trial {
                lr,
                seeds: [(keys[0], seed), (keys[1], seed % 2)],
                status: "finished",
                value: *value,
            })
        });
        sweep(&runs, &trials.collect::<Vec<_>>());
        insta::allow_duplicates! { insta::assert_snapshot!(runs.answer(&["a"], 120), @r"
        best: #2 lr 0.1, validation loss 0.515 [0.487, 0.542], n 5;
          better than all others, of which #3 is next (paired difference 0.0083 [0.0047, 0.0119], p 0.003)
          RUNS/a/S/002

         #    lr  n       validation loss                  vs best  p-value    time
         2   0.1  5  0.515 [0.487, 0.542]                     best           500 ms
         3  0.01  5  0.523 [0.495, 0.551]  0.0083 [0.0047, 0.0119]    0.003  400 ms
          means and paired differences over n seeds [95 %, Student]; p by Holm, 1 pair
          Student's intervals assume normally distributed values
        ") }
    }
}
