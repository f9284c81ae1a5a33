//! No unnecessary waits: checks the driver calls and the run's own records.

use super::{LINREG, Sim, plus};
use crate::{
    process::{Folder, Sandbox, Table},
    streamed,
};

/// A step takes the same time however busy this machine is: blocks have as many steps in every run.
pub const STEADY: (&str, &str) = ("RUNNER_SIM_CLOCK", "1");

/// Count and bytes of one row of `transfers.csv`.
fn line(transfers: &Table, kind: &str, purpose: &str) -> Option<(u64, String)> {
    let rows = 0..transfers.rows.len();
    let mut found =
        rows.filter(|r| transfers.cell(*r, "kind") == kind && transfers.cell(*r, "purpose") == purpose);
    found.next().map(|r| (transfers.cell(r, "count").parse().unwrap(), transfers.cell(r, "bytes").to_owned()))
}

#[test]
fn buffered_waits_only_where_it_flushes() {
    let Some(sim) = Sim::get() else { return };
    let arguments = [
        "logging.flush_every=40",
        "logging.flush_every_s=1000",
        "trainer.max_epochs=10",
        "trainer.validate_every_epochs=0",
    ];
    for (engine, late) in
        [("persistent", "0"), ("persistent", "3"), ("cooperative", "0"), ("graph", "0"), ("launch", "2")]
    {
        let sim = Sim::at(&sim.libraries);
        let choice = format!("devices.engine={engine}");
        let place = Sandbox::new(LINREG);
        // However late events complete, they are only queried, never waited for: rows of the log come while later
        // steps are queued.
        let variables = [("RUNNER_SIM_LATE", late), STEADY];
        let folder = sim.run(&place, &plus(&arguments, &choice), &variables).ended_by(0);
        let calls = sim.calls();
        // The loop: from the first pinned copy of learning rates to the last flush.
        let first = calls.iter().position(|c| c.starts_with("launch") || c.starts_with("graph")).unwrap();
        let flushes: Vec<usize> = (0..calls.len()).filter(|i| calls[*i] == "d2h 160 pinned").collect();
        assert_eq!(flushes.len(), 4, "160 steps by 40: {calls:?}");
        let in_loop = || calls[first..flushes[3]].iter().enumerate();
        let flushed = |i: usize| calls[..first + i].iter().filter(|call| *call == "d2h 160 pinned").count();
        let mut waits = 0;
        for (i, call) in in_loop() {
            waits += usize::from(call.starts_with("synchronize") || call.ends_with("pageable"));
            assert!(waits <= flushed(i), "{engine}: call {i}, `{call}`, in {calls:?}");
            assert!(!call.starts_with("alloc") && !call.starts_with("free"), "{engine}: {call} in the loop");
        }
        let launches =
            in_loop().filter(|(i, call)| flushed(*i) > waits && call.starts_with("launch")).count();
        assert!(late == "0" || engine != "persistent" || launches > 0, "{calls:?}");
        // The driver may wait silently in copies that it stages itself.
        let staged = |call: &&String| call.starts_with("h2d") && call.ends_with("pageable");
        assert_eq!(calls.iter().find(staged), None, "{engine}");
        let transfers = folder.table("transfers.csv");
        assert_eq!(line(&transfers, "sync", "log"), Some((4, String::new())), "{engine}");
        assert_eq!(line(&transfers, "d2h", "log"), Some((4, "640".into())));
        assert_eq!(line(&transfers, "h2d", "dataset"), Some((2, "6000".into())));
        let (count, bytes) = line(&transfers, "h2d", "batch").unwrap();
        assert!(
            count < 10 && bytes == "20000",
            "orders of several epochs at once, not {count} of {bytes} bytes"
        );
        assert_eq!(line(&transfers, "d2h", "parameters").map(|l| l.0), Some(1), "the model, once");
    }
}

/// Epochs that run as one stretch, those with a validation after each, and blocks of one step take the same steps.
#[test]
fn a_stretch_of_epochs_changes_no_number() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    for engine in ["persistent", "cooperative", "graph", "launch", "compiled"] {
        for shuffle in ["true", "false"] {
            let run = |more: &[&str]| {
                let own = [format!("devices.engine={engine}"), format!("data.shuffle={shuffle}")];
                let own = own.iter().map(String::as_str).chain(["trainer.max_epochs=7"]);
                let arguments: Vec<&str> = own.chain(more.iter().copied()).collect();
                sim.run(&place, &arguments, &[STEADY]).ended_by(0)
            };
            let numbers = |run: &Folder| {
                let rows = run.metrics().only("split", "train");
                ["step", "epoch", "rows", "loss"].map(|name| rows.column(name).join(" "))
            };
            let whole = run(&["trainer.validate_every_epochs=0"]);
            let launches = line(&whole.table("transfers.csv"), "h2d", "launch").unwrap().0;
            assert!(engine == "launch" || launches < 7 + 7, "{engine}: {launches} blocks");
            for more in [&["trainer.validate_every_epochs=1"][..], &["logging.policy=immediate"]] {
                assert_eq!(numbers(&run(more)), numbers(&whole), "{engine}, shuffle {shuffle}, {more:?}");
            }
        }
    }
}

#[test]
fn immediate_reads_every_step_and_off_reads_none() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let run = |policy: &str| {
        let arguments = [format!("logging.policy={policy}"), "trainer.validate_every_epochs=0".into()];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        sim.run(&place, &arguments, &[]).ended_by(0).table("transfers.csv")
    };
    let immediate = run("immediate");
    assert_eq!(line(&immediate, "d2h", "log"), Some((48, "192".into())));
    assert_eq!(line(&immediate, "sync", "log"), Some((48, String::new())));
    let off = run("off");
    assert_eq!(line(&off, "d2h", "log"), None);
    assert!(line(&off, "sync", "log").is_none_or(|(count, _)| count <= 3), "an epoch's end at most");
}

#[test]
fn device_times_stand_beside_the_hosts() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let phases = |engine: &str, more: &[&str]| {
        let choice = format!("devices.engine={engine}");
        let folder = sim.run(&place, &plus(more, &choice), &[]).ended_by(0);
        let timing = folder.table("timing.csv");
        let host = folder.table("timing.csv").only("clock", "host");
        let sum: f64 = (0..host.rows.len())
            .filter(|r| !matches!(host.cell(*r, "phase"), "total" | "warmup"))
            .map(|r| host.cell(r, "total_s").parse::<f64>().unwrap())
            .sum();
        let seconds = |clock: &str, phase: &str| -> f64 {
            let rows = folder.table("timing.csv").only("clock", clock).only("phase", phase);
            rows.cell(0, "total_s").parse().unwrap()
        };
        let total = seconds("host", "total");
        assert!((sum / total - 1.0).abs() < 0.02, "host phases add up to {sum} of {total}");
        let device = timing.only("clock", "device");
        // The device computes while the host loop goes on; each validation is timed by both clocks.
        let all: f64 = device.column("total_s").iter().map(|s| s.parse::<f64>().unwrap()).sum();
        assert!(all > 0.0 && all <= total, "{engine}: {all} of {total}");
        if device.column("phase").contains(&"validation") {
            let [own, whole] = ["device", "host"].map(|clock| seconds(clock, "validation"));
            assert!(own > 0.0 && own <= whole, "{engine}: {own} of {whole}");
        }
        let counted = device.column("phase").into_iter().zip(device.column("count"));
        counted.map(|(phase, count)| format!("{phase} {count}")).collect::<Vec<_>>()
    };
    // Three passes over two chunks.
    for engine in ["persistent", "cooperative", "graph"] {
        assert_eq!(phases(engine, &[]), ["step 48", "validation 3"]);
        assert_eq!(phases(engine, &["data.placement=streamed"]), ["upload 12", "step 48", "validation 3"]);
    }
    let each = ["data 48", "forward 48", "loss 48", "backward 48", "validation 3", "log 48"];
    assert_eq!(phases("launch", &[]), each);
    assert_eq!(phases("graph", &["trainer.validate_every_epochs=0"]), ["step 48"]);
}

/// Where memory holds the rows of a file, a GPU's chunks are not read from the file again and again.
#[test]
fn rows_of_a_file_are_read_once_for_the_chunks_of_a_gpu() {
    let Some(sim) = Sim::get() else { return };
    let place = streamed::place(400, 30, "");
    let run = |placement| sim.run(&place, &["devices.num_gpus=1", placement], &[]).ended_by(0);
    let [streamed, resident] = ["data.placement=streamed", "data.placement=resident"].map(run);
    assert_eq!(streamed.numbers(), resident.numbers());
    let transfers = streamed.table("transfers.csv");
    assert_eq!(transfers.column("kind").iter().filter(|kind| **kind == "read").count(), 0);
    assert_eq!(line(&transfers, "h2d", "batch"), Some((4, (2 * 300 * 31 * 4).to_string())));
}

#[test]
fn streamed_chunks_are_uploaded_from_pinned_memory_without_a_wait() {
    let Some(sim) = Sim::get() else { return };
    let arguments = ["data.placement=streamed", "trainer.validate_every_epochs=0", "logging.flush_every=48"];
    let place = Sandbox::new(LINREG);
    let folder = sim.run(&place, &arguments, &[]).ended_by(0);
    let calls = sim.calls();
    let loops = calls.iter().skip_while(|c| !c.starts_with("launch"));
    assert!(
        !loops.clone().any(|c| c.starts_with("alloc")),
        "memory is taken before the first step: {calls:?}"
    );
    // 500 rows of two features and one target, three times.
    assert_eq!(calls.iter().filter(|c| *c == "h2d 4000 pinned").count(), 3, "{calls:?}");
    assert_eq!(calls.iter().filter(|c| *c == "h2d 2000 pinned").count(), 3);
    let transfers = folder.table("transfers.csv");
    assert_eq!(line(&transfers, "h2d", "batch"), Some((6, "18000".into())));
    assert_eq!(line(&transfers, "sync", "log").map(|l| l.0), Some(1));
}

/// All copies to a GPU take turns on one engine, whatever their streams. So no upload of rows may begin before the counters of
/// the block that runs meanwhile: that would have the block wait until the upload ends.
#[test]
fn a_block_does_not_wait_for_the_rows_of_the_next_one() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let long = ["data.placement=streamed", "trainer.max_epochs=6", "trainer.validate_every_epochs=0"];
    for engine in ["persistent", "cooperative", "graph", "launch"] {
        let before = sim.calls().len();
        let engine = format!("devices.engine={engine}");
        sim.run(&place, &plus(&long, &engine), &[("RUNNER_SIM_FOLLOWS", "1")]).ended_by(0);
        let calls = &sim.calls()[before..];
        let uploads = calls.windows(2).filter(|pair| pair[1] == "h2d 4000 pinned");
        let follows: Vec<_> =
            uploads.map(|pair| &pair[0]).filter(|call| call.starts_with("follow")).collect();
        // The first two find free memory.
        assert_eq!(follows.len(), 4, "{calls:?}");
        // The counters, with the rates of at most the epoch's 16 steps.
        let is_counters =
            |call: &str| (128 + 20..=128 + 16 * 20).any(|n| call == format!("follow h2d {n} pinned"));
        assert!(follows.iter().all(|call| is_counters(call)), "{engine}: {follows:?}");
    }
}

/// The reader has read the next epoch's first rows when `max_time` ends the run. Only what steps took counts as copied.
#[test]
fn rows_that_were_read_ahead_for_no_step_are_not_counted() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let long = ["trainer.max_epochs=1000000000", "trainer.max_time=100ms", "trainer.validate_every_epochs=0"];
    let folder = sim.run(&place, &plus(&long, "data.placement=streamed"), &[]).ended_by(0);
    let epochs: u64 = folder.summary("epochs").parse().unwrap();
    let (count, bytes) = line(&folder.table("transfers.csv"), "h2d", "batch").unwrap();
    assert_eq!((count, bytes), (2 * epochs, (epochs * 500 * 3 * 4).to_string()));
    let data = folder.table("timing.csv").only("clock", "host").only("phase", "data");
    assert_eq!(data.cell(0, "count"), (2 * epochs).to_string(), "each epoch begins, and waits for its chunk");
}
