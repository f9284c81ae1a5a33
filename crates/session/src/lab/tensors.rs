//! The tour: runs steps one after the other and shows each with its result.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    Bench, LabError,
    device::{Device, two},
    show::show,
    tensor_file::{self, Tensor, TensorFile},
};
use crate::{
    device::Purpose,
    event::{Event, StepRow, StepStatus},
    op::{BufferId, Op},
    plan::lab::{Action, NetParameter, Outlook, StepPlan, TensorsPlan, Value},
    program::{exported, initial_parameter},
    random::{self, Rng},
    spec::lab::{DType, FileName, Scalar, Start, Step, Tensors},
};

impl Bench<'_> {
    pub(super) fn tour(
        &mut self,
        tensors: &Tensors,
        plan: &TensorsPlan,
        folder: &Path,
    ) -> Result<(), LabError> {
        for (index, (step, planned)) in tensors.step.iter().zip(&plan.steps).enumerate() {
            self.go_on()?;
            let begun = Instant::now();
            let mut tour = Tour { plan, devices: &mut *self.devices, folder, seed: self.trial.spec.seed };
            let row = tour.step(index, step, planned);
            self.work += begun.elapsed();
            self.done += 1;
            let failed = row.message.clone().filter(|_| row.status == StepStatus::Failed);
            (self.emit)(Event::Step(Box::new(row)))?;
            if let Some(message) = failed {
                return Err(LabError::Step(format!("step {}: {message}", index + 1)));
            }
        }
        Ok(())
    }
}

/// The devices, with the values that the steps so far have made.
struct Tour<'a> {
    plan: &'a TensorsPlan,
    devices: &'a mut [Device],
    folder: &'a Path,
    seed: u64,
}

impl Tour<'_> {
    #[allow(clippy::too_many_lines, reason = "an arm for each kind of step")]
    fn step(&mut self, index: usize, step: &Step, plan: &StepPlan) -> StepRow {
        let before = self.copied_bytes();
        let done = match &plan.outlook {
            Outlook::Done => self.act(index, plan),
            _ => Ok(None),
        };
        let copied_bytes = self.copied_bytes() - before;
        let (status, message, shown) = match (done, &plan.outlook) {
            (Err(e), _) => (StepStatus::Failed, Some(e.to_string()), None),
            (Ok(_), Outlook::Raises(message)) => (StepStatus::Raised, Some(message.clone()), None),
            (Ok(_), Outlook::Skipped(reason)) => (StepStatus::Skipped, Some(reason.clone()), None),
            (Ok(shown), Outlook::Done) if plan.action == Action::Same => (StepStatus::Same, None, shown),
            (Ok(shown), Outlook::Done) => (StepStatus::Done, None, shown),
        };
        let result = plan.result.filter(|_| shown.is_some()).map(|value| &self.plan.values[value]);
        let parameters = match &plan.action {
            Action::Net { parameters, .. } if shown.is_some() => parameters.as_slice(),
            _ => &[],
        };
        let parameters = parameters.iter().map(|NetParameter { value, parameter, .. }| {
            let value = &self.plan.values[*value];
            (parameter.name.clone(), value.shape.clone(), value.device.to_string())
        });
        StepRow {
            step: index + 1,
            op: step.op.name(),
            expression: plan.expression.clone(),
            name: step.name.clone(),
            device: result.map(|value| value.device.to_string()),
            shape: result.map(|value| value.shape.clone()),
            dtype: result.map(|value| value.dtype.name()),
            bytes: result.map(|value| 4 * value.len as u64),
            copied_bytes,
            status,
            message,
            parameters: parameters.collect(),
            shown,
        }
    }

    /// Runs a step; returns its result as text.
    fn act(&mut self, index: usize, plan: &StepPlan) -> Result<Option<String>, LabError> {
        let fill = if let Action::Fill(value) = plan.action { value } else { f32::NAN };
        for value in plan.makes.clone() {
            let len = self.plan.values[value].len;
            self.on(value)?.alloc(BufferId(value), len, fill)?;
        }
        if let Some(result) = plan.result {
            match &plan.action {
                Action::Random(range) => {
                    let words = random(self.seed, index as u64, *range, &self.plan.values[result]);
                    self.write(Purpose::Tensor, result, &words)?;
                }
                Action::Numbers(values) => self.write(Purpose::Tensor, result, values)?,
                Action::Copy(from) => self.copy(*from, result)?,
                Action::Same => self.on(result)?.count_nothing(),
                Action::Compute(ops) => self.compute(result, ops)?,
                Action::Net { parameters, start, ops } => {
                    self.start(parameters, start)?;
                    self.compute(result, ops)?;
                }
                Action::Load(file, name) => {
                    let file = TensorFile::open(&self.path(file)).map_err(LabError::File)?;
                    self.load(&file, name, result)?;
                }
                Action::Nothing | Action::Fill(_) | Action::Save(..) => {}
            }
        }
        if let Action::Save(file, tensors) = &plan.action {
            let mut named = Vec::with_capacity(tensors.len());
            for (name, value) in tensors {
                let Value { shape, dtype, len, .. } = &self.plan.values[*value];
                let words = self.on(*value)?.values(Purpose::Checkpoint, BufferId(*value), *len)?;
                named.push((name.clone(), Tensor { dtype: *dtype, shape: shape.clone(), words }));
            }
            tensor_file::save(&self.folder.join(file), &named).map_err(LabError::File)?;
        }
        let Some(result) = plan.result else { return Ok(None) };
        let value = &self.plan.values[result];
        let values = self.on(result)?.values(Purpose::Log, BufferId(result), value.len)?;
        Ok(Some(show(&values, value)))
    }

    fn copied_bytes(&self) -> u64 {
        self.devices.iter().map(Device::copied_bytes).sum()
    }

    /// The index of a value's device.
    fn device_of(&self, value: usize) -> Result<usize, LabError> {
        let id = self.plan.values[value].device;
        let found = self.devices.iter().position(|device| device.id() == id);
        found.ok_or(LabError::NoDevice(id))
    }

    /// The device that holds a value.
    fn on(&mut self, value: usize) -> Result<&mut Device, LabError> {
        let device = self.device_of(value)?;
        Ok(&mut self.devices[device])
    }

    fn write(&mut self, purpose: Purpose, value: usize, numbers: &[f32]) -> Result<(), LabError> {
        Ok(self.on(value)?.write(purpose, BufferId(value), numbers)?)
    }

    fn copy(&mut self, from: usize, to: usize) -> Result<(), LabError> {
        let places = [self.device_of(to)?, self.device_of(from)?];
        if places[0] == places[1] {
            return Ok(self.on(to)?.copy(BufferId(to), BufferId(from))?);
        }
        let [device, other] = two(self.devices, places)?;
        Ok(device.copy_from(BufferId(to), other, BufferId(from), self.plan.values[to].len)?)
    }

    fn compute(&mut self, result: usize, ops: &[Op]) -> Result<(), LabError> {
        let device = self.on(result)?;
        Ok(ops.iter().try_for_each(|op| device.run(op))?)
    }

    /// Initializes a net's parameters: as training does, or from a file.
    fn start(&mut self, parameters: &[NetParameter], start: &Start) -> Result<(), LabError> {
        let init = match start {
            Start::Init(init) => init,
            Start::Parameters(file) => {
                let file = TensorFile::open(&self.path(file)).map_err(LabError::File)?;
                let mut all = parameters.iter();
                return all.try_for_each(|own| self.load(&file, &own.parameter.name, own.value));
            }
        };
        for (index, NetParameter { value, parameter, inputs }) in parameters.iter().enumerate() {
            let mut values = vec![0.0; parameter.elements()];
            initial_parameter(init, parameter, index, *inputs, self.seed, &mut values);
            let values: Vec<_> = exported(parameter, &values).collect();
            self.write(Purpose::Parameters, *value, &values)?;
        }
        Ok(())
    }

    fn load(&mut self, file: &TensorFile, name: &str, to: usize) -> Result<(), LabError> {
        let Tensor { dtype, shape, words } = file.get(name).map_err(LabError::File)?;
        let wanted = &self.plan.values[to];
        if (dtype, &shape) != (wanted.dtype, &wanted.shape) {
            let ([dtype, planned], wanted) = ([dtype, wanted.dtype].map(DType::name), &wanted.shape);
            let message = format!(
                "`{name}` has the shape {shape:?} in {dtype}, and had {wanted:?} in {planned} when this was planned"
            );
            return Err(LabError::File(message));
        }
        self.write(Purpose::Checkpoint, to, &words)
    }

    /// The path of a file; one saved by an earlier step is in the run's folder.
    fn path(&self, file: &FileName) -> PathBuf {
        if file.is_saved { self.folder.join(&file.text) } else { file.path.clone() }
    }
}

/// Random elements, as words, uniform in `low..high`.
fn random(seed: u64, index: u64, [low, high]: [f64; 2], value: &Value) -> Vec<f32> {
    if value.dtype == DType::F32 {
        let below = (high as f32).next_down();
        let spread = |u: f32| ((low + (high - low) * f64::from(u)) as f32).min(below);
        return uniform(seed, index, value.len).into_iter().map(spread).collect();
    }
    let mut stream = random::stream(seed, random::Purpose::Tensor, index);
    let count = (high - low) as u128;
    let number = |_| {
        // The upper half of the product of 64 random bits and the count. The bias is below 2^-64 of the
        // count.
        let above = (u128::from(stream.next_u64()) * count) >> 64;
        value.dtype.encode(Scalar::Integer((low as i64).wrapping_add(above as i64))).unwrap_or_default()
    };
    (0..value.len / value.dtype.words()).flat_map(number).collect()
}

/// Uniform in [0, 1); depends only on seed and index. Each value has 24 bits, so that it is exact in f32 and
/// below 1.
pub(super) fn uniform(seed: u64, index: u64, len: usize) -> Vec<f32> {
    let mut stream = random::stream(seed, random::Purpose::Tensor, index);
    (0..len).map(|_| (stream.next_u32() >> 8) as f32 * (1.0 / 16_777_216.0)).collect()
}
