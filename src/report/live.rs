//! Files that a live view looks at again and again. It starts at once, with a sample of a long file while the whole of it is
//! read; later it reads what was added.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::{
    ReportError,
    metrics_file::{MetricCurves, MetricsFile},
};
use crate::units;

/// A longer file is shown by a sample at first.
const LONG: u64 = 64 << 20;

/// `None` where no live view is at work: each file is then read whole, once.
static FOLLOWED: Mutex<Option<HashMap<PathBuf, Followed>>> = Mutex::new(None);

enum Followed {
    Whole(MetricsFile),
    Sample { sample: MetricsFile, length: u64, read: Arc<AtomicU64>, whole: Whole },
}

/// A thread that reads a whole file.
type Whole = JoinHandle<Result<MetricsFile, ReportError>>;

/// From now on files are followed.
pub fn follow_files() {
    FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
}

/// The part that was read of a file that is shown by a sample; 1 where there is none.
pub fn share_read() -> f64 {
    let followed = FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner);
    let shares = followed.iter().flat_map(HashMap::values).filter_map(|file| match file {
        Followed::Whole(_) => None,
        Followed::Sample { whole, .. } if whole.is_finished() => None,
        Followed::Sample { length, read, .. } => {
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
    let mut followed = FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(followed) = &mut *followed else { return MetricsFile::read(path, &AtomicU64::default()) };
    let file = match followed.remove(path) {
        Some(Followed::Whole(mut file)) => {
            file.read_on(path)?;
            Followed::Whole(file)
        }
        Some(Followed::Sample { whole, .. }) if whole.is_finished() => match whole.join() {
            Ok(file) => Followed::Whole(file?),
            Err(_) => Followed::Whole(MetricsFile::read(path, &AtomicU64::default())?),
        },
        Some(sample) => sample,
        None => match fs::metadata(path).map_or(0, |file| file.len()) {
            length if length > LONG => {
                let read = Arc::<AtomicU64>::default();
                let (own, counted) = (path.to_owned(), read.clone());
                let whole = thread::spawn(move || MetricsFile::read(&own, &counted));
                Followed::Sample { sample: MetricsFile::sample(path)?, length, read, whole }
            }
            _ => Followed::Whole(MetricsFile::read(path, &AtomicU64::default())?),
        },
    };
    let (Followed::Whole(known) | Followed::Sample { sample: known, .. }) = &file;
    let known = known.clone();
    followed.insert(path.to_owned(), file);
    Ok(known)
}
