//! Compares the ledger of GPUs with the plan: bytes for data, parameters and logs are as predicted, for resident and
//! streamed rows and each policy. In addition a GPU gets its counters with every block.

use runner::plan::{Gpu, GpuLimits};

use super::Sim;
use crate::{
    moved::{SPEC, counted, predicted},
    process::Sandbox,
};

/// Bytes of the counters that go to the device with every block (`Run` of kernels/common.cuh).
const COUNTERS: u64 = 128;

#[test]
fn gpus_move_what_was_predicted_to_the_byte_and_their_counters() {
    let Some(all) = Sim::get() else { return };
    let place = Sandbox::new(SPEC);
    let engines = ["persistent", "cooperative", "graph", "launch"];
    for (i, policy) in ["immediate", "buffered", "per_epoch", "off"].into_iter().enumerate() {
        let policy = format!("logging.policy={policy}");
        // Every policy with resident and streamed rows; every engine with each of both.
        for (engine, placement) in [(engines[i], "resident"), (engines[(i + 1) % 4], "streamed")] {
            let engine = format!("devices.engine={engine}");
            let placement = format!("data.placement={placement}");
            let overrides = [policy.as_str(), &placement, &engine];
            let sim = Sim::at(&all.libraries);
            let run = sim.run(&place, &overrides, &[]).ended_by(0);
            let mut got = counted(&run);
            let transfers = run.table("transfers.csv");
            let rows = 0..transfers.rows.len();
            let is_sent = |r: &usize| {
                transfers.cell(*r, "kind") == "h2d" && transfers.cell(*r, "purpose") == "parameters"
            };
            let sent: u64 =
                rows.filter(is_sent).map(|r| transfers.cell(r, "count").parse::<u64>().unwrap()).sum();
            // The initial values went by one copy, every block by another.
            let parameters = got.get_mut(&("h2d".to_owned(), "parameters".to_owned())).unwrap();
            *parameters -= (sent - 1) * COUNTERS;
            assert_eq!(got, predicted(&place, &overrides, vec![gpu()]), "{policy} {placement} {engine}");
        }
    }
}

/// A GPU that takes every engine.
fn gpu() -> Gpu {
    let limits = GpuLimits {
        multiprocessors: 2,
        shared_bytes: 1 << 18,
        most_elements: usize::MAX,
        cooperative: true,
        ..GpuLimits::default()
    };
    Gpu { is_virtual: false, limits, ..Gpu::virtual_of(1 << 40) }
}
