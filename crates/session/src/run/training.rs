//! A training as a session runs it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Datasets, ExecuteError, Planned, RunFacts,
    announce::{begin, compare_with_truth, report_devices, timed_by},
    changes::{allowed_changes, changes_in_words, kept_hash, not_the_trials, refused_unasked},
    confusion::{class_names, save_confusion},
    device_group::{bf16_unit, device_group, slow_devices},
    engine_trials::{useful_threads, warm_up},
    hosts::wait_for_ranks,
    resumed::Resumed,
    rungs::no_validation_at_rung,
    samples::SeedsAndFold,
    save_weights::save_all,
    sweep_engine::settle_together,
};
use crate::{
    collective::ProcessGroup,
    data::{self, Dataset, FileFingerprint, Weights, read_weights},
    event::{Closed, Event, Level, Outcome, Status},
    plan::{self, AllReduceMethod, AllReducePlan, Machine, PlanError, ResolvedDevices, Trial},
    record::{self, CheckpointIdentity, DataFacts, EventSender, RunDir, RunFiles, TrainingFiles},
    spec::{self, GpuCount, Halving, Init, Metric, Monitor, OnMissing, Problem, Request, Spec},
    train::{self, DeviceGroup, Emit, StopFlag, Trained, initial_values},
};

/// What a trial trains on: its data set and initial weights.
pub struct Opened {
    dataset: Arc<Dataset>,
    /// The weights of `init = { file = ... }`.
    weights: Option<Weights>,
    world: Option<Arc<ProcessGroup>>,
}

/// A trial with its resources: memory, threads, rows, weights.
pub struct Ready<'a> {
    trial: &'a Trial,
    dataset: Arc<Dataset>,
    group: DeviceGroup,
    initial: Vec<f32>,
    /// The state to resume from, if any.
    resumed: Option<Resumed>,
    /// How gradients are summed; with several devices only.
    sums: Option<AllReducePlan>,
    /// Warnings about the devices.
    warnings: Vec<String>,
    /// A description of each rank, if there are several.
    ranks: Vec<String>,
    /// Time to load and warm up the devices.
    loading: Duration,
    /// The hash used in names of run folders; set once the facts are known.
    spec_hash: String,
}

impl Ready<'_> {
    /// Trains without a folder.
    pub fn train(self, stop: &StopFlag, emit: Emit<'_>) -> Result<Trained, Closed> {
        let Self { trial, dataset, group, initial, resumed, .. } = self;
        let resumed = resumed.map(|resumed| resumed.state);
        train::train(train::TrainSetup { trial, dataset: &dataset, group, initial, resumed, stop, emit })
    }
}

impl Planned for Trial {
    const SIDE_BY_SIDE: bool = true;
    type Spec = Spec;
    type Shared = Datasets;
    type Opened = Opened;
    type Ready<'a> = Ready<'a>;

    fn name(spec: &Spec) -> &str {
        &spec.name
    }

    fn seeds_and_fold(spec: &Spec) -> SeedsAndFold {
        let (init, shuffle) = (spec.model.init_seed, spec.data.shuffle_seed);
        let split = spec.data.split.as_ref().and_then(|split| split.seed);
        [format!("{} {init:?} {shuffle:?} {split:?}", spec.seed), format!("{:?}", spec.data.fold)]
    }

    fn drawn_by(spec: &Spec) -> String {
        let split = spec.data.split.as_ref().and_then(|split| split.seed);
        format!("{:?} {split:?}", data::follow_seed(&spec.data).then_some(spec.seed))
    }

    fn hash8(&self) -> String {
        self.spec.hash8()
    }

    fn fold(&self) -> Option<[u32; 2]> {
        Some([self.spec.data.folds?, self.spec.data.fold?])
    }

    fn data_digest(&self) -> Option<String> {
        Some(format!("{:016x}", self.facts.digest))
    }

    fn plan(
        spec: &Spec,
        datasets: &mut Datasets,
        machine: &Machine,
        threads: usize,
    ) -> Result<Self, PlanError> {
        let dataset = datasets.open(spec).map_err(PlanError::Problems)?;
        let useful = |spec: &Spec| useful_threads(spec, threads, machine);
        let plan = |spec: &Spec| plan::plan(spec, dataset.facts(), machine, useful(spec));
        let mut planned = plan(spec)?;
        if machine.described.is_none() {
            planned = datasets.engines.settle(planned, useful(spec), &dataset.digest, plan)?;
        }
        datasets.plans.share(&mut planned);
        planned.data_warnings = Arc::clone(&dataset.warnings);
        if spec.scores().contains(&Metric::AveragePrecision) {
            let more = dataset.warning_of_average_precision.clone();
            Arc::make_mut(&mut planned.data_warnings).extend(more);
        }
        initial_weights(&planned, datasets).map_err(PlanError::Problems)?;
        Ok(planned)
    }

    fn settle_together(trials: Vec<&mut Self>, datasets: &mut Datasets, machine: &Machine, threads: usize) {
        datasets.end_planning();
        settle_together(trials, datasets, machine, threads);
    }

    fn begin_planning(datasets: &mut Datasets, trials: usize) {
        datasets.begin_planning(trials);
    }

    fn goes_on(datasets: &mut Datasets, folders: Vec<RunDir>) {
        datasets.engines.begun = folders;
    }

    /// Whether the two differ only in the requested devices and use equal ones.
    fn repeats(&self, earlier: &Self) -> bool {
        let (own, other) = (&self.spec.devices, &earlier.spec.devices);
        if own.request == other.request
            || own.on_missing != OnMissing::Clamp
            || self.devices.used != earlier.devices.used
        {
            return false;
        }
        let without_request = |spec: &Spec| {
            let mut spec = spec.clone();
            spec.devices.request = Request::NumGpus(GpuCount::Exactly(0));
            spec
        };
        without_request(&self.spec) == without_request(&earlier.spec)
    }

    fn devices(&self) -> &ResolvedDevices {
        &self.devices
    }

    fn on(&self, devices: ResolvedDevices) -> Option<Self> {
        Some(Self::on(self, devices))
    }

    fn gpu_need(&self) -> (u64, bool) {
        (self.footprint.devices.iter().copied().max().unwrap_or(0), self.is_one_block)
    }

    fn steps_and_engine(&self) -> Option<(u64, &'static str)> {
        Some((self.steps, self.engine.name()))
    }

    fn epochs(&self) -> Option<u64> {
        Some(self.steps.div_ceil(self.steps_per_epoch.max(1)))
    }

    fn unjudged(&self, halving: Halving) -> Option<[String; 2]> {
        no_validation_at_rung(self, halving)
    }

    fn monitor(&self) -> Option<Monitor> {
        Some(self.spec.trainer.monitor)
    }

    fn remarks(&self, axes: &[String]) -> Vec<String> {
        record::remarks(self, axes)
    }

    fn warm_up(&self) {
        warm_up(self);
    }

    fn open(&self, datasets: &mut Datasets) -> Result<Opened, ExecuteError> {
        // Data and weights were readable during planning, so a failure means that they changed.
        let first = |problems: Vec<Problem>| problems.into_iter().map(|p| p.message).next();
        let unreadable = |problems| ExecuteError::Data(first(problems).unwrap_or_default());
        let dataset = datasets.open(&self.spec).map_err(unreadable)?;
        if self.facts != dataset.facts() {
            return Err(ExecuteError::Data("they have other sizes now".to_owned()));
        }
        let dataset = datasets.read(&self.spec, dataset).map_err(unreadable)?;
        let weights = initial_weights(self, datasets).map_err(unreadable)?;
        if self.uses_products_library() {
            datasets.engines.gpus.begin_products();
        }
        datasets.engines.gpus.keep(&self.devices.used);
        Ok(Opened { dataset, weights, world: datasets.world.clone() })
    }

    fn ready(&self, Opened { dataset, weights, world }: Opened) -> Result<Ready<'_>, ExecuteError> {
        let ranks = match &world {
            Some(world) if self.devices.over_hosts() => wait_for_ranks(world, self, &dataset)?,
            _ => Vec::new(),
        };
        let begun = Instant::now();
        let (group, sums) = device_group(self, world.as_ref())?;
        let (loading, warnings) = (begun.elapsed(), slow_devices(self));
        let (init, seed) = (&self.spec.model.init, self.spec.init_seed());
        let initial = initial_values(init, &self.programs.layout, seed, weights.as_ref());
        Ok(Ready {
            trial: self,
            dataset,
            group,
            initial,
            resumed: None,
            sums,
            warnings,
            ranks,
            loading,
            spec_hash: String::new(),
        })
    }

    fn has_spec_of(&self, folder: &RunDir) -> bool {
        folder.spec_text() == self.spec.to_toml()
    }

    fn foreign_spec(&self, folder: &RunDir, axes: &[String]) -> Option<String> {
        let (text, own, path) = (folder.spec_text(), self.spec.to_toml(), folder.file("spec.toml"));
        if text == own {
            return None;
        }
        match spec::load(&path, &[]) {
            Ok(found) => {
                let why = not_the_trials(&found.trials.first()?.spec, &self.spec, axes)?;
                Some(format!("`{}` is not the trial's: {why}", path.display()))
            }
            // Another version may have written it.
            Err(_) => own.starts_with(&text).then(|| format!("`{}` was cut", path.display())),
        }
    }

    fn changes_since(&self, folder: &RunDir) -> Result<Option<String>, String> {
        let old = spec::load(&folder.file("spec.toml"), &[]).ok();
        let Some(old) = old.as_ref().and_then(|old| old.trials.first()) else {
            return Err("its spec cannot be read".to_owned());
        };
        if let Some(refused) = refused_unasked(&old.spec, &self.spec) {
            return Err(refused);
        }
        if folder.data_digest() != self.data_digest() {
            return Err("its data have changed".to_owned());
        }
        Ok(changes_in_words(&old.spec, &self.spec))
    }

    fn allowed_changes(&self, folder: &RunDir) -> Option<(String, Vec<String>)> {
        let old = spec::load(&folder.file("spec.toml"), &[]).ok()?;
        allowed_changes(&old.trials.first()?.spec, &self.spec)
    }

    fn resume(&self, ready: &mut Ready<'_>, folder: &RunDir) -> Result<(), ExecuteError> {
        let mut resumed = Resumed::new(self, folder, &ready.dataset.digest)?;
        ready.initial = std::mem::take(&mut resumed.state.arrays.values);
        ready.resumed = Some(resumed);
        Ok(())
    }

    fn facts<'a>(&'a self, ready: &mut Ready<'_>) -> RunFacts<'a> {
        let (toml, spec_hash) = self.spec.to_toml_and_hash8();
        ready.spec_hash.clone_from(&spec_hash);
        let nccl = ready.sums.as_ref().is_some_and(|sums| sums.by == AllReduceMethod::Nccl);
        RunFacts {
            name: &self.spec.name,
            toml,
            notes: record::weak_scaling(self).into_iter().collect(),
            threads: self.threads,
            precision: self.spec.devices.precision.name(),
            bf16_unit: bf16_unit(self),
            timed_by: timed_by(self),
            engine: Some(record::engine(self)),
            resumed_after: ready.resumed.as_ref().map(|resumed| resumed.state.facts.step),
            step: Some(record::StepFacts::new(self)),
            data: Some(DataFacts::new(&ready.dataset)),
            sums: ready.sums.as_ref().map(record::all_reduce),
            libraries: [self.uses_products_library(), nccl],
            system: Some(self.spec.logging.system_every_s.map(Duration::from_secs_f64)),
            files: RunFiles::Training(TrainingFiles {
                trial: self,
                identity: CheckpointIdentity {
                    spec_hash,
                    kept_hash: kept_hash(&self.spec),
                    data_digest: ready.dataset.digest.clone(),
                    preprocessing: ready.dataset.stored_preprocessing(),
                },
                resumed: ready.resumed.as_mut().and_then(Resumed::files),
                apart: Arc::clone(&ready.dataset.apart),
            }),
        }
    }

    fn run(
        &self,
        mut ready: Ready<'_>,
        folder: &RunDir,
        stop: &StopFlag,
        sender: &EventSender,
    ) -> Result<Outcome, Closed> {
        let (dataset, hash) = (Arc::clone(&ready.dataset), ready.spec_hash.clone());
        begin(self, &dataset, ready.resumed.as_ref(), sender)?;
        let ranks = ready.ranks.iter().map(|words| Event::Notice(Level::Info, words.clone()));
        sender.send_all(ranks.collect())?;
        report_devices(self, (ready.loading, &mut ready.group, &ready.warnings, &ready.sums), sender)?;
        let mut emit = |events| sender.send_all(events);
        let trained = ready.train(stop, &mut emit)?;
        let Trained { mut outcome, values, best, confusion } = trained;
        if outcome.status == Status::Diverged
            && let Some(hint) = record::large_targets(self)
        {
            outcome.reason = outcome.reason.map(|reason| format!("{reason}; {hint}"));
        }
        let saved = save_all(self, (&dataset, &hash), &values, &best, folder, &outcome);
        let classes = class_names(self, &dataset);
        let is_measured = outcome.best.is_some() && !confusion.is_empty();
        let saved = saved.and_then(|()| match &classes {
            Some(names) if is_measured => save_confusion(names, &confusion, folder),
            _ => Ok(()),
        });
        if let Err(e) = saved {
            (outcome.status, outcome.reason) = (Status::Failed, Some(e.to_string()));
        } else if let Some(values) = &values {
            let _ = compare_with_truth(self, &dataset, values, sender); // `execute` notices a closed recorder
        }
        let neglected = |names: Vec<String>| {
            let weighted = self.spec.model.class_weights.is_some();
            record::one_class(&names, &confusion, weighted)
                .or_else(|| record::hardly_predicted(&names, &confusion, weighted))
        };
        if let Some(words) = classes.and_then(neglected) {
            let _ = sender.send(Event::Notice(Level::Warning, words));
        }
        Ok(outcome)
    }
}

/// The weights of `init = { file = ... }`.
fn initial_weights(trial: &Trial, datasets: &mut Datasets) -> Result<Option<Weights>, Vec<Problem>> {
    let Init::File(path) = &trial.spec.model.init else { return Ok(None) };
    let parameters = trial.programs.layout.parameters.iter();
    let wanted: Vec<_> =
        parameters.map(|p| (p.name.clone(), p.shape.iter().rev().copied().collect::<Vec<_>>())).collect();
    let stamp = FileFingerprint::from_path(path);
    let weights = read_weights(path, &wanted)?;
    datasets.see(stamp.as_slice(), "model.init.file").map_err(|problem| vec![problem])?;
    Ok(Some(weights))
}
