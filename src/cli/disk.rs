//! The file system where runs are kept: its free space, and how long it takes to write.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::statvfs;

/// It is timed with at most as many bytes; more take proportionally longer.
const MOST_WRITTEN: u64 = 8 << 20;

/// It is timed with as many syncs, and with no more than the fewest once they took this long.
const LEAST_SYNCS: f64 = 3.0;
const MOST_SYNCS: f64 = 16.0;
const LONG: Duration = Duration::from_millis(20);

pub struct Disk {
    folder: PathBuf,
    pub block: u64,
    pub free: u64,
    /// Mean seconds of the shortest sync, and seconds per byte, once measured.
    pub write_s: Option<[f64; 2]>,
}

impl Disk {
    /// That of a folder, or of the nearest above it that exists.
    pub fn from_folder(folder: &Path) -> Option<Self> {
        let absolute = std::path::absolute(folder).ok()?;
        let folder = absolute.ancestors().find(|folder| folder.is_dir())?;
        let known = statvfs(folder).ok()?;
        // Network file systems report the unit of their transfers.
        let block = known.f_frsize.clamp(512, 4096);
        let free = known.f_bavail.saturating_mul(known.f_frsize.max(1));
        Some(Self { folder: folder.to_owned(), block, free, write_s: None })
    }

    /// Times it with temporary files, which have no name where the file system can do that. Nothing that is to be written has more than `bytes`.
    pub fn measure(&mut self, bytes: u64) {
        let write_s = |bytes: u64| {
            let (mut file, contents) = (tempfile::tempfile_in(&self.folder).ok()?, vec![1; bytes as usize]);
            let begun = Instant::now();
            file.write_all(&contents).and_then(|()| file.sync_all()).ok()?;
            Some(begun.elapsed().as_secs_f64())
        };
        // Some syncs take several times as long as most, and a run waits for all of them.
        let mean = |bytes: u64| {
            let (begun, mut count) = (Instant::now(), 0.0);
            let mut all_s = 0.0;
            while count < LEAST_SYNCS || count < MOST_SYNCS && begun.elapsed() < LONG {
                all_s += write_s(bytes)?;
                count += 1.0;
            }
            Some(all_s / count)
        };
        let most = bytes.clamp(self.block, MOST_WRITTEN);
        self.write_s = mean(self.block)
            .zip(mean(most))
            .map(|(least, longer)| [least, (longer - least).max(0.0) / most as f64]);
    }
}
