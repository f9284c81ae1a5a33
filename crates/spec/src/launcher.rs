//! `[launcher.slurm]`: how a cluster takes the trials of a sweep.

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer};
use serde_json::json;

use super::{
    duration::{read_time, seconds},
    reader::{Item, Read, count, some, table},
    tree::Value,
};

/// What the table is for.
pub(super) const DOC: &str =
    "how a cluster takes the trials of a sweep, with `--launcher`; none of a trial's own keys";

table! {
    /// The schedulers that a sweep may be submitted to.
    pub struct Launcher {
        /// The job array that `--launcher slurm` submits; what is not given is as the site has it.
        pub slurm: Slurm [default],
    }
}

table! {
    /// Options of a job array of Slurm, of which each task claims one trial after the other.
    pub struct Slurm {
        /// Tasks, each of which claims one trial after the other, and after `%` how many run at a time, as in `"256%32"`; by default one for each trial, 256 at most.
        pub array: Option<ArraySize> = None,
        /// The partition.
        pub partition: Option<String> = None => some(line),
        /// The account that is charged.
        pub account: Option<String> = None => some(line),
        /// GPUs of a task.
        pub gpus: Option<u64> = None => some(count),
        /// A task's time limit; two minutes before it, or a quarter of a shorter one, the task saves a checkpoint and is queued again.
        pub time: Option<Duration> [serialize_with = "seconds"] = None => some(read_time),
        /// Lines of shell that a task begins with, such as `module load cuda`.
        pub setup: Option<String> = None,
        /// More options of `sbatch`, as `"--mem=16G"`.
        pub extra: Vec<String> [skip_serializing_if = "Vec::is_empty"] = Vec::new() => options,
    }
}

/// Tasks of a job array, and how many of them run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArraySize {
    /// At least 1.
    pub tasks: u32,
    /// All of them, where it is absent.
    pub at_a_time: Option<u32>,
}

impl ArraySize {
    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
        let (tasks, at_a_time) = text.split_once('%').map_or((text, None), |(tasks, at)| (tasks, Some(at)));
        let at_a_time = match at_a_time {
            Some(text) => Some(number(text)?),
            None => None,
        };
        Some(Self { tasks: number(tasks)?, at_a_time })
    }
}

impl fmt::Display for ArraySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tasks)?;
        self.at_a_time.map_or(Ok(()), |at_a_time| write!(f, "%{at_a_time}"))
    }
}

impl Serialize for ArraySize {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Read for ArraySize {
    fn read(v: Item<'_>) -> Self {
        let text = json!({ "type": "string", "pattern": "^[1-9][0-9]{0,8}(%[1-9][0-9]{0,8})?$" });
        let schema = json!({ "oneOf": [{ "type": "integer", "minimum": 1, "maximum": 999_999_999 }, text] });
        let stand_in = Self { tasks: 1, at_a_time: None };
        v.custom("a number of tasks, such as 256, or `256%32`", schema, stand_in, |v| match v {
            Value::Integer(tasks) => Self::parse(&tasks.to_string()),
            Value::String(text) => Self::parse(text),
            _ => None,
        })
    }
}

/// A text for a line `#SBATCH` of a script.
fn fits_line(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_control())
}

fn line(v: Item<'_>) -> String {
    let schema = json!({ "type": "string", "minLength": 1 });
    v.custom("a text on one line", schema, "stand_in".to_owned(), |v| match v {
        Value::String(text) => Some(text.clone()).filter(|text| fits_line(text)),
        _ => None,
    })
}

/// Options that the launcher sets, or that would keep it from learning the job's number.
const OWN_OPTIONS: [&str; 13] = [
    "--array",
    "-a",
    "--output",
    "-o",
    "--time",
    "-t",
    "--signal",
    "--no-requeue",
    "--open-mode",
    "--wait",
    "-W",
    "--wrap",
    "--test-only",
];

fn is_own(option: &str) -> bool {
    let name = match option.starts_with("--") {
        true => option.split('=').next(),
        false => option.get(..2),
    };
    name.is_some_and(|name| OWN_OPTIONS.contains(&name))
}

fn options(v: Item<'_>) -> Vec<String> {
    v.list(0..=1000, |v| {
        let schema = json!({ "type": "string", "pattern": "^--?[A-Za-z]" });
        let what = "an option of `sbatch` that the launcher does not set itself, as it does array, output, signal and time, \
                    such as `--mem=16G`";
        v.custom(what, schema, "--mem=1G".to_owned(), |v| match v {
            Value::String(text) => {
                Some(text.clone()).filter(|text| text.starts_with('-') && fits_line(text) && !is_own(text))
            }
            _ => None,
        })
    })
}
