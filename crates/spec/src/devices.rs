//! `[devices]`: where an experiment runs, and what happens if a device is missing.

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer};
use serde_json::json;

use super::{
    duration::{read_time, seconds},
    reader::{Fields, Item, Read, choices, some, table, words},
    tree::Value,
};

table! {
    /// Devices to run on. Without this table: the CPU.
    pub struct Devices {
        /// `num_gpus` or `use`.
        pub request: Request [flatten] = Request::CPU,
        /// What to do when a requested device is not there.
        pub on_missing: OnMissing = OnMissing::Error,
        /// What `batch_size` means on several devices.
        pub scaling: Scaling = Scaling::Strong,
        /// How `lr` follows the number of devices under weak scaling.
        pub lr_scaling: LrScaling = LrScaling::None,
        /// The number format of matrix products.
        pub precision: Precision = Precision::F32,
        /// What runs the steps.
        pub engine: EngineChoice = EngineChoice::Auto,
        /// Processes that train together, one a host or one a GPU, which MPI's launcher starts: `mpirun -n 4 runner SPEC`; by default as many as it started.
        pub hosts: Option<u32> = None => some(|v| v.integer(1..=MOST_HOSTS.into()) as u32),
        /// How long a host may give no sign of life before the run ends; by default 10 seconds.
        pub host_timeout: Option<Duration> [serialize_with = "seconds"] = None => some(read_time),
    }
    check check
}

choices! {
    /// Which devices are asked for.
    pub enum Request {
        /// GPUs to use: a number, or "all"; 0 is the CPU (0).
        NumGpus(GpuCount) = "num_gpus",
        /// Instead of `num_gpus`, a list of devices: "cpu", "gpu:1" ("cuda:1"), "gpu".
        Use(Vec<DeviceName>) = "use" => |v: Item<'_>| v.list(1..=1024, DeviceName::read),
    }
}

impl Request {
    /// The request of a spec without a `[devices]` table.
    pub(super) const CPU: Self = Self::NumGpus(GpuCount::Exactly(0));

    /// Whether this asks for the CPU.
    pub fn is_cpu(&self) -> bool {
        match self {
            Self::NumGpus(count) => *count == GpuCount::Exactly(0),
            Self::Use(devices) => devices[..] == [DeviceName::Cpu],
        }
    }
}

/// A number of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuCount {
    /// Exactly this number; 0 is the CPU.
    Exactly(u32),
    /// Every GPU of the machine; the CPU if it has none.
    All,
}

impl Serialize for GpuCount {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Exactly(n) => s.serialize_u32(*n),
            Self::All => s.serialize_str("all"),
        }
    }
}

/// A device as a user names it. `gpu` and `cuda:0` are read as `gpu:0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceName {
    /// The host's processor and memory.
    Cpu,
    /// The GPU with this index.
    Gpu(u32),
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Gpu(i) => write!(f, "gpu:{i}"),
        }
    }
}

impl Serialize for DeviceName {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

words! {
    /// What happens when a requested device is not there.
    pub enum OnMissing {
        /// Nothing runs, exit code 3.
        Error = "error",
        /// Use the devices that are there, or the CPU if there are none.
        Clamp = "clamp",
        /// Use the CPU if any is missing.
        Cpu = "cpu",
    }
}

words! {
    /// What `batch_size` means on several devices.
    pub enum Scaling {
        /// It is the global batch, split over the devices.
        Strong = "strong",
        /// It is the batch of each device.
        Weak = "weak",
    }
}

words! {
    /// How the learning rate follows the number of devices under weak scaling.
    pub enum LrScaling {
        /// Not at all.
        None = "none",
        /// Multiplied by the growth of the global batch, which is the number of devices unless the data have fewer rows
        /// (Goyal et al. 2017, arXiv:1706.02677).
        Linear = "linear",
        /// Multiplied by the square root of that growth (Krizhevsky 2014, arXiv:1404.5997).
        Sqrt = "sqrt",
    }
}

impl LrScaling {
    /// The learning rate's factor for a batch that is `times` as large.
    pub fn factor(self, times: f64) -> f64 {
        match self {
            Self::None => 1.0,
            Self::Linear => times,
            Self::Sqrt => times.sqrt(),
        }
    }
}

words! {
    /// The number format of matrix products.
    pub enum Precision {
        /// IEEE single precision.
        F32 = "f32",
        /// Operands rounded to 10 bits of mantissa, sums in single precision; GPUs only.
        Tf32 = "tf32",
        /// Operands rounded to bfloat16, sums in single precision; GPUs, and processors with AMX or AVX512-BF16.
        Bf16 = "bf16",
    }
}

words! {
    /// What runs the steps.
    pub enum EngineChoice {
        /// The plan picks by estimates and, where those are near, by a trial on blank rows.
        Auto = "auto",
        /// One CPU thread.
        Serial = "serial",
        /// A team of CPU threads.
        Team = "team",
        /// One block of a GPU keeps the trial in its shared memory and runs hundreds of steps per launch.
        Persistent = "persistent",
        /// A kernel that is compiled for this trial alone runs hundreds of steps per launch: in one block as `persistent`,
        /// or in a grid of blocks if the trial does not fit.
        Compiled = "compiled",
        /// All blocks of one GPU launch work together.
        Cooperative = "cooperative",
        /// Steps are captured once as a CUDA graph and replayed.
        Graph = "graph",
        /// A GPU launch per instruction, each phase timed.
        Launch = "launch",
    }
}

impl Devices {
    /// What a process of several trains on, and the way out.
    pub const ONE_EACH: [&str; 2] = [
        "each process of several trains on its CPU or on one GPU",
        "set `devices.num_gpus = 1`, and start a process for each GPU; or start one process, which takes all GPUs of its host",
    ];

    /// Whether several processes cannot train so.
    pub fn is_more_than_one_each(&self) -> bool {
        !self.request.is_cpu() && self.request != Request::NumGpus(GpuCount::Exactly(1))
    }

    fn check(&mut self, t: &mut Fields<'_>) {
        if let Request::Use(devices) = &self.request {
            t.refuse_repeated("use", devices, "name each device once");
            let is_other = |d: &DeviceName| (*d == DeviceName::Cpu) != (devices[0] == DeviceName::Cpu);
            for (i, device) in devices.iter().enumerate().filter(|(_, d)| is_other(d)) {
                let message = format!("`{device}` cannot train together with `{}`", devices[0]);
                t.refuse_item("use", i, message, "use the CPU alone, or GPUs alone");
            }
        }
        if self.hosts.is_some_and(|hosts| hosts > 1) && self.is_more_than_one_each() {
            let [message, hint] = Self::ONE_EACH;
            t.refuse("hosts", &["num_gpus", "use"], message, hint);
        }
        if self.scaling == Scaling::Strong && self.lr_scaling != LrScaling::None {
            let message = "the batch does not grow with the devices, so the rate must not either";
            let hint = "set `scaling = \"weak\"`, or leave `lr_scaling` out";
            t.refuse("lr_scaling", &["scaling"], message, hint);
        }
    }
}

/// A larger number is taken for a typo.
pub const MOST_HOSTS: u32 = 65_536;

/// No machine has more GPUs; a larger number is taken for a typo.
const MOST_GPUS: u32 = 1024;

impl Read for GpuCount {
    fn read(v: Item<'_>) -> Self {
        let schema = json!({ "oneOf": [{ "type": "integer", "minimum": 0, "maximum": MOST_GPUS }, { "const": "all" }] });
        let read = |v: &Value| match v {
            Value::Integer(n) => u32::try_from(*n).ok().filter(|n| *n <= MOST_GPUS).map(Self::Exactly),
            Value::String(s) if s == "all" => Some(Self::All),
            _ => None,
        };
        v.custom(&format!("a number of GPUs, at most {MOST_GPUS}, or `all`"), schema, Self::Exactly(0), read)
    }
}

impl Read for DeviceName {
    fn read(v: Item<'_>) -> Self {
        let schema = json!({ "type": "string", "pattern": "^(cpu|(gpu|cuda)(:[0-9]+)?)$" });
        let read = |v: &Value| v.as_str().and_then(Self::parse);
        let near = v.text().and_then(Self::nearest).map(|name| format!("write `{name}`"));
        v.custom_hinted("a device, such as `cpu` or `gpu:1`", schema, Self::Cpu, near, read)
    }
}

impl DeviceName {
    /// The device that a misspelling such as `gpu(1)`, `GPU 1` or `cpu(0)` stands for.
    fn nearest(text: &str) -> Option<Self> {
        let text: String = text.to_lowercase().split(|c| "()[]:_- ".contains(c)).collect();
        let (kind, ordinal) = text.split_at(text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len()));
        match kind {
            "cpu" => Some(Self::Cpu),
            "gpu" | "cuda" | "virtual" => {
                Self::parse(&format!("gpu:{}", if ordinal.is_empty() { "0" } else { ordinal }))
            }
            _ => None,
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let (kind, ordinal) = match name.split_once(':') {
            Some((kind, ordinal)) if ordinal.bytes().all(|b| b.is_ascii_digit()) => {
                (kind, ordinal.parse().ok()?)
            }
            Some(_) => return None,
            None => (name, 0),
        };
        match kind {
            "cpu" => (name == "cpu").then_some(Self::Cpu),
            "gpu" | "cuda" => Some(Self::Gpu(ordinal)),
            _ => None,
        }
    }
}
