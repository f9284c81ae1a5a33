//! Plans a tensor experiment without memory: each tensor's device and shape, and each expected error. Steps that cannot work
//! are reported at their location in the spec.

use std::collections::{BTreeMap, BTreeSet};

use super::{DeviceId, Machine, PlanError, ResolvedDevices, gpus_in_words};
use crate::spec::{
    DeviceName, Layer, OnMissing, Problem,
    lab::{Expect, LabDevices, Net, Saved, Step, StepOp, Tensors},
};

/// What a step will come to.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPlan {
    /// Where its result will live; `None` where it has none.
    pub place: Option<DeviceId>,
    /// The shape, where it is known before a file is read.
    pub shape: Option<Vec<usize>>,
    /// How it will end.
    pub outlook: Outlook,
}

/// How a step will end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It is done.
    Done,
    /// It raises the error that it declares.
    Raises,
    /// It declares an error that it does not raise.
    DoesNotRaise,
    /// It declares an error that this machine cannot raise, and why.
    Skipped(String),
}

pub(super) struct Planned {
    pub steps: Vec<StepPlan>,
    pub requested: String,
    pub used: Vec<DeviceId>,
    pub memory: Vec<(DeviceId, u64)>,
    /// The key of the step that makes the largest tensor.
    pub largest: String,
    pub note: Option<String>,
}

/// A tensor that a step will have made.
#[derive(Clone)]
struct Made {
    place: DeviceId,
    /// What the spec asked for.
    asked: DeviceName,
    shape: Option<Vec<usize>>,
}

struct Tour<'a> {
    machine: &'a Machine,
    all_on_cpu: bool,
    first: (DeviceName, DeviceId),
    made: BTreeMap<String, Made>,
    /// Files that were saved, with their tensors.
    saved: BTreeMap<String, BTreeMap<String, Option<Vec<usize>>>>,
    memory: BTreeMap<DeviceId, u64>,
    /// Bytes of the largest tensor, and the key of the step that makes it.
    largest: (u64, String),
    asked: Vec<DeviceName>,
    used: Vec<DeviceId>,
    problems: Vec<Problem>,
}

/// Plays all steps through.
pub(super) fn steps(
    tensors: &Tensors,
    devices: &LabDevices,
    choice: &ResolvedDevices,
    machine: &Machine,
) -> Result<Planned, PlanError> {
    let missing: BTreeSet<DeviceName> = tensors
        .step
        .iter()
        .filter_map(|step| step.device)
        .filter(|name| DeviceId::from_name(*name, machine).is_none())
        .collect();
    let why = gpus_in_words(machine);
    if devices.on_missing == OnMissing::Error
        && let Some(first) = tensors.step.iter().position(|s| s.device.is_some_and(|d| missing.contains(&d)))
    {
        let names: Vec<_> = missing.iter().map(|name| format!("`{name}`")).collect();
        let verb = if names.len() == 1 { "is" } else { "are" };
        let message = format!("{} {verb} not there", names.join(", "));
        let hint = "`devices.on_missing = \"clamp\"` puts their tensors on the CPU";
        let key = format!("tensors.step.{first}.device");
        return Err(PlanError::Missing(Problem::at_key(key, message).label(why).hint(hint)));
    }
    let place = choice.used.first().copied().unwrap_or(DeviceId::Cpu);
    let name = match place {
        DeviceId::Cpu => DeviceName::Cpu,
        DeviceId::Gpu(i) | DeviceId::Virtual(i) => DeviceName::Gpu(i),
    };
    let mut tour = Tour {
        machine,
        all_on_cpu: devices.on_missing == OnMissing::Cpu && !missing.is_empty(),
        first: (name, place),
        made: BTreeMap::new(),
        saved: BTreeMap::new(),
        memory: BTreeMap::new(),
        largest: (0, "tensors.step".to_owned()),
        asked: Vec::new(),
        used: Vec::new(),
        problems: Vec::new(),
    };
    let steps = tensors.step.iter().enumerate().map(|(i, step)| tour.step(i, step)).collect();
    if !tour.problems.is_empty() {
        return Err(PlanError::Problems(tour.problems));
    }
    let names: Vec<_> = missing.iter().map(|name| format!("`{name}`")).collect();
    let note = match (names.len(), tour.all_on_cpu) {
        (0, _) => None,
        (_, true) => Some(format!("{why}, without {}: all tensors live on the CPU", names.join(", "))),
        (_, false) => Some(format!("{why}, without {}: their tensors live on the CPU", names.join(", "))),
    };
    let requested: Vec<String> = tour.asked.iter().map(DeviceName::to_string).collect();
    let requested = if requested.is_empty() { choice.requested.clone() } else { requested.join(";") };
    if tour.used.is_empty() {
        tour.used.push(place);
    }
    let (memory, (_, largest)) = (tour.memory.into_iter().collect(), tour.largest);
    Ok(Planned { steps, requested, used: tour.used, memory, largest, note })
}

impl Tour<'_> {
    fn step(&mut self, index: usize, step: &Step) -> StepPlan {
        let at = |key: &str| format!("tensors.step.{index}.{key}");
        let op = step.op.name();
        let (made, outlook) = match &step.op {
            StepOp::Ones(shape) | StepOp::Zeros(shape) | StepOp::Rand(shape) => {
                (Some(self.make(step.device, Some(shape.clone()), &at(op))), Outlook::Done)
            }
            StepOp::From(numbers) => {
                (Some(self.make(step.device, Some(numbers.shape.clone()), &at(op))), Outlook::Done)
            }
            StepOp::Load(load) => {
                let name = load.tensor.as_ref().or(step.name.as_ref());
                let mut shape = None;
                if load.file.is_saved
                    && let (Some(file), Some(name)) = (self.saved.get(&load.file.text), name)
                {
                    match file.get(name) {
                        Some(there) => shape = there.clone(),
                        None => {
                            let there: Vec<_> = file.keys().map(|n| format!("`{n}`")).collect();
                            let message = format!("`{}` will hold no tensor `{name}`", load.file.text);
                            let hint = format!("it will hold {}", there.join(", "));
                            self.problems.push(Problem::at_key(at("load.file"), message).hint(hint));
                        }
                    }
                }
                (Some(self.make(step.device, shape, &at(op))), Outlook::Done)
            }
            StepOp::Copy(name) => {
                let shape = self.made.get(name).and_then(|made| made.shape.clone());
                (Some(self.make(step.device, shape, &at(op))), Outlook::Done)
            }
            StepOp::Norm(name) => {
                let source = self.made.get(name).cloned();
                let made =
                    source.map(|source| self.put(source.asked, source.place, Some(Vec::new()), &at(op)));
                (made, Outlook::Done)
            }
            StepOp::Add(names) => self.meet(step, names, &at(op), |a, b| (a == b).then(|| a.to_vec())),
            StepOp::Matmul(names) => self.meet(step, names, &at(op), |a, b| match (a, b) {
                ([m, k], [l, n]) if k == l => Some(vec![*m, *n]),
                _ => None,
            }),
            StepOp::Net(net) => self.net(step, net, index),
            StepOp::Save(save) => {
                let tensors = match &save.what {
                    Saved::Tensors(names) => names
                        .iter()
                        .filter_map(|name| Some((name.clone(), self.made.get(name)?.shape.clone())))
                        .collect(),
                    Saved::Net(name) => {
                        let prefix = format!("{name}.");
                        let own = |(key, made): (&String, &Made)| {
                            Some((key.strip_prefix(&prefix)?.to_owned(), made.shape.clone()))
                        };
                        self.made.iter().filter_map(own).collect()
                    }
                };
                self.saved.insert(save.file.clone(), tensors);
                (None, Outlook::Done)
            }
        };
        let plan = StepPlan {
            place: made.as_ref().map(|made| made.place),
            shape: made.as_ref().and_then(|made| made.shape.clone()),
            outlook,
        };
        // A declared error leaves nothing behind.
        if let (Some(made), Some(name), None) = (made, &step.name, step.expect) {
            self.made.insert(name.clone(), made);
        }
        plan
    }

    /// Where a name of the spec is on this machine.
    fn find(&self, name: DeviceName) -> DeviceId {
        if self.all_on_cpu {
            DeviceId::Cpu
        } else {
            DeviceId::from_name(name, self.machine).unwrap_or(DeviceId::Cpu)
        }
    }

    fn make(&mut self, device: Option<DeviceName>, shape: Option<Vec<usize>>, key: &str) -> Made {
        let (asked, place) = device.map_or(self.first, |name| (name, self.find(name)));
        self.put(asked, place, shape, key)
    }

    fn put(&mut self, asked: DeviceName, place: DeviceId, shape: Option<Vec<usize>>, key: &str) -> Made {
        let elements = shape.iter().flatten().try_fold(1u64, |n, axis| n.checked_mul(*axis as u64));
        match elements.and_then(|n| n.checked_mul(4)) {
            Some(bytes) => {
                let held = self.memory.entry(place).or_insert(0);
                *held = held.saturating_add(bytes);
                if bytes > self.largest.0 {
                    self.largest = (bytes, key.to_owned());
                }
            }
            None => {
                let shape = shape.as_deref().unwrap_or_default();
                let message = format!("a tensor of shape {shape:?} has more numbers than any memory");
                self.problems.push(Problem::at_key(key, message).hint("make it smaller"));
            }
        }
        if !self.asked.contains(&asked) {
            self.asked.push(asked);
        }
        if !self.used.contains(&place) {
            self.used.push(place);
        }
        Made { place, asked, shape }
    }

    /// Two operands that must be on one device, of shapes that `result` accepts.
    fn meet(
        &mut self,
        step: &Step,
        names: &[String; 2],
        key: &str,
        result: impl FnOnce(&[usize], &[usize]) -> Option<Vec<usize>>,
    ) -> (Option<Made>, Outlook) {
        let (Some(a), Some(b)) = (self.made.get(&names[0]).cloned(), self.made.get(&names[1]).cloned())
        else {
            return (None, Outlook::Done);
        };
        let outlook = self.outlook(step, [&names[0], &names[1]], [&a, &b], key);
        if outlook == Outlook::Raises {
            return (None, outlook);
        }
        let shape = match (&a.shape, &b.shape) {
            (Some(x), Some(y)) => {
                let shape = result(x, y);
                if shape.is_none() {
                    let (verb, rule) = match step.op {
                        StepOp::Matmul(_) => ("multiplied", "they must be [m, k] and [k, n]"),
                        _ => ("added", "the shapes must be equal"),
                    };
                    let message = format!(
                        "`{}` of shape {x:?} and `{}` of shape {y:?} cannot be {verb}: {rule}",
                        names[0], names[1]
                    );
                    self.problems.push(Problem::at_key(key, message));
                }
                shape
            }
            _ => None,
        };
        (Some(self.put(a.asked, a.place, shape, key)), outlook)
    }

    fn net(&mut self, step: &Step, net: &Net, index: usize) -> (Option<Made>, Outlook) {
        let key = format!("tensors.step.{index}.net");
        let Some(input) = self.made.get(&net.input).cloned() else { return (None, Outlook::Done) };
        let (asked, place) = step.device.map_or((input.asked, input.place), |name| (name, self.find(name)));
        let own = Made { place, asked, shape: None };
        let first = net.parameter_names().next();
        let outlook = match &first {
            Some(first) => self.outlook(step, [&net.input, first], [&input, &own], &key),
            None => Outlook::Done,
        };
        let (rows, mut width) = match input.shape.as_deref() {
            Some([rows, width]) => (Some(*rows), Some(*width)),
            None => (None, None),
            Some(shape) => {
                let message = format!("`{}` has the shape {shape:?}: a net takes [rows, in]", net.input);
                self.problems.push(Problem::at_key(format!("{key}.input"), message));
                (None, None)
            }
        };
        for (i, layer) in net.layers.iter().enumerate() {
            let Layer::Linear(linear) = layer else { continue };
            if let (Some(given), Some(width)) = (linear.in_features, width)
                && given != width
            {
                let message =
                    format!("`in_features = {given}` does not fit layer {i}: its input has {width}");
                let problem = Problem::at_key(format!("{key}.layers.{i}.linear.in_features"), message);
                self.problems.push(problem.hint("leave `in_features` out: it is inferred"));
            }
            let name = step.name.clone().unwrap_or_default();
            let outputs = linear.out_features;
            let weight = width.map(|width| vec![outputs, width]);
            let parameters = [("weight", weight), ("bias", Some(vec![outputs]))];
            for (what, shape) in parameters.into_iter().take(if linear.bias { 2 } else { 1 }) {
                let made = self.put(asked, place, shape, &key);
                if step.expect.is_none() {
                    self.made.insert(format!("{name}.{i}.{what}"), made);
                }
            }
            width = Some(outputs);
        }
        if outlook == Outlook::Raises {
            return (Some(own), outlook);
        }
        let shape = rows.zip(width).map(|(rows, width)| vec![rows, width]);
        (Some(self.put(asked, place, shape, &key)), outlook)
    }

    /// Whether operands meet; where they do not and the step does not declare it, that is a problem of the spec.
    fn outlook(&mut self, step: &Step, names: [&str; 2], [a, b]: [&Made; 2], key: &str) -> Outlook {
        let expected = step.expect == Some(Expect::DeviceMismatch);
        match (a.place == b.place, expected) {
            (true, false) => Outlook::Done,
            (false, true) => Outlook::Raises,
            (true, true) if a.asked != b.asked => Outlook::Skipped(format!(
                "it takes two devices: {} and {} are both {} here",
                a.asked, b.asked, a.place
            )),
            (true, true) => Outlook::DoesNotRaise,
            (false, false) => {
                let [left, right] = names;
                let message = format!("`{left}` is on {} and `{right}` on {}", a.place, b.place);
                let free = ["Z", "Y", "X"].into_iter().find(|name| !self.made.contains_key(*name));
                let free = free.unwrap_or("copied");
                let hint = format!(
                    "copy one: `name = \"{free}\"`, `copy = \"{left}\"`, `device = \"{}\"`; or declare it: `expect = \
                     \"device_mismatch\"`",
                    b.asked
                );
                self.problems.push(Problem::at_key(key, message).hint(hint));
                Outlook::Raises
            }
        }
    }
}
