//! A parity check's job: one spec, on the CPU and on each device count.

use super::super::args::RunOptions;
use crate::{
    plan::Machine,
    spec::{
        self, EngineChoice, Experiment, GpuCount, LrScaling, Metric, Monitor, OnMissing, Precision, Request,
        Rule, Scaling, Spec, ValidateEvery,
    },
};

pub struct ParityJob {
    /// The spec, complete except for its devices.
    pub spec: Spec,
    /// The devices to compare, each with its number format; the first is the CPU in f32.
    pub cases: Vec<(Request, Precision)>,
    /// The number format of all but the first, which determines the tolerances.
    pub precision: Precision,
    /// Differences from what the spec says.
    pub notes: Vec<String>,
    /// Whether the GPUs are virtual.
    is_virtual: bool,
}

const CPU: Request = Request::NumGpus(GpuCount::Exactly(0));

impl ParityJob {
    /// A job of `steps` steps with one global batch each, which logs every loss.
    pub fn new(
        experiment: &Experiment,
        options: &RunOptions,
        mut spec: Spec,
        steps: u64,
        machine: &Machine,
    ) -> Self {
        let is_virtual = machine.gpus.iter().any(|gpu| gpu.is_virtual);
        let mut notes = Vec::new();
        if experiment.axes.iter().any(|axis| !axis.starts_with("devices.")) {
            notes.push("uses the first trial of the sweep".to_owned());
        }
        let trainer = &mut spec.trainer;
        trainer.max_epochs = trainer.max_epochs.max(steps);
        trainer.max_steps = Some(trainer.max_steps.map_or(steps, |most| most.min(steps)));
        (trainer.max_time, trainer.early_stopping, trainer.restore_best) = (None, None, None);
        // Nothing is validated, so no metric can be monitored.
        (trainer.validate_every, trainer.monitor) = (ValidateEvery::NEVER, Monitor::LOSS);
        if spec.schedule.plateau().is_some() {
            spec.schedule.rule = Rule::Constant;
            notes.push(
                "the learning rate is constant: a plateau follows validations, of which there are none"
                    .to_owned(),
            );
        }
        if spec.devices.scaling == Scaling::Weak {
            let rows = spec.data.batch_size;
            notes.push(format!(
                "`scaling = \"weak\"` is ignored: it would give each device count a different job. Every step uses {rows} rows in total"
            ));
        }
        (spec.devices.scaling, spec.devices.lr_scaling) = (Scaling::Strong, LrScaling::None);
        // Only numbers of devices on this host are compared.
        spec.devices.hosts = None;
        spec.devices.on_missing = OnMissing::Error;
        spec.logging.policy = spec::Policy::Buffered;
        spec.logging.metrics = vec![Metric::Loss];
        let asked = spec.devices.precision;
        // If the processor has its own bfloat16 unit, virtual GPUs can use it.
        let by_cpu = asked == Precision::Bf16 && machine.bf16_unit.is_some();
        let precision = if is_virtual && !by_cpu { Precision::F32 } else { asked };
        if asked != precision {
            notes.push(format!("virtual GPUs compute in f32, not in `{}`", asked.name()));
        }
        let mut cases = vec![(CPU, Precision::F32)];
        cases.extend(by_cpu.then_some((CPU, asked)));
        cases.extend(requests(experiment, options, machine).into_iter().map(|request| (request, precision)));
        let job = Self { cases, spec, precision, notes, is_virtual };
        job.with_note_on_engines()
    }

    /// The spec on these devices.
    pub fn on(&self, (request, precision): &(Request, Precision)) -> Spec {
        let mut spec = self.spec.clone();
        spec.devices.request = request.clone();
        spec.devices.precision = *precision;
        let on_gpus = !self.is_virtual && !request.is_cpu();
        let several = match request {
            Request::NumGpus(GpuCount::Exactly(n)) => *n > 1,
            Request::NumGpus(GpuCount::All) => true,
            Request::Use(names) => names.len() > 1,
        };
        let fits = match spec.devices.engine {
            EngineChoice::Auto => true,
            EngineChoice::Serial | EngineChoice::Team => !on_gpus,
            // With several GPUs, the plan chooses a graph if possible.
            EngineChoice::Persistent
            | EngineChoice::Compiled
            | EngineChoice::Cooperative
            | EngineChoice::Graph => on_gpus && !several,
            EngineChoice::Launch => on_gpus,
        };
        if !fits {
            spec.devices.engine = EngineChoice::Auto;
        }
        spec
    }

    /// If the spec's engine cannot run, the plan chooses one.
    fn with_note_on_engines(mut self) -> Self {
        let engine = self.spec.devices.engine;
        let own = self.cases.iter().filter(|case| self.on(case).devices.engine == engine).count();
        if own < self.cases.len() {
            let name = engine.name();
            self.notes.push(if own == 0 {
                format!("the engine `{name}` runs on none of these devices: the plan picks one")
            } else {
                format!("the engine `{name}` does not run on all of these devices: the plan picks one for the others")
            });
        }
        self
    }
}

/// The GPU requests of the command line, or every available number of GPUs.
fn requests(experiment: &Experiment, options: &RunOptions, machine: &Machine) -> Vec<Request> {
    let asks = |word: &String| {
        ["devices.num_gpus=", "devices.use=", "devices={"].iter().any(|key| word.starts_with(key))
    };
    let mut requests = Vec::new();
    if options.overrides().iter().any(asks) {
        for trial in &experiment.trials {
            let request = &trial.spec.devices.request;
            if !request.is_cpu() && !requests.contains(request) {
                requests.push(request.clone());
            }
        }
    } else {
        let counts = 1..=machine.gpus.len() as u32;
        requests.extend(counts.map(|count| Request::NumGpus(GpuCount::Exactly(count))));
    }
    requests
}
