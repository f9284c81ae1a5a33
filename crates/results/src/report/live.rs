//! Files that a live view reads repeatedly. It starts at once with a sample of a long file, while a thread
//! reads the whole file; later it only reads what was added.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::{
    files::{FileError, MetricCurves, MetricsFile, Sizes},
    host::lock,
    units,
};

/// Files longer than this are cached, and shown by a sample at first.
const LONG: u64 = 64 << 20;

/// Long files by their paths.
static FOLLOWED: Mutex<Followed> = Mutex::new(Followed { by_sample: false, files: None });

struct Followed {
    by_sample: bool,
    /// `None` until [`follow_files`] is called: until then each file is read completely every time.
    files: Option<HashMap<PathBuf, Result<Known, Damage>>>,
}

enum Known {
    Whole(MetricsFile),
    Sample { sample: MetricsFile, seen: Seen, read: Arc<AtomicU64>, whole: Whole },
}

/// A malformed line; the error is kept as long as the file only grows.
struct Damage {
    seen: Seen,
    line: u64,
    message: String,
}

/// What identifies a version of a file.
#[derive(Clone, Copy, PartialEq)]
struct Seen {
    inode: u64,
    length: u64,
    /// Time of the last change, in nanoseconds.
    changed: i64,
}

impl Seen {
    fn new(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        let changed = file.mtime().wrapping_mul(1_000_000_000).wrapping_add(file.mtime_nsec());
        Some(Self { inode: file.ino(), length: file.len(), changed })
    }

    /// Whether the file is the same as `before`, except for possible additions at the end.
    fn only_grew(self, before: Self) -> bool {
        self == before || (self.inode == before.inode && self.length > before.length)
    }
}

/// Held by the thread that reads a long file, so that they are read one after the other.
static TURN: Mutex<()> = Mutex::new(());

/// A thread that reads a file completely.
type Whole = JoinHandle<Result<MetricsFile, FileError>>;

/// From now on, long files are read once and then continued. With `by_sample`, the caller gets a sample
/// instead of waiting.
pub fn follow_files(by_sample: bool) {
    *lock(&FOLLOWED) = Followed { by_sample, files: Some(HashMap::new()) };
}

/// The share read so far of the file that is shown as a sample; 1 if there is none.
pub fn share_read() -> f64 {
    let followed = lock(&FOLLOWED);
    let shares = followed.files.iter().flat_map(HashMap::values).flatten().filter_map(|file| match file {
        Known::Whole(_) => None,
        Known::Sample { whole, .. } if whole.is_finished() => None,
        Known::Sample { seen, read, .. } => {
            Some((read.load(Ordering::Relaxed) as f64 / seen.length as f64).min(0.99))
        }
    });
    shares.fold(1.0, f64::min)
}

/// A note if curves are drawn from a sample.
pub(super) fn sampled() -> Option<String> {
    let share = units::percent(Some(share_read()).filter(|&share| share < 1.0)?);
    Some(format!("curves and figures are of a sample of a long metrics.csv, of which {share} is read"))
}

/// The curves of a `metrics.csv`; empty if there is no such file, as in lab runs.
pub(super) fn curves(path: &Path) -> Result<Vec<MetricCurves>, FileError> {
    if path.exists() { Ok(metrics(path)?.into_curves()) } else { Ok(Vec::new()) }
}

/// The contents of a `metrics.csv`.
pub(super) fn metrics(path: &Path) -> Result<MetricsFile, FileError> {
    metrics_of(path, LONG, Sizes::default())
}

fn metrics_of(path: &Path, long: u64, sizes: Sizes) -> Result<MetricsFile, FileError> {
    let whole = || MetricsFile::read(path, &AtomicU64::default(), sizes);
    let Some(now) = Seen::new(path).filter(|now| now.length > long) else { return whole() };
    let mut followed = lock(&FOLLOWED);
    let Followed { by_sample, files: Some(files) } = &mut *followed else { return whole() };
    let read_on = |mut file: MetricsFile| file.read_on(path, sizes).map(|()| Known::Whole(file));
    let found = match files.remove(path) {
        Some(Err(damage)) if now.only_grew(damage.seen) => {
            Err(FileError::malformed(path, damage.line, damage.message))
        }
        Some(Ok(Known::Whole(file))) => read_on(file),
        Some(Ok(Known::Sample { whole: reading, .. })) if reading.is_finished() => {
            reading.join().unwrap_or_else(|_| whole()).and_then(read_on)
        }
        Some(Ok(Known::Sample { seen, read, whole, .. })) if seen != now => {
            // Sample again, so that additions are shown at once.
            MetricsFile::sample(path, sizes).map(|sample| Known::Sample { sample, seen: now, read, whole })
        }
        Some(Ok(sample)) => Ok(sample),
        _ if *by_sample => {
            // Read the sample first, while no thread competes for the cores.
            MetricsFile::sample(path, sizes).map(|sample| {
                let read = Arc::<AtomicU64>::default();
                let (own, counted) = (path.to_owned(), read.clone());
                let whole = thread::spawn(move || {
                    let _turn = lock(&TURN);
                    MetricsFile::read(&own, &counted, sizes)
                });
                Known::Sample { sample, seen: now, read, whole }
            })
        }
        _ => whole().map(Known::Whole),
    };
    if let Err(FileError::Malformed { line, message, .. }) = &found {
        let damage = Damage { seen: now, line: *line, message: message.clone() };
        files.insert(path.to_owned(), Err(damage));
    }
    let file = found?;
    let (Known::Whole(known) | Known::Sample { sample: known, .. }) = &file;
    let known = known.clone();
    files.insert(path.to_owned(), Ok(file));
    Ok(known)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write, time::Duration};

    use super::*;

    /// The followed files are global, so these tests must not run at the same time.
    static ALONE: Mutex<()> = Mutex::new(());

    /// Uses a file of a few lines that is treated as a long one.
    #[test]
    fn a_damaged_long_file_is_read_once_while_it_grows() {
        let _alone = ALONE.lock();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.csv");
        let head = "step,epoch,split,rows,loss,elapsed_s\n1,1,train,8,0.5,0.1\n";
        fs::write(&path, format!("{head}damaged\n2,1,train,8,0.5,0.2\n")).unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        let metrics = || metrics_of(&path, 60, Sizes::default());
        follow_files(true);
        assert!(metrics().is_ok(), "a sample");
        while share_read() < 1.0 {
            thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..2 {
            let error = metrics().unwrap_err().to_string();
            assert!(error.ends_with("is malformed at line 3: expected 6 cells, got 1"), "{error}");
            assert_eq!(share_read(), 1.0);
            writeln!(file, "2,1,train,8,0.5,0.2").unwrap();
        }
        file.set_len(58).unwrap();
        assert_eq!(metrics().unwrap().last.map(|row| row.step), Some(1));
    }

    /// A view begins with a sample, sees additions at once, and ends up with all rows.
    #[test]
    fn a_growing_long_file_is_followed() {
        let _alone = ALONE.lock();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.csv");
        let row = |step: u64| format!("{step},1,train,8,{},0.1\n", step % 7);
        let rows: String = (1..5000).map(row).collect();
        fs::write(&path, format!("step,epoch,split,rows,loss,elapsed_s\n{rows}")).unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        let step = || metrics_of(&path, 60, Sizes::default()).unwrap().last.unwrap().step;
        follow_files(true);
        assert_eq!(step(), 4999);
        for next in 5000..5010 {
            write!(file, "{}{},1,tra", row(next), next + 1).unwrap();
            assert_eq!(step(), next);
            file.set_len(file.metadata().unwrap().len() - format!("{},1,tra", next + 1).len() as u64)
                .unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        while share_read() < 1.0 {
            thread::sleep(Duration::from_millis(5));
        }
        let counts =
            |file: MetricsFile| file.into_curves()[0].1[0].points().map(|(step, _)| step).fold(0.0, f64::max);
        assert_eq!(counts(metrics_of(&path, 60, Sizes::default()).unwrap()), 5009.0);
    }
}
