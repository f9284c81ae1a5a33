//! What a run records about its GPUs: `environment.toml`, `system.csv`, power and heat, from the stand-in monitor.

use super::{LINREG, Sim};
use crate::process::Sandbox;

#[test]
fn the_environment_holds_what_makes_runs_on_gpus_comparable() {
    let Some(sim) = Sim::get() else { return };
    let two = [("RUNNER_SIM_DEVICES", "2"), ("RUNNER_SIM_PEER", "0")];
    let place = Sandbox::new(LINREG);
    let run = sim.run(&place, &["devices.num_gpus=2", "devices.precision=tf32"], &two).ended_by(0);
    let environment: toml::Table = run.text("environment.toml").parse().unwrap();
    let gpus = environment["gpus"].as_array().unwrap();
    for (i, gpu) in gpus.iter().enumerate() {
        let want = format!(
            "name = \"gpu:{i}\"\nuuid = \"GPU-63757369-6d00-0000-0000-00000000000{i}\"\nmodel = \"Simulated GPU\"\n\
             driver = \"580.65.06\"\ncuda = \"13.0\"\npcie = \"gen4 x16\"\npcie_most = \"gen5 x16\"\necc = true\n\
             compute_mode = \"Default\"\npersistence = true\npower_limit_w = 700.0\npower_limit_default_w = 700.0\n\
             sm_clock_mhz = 1980\nsm_clock_most_mhz = 1980\nmemory_clock_mhz = 2619\nmemory_clock_most_mhz = 2619\n"
        );
        assert_eq!(*gpu, toml::Value::Table(want.parse().unwrap()));
    }
    assert_eq!(gpus.len(), 2);
    assert_eq!(environment["devices"]["precision"].as_str(), Some("tf32"));
    let timed_by = environment["devices"]["timed_by"].as_str().unwrap();
    assert!(timed_by.contains("by events of the GPU, which are read later"), "{timed_by}");
    let versions = environment["versions"]["libraries"].as_table().unwrap();
    let versions: Vec<_> = versions.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
    assert_eq!(versions, [("NCCL", Some("2.27")), ("NVRTC", Some("13.0"))]);
}

/// A MIG instance reports little; properties that it shares with its GPU come from the GPU.
#[test]
fn a_part_of_a_gpu_is_told_with_the_whole_that_it_was_cut_from() {
    let Some(sim) = Sim::get() else { return };
    let variables = [("RUNNER_SIM_MIG", "1"), ("RUNNER_SIM_THROTTLE", "4")];
    let place = Sandbox::new(LINREG);
    let run = sim.run(&place, &[], &variables).ended_by(0);
    let environment: toml::Table = run.text("environment.toml").parse().unwrap();
    let gpu = &environment["gpus"][0];
    assert!(gpu["uuid"].as_str().unwrap().starts_with("MIG-"), "{gpu}");
    assert_eq!((gpu["mig"].as_bool(), gpu["ecc"].as_bool()), (Some(true), Some(true)));
    assert_eq!((gpu["pcie"].as_str(), gpu["sm_clock_mhz"].as_integer()), (Some("gen4 x16"), Some(1980)));
    assert_eq!(environment["during"]["throttled"][0].as_str(), Some("gpu:0: power_cap"));
}

#[test]
fn the_clock_that_times_the_steps_is_named_by_engine() {
    let Some(all) = Sim::get() else { return };
    for (engine, words) in [
        ("launch", "phases, by events of the GPU, which are read later"),
        (
            "graph",
            "blocks of steps, by events of the GPU, which are read later: this engine runs many steps as one piece of work",
        ),
    ] {
        let sim = Sim::at(&all.libraries);
        let place = Sandbox::new(LINREG);
        let run = sim.run(&place, &[&format!("devices.engine={engine}")], &[]).ended_by(0);
        let environment: toml::Table = run.text("environment.toml").parse().unwrap();
        assert_eq!(environment["devices"]["timed_by"].as_str(), Some(words));
    }
}

#[test]
fn the_gpus_in_use_are_looked_at_and_held_back_ones_mark_the_run() {
    let Some(sim) = Sim::get() else { return };
    let variables = [("RUNNER_SIM_DEVICES", "3"), ("RUNNER_SIM_THROTTLE", "36")];
    let arguments = ["devices.num_gpus=2", "logging.system_every_s=0.01"];
    let place = Sandbox::new(LINREG);
    let run = sim.run(&place, &arguments, &variables).ended_by(0);
    let table = run.table("system.csv");
    let mut devices = table.column("device");
    devices.sort_unstable();
    devices.dedup();
    assert_eq!(devices, ["cpu", "gpu:0", "gpu:1"], "the third is none of this run's");
    let of_gpu = table.only("device", "gpu:1");
    for (column, value) in [
        ("memory_used_bytes", "4194304"),
        ("temperature_c", "31"),
        ("power_w", "68.4"),
        ("sm_clock_mhz", "1980"),
        ("memory_clock_mhz", "2619"),
        ("throttled", "true"),
        ("throttle_reasons", "power_cap;software_thermal"),
    ] {
        assert!(
            of_gpu.column(column).iter().all(|cell| *cell == value),
            "{column}: {:?}",
            of_gpu.column(column)
        );
    }
    let environment: toml::Table = run.text("environment.toml").parse().unwrap();
    let during = &environment["during"];
    let throttled: Vec<_> = during["throttled"].as_array().unwrap().iter().map(|t| t.as_str()).collect();
    let words = ["gpu:0", "gpu:1"].map(|gpu| format!("{gpu}: power_cap;software_thermal"));
    assert_eq!(throttled, words.each_ref().map(|w| Some(w.as_str())));
    // One of two has no name, as this process in a container: it is taken for this one.
    let others: Vec<_> = during["others"].as_array().unwrap().iter().map(|t| t.as_str()).collect();
    assert_eq!(others, [Some("gpu:0: python3 (4202)"), Some("gpu:1: python3 (4201)")]);
    // The monitor's counter goes up by a joule each time that it is read.
    for gpu in ["gpu:0", "gpu:1"] {
        assert!(during["energy_j"][gpu].as_float().unwrap() >= 1.0, "{during}");
    }
    let joules = ["gpu:0", "gpu:1"].map(|gpu| during["energy_j"][gpu].as_float().unwrap());
    assert_eq!(run.summary("energy_j"), format!("{:?}", joules.iter().sum::<f64>()));
    let log = run.text("run.log");
    let warning = "WARN  a limit of power or heat held clocks back, so that times mean less: gpu:1: power_cap;software_thermal";
    assert!(log.contains(warning), "{log}");
    assert!(log.contains("INFO  gpu:0 took "), "{log}");
    let other = "INFO  another process computed on the GPU, so that times mean less: gpu:0: python3 (4202)";
    assert!(log.contains(other), "{log}");
}

#[test]
fn an_experiment_of_the_lab_tells_its_gpus_too() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::with_spec(&std::path::absolute("experiments/tensors.toml").unwrap());
    let run = sim.run(&place, &[], &[("RUNNER_SIM_DEVICES", "2")]).ended_by(0);
    let environment: toml::Table = run.text("environment.toml").parse().unwrap();
    let names: Vec<_> =
        environment["gpus"].as_array().unwrap().iter().map(|gpu| gpu["name"].as_str()).collect();
    assert_eq!(names, [Some("gpu:0"), Some("gpu:1")]);
    assert_eq!(environment["versions"]["libraries"]["NVRTC"].as_str(), Some("13.0"));
}
