//! What each fuzz target does with its bytes: it writes files into a folder and runs commands on them. The
//! bytes come from libFuzzer, or from a test that replays the corpus.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use twox_hash::XxHash3_64;

/// All targets except `serve`, which takes a request.
pub const TARGETS: [&str; 12] = [
    "spec",
    "overrides",
    "sweep",
    "csv",
    "idx",
    "npy",
    "parquet",
    "safetensors",
    "runs",
    "checkpoint",
    "predict",
    "names",
];

/// Separates the parts of an input that consists of several files.
const SEPARATOR: &[u8] = b"\n%%\n";

/// Where a case finds the trained run.
const RUN: &str = "runs/t/model";

const DATA: &str =
    "a,b,kind,y\n0.1,0,x,0\n0.8,1,y,1\n0.7,2,z,0\n0.2,3,x,1\n0.4,4,y,0\n0.4,5,z,1\n0.6,6,x,0\n0.9,7,y,1\n";

/// A spec without its data, for two classes.
const TRAINING: &str = r#"
[model]
layers = [{ linear = { out_features = 3 } }, "relu", { linear = { out_features = 2 } }]
loss = "cross_entropy"
[optimizer.adam]
lr = 0.01
[trainer]
max_epochs = 2
monitor = "validation.loss"
[checkpoint]
every_epochs = 1
"#;

const CSV: &str =
    "[data.csv]\npath = \"rows.csv\"\ntarget = \"y\"\ncategorical = [\"kind\"]\nmissing = \"mean\"\n";
const PARQUET: &str = "[data.parquet]\npath = \"rows.parquet\"\ntarget = \"y\"\nmissing = \"mean\"\n";
const IDX: &str = "[data.idx]\nimages = \"images\"\nlabels = \"labels\"\n";
const NPY: &str = "[data.npy]\nfeatures = \"x.npy\"\nlabels = \"y.npy\"\n";

/// How a command ended.
pub enum Ended {
    /// With an exit code of its own.
    InOrder,
    /// By a panic or a signal; with its output.
    #[allow(dead_code, reason = "within libFuzzer's process a panic ends all")]
    Broken(String),
}

type Files = Vec<(String, Vec<u8>)>;

/// Runs `runner ARGUMENTS` in the folder of cases.
type Runner<'a> = &'a dyn Fn(&[String]) -> Ended;

/// A folder in which cases run, one after another.
pub struct Cases {
    /// Everything that a case can reach. The folder of cases lies within it, so that a path with `..` ends up
    /// in a place that is checked.
    top: PathBuf,
    pub folder: PathBuf,
    /// The files of the trained run, by path within the folder.
    trained: Files,
}

impl Cases {
    /// Trains a model with the program, in a new folder.
    pub fn new(top: &Path, runner: Runner<'_>) -> Self {
        let folder = top.join("outside/cases");
        fs::create_dir_all(&folder).expect("a folder");
        let mut cases = Self { top: top.join("outside"), folder, trained: Vec::new() };
        cases.write(&[("train.toml".into(), spec(CSV)), ("rows.csv".into(), DATA.into())]);
        let within = |path: &str| cases.folder.join(path).to_string_lossy().into_owned();
        let arguments = [within("train.toml"), "-q".into(), "--runs-dir".into(), within("runs")];
        assert!(matches!(runner(&arguments), Ended::InOrder), "no model was trained");
        let mut trained = BTreeMap::new();
        read(&cases.folder.join("runs"), &mut trained);
        assert!(!trained.is_empty(), "no model was trained");
        let run = fs::read_dir(cases.folder.join("runs/train"))
            .expect("a run")
            .next()
            .expect("a run")
            .expect("a run");
        let name = |path: &PathBuf| Some(format!("{RUN}/{}", path.strip_prefix(run.path()).ok()?.to_str()?));
        cases.trained = trained.into_iter().filter_map(|(path, bytes)| Some((name(&path)?, bytes))).collect();
        cases
    }

    /// Writes the files of a case and runs its commands. Panics if one of them crashes, or if anything
    /// changed except run folders and requested outputs.
    pub fn run(&self, target: &str, bytes: &[u8], runner: Runner<'_>) {
        for entry in fs::read_dir(&self.folder).expect("the folder of cases").flatten() {
            let path = entry.path();
            let _ = if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
        }
        let (files, commands) = self.case(target, bytes);
        self.write(&files);
        let before = self.outside();
        for command in commands {
            if let Ended::Broken(said) = runner(&command) {
                panic!("{target}: {command:?} broke: {said}");
            }
            let after = self.outside();
            let changed: Vec<_> =
                after.iter().filter(|(path, bytes)| before.get(*path) != Some(bytes)).collect();
            let gone: Vec<_> = before.keys().filter(|path| !after.contains_key(*path)).collect();
            assert!(
                changed.is_empty() && gone.is_empty(),
                "{target}: {command:?} wrote {changed:?}, removed {gone:?}"
            );
        }
    }

    /// All files except those in the runs folder and those that a command was asked to write.
    fn outside(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        read(&self.top, &mut files);
        let (runs, asked) = (self.folder.join("runs"), self.folder.join("out"));
        files.retain(|path, _| !path.starts_with(&runs) && !path.starts_with(&asked));
        files
    }

    fn write(&self, files: &[(String, Vec<u8>)]) {
        for (name, bytes) in files {
            let path = self.folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, bytes).expect("a file");
        }
    }

    /// The files and the commands of a target.
    fn case(&self, target: &str, bytes: &[u8]) -> (Files, Vec<Vec<String>>) {
        let parts = parts(bytes);
        let mut files: Files = vec![
            ("rows.csv".into(), DATA.into()),
            ("x.npy".into(), npy("<f4", "(4, 2)", &[63; 32])),
            ("y.npy".into(), npy("|u1", "(4,)", &[0, 1, 0, 1])),
            ("out/.keep".into(), Vec::new()),
        ];
        let mut put = |name: &str, bytes: &[u8]| files.push((name.to_owned(), bytes.to_owned()));
        let commands = match target {
            "spec" => {
                put("spec.toml", bytes);
                commands(&["check spec.toml"])
            }
            "sweep" => {
                put("spec.toml", &[&spec(CSV), &b"[sweep]\n"[..], bytes].concat());
                commands(&["check spec.toml"])
            }
            "overrides" => {
                put("spec.toml", &spec(CSV));
                let text = String::from_utf8_lossy(bytes).replace('\0', "");
                vec![["check", "spec.toml"].into_iter().chain(text.lines()).map(str::to_owned).collect()]
            }
            "csv" => {
                put("spec.toml", &spec(CSV));
                put("rows.csv", bytes);
                commands(&[
                    "check spec.toml",
                    "check spec.toml data.csv.header=false data.csv.target=3 data.csv.categorical=[\"2\"] \
                     data.csv.missing=drop data.split.validation=0.3 data.split.stratify=true",
                    "new csv --from rows.csv",
                ])
            }
            "idx" => {
                put("spec.toml", &spec(IDX));
                put("images", parts[0]);
                put("labels", parts.get(1).copied().unwrap_or(b"\0\0\x08\x01\0\0\0\x03\0\x01\0"));
                commands(&["check spec.toml"])
            }
            "npy" => {
                put("spec.toml", &spec(NPY));
                put("x.npy", parts[0]);
                parts.get(1).iter().for_each(|labels| put("y.npy", labels));
                commands(&["check spec.toml", "check spec.toml model.loss=mse data.npy.standardize=true"])
            }
            "parquet" => {
                put("spec.toml", &spec(PARQUET));
                put("rows.parquet", bytes);
                commands(&["check spec.toml", "check spec.toml model.loss=mse data.split.validation=0.3"])
            }
            "safetensors" => {
                files.extend(self.trained.iter().cloned());
                let both = ["init.safetensors".to_owned(), format!("{RUN}/best.safetensors")];
                files.extend(both.map(|name| (name, bytes.to_owned())));
                let init = format!("{CSV}[model]\ninit = {{ file = \"init.safetensors\" }}\n");
                files.push((
                    "spec.toml".to_owned(),
                    format!("{init}{}", TRAINING.replace("[model]\n", "")).into(),
                ));
                let [predict, onnx] =
                    ["predict RUN rows.csv -o out/p.csv", "export RUN --onnx out/model.onnx"]
                        .map(|c| c.replace("RUN", RUN));
                commands(&["check spec.toml", &predict, &onnx])
            }
            "runs" => {
                files.extend(self.trained.iter().cloned());
                let names = [
                    "metrics.csv",
                    "summary.csv",
                    "spec.toml",
                    "environment.toml",
                    "timing.csv",
                    "transfers.csv",
                    "run.lock",
                    "../sweep.csv",
                    "../sweep.toml",
                    "rows.csv",
                    "run.log",
                ];
                let given = names.into_iter().zip(parts).filter(|(_, part)| !part.is_empty());
                files.extend(given.map(|(name, part)| (format!("{RUN}/{name}"), part.to_owned())));
                commands(&[
                    "list runs",
                    "show runs/t/model",
                    "compare runs --detail --times",
                    "diff runs/t/model runs/t",
                    "plot runs",
                    "report runs -o out/page.html",
                    "clean runs --older-than 1s --yes",
                ])
            }
            "checkpoint" => {
                files.extend(self.trained.iter().cloned());
                let at = |ending: &str| {
                    let found = self
                        .trained
                        .iter()
                        .find(|(name, _)| name.contains("/checkpoints/") && name.ends_with(ending));
                    found.expect("a checkpoint").0.clone()
                };
                // Its first line is a digest, which mutations would never get right.
                let text = String::from_utf8_lossy(parts[0]);
                let toml = format!("digest = \"{:016x}\"\n{text}", XxHash3_64::oneshot(text.as_bytes()));
                files.push((at(".toml"), toml.into()));
                parts.get(1).iter().for_each(|arrays| files.push((at(".safetensors"), arrays.to_vec())));
                commands(&[&format!("run --resume {RUN} -q trainer.max_epochs=3")])
            }
            "predict" => {
                files.extend(self.trained.iter().cloned());
                files.push(("new.csv".to_owned(), bytes.to_owned()));
                let both = [format!("predict {RUN} new.csv -o out/p.csv"), format!("evaluate {RUN} new.csv")];
                commands(&both.each_ref().map(String::as_str))
            }
            "names" => {
                let text = String::from_utf8_lossy(bytes);
                let mut lines = text.split('\n').map(toml_string);
                let mut next = || lines.next().unwrap_or_else(|| "\"x\"".to_owned());
                let (name, one, two, file) = (next(), next(), next(), next());
                let source =
                    "[data.synthetic_regression]\nweights = [2.0]\ntrain_rows = 4\nvalidation_rows = 2\n";
                let model =
                    "[model]\nlayers = [{ linear = { out_features = 1 } }]\n[optimizer.sgd]\nlr = 0.1\n";
                let rest = format!("[trainer]\nmax_epochs = 1\n[sweep.grid]\ndescription = [{one}, {two}]\n");
                put("spec.toml", format!("name = {name}\n{source}{model}{rest}").as_bytes());
                let steps = format!(
                    "[[tensors.step]]\nname = \"A\"\nones = [2]\n[[tensors.step]]\nsave = {{ tensors = [\"A\"], file = {file} }}\n"
                );
                put("tensors.toml", format!("kind = \"tensors\"\nname = {name}\n{steps}").as_bytes());
                commands(&["run spec.toml -q --jobs 1", "run tensors.toml -q", "compare runs", "list runs"])
            }
            other => panic!("no target `{other}`: {TARGETS:?}"),
        };
        (files, commands)
    }
}

/// The training spec with this data.
fn spec(data: &str) -> Vec<u8> {
    format!("[data]\nbatch_size = 4\n{data}{TRAINING}").into()
}

/// The words of each command, split at spaces.
fn commands(lines: &[&str]) -> Vec<Vec<String>> {
    lines.iter().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

fn parts(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut rest) = (Vec::new(), bytes);
    while let Some(at) = rest.windows(SEPARATOR.len()).position(|window| window == SEPARATOR) {
        parts.push(&rest[..at]);
        rest = &rest[at + SEPARATOR.len()..];
    }
    parts.push(rest);
    parts
}

/// A .npy file in version 1.0 of the format.
fn npy(kind: &str, shape: &str, numbers: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [&b"\x93NUMPY\x01\0"[..], &length, header.as_bytes(), numbers].concat()
}

/// Any text as a TOML string.
fn toml_string(text: &str) -> String {
    let escaped = text
        .chars()
        .map(|c| if c.is_alphanumeric() { c.to_string() } else { format!("\\U{:08X}", c as u32) });
    format!("\"{}\"", escaped.collect::<String>())
}

/// Reads all files below a folder, without following links.
fn read(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => read(&entry.path(), files),
            _ => drop(files.insert(entry.path(), fs::read(entry.path()).unwrap_or_default())),
        }
    }
}
