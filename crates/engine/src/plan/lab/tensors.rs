//! Lowers the steps of a tensor experiment: determines every tensor's device and shape, every op, and every
//! error that a step declares. Steps that cannot work are reported at their location in the spec; a run
//! repeats none of these checks.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    DeviceId, Machine, PlanError, ResolvedDevices, gpus_in_words,
    step::{Action, Outlook, StepPlan, TensorsPlan, Value, expression},
};
use crate::{
    program::{Add, BufferId, Linear, Norm, NormKind, Op, Slice},
    spec::{
        DeviceName, OnMissing, Problem,
        lab::{DType, FileName, LabDevices, Saved, Scalar, Step, StepOp, Tensors},
    },
};

/// Finds the format and the shape of a tensor in a safetensors file.
pub type FindShape<'a> = &'a dyn Fn(&Path, &str) -> Result<(DType, Vec<usize>), String>;

pub(super) struct Planned {
    pub plan: TensorsPlan,
    pub requested: String,
    pub used: Vec<DeviceId>,
    pub memory: Vec<(DeviceId, u64)>,
    /// The key of the step that makes the largest tensor.
    pub largest: String,
    pub note: Option<String>,
}

/// What a tensor's name refers to.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub value: usize,
    /// The device as the spec names it.
    pub asked: DeviceName,
}

pub(super) struct Tour<'a> {
    machine: &'a Machine,
    find_shape: FindShape<'a>,
    all_on_cpu: bool,
    first: (DeviceName, DeviceId),
    pub made: BTreeMap<String, Made>,
    pub values: Vec<Value>,
    /// Files saved by earlier steps, with their tensors.
    saved: BTreeMap<String, Vec<(String, usize)>>,
    memory: BTreeMap<DeviceId, u64>,
    /// Bytes of the largest tensor, and the key of the step that makes it.
    largest: (u64, String),
    asked: Vec<DeviceName>,
    used: Vec<DeviceId>,
    pub problems: Vec<Problem>,
}

/// Lowers all steps.
pub(super) fn steps(
    tensors: &Tensors,
    devices: &LabDevices,
    choice: &ResolvedDevices,
    machine: &Machine,
    find_shape: FindShape<'_>,
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
        DeviceId::Rank(_) | DeviceId::RankGpu { .. } => DeviceName::Cpu,
    };
    let mut tour = Tour {
        machine,
        find_shape,
        all_on_cpu: devices.on_missing == OnMissing::Cpu && !missing.is_empty(),
        first: (name, place),
        made: BTreeMap::new(),
        values: Vec::new(),
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
    let plan = TensorsPlan { steps, values: tour.values };
    Ok(Planned { plan, requested, used: tour.used, memory, largest, note })
}

impl Tour<'_> {
    fn step(&mut self, index: usize, step: &Step) -> StepPlan {
        let outlook = self.outlook(index, step);
        let before = self.values.len();
        let lowered = match outlook {
            Outlook::Done => self.lower(index, step),
            _ => None,
        };
        let (action, made) = lowered.unwrap_or((Action::Nothing, None));
        if let (Some(made), Some(name)) = (made, &step.name) {
            self.made.insert(name.clone(), made);
        }
        let result = made.map(|made| made.value);
        let device = result.map(|value| self.values[value].device);
        StepPlan {
            expression: expression(step, device),
            makes: before..self.values.len(),
            result,
            action,
            outlook,
        }
    }

    /// What a step does and creates; `None` if it cannot work, which has then been reported.
    #[allow(clippy::too_many_lines, reason = "an arm for each kind of step")]
    fn lower(&mut self, index: usize, step: &Step) -> Option<(Action, Option<Made>)> {
        let key = format!("tensors.step.{index}.{}", step.op.name());
        let (asked, device) = step.device.map_or(self.first, |name| (name, self.find(name)));
        let dtype = step.dtype.unwrap_or(DType::F32);
        self.refuse_whole_numbers(&step.op, &key)?;
        let (action, made) = match &step.op {
            StepOp::Ones(shape) => {
                let made = self.put((asked, device), dtype, shape.clone(), &key)?;
                let one = dtype.encode(Scalar::Integer(1)).unwrap_or_default();
                match one[..] {
                    [word] => (Action::Fill(word), made),
                    _ => (Action::Numbers(one.repeat(self.values[made.value].len / one.len())), made),
                }
            }
            StepOp::Zeros(shape) => {
                (Action::Fill(0.0), self.put((asked, device), dtype, shape.clone(), &key)?)
            }
            StepOp::Rand(shape) => {
                let range = step.range.unwrap_or([0.0, 1.0]);
                (Action::Random(range), self.put((asked, device), dtype, shape.clone(), &key)?)
            }
            StepOp::From(numbers) => {
                let made = self.put((asked, device), dtype, numbers.shape.clone(), &key)?;
                // The spec's reader has checked that the numbers fit their type.
                (Action::Numbers(numbers.words(dtype).unwrap_or_default()), made)
            }
            StepOp::Load(load) => {
                let name = load.tensor.as_ref().or(step.name.as_ref())?;
                let key_of_file = format!("tensors.step.{index}.load.file");
                let (dtype, shape) = self.stored(&load.file, name, &key_of_file)?;
                let made = self.put((asked, device), dtype, shape, &key)?;
                (Action::Load(load.file.clone(), name.clone()), made)
            }
            StepOp::Copy(name) => {
                let source = *self.made.get(name)?;
                let Value { device: own, dtype, shape, .. } = self.values[source.value].clone();
                if own == device && !step.force {
                    (Action::Same, Made { asked, ..source })
                } else {
                    (Action::Copy(source.value), self.put((asked, device), dtype, shape, &key)?)
                }
            }
            StepOp::Norm(name) => {
                let source = *self.made.get(name)?;
                let made = self.put_beside(source, Vec::new(), &key)?;
                let (of, cell) = (self.slice(source.value), self.slice(made.value));
                (Action::Compute(vec![Norm { of, cell, how: NormKind::Exact }.into()]), made)
            }
            StepOp::Add(names) | StepOp::Matmul(names) => self.pair(&step.op, names, &key)?,
            StepOp::Net(net) => self.net(index, step, net)?,
            StepOp::Save(save) => {
                let tensors = self.named(&save.what);
                self.saved.insert(save.file.clone(), tensors.clone());
                return Some((Action::Save(save.file.clone(), tensors), None));
            }
        };
        Some((action, Some(made)))
    }

    /// Lowers the sum or the product of two values.
    fn pair(&mut self, op: &StepOp, names: &[String; 2], key: &str) -> Option<(Action, Made)> {
        let (a, b) = (*self.made.get(&names[0])?, *self.made.get(&names[1])?);
        let shapes = [a, b].map(|made| self.values[made.value].shape.clone());
        let (made, lowered) = match (op, &shapes[0][..], &shapes[1][..]) {
            (StepOp::Matmul(_), &[rows, inputs], &[height, outputs]) if inputs == height => {
                let made = self.put_beside(a, vec![rows, outputs], key)?;
                let [x, weight, y] = [a, b, made].map(|made| self.slice(made.value));
                (made, product([x, weight, y], [rows, inputs, outputs]))
            }
            (StepOp::Matmul(_), ..) => {
                return self.misfit(names, [a, b], key, "multiplied", "they must be [m, k] and [k, n]");
            }
            (_, x, y) if x == y => {
                let made = self.put_beside(a, x.to_vec(), key)?;
                let [a, b, y] = [a, b, made].map(|made| self.slice(made.value));
                (made, Add { a, b, y }.into())
            }
            _ => return self.misfit(names, [a, b], key, "added", "the shapes must be equal"),
        };
        Some((Action::Compute(vec![lowered]), made))
    }

    /// The values to be saved, each with its name.
    fn named(&self, what: &Saved) -> Vec<(String, usize)> {
        match what {
            Saved::Tensors(names) => {
                let value = |name: &String| Some((name.clone(), self.made.get(name)?.value));
                names.iter().filter_map(value).collect()
            }
            Saved::Net(name) => {
                let prefix = format!("{name}.");
                let own =
                    |(key, made): (&String, &Made)| Some((key.strip_prefix(&prefix)?.to_owned(), made.value));
                self.made.iter().filter_map(own).collect()
            }
        }
    }

    /// The device of this machine that a name of the spec stands for.
    pub(super) fn find(&self, name: DeviceName) -> DeviceId {
        if self.all_on_cpu {
            DeviceId::Cpu
        } else {
            DeviceId::from_name(name, self.machine).unwrap_or(DeviceId::Cpu)
        }
    }

    /// The slice that covers the whole value.
    pub(super) fn slice(&self, value: usize) -> Slice {
        Slice { buffer: BufferId(value), offset: 0, len: self.values[value].len }
    }

    /// Creates a value on the same device as another one.
    fn put_beside(&mut self, other: Made, shape: Vec<usize>, key: &str) -> Option<Made> {
        self.put((other.asked, self.values[other.value].device), DType::F32, shape, key)
    }

    /// Creates a value.
    pub(super) fn put(
        &mut self,
        (asked, device): (DeviceName, DeviceId),
        dtype: DType,
        shape: Vec<usize>,
        key: &str,
    ) -> Option<Made> {
        let elements = shape.iter().try_fold(dtype.words(), |n, axis| n.checked_mul(*axis));
        let Some(len) = elements.filter(|n| n.checked_mul(8).is_some()) else {
            let message = format!("a tensor of shape {shape:?} has more numbers than any memory");
            self.problems.push(Problem::at_key(key, message).hint("make it smaller"));
            return None;
        };
        let bytes = 4 * len as u64;
        let held = self.memory.entry(device).or_insert(0);
        *held = held.saturating_add(bytes);
        if bytes > self.largest.0 {
            self.largest = (bytes, key.to_owned());
        }
        if !self.asked.contains(&asked) {
            self.asked.push(asked);
        }
        if !self.used.contains(&device) {
            self.used.push(device);
        }
        self.values.push(Value { device, shape, dtype, len });
        Some(Made { value: self.values.len() - 1, asked })
    }

    /// Reports integer operands of an op that computes.
    fn refuse_whole_numbers(&mut self, op: &StepOp, key: &str) -> Option<()> {
        if matches!(op, StepOp::Copy(_) | StepOp::Save(_)) {
            return Some(());
        }
        let dtype = |name: &str| Some(self.values[self.made.get(name)?.value].dtype);
        let operands = op.operands().into_iter().filter_map(|(_, name)| Some((name, dtype(name)?)));
        let Some((name, dtype)) = operands.into_iter().find(|(_, dtype)| *dtype != DType::F32) else {
            return Some(());
        };
        let message = format!("`{name}` holds {}: devices compute with f32 alone", dtype.name());
        let hint =
            "whole numbers are made, copied, saved and loaded; leave its `dtype` out to compute with it";
        self.problems.push(Problem::at_key(key, message).hint(hint));
        None
    }

    /// Type and shape of a tensor in a file: one that an earlier step saved, or one that exists already.
    pub(super) fn stored(&mut self, file: &FileName, name: &str, key: &str) -> Option<(DType, Vec<usize>)> {
        let problem = if let Some(saved) = self.saved.get(&file.text).filter(|_| file.is_saved) {
            if let Some((_, value)) = saved.iter().find(|(own, _)| own == name) {
                return Some((self.values[*value].dtype, self.values[*value].shape.clone()));
            }
            let there: Vec<_> = saved.iter().map(|(own, _)| format!("`{own}`")).collect();
            let message = format!("`{}` will hold no tensor `{name}`", file.text);
            Problem::at_key(key, message).hint(format!("it will hold {}", there.join(", ")))
        } else {
            match (self.find_shape)(&file.path, name) {
                Ok(found) => return Some(found),
                Err(message) => Problem::at_key(key, message),
            }
        };
        self.problems.push(problem);
        None
    }

    /// Reports operands whose shapes do not fit.
    fn misfit<T>(
        &mut self,
        names: &[String; 2],
        operands: [Made; 2],
        key: &str,
        verb: &str,
        rule: &str,
    ) -> Option<T> {
        let [x, y] = operands.map(|made| &self.values[made.value].shape);
        let [a, b] = names;
        let message = format!("`{a}` of shape {x:?} and `{b}` of shape {y:?} cannot be {verb}: {rule}");
        self.problems.push(Problem::at_key(key, message));
        None
    }
}

/// y[m, n] = x[m, k] w[k, n].
pub fn product([x, weight, y]: [Slice; 3], [rows, inputs, outputs]: [usize; 3]) -> Op {
    Linear { x, weight, bias: None, activation: None, pre: None, y, rows, inputs, outputs }.into()
}
