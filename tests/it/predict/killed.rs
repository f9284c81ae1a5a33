//! Predicting with runs that were killed: the weights come from their checkpoints.

use super::{
    super::{
        ends::{quiet, wait_until},
        process::{Ended, Sandbox},
    },
    *,
};
use runner::record::has_checkpoints;

/// A run that was killed as soon as it had printed `done`, in a sandbox with its data.
fn killed(more: &[&str], done: &str) -> Model {
    let place = Sandbox::new(&spec("price", "kind", 1, "mse").replace("1e-30", "1e-3"));
    for name in ["train.csv", "new.csv"] {
        fs::copy(Path::new(FIXTURES).join(name), place.path().join(name)).unwrap();
    }
    let (command, runs) = place.prepared(&[&["trainer.max_epochs=1000000000"], more].concat());
    let mut child = quiet(command);
    wait_until(&mut child, || Folder::within(&runs).is_some_and(|folder| folder.0.join(done).exists()));
    child.kill().unwrap();
    child.wait().unwrap();
    Model { run: Folder::within(&runs).unwrap().0.display().to_string(), place }
}

fn ended(model: &Model, arguments: &[&str]) -> Ended {
    let [command, rest @ ..] = arguments else { panic!("no command") };
    model.place.runner(&[&[command, &model.run[..]], rest].concat())
}

#[test]
fn the_weights_of_its_checkpoint_are_used() {
    let model = killed(
        &["checkpoint.every_epochs=1", "checkpoint.keep_last=1000000"],
        "checkpoints/step-00000012.toml",
    );
    // As if the kill had come at this step; three steps are an epoch.
    for entry in fs::read_dir(Path::new(&model.run).join("checkpoints")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_stem().unwrap().to_string_lossy().as_ref() > "step-00000012" {
            fs::remove_file(path).unwrap();
        }
    }
    let last = ended(&model, &["predict", "new.csv", "--last"]);
    let words = "weights: checkpoints/step-00000012.safetensors, of epoch 4, step 12; the newest, since the run has not \
                 finished: it is `unfinished`\n";
    assert!(last.stderr.starts_with(words), "{last:?}");
    let whole = model.place.run(&["trainer.max_epochs=4"]).ended_by(0).0.display().to_string();
    let predicted =
        |arguments: &[&str]| model.place.runner(&[&["predict", &whole, "new.csv"], arguments].concat());
    assert_eq!((last.code, last.stdout), (Some(0), predicted(&["--last"]).stdout));
    let best = ended(&model, &["predict", "new.csv"]);
    assert_eq!((best.code, best.stdout), (Some(0), predicted(&[]).stdout));
    assert!(best.stderr.contains("; the best so far, since the run"), "{}", best.stderr);
    // A finished run whose weight files are lost, and a diverged run, which has none.
    for status in ["finished", "diverged"] {
        let summary = Path::new(&model.run).join("summary.csv");
        fs::write(&summary, format!("status\n{status}\n")).unwrap();
        let refused = ended(&model, &["predict", "new.csv", "--last"]);
        let words = format!(" has no model.safetensors: the run is `{status}`\n");
        assert!(refused.code == Some(2) && refused.stderr.contains(&words), "{refused:?}");
        fs::remove_file(summary).unwrap();
    }
    let evaluated: Value =
        serde_json::from_str(&ended(&model, &["evaluate", "train.csv", "--json"]).stdout).unwrap();
    assert_eq!(evaluated["weights"], "checkpoints/step-00000012.safetensors");
    assert_eq!(ended(&model, &["export", "--onnx", "model.onnx"]).code, Some(0));
}

#[test]
fn a_run_without_a_checkpoint_names_the_way_out() {
    let model = killed(&[], "metrics.csv");
    for arguments in
        [&["predict", "new.csv"][..], &["evaluate", "train.csv"], &["export", "--onnx", "model.onnx"]]
    {
        let ended = ended(&model, arguments);
        let words = "has no weights: the run is `unfinished`\n  = hint: a run keeps its weights at its end, and before it only \
                     with a table `[checkpoint]`: run its spec again with one\n";
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.ends_with(words), "{ended:?}");
    }
}

/// A run at work removes the checkpoint that was its newest just now.
#[test]
fn checkpoints_that_go_meanwhile_are_not_missed() {
    let place = Sandbox::new(&spec("price", "kind", 1, "mse").replace("1e-30", "1e-3"));
    for name in ["train.csv", "new.csv"] {
        fs::copy(Path::new(FIXTURES).join(name), place.path().join(name)).unwrap();
    }
    let more = ["trainer.max_epochs=1000000000", "checkpoint.every_steps=1", "checkpoint.keep_last=1"];
    let (command, runs) = place.prepared(&more);
    let mut child = quiet(command);
    wait_until(&mut child, || Folder::within(&runs).is_some_and(|folder| has_checkpoints(&folder.0)));
    let run = Folder::within(&runs).unwrap().0;
    let predicted: Vec<Ended> =
        (0..8).map(|_| place.runner(&["predict", run.to_str().unwrap(), "new.csv"])).collect();
    child.kill().and_then(|()| child.wait()).unwrap();
    assert!(predicted.iter().all(|ended| ended.code == Some(0)), "{predicted:?}");
    // A file that stays away is no matter of the spec.
    let newest = runner::record::checkpoint_weights(&run, true).unwrap().file;
    fs::remove_file(run.join(&newest)).unwrap();
    let refused = place.runner(&["predict", run.to_str().unwrap(), "new.csv"]).ended_by(2);
    let words = format!(
        "error: cannot read `{}`: no such file or directory\n = hint: bring the file of the run back, or train again\n",
        run.join(newest).display()
    );
    assert_eq!(refused.stderr, words);
}
