//! Trials whose folders were renamed, copied or moved: every command takes them for the same.

use std::{fs, path::PathBuf};

use super::{
    process::{Folder, Sandbox},
    run::LINREG,
};

struct Swept {
    place: Sandbox,
    sweep: Folder,
}

impl Swept {
    fn new(arguments: &[&str]) -> Self {
        let place = Sandbox::new(LINREG);
        let sweep = place.run(arguments).ended_by(0);
        Self { place, sweep }
    }

    fn trial(&self, number: usize) -> PathBuf {
        self.sweep.0.join(self.sweep.table("sweep.csv").cell(number, "folder"))
    }

    /// Renames a trial's folder within its sweep.
    fn rename(&self, number: usize, name: &str) {
        fs::rename(self.trial(number), self.sweep.0.join(name)).unwrap();
    }

    fn ran(&self, arguments: &[&str]) -> String {
        let ended = self.place.runner(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        ended.stdout
    }

    fn of_sweep(&self, command: &[&str]) -> String {
        self.ran(&[command, &[self.sweep.0.to_str().unwrap()]].concat())
    }

    fn said(&self) -> [String; 3] {
        [&["list", "-v"][..], &["show"], &["compare"]].map(|command| self.of_sweep(command))
    }
}

/// The names are those of no trial, of the same, and of another: what is recorded within counts.
#[test]
fn a_renamed_trial_stays_the_same() {
    let swept = Swept::new(&["optimizer.sgd.lr=0.03,0.01,0.02", "data.batch_size=10"]);
    let before = swept.said();
    assert!(before[0].contains("  3 finished  "), "{before:?}");
    let text = fs::read_to_string(swept.trial(2).join("environment.toml")).unwrap();
    let name = swept.sweep.0.file_name().unwrap().to_str().unwrap();
    assert!(text.starts_with(&format!("trial = 2\nsweep = \"{name}\"\nstarted = ")), "{text}");
    swept.rename(0, "best");
    assert_eq!(swept.said().map(|text| text.replace("/best", "/000-lr=.03")), before);
    swept.rename(1, "001-renamed");
    swept.rename(2, "001-good");
    assert_eq!(swept.said().map(|text| text.replace("/best", "/000-lr=.03")), before);
    let shown = swept.ran(&["show", swept.sweep.0.join("001-good").to_str().unwrap()]);
    assert!(shown.contains("\n  trial: optimizer.sgd.lr=0.02\n"), "{shown}");
    // The sweep takes it as it is, and lists it by the name that it has.
    let resumed = swept.place.runner(&["run", "--resume", swept.sweep.0.to_str().unwrap()]).ended_by(0);
    assert_eq!(resumed.stderr, "nothing is left to run: all of 3 trials have ended\n");
    assert_eq!(swept.sweep.table("sweep.csv").column("folder"), ["best", "001-renamed", "001-good"]);
    assert_eq!(swept.said().map(|text| text.replace("/best", "/000-lr=.03")), before);
}

/// A run of the same name beside the sweep is none of its trials, though it was one.
#[test]
fn a_trial_moved_out_of_its_sweep_is_a_run() {
    let tables = "optimizer={ sgd = { lr = 0.03 } },{ adam = { lr = 0.01 } },{ adamw = { lr = 0.02 } }";
    let swept = Swept::new(&[tables, "data.batch_size=10"]);
    let moved = swept.place.path().join("moved");
    fs::rename(swept.trial(1), &moved).unwrap();
    let [listed, shown, compared] = swept.said();
    assert!(listed.contains("  2 finished, 1 deleted  "), "{listed}");
    assert!(shown.contains("\n  trial 1 deleted: was finished, and its folder is gone\n"), "{shown}");
    assert!(compared.contains("\n  not ranked: 1 deleted (#1)\n"), "{compared}");
    let moved = moved.to_str().unwrap();
    assert!(!swept.ran(&["show", moved]).contains("\n  trial: "));
    // Its table has the name that it has in the sweep, and its keys are no columns.
    let compared = swept.of_sweep(&["compare", moved]);
    let mut rows = compared.lines().skip_while(|line| !line.starts_with(" #  ")).take(4);
    let head = rows.next().unwrap();
    assert!(head.starts_with(" #  input  optimizer  validation loss  "), "{compared}");
    let mut optimizers: Vec<&str> = rows.map(|row| row.split_whitespace().nth(2).unwrap()).collect();
    optimizers.sort_unstable();
    assert_eq!(optimizers, ["adam", "adamw", "sgd"], "{compared}");
    // What is compared with it beside the optimizer has a column.
    let other = swept.place.run(&["-q", "data.batch_size=10", "trainer.max_epochs=3"]).ended_by(0);
    let compared = swept.ran(&["compare", swept.sweep.0.to_str().unwrap(), moved, other.0.to_str().unwrap()]);
    assert!(compared.contains(" #  input  optimizer  max_epochs  "), "{compared}");
    let resumed = swept.place.runner(&["run", "-q", "--resume", swept.sweep.0.to_str().unwrap()]);
    assert_eq!(resumed.stderr, "warning: trial 1: begins again, since its folder is gone\n");
    assert!(swept.said()[0].contains("  3 finished  "));
}

/// The start of a file, which has the trial's number, may end within a character of the sweep's name.
#[test]
fn names_beyond_ascii_hide_no_trial() {
    let swept = Swept::new(&["optimizer.sgd.lr=0.03,0.01"]);
    let file = swept.trial(0).join("environment.toml");
    let text = fs::read_to_string(&file).unwrap();
    let name = swept.sweep.0.file_name().unwrap().to_str().unwrap();
    let text = text.replacen(name, "日本語の実験", 1);
    assert!(!text.is_char_boundary(32), "{text}");
    fs::write(&file, text).unwrap();
    swept.rename(0, "best");
    swept.ran(&["run", "--resume", swept.sweep.0.to_str().unwrap(), "-q"]);
    let folders =
        fs::read_dir(&swept.sweep.0).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(folders.count(), 2, "none is trained again");
}
