//! A disk that loses power (`tests/disk/disk.c`): what was synced outlives it.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::{
    disk::{library, on_disk, runs_below, sandbox},
    quiet, wait_until,
};

/// Makes a folder anew as a loss of power leaves it: the names that were synced, with the content that was.
fn rebuild(image: &Path, lost: &Path, to: &Path) {
    rebuild_inode(image, fs::metadata(lost).unwrap().ino(), to);
}

fn rebuild_inode(image: &Path, inode: u64, to: &Path) {
    if let Ok(names) = fs::read_to_string(image.join(format!("d-{inode}"))) {
        fs::create_dir_all(to).unwrap();
        for (inode, name) in names.lines().filter_map(|line| line.split_once(' ')) {
            rebuild_inode(image, inode.parse().unwrap(), &to.join(name));
        }
    } else {
        // A folder that was not synced is an empty file here, which is worse.
        let content = fs::read(image.join(format!("f-{inode}"))).unwrap_or_default();
        fs::write(to, content).unwrap();
    }
}

/// Files below a folder, with their content.
pub fn files_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            let content = fs::read(&path).unwrap();
            files.insert(path, content);
        }
    }
    files
}

/// Also of the first run in a runs folder whose own folder is new: each name above it is on the disk.
#[test]
fn a_finished_run_outlives_a_loss_of_power() {
    let sandbox = sandbox();
    let Some(library) = library(&sandbox) else { return };
    for (place, overrides) in [&[][..], &["optimizer.adam.lr=0.1,0.2"]].into_iter().enumerate() {
        let [disk, image, after] =
            ["disk", "image", "after"].map(|name| sandbox.path().join(format!("{name}-{place}")));
        fs::create_dir(&disk).unwrap();
        fs::create_dir(&image).unwrap();
        let runs = disk.join("new/runs");
        let words = [&["spec.toml", "--runs-dir", runs.to_str().unwrap()], overrides].concat();
        let mut command = sandbox.command(&words);
        command.env("LD_PRELOAD", &library).env("DISK_PATH", &disk).env("DISK_IMAGE", &image);
        assert_eq!(command.output().unwrap().status.code(), Some(0));
        rebuild(&image, &disk, &after);
        let files = files_below(&disk);
        assert!(files.keys().any(|path| path.ends_with("summary.csv")));
        assert_eq!(files.keys().any(|path| path.ends_with("sweep.toml")), place == 1);
        for (path, content) in files {
            let rebuilt = fs::read(after.join(path.strip_prefix(&disk).unwrap())).ok();
            assert!(rebuilt.is_some_and(|rebuilt| rebuilt == content), "{} is lost", path.display());
        }
    }
}

/// Power is lost while a run saves checkpoint after checkpoint: it goes on from one of them.
#[test]
fn a_checkpoint_outlives_a_loss_of_power() {
    let sandbox = sandbox();
    let Some(library) = library(&sandbox) else { return };
    let long = ["trainer.max_epochs=100000", "checkpoint.every_epochs=5"];
    let mut resumed = 0;
    for moment in 0..8 {
        let (mut command, runs) = on_disk(&sandbox, &library, &long);
        let image = sandbox.path().join("image");
        fs::create_dir(&image).unwrap();
        command.env("DISK_IMAGE", &image);
        let mut child = quiet(command);
        let begun = Instant::now();
        while runs_below(&runs).is_empty() && begun.elapsed() < super::LIMIT {
            thread::sleep(Duration::from_millis(5));
        }
        // Half of them are killed at an early moment, the others after the second checkpoint.
        if moment % 2 == 0 {
            let folder = runs_below(&runs).pop().unwrap().join("checkpoints");
            wait_until(&mut child, || fs::read_dir(&folder).map_or(0, Iterator::count) >= 2);
        }
        thread::sleep(Duration::from_millis(23 * moment));
        child.kill().unwrap();
        child.wait().unwrap();
        let folder = runs_below(&runs).pop().unwrap();
        let after = sandbox.path().join(format!("after-{moment}"));
        rebuild(&image, &folder, &after);
        if fs::read_dir(after.join("checkpoints")).map_or(0, Iterator::count) >= 2 {
            let path = after.to_str().unwrap();
            let more = ["run", "--resume", path, long[0], "trainer.max_time=\"100ms\""];
            let ended = sandbox.runner(&more);
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            assert!(!ended.stderr.contains("cannot be used"), "{}", ended.stderr);
            resumed += 1;
        }
        fs::remove_dir_all(&image).unwrap();
    }
    assert!(resumed > 0, "no checkpoint was met");
}
