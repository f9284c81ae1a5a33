//! Trials of a sweep that are left to a cluster.

use std::fs;

use super::{super::process::Table, Cluster, SPEC};

/// Twelve trials, of which a sampler draws the last two from results.
const DRAWN: [&str; 4] = [
    "sweep.sampler=tpe",
    "sweep.trials=12",
    "optimizer.sgd.lr=uniform(0.001, 0.1)",
    "data.synthetic_regression.validation_rows=32",
];

/// A damaged trial runs again, also one that a sampler drew from results, and one whose devices the login node lacks.
#[test]
fn damaged_trials_are_left_to_submit() {
    let cluster = Cluster::new(SPEC);
    cluster.answers("sbatch", "echo 12");
    let on_gpus = ["devices.num_gpus=1", "devices.on_missing=error", "--virtual-gpus=1"];
    for (trial, arguments) in [(11, &DRAWN[..]), (1, &on_gpus)] {
        let ran = cluster.runner(&[&["spec.toml", "-q"], arguments].concat()).ended_by(0);
        let sweep = ran.stdout.trim();
        let launch = |more: &[&str]| {
            let words = ["run", "--resume", sweep, "--launcher=slurm", "--virtual-gpus=0"];
            let ended = cluster.runner(&[&words[..], more].concat()).ended_by(0);
            ended.stdout
        };
        let done = format!("`{sweep}`: no trial is left to run\n");
        assert_eq!(launch(&["--dry-run"]), done);
        let table = Table::read(&cluster.text(&format!("{sweep}/sweep.csv")));
        let metrics = cluster.place.path().join(sweep).join(table.cell(trial, "folder")).join("metrics.csv");
        fs::write(&metrics, "").unwrap();
        let script = launch(&["--dry-run"]);
        assert!(script.contains("\n#SBATCH --array=0-0\n"), "{script}");
        let submitted = launch(&[]);
        assert!(submitted.starts_with("1 trial submitted to Slurm as job 12 of 1 task\n"), "{submitted}");
        let task =
            cluster.runner(&["run", "--resume", sweep, "--slurm-task", "--virtual-gpus=1"]).ended_by(0);
        assert!(fs::metadata(&metrics).unwrap().len() > 0, "{task:?}");
        assert_eq!(launch(&["--dry-run"]), done);
    }
}

/// A dry run refuses what a submission would.
#[test]
fn a_dry_run_names_points_of_another_sweep() {
    let cluster = Cluster::new(SPEC);
    let ran = cluster.runner(&[&["spec.toml", "-q"], &DRAWN[..]].concat());
    let sweep = ran.stdout.trim();
    fs::write(cluster.place.path().join(sweep).join("points.csv"), "trial,momentum\n").unwrap();
    let words = format!(
        "error: `{sweep}/points.csv`: line 1 is no point of this sweep\n  = hint: mend the line, or remove it: its trial is drawn \
         anew\n"
    );
    for dry_run in [&["--dry-run"][..], &[]] {
        let ended = cluster.runner(&[&["run", "--resume", sweep, "--launcher=slurm"], dry_run].concat());
        assert_eq!((ended.code, &*ended.stderr, &*ended.stdout), (Some(2), &*words, ""));
    }
}
