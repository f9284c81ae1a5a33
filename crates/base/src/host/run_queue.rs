//! How long a thread was ready to run while others used the cores.

use std::{
    cell::RefCell,
    fs::File,
    os::unix::fs::FileExt,
    sync::Arc,
    time::{Duration, Instant},
};

thread_local! {
    /// The counter of this thread, which several parts of a run read, once it could be opened.
    static OF_THREAD: RefCell<Option<Arc<File>>> = const { RefCell::new(None) };
}

/// A reading of the counter may take some microseconds, so one counts as recent for this long.
const RECENT: Duration = Duration::from_millis(2);

/// Within a shorter time no wait for a core is looked for.
const SHORTEST: Duration = Duration::from_micros(20);

/// The waits for a core of the thread that made this. The kernel counts them: the second number of
/// `/proc/thread-self/schedstat`, in ns (see sched-stats.rst of Linux).
#[derive(Default)]
pub struct CoreWaits {
    /// `None` if the system does not count them.
    file: Option<Arc<File>>,
    first: Duration,
    last: Duration,
    read_at: Option<Instant>,
}

impl CoreWaits {
    pub fn of_this_thread() -> Self {
        let opened = || File::open("/proc/thread-self/schedstat").ok().map(Arc::new);
        Self::in_file(OF_THREAD.with_borrow_mut(|known| {
            *known = known.take().or_else(opened);
            known.clone()
        }))
    }

    fn in_file(file: Option<Arc<File>>) -> Self {
        let mut own = Self { file, ..Self::default() };
        own.first = own.read().unwrap_or_default();
        own
    }

    /// All waits so far; `None` if they are not counted.
    pub fn total(&mut self) -> Option<Duration> {
        Some(self.read()?.saturating_sub(self.first))
    }

    /// Something begins whose waits [`Self::within`] will tell apart from those before it.
    pub fn begin(&mut self, now: Instant) {
        if self.read_at.is_some_and(|at| now.saturating_duration_since(at) > RECENT) {
            self.read();
        }
    }

    /// How much of the time since `begin` the thread had no core.
    pub fn within(&mut self, time: Duration) -> Duration {
        if time < SHORTEST {
            return Duration::ZERO;
        }
        let before = self.last;
        self.read().map_or(Duration::ZERO, |after| after.saturating_sub(before).min(time))
    }

    fn read(&mut self) -> Option<Duration> {
        let mut text = [0; 128];
        let length = self.file.as_ref()?.read_at(&mut text, 0).ok()?;
        self.last = delay_in(str::from_utf8(&text[..length]).ok()?)?;
        self.read_at = Some(Instant::now());
        Some(self.last)
    }
}

fn delay_in(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_delay() {
        assert_eq!(delay_in("1016036 2889260 2\n"), Some(Duration::from_nanos(2_889_260)));
        assert_eq!(delay_in("1016036\n"), None);
    }

    #[test]
    fn a_delay_does_not_shrink() {
        let mut waits = CoreWaits::of_this_thread();
        let Some(before) = waits.total() else { return };
        std::thread::yield_now();
        assert!(waits.total().is_some_and(|after| after >= before));
    }

    #[test]
    fn waits_belong_to_what_took_long_meanwhile() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let set = |ms: u64| std::fs::write(file.path(), format!("5 {} 7\n", ms * 1_000_000)).unwrap();
        let ms = Duration::from_millis;
        set(10);
        let mut waits = CoreWaits::in_file(File::open(file.path()).ok().map(Arc::new));
        set(13);
        assert_eq!(waits.within(Duration::from_micros(19)), Duration::ZERO, "too short to hold a wait");
        assert_eq!(waits.within(ms(2)), ms(2), "never more than the time itself");
        set(17);
        waits.begin(Instant::now() + ms(3));
        assert_eq!(waits.within(ms(9)), ms(0), "this wait was before");
        set(18);
        assert_eq!((waits.within(ms(9)), waits.total()), (ms(1), Some(ms(8))));
        let mut unknown = CoreWaits::in_file(None);
        assert_eq!((unknown.within(ms(9)), unknown.total()), (ms(0), None));
    }
}
