//! A file that describes a machine: `runner devices -o FILE` writes that of this one, `runner check --on FILE` plans for it.

use std::{collections::BTreeMap, fmt::Display, ops::Range, path::Path};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use toml::Spanned;

use crate::{
    cuda, host,
    plan::{AllReduceRates, Described, Gpu, GpuRates, Link, Machine, MachineRates, Origin},
    spec::{Failure, Location, Problem, nearest},
};

/// What a data sheet says; all other rates of a GPU are typical ones where they are not given.
const GIVEN: [&str; 3] = ["f32_flops_per_s", "memory_bytes_per_s", "h2d_bytes_per_s"];

/// The most GPUs of a machine, and the most cores.
const MOST: Range<u32> = 1..1025;

/// Plausible costs, and plausible rates: others are in another unit.
const SECONDS: Range<f64> = 0.0..0.1;
const PER_SECOND: Range<f64> = 1e6..1e21;

const COST: &str = "seconds below 0.1, such as 3.6e-6";
const RATE: &str = "a rate per second, such as 50e9";

const SETS: [&str; 3] = ["avx512", "avx2", "portable"];
const UNITS: [&str; 2] = ["amx_bf16", "avx512_bf16"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cpu: Option<Cpu>,
    gpu: Option<Spanned<GpuFacts>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cpu {
    cores: Spanned<u32>,
    memory_bytes: Spanned<f64>,
    /// Typical rates follow from it.
    instruction_set: Spanned<String>,
    bf16_unit: Option<Spanned<String>>,
    /// Bytes of one core's second-level cache.
    cache_bytes: Option<Spanned<f64>>,
    #[serde(default)]
    rates: Rates,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuFacts {
    model: String,
    count: Option<Spanned<u32>>,
    memory_bytes: Spanned<f64>,
    /// Such as `9.0`.
    compute_capability: Spanned<String>,
    multiprocessors: Spanned<u32>,
    clock_hz: Spanned<f64>,
    /// The most shared memory of a block.
    shared_bytes: Spanned<f64>,
    rates: Rates,
    link: Option<GpuLink>,
}

/// The link between two GPUs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuLink {
    latency_s: Spanned<f64>,
    bytes_per_s: Spanned<f64>,
}

/// Rates by name.
type Rates = BTreeMap<Spanned<String>, Spanned<f64>>;

/// The text of a file, to show where something is wrong.
struct Text<'a> {
    path: &'a Path,
    text: String,
}

impl Text<'_> {
    fn problem(&self, span: Range<usize>, message: impl Into<String>) -> Problem {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        let line = self.text.get(begin..).and_then(|rest| rest.lines().next());
        let place = Location::File {
            path: self.path.to_owned(),
            line: Some(1 + before.matches('\n').count() as u64),
            column: Some(1 + before[begin..].chars().count() as u64),
            text: line.map(str::to_owned),
        };
        Problem::new(place, message)
    }

    /// A number of things: whole, at least one, no absurd one.
    fn count(&self, given: &Spanned<u32>) -> Result<u32, Problem> {
        let count = *given.get_ref();
        let is_one = MOST.contains(&count);
        is_one.then_some(count).ok_or_else(|| {
            let most = MOST.end - 1;
            self.problem(given.span(), format!("expected a number from 1 to {most}, found {count}"))
        })
    }

    fn one_of(&self, given: &Spanned<String>, all: &[&str]) -> Result<(), Problem> {
        if all.contains(&given.get_ref().as_str()) {
            return Ok(());
        }
        let message = format!("expected one of {}, found `{}`", quoted(all), given.get_ref());
        Err(self.problem(given.span(), message))
    }

    fn within(&self, given: &Spanned<f64>, range: Range<f64>, what: &str) -> Result<f64, Problem> {
        let value = *given.get_ref();
        range
            .contains(&value)
            .then_some(value)
            .ok_or_else(|| self.problem(given.span(), format!("expected {what}, found {value}")))
    }

    fn bytes(&self, given: &Spanned<f64>) -> Result<u64, Problem> {
        self.within(given, 1024.0..1e18, "bytes, such as 24e9").map(|bytes| bytes as u64)
    }

    /// `typical` rates with those that are given in their place.
    fn rates<R: Serialize + DeserializeOwned>(&self, typical: &R, given: &Rates) -> Result<R, Problem> {
        let unusable = |why: &dyn ToString| Problem::new(Location::Nowhere, why.to_string());
        let mut all = serde_json::to_value(typical).map_err(|e| unusable(&e))?;
        let names: Vec<String> = all.as_object().map_or_else(Vec::new, |all| all.keys().cloned().collect());
        for (name, value) in given {
            let (known, key) = (names.iter().map(String::as_str), name.get_ref());
            if !names.contains(key) {
                let problem = self.problem(name.span(), format!("there is no rate `{key}`"));
                let hint = match nearest(key, known) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("expected one of {}", quoted(&names)),
                };
                return Err(problem.hint(hint));
            }
            match key.as_str() {
                "cache_bytes" => self.bytes(value).map(drop)?,
                key if key.starts_with("f32_flops") => {
                    self.within(value, 1e9..1e21, "FLOP/s, such as 46.8e12").map(drop)?;
                }
                "memory_bytes_per_s" | "cache_bytes_per_s" => {
                    self.within(value, 1e9..1e21, "bytes per second, such as 3e12").map(drop)?;
                }
                key if key.ends_with("_per_s") => self.within(value, PER_SECOND, RATE).map(drop)?,
                key if key.ends_with("_s") => self.within(value, SECONDS, COST).map(drop)?,
                _ => self.within(value, 0.0..2.0, "a share, such as 0.9").map(drop)?,
            }
            // Bytes of a cache are a whole number.
            let is_whole = all[key].is_u64();
            all[key] =
                if is_whole { Value::from(*value.get_ref() as u64) } else { Value::from(*value.get_ref()) };
        }
        serde_json::from_value(all).map_err(|e| unusable(&e))
    }
}

/// A message of the TOML reader, without names of Rust's types.
fn in_words(message: &str) -> String {
    let message = message.trim_end().replace("unknown field", "there is no key");
    message.replace("expected u32", "expected a whole number").replace("expected f64", "expected a number")
}

fn quoted(names: &[impl Display]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Reads the machine that a file describes. Without `[cpu]` its host is `here`.
pub fn read(path: &Path, here: Machine) -> Result<Machine, Failure> {
    machine_of(path, here).map_err(|problem| Failure::new(vec![problem]))
}

fn machine_of(path: &Path, mut machine: Machine) -> Result<Machine, Problem> {
    let nowhere = Location::File { path: path.to_owned(), line: None, column: None, text: None };
    let text = host::read_text(path).map_err(|e| {
        Problem::new(nowhere, format!("the description of the machine cannot be read: {}", host::reason(&e)))
            .hint(
                "`runner devices -o FILE` writes that of a machine; docs/forecasts.md says how to write one",
            )
    })?;
    let text = Text { path, text };
    let file: File = toml::from_str(&text.text)
        .map_err(|e| text.problem(e.span().unwrap_or_default(), in_words(e.message())))?;
    if file.cpu.is_none() && file.gpu.is_none() {
        return Err(text.problem(0..0, "it describes no machine").hint("give it a table `[gpu]` or `[cpu]`"));
    }
    if let Some(cpu) = &file.cpu {
        text.one_of(&cpu.instruction_set, &SETS)?;
        cpu.bf16_unit.as_ref().map_or(Ok(()), |unit| text.one_of(unit, &UNITS))?;
        // Not every processor has this rate.
        let of_bf16 = MachineRates::typical(cpu.instruction_set.get_ref());
        let of_bf16 = MachineRates { bf16_flops_per_s: Some(of_bf16.flops_per_s), ..of_bf16 };
        machine.rates = text.rates(&of_bf16, &cpu.rates)?;
        if cpu.rates.keys().all(|name| name.get_ref() != "bf16_flops_per_s") {
            machine.rates.bf16_flops_per_s = None;
        }
        machine.rates.origin = if cpu.rates.is_empty() { Origin::Typical } else { Origin::Given };
        machine.memory_available = text.bytes(&cpu.memory_bytes)?;
        machine.cache_bytes = cpu.cache_bytes.as_ref().map_or(Ok(1 << 20), |own| text.bytes(own))?;
        machine.instruction_set.clone_from(cpu.instruction_set.get_ref());
        machine.bf16_unit = cpu.bf16_unit.as_ref().map(|unit| unit.get_ref().clone());
        machine.cores = text.count(&cpu.cores)? as usize;
    }
    if let Some(gpu) = &file.gpu {
        (machine.gpus, machine.sum_rates) = gpus(&text, gpu.get_ref(), gpu.span())?;
    }
    machine.no_gpu = format!("`{}` describes none", path.display());
    machine.described = Some(Described { file: path.display().to_string(), has_cpu: file.cpu.is_some() });
    Ok(machine)
}

fn gpus(
    text: &Text<'_>,
    facts: &GpuFacts,
    table: Range<usize>,
) -> Result<(Vec<Gpu>, Vec<AllReduceRates>), Problem> {
    let capability = facts.compute_capability.get_ref().split_once('.');
    let capability = capability.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let capability = capability
        .filter(|(major, minor)| (5..20).contains(major) && (0..10).contains(minor))
        .ok_or_else(|| {
        text.problem(facts.compute_capability.span(), "expected a compute capability, such as \"9.0\"")
    })?;
    let clock_hz = text.within(&facts.clock_hz, 1e7..1e11, "a clock in Hz, such as 1.98e9")?;
    let count = facts.count.as_ref().map_or(Ok(1), |count| text.count(count))?;
    let multiprocessors = text.count(&facts.multiprocessors)?;
    if let Some(missing) = GIVEN.iter().find(|name| !facts.rates.keys().any(|own| own.get_ref() == *name)) {
        let problem = text.problem(table, format!("the rate `{missing}` of `[gpu.rates]` is missing"));
        return Err(problem.hint("a data sheet has it; `runner devices -o FILE` writes measured ones"));
    }
    let given =
        |name: &str| facts.rates.iter().find(|(own, _)| own.get_ref() == name).map(|own| *own.1.get_ref());
    let typical =
        GpuRates::typical(GIVEN.map(|name| given(name).unwrap_or(1.0)), (multiprocessors, clock_hz));
    let speed = GpuRates { origin: Origin::Given, ..text.rates(&typical, &facts.rates)? };
    let memory = text.bytes(&facts.memory_bytes)?;
    let limits = cuda::Gpu {
        ordinal: 0,
        name: facts.model.clone(),
        uuid: String::new(),
        capability,
        memory_bytes: memory,
        multiprocessors,
        shared_bytes: text.within(&facts.shared_bytes, 1024.0..1e7, "bytes of a block, such as 101376")?
            as u32,
        cooperative: true,
        clock_khz: (clock_hz / 1000.0) as u32,
        cache_bytes: 0,
    }
    .limits(true);
    let gpu = |place: u32| Gpu {
        is_virtual: false,
        model: host::escape_line(&facts.model).into_owned(),
        uuid: None,
        memory_free: memory,
        reaches: (0..count).filter(|other| *other != place).collect(),
        limits,
        speed: Some(speed),
    };
    let sums = match &facts.link {
        None if count > 1 => {
            let message = "`[gpu.link]` is missing: what sums over several GPUs take";
            return Err(text
                .problem(facts.count.as_ref().map_or(0..0, Spanned::span), message)
                .hint("give its `latency_s` and `bytes_per_s`"));
        }
        None => Vec::new(),
        Some(link) => {
            let [latency_s, bytes_per_s] = [
                text.within(&link.latency_s, SECONDS, COST)?,
                text.within(&link.bytes_per_s, PER_SECOND, RATE)?,
            ];
            (2..=count).map(|gpus| AllReduceRates::of_ring(gpus, Link { latency_s, bytes_per_s })).collect()
        }
    };
    Ok(((0..count).map(gpu).collect(), sums))
}
