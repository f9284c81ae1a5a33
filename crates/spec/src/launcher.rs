//! `[launcher.slurm]`: how a sweep's trials are submitted to a cluster.

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer};
use serde_json::json;

use super::{
    duration::{self, seconds},
    reader::{Item, Read, some, table},
    tree::Value,
};

/// Schema text of the table.
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
    /// Options of a Slurm job array. Each of its tasks claims trials one after the other.
    pub struct Slurm {
        /// Tasks, each of which claims one trial after the other, and after `%` how many run at a time, as in `"256%32"`; by default one for each trial, 256 at most.
        pub array: Option<ArraySize> = None,
        /// A task's time limit, such as `"90m"`, or as `sbatch` takes it: `"1:30:00"`, `"2-12"`. Two minutes before it, or a quarter of a shorter one, the task saves a checkpoint and is requeued.
        pub time: Option<Duration> [serialize_with = "seconds"] = None => some(time_limit),
        /// Lines of shell that a task begins with, such as `module load cuda`.
        pub setup: Option<String> = None,
        /// Options of `sbatch`, as `"--partition=gpu"`, `"--gpus=1"` or `"--mem=16G"`.
        pub extra: Vec<String> [skip_serializing_if = "Vec::is_empty"] = Vec::new() => options,
    }
}

/// The size of a job array, and how many of its tasks run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArraySize {
    /// At least 1.
    pub tasks: u32,
    /// How many tasks run at a time; `None` for no limit.
    pub throttle: Option<u32>,
}

impl ArraySize {
    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
        let (tasks, throttle) =
            text.split_once('%').map_or((text, None), |(tasks, most)| (tasks, Some(most)));
        let throttle = match throttle {
            Some(text) => Some(number(text)?),
            None => None,
        };
        Some(Self { tasks: number(tasks)?, throttle })
    }
}

impl fmt::Display for ArraySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tasks)?;
        self.throttle.map_or(Ok(()), |throttle| write!(f, "%{throttle}"))
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
        let stand_in = Self { tasks: 1, throttle: None };
        v.custom("a number of tasks, such as 256, or `256%32`", schema, stand_in, |v| match v {
            Value::Integer(tasks) => Self::parse(&tasks.to_string()),
            Value::String(text) => Self::parse(text),
            _ => None,
        })
    }
}

/// Whether a text may be part of an `#SBATCH` line of the script.
fn fits_line(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_control())
}

/// Parses the time formats of `sbatch` except a number alone: `minutes:seconds`, `hours:minutes:seconds`,
/// `days-hours[:minutes[:seconds]]`.
fn parse_time(text: &str) -> Option<Duration> {
    let (days, rest) = text.split_once('-').map_or((None, text), |(days, rest)| (Some(days), rest));
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| !text.starts_with('+')).map(u64::from);
    let parts: Vec<u64> = rest.split(':').map(number).collect::<Option<_>>()?;
    let [hours, minutes, seconds] = match (days, &parts[..]) {
        (None, &[minutes, seconds]) => [0, minutes, seconds],
        (Some(_), &[hours]) => [hours, 0, 0],
        (Some(_), &[hours, minutes]) => [hours, minutes, 0],
        (_, &[hours, minutes, seconds]) => [hours, minutes, seconds],
        _ => return None,
    };
    let hours = days.map_or(Some(0), number)? * 24 + hours;
    Some(Duration::from_secs((hours * 60 + minutes) * 60 + seconds))
}

fn time_limit(v: Item<'_>) -> Duration {
    let schema = json!({ "type": "string", "pattern": r"^[0-9][0-9.:dhms-]*$" });
    let hint = "a number alone is minutes to `sbatch`: write `90m`";
    let read = |v: &Value| {
        let text = v.as_str()?;
        duration::parse(text).or_else(|| parse_time(text)).filter(|d| !d.is_zero())
    };
    let expected = "a time above 0, such as `90m`, `1:30:00` or `2-12`";
    v.custom_hinted(expected, schema, Duration::from_secs(1), Some(hint.to_owned()), read)
}

/// Options that the launcher sets itself, or that would hide the job's number from it.
const OWN_OPTIONS: [&str; 15] = [
    "--job-name",
    "-J",
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

/// What an option must be.
pub(super) const OPTION: &str = "an option of `sbatch` that the launcher does not set itself, as it does array, job name, output, signal and \
                      time, such as `--mem=16G`";

pub(super) fn is_option(text: &str) -> bool {
    text.starts_with('-') && fits_line(text) && !is_own(text)
}

fn options(v: Item<'_>) -> Vec<String> {
    v.list(0..=1000, |v| {
        let schema = json!({ "type": "string", "pattern": "^--?[A-Za-z]" });
        v.custom(OPTION, schema, "--mem=1G".to_owned(), |v| {
            v.as_str().filter(|text| is_option(text)).map(str::to_owned)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_sbatch_reads_them() {
        let s = |text: &str| parse_time(text).map(|time| time.as_secs());
        assert_eq!(s("90:30"), Some(5430));
        assert_eq!(s("1:00:00"), Some(3600));
        assert_eq!(s("2-12"), Some(216_000));
        assert_eq!(s("1-0:30"), Some(88_200));
        assert_eq!(s("1-02:03:04"), Some(93_784));
        for bad in ["", "60", "-1", "1-", "1:2:3:4", "1-2:3:4:5", "+1:00", "1::0", "1h:2", "4294967296:0"] {
            assert_eq!(s(bad), None, "{bad}");
        }
    }
}
