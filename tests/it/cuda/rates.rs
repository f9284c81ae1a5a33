//! Rates of GPUs: measured on the simulated libraries, and planted ones that make a run bound by each
//! possible bottleneck.

use std::{collections::BTreeMap, fs, path::PathBuf};

use sha2::{Digest, Sha256};

use super::{LINREG, Sim, plus};
use crate::process::{Folder, Sandbox};

/// An engine, planted rates, the resulting bottleneck, and the advice.
type Case<'a> = (&'a str, &'a [(&'a str, f64)], &'a str);

/// Planted rates, an argument, the engine that is picked, and why.
type Choice<'a> = (&'a [(&'a str, f64)], &'a str, &'a str, &'a str);

/// A GPU so fast that nothing on it takes any time.
const FAST: [(&str, f64); 21] = [
    ("f32_flops_per_s", 1e18),
    ("tf32_flops_per_s", 1e18),
    ("bf16_flops_per_s", 1e18),
    ("grid_flops_per_s", 1e18),
    ("block_flops_per_s", 1e18),
    ("elementwise_per_s", 1e18),
    ("cache_bytes_per_s", 1e18),
    ("memory_bytes_per_s", 1e18),
    ("shared_bytes_per_s", 1e18),
    ("h2d_bytes_per_s", 1e18),
    ("d2h_bytes_per_s", 1e18),
    ("h2d_latency_s", 1e-9),
    ("d2h_latency_s", 1e-9),
    ("launch_s", 1e-9),
    ("node_s", 1e-9),
    ("barrier_s", 1e-9),
    ("block_barrier_s", 1e-9),
    ("sync_s", 1e-9),
    ("block_s", 1e-9),
    ("cache_bytes", 52_428_800.0),
    ("noise", 0.0),
];

fn hex16(text: &str) -> String {
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn key(device: u32) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let debug = if cfg!(debug_assertions) { " debug" } else { "" };
    format!(
        "version = \"{version}{debug}\"\nuuid = \"63757369-6d00-0000-0000-{device:012x}\"\nmodel = \"Simulated GPU\"\n\
         driver = \"580.65.06\"\n"
    )
}

/// The file with a GPU's cached rates.
fn of_gpu(sim: &Sim, device: u32) -> PathBuf {
    sim.cache.path().join(format!("gpu-rates-{}.toml", hex16(&key(device))))
}

/// Writes rates as the program would, with those in `but` replaced.
fn plant(sim: &Sim, device: u32, but: &[(&str, f64)]) {
    let mut rates = String::new();
    for (name, fast) in FAST {
        let value = but.iter().find(|(other, _)| *other == name).map_or(fast, |(_, value)| *value);
        let value = if name == "cache_bytes" { format!("{value}") } else { format!("{value:?}") };
        rates.push_str(&format!("{name} = {value}\n"));
    }
    // Formats numbers like the program does.
    let rates = canonical(&rates);
    let key = key(device);
    let checksum = hex16(&format!("{key}{rates}"));
    let text = format!(
        "measured = \"2027-01-15T08:00:00Z\"\nchecksum = \"{checksum}\"\n\n[key]\n{key}\n[rates]\n{rates}"
    );
    fs::write(of_gpu(sim, device), text).unwrap();
}

fn canonical(rates: &str) -> String {
    let table: toml::Table = rates.parse().unwrap();
    let line = |(name, _): &(&str, f64)| {
        let one = toml::Table::from_iter([((*name).to_owned(), table[*name].clone())]);
        toml::to_string(&one).unwrap()
    };
    FAST.iter().map(line).collect()
}

fn plant_sums(sim: &Sim, small_s: f64) {
    let keys: String = [0, 1].map(|device| format!("\n[[gpus]]\n{}", key(device))).concat();
    let key = keys.trim_start().to_owned();
    let rates = canonical_sums(small_s);
    let checksum = hex16(&format!("{key}{rates}"));
    let in_file = key.replace("[[gpus]]", "[[key.gpus]]");
    let text = format!(
        "measured = \"2027-01-15T08:00:00Z\"\nchecksum = \"{checksum}\"\n\n{in_file}\n[rates]\n{rates}"
    );
    fs::write(sim.cache.path().join(format!("gpu-sums-{}.toml", hex16(&key))), text).unwrap();
}

fn canonical_sums(small_s: f64) -> String {
    let one = |name: &str, value: toml::Value| {
        toml::to_string(&toml::Table::from_iter([(name.to_owned(), value)])).unwrap()
    };
    [one("gpus", 2.into()), one("small_s", small_s.into()), one("bytes_per_s", 1e18.into())].concat()
}

/// A second passes from event to event: steps take far longer than anything that the host does.
const LONG_STEPS: (&str, &str) = ("RUNNER_SIM_CLOCK", "1000000");

/// The largest part of a run's explained training time. (How long a small run leaves the GPU idle depends on
/// the host.)
fn largest(sim: &Sim, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let log = sim.run(&Sandbox::new(LINREG), arguments, variables).ended_by(0).text("run.log");
    let Some((_, words)) = log.lines().find_map(|line| line.split_once(" training time: ")) else {
        return "nothing is said".to_owned();
    };
    assert!(words.contains("its estimate by measured rates"), "{words}");
    let shares = words.split("; ").next().unwrap_or_default().split(", ");
    let mut names = shares.filter_map(|share| Some(share.strip_suffix(" %")?.rsplit_once(' ')?.0.to_owned()));
    let of_host = ["an idle GPU", "waiting for a core", "page faults", "unexplained"];
    names.find(|name| !of_host.contains(&name.as_str())).unwrap_or_default()
}

#[test]
fn every_figure_is_measured_kept_and_told() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let before = sim.runner(&place, &["devices"], &[]);
    let unknown = "\nrates of gpu:0\n  not measured; `runner devices --measure` measures them\n";
    assert!(before.stdout.ends_with(unknown), "{before:?}");
    let described = sim.runner(&place, &["devices", "-o", "machine.toml"], &[]);
    let unknown = "error: the rates of gpu:0 are not known\n  = hint: `runner devices --measure -o FILE` measures them first\n";
    assert_eq!((described.code, described.stderr.as_str()), (Some(2), unknown), "{described:?}");
    let two = [("RUNNER_SIM_DEVICES", "2")];
    // By this clock two measurements agree on a busy machine too.
    let clock = ("RUNNER_SIM_CLOCK", "processor");
    let ended = sim.runner(&place, &["devices", "--measure"], &[two[0], clock]);
    // Measuring the processor itself may be refused there.
    let is_busy = ended.stderr.contains("; measure again while the machine is quiet");
    assert_eq!(ended.code, Some(i32::from(is_busy)), "{ended:?}");
    let rows = |text: &str| -> Vec<String> {
        let names = text.lines().filter_map(|line| line.strip_prefix("  ")?.split("  ").next());
        names.map(|name| name.trim().to_owned()).collect()
    };
    let reported = ended.stdout.split("\nrates of gpu:0\n").nth(1).unwrap();
    let of_gpu_rows = [
        "measured",
        "products",
        "functions",
        "from cache",
        "from memory",
        "copies",
        "launch",
        "instruction",
        "wait",
        "block",
        "noise",
    ];
    let expected = [&of_gpu_rows[..], &of_gpu_rows, &["measured", "few numbers", "many"]].concat();
    assert_eq!(rows(reported), expected, "{reported}");
    assert!(reported.contains("\nsums over 2 GPUs\n"));
    // Simulated kernels run on this machine's processor, so only wide ranges can be checked.
    for device in [0, 1] {
        let text = fs::read_to_string(of_gpu(&sim, device)).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let rates = &table["rates"];
        for (name, _) in FAST {
            let value = rates[name].as_float().or_else(|| Some(rates[name].as_integer()? as f64)).unwrap();
            let range = match name {
                "noise" => 0.0..100.0,
                _ if name.ends_with("_s") && !name.contains("per_s") => 0.0..1.0,
                _ => 1e3..1e15,
            };
            assert!(range.contains(&value), "{name} {value}");
        }
        assert!(rates["cache_bytes_per_s"].as_float() >= rates["memory_bytes_per_s"].as_float());
        // A launch takes more than next to no time.
        assert!(rates["launch_s"].as_float().unwrap() > 1e-8);
    }
    // The memory benchmark uses more than the cache holds, the cache benchmark only a part of it.
    let second_level_cache = 2 << 20;
    for bytes in [8 * second_level_cache, second_level_cache / 4] {
        let taken = format!("alloc {}", bytes / 12 * 12);
        assert!(sim.calls().contains(&taken), "{taken}");
    }
    // Cached: reported without measuring again, unless the driver has changed.
    let again = sim.runner(&place, &["devices"], &two).stdout;
    assert_eq!(again.split("\nrates of gpu:0\n").nth(1).unwrap(), reported);
}

#[test]
fn planted_rates_bind_a_run_by_what_they_make_slow() {
    let Some(all) = Sim::get() else { return };
    let cases: [Case<'_>; 8] = [
        ("graph", &[("f32_flops_per_s", 1.0)], "arithmetic"),
        ("persistent", &[("block_flops_per_s", 1.0)], "arithmetic"),
        ("cooperative", &[("grid_flops_per_s", 1.0)], "arithmetic"),
        ("graph", &[("cache_bytes_per_s", 1.0), ("memory_bytes_per_s", 1.0)], "memory"),
        ("launch", &[("launch_s", 1.0)], "launch latency"),
        ("graph", &[("node_s", 1.0)], "launch latency"),
        ("cooperative", &[("barrier_s", 1.0)], "barriers"),
        ("persistent", &[("block_barrier_s", 1.0)], "barriers"),
    ];
    for (engine, slow, name) in cases {
        let sim = Sim::at(&all.libraries);
        plant(&sim, 0, slow);
        let found = largest(&sim, &[&format!("devices.engine={engine}")], &[LONG_STEPS]);
        assert_eq!(found, name, "{engine}");
        let check = sim.runner(
            &Sandbox::new(LINREG),
            &["check", "spec.toml", &format!("devices.engine={engine}")],
            &[],
        );
        let bound = format!(" by measured rates, bound by {name}; ");
        assert!(check.stdout.contains(&bound), "{engine}: {check:?}");
    }
}

/// Bottlenecks that a run measures itself: slow copies, reads and sums.
#[test]
fn slow_copies_reads_and_sums_bind_a_run() {
    let Some(all) = Sim::get() else { return };
    let sim = || {
        let sim = Sim::at(&all.libraries);
        [0, 1].iter().for_each(|device| plant(&sim, *device, &[]));
        sim
    };
    // 500 rows of two numbers, as one chunk.
    let slow = [("RUNNER_SIM_SLOW", "h2d 4000:400000")];
    assert_eq!(largest(&sim(), &["data.placement=streamed"], &slow), "transfer");
    let slow = [("RUNNER_SIM_SLOW", "d2h 4:30000")];
    assert_eq!(largest(&sim(), &["logging.policy=immediate"], &slow), "log");
    // Through NCCL, because no GPU can access the other's memory.
    let [two, nccl] = [("RUNNER_SIM_DEVICES", "2"), ("RUNNER_SIM_PEER", "0")];
    let slow = [("RUNNER_SIM_SLOW", "all_reduce:30000"), two, nccl];
    assert_eq!(largest(&sim(), &["devices.num_gpus=2", "devices.engine=launch"], &slow), "all-reduce");
    // An all-reduce within a graph is not timed; its time is estimated from measured rates.
    let sim = sim();
    plant_sums(&sim, 1.0);
    assert_eq!(largest(&sim, &["devices.num_gpus=2", "devices.engine=graph"], &[two, nccl]), "all-reduce");
}

/// With measured rates, the plan picks its engine by them; from the description of the machine it does elsewhere what it does there.
#[test]
fn the_plan_picks_the_engine_by_measured_rates() {
    let Some(all) = Sim::get() else { return };
    let mut picked = BTreeMap::new();
    for (slow, engine) in [
        (&["node_s", "barrier_s"][..], "persistent"),
        (&["node_s", "block_barrier_s"], "cooperative"),
        (&["barrier_s", "block_barrier_s"], "graph"),
    ] {
        let sim = Sim::at(&all.libraries);
        let slow: Vec<(&str, f64)> = slow.iter().map(|name| (*name, 1e-3)).collect();
        plant(&sim, 0, &slow);
        let place = Sandbox::new(LINREG);
        let engine_in =
            |page: &str| page.lines().find(|line| line.contains("  engine ")).unwrap_or_default().to_owned();
        let check = sim.runner(&place, &["check", "spec.toml"], &[]);
        let line = engine_in(&check.stdout);
        assert!(line.contains("a step may take, by measured rates: "), "{check:?}");
        let described = sim.runner(&place, &["devices", "-o", "machine.toml"], &[]);
        assert_eq!(described.code, Some(0), "{described:?}");
        let elsewhere = place.runner(&["check", "spec.toml", "--on", "machine.toml"]);
        assert_eq!(engine_in(&elsewhere.stdout), line.replace("measured", "given"), "{elsewhere:?}");
        picked.insert(engine, line.split_whitespace().nth(1).unwrap_or_default().to_owned());
    }
    for (engine, got) in picked {
        assert_eq!(got, format!("{engine}:"));
    }
}

/// With these rates two engines are close to each other, and the third is far behind. A hundred epochs are too short for a
/// compiled kernel.
const NEAR: [(&str, f64); 3] = [("block_barrier_s", 3e-5), ("node_s", 3e-5), ("barrier_s", 1.0)];

/// With these, the persistent engine is far ahead.
const FAR: [(&str, f64); 3] = [("block_barrier_s", 3e-5), ("node_s", 9e-5), ("barrier_s", 1.0)];

/// The engine of a run, the reason, and the engine in its resolved spec.
fn engine(run: &Folder) -> (String, String, String) {
    let environment: toml::Table = run.text("environment.toml").parse().unwrap();
    let spec: toml::Table = run.text("spec.toml").parse().unwrap();
    let why = environment["devices"]["engine"].as_str().unwrap().to_owned();
    assert!(run.text("run.log").contains(&format!("engine {why}")), "{why}");
    (run.summary("engine"), why, spec["devices"]["engine"].as_str().unwrap().to_owned())
}

#[test]
fn engines_that_estimates_do_not_tell_apart_are_tried() {
    let Some(all) = Sim::get() else { return };
    let long = "trainer.max_epochs=100";
    for (slow, chosen, other) in
        [("launch interpret", "graph", "persistent"), ("graph", "persistent", "graph")]
    {
        let sim = Sim::at(&all.libraries);
        plant(&sim, 0, &NEAR);
        let slow = format!("{slow}:40000");
        let place = Sandbox::new(LINREG);
        let run = sim.run(&place, &[long], &[("RUNNER_SIM_SLOW", &slow)]).ended_by(0);
        let (used, why, in_spec) = engine(&run);
        assert_eq!((used.as_str(), in_spec.as_str()), (chosen, chosen), "{why}");
        let words = format!("{chosen}: on blank rows a step took `{chosen}` ");
        assert!(why.starts_with(&words) && why.contains(&format!(", `{other}` ")), "{why}");
        assert!(why.contains("; the trial took ") && !why.contains("cooperative"), "{why}");
    }
}

#[test]
fn no_engine_is_tried_where_that_costs_more_than_it_brings() {
    let Some(all) = Sim::get() else { return };
    let cases: [Choice<'_>; 3] = [
        (&NEAR, "trainer.max_epochs=3", "persistent", "a step may take, by measured rates: "),
        (&FAR, "trainer.max_epochs=100", "persistent", "a step may take, by measured rates: "),
        (&NEAR, "devices.engine=graph", "graph", "the spec asks for it"),
    ];
    for (rates, argument, chosen, words) in cases {
        let sim = Sim::at(&all.libraries);
        plant(&sim, 0, rates);
        let place = Sandbox::new(LINREG);
        let run = sim.run(&place, &[argument], &[]).ended_by(0);
        let (used, why, in_spec) = engine(&run);
        assert_eq!((used.as_str(), in_spec.as_str()), (chosen, chosen), "{argument}");
        assert!(why.starts_with(&format!("{chosen}: {words}")), "{why}");
    }
}

/// Another engine would change the last digits, so a resumed run keeps its engine.
#[test]
fn repeats_have_one_engine_and_a_run_goes_on_with_its_own() {
    let Some(all) = Sim::get() else { return };
    let sim = Sim::at(&all.libraries);
    plant(&sim, 0, &NEAR);
    let place = Sandbox::new(LINREG);
    let arguments =
        ["spec.toml", "trainer.max_epochs=100", "checkpoint.every_epochs=70", "--runs-dir", "runs"];
    let [persistent, graph] =
        ["launch interpret:40000", "graph:40000"].map(|slow| [("RUNNER_SIM_SLOW", slow)]);
    sim.runner(&place, &arguments, &persistent).ended_by(0);
    let run = || Folder::within(&place.path().join("runs")).unwrap();
    assert_eq!(engine(&run()).0, "graph");
    let whole = (run().numbers(), run().model());
    // As if the run had been killed. By now its engine is the slower one, by rates that leave nothing to try.
    plant(&sim, 0, &FAR);
    for resume in [&plus(&arguments, "--resume=auto")[..], &["run", "--resume", "runs/linreg"]] {
        fs::remove_file(run().0.join("summary.csv")).unwrap();
        sim.runner(&place, resume, &[]).ended_by(0);
        assert_eq!(engine(&run()).0, "graph");
        assert!((run().numbers(), run().model()) == whole);
    }
    assert!(
        run().text("run.log").contains("engine graph: the run began with it"),
        "{}",
        run().text("run.log")
    );
    plant(&sim, 0, &NEAR);
    let arguments = [&arguments[..2], &["sweep.repeats=2", "--runs-dir", "sweeps", "-q"]].concat();
    sim.runner(&place, &plus(&arguments, "checkpoint.every_epochs=70"), &graph).ended_by(0);
    let sweep = Folder::within(&place.path().join("sweeps")).unwrap();
    let mut reasons = Vec::new();
    for trial in ["000-repeat=0", "001-repeat=1"] {
        let (used, why, _) = engine(&Folder(sweep.0.join(trial)));
        // On a busy machine a compiled step may be worth its compilation.
        assert_ne!(used, "graph");
        reasons.push((used, why));
    }
    assert_eq!(reasons[0], reasons[1], "tried once");
}

#[test]
fn without_measured_rates_nothing_is_said_of_what_bounds_a_gpu() {
    let Some(sim) = Sim::get() else { return };
    assert_eq!(largest(&sim, &[], &[]), "nothing is said");
    let check = sim.runner(&Sandbox::new(LINREG), &["check", "spec.toml"], &[]);
    let words = "; `runner devices --measure` measures the rates that an estimate is made of";
    assert!(check.stdout.contains(words), "{check:?}");
    assert!(check.stdout.contains("a step may take, as estimated: "), "{check:?}");
    // A damaged rate file counts as missing.
    plant(&sim, 0, &[]);
    let path = of_gpu(&sim, 0);
    let text = fs::read_to_string(&path).unwrap();
    assert_ne!(largest(&sim, &[], &[]), "nothing is said");
    fs::write(&path, text.replace("cache_bytes = 52428800", "cache_bytes = 62428800")).unwrap();
    assert_eq!(largest(&sim, &[], &[]), "nothing is said");
}
