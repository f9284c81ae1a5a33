//! `runner check SPEC.toml`: prints what would happen, or with `--spec` the spec with all its values. Keeps nothing but compiled kernels, and throws away the steps that it measures.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{
    advise,
    args::{CheckOptions, idle_option},
    conditions::{Conditions, threads_of_each},
    describe::describe,
    describe_lab,
    forecast::forecast,
    forecast_machines,
    forecast_table::forecasts,
    machine::{machine, machine_for},
    machine_file, scale,
    terminal::fit,
};
use crate::{
    plan::{Machine, Trial, lab::LabTrial},
    record::{output_width, text_table},
    run::{self, Datasets, Exit, Placement, Planned, Prepared, first_run, prepare, print, refuse, warn},
    spec::{self, Experiment, Loaded, Problem},
    units,
};

/// Runs the command.
pub fn check(all: &CheckOptions) -> Result<Exit, Exit> {
    let run = &all.run;
    let loaded = spec::read(&run.spec(), &run.overrides()).map_err(|failure| refuse(&failure))?;
    if all.spec {
        return Ok(print(&loaded.to_toml_with_origins()));
    }
    check_read(all, &loaded)
}

/// The same for a spec that was read already.
pub fn check_read(all: &CheckOptions, loaded: &Loaded) -> Result<Exit, Exit> {
    let CheckOptions { run: options, advise, hosts, link, on, .. } = all;
    idle_option(&[("--jobs", all.jobs.is_some())], loaded.is_sweep()).iter().for_each(warn);
    match loaded {
        Loaded::Train(experiment) if on.len() > 1 => forecast_machines::compare(all, experiment),
        Loaded::Train(experiment) => {
            options.idle_virtual_gpus(experiment).iter().for_each(warn);
            let here = on.first().map(|_| machine(Some(0), false));
            let machine = match on.first().zip(here.clone()) {
                Some((file, here)) => machine_file::read(file, here).map_err(|failure| refuse(&failure))?,
                None => machine_for(options.virtual_gpus, experiment),
            };
            let whose = if here.is_some() { "that machine's" } else { "this process's" };
            options.too_many_threads(machine.cores, whose).iter().for_each(warn);
            let page = |prepared: &[Prepared<Trial>], begun: Instant, datasets: &mut Datasets| {
                pages(all, experiment, (prepared, &machine, begun.elapsed()), datasets)
            };
            // Rows of files are read into the memory that is here.
            let datasets = here.as_ref().map_or_else(|| Datasets::new(&machine), Datasets::for_plans);
            let shown = show(all, experiment, &machine, datasets, page)?;
            match (hosts, link) {
                _ if shown != Exit::Done => Ok(shown),
                (Some(hosts), Some(link)) => scale::predict(options, experiment, hosts, link.0),
                _ if *advise => advise::advise(options, experiment),
                _ => Ok(shown),
            }
        }
        Loaded::Lab(_) if *advise || hosts.is_some() || !on.is_empty() => {
            let option = if *advise {
                "--advise"
            } else if !on.is_empty() {
                "--on"
            } else {
                "--hosts"
            };
            let hint = "this kind measures the machine that it runs on: leave the option out, or check a spec that trains";
            Err(Exit::refused(format!("`{option}` is for specs that train"), Some(hint)))
        }
        Loaded::Lab(experiment) => {
            let machine = machine(options.virtual_gpus, true);
            options.too_many_threads(machine.cores, "this process's").iter().for_each(warn);
            let page = |prepared: &[Prepared<LabTrial>], _, (): &mut ()| {
                let first = first_run(prepared).filter(|_| !options.quiet);
                let first = first.map(|(_, planned)| describe_lab::describe(planned));
                Ok([String::new(), first.unwrap_or_default()])
            };
            show(all, experiment, &machine, (), page)
        }
    }
}

/// The lines on a sweep as a whole, and the page of the first trial that runs.
fn pages(
    all: &CheckOptions,
    experiment: &Experiment,
    (prepared, machine, planned): (&[Prepared<Trial>], &Machine, Duration),
    datasets: &mut Datasets,
) -> Result<[String; 2], Vec<Problem>> {
    let options = &all.run;
    let (trials, conditions) = Conditions::new(all, experiment, prepared, (machine, planned));
    let Some((_, first)) = trials.first() else { return Ok([String::new(), String::new()]) };
    let forecast = forecast(&trials, datasets, &conditions)?;
    let dataset = datasets.open(&first.spec)?;
    let describe = |lines| describe(first, machine, &dataset, (&forecast.first, lines));
    let there = forecasts(experiment, &trials, options.threads_of(machine.cores), &conditions);
    if options.quiet {
        return Ok([there, String::new()]);
    }
    if !experiment.is_sweep() {
        return Ok([String::new(), describe(&forecast.lines) + &there]);
    }
    let lines = forecast.lines.iter().map(|(name, value)| format!("  {name:<10} {value}\n"));
    Ok([format!("\n{}{there}", lines.collect::<String>()), describe(&[])])
}

/// Prints the table of trials, and the page of the first trial that runs.
fn show<P: Planned>(
    CheckOptions { run: options, jobs, .. }: &CheckOptions,
    experiment: &Experiment<P::Spec>,
    machine: &Machine,
    mut shared: P::Shared,
    page: impl FnOnce(&[Prepared<P>], Instant, &mut P::Shared) -> Result<[String; 2], Vec<Problem>>,
) -> Result<Exit, Exit> {
    let begun = Instant::now();
    let jobs = jobs.filter(|_| P::SIDE_BY_SIDE);
    let threads = threads_of_each(options, jobs, experiment.trials.len(), machine.cores);
    let prepared: Vec<Prepared<P>> = prepare(experiment, &mut shared, machine, threads)
        .map_err(|problems| refuse(&experiment.failure(problems)))?;
    // One trial is shown in detail; the table lists all of them.
    let first = first_run(&prepared).map(|(index, _)| index);
    let [of_sweep, on_page] = match first.map(|index| (index, page(&prepared, begun, &mut shared))) {
        Some((index, Err(problems))) => {
            return Err(refuse(&experiment.failure(problems.into_iter().map(|p| (index, p)))));
        }
        Some((index, Ok([sweep, page]))) if experiment.is_sweep() && !page.is_empty() => {
            [sweep, format!("\ntrial {index}: {page}")]
        }
        Some((_, Ok(pages))) => pages,
        None => [String::new(), String::new()],
    };
    // The page already shows its own notes.
    run::warnings(experiment, &prepared, &on_page).print();
    let table = (experiment.is_sweep() && !options.quiet)
        .then(|| trials(experiment, &prepared) + &placed(experiment, &prepared, machine));
    let text = table.unwrap_or_default() + &of_sweep + &on_page;
    let printed = print(&fit(&text));
    let missing = prepared.iter().enumerate().filter_map(|(index, prepared)| match prepared {
        Prepared::Missing(problem) => Some((index, (**problem).clone())),
        _ => None,
    });
    let missing: Vec<_> = missing.collect();
    if missing.is_empty() {
        return Ok(printed);
    }
    refuse(&experiment.failure(missing));
    Err(Exit::Missing)
}

/// A line per trial: its values, and what will happen with it.
fn trials<P: Planned>(experiment: &Experiment<P::Spec>, prepared: &[Prepared<P>]) -> String {
    let mut header = vec!["trial"];
    header.extend(experiment.axes.iter().map(String::as_str));
    header.extend(["steps", "devices", "engine", "becomes"]);
    let numeric = header.len() - 3;
    let (short, mut rows) = (experiment.short_values(), Vec::new());
    for (trial, prepared) in experiment.trials.iter().zip(prepared).take(experiment.known) {
        let mut cells = vec![trial.index.to_string()];
        let shown = |(value, short): (String, &HashMap<String, String>)| match short.get(&value) {
            Some(short) => short.clone(),
            None => value,
        };
        cells.extend(experiment.values(trial).into_iter().zip(&short).map(shown));
        let nothing = String::new;
        cells.extend(match prepared {
            Prepared::Run(planned) => {
                let (steps, engine) = planned.steps_and_engine().unzip();
                let steps = steps.map(units::count).unwrap_or_default();
                let devices = planned.devices().used_names().join(" ");
                [steps, devices, engine.unwrap_or_default().to_owned(), "run".into()]
            }
            Prepared::SameAs(other, devices) => {
                let becomes = format!("same_as trial {other}: not run twice");
                [nothing(), devices.used_names().join(" "), nothing(), becomes]
            }
            Prepared::Missing(p) => {
                [nothing(), nothing(), nothing(), format!("skipped: {}", p.message.replace('`', ""))]
            }
        });
        rows.push(cells);
    }
    let mut table = narrowed(&header, &rows, numeric, output_width().map_or(usize::MAX, usize::from));
    let learns = experiment.known < prepared.len();
    if learns {
        let last = prepared.len() - 1;
        table.push_str(&format!(
            "  {} to {last}: drawn from the results of earlier trials\n",
            experiment.known
        ));
    }
    let runs = prepared.iter().filter(|p| matches!(p, Prepared::Run(_))).count();
    let all = units::counted(prepared.len() as u64, "trial");
    let name = experiment.trials.first().map_or("", |t| P::name(&t.spec));
    let excluded = match experiment.excluded {
        0 => String::new(),
        n => format!(" ({} excluded)", units::count(n as u64)),
    };
    let epochs = prepared.iter().filter_map(|own| match own {
        Prepared::Run(planned) => planned.epochs(),
        _ => None,
    });
    let halving = match experiment.stop {
        Some(halving) => rungs(&halving.plan(runs, epochs.max().unwrap_or(0)), learns),
        None => String::new(),
    };
    format!("{name}: {all}{excluded}, {}{halving}\n\n{table}", units::counted(runs as u64, "run"))
}

/// The table of trials; axes are the columns from the second up to `first`. Where it is wider than the terminal, axes have short
/// names, and what is the same for all trials stands below it instead.
fn narrowed(header: &[&str], rows: &[Vec<String>], first: usize, width: usize) -> String {
    let is_number = |place| place < first;
    let table = text_table::text(header, rows, is_number);
    if table.lines().all(|line| line.chars().count() <= width) {
        return table;
    }
    let header = [&header[..1], &spec::short_keys(&header[1..first - 1]), &header[first - 1..]].concat();
    let mut rows = rows.to_vec();
    let mut of_all = Vec::new();
    for (place, title) in header.iter().enumerate().skip(first - 1) {
        let value = rows[0][place].clone();
        if !value.is_empty() && rows.iter().all(|row| row[place] == value) {
            // The line above the table counts the runs.
            of_all.extend((value != "run").then(|| format!("{title} {value}")));
            rows.iter_mut().for_each(|row| row[place].clear());
        }
    }
    let table = text_table::text(&header, &rows, is_number);
    if of_all.is_empty() { table } else { format!("{table}  every trial: {}\n", of_all.join(", ")) }
}

/// How trials are placed on real GPUs.
fn placed<P: Planned>(
    experiment: &Experiment<P::Spec>,
    prepared: &[Prepared<P>],
    machine: &Machine,
) -> String {
    let is_real = machine.gpus.iter().any(|gpu| !gpu.is_virtual) && P::SIDE_BY_SIDE;
    let placement = Placement::new(prepared, machine, experiment.share).filter(|_| is_real);
    placement.map_or_else(String::new, |placement| format!("\n  {}\n", placement.words()))
}

/// `; all for 1 epoch, about 3 for 3, about 1 for 9`. A sampler that learns draws better trials later, of which more go on.
fn rungs(plan: &[(u64, usize)], learns: bool) -> String {
    let part = |(place, (epochs, trials)): (usize, &(u64, usize))| match place {
        0 => format!("; all for {}", units::counted(*epochs, "epoch")),
        _ => {
            let or_more = if learns { " or more" } else { "" };
            format!(", about {}{or_more} for {}", units::count(*trials as u64), units::count(*epochs))
        }
    };
    plan.iter().enumerate().map(part).collect()
}
