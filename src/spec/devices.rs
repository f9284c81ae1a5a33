//! `[devices]`: where an experiment runs, and what happens where a device is not there.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::json;

use super::{
    reader::{Choice, Fields, Item, Word},
    tree::Value,
};

/// The table `[devices]`; absent, it means the CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Devices {
    /// `num_gpus` or `use`.
    #[serde(flatten)]
    pub request: Request,
    /// What to do when a requested device is not there.
    pub on_missing: OnMissing,
    /// What `batch_size` means on several devices.
    pub scaling: Scaling,
    /// How the learning rate follows the number of devices.
    pub lr_scaling: LrScaling,
    /// The number format of the products.
    pub precision: Precision,
    /// What runs the steps.
    pub engine: EngineChoice,
}

/// Which devices are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Request {
    /// `num_gpus = n` or `"all"`; 0 is the CPU.
    #[serde(rename = "num_gpus")]
    NumGpus(GpuCount),
    /// `use = ["gpu:1", ...]`.
    #[serde(rename = "use")]
    Use(Vec<DeviceName>),
}

/// A number of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuCount {
    /// Exactly so many; 0 is the CPU.
    Exactly(u32),
    /// Every GPU there is; none there is the CPU.
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
    /// The GPU of that ordinal.
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

/// What happens when a requested device is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnMissing {
    /// Nothing runs, exit code 3.
    Error,
    /// Those that are there, the CPU where none is: min(num_gpus, available).
    Clamp,
    /// The CPU as soon as one is missing.
    Cpu,
}

/// What `batch_size` means on several devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scaling {
    /// The global batch, split over the devices.
    Strong,
    /// The batch of each device.
    Weak,
}

impl Scaling {
    /// The word in the spec and in `summary.csv`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strong => "strong",
            Self::Weak => "weak",
        }
    }
}

/// How the learning rate follows the number of devices under weak scaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LrScaling {
    /// Not at all.
    None,
    /// Times as many as its batch is larger: the number of devices, where there are rows enough (Goyal et al. 2017,
    /// arXiv:1706.02677).
    Linear,
    /// Times its square root (Krizhevsky 2014, arXiv:1404.5997).
    Sqrt,
}

impl LrScaling {
    /// What the learning rate is multiplied by for a batch so many times as large.
    pub fn factor(self, times: f64) -> f64 {
        match self {
            Self::None => 1.0,
            Self::Linear => times,
            Self::Sqrt => times.sqrt(),
        }
    }
}

/// The number format of the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// IEEE single precision.
    F32,
    /// Operands rounded to 10 bits of mantissa, sums in single precision; on GPUs.
    Tf32,
    /// Operands rounded to bfloat16, sums in single precision; on GPUs.
    Bf16,
}

impl Precision {
    /// The word in a spec and in `summary.csv`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }
}

/// What runs the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineChoice {
    /// The plan picks by its cost model.
    Auto,
    /// One CPU thread walks the program.
    Serial,
    /// A team of CPU threads walks the program together.
    Team,
    /// One block of a GPU keeps the trial in its shared memory and runs hundreds of steps per launch.
    Persistent,
    /// All blocks of one GPU launch walk the program together.
    Cooperative,
    /// Steps are captured once as a CUDA graph and replayed.
    Graph,
    /// Every instruction is a launch of its own, timed by itself.
    Launch,
}

impl EngineChoice {
    /// The word in a spec.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Serial => "serial",
            Self::Team => "team",
            Self::Persistent => "persistent",
            Self::Cooperative => "cooperative",
            Self::Graph => "graph",
            Self::Launch => "launch",
        }
    }
}

impl Devices {
    pub(super) fn read(t: &mut Fields<'_>) -> Self {
        let request = t.one_of(
            Some(Request::NumGpus(GpuCount::Exactly(0))),
            &[
                Choice {
                    name: "num_gpus",
                    doc: "GPUs to train on: a number, or \"all\"; 0 is the CPU (0)",
                    read: |v| Request::NumGpus(GpuCount::read(v)),
                },
                Choice {
                    name: "use",
                    doc: "instead of `num_gpus`, a list of devices: \"cpu\", \"gpu:1\" (\"cuda:1\"), \"gpu\"",
                    read: |v| Request::Use(v.list(1..=1024, DeviceName::read)),
                },
            ],
        );
        let request = request.unwrap_or(Request::NumGpus(GpuCount::Exactly(0)));
        if let Request::Use(devices) = &request {
            check_list(t, devices);
        }
        let devices = Self {
            request,
            on_missing: t.default(
                "on_missing",
                "what to do when a device is not there",
                OnMissing::Error,
                OnMissing::read,
            ),
            scaling: t.default(
                "scaling",
                "what `batch_size` means on several devices",
                Scaling::Strong,
                |v| {
                    v.word(
                        &[
                            Word {
                                name: "strong",
                                value: Scaling::Strong,
                                doc: "it is the global batch, split over the devices",
                            },
                            Word {
                                name: "weak",
                                value: Scaling::Weak,
                                doc: "it is the batch of each device",
                            },
                        ],
                        &[],
                    )
                },
            ),
            lr_scaling: t.default(
                "lr_scaling",
                "how `lr` follows the number of devices under weak scaling",
                LrScaling::None,
                |v| {
                    v.word(
                        &[
                            Word { name: "none", value: LrScaling::None, doc: "not at all" },
                            Word { name: "linear", value: LrScaling::Linear, doc: "times their number" },
                            Word { name: "sqrt", value: LrScaling::Sqrt, doc: "times its square root" },
                        ],
                        &[],
                    )
                },
            ),
            precision: t.default("precision", "the number format of the products", Precision::F32, |v| {
                v.word(
                    &[
                        Word { name: "f32", value: Precision::F32, doc: "IEEE single precision" },
                        Word {
                            name: "tf32",
                            value: Precision::Tf32,
                            doc: "operands of products rounded to 10 bits of mantissa; GPUs only",
                        },
                        Word {
                            name: "bf16",
                            value: Precision::Bf16,
                            doc: "operands of products rounded to bfloat16; GPUs only",
                        },
                    ],
                    &[],
                )
            }),
            engine: t.default("engine", "what runs the steps", EngineChoice::Auto, |v| {
                v.word(
                    &[
                        Word { name: "auto", value: EngineChoice::Auto, doc: "picked by the plan" },
                        Word { name: "serial", value: EngineChoice::Serial, doc: "one CPU thread" },
                        Word { name: "team", value: EngineChoice::Team, doc: "a team of CPU threads" },
                        Word {
                            name: "persistent",
                            value: EngineChoice::Persistent,
                            doc: "one block of a GPU keeps the trial in its shared memory",
                        },
                        Word {
                            name: "cooperative",
                            value: EngineChoice::Cooperative,
                            doc: "all blocks of one GPU launch together",
                        },
                        Word {
                            name: "graph",
                            value: EngineChoice::Graph,
                            doc: "a captured CUDA graph of steps",
                        },
                        Word {
                            name: "launch",
                            value: EngineChoice::Launch,
                            doc: "a GPU launch per instruction, each phase timed",
                        },
                    ],
                    &[],
                )
            }),
        };
        if devices.scaling == Scaling::Strong && devices.lr_scaling != LrScaling::None {
            let message = "the batch does not grow with the devices, so the rate must not either";
            let hint = "set `scaling = \"weak\"`, or leave `lr_scaling` out";
            t.refuse("lr_scaling", &["scaling"], message, hint);
        }
        devices
    }
}

fn check_list(t: &mut Fields<'_>, devices: &[DeviceName]) {
    for (i, device) in devices.iter().enumerate() {
        let earlier = &devices[..i];
        if earlier.contains(device) {
            t.refuse_item("use", i, format!("`{device}` is named twice"), "name each device once");
        } else if earlier.iter().any(|d| (*d == DeviceName::Cpu) != (*device == DeviceName::Cpu)) {
            let message = format!("`{device}` cannot train together with `{}`", earlier[0]);
            t.refuse_item("use", i, message, "use the CPU alone, or GPUs alone");
        }
    }
}

impl OnMissing {
    pub(super) fn read(v: Item<'_>) -> Self {
        v.word(
            &[
                Word { name: "error", value: Self::Error, doc: "run nothing, exit code 3" },
                Word { name: "clamp", value: Self::Clamp, doc: "those there are, or else the CPU" },
                Word { name: "cpu", value: Self::Cpu, doc: "the CPU as soon as one is missing" },
            ],
            &[],
        )
    }
}

/// No machine has more; a larger number is a slip.
const MOST_GPUS: u32 = 1024;

impl GpuCount {
    pub(super) fn read(v: Item<'_>) -> Self {
        let schema = json!({ "oneOf": [{ "type": "integer", "minimum": 0, "maximum": MOST_GPUS }, { "const": "all" }] });
        let read = |v: &Value| match v {
            Value::Integer(n) => u32::try_from(*n).ok().filter(|n| *n <= MOST_GPUS).map(Self::Exactly),
            Value::String(s) if s == "all" => Some(Self::All),
            _ => None,
        };
        v.custom(&format!("a number of GPUs, at most {MOST_GPUS}, or `all`"), schema, Self::Exactly(0), read)
    }
}

impl DeviceName {
    pub(super) fn read(v: Item<'_>) -> Self {
        let schema = json!({ "type": "string", "pattern": "^(cpu|(gpu|cuda)(:[0-9]+)?)$" });
        let read = |v: &Value| match v {
            Value::String(s) => Self::parse(s),
            _ => None,
        };
        v.custom("a device, such as `cpu` or `gpu:1`", schema, Self::Cpu, read)
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
