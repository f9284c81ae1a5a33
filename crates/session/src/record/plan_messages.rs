//! A plan's choices as sentences, for `runner check` and the log.

use crate::{
    plan::{AllReduceMethod, AllReducePlan, Engine, EngineReason, NcclFailure, PeerAccess, Trial, Tried},
    spec::{Curve, LrScaling, Rule, Scaling},
    units,
};

/// `serial: the spec asks for it`.
pub fn engine(trial: &Trial) -> String {
    let why = match &trial.engine_reason {
        EngineReason::Spec => "the spec asks for it".to_owned(),
        EngineReason::OneThread => "there is one thread".to_owned(),
        EngineReason::ThreadPerDevice => "each device has one thread".to_owned(),
        EngineReason::QueuedSums => "sums over GPUs are queued among the kernels".to_owned(),
        EngineReason::SumsOnHost => "gradients are summed over devices between launches".to_owned(),
        EngineReason::Threads { alone_s, together_s, threads, reads_file } => {
            let [alone, together] = [*alone_s, *together_s].map(units::seconds);
            let of_file = if *reads_file { ", with rows at typical rates of a file" } else { "" };
            match trial.engine {
                Engine::Team => {
                    format!("a step of {alone} shared by {threads} threads may take {together}{of_file}")
                }
                _ => format!("a step of {alone} is too short for threads to share{of_file}"),
            }
        }
        EngineReason::Fastest { steps_s, by } => {
            let by = by.map_or_else(|| "as estimated".to_owned(), |by| format!("by {} rates", by.name()));
            format!("a step may take, {by}: {}", step_times(steps_s))
        }
        EngineReason::Together { steps, steps_s } => {
            let why = match trial.engine {
                Engine::Compiled => {
                    let steps = units::counted(*steps, "step");
                    format!("the sweep has {steps} with this kernel, which repay compiling it")
                }
                _ => "the sweep began with it".to_owned(),
            };
            format!("{why}; a step may take: {}", step_times(steps_s))
        }
        EngineReason::Tried { tried, held, took_s } => {
            let step = |Tried { engine, threads, step_s }: &Tried| {
                let step = units::seconds(*step_s);
                match engine.is_gpu() {
                    true => format!("`{}` {step}", engine.name()),
                    false => format!("{step} by {}", units::counted(*threads as u64, "thread")),
                }
            };
            let steps: Vec<_> = tried.iter().map(step).collect();
            let fastest = tried.iter().min_by(|a, b| a.step_s.total_cmp(&b.step_s));
            let waits = trial.threads > 1 && fastest.is_some_and(|fastest| fastest.threads == 1);
            let until = if waits { "; one thread runs while it is faster" } else { "" };
            let held = match held {
                0 => String::new(),
                held => format!("; others held {} meanwhile", units::counted(*held as u64, "core")),
            };
            let took = units::seconds(*took_s);
            format!("on blank rows a step took {}{held}{until}; the trial took {took}", steps.join(", "))
        }
        EngineReason::Begun => "the run began with it".to_owned(),
    };
    format!("{}: {why}", trial.engine.name())
}

/// "`graph` 14.0 µs, `persistent` 20.0 µs".
fn step_times(steps_s: &[(Engine, f64)]) -> String {
    let step = |(engine, step_s): &(Engine, f64)| format!("`{}` {}", engine.name(), units::seconds(*step_s));
    steps_s.iter().map(step).collect::<Vec<_>>().join(", ")
}

/// `by NCCL: 547 KiB is more than the 512 KiB of a peer kernel`.
pub fn all_reduce(plan: &AllReducePlan) -> String {
    let by = match plan.by {
        AllReduceMethod::PeerKernel => "by a peer kernel",
        AllReduceMethod::Nccl => "by NCCL",
        AllReduceMethod::Host => "through the host's memory, with a wait in every step",
    };
    let peers = match &plan.peers {
        PeerAccess::Fits { bytes, most } => {
            let [size, room] = units::two_sizes(*bytes, *most);
            format!("each GPU reads the others' memory, and {size} is no more than {room}")
        }
        PeerAccess::TooLarge { bytes, most } => {
            let [size, room] = units::two_sizes(*bytes, *most);
            format!("{size} is more than the {room} of a peer kernel")
        }
        PeerAccess::Mixed => "not all of the devices are GPUs".to_owned(),
        PeerAccess::OtherProcesses => "each GPU belongs to a process of its own".to_owned(),
        PeerAccess::TooManyGpus(most) => format!("a peer kernel is for {most} GPUs at most"),
        PeerAccess::Unreached(from, to) => format!("`{from}` cannot access the memory of `{to}`"),
        PeerAccess::NotCooperative(gpu) => {
            format!("`{gpu}` has no cooperative launches, which a peer kernel is")
        }
        PeerAccess::Failed(why) => format!("no peer kernel, since {why}"),
    };
    let nccl = match &plan.nccl {
        None => String::new(),
        Some(NcclFailure::Missing(None)) => "NCCL is not there; ".to_owned(),
        Some(NcclFailure::Missing(Some(why))) => format!("NCCL is not there: {why}; "),
        Some(NcclFailure::Failed(why)) => format!("{why}; "),
    };
    format!("{by}: {nccl}{peers}")
}

/// The batch and the learning rate under weak scaling; `None` without it.
pub fn weak_scaling(trial: &Trial) -> Option<String> {
    let devices = trial.world_size();
    if trial.spec.devices.scaling == Scaling::Strong || devices == 1 {
        return None;
    }
    let (each, [all, one]) = (trial.spec.data.batch_size, trial.batches());
    // If there are fewer rows than the scaled batch, the devices divide those rows.
    let shares = || trial.ranks().map(|programs| programs.train.rows);
    let (least, most) = (shares().min().unwrap_or(each), shares().max().unwrap_or(each));
    let share = if least == most { most.to_string() } else { format!("{least} or {most}") };
    let capped = each.saturating_mul(devices) > all;
    let (there_are, instead) =
        if capped { (", all there are", format!(" instead of {each}")) } else { ("", String::new()) };
    let batch = format!(
        "weak scaling: a step takes {all} rows{there_are}, {share} for each of {devices} devices{instead}"
    );
    // Use the ratio of rows if these do not scale with the devices.
    let times = if capped { format!("{all}/{one}") } else { devices.to_string() };
    let rule = match trial.spec.devices.lr_scaling {
        LrScaling::None => return Some(format!("{batch}; the learning rate is as written")),
        _ if all == one => {
            let why = "a step of one device would take as many";
            return Some(format!("{batch}; the learning rate is as written: {why}"));
        }
        LrScaling::Linear => times,
        LrScaling::Sqrt => format!("the root of {times}"),
    };
    let (name, written) = match &trial.spec.schedule.rule {
        Rule::One(Curve::OneCycle(c)) => ("max_lr", c.max_lr),
        _ => ("lr", trial.spec.optimizer.lr()),
    };
    // Rounded for display: 0.3, not 0.30000000000000004.
    let used = written * trial.lr_factor();
    let used = units::exact(format!("{used:.5e}").parse().unwrap_or(used));
    Some(format!("{batch}; `{name}` is {used}: {} times {rule}", units::exact(written)))
}
