//! Files of rows that change while a run reads them.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

use super::{
    super::process::{Ended, Folder, Sandbox},
    failures::write_npy,
    quiet, send, wait_for_lines, wait_for_lines_of,
};

const ROWS: usize = 64;

/// A spec of endless epochs beside its rows, which stay in their file.
fn place() -> Sandbox {
    let place = Sandbox::new(
        "[data]\nbatch_size = 16\nplacement = \"streamed\"\n[data.npy]\nfeatures = \"x.npy\"\nlabels = \"y.npy\"\n\
         validation_fraction = 0.25\n[model]\nlayers = [{ linear = { out_features = 1 } }]\nloss = \"mse\"\n\
         [optimizer.sgd]\nlr = 1e-6\n[trainer]\nmax_epochs = 1000000000\n",
    );
    write_npy(&place.path().join("x.npy"), &format!("({ROWS}, 3)"), &[0.5; 3 * ROWS]);
    write_npy(&place.path().join("y.npy"), &format!("({ROWS},)"), &[0.5; ROWS]);
    place
}

/// Changes a run's data file after it has written some lines, and returns how the run ended.
fn disturbed(
    place: &Sandbox,
    way: &[&str],
    disturb: impl Fn(&Path),
    signal: Option<&str>,
) -> (Ended, Folder) {
    let (command, runs) = place.prepared(&[way, &["logging.policy=per_epoch"]].concat());
    let child = quiet(command);
    let folder = wait_for_lines(&runs, 20);
    disturb(&place.path().join("x.npy"));
    if let Some(signal) = signal {
        send(signal, &child);
    }
    (Ended::from_output(child.wait_with_output().unwrap()), folder)
}

/// A device that reads rows itself, and one that gets chunks.
const WAYS: [&[&str]; 2] = [&["--threads=1"], &["devices.num_gpus=1", "--virtual-gpus=1"]];

#[test]
fn a_file_that_is_written_to_ends_the_run() {
    let overwrite = |path: &Path| {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&7.0_f32.to_le_bytes(), 128).unwrap();
    };
    let cut = |path: &Path| File::options().write(true).open(path).unwrap().set_len(128).unwrap();
    type Way<'a> = (&'a dyn Fn(&Path), &'a str);
    let ways: [Way<'_>; 2] = [
        (&overwrite, "was written to after it was opened"),
        (&cut, "had 896 bytes when it was opened, and now has 128 bytes"),
    ];
    for way in WAYS {
        for (disturb, what) in ways {
            let place = place();
            let (ended, folder) = disturbed(&place, way, disturb, None);
            assert_eq!(ended.code, Some(1), "{way:?}: {ended:?}");
            let path = place.path().join("x.npy");
            let (before, after) = (
                format!("error: `{}` {what}: rows may be of either content after step ", path.display()),
                "; run again once nothing writes to it, or on a copy\n",
            );
            let last = ended.stderr.lines().last().map(|line| format!("{line}\n")).unwrap();
            let step = last.strip_prefix(&before).and_then(|rest| rest.strip_suffix(after));
            let step: usize = step.unwrap_or_else(|| panic!("{ended:?}")).replace(',', "").parse().unwrap();
            assert_eq!(folder.summary("status"), "failed");
            let steps: usize = folder.summary("steps").parse().unwrap();
            assert!(step <= steps, "{step} {steps}");
            let reason = last.strip_prefix("error: ").unwrap();
            assert!(folder.text("run.log").contains(reason), "{}", folder.text("run.log"));
        }
    }
}

#[test]
fn a_file_that_is_replaced_is_read_as_it_was() {
    for way in WAYS {
        let place = place();
        let other = place.path().join("other");
        let replace = |path: &Path| {
            fs::copy(path, &other).unwrap();
            fs::rename(&other, path).unwrap();
        };
        let (ended, folder) = disturbed(&place, way, replace, Some("-INT"));
        assert_eq!(ended.code, Some(130), "{ended:?}");
        let path = place.path().join("x.npy");
        let words = format!(
            "warning: `{}` was replaced by another file after it was opened: all rows of this run are of the earlier file\n",
            path.display()
        );
        assert_eq!(ended.stderr.matches(&words).count(), 1, "{ended:?}");
        assert_eq!(folder.summary("status"), "interrupted");
    }
}

/// The current trial ends; later ones do not start, with one error for all of them.
#[test]
fn a_sweep_whose_file_is_written_to_begins_no_further_trial() {
    let place = place();
    let sweep = ["--threads=1", "logging.policy=per_epoch", "optimizer.sgd.lr=1e-6,2e-6,3e-6,4e-6"];
    let (command, runs) = place.prepared(&sweep);
    let child = quiet(command);
    let folder = wait_for_lines_of("000-lr=1e-6/metrics.csv", &runs, 20);
    let file = File::options().write(true).open(place.path().join("x.npy")).unwrap();
    file.write_all_at(&7.0_f32.to_le_bytes(), 128).unwrap();
    let ended = Ended::from_output(child.wait_with_output().unwrap()).ended_by(1);
    let what = format!("`{}` was written to after it was opened", place.path().join("x.npy").display());
    let changed = format!("the data have changed since the start: {what}");
    let errors: Vec<&str> = ended.stderr.lines().skip_while(|line| !line.starts_with("error: ")).collect();
    let [first, second, hint] = errors[..] else { panic!("{ended:?}") };
    assert!(first.starts_with(&format!("error: trial 0: {what}: rows may be of either content after step ")));
    assert_eq!(second, format!("error: trial 1 and all later ones on the same data: {changed}"));
    assert_eq!(hint, "  = hint: start again once nothing writes to them, or on a copy");
    let table = folder.table("sweep.csv");
    assert_eq!(table.column("status"), ["failed"; 4]);
    assert_eq!(table.column("folder"), ["000-lr=1e-6", "", "", ""]);
    assert!(table.column("reason")[1..].iter().all(|reason| *reason == changed), "{table:?}");
    assert_eq!(folder.files(), ["000-lr=1e-6", "sweep.csv", "sweep.toml"]);
    // Trials that failed for the same reason share a line.
    assert!(ended.stdout.contains(&format!("\n  trials 1 to 3 failed: {changed}\n")), "{ended:?}");
}
