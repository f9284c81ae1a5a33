//! The script of a job array.

use std::{fmt::Write, path::Path, time::Duration};

use crate::spec::{ArraySize, Slurm};

/// Maximum number of tasks of an array if the spec does not set one.
const MOST_TASKS: u32 = 256;

/// How long before the time limit a task is asked to end.
const NOTICE: Duration = Duration::from_secs(120);

/// The inputs of a script.
pub struct Script<'a> {
    /// The job's name, which identifies it later: see [`job_name`].
    pub name: &'a str,
    /// The folder for files with the output of tasks.
    pub folder: &'a Path,
    pub array: ArraySize,
    pub options: &'a Slurm,
    /// Whether a task is requeued at its time limit; its trial then resumes from its checkpoint.
    pub requeue: bool,
    /// The command of a task, quoted for a shell.
    pub command: &'a str,
}

/// The array for this number of trials: the declared size, without tasks that would have no trial.
pub fn array_of(trials: usize, declared: Option<ArraySize>) -> ArraySize {
    let declared = declared.unwrap_or(ArraySize { tasks: MOST_TASKS, throttle: None });
    let trials = u32::try_from(trials).unwrap_or(u32::MAX);
    ArraySize { tasks: declared.tasks.min(trials).max(1), ..declared }
}

/// A job's name, made of the spec's name and the sweep's folder name, which contains the time. So no job of
/// another sweep has it, even if another cluster gives a job the same number.
pub fn job_name(spec: &str, sweep: &Path) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let folder = sweep.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let [spec, folder] = [spec, &*folder].map(|name| name.chars().map(plain).take(64).collect::<String>());
    format!("{spec}-{folder}")
}

impl Script<'_> {
    /// The script's text. The site's own options come last, since `sbatch` uses the later one of two equal
    /// options.
    pub fn text(&self) -> String {
        let Slurm { time, setup, extra, .. } = self.options;
        let mut text = "#!/bin/bash\n".to_owned();
        let mut option = |option: &str| {
            let _ = writeln!(text, "#SBATCH {option}");
        };
        let ArraySize { tasks, throttle } = self.array;
        let throttle = throttle.map(|running| format!("%{running}")).unwrap_or_default();
        option(&format!("--job-name={}", quoted(self.name)));
        option(&format!("--array=0-{}{throttle}", tasks - 1));
        let folder = self.folder.to_string_lossy().replace('%', "%%");
        option(&format!("--output={}", quoted(&format!("{folder}/%A_%a.out"))));
        option("--open-mode=append");
        if self.requeue {
            let notice = time.map_or(NOTICE, |time| NOTICE.min(time / 4)).as_secs().max(1);
            option(&format!("--signal=B:USR1@{notice}"));
            option("--requeue");
        }
        // `--gpus` counts those of the whole job: on one node the trial can use all of them.
        option("--nodes=1");
        if let Some(time) = time {
            option(&format!("--time={}", limit(*time)));
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

/// Quotes a value for an `#SBATCH` line unless it is a plain word.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+-./:=@_,[]".contains(c);
    match value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// Hours, minutes and seconds; Slurm works in whole seconds.
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
            time: Some(Duration::from_millis(90_061_500)),
            setup: Some("module load cuda\nexport X='a b'\n\n".to_owned()),
            extra: ["--partition=gpu,long", "--account=my \"lab\"", "--comment=a b", "--exclusive"]
                .map(str::to_owned)
                .to_vec(),
        };
        let script = Script {
            name: "digits",
            folder: Path::new("/data/100% mine/slurm"),
            array: ArraySize { tasks: 40, throttle: Some(8) },
            options: &options,
            requeue: true,
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
#SBATCH --time=25:01:02
#SBATCH --partition=gpu,long
#SBATCH --account="my \"lab\""
#SBATCH --comment="a b"
#SBATCH --exclusive
module load cuda
export X='a b'
exec /bin/runner run
"#;
        assert_eq!(script.text(), expected);
        let short = Slurm { time: Some(Duration::from_secs(60)), setup: None, ..options.clone() };
        assert!(Script { options: &short, ..script }.text().contains("USR1@15\n"));
        let script = Script { options: &short, requeue: false, ..script };
        assert!(!script.text().contains("USR1") && !script.text().contains("requeue"));
        assert_eq!([0, 3, 1000].map(|trials| array_of(trials, None).tasks), [1, 3, 256]);
        let declared = Some(ArraySize { tasks: 8, throttle: Some(4) });
        assert_eq!([3, 1000].map(|trials| array_of(trials, declared).to_string()), ["3%4", "8%4"]);
        let name = |folder: &str| job_name("a b|c", Path::new(folder));
        assert_eq!(name("/x/20260101T000000Z-sweep-1a"), "a_b_c-20260101T000000Z-sweep-1a");
    }
}
