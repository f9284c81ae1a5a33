//! What the trials of an experiment share: data sets (opened once, so that all trials see the same contents),
//! the results of engine probes, and plans.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use super::{engine_trials::EngineTrials, kept_datasets::KeptDatasets, shared_plans::SharedPlans};
use crate::{
    collective::ProcessGroup,
    data::{self, Dataset, FileChange, FileFingerprint, ParsedTables, Task},
    host,
    plan::{self, Machine},
    spec::{self, ClassWeights, Experiment, Placement, Problem, Spec},
    units,
};

/// Features larger than this share of usable memory stay in their file.
const MEMORY_PART: f64 = 0.5;

/// Streamed features up to this share of usable memory are read into it for a GPU, whose chunks are made there several times as
/// fast as from a file.
const STREAMED_PART: f64 = 0.2;

/// They stay in their file after all if they exceed this share of what is free when the trial begins.
const FREE_PART: f64 = 0.25;

/// Tables that trials divide in different ways are kept beside their data sets, up to this share of usable memory. A table takes about
/// twice as much as a data set of it.
const TABLES_PART: f64 = 0.125;

/// What determines a data set.
struct Key {
    data: spec::Data,
    task: Task,
    /// `None` if no row follows the seed of the run.
    seed: Option<u64>,
    /// Whether it is for the chunks of GPUs.
    for_gpus: bool,
    class_weights: Option<ClassWeights>,
}

impl Key {
    /// The same for equal keys alone: numbers are written exactly, texts in quotes.
    fn text(&self) -> String {
        let Self { data, task, seed, for_gpus, class_weights } = self;
        format!("{data:?} {task:?} {seed:?} {for_gpus} {class_weights:?}")
    }
}

/// Opens data sets and caches the last few.
pub struct Datasets {
    machine: Machine,
    /// Whether no rows are made: plans need their shape alone.
    is_outline: bool,
    kept: KeptDatasets,
    /// Tables of which several of them are made.
    tables: ParsedTables,
    /// Fingerprints of all files opened so far.
    seen: HashMap<PathBuf, FileFingerprint>,
    pub(super) engines: EngineTrials,
    pub(super) plans: SharedPlans,
    /// The processes that train together with this one, if any.
    pub world: Option<Arc<ProcessGroup>>,
}

impl Datasets {
    pub fn new(machine: &Machine) -> Self {
        Self {
            machine: machine.clone(),
            is_outline: false,
            kept: KeptDatasets::default(),
            tables: ParsedTables::default(),
            seen: HashMap::new(),
            engines: EngineTrials::default(),
            plans: SharedPlans::default(),
            world: None,
        }
    }

    /// For plans alone: what a spec would have made is not made. Files are read as ever.
    pub fn for_plans(machine: &Machine) -> Self {
        Self { is_outline: true, ..Self::new(machine) }
    }

    /// Tells how many trials are planned next: several may be of one table.
    pub fn begin_planning(&mut self, trials: usize) {
        let most_bytes = self.machine.memory_available as f64 * TABLES_PART;
        self.tables.begin(if trials > 1 { most_bytes as u64 } else { 0 });
    }

    /// Tells that all are planned.
    pub(super) fn end_planning(&mut self) {
        self.tables.settle();
    }

    /// Begins to open the only GPU of the machine, while the trials that use it are planned.
    pub fn begin_gpu(&mut self, experiment: &Experiment) {
        let is_it = matches!(&self.machine.gpus[..], [gpu] if !gpu.is_virtual);
        if is_it && experiment.trials.iter().any(|trial| self.uses_gpus(&trial.spec)) {
            self.engines.gpus.begin(0);
        }
    }

    /// Returns the rows that a spec names, from the cache if they are there.
    pub fn open(&mut self, spec: &Spec) -> Result<Arc<Dataset>, Vec<Problem>> {
        let is_weighted = spec.model.class_weights.is_some();
        if self.is_outline
            && let Some(outline) = data::outline(&spec.data, is_weighted)
        {
            return outline.map(Arc::new).map_err(Vec::from);
        }
        let key = self.key(spec);
        if let Some(dataset) = self.cached(&key)? {
            return Ok(dataset);
        }
        self.fits(spec).map_err(|problem| vec![problem])?;
        let part = if key.data.placement == Placement::Resident { 1.0 } else { MEMORY_PART };
        let part_of_memory = |part: f64| (self.machine.memory_available as f64 * part) as u64;
        let (limit, small) = (part_of_memory(part), part_of_memory(STREAMED_PART));
        let mut dataset = self.load(&key, spec.seed, |kept| limit.saturating_sub(kept))?;
        dataset.is_read_at_start =
            key.for_gpus && !dataset.train.in_memory() && dataset.feature_bytes() <= small;
        self.keep(&key, dataset)
    }

    /// Opens a data set. Those that are kept for later trials give way to one that does not fit beside them; `limit` is what its
    /// features may take, by the bytes of those.
    fn load(&mut self, key: &Key, seed: u64, limit: impl Fn(u64) -> u64) -> Result<Dataset, Vec<Problem>> {
        self.kept.make_room(self.machine.memory_available.saturating_sub(self.tables.bytes()));
        let tables = &mut self.tables;
        let mut open = |limit| {
            let mut own = data::open_among(tables, &key.data, key.task, seed, limit)?;
            key.class_weights.as_ref().map_or(Ok(()), |weights| own.add_class_weights(weights))?;
            Ok(own)
        };
        let opened: Result<Dataset, Vec<Problem>> = open(limit(self.kept.bytes()));
        let fits_alone = match &opened {
            Ok(own) => !own.train.in_memory() && own.feature_bytes() <= limit(0),
            Err(_) => true,
        };
        if self.kept.len() == 0 || key.data.placement == Placement::Streamed || !fits_alone {
            return opened;
        }
        self.kept.clear();
        open(limit(0))
    }

    /// The rows of a trial that begins: in memory, if they are to be read into it and fit what is free now.
    pub fn read(&mut self, spec: &Spec, dataset: Arc<Dataset>) -> Result<Arc<Dataset>, Vec<Problem>> {
        if !dataset.is_read_at_start {
            return Ok(dataset);
        }
        let mut key = self.key(spec);
        (key.data.placement, key.for_gpus) = (Placement::Auto, false);
        if let Some(read) = self.cached(&key)? {
            return Ok(read);
        }
        match self.load(&key, spec.seed, |_| (host::usable_memory() as f64 * FREE_PART) as u64) {
            Ok(read) if read.train.in_memory() => self.keep(&key, read),
            // A bad row is an error once a step needs it.
            Ok(_) | Err(_) => Ok(dataset),
        }
    }

    fn key(&self, spec: &Spec) -> Key {
        let task = if spec.model.loss.classifies() { Task::Classification } else { Task::Regression };
        // The batch settings do not change which rows are read.
        let mut rows = spec::Data::clone(&spec.data);
        (rows.batch_size, rows.shuffle, rows.shuffle_seed) = (1, false, None);
        // Runs share what does not follow their seeds.
        let seed = data::follow_seed(&spec.data).then_some(spec.seed);
        let for_gpus = rows.placement == Placement::Streamed && self.uses_gpus(spec);
        Key { data: rows, task, seed, for_gpus, class_weights: spec.model.class_weights.clone() }
    }

    fn cached(&mut self, key: &Key) -> Result<Option<Arc<Dataset>>, Vec<Problem>> {
        let Some(dataset) = self.kept.get(&key.text()) else { return Ok(None) };
        // A data set that is left in its file is only valid while nobody writes to the file.
        match dataset.change() {
            Some(FileChange::Written(what)) => {
                Err(vec![Problem::at_key("data", what).hint("start again once nothing writes to it")])
            }
            Some(FileChange::Replaced(_)) | None => Ok(Some(dataset)),
        }
    }

    fn keep(&mut self, key: &Key, dataset: Dataset) -> Result<Arc<Dataset>, Vec<Problem>> {
        self.see(&dataset.files, "data").map_err(|problem| vec![problem])?;
        let dataset = Arc::new(dataset);
        self.kept.insert(key.text(), Arc::clone(&dataset));
        Ok(dataset)
    }

    /// Whether the trial runs on GPUs of this process, which have memory of their own.
    fn uses_gpus(&self, spec: &Spec) -> bool {
        let chosen = plan::choose(&spec.devices, &self.machine);
        chosen.is_ok_and(|chosen| chosen.used.iter().any(|device| device.own_gpu().is_some()))
    }

    /// Checks that the files did not change since they were first read.
    pub(super) fn see(&mut self, files: &[FileFingerprint], key: &str) -> Result<(), Problem> {
        for stamp in files {
            match self.seen.get(stamp.path()) {
                None => drop(self.seen.insert(stamp.path().to_owned(), stamp.clone())),
                Some(seen) if seen == stamp => {}
                Some(_) => {
                    let message = format!("`{}` is not the file it was", stamp.path().display());
                    return Err(Problem::at_key(key, message).hint("start again once nothing writes to it"));
                }
            }
        }
        Ok(())
    }

    /// Checks that synthetic rows, which are made in memory, fit.
    fn fits(&self, spec: &Spec) -> Result<(), Problem> {
        let Some(made) = spec.data.source.synthetic() else { return Ok(()) };
        let rows = made.train_rows as u64 + made.validation_rows as u64;
        let bytes_of =
            |lines: u64, width: usize, bytes| lines.saturating_mul(width as u64).saturating_mul(bytes);
        let of_rows = bytes_of(rows, made.features + 1, 4);
        let of_parameters = bytes_of(made.parameter_vectors as u64, made.features, 8);
        let needed = of_rows.saturating_add(of_parameters);
        if needed <= self.machine.memory_available {
            return Ok(());
        }
        let features = units::count(made.features as u64);
        let [needed, free] = units::two_sizes(needed, self.machine.memory_available);
        let (key, what) = if of_parameters > of_rows {
            (
                made.parameters_key,
                format!("rows that are made from {} times {features} numbers", made.parameter_vectors),
            )
        } else {
            let key =
                if made.validation_rows > made.train_rows { made.validation_key } else { made.train_key };
            (key, format!("{} synthetic rows of {features} features", units::count(rows)))
        };
        let message = format!("{what} need {needed} of memory, and {free} are available here");
        Err(Problem::at_key(key, message).hint("lower it"))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Rows that no seed draws are read once, whatever the seeds of the trials.
    #[test]
    fn seeds_share_what_they_do_not_draw() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, csv) = (folder.path().join("x.toml"), folder.path().join("a.csv"));
        std::fs::write(&csv, "x,y\n1,2\n2,4\n3,6\n4,8\n5,10\n").expect("rows");
        let text = "[data.csv]\npath = \"a.csv\"\ntarget = \"y\"\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n\
                    loss = \"mse\"\n[optimizer.sgd]\nlr = 0.1\n";
        std::fs::write(&path, text).expect("a spec");
        for (more, is_shared) in [
            ("data.csv.validation_fraction=0", true),
            ("data.csv.validation_fraction=0.2", false),
            ("data.split={ validation = 0.2, seed = 3 }", true),
            ("data.split={ test = 0.2, validation = 0 }", true),
        ] {
            let axes = ["seed=1,2".to_owned(), more.to_owned()];
            let experiment = spec::load(&path, &axes).unwrap_or_else(|_| panic!("a spec"));
            let mut datasets = Datasets::new(&Machine::typical(Vec::new(), 1 << 30));
            let mut open = |trial: usize| datasets.open(&experiment.trials[trial].spec).ok();
            let [first, second] = [open(0), open(1)].map(|own| own.expect("rows"));
            assert_eq!(Arc::ptr_eq(&first, &second), is_shared, "{more}");
        }
    }

    /// Writes ten rows.
    fn array(path: &Path, columns: usize) {
        let shape = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': (10, {columns}), }}");
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        bytes.extend(format!("{shape:<117}\n").into_bytes());
        bytes.extend((0..10 * columns).flat_map(|i| (i as f32).to_le_bytes()));
        std::fs::write(path, bytes).expect("an array");
    }

    /// On GPUs, rows to be streamed are read when a trial begins, and only where memory has room for them.
    #[test]
    fn streamed_rows_are_read_when_a_trial_begins() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.toml");
        let text = "[data]\nplacement = \"streamed\"\n[data.npy]\nfeatures = \"x.npy\"\nlabels = \"y.npy\"\n[devices]\n\
                    num_gpus = 1\n[model]\nlayers = [{ linear = { out_features = 1 } }]\nloss = \"mse\"\n\
                    [optimizer.sgd]\nlr = 0.1\n";
        std::fs::write(&path, text).expect("a spec");
        array(&folder.path().join("x.npy"), 100);
        array(&folder.path().join("y.npy"), 1);
        let experiment = spec::load(&path, &[]).unwrap_or_else(|_| panic!("a spec"));
        let spec = &experiment.trials[0].spec;
        let gpu = plan::Gpu { is_virtual: false, ..plan::Gpu::virtual_of(1 << 30) };
        for (memory, is_read) in [(1 << 30, true), (10_000, false)] {
            let mut datasets = Datasets::new(&Machine::typical(vec![gpu.clone()], memory));
            let opened = datasets.open(spec).expect("rows");
            assert_eq!(
                [opened.train.in_memory(), opened.facts().in_file(), opened.is_read_at_start],
                [false, !is_read, is_read]
            );
            let read = datasets.read(spec, Arc::clone(&opened)).expect("rows");
            assert_eq!(read.train.in_memory(), is_read);
            assert_eq!((read.facts(), &read.digest), (opened.facts(), &opened.digest));
            let opened = datasets.open(spec).expect("rows");
            assert!(Arc::ptr_eq(&datasets.read(spec, opened).expect("rows"), &read), "it is read once");
        }
    }

    /// Rows that wait for later trials give way to those that do not fit beside them.
    #[test]
    fn no_more_rows_are_kept_than_memory_holds() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.toml");
        let text = "[data]\nplacement = \"resident\"\n[data.npy]\nfeatures = \"x.npy\"\nlabels = \"y.npy\"\n[model]\n\
                    layers = [{ linear = { out_features = 1 } }]\nloss = \"mse\"\n[optimizer.sgd]\nlr = 0.1\n";
        std::fs::write(&path, text).expect("a spec");
        for (name, columns) in [("x.npy", 100), ("x2.npy", 100), ("x3.npy", 10), ("y.npy", 1)] {
            array(&folder.path().join(name), columns);
        }
        let axis = "data.npy.features=x.npy,x2.npy,x3.npy".to_owned();
        let experiment = spec::load(&path, &[axis]).unwrap_or_else(|_| panic!("a spec"));
        let kept = |memory: u64, trials: [usize; 2]| {
            let mut datasets = Datasets::new(&Machine::typical(Vec::new(), memory));
            for trial in trials {
                let opened = datasets.open(&experiment.trials[trial].spec).expect("rows");
                assert!(opened.train.in_memory());
            }
            datasets.kept.len()
        };
        // 4 kB of features each, and 0.4 kB.
        assert_eq!(
            [kept(9_000, [0, 1]), kept(6_000, [0, 1]), kept(6_000, [0, 2]), kept(4_200, [2, 0])],
            [2, 1, 2, 1]
        );
    }

    #[test]
    fn the_rows_used_longest_ago_give_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.toml");
        let text = "[data.synthetic_regression]\nweights = [1.0]\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n\
                    loss = \"mse\"\n[optimizer.sgd]\nlr = 0.1\n";
        std::fs::write(&path, text).expect("a spec");
        let experiment = spec::load(&path, &["seed=0,1,2".to_owned()]).unwrap_or_else(|_| panic!("a spec"));
        let mut datasets = Datasets::new(&Machine::typical(Vec::new(), 1 << 30));
        datasets.kept.small_bytes = 0;
        let mut open = |trial: usize| datasets.open(&experiment.trials[trial].spec).expect("rows");
        let [first, second] = [0, 1].map(&mut open);
        assert!(Arc::ptr_eq(&open(0), &first));
        open(2);
        assert!(Arc::ptr_eq(&open(0), &first));
        assert!(!Arc::ptr_eq(&open(1), &second));
    }

    /// Uses three data sets, one more than the cache holds, so that the first is read again as in a sweep.
    #[test]
    fn files_that_are_read_again_must_be_what_they_were() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, csv) = (folder.path().join("x.toml"), folder.path().join("a.csv"));
        let text = "[data.csv]\npath = \"a.csv\"\ntarget = \"y\"\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n\
                    loss = \"mse\"\n[optimizer.sgd]\nlr = 0.1\n";
        std::fs::write(&path, text).expect("a spec");
        std::fs::write(&csv, "x,y\n1,2\n2,4\n3,6\n4,8\n5,10\n").expect("rows");
        let experiment = spec::load(&path, &["seed=1,2,3".to_owned()]).unwrap_or_else(|_| panic!("a spec"));
        let machine = Machine::typical(Vec::new(), 1 << 30);
        // Whether or not their table is kept.
        for planned in [1, 3] {
            std::fs::write(&csv, "x,y\n1,2\n2,4\n3,6\n4,8\n5,10\n").expect("rows");
            let mut datasets = Datasets::new(&machine);
            datasets.kept.small_bytes = 0;
            datasets.begin_planning(planned);
            for trial in &experiment.trials {
                assert!(datasets.open(&trial.spec).is_ok());
            }
            datasets.end_planning();
            assert_eq!(datasets.tables.bytes() > 0, planned > 1);
            let first = &experiment.trials[0].spec;
            assert!(datasets.open(first).is_ok());
            std::fs::write(&csv, "x,y\n1,2\n2,4\n3,6\n4,8\n5,11.0\n").expect("rows");
            assert!(datasets.open(first).is_ok(), "it is still held");
            let problem = Problem::at_key("data", format!("`{}` is not the file it was", csv.display()))
                .hint("start again once nothing writes to it");
            assert_eq!(datasets.open(&experiment.trials[1].spec).err(), Some(vec![problem]));
        }
        let mut datasets = Datasets::new(&machine);
        // Weights are read for every trial.
        let weights = folder.path().join("w.safetensors");
        let mut seen = |text: &str| {
            std::fs::write(&weights, text).expect("a file");
            datasets
                .see(FileFingerprint::from_path(&weights).as_slice(), "model.init.file")
                .map_err(|problem| problem.place)
        };
        assert_eq!(seen("1"), Ok(()));
        assert_eq!(seen("12"), Err(spec::Location::Key("model.init.file".to_owned())));
    }
}
