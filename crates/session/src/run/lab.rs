//! The lab's kinds (products, copies, tours of tensors) as a session runs them.

use std::path::Path;

use super::{ExecuteError, Planned, RunFacts, SeedsAndFold};
use crate::{
    event::{Closed, Event, Header, Outcome},
    host, lab,
    plan::{
        Machine, PlanError, ResolvedDevices,
        lab::{LabTrial, Work, plan},
    },
    record::{EventSender, RunDir, RunFiles},
    spec::{
        Lab, LabSpec, OnMissing, Policy,
        lab::{Norm, Order},
    },
    train::StopFlag,
    units,
};

impl Planned for LabTrial {
    const SIDE_BY_SIDE: bool = false;
    type Spec = LabSpec;
    type Shared = ();
    type Opened = ();
    type Ready<'a> = Vec<lab::Device>;

    fn name(spec: &LabSpec) -> &str {
        &spec.name
    }

    fn seeds_and_fold(spec: &LabSpec) -> SeedsAndFold {
        [spec.seed.to_string(), String::new()]
    }

    fn hash8(&self) -> String {
        self.spec.hash8()
    }

    fn plan(spec: &LabSpec, (): &mut (), machine: &Machine, threads: usize) -> Result<Self, PlanError> {
        let find_shape = |path: &Path, name: &str| {
            let lab::Tensor { dtype, shape, .. } = lab::TensorFile::open(path)?.get(name)?;
            Ok((dtype, shape))
        };
        plan(spec, machine, threads, &find_shape)
    }

    /// Whether the two differ only in the requested devices, or in the order of a single device.
    fn repeats(&self, earlier: &Self) -> bool {
        let asks_for_others = earlier.spec.devices.request != self.spec.devices.request;
        if earlier.devices.used != self.devices.used
            || (asks_for_others && self.spec.devices.on_missing != OnMissing::Clamp)
        {
            return false;
        }
        let alone = self.devices.used.len() == 1;
        let without = |spec: &LabSpec| {
            let mut spec = spec.clone();
            spec.devices.request = earlier.spec.devices.request.clone();
            if alone { without_order(spec) } else { spec }
        };
        // Two equal specs are a repetition that the user asked for.
        earlier.spec != self.spec && without(&earlier.spec) == without(&self.spec)
    }

    fn devices(&self) -> &ResolvedDevices {
        &self.devices
    }

    fn remarks(&self, _: &[String]) -> Vec<String> {
        let lack = self.devices.lack.as_ref().map(ToString::to_string);
        self.notes.iter().filter(|note| Some(*note) != lack.as_ref()).cloned().collect()
    }

    fn open(&self, (): &mut ()) -> Result<(), ExecuteError> {
        Ok(())
    }

    fn ready(&self, (): ()) -> Result<Vec<lab::Device>, ExecuteError> {
        Ok(lab::devices(self)?)
    }

    fn has_spec_of(&self, folder: &RunDir) -> bool {
        folder.spec_text() == self.spec.to_toml()
    }

    fn resume(&self, _: &mut Vec<lab::Device>, _: &RunDir) -> Result<(), ExecuteError> {
        let message = format!("a run of kind `{}` has no checkpoints to go on from", self.spec.kind.name());
        Err(ExecuteError::Resume { message, hint: "run its spec again" })
    }

    fn facts<'a>(&'a self, _: &mut Vec<lab::Device>) -> RunFacts<'a> {
        RunFacts {
            name: &self.spec.name,
            toml: self.spec.to_toml(),
            notes: Vec::new(),
            threads: self.threads,
            precision: "f32",
            bf16_unit: None,
            timed_by: "operations",
            engine: None,
            resumed_after: None,
            step: None,
            data: None,
            sums: None,
            libraries: [false; 2],
            system: None,
            files: RunFiles::Lab(self.spec.kind, logs_norms(self)),
        }
    }

    fn run(
        &self,
        mut devices: Vec<lab::Device>,
        folder: &RunDir,
        stop: &StopFlag,
        sender: &EventSender,
    ) -> Result<Outcome, Closed> {
        let header = Header {
            name: self.spec.name.clone(),
            lab: Some(headline(self)),
            devices_requested: self.devices.requested.clone(),
            devices_used: self.devices.used_names(),
            virtual_devices: self.devices.any_virtual(),
            precision: "f32".to_owned(),
            engine: self.spec.kind.name().to_owned(),
            lab_unit: lab::planned(self).0,
            steps_planned: lab::planned(self).1,
            may_skip_steps: matches!(&self.spec.lab, Lab::Matmul(matmul) if matmul.max_time.is_some()),
            build: host::BUILD,
            ..Header::default()
        };
        sender.send(Event::Started(Box::new(header)))?;
        let emit = |event| sender.send(event);
        Ok(lab::run(self, &mut devices, folder.path(), stop, &emit))
    }
}

/// The spec with the default order of devices: with a single device the order means nothing.
fn without_order(mut spec: LabSpec) -> LabSpec {
    if let Lab::Matmul(matmul) = &mut spec.lab {
        matmul.order = Order::Sequential;
    }
    spec
}

fn logs_norms(trial: &LabTrial) -> bool {
    let policy = trial.spec.logging.as_ref().map(|logging| logging.policy);
    matches!(&trial.spec.lab, Lab::Matmul(matmul) if matmul.norm != Norm::None)
        && policy.is_some_and(|policy| policy != Policy::Off)
}

/// One line about the work: `1,000 products of [100, 100] x [100, 100]`.
fn headline(trial: &LabTrial) -> String {
    match (&trial.spec.lab, &trial.work) {
        (Lab::Matmul(matmul), Work::Matmul { shapes, .. }) => {
            let most = if matmul.max_time.is_some() { "at most " } else { "" };
            let products = units::counted(matmul.count, "product");
            match &shapes[..] {
                [[m, k, n]] => format!("{most}{products} of [{m}, {k}] x [{k}, {n}]"),
                _ => format!("{most}{products} of each of {} shapes", shapes.len()),
            }
        }
        (Lab::Transfer(transfer), Work::Transfer(copies)) => {
            let kinds = if copies.len() == 1 { "kind" } else { "kinds" };
            let (copies, sizes) = (copies.len(), units::counted(transfer.sizes.len() as u64, "size"));
            format!("{copies} {kinds} of copy in {sizes}")
        }
        (_, Work::Tensors(plan)) => units::counted(plan.steps.len() as u64, "step"),
        _ => String::new(),
    }
}
