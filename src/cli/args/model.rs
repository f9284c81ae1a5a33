//! Options of the commands that use a run's model.

use std::path::PathBuf;

use clap::{
    Args, ValueEnum,
    builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser},
};

use super::complete::run_path;
use crate::{data::Marks, spec::separator};

/// What a build without it says of its feature.
pub const NO_PARQUET: &str =
    "This build has no Parquet: build it with `cargo build --release --features parquet`";

/// A path in whose place `-` has no meaning.
pub(super) fn named() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("`-` is no file here: name one"),
        false => Ok(path),
    })
}

/// Says of an option for Parquet files if this build has none, and how to get one.
pub(super) fn with_parquet(option: clap::Arg) -> clap::Arg {
    let help = option.get_help().filter(|_| !cfg!(feature = "parquet"));
    match help.map(ToString::to_string) {
        Some(help) => option.help(format!("{help}. {NO_PARQUET}")),
        None => option,
    }
}

#[derive(Args)]
pub struct ModelOptions {
    /// The run's folder, or a folder or glob that holds one run; the model of a sweep is that of its best trial
    #[arg(value_name = "RUN", add = run_path())]
    pub run: String,
    /// Use the last weights, not those of the best validation
    #[arg(long)]
    pub last: bool,
}

/// Several models of a sweep in place of one.
#[derive(Args)]
pub struct ModelsOptions {
    /// Use the mean of all models of the sweep's best setting, which differ in seeds or folds
    #[arg(long)]
    pub ensemble: bool,
    /// Take the rows that the sweep's folds validated with, each by the models of the best setting that did not train on it
    #[arg(long, conflicts_with_all = ["data", "ensemble", "unknown_category", "delimiter", "decimal"])]
    pub out_of_fold: bool,
}

/// The marks of a CSV file.
#[derive(Args)]
pub struct MarkOptions {
    /// What separates the cells of a CSV file, such as `;`; `\t` is a tab [default: the training file's]
    #[arg(long, value_name = "CHARACTER", value_parser = separator_of)]
    pub delimiter: Option<char>,
    /// The mark before decimals in a CSV file [default: the training file's]
    #[arg(long, value_name = "MARK", value_parser = PossibleValuesParser::new([".", ","]).map(|mark| mark.chars().next().unwrap_or('.')))]
    pub decimal: Option<char>,
}

impl MarkOptions {
    pub fn marks(&self) -> Marks {
        Marks { delimiter: self.delimiter, decimal: self.decimal }
    }
}

fn of_data(option: clap::Arg) -> clap::Arg {
    if is_mark(&option) { option.requires("data") } else { option }
}

/// Whether it is one of [`MarkOptions`].
pub fn is_mark(option: &clap::Arg) -> bool {
    ["delimiter", "decimal"].contains(&option.get_id().as_str())
}

fn separator_of(word: &str) -> Result<char, String> {
    let found = if word == "\\t" { Some('\t') } else { separator(word) };
    found.ok_or_else(|| "expected one ASCII character that separates cells, such as `;`".to_owned())
}

/// How a class is chosen of two.
#[derive(Args)]
pub struct DecisionOptions {
    /// For models of two classes: predict the positive class where its probability is at least P, otherwise the other [default: the
    /// more probable one]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = threshold_of)]
    pub threshold: Option<f64>,
    /// The class that counts as positive, of two [default: the second]
    #[arg(long, value_name = "CLASS", allow_negative_numbers = true)]
    pub positive: Option<String>,
}

fn threshold_of(word: &str) -> Result<f64, String> {
    // Compared as f32: every row reaches 0, and none more than 1.
    let is_probability = |value: &f64| (*value as f32) > 0.0 && *value <= 1.0;
    let found = word.parse().ok().filter(is_probability);
    found.ok_or_else(|| "expected a probability above 0 and at most 1, such as 0.3".to_owned())
}

fn with_threshold(option: clap::Arg) -> clap::Arg {
    option.requires("threshold")
}

/// What becomes of rows with a category that the training file lacks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CategoryRule {
    Error,
    Ignore,
}

#[derive(Args)]
#[command(mut_arg("data", with_parquet), mut_arg("positive", with_threshold))]
pub struct PredictOptions {
    #[command(flatten)]
    pub model: ModelOptions,
    /// The rows: a CSV or Parquet file with the columns of the training file, gzipped or not; `-` reads it from standard input. For a
    /// model trained on arrays, an npy or IDX file
    #[arg(value_name = "DATA", required_unless_present = "out_of_fold", value_hint = clap::ValueHint::FilePath)]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub models: ModelsOptions,
    /// Write to FILE; earlier predictions there are replaced once all is written [default: standard output]
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Replace whatever FILE holds
    #[arg(long, requires = "out")]
    pub force: bool,
    /// Print these columns of the table before the predictions: `--keep id,date`
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', conflicts_with = "out_of_fold")]
    pub keep: Vec<String>,
    #[command(flatten)]
    pub decision: DecisionOptions,
    #[command(flatten)]
    pub marks: MarkOptions,
    /// Rows with a category that the training file lacks: an error, or all inputs of the column 0
    #[arg(long, value_name = "HOW", value_enum, default_value_t = CategoryRule::Error)]
    pub unknown_category: CategoryRule,
    /// Do not say which weights are used
    #[arg(short, long, overrides_with = "quiet")]
    pub quiet: bool,
}

#[derive(Args)]
#[command(mut_args(of_data))]
pub struct EvaluateOptions {
    #[command(flatten)]
    pub model: ModelOptions,
    /// The rows, as for `predict`, with their labels [default: those that `data.split.test` kept from the run]
    #[arg(value_name = "DATA", value_hint = clap::ValueHint::FilePath)]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub models: ModelsOptions,
    /// Evaluate the rows that the run validated with
    #[arg(long, conflicts_with_all = ["data", "out_of_fold", "unknown_category", "delimiter", "decimal"])]
    pub validation: bool,
    #[command(flatten)]
    pub decision: DecisionOptions,
    /// Show precision, recall and f1 of the positive class at several thresholds, also where its f1 is highest
    #[arg(long)]
    pub thresholds: bool,
    #[command(flatten)]
    pub marks: MarkOptions,
    /// Rows with a category that the training file lacks: an error, or all inputs of the column 0
    #[arg(long, value_name = "HOW", value_enum, default_value_t = CategoryRule::Error)]
    pub unknown_category: CategoryRule,
    /// The labels of arrays
    #[arg(long, value_name = "FILE", requires = "data", conflicts_with = "out_of_fold", value_hint = clap::ValueHint::FilePath)]
    pub labels: Option<PathBuf>,
    /// Say which columns the model relies on: how much worse it is with the values of each permuted among the rows
    #[arg(long, conflicts_with_all = ["threshold", "positive", "ensemble", "out_of_fold"])]
    pub importance: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Do not say which weights are used
    #[arg(short, long, overrides_with = "quiet")]
    pub quiet: bool,
}

#[derive(Args)]
#[command(mut_arg("parquet", with_parquet))]
#[group(id = "format", required = true, multiple = false, args = ["onnx", "mlflow", "parquet"])]
pub struct ExportOptions {
    #[command(flatten)]
    pub model: ModelOptions,
    /// Write the model to FILE for ONNX Runtime, with what was done to the columns of its training file
    #[arg(long, value_name = "FILE", value_parser = named(), value_hint = clap::ValueHint::FilePath)]
    pub onnx: Option<PathBuf>,
    /// Categories that the training file lacks: an error of ONNX Runtime, or all inputs of the column 0
    #[arg(long, value_name = "HOW", value_enum, default_value_t = CategoryRule::Error, conflicts_with_all = ["mlflow", "parquet"])]
    pub unknown_category: CategoryRule,
    /// Write the run, or a sweep with its trials, into the MLflow file store DIR
    #[arg(long, value_name = "DIR", value_parser = named(), value_hint = clap::ValueHint::DirPath, conflicts_with = "last")]
    pub mlflow: Option<PathBuf>,
    /// Write the rows of `metrics.csv`, of a sweep those of all trials, into the Parquet FILE
    #[arg(long, value_name = "FILE", value_parser = named(), value_hint = clap::ValueHint::FilePath, conflicts_with = "last")]
    pub parquet: Option<PathBuf>,
    /// Print the path alone
    #[arg(short, long, overrides_with = "quiet")]
    pub quiet: bool,
}
