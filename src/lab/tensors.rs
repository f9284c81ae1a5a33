//! The tour: steps done one after the other, each told with its result.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Instant,
};

use super::{Emit, LabError, Sums, go_on};
use crate::{
    device::{Kind, Purpose, Traffic, backend::Reduction},
    event::{Event, StepRow, StepStatus},
    plan::lab::{LabTrial, Outlook, StepPlan},
    spec::{
        Init, Lab,
        lab::{FileName, Net, Saved, Start, Step, StepOp},
    },
    tensor::{self, Device, Devices, Sequential, Tensor, TensorError},
    train::StopFlag,
};

pub fn run(
    trial: &LabTrial,
    plans: &[StepPlan],
    devices: &Devices,
    folder: &Path,
    stop: &StopFlag,
    emit: Emit<'_>,
    sums: &mut Sums,
) -> Result<(), LabError> {
    let Lab::Tensors(tour) = &trial.spec.lab else { return Ok(()) };
    let seed = trial.spec.seed;
    let mut made = Made { tensors: HashMap::new(), nets: HashMap::new(), folder, devices, seed };
    for (index, (step, plan)) in tour.step.iter().zip(plans).enumerate() {
        go_on(stop)?;
        let begun = Instant::now();
        let row = made.step(index, step, plan)?;
        sums.work += begun.elapsed();
        sums.done += 1;
        let failed = row.message.clone().filter(|_| row.status == StepStatus::Failed);
        emit(Event::Step(Box::new(row)))?;
        if let Some(message) = failed {
            return Err(LabError::Step(format!("step {}: {message}", index + 1)));
        }
    }
    Ok(())
}

/// What the steps so far have made.
struct Made<'a> {
    tensors: HashMap<String, Tensor>,
    nets: HashMap<String, Sequential>,
    folder: &'a Path,
    devices: &'a Devices,
    seed: u64,
}

enum Given {
    Tensor(Tensor),
    /// The same tensor as the operand.
    Same(Tensor),
    Net(Tensor, Sequential),
    Nothing,
}

impl Made<'_> {
    fn step(&mut self, index: usize, step: &Step, plan: &StepPlan) -> Result<StepRow, LabError> {
        let device = plan.place.map(|place| place.to_string());
        let mut row = StepRow {
            step: index + 1,
            op: step.op.name(),
            expression: expression(step, device.as_deref()),
            name: step.name.clone(),
            device: None,
            shape: None,
            dtype: None,
            bytes: None,
            copied_bytes: 0,
            status: StepStatus::Done,
            message: None,
            shown: None,
            parameters: Vec::new(),
        };
        if let Outlook::Skipped(reason) = &plan.outlook {
            (row.status, row.message) = (StepStatus::Skipped, Some(reason.clone()));
            return Ok(row);
        }
        let before = copied(&self.devices.traffic());
        let given = self.compute(index, step, device.as_deref());
        row.copied_bytes = copied(&self.devices.traffic()) - before;
        let given = match given {
            Ok(_) if step.expect.is_some() => {
                let message = "it declares `device_mismatch`, and nothing was raised";
                (row.status, row.message) = (StepStatus::Failed, Some(message.to_owned()));
                return Ok(row);
            }
            Ok(given) => given,
            Err(e @ TensorError::DeviceMismatch { .. }) if step.expect.is_some() => {
                (row.status, row.message) = (StepStatus::Raised, Some(e.to_string()));
                return Ok(row);
            }
            Err(e) => {
                (row.status, row.message) = (StepStatus::Failed, Some(e.to_string()));
                return Ok(row);
            }
        };
        let name = step.name.clone().unwrap_or_default();
        let result = match given {
            Given::Nothing => return Ok(row),
            Given::Tensor(tensor) => tensor,
            Given::Same(tensor) => {
                row.status = StepStatus::Same;
                tensor
            }
            Given::Net(tensor, net) => {
                for (own, parameter) in net.parameters() {
                    let (shape, device) = (parameter.shape().axes().to_vec(), parameter.device().name());
                    row.parameters.push((own.to_owned(), shape, device.to_owned()));
                    let full = format!("{name}.{own}");
                    self.tensors.insert(full.clone(), parameter.clone().named(&full));
                }
                self.nets.insert(name.clone(), net);
                tensor
            }
        };
        row.device = Some(result.device().name().to_owned());
        row.shape = Some(result.shape().axes().to_vec());
        row.dtype = Some(result.dtype().name());
        row.bytes = Some(result.bytes());
        match result.show() {
            Ok(shown) => row.shown = Some(shown),
            Err(e) => (row.status, row.message) = (StepStatus::Failed, Some(e.to_string())),
        }
        self.tensors.insert(name.clone(), result.named(&name));
        Ok(row)
    }

    fn compute(&self, index: usize, step: &Step, device: Option<&str>) -> Result<Given, TensorError> {
        let on = || self.devices.get(device.unwrap_or("cpu"));
        Ok(match &step.op {
            StepOp::Ones(shape) => Given::Tensor(Tensor::ones(on()?, shape)?),
            StepOp::Zeros(shape) => Given::Tensor(Tensor::zeros(on()?, shape)?),
            StepOp::Rand(shape) => Given::Tensor(Tensor::rand(on()?, shape, self.seed, index as u64)?),
            StepOp::From(numbers) => {
                Given::Tensor(Tensor::from_values(on()?, &numbers.shape, &numbers.values)?)
            }
            StepOp::Copy(name) => {
                let source = self.tensor(name)?;
                let copy = if step.force { source.copy_anyway(on()?)? } else { source.copy(on()?)? };
                if copy.is(source) { Given::Same(copy) } else { Given::Tensor(copy) }
            }
            StepOp::Add([a, b]) => Given::Tensor(self.tensor(a)?.add(self.tensor(b)?)?),
            StepOp::Matmul([a, b]) => Given::Tensor(self.tensor(a)?.matmul(self.tensor(b)?)?),
            StepOp::Norm(name) => Given::Tensor(self.tensor(name)?.reduce(Reduction::Frobenius)?),
            StepOp::Net(net) => self.net(net, device)?,
            StepOp::Save(save) => {
                let path = self.folder.join(&save.file);
                match &save.what {
                    Saved::Net(name) => {
                        let Some(net) = self.nets.get(name) else { return Err(self.no_tensor(name)) };
                        net.save(&path)?;
                    }
                    Saved::Tensors(names) => {
                        let named: Result<Vec<(&str, &Tensor)>, TensorError> =
                            names.iter().map(|name| Ok((name.as_str(), self.tensor(name)?))).collect();
                        tensor::save(&path, &named?)?;
                    }
                }
                Given::Nothing
            }
            StepOp::Load(load) => {
                let name = load.tensor.as_ref().or(step.name.as_ref());
                let name = name.map_or("", String::as_str);
                Given::Tensor(tensor::load(&self.path(&load.file), name, on()?)?)
            }
        })
    }

    /// The net lives where the plan says, or, where its input is elsewhere, where the step asks.
    fn net(&self, net: &Net, device: Option<&str>) -> Result<Given, TensorError> {
        let input = self.tensor(&net.input)?;
        let own: &Device = match device {
            Some(name) => self.devices.get(name)?,
            None => input.device(),
        };
        let inputs = input.shape().axes().last().copied().unwrap_or(1);
        let init = match &net.start {
            Start::Parameters(file) => Init::File(self.path(file)),
            Start::Init(init) => init.clone(),
        };
        let built = Sequential::new(own, &net.layers, inputs, &init, self.seed)?;
        let output = built.apply(input)?;
        Ok(Given::Net(output, built))
    }

    fn tensor(&self, name: &str) -> Result<&Tensor, TensorError> {
        self.tensors.get(name).ok_or_else(|| self.no_tensor(name))
    }

    fn no_tensor(&self, name: &str) -> TensorError {
        let mut there: Vec<_> = self.tensors.keys().map(|name| format!("`{name}`")).collect();
        there.sort();
        TensorError::NoTensor { name: name.to_owned(), there: there.join(", ") }
    }

    /// A file that an earlier step saved lies in the run's folder.
    fn path(&self, file: &FileName) -> PathBuf {
        if file.is_saved { self.folder.join(&file.text) } else { file.path.clone() }
    }
}

/// Bytes that were copied between memories; those that were copied to be shown are not counted.
fn copied(traffic: &Traffic) -> u64 {
    let lines = traffic.lines();
    lines.iter().filter(|line| line.0 != Kind::Sync && line.1 != Purpose::Log).map(|line| line.3.bytes).sum()
}

/// The step as a person would write it.
fn expression(step: &Step, device: Option<&str>) -> String {
    let device = device.map(str::to_owned).or_else(|| Some(step.device?.to_string())).unwrap_or_default();
    let what = match &step.op {
        StepOp::Ones(shape) => format!("ones({shape:?}) on {device}"),
        StepOp::Zeros(shape) => format!("zeros({shape:?}) on {device}"),
        StepOp::Rand(shape) => format!("rand({shape:?}) on {device}"),
        StepOp::From(numbers) => format!("from numbers of the host, {:?}, on {device}", numbers.shape),
        StepOp::Copy(name) if step.force => format!("{name}.copy({device}), forced"),
        StepOp::Copy(name) => format!("{name}.copy({device})"),
        StepOp::Add([a, b]) => format!("{a} + {b}"),
        StepOp::Matmul([a, b]) => format!("{a} @ {b}"),
        StepOp::Norm(name) => format!("norm({name})"),
        StepOp::Net(net) => format!("net({})", net.input),
        StepOp::Save(save) => match &save.what {
            Saved::Net(name) => format!("save the parameters of {name}'s net to {}", save.file),
            Saved::Tensors(names) => format!("save {} to {}", names.join(", "), save.file),
        },
        StepOp::Load(load) => format!("load from {} to {device}", load.file.text),
    };
    match &step.name {
        Some(name) => format!("{name} = {what}"),
        None => what,
    }
}
