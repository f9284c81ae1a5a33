//! `sampler = "tpe"`: later trials are chosen by the results of earlier ones, and always the same ones.

use std::fs;

use super::{
    super::{
        ends::{quiet, send, wait_until},
        process::{Folder, Sandbox},
    },
    SPEC, result,
    sweeps::trials,
};

const SWEEP: &str = r#"
[sweep]
sampler = "tpe"
trials = 17
[sweep.grid]
"optimizer.adam.lr" = "loguniform(1e-4, 1)"
"data.batch_size" = "int(8, 64)"
"model.layers.1" = ["tanh", "relu"]
"#;

/// The values of the trials, as `sweep.csv` has them.
fn values(sweep: &Folder) -> Vec<[String; 3]> {
    let table = sweep.table("sweep.csv");
    let columns = ["optimizer.adam.lr", "data.batch_size", "model.layers.1"].map(|key| table.column(key));
    (0..17).map(|trial| columns.each_ref().map(|column| column[trial].to_owned())).collect()
}

#[test]
fn a_search_depends_on_results_alone() {
    let place = Sandbox::new(&format!("{SPEC}{SWEEP}"));
    let checked = place.runner(&["check", "spec.toml", "--threads=1"]).stdout;
    let table: Vec<&str> = checked.lines().skip(2).take(12).collect();
    insta::assert_snapshot!(table.join("\n"), @r"
    trial  optimizer.adam.lr  data.batch_size  model.layers.1  steps  devices  engine  becomes
        0           0.124803               46            tanh     18  cpu      serial  run
        1          0.0047386               31            tanh     24  cpu      serial  run
        2          0.0117048               36            tanh     18  cpu      serial  run
        3         0.00656406               55            relu     12  cpu      serial  run
        4         0.00103205               51            relu     18  cpu      serial  run
        5          0.0651569               44            relu     18  cpu      serial  run
        6           0.252091               55            relu     12  cpu      serial  run
        7           0.163649               14            tanh     48  cpu      serial  run
        8        0.000380181               35            relu     18  cpu      serial  run
        9          0.0402285               39            tanh     18  cpu      serial  run
       10                                                                              run, with values that results choose
    ");
    let whole = place.run(&["-q"]).ended_by(0);
    let chosen = values(&whole);
    assert!(chosen.iter().all(|values| values.iter().all(|value| !value.is_empty())), "{chosen:?}");
    let best = |trials: &[Folder]| -> f64 {
        let value = |trial: &Folder| trial.summary("best_value").parse::<f64>().unwrap();
        trials.iter().map(value).sum::<f64>() / trials.len() as f64
    };
    let of_whole = trials(&whole.0);
    assert!(best(&of_whole[10..]) < best(&of_whole[..10]), "later trials lie near the best");
    // Each is what its own spec says.
    let spec = fs::read_to_string(of_whole[16].0.join("spec.toml")).unwrap();
    assert!(spec.contains(&format!("\nlr = {}\n", chosen[16][0])), "{spec}");
    assert!(spec.contains(&format!("\nbatch_size = {}\n", chosen[16][1])), "{spec}");
    assert_eq!(values(&place.run(&["-q", "--jobs=3"]).ended_by(0)), chosen);
    // Killed among the first trials, and among the later ones.
    for file in ["006-", "013-"] {
        let (command, runs) = place.prepared(&["-q"]);
        let mut child = quiet(command);
        wait_until(&mut child, || {
            let sweep = Folder::within(&runs);
            let files = sweep.iter().flat_map(|sweep| fs::read_dir(&sweep.0).into_iter().flatten().flatten());
            files.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(file))
        });
        send("-KILL", &child);
        child.wait().unwrap();
        let sweep = Folder::within(&runs).unwrap();
        let ended = place.runner(&["run", "-q", "--resume", sweep.0.to_str().unwrap()]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(values(&sweep), chosen, "{file}");
        for (own, whole) in trials(&sweep.0).iter().zip(&of_whole) {
            assert!(result(own) == result(whole), "{file} {}", own.0.display());
        }
    }
}
