//! Files that a live view looks at again and again. It starts at once, with a sample of a long file while the whole of it is
//! read; later it reads what was added.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::{
    ReportError,
    metrics_file::{MetricCurves, MetricsFile},
};
use crate::units;

/// A longer file is remembered, and shown by a sample at first.
const LONG: u64 = 64 << 20;

/// Long files by their paths.
static FOLLOWED: Mutex<Followed> = Mutex::new(Followed { by_sample: false, files: None });

struct Followed {
    by_sample: bool,
    /// `None` until a command asks for it: each file is then read whole.
    files: Option<HashMap<PathBuf, Known>>,
}

enum Known {
    Whole(MetricsFile),
    Sample { sample: MetricsFile, length: u64, read: Arc<AtomicU64>, whole: Whole },
}

/// A thread that reads a whole file.
type Whole = JoinHandle<Result<MetricsFile, ReportError>>;

/// From now on a long file is read once, and then on from its end; `by_sample` is for a view that must not wait for it.
pub fn follow_files(by_sample: bool) {
    *followed() = Followed { by_sample, files: Some(HashMap::new()) };
}

fn followed() -> MutexGuard<'static, Followed> {
    FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part that was read of a file that is shown by a sample; 1 where there is none.
pub fn share_read() -> f64 {
    let followed = followed();
    let shares = followed.files.iter().flat_map(HashMap::values).filter_map(|file| match file {
        Known::Whole(_) => None,
        Known::Sample { whole, .. } if whole.is_finished() => None,
        Known::Sample { length, read, .. } => {
            Some((read.load(Ordering::Relaxed) as f64 / *length as f64).min(0.99))
        }
    });
    shares.fold(1.0, f64::min)
}

/// What to say of curves that are drawn from a sample.
pub(super) fn sampled() -> Option<String> {
    let share = units::percent(Some(share_read()).filter(|&share| share < 1.0)?);
    Some(format!("curves and best values are of a sample of a long metrics.csv, of which {share} is read"))
}

/// The curves of a `metrics.csv`; none where there is no such file, as in a run of the lab.
pub(super) fn curves(path: &Path) -> Result<Vec<MetricCurves>, ReportError> {
    if path.is_file() { Ok(metrics(path)?.curves) } else { Ok(Vec::new()) }
}

/// What a `metrics.csv` holds.
pub(super) fn metrics(path: &Path) -> Result<MetricsFile, ReportError> {
    let whole = || MetricsFile::read(path, &AtomicU64::default());
    let length = fs::metadata(path).map_or(0, |file| file.len());
    if length <= LONG {
        return whole();
    }
    let mut followed = followed();
    let Followed { by_sample, files: Some(files) } = &mut *followed else { return whole() };
    let file = match files.remove(path) {
        Some(Known::Whole(mut file)) => {
            file.read_on(path)?;
            Known::Whole(file)
        }
        Some(Known::Sample { whole: reading, .. }) if reading.is_finished() => {
            Known::Whole(reading.join().unwrap_or_else(|_| whole())?)
        }
        Some(sample) => sample,
        None if *by_sample => {
            // First what is to be seen first: it has all cores.
            let sample = MetricsFile::sample(path)?;
            let read = Arc::<AtomicU64>::default();
            let (own, counted) = (path.to_owned(), read.clone());
            let whole = thread::spawn(move || MetricsFile::read(&own, &counted));
            Known::Sample { sample, length, read, whole }
        }
        None => Known::Whole(whole()?),
    };
    let (Known::Whole(known) | Known::Sample { sample: known, .. }) = &file;
    let known = known.clone();
    files.insert(path.to_owned(), file);
    Ok(known)
}
