//! `runner check --advise`: trains for a few milliseconds with changed settings, alternating with the
//! unchanged spec, and recommends settings that were faster beyond noise.

use std::{
    cmp::Ordering,
    time::{Duration, Instant},
};

use super::{args::RunOptions, machine::machine_for, terminal::fit};
use crate::{
    host::load::{self, Load, TOO_BUSY},
    plan::{Engine, Machine, PlanError, Trial},
    record::{others_used, text_table, too_busy},
    report::{Estimate, p_value, sign_test_in_words, verdicts},
    run::{
        Datasets, Exit, LONGEST_STEP_S, Planned, Prepared, RoundEnd, prepare, print, refuse, round,
        shortened, stop_learning,
    },
    spec::{EngineChoice, Experiment, Monitor, Placement, Policy, Spec, ValidateEvery},
    units,
};

/// Approximate training time per run.
const LONG: Duration = Duration::from_millis(60);

/// Minimum runs per setting: where all of them agree, p is 0.004, which is below 0.05 also for twelve settings at once.
const LEAST_ROUNDS: usize = 9;

/// Maximum runs per setting.
const MOST_ROUNDS: usize = 30;

/// No new round begins after this time.
const IN_ALL: Duration = Duration::from_secs(10);

/// A changed spec.
struct Candidate {
    /// The change, as a user would type it.
    words: String,
    spec: Spec,
    threads: usize,
    /// Whether the change affects what the model learns.
    changes_training: bool,
}

/// Tries settings of the first trial and prints the results.
pub fn advise(options: &RunOptions, experiment: &Experiment) -> Result<Exit, Exit> {
    let machine = machine_for(options.virtual_gpus, experiment);
    let mut datasets = Datasets::new(&machine);
    let prepared: Vec<Prepared<Trial>> = prepare(experiment, &mut datasets, &machine, options.thread_count())
        .map_err(|problems| refuse(&experiment.failure(problems)))?;
    let first = prepared.iter().zip(&experiment.trials).find_map(|(prepared, trial)| match prepared {
        Prepared::Run(planned) => Some((&**planned, trial)),
        _ => None,
    });
    let Some((planned, trial)) = first else { return Ok(Exit::Done) };
    let of = if experiment.is_sweep() { format!(" for trial {}", trial.index) } else { String::new() };
    let text = match obstacle(planned) {
        Some(why) => format!("  nothing was tried: {why}\n"),
        None => {
            let base = Candidate {
                words: "as it is".to_owned(),
                spec: trial.spec.clone(),
                threads: options.thread_count(),
                changes_training: false,
            };
            let (others, mut untried) = candidates(planned, &base);
            let tried = try_all(base, others, &mut datasets, &machine, &mut untried);
            tried.unwrap_or_else(|why| format!("  nothing was tried: {why}\n"))
        }
    };
    Ok(print(&fit(&format!("\nadvice{of}\n{text}"))))
}

/// The reason why timing this trial would be meaningless, if there is one.
fn obstacle(trial: &Trial) -> Option<String> {
    if trial.devices.any_virtual() {
        return Some(
            "virtual devices share the host's processor, so their times say nothing of GPUs".to_owned(),
        );
    }
    if trial.devices.over_hosts() {
        return Some("settings are tried on one host".to_owned());
    }
    let step_s = trial.lower_bound.settled_s(1);
    (step_s > LONGEST_STEP_S).then(|| format!("a step takes about {}", units::seconds(step_s)))
}

/// The settings to try, and descriptions of those left out and why.
fn candidates(trial: &Trial, base: &Candidate) -> (Vec<Candidate>, Vec<String>) {
    let on_cpu = trial.devices.on_cpu();
    let mut all = Vec::new();
    let mut add = |words: String, threads: usize, changes_training, change: &dyn Fn(&mut Spec)| {
        let mut spec = base.spec.clone();
        change(&mut spec);
        all.push(Candidate { words, spec, threads, changes_training });
    };
    let mut untried = vec!["other devices, `devices.precision`, the model".to_owned()];
    for times in [2, 4] {
        let rows = base.spec.data.batch_size * times;
        if rows <= trial.facts.train_rows {
            add(format!("data.batch_size={rows}"), base.threads, true, &|spec| spec.data.batch_size = rows);
        } else {
            untried.push(format!(
                "`data.batch_size={rows}`: there are {} training rows",
                trial.facts.train_rows
            ));
        }
    }
    for (words, threads, engine) in engines(trial, base.threads) {
        add(words, threads, false, &|spec| spec.devices.engine = engine);
    }
    if on_cpu && !trial.facts.in_file() {
        untried.push("`data.placement`: the CPU computes in the memory that holds the rows".to_owned());
    } else {
        let is_streamed = trial.chunks.is_some() || trial.facts.in_file();
        let other = if is_streamed { Placement::Resident } else { Placement::Streamed };
        add(format!("data.placement={}", other.name()), base.threads, false, &|spec| {
            spec.data.placement = other
        });
    }
    let policies = [Policy::Immediate, Policy::Buffered, Policy::PerEpoch, Policy::Off];
    let own = policies.iter().position(|policy| *policy == base.spec.logging.policy).unwrap_or(0);
    for policy in &policies[own + 1..] {
        add(format!("logging.policy={}", policy.name()), base.threads, false, &|spec| {
            spec.logging.policy = *policy
        });
    }
    (all, untried)
}

/// Engines other than the planned one, with their number of threads.
fn engines(trial: &Trial, most_threads: usize) -> Vec<(String, usize, EngineChoice)> {
    use EngineChoice::{Cooperative, Graph, Launch, Persistent, Serial, Team};

    if trial.engine.is_gpu() {
        let others = [Persistent, Cooperative, Graph, Launch].into_iter();
        let others = others.filter(|choice| choice.name() != trial.engine.name());
        return others
            .map(|choice| (format!("devices.engine={}", choice.name()), most_threads, choice))
            .collect();
    }
    let alone =
        (trial.engine != Engine::Serial).then(|| ("devices.engine=serial".to_owned(), most_threads, Serial));
    let powers = (1..).map(|power| 1 << power).take_while(|n| *n < most_threads);
    let teams = powers.chain((most_threads > 1).then_some(most_threads));
    let others = teams.filter(|n| trial.engine == Engine::Serial || *n != trial.threads);
    let team = |n| (format!("devices.engine=team --threads {n}"), n, Team);
    alone.into_iter().chain(others.map(team)).collect()
}

/// Runs the settings in rounds, and compares each with the first setting of the same round.
fn try_all(
    base: Candidate,
    others: Vec<Candidate>,
    datasets: &mut Datasets,
    machine: &Machine,
    untried: &mut Vec<String>,
) -> Result<String, String> {
    let plan = |setting: &Candidate, datasets: &mut Datasets| {
        let planned = Trial::plan(&of_steps(&setting.spec), datasets, machine, setting.threads);
        let planned = planned.map_err(|e| match e {
            PlanError::Missing(problem) => problem.message,
            PlanError::Problems(problems) => {
                problems.into_iter().map(|p| p.message).next().unwrap_or_default()
            }
        });
        planned.map(|trial| shortened(&trial, [f64::INFINITY, LONG.as_secs_f64()]))
    };
    let mut all = vec![(plan(&base, datasets)?, base, Vec::new())];
    for setting in others {
        match plan(&setting, datasets) {
            Ok(trial) => all.push((trial, setting, Vec::new())),
            Err(why) => untried.push(format!("`{}`: {why}", setting.words)),
        }
    }
    let (begun, before) = (Instant::now(), load::counters());
    for round in 0..MOST_ROUNDS {
        if round >= LEAST_ROUNDS && begun.elapsed() > IN_ALL {
            break;
        }
        let mut index = 0;
        while let Some((trial, setting, rates)) = all.get_mut(index) {
            match rows_per_s(trial, datasets) {
                Ok(rate) => rates.push(rate),
                Err(why) if index == 0 => return Err(why),
                Err(why) => {
                    untried.push(format!("`{}`: {why}", setting.words));
                    all.remove(index);
                    continue;
                }
            }
            index += 1;
        }
    }
    let tried: Vec<_> = all.into_iter().map(|(_, setting, rates)| (setting, rates)).collect();
    let load = before.zip(load::counters()).and_then(|(before, after)| Load::between(&before, &after));
    Ok(table(&tried, untried, load.as_ref()))
}

/// The spec of a run without validations that leaves the weights unchanged.
fn of_steps(spec: &Spec) -> Spec {
    let mut spec = spec.clone();
    stop_learning(&mut spec);
    let trainer = &mut spec.trainer;
    (trainer.max_epochs, trainer.max_steps, trainer.max_time) = (1 << 32, None, Some(LONG));
    (trainer.validate_every, trainer.monitor) = (ValidateEvery::NEVER, Monitor::LOSS);
    (trainer.early_stopping, trainer.restore_best) = (None, None);
    let logging = &mut spec.logging;
    (logging.tensorboard, logging.system_every_s) = (false, None);
    spec
}

/// Rows per second of a short run.
fn rows_per_s(trial: &Trial, datasets: &mut Datasets) -> Result<f64, String> {
    match round(trial, datasets, &mut |_| Ok(())).map_err(|why| why.to_string())? {
        RoundEnd::Measured(own) => {
            let epoch_s = trial.steps_per_epoch as f64 * own.step_s + own.order_s;
            Ok(trial.facts.train_rows as f64 / epoch_s)
        }
        RoundEnd::Diverged => Err("its loss is not a finite number".to_owned()),
        // There was only time for one step, if for that.
        RoundEnd::TooEarly { steps, train_s, .. } => {
            Ok(steps.max(1) as f64 * trial.programs.train.batch as f64 / train_s)
        }
    }
}

/// What others took of the machine meanwhile: too much for a verdict, or enough to be worth a word.
fn beside(load: &Load) -> Option<String> {
    if let Some(words) = too_busy(load.others()) {
        return Some(format!("  no verdict: {words}\n"));
    }
    let others = others_used(load)?;
    Some(format!("  {others} meanwhile: on a quiet machine other settings may be faster\n"))
}

/// Both figures of each setting, what is faster, and what was not tried. A ratio is the median over the turns, and the rate
/// is that of the first setting times the ratio: medians of rates, taken alone, may rank settings otherwise.
fn table(tried: &[(Candidate, Vec<f64>)], untried: &[String], load: Option<&Load>) -> String {
    let base = &tried[0].1;
    let base_rate = Estimate::from_values(base).map_or(0.0, |rate| rate.median);
    let ratios = |rates: &[f64]| rates.iter().zip(base).map(|(own, base)| own / base).collect::<Vec<f64>>();
    let others: Vec<Vec<f64>> = tried[1..].iter().map(|(_, rates)| ratios(rates)).collect();
    let is_quiet = load.is_none_or(|load| load.others() <= TOO_BUSY);
    let mut faster: Vec<(f64, &Candidate)> = Vec::new();
    let mut rows = vec![vec![tried[0].0.words.clone(), units::rate(base_rate)]];
    rows[0].resize(6, String::new());
    for (((setting, _), ratios), (verdict, p)) in tried[1..].iter().zip(&others).zip(verdicts(&others)) {
        let Some(ratio) = Estimate::from_values(ratios) else { continue };
        let [low, high] = ratio.interval.unwrap_or([ratio.median; 2]);
        let times = |ratio: f64| format!("{}x", units::factor(ratio));
        let interval = format!("{} to {}", times(low), times(high));
        let mut cells = vec![setting.words.clone(), units::rate(base_rate * ratio.median)];
        cells.extend([times(ratio.median), interval]);
        cells.extend(match verdict {
            _ if !is_quiet => [String::new(), String::new()],
            Ordering::Greater => [p_value(p), "faster".to_owned()],
            Ordering::Less => [p_value(p), "slower".to_owned()],
            Ordering::Equal => [p_value(p), "within noise".to_owned()],
        });
        faster.extend((is_quiet && verdict == Ordering::Greater).then_some((ratio.median, setting)));
        rows.push(cells);
    }
    faster.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (length, times) = (units::seconds(LONG.as_secs_f64()), base.len());
    let mut text = format!(
        "  each setting trained {times} times for about {length}, in turns, at a learning rate of 0\n"
    );
    let header = ["setting", "rows/s", "ratio", "interval", if is_quiet { "p" } else { "" }, ""];
    text += &text_table::text(&header, &rows, |place| (1..5).contains(&place));
    if is_quiet {
        let settings = units::counted(others.len() as u64, "setting");
        text += &format!("  {}\n", sign_test_in_words(&settings));
        if faster.is_empty() {
            text += "  nothing that was tried is faster beyond noise\n";
        }
    }
    text += &load.and_then(beside).unwrap_or_default();
    for (ratio, setting) in faster {
        let but =
            if setting.changes_training { "; it changes the training: expect other losses" } else { "" };
        let ratio = units::factor(ratio);
        text += &format!("  faster: {}, {ratio}x the rows per second{but}\n", setting.words);
    }
    untried.iter().for_each(|what| text += &format!("  not tried: {what}\n"));
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::spec::{self, Loaded};

    fn setting(words: &str) -> Candidate {
        let Ok(Loaded::Train(experiment)) = spec::read(Path::new("experiments/linreg_cpu.toml"), &[]) else {
            panic!("an example")
        };
        let spec = experiment.trials[0].spec.clone();
        Candidate { words: words.to_owned(), spec, threads: 1, changes_training: false }
    }

    /// A machine that slows down for a turn: of their own the rates would have a median of half the base's.
    #[test]
    fn rates_and_ratios_say_the_same() {
        let tried =
            [(setting("as it is"), vec![100.0, 100.0, 20.0]), (setting("other"), vec![50.0, 130.0, 26.0])];
        insta::assert_snapshot!(table(&tried, &[], None), @r"
          each setting trained 3 times for about 60.0 ms, in turns, at a learning rate of 0
          setting   rows/s  ratio        interval     p
          as it is   100.0
          other      130.0  1.30x  0.50x to 1.30x  1.00  within noise
          p: sign test against changes below 2 %, by Holm for 1 setting at once
          nothing that was tried is faster beyond noise
        ");
    }

    /// Alone, `c` would be faster: its interval lies above 1. Of four settings one is so by chance more often.
    #[test]
    fn several_settings_at_once_need_more() {
        let rates =
            |faster: usize| (0..9).map(|i| if i < faster { 140.0 } else { 90.0 }).collect::<Vec<f64>>();
        let tried = [
            ("as it is", vec![100.0; 9]),
            ("a", rates(9)),
            ("b", vec![50.0; 9]),
            ("c", rates(8)),
            ("d", rates(5)),
        ]
        .map(|(words, rates)| (setting(words), rates));
        let load = |others_cores| Load { others_cores, stolen_cores: 0.01, cores: 2, ..Load::default() };
        insta::assert_snapshot!(table(&tried, &["x: y".to_owned()], Some(&load(0.3))), @r"
          each setting trained 9 times for about 60.0 ms, in turns, at a learning rate of 0
          setting   rows/s  ratio        interval      p
          as it is   100.0
          a          140.0  1.40x  1.40x to 1.40x  0.016  faster
          b          50.00  0.50x  0.50x to 0.50x  0.016  slower
          c          140.0  1.40x  1.40x to 1.40x  0.078  within noise
          d          140.0  1.40x  0.90x to 1.40x   1.00  within noise
          p: sign test against changes below 2 %, by Holm for 4 settings at once
          other processes used 0.31 of 2 cores meanwhile: on a quiet machine other settings may be faster
          faster: a, 1.40x the rows per second
          not tried: x: y
        ");
        insta::assert_snapshot!(table(&tried, &["x: y".to_owned()], Some(&load(1.77))), @r"
          each setting trained 9 times for about 60.0 ms, in turns, at a learning rate of 0
          setting   rows/s  ratio        interval
          as it is   100.0
          a          140.0  1.40x  1.40x to 1.40x
          b          50.00  0.50x  0.50x to 0.50x
          c          140.0  1.40x  1.40x to 1.40x
          d          140.0  1.40x  0.90x to 1.40x
          no verdict: other processes used 89.0 % of the cores meanwhile, more than 25.0 %; try again while the machine is quiet
          not tried: x: y
        ");
        assert_eq!(beside(&load(0.05)), None);
    }
}
