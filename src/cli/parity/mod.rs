//! `runner parity SPEC.toml`: compares equal steps on the CPU and on every available number of GPUs. Writes
//! nothing.

mod job;
mod table;

use job::ParityJob;

use super::{args::ParityOptions, machine::machine};
use crate::{
    event::{Event, Status},
    plan::{
        Machine, PlanError, Trial,
        agreement::{Curve, Rule},
    },
    run::{Datasets, Exit, Planned, bf16_unit, print, print_error, refuse},
    spec::{self, Experiment, Spec},
    train::StopFlag,
    units,
};

const REQUESTS: &str =
    "`devices.num_gpus=1,2` compares these counts; without it parity takes every count that there is";

/// Runs the command.
pub fn parity(options: &ParityOptions) -> Result<Exit, Exit> {
    let ParityOptions { run, steps } = options;
    let experiment = spec::load(&run.spec(), &run.overrides()).map_err(|failure| refuse(&failure))?;
    let Some(trial) = experiment.trials.first() else { return Ok(Exit::Done) };
    if let Some(hosts) = trial.spec.devices.hosts.filter(|hosts| *hosts > 1) {
        return Err(Exit::refused(
            "parity compares the devices of one process, and `devices.hosts` trains with several",
            Some(&format!(
                "`--virtual-gpus {hosts} ~devices.hosts`: virtual devices sum in the same order, to the bit"
            )),
        ));
    }
    let machine = machine(run.virtual_gpus, true);
    let job = ParityJob::new(&experiment, run, trial.spec.clone(), *steps, &machine);
    if machine.gpus.is_empty() && job.cases.len() < 2 {
        print_error(
            format!("there is nothing to hold the CPU against: no GPU can be used ({})", machine.no_gpu),
            Some("`--virtual-gpus 4` has the host pose as a machine with four"),
        );
        return Err(Exit::Missing);
    }
    if job.cases.len() < 2 {
        let message = "there is nothing to hold the CPU against: no GPU is asked for";
        return Err(Exit::refused(message, Some(REQUESTS)));
    }
    let mut datasets = Datasets::new(&machine);
    let mut curves: Vec<Curve> = Vec::new();
    for case in &job.cases {
        let spec = job.on(case);
        curves.push(curve(&experiment, spec, &mut datasets, &machine, run.thread_count())?);
    }
    let target_square = match datasets.open(&job.spec) {
        Ok(dataset) if !job.spec.model.loss.classifies() => mean_square(dataset.targets_of(&dataset.train)),
        _ => 0.0,
    };
    let rule = Rule { target_square, precision: job.precision };
    let table::Page { text, verdict, holds } = table::page(&job.spec.name, &curves, rule, &job.notes);
    let printed = print(&match run.quiet {
        true => format!("{}: {verdict}\n", *job.spec.name),
        false => text,
    });
    if holds { Ok(printed) } else { Err(Exit::Failed) }
}

/// Trains on one number of devices.
fn curve(
    experiment: &Experiment,
    spec: Spec,
    datasets: &mut Datasets,
    machine: &Machine,
    threads: usize,
) -> Result<Curve, Exit> {
    let refused = |problems: Vec<spec::Problem>| {
        refuse(&experiment.failure(problems.into_iter().map(|problem| (0, problem))))
    };
    let planned = Trial::plan(&spec, datasets, machine, threads).map_err(|e| match e {
        PlanError::Problems(problems) => refused(problems),
        PlanError::Missing(problem) => {
            // `on_missing` has no effect here.
            refused(vec![
                problem.hint("parity compares what is there: leave it out for every count that there is"),
            ]);
            Exit::Missing
        }
    })?;
    let failed = |e: &dyn std::fmt::Display| Exit::failed(e.to_string(), None);
    let ready = planned.open(datasets).and_then(|opened| planned.ready(opened)).map_err(|e| failed(&e))?;
    let mut losses = Vec::new();
    let mut emit = |events: Vec<Event>| {
        for event in events {
            if let Event::Train(rows) = event {
                losses.extend(rows.values.iter().step_by(rows.width).map(|loss| f64::from(*loss)));
            }
        }
        Ok(())
    };
    let in_bf16 = bf16_unit(&planned).map_or("", |_| " in bf16");
    let names = planned.devices.used_names().join(", ") + in_bf16;
    let trained = ready.train(&StopFlag::default(), &mut emit);
    let trained = trained.map_err(|_| failed(&"the run can no longer be followed"))?;
    if trained.outcome.status != Status::Finished {
        let reason = trained.outcome.reason.unwrap_or_default();
        return Err(failed(&format!("on {names}: {reason}")));
    }
    let batch = planned.programs.train.batch;
    let rows = units::counted(batch as u64, "row");
    Ok(Curve { devices: names, rows, losses, parameters: trained.values.unwrap_or_default() })
}

fn mean_square(numbers: impl Iterator<Item = f32> + Clone) -> f64 {
    numbers.clone().map(|v| f64::from(v).powi(2)).sum::<f64>() / numbers.count().max(1) as f64
}
