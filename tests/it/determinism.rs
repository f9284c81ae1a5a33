//! The claims of `docs/determinism.md` that no other test covers: what does not change a number, and where
//! everything that does is recorded. The page names a test for each line.

use std::{fs, path::Path};

use sha2::{Digest, Sha256};

use super::{
    cuda::Sim,
    process::{Folder, Sandbox, tensors},
};

const SPEC: &str = r#"
[data]
batch_size = 5
[data.synthetic_regression]
weights = [2.0, -3.4, 0.5]
train_rows = 43
validation_rows = 3
[model]
layers = [{ linear = { out_features = 7 } }, { dropout = { p = 0.25 } }, { linear = { out_features = 1 } }]
[optimizer.sgd]
lr = 0.02
[trainer]
max_epochs = 4
"#;

/// The numbers of a run, and its weights.
fn result(run: &Folder) -> (impl PartialEq, impl PartialEq) {
    (run.numbers(), tensors(&run.model()))
}

/// Each line of the page's tables names tests, and those exist.
#[test]
fn every_line_is_held_by_a_test() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let page = fs::read_to_string(docs.join("determinism.md")).unwrap();
    let is_claim =
        |line: &&str| line.starts_with("| ") && !line.starts_with("| ---") && !line.ends_with("| held by |");
    let claims: Vec<&str> = page.lines().filter(is_claim).collect();
    assert!(claims.len() > 15, "{claims:?}");
    for claim in claims {
        let held = claim.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        for test in held.split("[").skip(1) {
            let (name, file) = test.split_once("](../").unwrap_or_else(|| panic!("{claim}"));
            let file = docs.parent().unwrap().join(file.split(')').next().unwrap());
            let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{claim}: {e}"));
            let begins =
                text.find(&format!("\nfn {name}() {{")).or(text.find(&format!("\n    fn {name}() {{")));
            let above =
                text[..begins.unwrap_or_else(|| panic!("no {name} in {}", file.display()))].trim_end();
            assert!(above.ends_with("#[test]"), "{name} is no test");
        }
        assert!(held.contains("](../"), "no test holds: {claim}");
    }
}

/// The CPU, one to three virtual GPUs, and each engine of the simulated GPU, with one and two of them.
#[test]
fn the_same_devices_give_the_same_bits() {
    let place = Sandbox::new(SPEC);
    for count in ["0", "1", "2", "3"] {
        let gpus = format!("devices.num_gpus={count}");
        let run = || place.run(&[&gpus, "--virtual-gpus", count]).ended_by(0);
        let (one, two) = (run(), run());
        assert!(result(&one) == result(&two), "{count} devices");
        assert!(one.model() == two.model(), "{count} devices: another file");
    }
    let Some(sim) = Sim::get() else { return };
    let two_gpus = [("RUNNER_SIM_DEVICES", "2")];
    for (engine, gpus) in [
        ("persistent", "1"),
        ("cooperative", "1"),
        ("compiled", "1"),
        ("graph", "1"),
        ("launch", "1"),
        ("launch", "2"),
    ] {
        let [engine_is, count] = [format!("devices.engine={engine}"), format!("devices.num_gpus={gpus}")];
        let arguments = [&engine_is[..], &count];
        let run = || sim.run(&place, &arguments, &two_gpus).ended_by(0);
        let (one, two) = (run(), run());
        assert_eq!(one.summary("engine"), engine);
        assert!(result(&one) == result(&two), "{engine} on {gpus}");
    }
}

/// The resolved spec names the engine, so the spec in the run folder uses it wherever it runs.
#[test]
fn the_engine_that_auto_chose_stands_in_the_spec() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(SPEC);
    let run = sim.run(&place, &["devices.num_gpus=1"], &[]).ended_by(0);
    let (chosen, text) = (run.summary("engine"), run.text("spec.toml"));
    assert!(text.contains(&format!("engine = \"{chosen}\"")), "{chosen}: {text}");
    fs::copy(run.0.join("spec.toml"), place.path().join("spec.toml")).unwrap();
    let again = sim.run(&place, &[], &[]).ended_by(0);
    assert_eq!(again.summary("engine"), chosen);
    assert!(result(&again) == result(&run));
}

/// Compares initial weights, and the rows of each batch, between numbers of devices.
#[test]
fn draws_are_those_of_the_seed_on_any_devices() {
    let place = Sandbox::new(SPEC);
    let run = |gpus: &str| {
        let count = format!("devices.num_gpus={gpus}");
        // The learning rate is so small that no weight changes.
        place.run(&["optimizer.sgd.lr=1e-30", &count, "--virtual-gpus", gpus]).ended_by(0)
    };
    let cpu = run("0");
    for gpus in ["1", "2", "3", "7"] {
        let run = run(gpus);
        assert!(tensors(&run.model()) == tensors(&cpu.model()), "{gpus} devices");
        for column in ["step", "epoch", "split", "rows"] {
            assert_eq!(run.metrics().column(column), cpu.metrics().column(column), "{gpus} devices");
        }
        // With the same rows and masks, losses differ only by the order of sums. Another row or mask would
        // change a loss far more.
        for (own, alone) in run.metrics().f64s("loss").into_iter().zip(cpu.metrics().f64s("loss")) {
            assert!((own / alone - 1.0).abs() < 1e-5, "{gpus} devices: {own}, {alone}");
        }
    }
}

/// A trace, system samples, checkpoints, console output and measured rates do not change a number.
#[test]
fn what_only_looks_changes_no_number() {
    let place = Sandbox::new(SPEC);
    for on in [&["--threads=2"][..], &["devices.num_gpus=2", "--virtual-gpus=2"]] {
        let run = |more: &[&str]| place.run(&[on, more].concat()).ended_by(0);
        let plain = run(&[]);
        for more in [
            "logging.trace=true",
            "logging.system_every_s=0.01",
            "logging.tensorboard=true",
            "checkpoint.every_steps=2",
            "-v",
            "--json",
        ] {
            assert!(result(&run(&[more])) == result(&plain), "{more}");
        }
        // This adds a column.
        let watched = run(&["trainer.monitor=validation.rmse"]);
        assert_eq!(watched.metrics().column("loss"), plain.metrics().column("loss"));
        assert!(tensors(&watched.model()) == tensors(&plain.model()));
        // On a busy machine measuring is refused, and no rates are stored.
        let measured = place.runner(&["devices", "--measure"]);
        assert!(measured.code == Some(0) || measured.stderr.contains("; measure again"), "{measured:?}");
        assert!(result(&run(&[])) == result(&plain), "measured rates");
    }
}

#[test]
fn what_changes_digits_is_recorded() {
    let place = Sandbox::new(SPEC);
    let cpu = place.run(&[]).ended_by(0);
    let two = place.run(&["devices.num_gpus=2", "--virtual-gpus=2"]).ended_by(0);
    assert_eq!([cpu.summary("devices_used"), two.summary("devices_used")], ["cpu", "virtual:0;virtual:1"]);
    assert_eq!([cpu.summary("engine"), cpu.summary("precision")], ["serial", "f32"]);
    // The same run with another instruction set.
    let (other, path) = (place.run(&[]).ended_by(0), "environment.toml");
    let text = other.text(path);
    let line = text.lines().find(|line| line.starts_with("instruction_set = ")).unwrap();
    fs::write(other.0.join(path), text.replace(line, "instruction_set = \"none\"")).unwrap();
    let compared = place.runner(&["compare", cpu.0.to_str().unwrap(), other.0.to_str().unwrap()]);
    assert!(compared.stdout.contains("cpu.instruction_set"), "{compared:?}");
}

#[test]
fn the_folder_bears_the_hash_of_its_spec() {
    let place = Sandbox::new(SPEC);
    let run = place.run(&[]).ended_by(0);
    let text = run.text("spec.toml");
    let spec: String = text.split_inclusive('\n').skip_while(|line| line.starts_with('#')).collect();
    let hash: String = Sha256::digest(spec).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    assert!(run.0.to_str().unwrap().ends_with(&hash), "{hash}: {}", run.0.display());
}
