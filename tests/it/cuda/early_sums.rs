//! Several processes whose sums of gradients start during the backward pass, on processors and on GPUs.

use std::{fs, time::Instant};

use super::{
    Sim,
    parity::MLP,
    plus,
    processes::{Job, THREE, TWO, name},
};
use crate::{
    ends::{LIMIT, send, side_by_side},
    process::{Folder, Sandbox, tensors},
    timeline::lanes,
};

fn linear(outputs: usize) -> String {
    format!("{{linear={{out_features={outputs}}}}}")
}

/// Two layers whose sums start early, between two small ones.
fn wide() -> String {
    let [wide, last] = [512, 1].map(linear);
    format!(
        "model.layers=[{wide},'tanh',{{layer_norm={{}}}},{wide},{{dropout={{p=0.2}}}},{wide},'relu',{last}]"
    )
}

const FEW: &str = "data.synthetic_regression.validation_rows=2";

/// Bytes of the sums of a step, in their order: the last two layers and the loss, the layers before them, the first one.
/// Parameters are padded to 16 elements.
const SUMS: [usize; 3] =
    [4 * ((512 * 512 + 512) + (512 + 16) + 16), 4 * (512 * 512 + 512), 4 * ((6 * 512 + 512) + (512 + 512))];

/// Large layers, whose sums start during the backward pass, and a last batch of which the first rank has no row: the bits of
/// one process with as many virtual devices. A rank's team of threads changes none.
#[test]
fn processors_of_processes_learn_with_early_sums_what_those_of_one_do() {
    let Some(sim) = Sim::get() else { return };
    let [wide, last] = [512, 1].map(linear);
    let layers = format!(
        "model.layers=[{wide},'gelu',{{layer_norm={{}}}},{wide},'tanh',{{dropout={{p=0.2}}}},{wide},'relu',{last}]"
    );
    let common = [&layers, "data.synthetic_regression.train_rows=241", "trainer.max_epochs=2", "-q"];
    let place = Sandbox::new(MLP);
    let virtual_devices = ["--virtual-gpus", "2", "devices.num_gpus=2"];
    let one = sim.run(&place, &[&common[..], &virtual_devices].concat(), &[]).ended_by(0);
    for team in [&["--threads", "1"][..], &["--threads", "2", "devices.engine=team"]] {
        let many = [&common[..], &["devices.num_gpus=0"], team].concat();
        let many = Job::start(&sim, &place, &many, &TWO).end().ended_by(0);
        assert_eq!(many.numbers(), one.numbers(), "{team:?}");
        assert_eq!(tensors(&many.model()), tensors(&one.model()), "{team:?}");
        // A step counts one sum, of all gradients and the loss, at each rank.
        let sums = many.table("transfers.csv").only("kind", "all_reduce");
        let steps: f64 = many.summary("steps").parse().unwrap();
        assert_eq!((sums.f64s("count"), steps), (vec![14.0; 2], 14.0));
        let parameters = (6 * 512 + 512) + 2 * 512 + 2 * (512 * 512 + 512) + (512 + 1);
        assert_eq!(sums.f64s("bytes"), [14.0 * 4.0 * f64::from(parameters + 1); 2]);
    }
}

/// The sums of a rank's steps among the kernels that they overlap with, in the order in which they were queued or
/// captured.
fn steps(log: &str, rank: usize) -> Vec<String> {
    let calls = log.lines().filter_map(|line| line.strip_prefix(&format!("{rank} ")));
    let calls = calls.flat_map(|call| call.strip_prefix("capture; ").unwrap_or(call).split("; "));
    let (mut steps, mut step) = (Vec::new(), String::new());
    for call in calls {
        match call.split(' ').collect::<Vec<_>>()[..] {
            ["all_reduce", bytes] => step += &format!("sum of {bytes}, "),
            ["launch", "op_weight_gradient", ..] => step += "gradient, ",
            ["launch", "op_zero", ..] => step += "zeros, ",
            ["launch", "op_adam", ..] => step += "update",
            // The launch of the log ends a step, where there is one.
            ["launch", "advance" | "op_log_append", ..] => steps.push(std::mem::take(&mut step)),
            _ => {}
        }
    }
    steps
}

/// As the stand-in for NCCL adds in the order of ranks: the bits of one process with as many GPUs, which sums after the
/// backward pass. Clipping needs the whole sum; of the last batch some ranks have no row.
#[test]
fn gpus_of_processes_learn_with_early_sums_what_those_of_one_do() {
    let Some(sim) = Sim::get() else { return };
    let (place, layers) = (Sandbox::new(MLP), wide());
    let rows = "data.synthetic_regression.train_rows=9";
    let common =
        [&layers, "data.batch_size=4", rows, FEW, "trainer.max_epochs=1", "logging.trace=true", "-q"];
    let sums = |run: &Folder| {
        let table = run.table("transfers.csv").only("kind", "all_reduce");
        [table.f64s("count"), table.f64s("bytes")]
    };
    for ranks in [&TWO[..], &THREE] {
        let (n, gpus) = (ranks.len(), format!("devices.num_gpus={}", ranks.len()));
        let variables = [("RUNNER_SIM_DEVICES", "3"), ("RUNNER_SIM_PEER", "0")];
        let one = sim.run(&place, &plus(&common, &gpus), &variables).ended_by(0);
        for engine in ["graph", "launch"] {
            let (what, choice) = (format!("{n} processes, {engine}"), format!("devices.engine={engine}"));
            let _ = fs::remove_file(sim.log());
            let many = Job::start(&sim, &place, &plus(&common, &choice), ranks).end().ended_by(0);
            assert_eq!(many.numbers(), one.numbers(), "{what}");
            assert_eq!(tensors(&many.model()), tensors(&one.model()), "{what}");
            // A step counts one sum, as it does in one process.
            assert_eq!(sums(&many), sums(&one), "{what}");
            // Each phase has one sample per step, however many sums start during it.
            let phases = if engine == "graph" { "step" } else { "backward all_reduce optimizer" };
            for phase in phases.split(' ') {
                let timed = many.table("timing.csv").only("clock", "device").only("phase", phase);
                assert_eq!(timed.f64s("count"), vec![3.0; n], "{what}, {phase}");
            }
            let log = fs::read_to_string(sim.log()).unwrap();
            let [early, middle, late] = SUMS.map(|bytes| format!("sum of {bytes}, "));
            let full = format!("gradient, gradient, {early}gradient, {middle}gradient, {late}update");
            let without_rows = format!("zeros, {early}{middle}{late}update");
            let mut lanes = lanes(&many);
            for rank in 0..n {
                // Its trace has the last step, too, which has fewer phases where there are no rows.
                let spans = lanes.remove(&(name(rank), "steps".to_owned())).unwrap();
                let traced =
                    spans.iter().filter(|span| span.name == "step" && span.arguments["step"].is_u64());
                assert!(engine == "graph" || traced.count() == 3, "{what}, rank {rank}: {spans:?}");
                let steps = steps(&log, rank);
                assert!(steps.contains(&full), "{what}: {steps:?}");
                assert_eq!(steps.contains(&without_rows), rank + 1 < n, "{what}, rank {rank}: {steps:?}");
            }
        }
    }
}

/// Its sums are under way in a stream of their own when the other rank is lost.
#[test]
fn a_lost_rank_ends_early_sums_within_the_limit() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(MLP);
    side_by_side([("graph", "-STOP"), ("launch", "-KILL")], |(engine, signal)| {
        let engine = format!("devices.engine={engine}");
        let layers = wide();
        let common = [
            &layers,
            &engine,
            "data.batch_size=4",
            "data.synthetic_regression.train_rows=8",
            FEW,
            "trainer.max_epochs=1000000",
            "checkpoint.every_epochs=1",
            "devices.host_timeout=2s",
            "-q",
        ];
        let mut job = Job::start(&sim, &place, &common, &TWO);
        job.wait_for_checkpoint();
        send(signal, &job.ranks[1]);
        let begun = Instant::now();
        let run = job.end_first().ended_by(1);
        let took = begun.elapsed();
        assert!(took < LIMIT, "{engine}, {signal}: {took:?}");
        let log = run.text("run.log");
        let last = log.lines().rfind(|line| line.contains(" ERROR ")).unwrap();
        let lost = format!(
            "`{}` is lost: no sign of life for 2.00 s; it was killed, is frozen, or its link is cut",
            name(1)
        );
        assert!(last.ends_with(&lost), "{engine}, {signal}: {last}");
    });
}
