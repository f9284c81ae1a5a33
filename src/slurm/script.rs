//! The script of a job array.

use std::{fmt::Write, path::Path, time::Duration};

use crate::spec::{ArraySize, Slurm};

/// Tasks of an array for which the spec names no number.
const MOST_TASKS: usize = 256;

/// How long before the time limit a task begins to end.
const NOTICE: Duration = Duration::from_secs(120);

/// What a script is made of.
pub struct Script<'a> {
    /// The job's name.
    pub name: &'a str,
    /// Where the files are of what tasks print.
    pub folder: &'a Path,
    pub array: ArraySize,
    pub options: &'a Slurm,
    /// Whether a trial that was interrupted goes on where it was, so that a task may be queued again.
    pub goes_on: bool,
    /// What a task runs, quoted for a shell.
    pub command: &'a str,
}

/// The tasks that take this number of trials where nothing else is said.
pub fn most_tasks(trials: usize) -> ArraySize {
    ArraySize { tasks: trials.clamp(1, MOST_TASKS) as u32, at_a_time: None }
}

impl Script<'_> {
    /// Its text. Lines of the site's own options come last: of two that say the same, `sbatch` takes the later.
    pub fn text(&self) -> String {
        let Slurm { partition, account, gpus, time, setup, extra, .. } = self.options;
        let mut text = "#!/bin/bash\n".to_owned();
        let mut option = |option: &str| {
            let _ = writeln!(text, "#SBATCH {option}");
        };
        let ArraySize { tasks, at_a_time } = self.array;
        let at_a_time = at_a_time.map(|at_a_time| format!("%{at_a_time}")).unwrap_or_default();
        option(&format!("--job-name={}", quoted(self.name)));
        option(&format!("--array=0-{}{at_a_time}", tasks - 1));
        let folder = self.folder.to_string_lossy().replace('%', "%%");
        option(&format!("--output={}", quoted(&format!("{folder}/%A_%a.out"))));
        option("--open-mode=append");
        if self.goes_on {
            let notice = time.map_or(NOTICE, |time| NOTICE.min(time / 4)).as_secs().max(1);
            option(&format!("--signal=B:USR1@{notice}"));
            option("--requeue");
        }
        let words = [("partition", partition.clone()), ("account", account.clone())];
        let numbers = [("gpus", gpus.map(|gpus| gpus.to_string())), ("time", time.map(limit))];
        if gpus.is_some() {
            // Their number is the whole job's: the trial finds all of them on its own node.
            option("--nodes=1");
        }
        for (name, value) in words.into_iter().chain(numbers) {
            value.into_iter().for_each(|value| option(&format!("--{name}={}", quoted(&value))));
        }
        for own in extra {
            match own.split_once('=') {
                Some((name, value)) => option(&format!("{name}={}", quoted(value))),
                None => option(own),
            }
        }
        if let Some(setup) = setup.as_deref().map(str::trim_end).filter(|setup| !setup.is_empty()) {
            let _ = writeln!(text, "{setup}");
        }
        let _ = writeln!(text, "exec {}", self.command);
        text
    }
}

/// As `#SBATCH` lines take a value that a plain word is not.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+-./:=@_,[]".contains(c);
    match value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// Hours, minutes, seconds; Slurm counts whole seconds.
fn limit(time: Duration) -> String {
    let s = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_in_the_script_as_sbatch_reads_them() {
        let options = Slurm {
            array: None,
            partition: Some("gpu,long".to_owned()),
            account: Some("my \"lab\"".to_owned()),
            gpus: Some(2),
            time: Some(Duration::from_millis(90_061_500)),
            setup: Some("module load cuda\nexport X='a b'\n\n".to_owned()),
            extra: vec!["--mem=16G".to_owned(), "--comment=a b".to_owned(), "--exclusive".to_owned()],
        };
        let script = Script {
            name: "digits",
            folder: Path::new("/data/100% mine/slurm"),
            array: ArraySize { tasks: 40, at_a_time: Some(8) },
            options: &options,
            goes_on: true,
            command: "/bin/runner run",
        };
        let expected = r#"#!/bin/bash
#SBATCH --job-name=digits
#SBATCH --array=0-39%8
#SBATCH --output="/data/100%% mine/slurm/%A_%a.out"
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --nodes=1
#SBATCH --partition=gpu,long
#SBATCH --account="my \"lab\""
#SBATCH --gpus=2
#SBATCH --time=25:01:02
#SBATCH --mem=16G
#SBATCH --comment="a b"
#SBATCH --exclusive
module load cuda
export X='a b'
exec /bin/runner run
"#;
        assert_eq!(script.text(), expected);
        let short = Slurm { time: Some(Duration::from_secs(60)), setup: None, ..options.clone() };
        assert!(Script { options: &short, ..script }.text().contains("USR1@15\n"));
        let script = Script { options: &short, goes_on: false, ..script };
        assert!(!script.text().contains("USR1") && !script.text().contains("requeue"));
        assert_eq!([0, 3, 1000].map(|trials| most_tasks(trials).tasks), [1, 3, 256]);
    }
}
