//! How busy other processes keep the machine.
//!
//! From `/proc/stat` and `/proc/self/stat` (proc(5)), over the processors that this process may use, in
//! USER_HZ ticks.

use std::{
    fs,
    sync::{LazyLock, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{lock, read_proc};

/// USER_HZ: 100 on all architectures that this program supports.
const TICKS_PER_S: f64 = 100.0;

/// A shorter window holds too few ticks to be accurate.
const SHORTEST_WINDOW: Duration = Duration::from_millis(500);

/// Runs that follow each other within this time share their counters: reading the counters takes longer than a
/// short run, on a machine of a hundred cores some milliseconds.
const SAMPLE_LIFETIME: Duration = Duration::from_millis(100);

/// The shortest window of periodic sampling.
const SHORTEST_PERIOD: Duration = Duration::from_millis(50);

/// What `/proc` counts, at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counters {
    at: Instant,
    ticks: Ticks,
    throttles: u64,
    /// Microseconds during which the cgroup's quota withheld the processor.
    withheld_us: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    /// Ticks taken by other virtual machines.
    stolen: u64,
    idle: u64,
    /// Ticks used by this process and its ended children.
    own: u64,
}

/// Load between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    pub window_s: f64,
    /// Average number of cores that other processes used.
    pub others_cores: f64,
    /// Average number of cores that other virtual machines took.
    pub stolen_cores: f64,
    #[serde(skip)]
    pub cores: usize,
    /// Thermal throttling events (Intel's counters in `thermal_throttle`).
    pub throttles: u64,
    /// Seconds for which the cgroup's quota withheld the processor.
    pub withheld_s: f64,
}

/// If other processes take more than this share of the processors, the machine is busy.
pub const BUSY: f64 = 0.05;

/// If they take more than this share, times compare nothing.
pub const TOO_BUSY: f64 = 0.25;

impl Load {
    /// Whether other processes took enough of the machine to be mentioned.
    pub fn is_busy(&self) -> bool {
        self.others() > BUSY
    }

    /// Share of the processors' time that other processes and virtual machines took, 0 to 1.
    pub fn others(&self) -> f64 {
        (self.others_cores + self.stolen_cores) / self.cores.max(1) as f64
    }

    /// `None` if the samples are too close.
    pub fn between(before: &Counters, after: &Counters) -> Option<Self> {
        let window = after.at.checked_duration_since(before.at)?;
        if window < SHORTEST_WINDOW {
            return None;
        }
        let window_s = window.as_secs_f64();
        let spent = |counter: fn(&Ticks) -> u64| counter(&after.ticks).saturating_sub(counter(&before.ticks));
        let others = spent(|t| t.busy).saturating_sub(spent(|t| t.own));
        let cores = |ticks: u64| (ticks as f64 / TICKS_PER_S / window_s * 1000.0).round() / 1000.0;
        Some(Self {
            window_s,
            others_cores: cores(others),
            stolen_cores: cores(spent(|t| t.stolen)),
            cores: super::logical_cores().unwrap_or(1),
            throttles: after.throttles.saturating_sub(before.throttles),
            withheld_s: after.withheld_us.saturating_sub(before.withheld_us) as f64 / 1e6,
        })
    }
}

/// Use of the processors between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Use {
    /// Busy share of the allowed processors' time, 0 to 1.
    pub utilization: f64,
    /// Average number of cores that this process used.
    pub process_cores: f64,
    /// Share of the allowed processors' time that other processes and virtual machines used, 0 to 1.
    pub others: f64,
    /// The part of it that virtual machines used.
    pub stolen: f64,
    cores: usize,
}

impl Use {
    /// Share of the time of `threads` cores that these threads lacked, because others used more than the rest of the allowed
    /// cores.
    pub fn lacking(&self, threads: usize) -> f64 {
        let rest = self.cores.saturating_sub(threads) as f64;
        (self.others * self.cores as f64 - rest).max(0.0) / threads.max(1) as f64
    }

    /// `None` if the samples are too close.
    pub fn between(before: &Counters, after: &Counters) -> Option<Self> {
        let window =
            after.at.checked_duration_since(before.at).filter(|window| *window >= SHORTEST_PERIOD)?;
        let spent =
            |counter: fn(&Ticks) -> u64| counter(&after.ticks).saturating_sub(counter(&before.ticks)) as f64;
        let (busy, own, stolen) = (spent(|t| t.busy), spent(|t| t.own), spent(|t| t.stolen));
        let all = busy + stolen + spent(|t| t.idle);
        let thousandth = |value: f64| (value * 1000.0).round() / 1000.0;
        (all > 0.0).then(|| Self {
            utilization: thousandth(busy / all),
            process_cores: thousandth(own / TICKS_PER_S / window.as_secs_f64()),
            others: thousandth(((busy + stolen - own) / all).max(0.0)),
            stolen: thousandth(stolen / all),
            cores: super::logical_cores().unwrap_or(1),
        })
    }
}

/// Samples taken at the start and end of each run.
#[derive(Debug, Default)]
pub struct Watch(Mutex<Vec<Counters>>);

impl Watch {
    pub fn mark(&self) {
        drop(self.samples());
    }

    /// The load since the latest sample that is long enough ago.
    pub fn load(&self) -> Option<Load> {
        let samples = self.samples();
        let (now, earlier) = samples.split_last()?;
        earlier.iter().rev().find_map(|before| Load::between(before, now))
    }

    /// Returns the samples after adding one of this moment.
    fn samples(&self) -> MutexGuard<'_, Vec<Counters>> {
        let mut samples = lock(&self.0);
        if samples.last().is_none_or(|last| last.at.elapsed() >= SAMPLE_LIFETIME) {
            if samples.len() >= 1024 {
                samples.drain(..512);
            }
            samples.extend(counters());
        }
        samples
    }
}

/// The counters now; `None` if the system does not report them.
pub fn counters() -> Option<Counters> {
    let allowed = read_proc("/proc/self/status").and_then(|text| allowed_in(&text));
    let machine = read_proc("/proc/stat")?;
    let own = own_in(&read_proc("/proc/self/stat")?)?;
    let [busy, stolen, idle] = machine_in(&machine, allowed.as_deref())?;
    let withheld_us = read_proc("/sys/fs/cgroup/cpu.stat").and_then(|text| withheld_in(&text));
    Some(Counters {
        at: Instant::now(),
        ticks: Ticks { busy, stolen, idle, own },
        throttles: throttles(),
        withheld_us: withheld_us.unwrap_or(0),
    })
}

/// The average number of processes that ran or waited to run, over the last minute.
pub fn average_1m() -> Option<f64> {
    read_proc("/proc/loadavg")?.split_whitespace().next()?.parse().ok()
}

/// Number of the machine's threads that run or wait for a core right now, including this one; `None` if this
/// process may use only some of the cores.
pub fn running() -> Option<usize> {
    static ALL: LazyLock<Option<usize>> = LazyLock::new(|| {
        let stat = read_proc("/proc/stat")?;
        Some(stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count())
    });
    let running = running_in(&read_proc("/proc/loadavg")?);
    running.filter(|_| super::logical_cores() == *ALL)
}

fn running_in(loadavg: &str) -> Option<usize> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// The processors of a status file's `Cpus_allowed_list`: `0-2,5`.
fn allowed_in(status: &str) -> Option<Vec<usize>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut allowed = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        allowed.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(allowed)
}

/// Busy, stolen and idle ticks of the allowed processors, or of all if `allowed` is `None`.
fn machine_in(stat: &str, allowed: Option<&[usize]>) -> Option<[u64; 3]> {
    let mut sum: Option<[u64; 3]> = None;
    for line in stat.lines() {
        let Some((name, counters)) = line.split_once(' ') else { continue };
        let wanted = match (name.strip_prefix("cpu"), allowed) {
            (Some(""), None) => true,
            (Some(number), Some(allowed)) => number.parse().is_ok_and(|number| allowed.contains(&number)),
            _ => false,
        };
        if !wanted {
            continue;
        }
        let counters: Vec<u64> = counters.split_whitespace().map_while(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; `user` includes guests.
        let [user, nice, system, unused, waiting, irq, softirq, rest @ ..] = counters.as_slice() else {
            return None;
        };
        let [busy, stolen, idle] = sum.get_or_insert([0; 3]);
        *busy += user + nice + system + irq + softirq;
        *stolen += rest.first().unwrap_or(&0);
        *idle += unused + waiting;
    }
    sum
}

/// Ticks of a process and its ended children.
fn own_in(stat: &str) -> Option<u64> {
    // The name in parentheses may contain any character.
    let (_, rest) = stat.rsplit_once(')')?;
    let times = rest.split_whitespace().skip(11).take(4);
    let times: Vec<u64> = times.map_while(|word| word.parse().ok()).collect();
    (times.len() == 4).then(|| times.iter().sum())
}

fn withheld_in(cpu_stat: &str) -> Option<u64> {
    cpu_stat.lines().find_map(|line| line.strip_prefix("throttled_usec "))?.trim().parse().ok()
}

fn throttles() -> u64 {
    let count = |cpu: usize| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle/core_throttle_count");
        fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    // A machine has these counters either for all processors or for none.
    (0..).map_while(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 1 10 5000 7 2 3 40 9 9\ncpu0 60 1 5 2500 7 1 1 30 9 9\ncpu1 40 0 5 2500 0 1 2 10 0 0\nintr 5\n";

    #[test]
    fn counters_are_read() {
        assert_eq!(machine_in(STAT, None), Some([116, 40, 5007]));
        assert_eq!(machine_in(STAT, Some(&[1])), Some([48, 10, 2500]));
        assert_eq!(machine_in(STAT, Some(&[0, 1])), Some([116, 40, 5007]));
        assert_eq!(machine_in("cpu0 1 2\n", Some(&[0])), None);
        assert_eq!(allowed_in("Name:\tx\nCpus_allowed_list:\t0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(running_in("1.53 1.40 1.53 3/345 28836\n"), Some(3));
        let own = "7 (a b) c) R 1 1 1 0 -1 4194304 99 0 0 0 11 22 3 4 20 0 1 0 116914";
        assert_eq!(own_in(own), Some(40));
        assert_eq!(withheld_in("usage_usec 1\nthrottled_usec 2500\n"), Some(2500));
    }

    #[test]
    fn others_are_all_but_this_process() {
        let before = Counters {
            at: Instant::now(),
            ticks: Ticks { busy: 1000, stolen: 5, idle: 0, own: 100 },
            throttles: 3,
            withheld_us: 1000,
        };
        let ticks = Ticks { busy: 1500, stolen: 25, idle: 480, own: 400 };
        let later = |ms| Counters {
            at: before.at + Duration::from_millis(ms),
            ticks,
            throttles: 4,
            withheld_us: 3000,
        };
        let load = Load::between(&before, &later(2000)).unwrap();
        assert_eq!((load.window_s, load.others_cores, load.stolen_cores), (2.0, 1.0, 0.1));
        assert_eq!((load.throttles, load.withheld_s), (1, 0.002));
        assert_eq!(Load::between(&before, &later(400)), None);
        let cores = crate::host::logical_cores().unwrap_or(1);
        let used = Use { utilization: 0.5, process_cores: 1.5, others: 0.22, stolen: 0.02, cores };
        assert_eq!(Use::between(&before, &later(2000)), Some(used));
        assert_eq!(Use::between(&before, &later(10)), None);
    }

    #[test]
    fn threads_lack_what_others_use_beyond_the_other_cores() {
        let lacking = |others, cores, threads| {
            Use { utilization: 1.0, process_cores: 0.0, others, stolen: 0.0, cores }.lacking(threads)
        };
        assert_eq!(lacking(0.25, 64, 4), 0.0, "the neighbours have cores of their own");
        assert_eq!(lacking(0.5, 2, 2), 0.5);
        assert_eq!(lacking(0.5, 2, 1), 0.0);
        assert_eq!(lacking(0.875, 8, 2), 0.5);
        assert_eq!(lacking(0.5, 1, 2), 0.25, "more threads than cores");
    }

    #[test]
    fn a_short_run_looks_back_to_the_runs_before_it() {
        let Some(mut sample) = counters() else { return };
        sample.at -= Duration::from_secs(3);
        let long = Counters { at: sample.at + Duration::from_secs(1), ..sample };
        let watch = Watch(Mutex::new(vec![sample, long]));
        watch.mark();
        let window_s = watch.load().unwrap().window_s;
        assert!((2.0..3.0).contains(&window_s), "{window_s}");
    }
}
