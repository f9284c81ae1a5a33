//! Runs the program as a user does: a spec in its own folder, a command, an exit code, files.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicUsize, Ordering},
};

use safetensors::SafeTensors;

/// The binary under test.
pub const RUNNER: &str = env!("CARGO_BIN_EXE_runner");

/// The binary under test. Its path is read from the environment if it was copied to another machine with the
/// tests.
pub fn binary() -> OsString {
    std::env::var_os("RUNNER_BINARY").unwrap_or_else(|| RUNNER.into())
}

/// A temporary folder with a spec in it.
pub struct Sandbox {
    folder: tempfile::TempDir,
    spec: PathBuf,
    count: AtomicUsize,
}

impl Sandbox {
    /// Writes `spec.toml`.
    pub fn new(spec: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("spec.toml"), spec).unwrap();
        Self { folder, spec: PathBuf::from("spec.toml"), count: AtomicUsize::new(0) }
    }

    /// For a spec in another folder.
    pub fn with_spec(spec: &Path) -> Self {
        Self { spec: spec.to_owned(), ..Self::new("") }
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `runner ARGUMENTS` within the folder.
    pub fn runner(&self, arguments: &[&str]) -> Ended {
        Ended::from_output(self.command(arguments).output().unwrap())
    }

    /// The command, not yet started.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(self.path());
        command.env_remove("RUNNER_RUNS_DIR");
        // Rates cached on this machine must not affect tests. On real hardware, where compiling kernels takes
        // seconds, all tests share one cache, which scripts/gpu-check sets.
        if std::env::var_os("RUNNER_REQUIRE_CUDA").is_none() {
            command.env("RUNNER_CACHE_DIR", self.path().join("cache"));
        }
        command
    }

    /// Runs the spec into a runs folder of its own.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let (mut command, runs) = self.prepared(arguments);
        Ran { ended: Ended::from_output(command.output().unwrap()), runs }
    }

    /// The command of [`Sandbox::run`], and the runs folder that it will create.
    pub fn prepared(&self, arguments: &[&str]) -> (Command, PathBuf) {
        let runs = self.path().join(format!("runs-{}", self.count.fetch_add(1, Ordering::Relaxed)));
        let mut command = self.command(&[]);
        command.arg(&self.spec).args(arguments).arg("--runs-dir").arg(&runs);
        (command, runs)
    }
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn from_output(output: Output) -> Self {
        let text = |bytes: Vec<u8>| without_build(&String::from_utf8(bytes).unwrap());
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Itself, after an exit with `code`.
    #[track_caller]
    pub fn ended_by(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// The line that a debug build prints wherever it shows times.
pub const DEBUG_BUILD: &str = "debug: its times say nothing of a release build (`cargo build --release`)";

/// The output without that line; tests mostly run a debug build.
pub fn without_build(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.trim_end().ends_with(DEBUG_BUILD)).collect()
}

/// A process that ran a spec.
pub struct Ran {
    pub ended: Ended,
    /// Its `--runs-dir`.
    pub runs: PathBuf,
}

impl Ran {
    /// The folder of the only run.
    pub fn folder(&self) -> Folder {
        Folder::within(&self.runs).unwrap_or_else(|| panic!("not one run: {:?}", self.ended))
    }

    /// The folder of the only run, after an exit with `code`.
    #[track_caller]
    pub fn ended_by(&self, code: i32) -> Folder {
        assert_eq!(self.ended.code, Some(code), "{:?}", self.ended);
        self.folder()
    }
}

/// A run folder.
pub struct Folder(pub PathBuf);

impl Folder {
    /// The only run folder in a runs folder.
    pub fn within(runs: &Path) -> Option<Self> {
        let only = |folder: &Path| {
            let mut inner = fs::read_dir(folder).ok()?.map(|entry| entry.unwrap().path());
            let first = inner.next()?;
            inner.next().is_none().then_some(first)
        };
        only(&only(runs)?).map(Self)
    }

    /// The text of a file.
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_else(|e| panic!("{}/{name}: {e}", self.0.display()))
    }

    /// A file's rows.
    pub fn table(&self, name: &str) -> Table {
        Table::read(&self.text(name))
    }

    /// `metrics.csv`.
    pub fn metrics(&self) -> Table {
        self.table("metrics.csv")
    }

    /// `metrics.csv` without times: these columns must repeat bit for bit.
    pub fn numbers(&self) -> String {
        let text = self.text("metrics.csv");
        text.lines().map(|line| format!("{}\n", line.rsplit_once(',').unwrap().0)).collect()
    }

    /// The bytes of the model file.
    pub fn model(&self) -> Vec<u8> {
        fs::read(self.0.join("model.safetensors")).unwrap()
    }

    /// A cell of `summary.csv`.
    pub fn summary(&self, column: &str) -> String {
        self.table("summary.csv").cell(0, column).to_owned()
    }

    /// Names of its files, sorted.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        // The claims of a sweep are not listed.
        names.retain(|name| name != ".claims");
        names.sort();
        names
    }
}

/// Rows under a header.
#[derive(Debug)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Parses strictly: every row must have a cell for every column.
    pub fn read(text: &str) -> Self {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let columns = reader.headers().unwrap().iter().map(str::to_owned).collect();
        let rows = reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect();
        Self { columns, rows }
    }

    /// A cell by row and column.
    pub fn cell(&self, row: usize, column: &str) -> &str {
        &self.rows[row][self.index(column)]
    }

    /// All cells of a column.
    pub fn column(&self, name: &str) -> Vec<&str> {
        let index = self.index(name);
        self.rows.iter().map(|row| row[index].as_str()).collect()
    }

    /// A column of numbers.
    pub fn f64s(&self, name: &str) -> Vec<f64> {
        self.column(name).iter().map(|cell| cell.parse().unwrap_or_else(|e| panic!("{cell}: {e}"))).collect()
    }

    /// The rows whose `column` is `value`.
    pub fn only(self, column: &str, value: &str) -> Self {
        let index = self.index(column);
        let rows = self.rows.into_iter().filter(|row| row[index] == value).collect();
        Self { rows, ..self }
    }

    fn index(&self, column: &str) -> usize {
        let index = self.columns.iter().position(|name| name == column);
        index.unwrap_or_else(|| panic!("no column {column} among {:?}", self.columns))
    }
}

/// The tensors of a safetensors file: shape and numbers by name.
pub fn tensors(bytes: &[u8]) -> HashMap<String, (Vec<usize>, Vec<f32>)> {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let numbers = |data: &[u8]| {
        data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect::<Vec<f32>>()
    };
    file.iter().map(|(name, view)| (name.to_owned(), (view.shape().to_vec(), numbers(view.data())))).collect()
}

/// A Python that has `module`: `RUNNER_PYTHON`, or `python3`. Prints a line if there is none; in CI that is a failure.
pub fn python_with(module: &str) -> Option<PathBuf> {
    let python = std::env::var_os("RUNNER_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let found = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let is_ci = std::env::var_os("CI").is_some();
    assert!(!is_ci, "CI must have Python's module `{module}` (tests/python/requirements.txt)");
    println!("skipped: {} has no module `{module}` (RUNNER_PYTHON names another Python)", python.display());
    None
}
