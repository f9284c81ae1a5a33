//! Several GPUs that sum directly in each other's memory: their curves, what is recorded, and what happens if
//! a pair has no access or a GPU fails.

use super::{Sim, parity::classes, parity::same};
use crate::process::{Folder, Table};

/// Overrides, environment, how `check` says gradients are summed, and how the run says it.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str, &'a str);

const FOUR: (&str, &str) = ("RUNNER_SIM_DEVICES", "4");
const NO_PEERS: (&str, &str) = ("RUNNER_SIM_PEER", "0");

/// The all-reduce method in the run's `environment.toml`.
fn way(folder: &Folder) -> String {
    let environment: toml::Table = folder.text("environment.toml").parse().unwrap();
    environment["devices"]["sums"].as_str().unwrap().to_owned()
}

/// The curve and the weights. The model file's header is skipped, because it contains the spec, which may
/// differ.
fn bits(folder: &Folder) -> (String, Vec<u8>) {
    let model = folder.model();
    let head = u64::from_le_bytes(model[..8].try_into().unwrap()) as usize;
    (folder.numbers(), model[8 + head..].to_vec())
}

/// Kind, purpose, count and bytes of transfers and waits. Uploads are left out, because they depend on the
/// length of blocks.
fn moved(folder: &Folder) -> Vec<String> {
    let table: Table = folder.table("transfers.csv");
    let columns = ["kind", "purpose", "count", "bytes"];
    let row = |r: usize| columns.map(|column| table.cell(r, column)).join(" ");
    (0..table.rows.len()).map(row).filter(|row| !row.starts_with("h2d ")).collect()
}

#[test]
fn the_curve_is_that_of_the_cpu_and_has_the_bits_of_sums_through_the_host() {
    let Some(sim) = Sim::get() else { return };
    let Some((without_nccl, _folder)) = Sim::only(&["libcuda.so.1", "libnvrtc.so.12", "libcublasLt.so.12"])
    else {
        return;
    };
    let place = classes();
    let cpu = place.run(&["devices.num_gpus=0"]).ended_by(0);
    let nccl = sim.run(&place, &["devices.num_gpus=2"], &[FOUR, NO_PEERS]).ended_by(0);
    for count in [2, 4] {
        let gpus = format!("devices.num_gpus={count}");
        let host = without_nccl.run(&place, &[&gpus], &[FOUR, NO_PEERS]).ended_by(0);
        for (engine, chosen) in [("auto", "graph"), ("launch", "launch")] {
            let what = format!("{count} GPUs, {chosen}");
            let arguments = [&gpus, format!("devices.engine={engine}").as_str()].map(str::to_owned);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let peers = without_nccl.run(&place, &arguments, &[FOUR]).ended_by(0);
            assert_eq!(peers.summary("engine"), chosen);
            assert!(way(&peers).starts_with("by a peer kernel: "), "{what}: {}", way(&peers));
            same(&cpu, &peers, 2e-6, &what);
            assert!(bits(&peers) == bits(&host), "{what}: other bits than through the host");
            let again = without_nccl.run(&place, &arguments, &[FOUR]).ended_by(0);
            assert!(bits(&peers) == bits(&again), "{what}: other bits when repeated");
            if (count, chosen) == (2, "graph") {
                assert_eq!(moved(&peers), moved(&nccl), "copies and waits are those of sums by NCCL");
            }
            if chosen == "launch" {
                let device = peers.table("timing.csv").only("clock", "device");
                assert_eq!(device.only("phase", "all_reduce").cell(0, "count"), peers.summary("steps"));
            }
        }
    }
    assert!(
        without_nccl
            .calls()
            .iter()
            .any(|call| call == "launch_cooperative peer_sum blocks 1 threads 256 shared 0")
    );
}

#[test]
fn streamed_rows_and_uneven_shares() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    let arguments = ["data.placement=streamed", "data.batch_size=7", "trainer.max_epochs=1"];
    let cpu = place.run(&[&arguments[..], &["devices.num_gpus=0"]].concat()).ended_by(0);
    let gpus = sim.run(&place, &[&arguments[..], &["devices.num_gpus=3"]].concat(), &[FOUR]).ended_by(0);
    assert!(way(&gpus).starts_with("by a peer kernel: "), "{}", way(&gpus));
    same(&cpu, &gpus, 2e-6, "3 GPUs");
}

/// `runner check` shows the plan; `environment.toml` and `run.log` show what was used.
#[test]
fn the_way_is_told_with_its_reason() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    let large =
        r#"model.layers=[{ linear = { out_features = 20000 } }, "relu", { linear = { out_features = 3 } }]"#;
    let three = ["devices.num_gpus=3", "trainer.max_steps=2", "trainer.validate_every_epochs=0"];
    let peers = "by a peer kernel: each GPU reads the others' memory, and 1 KiB is no more than 512 KiB";
    let cases: [Case<'_>; 4] = [
        (&[], &[FOUR], peers, peers),
        (
            &[],
            &[FOUR, ("RUNNER_SIM_PEER", "1-2")],
            "by NCCL: `gpu:1` cannot access the memory of `gpu:2`",
            "by NCCL: `gpu:1` cannot access the memory of `gpu:2`",
        ),
        (
            &[large],
            &[FOUR],
            "by NCCL: 547 KiB is more than the 512 KiB of a peer kernel",
            "by NCCL: 547 KiB is more than the 512 KiB of a peer kernel",
        ),
        (
            &[],
            &[FOUR, ("RUNNER_SIM_FAIL", "peer:2")],
            peers,
            "by NCCL: no peer kernel, since `gpu:0` cannot access the memory of `gpu:2`: \
             CUDA_ERROR_PEER_ACCESS_UNSUPPORTED (peer access is not supported between these two devices)",
        ),
    ];
    for (more, variables, planned, done) in cases {
        let arguments = [&three[..], more].concat();
        let check = sim.runner(&place, &[&["check", "spec.toml"], &arguments[..]].concat(), variables);
        assert_eq!(check.code, Some(0), "{}", check.stderr);
        let line = format!("             summed {planned}\n");
        assert!(check.stdout.contains(&line), "{}", check.stdout);
        let folder = sim.run(&place, &arguments, variables).ended_by(0);
        assert_eq!(way(&folder), done);
        let log = folder.text("run.log");
        assert!(log.contains(&format!(" INFO  gradients are summed {done}\n")), "{log}");
    }
}

/// If sums must go through the host, the warning says why each better method is unavailable.
#[test]
fn neither_peers_nor_nccl() {
    let Some((sim, _folder)) = Sim::only(&["libcuda.so.1", "libnvrtc.so.12"]) else { return };
    let place = classes();
    let ran = sim.run(&place, &["devices.num_gpus=2"], &[FOUR, ("RUNNER_SIM_PEER", "0-1")]);
    let start = "\nwarning: gradients are summed through the host's memory, with a wait in every step: NCCL is not there: \
                 looked for libnccl.so.2 in ";
    let end = "; `gpu:0` cannot access the memory of `gpu:1`\n";
    let stderr = ran.ended.stderr.clone();
    assert!(stderr.contains(start) && stderr.contains(end), "{stderr}");
    assert!(way(&ran.ended_by(0)).starts_with("through the host's memory, with a wait in every step: NCCL"));
    // Peer access is reported as possible but fails.
    let broken = sim.run(&place, &["devices.num_gpus=2"], &[FOUR, ("RUNNER_SIM_FAIL", "peer:1")]).ended;
    assert_eq!(broken.code, Some(2), "{}", broken.stderr);
    let start = "error: `gpu:0` cannot be used: gradients would be summed through the host's memory, with a wait in every \
                 step: NCCL is not there: looked for libnccl.so.2 in ";
    let end = "; no peer kernel, since `gpu:0` cannot access the memory of `gpu:1`: CUDA_ERROR_PEER_ACCESS_UNSUPPORTED \
               (peer access is not supported between these two devices); that cannot be part of the engine `graph`: set \
               `devices.engine = \"launch\"`\n";
    assert!(broken.stderr.starts_with(start) && broken.stderr.ends_with(end), "{}", broken.stderr);
}

/// Each trial connects its GPUs anew; access that an earlier trial enabled already exists.
#[test]
fn trials_of_a_sweep_connect_one_after_the_other() {
    let Some(sim) = Sim::get() else { return };
    let arguments = [r#"sweep.grid={ "devices.num_gpus" = [2, 4, 3] }"#, "trainer.max_epochs=1"];
    let place = classes();
    let ran = sim.run(&place, &arguments, &[FOUR]);
    assert_eq!(ran.ended.code, Some(0), "{}", ran.ended.stderr);
    let sweep = ran.folder();
    for (trial, count) in [2, 4, 3].into_iter().enumerate() {
        let name = format!("{trial:03}-num_gpus={count}/environment.toml");
        let environment: toml::Table = sweep.text(&name).parse().unwrap();
        assert_eq!(environment["devices"]["used"].as_array().map(Vec::len), Some(count), "{name}");
        let way = environment["devices"]["sums"].as_str().unwrap_or_default();
        assert!(way.starts_with("by a peer kernel: "), "{name}: {way}");
    }
}
