//! Abnormal ends: signals, kills, failing disks and pipes, corrupt files. Each has its own exit code and
//! message, and leaves no partial files.

mod disk;
mod failures;
mod files;
mod irregular;
mod kills;
mod lab;
mod memory;
mod odd;
mod power;
mod signals;

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    data::idx::gzip,
    process::{Ended, Folder, Sandbox, Table},
};

/// Longer than anything here takes, even on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Checks cases side by side: those that mostly wait take little longer than one.
pub fn side_by_side<T: Send>(cases: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    thread::scope(|scope| {
        let check = &check;
        cases.into_iter().for_each(|case| drop(scope.spawn(move || check(case))));
    });
}

pub fn quiet(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub fn send(signal: &str, child: &Child) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Stops a process (SIGSTOP). When this returns, all of its threads are stopped.
pub fn stop(pid: &str) {
    assert!(Command::new("kill").args(["-STOP", pid]).status().unwrap().success());
    let begun = Instant::now();
    let stands = |thread: fs::DirEntry| {
        fs::read_to_string(thread.path().join("status")).is_ok_and(|status| status.contains("State:\tT"))
    };
    while !fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().all(stands) {
        assert!(begun.elapsed() < LIMIT, "it does not stop");
        thread::sleep(Duration::from_millis(1));
    }
}

#[track_caller]
pub fn wait_until(child: &mut Child, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("waited in vain");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a process has opened a folder.
#[track_caller]
pub fn wait_until_open(child: &mut Child, folder: &Path) {
    let (folder, files) = (fs::canonicalize(folder).unwrap(), format!("/proc/{}/fd", child.id()));
    wait_until(child, || {
        let mut files = fs::read_dir(&files).unwrap().flatten();
        files.any(|file| fs::read_link(file.path()).is_ok_and(|to| to == folder))
    });
}

/// How a process ends by itself; one that does not is killed. It must print less than a pipe holds.
#[track_caller]
pub fn ended(mut child: Child) -> Ended {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ended::from_output(child.wait_with_output().unwrap())
}

pub fn numbers(table: &Table, column: &str) -> Vec<usize> {
    table.column(column).iter().map(|cell| cell.parse().unwrap()).collect()
}

/// A spec with 1000 small images, most of which it does not use.
pub fn with_images(more: &str) -> Sandbox {
    let place = Sandbox::new(&format!(
        "data.idx = {{ images = \"images\", labels = \"labels\" }}\n\
         data.split = {{ validation = 0.01, test = 0.98 }}\n\
         model = {{ layers = [{{ linear = {{ out_features = 2 }} }}], loss = \"cross_entropy\" }}\n\
         optimizer.sgd.lr = 0.1\n{more}"
    ));
    let header = |rank: u8| [&[0, 0, 8, rank][..], &1000_u32.to_be_bytes()].concat();
    let labels: Vec<u8> = (0..1000_u32).map(|row| (row % 2) as u8).collect();
    fs::write(place.path().join("labels"), [header(1), labels].concat()).unwrap();
    let images = [header(2), 4_u32.to_be_bytes().to_vec(), vec![1; 4000]].concat();
    fs::write(place.path().join("images"), gzip(&images)).unwrap();
    place
}

/// Replaces the images by a sparse file of 20 GB of zeros, which takes minutes to read.
pub fn make_images_endless(place: &Sandbox) {
    let new = place.path().join("new");
    let mut file = File::create(&new).unwrap();
    let header = [&[0, 0, 8, 2][..], &1000_u32.to_be_bytes(), &20_000_000_u32.to_be_bytes()].concat();
    file.write_all(&gzip(&header)).unwrap();
    file.write_all(&gzip(&vec![0; 1 << 20]).repeat(20_000)).unwrap();
    fs::rename(new, place.path().join("images")).unwrap();
}

/// Waits until the only run below `runs` has `lines` lines in a file.
pub fn wait_for_lines_of(file: &str, runs: &Path, lines: usize) -> Folder {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        if let Some(folder) = Folder::within(runs)
            && let Ok(text) = fs::read_to_string(folder.0.join(file))
            && text.lines().count() >= lines
        {
            return folder;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("no {lines} lines of {file} in {}", runs.display());
}

/// Waits for lines of `metrics.csv`.
pub fn wait_for_lines(runs: &Path, lines: usize) -> Folder {
    wait_for_lines_of("metrics.csv", runs, lines)
}
