//! Chooses a trial's devices: the requested ones, or a fallback if they are missing.

use std::fmt;

use super::{
    lack::{Asked, Lack},
    machine::{Gpu, Machine},
};
use crate::spec::{DeviceName, Devices, GpuCount, OnMissing, Problem, Request};

/// Longer lists of names are shortened.
const MOST_NAMES: usize = 8;

/// A device of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceId {
    Cpu,
    Gpu(u32),
    /// A virtual GPU by ordinal: the CPU with separate memory.
    Virtual(u32),
    /// The CPU of one of several processes, by its rank.
    Rank(u32),
    /// The GPU of a process of several, by its rank; its ordinal where that is this process.
    RankGpu {
        rank: u32,
        ordinal: Option<u32>,
    },
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Gpu(i) => write!(f, "gpu:{i}"),
            Self::Virtual(i) => write!(f, "virtual:{i}"),
            Self::Rank(i) | Self::RankGpu { rank: i, .. } => write!(f, "rank:{i}"),
        }
    }
}

impl DeviceId {
    /// The ordinal of a GPU that a run takes from those of this process, a virtual one included.
    pub fn gpu(self) -> Option<u32> {
        match self {
            Self::Gpu(i) | Self::Virtual(i) => Some(i),
            Self::Cpu | Self::Rank(_) | Self::RankGpu { .. } => None,
        }
    }

    pub fn is_real_gpu(self) -> bool {
        matches!(self, Self::Gpu(_) | Self::RankGpu { .. })
    }

    /// The ordinal of a real GPU of this process.
    pub fn own_gpu(self) -> Option<u32> {
        match self {
            Self::Gpu(i) => Some(i),
            Self::RankGpu { ordinal, .. } => ordinal,
            Self::Cpu | Self::Virtual(_) | Self::Rank(_) => None,
        }
    }

    /// A real GPU of this process.
    pub fn real_gpu(self, machine: &Machine) -> Option<&Gpu> {
        machine.gpus.get(self.own_gpu()? as usize)
    }

    /// The device of a spec's name; `None` if this machine does not have it.
    pub fn from_name(name: DeviceName, machine: &Machine) -> Option<Self> {
        match name {
            DeviceName::Cpu => Some(Self::Cpu),
            DeviceName::Gpu(i) => {
                let gpu = machine.gpus.get(i as usize)?;
                Some(if gpu.is_virtual { Self::Virtual(i) } else { Self::Gpu(i) })
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedDevices {
    /// The request: `3`, `all`, `gpu:1;gpu:2`.
    pub requested: String,
    pub used: Vec<DeviceId>,
    /// Whether the spec names its devices, so that no others may replace them.
    pub are_named: bool,
    /// Why the used devices differ from the requested ones, if they do.
    pub lack: Option<Lack>,
    /// Names and UUIDs of the real GPUs in use.
    pub gpus: Vec<(String, String)>,
    /// Devices with the names of their hosts, by rank; empty on one host, and while the launcher has not
    /// named the hosts yet.
    pub ranks: Vec<String>,
}

impl ResolvedDevices {
    pub fn new(requested: String, used: Vec<DeviceId>, lack: Option<Lack>, machine: &Machine) -> Self {
        let named = |place: &DeviceId| Some((place.to_string(), place.real_gpu(machine)?.uuid.clone()?));
        let gpus = used.iter().filter_map(named).collect();
        Self { requested, used, are_named: false, lack, gpus, ranks: Vec::new() }
    }

    /// The same devices on other GPUs: `gpus` replaces the ordinals, in order.
    pub fn on(&self, gpus: &[u32], machine: &Machine) -> Self {
        let mut ordinals = gpus.iter();
        let other = |device: &DeviceId| match device {
            DeviceId::Gpu(own) => DeviceId::Gpu(*ordinals.next().unwrap_or(own)),
            DeviceId::Virtual(own) => DeviceId::Virtual(*ordinals.next().unwrap_or(own)),
            other => *other,
        };
        let used = self.used.iter().map(other).collect();
        Self::new(self.requested.clone(), used, self.lack.clone(), machine)
    }

    /// The devices' names, as `summary.csv` joins them.
    pub fn used_names(&self) -> Vec<String> {
        self.used.iter().map(|place| self.name_of(*place)).collect()
    }

    /// A device's name, with that of its host if there are several hosts.
    pub fn name_of(&self, place: DeviceId) -> String {
        let named = match place {
            DeviceId::Rank(rank) | DeviceId::RankGpu { rank, .. } => self.ranks.get(rank as usize),
            DeviceId::Cpu | DeviceId::Gpu(_) | DeviceId::Virtual(_) => None,
        };
        named.cloned().unwrap_or_else(|| place.to_string())
    }

    /// Whether every device is a CPU that computes on rows in its host's memory, with all threads.
    pub fn on_cpu(&self) -> bool {
        self.used.iter().all(|place| matches!(place, DeviceId::Cpu | DeviceId::Rank(_)))
    }

    /// Whether several processes, one per rank, train together.
    pub fn over_hosts(&self) -> bool {
        matches!(self.used.first(), Some(DeviceId::Rank(_) | DeviceId::RankGpu { .. }))
    }

    pub fn any_virtual(&self) -> bool {
        self.used.iter().any(|place| matches!(place, DeviceId::Virtual(_)))
    }
}

/// Chooses among the machine's GPUs and its CPU.
///
/// # Errors
/// A device is missing and the spec does not allow a fallback.
pub fn choose(devices: &Devices, machine: &Machine) -> Result<ResolvedDevices, Problem> {
    let hosts = devices.hosts.unwrap_or(1);
    if let Some(ranks) = machine.ranks.as_ref().filter(|ranks| ranks.len().max(1) != hosts as usize) {
        let message = match ranks.len() {
            0 => format!("{hosts} hosts are asked for, and no launcher started this process"),
            started => format!("{}, and the launcher started {started} processes", counted(hosts)),
        };
        let keep = match ranks.len() {
            0 => String::new(),
            started => format!("; `devices.hosts={started}` takes those that were started"),
        };
        let hint = match hosts {
            1 => format!("start one process without a launcher{keep}"),
            _ => format!(
                "`mpirun -n {hosts} runner ...` or `srun -n {hosts} --mpi=pmix runner ...` starts one process a host{keep}"
            ),
        };
        return Err(Problem::at_key("devices.hosts", message).hint(hint));
    }
    if hosts > 1 {
        return over_hosts(devices, hosts, machine);
    }
    choose_here(&devices.request, devices.on_missing, machine)
}

fn counted(hosts: u32) -> String {
    if hosts == 1 { "1 host is asked for".to_owned() } else { format!("{hosts} hosts are asked for") }
}

/// The CPU or one GPU of each process.
fn over_hosts(devices: &Devices, hosts: u32, machine: &Machine) -> Result<ResolvedDevices, Problem> {
    let ranks = machine.ranks.clone().unwrap_or_default();
    // Each process looks for itself whether it has a GPU.
    let ResolvedDevices { used, lack, .. } = choose_here(&devices.request, devices.on_missing, machine)?;
    let of = |rank| match used.first() {
        Some(DeviceId::Gpu(_)) => Ok(DeviceId::RankGpu {
            rank,
            ordinal: if rank == machine.rank { Some(own_gpu(&ranks, machine)?) } else { None },
        }),
        Some(DeviceId::Virtual(_)) => {
            let problem = Problem::at_key("devices.num_gpus", "virtual GPUs train in one process only");
            Err(problem.hint("leave `--virtual-gpus` out, or start one process"))
        }
        _ => Ok(DeviceId::Rank(rank)),
    };
    let used = (0..hosts).map(of).collect::<Result<Vec<_>, _>>()?;
    let requested = match used.first() {
        Some(DeviceId::RankGpu { .. }) => hosts.to_string(),
        _ if devices.request.is_cpu() => format!("{hosts} hosts"),
        _ => format!("{hosts} GPUs"),
    };
    let mut resolved = ResolvedDevices { ranks, ..ResolvedDevices::new(requested, used, lack, machine) };
    let name = |place: &DeviceId| place.own_gpu().map(|_| resolved.name_of(*place));
    let names: Vec<_> = resolved.used.iter().filter_map(name).collect();
    resolved.gpus.iter_mut().zip(names).for_each(|((own, _), name)| *own = name);
    Ok(resolved)
}

/// The ordinal of the GPU that this process takes: the only one that its launcher shows it, else by its place among the
/// processes of its host.
fn own_gpu(ranks: &[String], machine: &Machine) -> Result<u32, Problem> {
    let host = |name: &String| name.split_once('@').map(|(_, host)| host.to_owned());
    let own = ranks.get(machine.rank as usize).and_then(host);
    let place = ranks.iter().take(machine.rank as usize).filter(|name| host(name) == own).count();
    match machine.gpus.len() {
        0 | 1 => Ok(0),
        gpus if place < gpus => Ok(place as u32),
        gpus => {
            let message = format!("its host shows {gpus} GPUs, and {place} processes before it take them");
            let hint =
                "start a process for each GPU: `mpirun --map-by ppr:4:node`, `srun --ntasks-per-node=4`";
            Err(Problem::at_key("devices.num_gpus", message).hint(hint))
        }
    }
}

/// Chooses among the GPUs and the CPU of one host.
pub(super) fn choose_here(
    request: &Request,
    on_missing: OnMissing,
    machine: &Machine,
) -> Result<ResolvedDevices, Problem> {
    let gpus = machine.gpus.len() as u32;
    let (key, requested, wanted) = match request {
        Request::NumGpus(GpuCount::Exactly(n)) => ("devices.num_gpus", n.to_string(), gpu_list(*n)),
        Request::NumGpus(GpuCount::All) => ("devices.num_gpus", "all".to_owned(), gpu_list(gpus)),
        Request::Use(names) => {
            let words: Vec<_> = names.iter().map(DeviceName::to_string).collect();
            ("devices.use", words.join(";"), names.clone())
        }
    };
    let there = |d: &DeviceName| DeviceId::from_name(*d, machine);
    let missing: Vec<_> = wanted.iter().filter(|d| there(d).is_none()).map(DeviceName::to_string).collect();
    let mut used: Vec<_> = wanted.iter().filter_map(there).collect();
    let mut lack = None;
    if !missing.is_empty() {
        let there = gpus_in_words(machine);
        match on_missing {
            OnMissing::Error => {
                let verb = if missing.len() == 1 { "is" } else { "are" };
                let problem = Problem::at_key(key, format!("{} {verb} not there", shortened(&missing)));
                let clamp =
                    "`devices.on_missing = \"clamp\"` uses the devices that are there, the CPU where none is";
                let hint = match &machine.described {
                    Some(_) => {
                        format!("`gpu.count` and `[gpu.link]` in its file describe more GPUs; {clamp}")
                    }
                    None => clamp.to_owned(),
                };
                return Err(problem.label(there).hint(hint));
            }
            OnMissing::Clamp => {}
            OnMissing::Cpu => used.clear(),
        }
        if used.is_empty() {
            used.push(DeviceId::Cpu);
        }
        let asked = match request {
            Request::NumGpus(_) => Asked::Gpus(wanted.len() as u32),
            Request::Use(_) => Asked::Names(shortened(&missing)),
        };
        let used = match used[..] {
            [DeviceId::Cpu] => "the CPU".to_owned(),
            _ => names(&used, ", "),
        };
        lack = Some(Lack { asked, instead: format!("{there}: the run uses {used}") });
    }
    if used.is_empty() {
        used.push(DeviceId::Cpu);
    }
    let are_named = matches!(request, Request::Use(_));
    Ok(ResolvedDevices { are_named, ..ResolvedDevices::new(requested, used, lack, machine) })
}

/// `this machine has 2 GPUs`, or the reason for none.
pub(super) fn gpus_in_words(machine: &Machine) -> String {
    let which = if machine.described.is_some() { "that" } else { "this" };
    let gpu = if machine.gpus.iter().any(|g| g.is_virtual) { "virtual GPU" } else { "GPU" };
    match machine.gpus.len() {
        0 => format!("no GPU can be used ({})", machine.no_gpu),
        1 => format!("{which} machine has 1 {gpu}"),
        n => format!("{which} machine has {n} {gpu}s"),
    }
}

/// Names in backticks; only the first and last of many.
fn shortened(names: &[String]) -> String {
    match names {
        [first, .., last] if names.len() > MOST_NAMES => format!("`{first}` to `{last}`"),
        _ => format!("`{}`", names.join("`, `")),
    }
}

fn names<T: ToString>(devices: &[T], between: &str) -> String {
    devices.iter().map(T::to_string).collect::<Vec<_>>().join(between)
}

fn gpu_list(n: u32) -> Vec<DeviceName> {
    (0..n).map(DeviceName::Gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    fn machine(gpus: u32) -> Machine {
        let gpu = Gpu { is_virtual: false, ..Gpu::virtual_of(1 << 30) };
        let no_gpu = "no NVIDIA driver is here".into();
        Machine { no_gpu, ..Machine::typical(vec![gpu; gpus as usize], 1 << 30) }
    }

    fn used(request: &Request, on_missing: OnMissing, gpus: u32) -> String {
        match choose_here(request, on_missing, &machine(gpus)) {
            Ok(choice) => choice.used_names().join(";"),
            Err(problem) => problem.message,
        }
    }

    #[test]
    fn as_try_gpu_and_min_of_asked_and_available() {
        use OnMissing::*;
        let n = |n| Request::NumGpus(GpuCount::Exactly(n));
        let all = Request::NumGpus(GpuCount::All);
        let named = |i: &[u32]| Request::Use(i.iter().map(|i| DeviceName::Gpu(*i)).collect());
        for (request, on_missing, gpus, want) in [
            (n(0), Error, 2, "cpu"),
            (n(1), Clamp, 0, "cpu"),
            (n(1), Clamp, 1, "gpu:0"),
            (n(4), Clamp, 2, "gpu:0;gpu:1"),
            (n(4), Cpu, 2, "cpu"),
            (n(2), Error, 1, "`gpu:1` is not there"),
            (n(3), Error, 1, "`gpu:1`, `gpu:2` are not there"),
            (n(1000), Error, 1, "`gpu:1` to `gpu:999` are not there"),
            (all.clone(), Error, 3, "gpu:0;gpu:1;gpu:2"),
            (all, Error, 0, "cpu"),
            (named(&[1]), Clamp, 1, "cpu"),
            (named(&[0, 1]), Clamp, 1, "gpu:0"),
            (named(&[1]), Error, 2, "gpu:1"),
        ] {
            assert_eq!(used(&request, on_missing, gpus), want, "{request:?} {on_missing:?} of {gpus}");
        }
    }

    #[test]
    fn a_process_takes_the_gpu_that_it_is_shown_or_the_next_of_its_host() {
        let ranks = ["rank:0@a", "rank:1@b", "rank:2@a", "rank:3@b", "rank:4@a"].map(str::to_owned);
        for (rank, gpus, ordinal) in [
            (0, 2, Some(0)),
            (1, 2, Some(0)),
            (2, 2, Some(1)),
            (3, 4, Some(1)),
            (4, 1, Some(0)),
            (4, 2, None),
        ] {
            let own = own_gpu(&ranks, &Machine { rank, ..machine(gpus) });
            assert_eq!(own.as_ref().ok(), ordinal.as_ref(), "{rank} of {gpus}: {own:?}");
        }
    }
}
