//! `runner check --hosts 1,2,4,...,64 --link 100Gb/s,2us`: predicts how long a step would take over hosts
//! like this one, and the batch size from which this pays.

use std::time::{Duration, Instant};

use super::{
    args::{HostCounts, RunOptions},
    machine::machine,
    terminal::fit,
};
use crate::{
    collective::{Collective, ProcessGroup, RankSum, Traffic},
    data::{Dataset, Store},
    device::{DeviceError, Grain},
    host::load::{self, Use},
    plan::{Link, Machine, PlanError, ReadCost, StepTime, Trial, exposed_s, summed},
    program::Program,
    record::{output_width, text_table, too_busy},
    run::{Datasets, Exit, LONGEST_STEP_S, Planned, Stepper, print, refuse},
    spec::{Experiment, Problem, Scaling, Spec},
    units,
};

/// Approximate time for which a sum is repeated.
const LONG: Duration = Duration::from_millis(30);

/// Approximate time for which steps are repeated, and that of a block of them.
const STEPS_FOR: Duration = Duration::from_millis(60);

/// Maximum elements of the rows that steps are measured on: more than caches hold.
const MOST_NUMBERS: usize = 1 << 25;

/// Maximum elements, over all hosts, of a sum that is measured locally.
const MOST_HELD: usize = 1 << 22;

/// The parallel efficiency that batches in the last column reach.
const EFFICIENCY: f64 = 0.8;

/// The prediction for one number of hosts.
struct Case {
    hosts: usize,
    /// The global batch.
    batch: usize,
    /// Time of the step without its sum; `None` if it is too long to measure, or the batch has fewer rows
    /// than there are hosts.
    compute_s: Option<f64>,
    /// Time of copies and additions for the sum.
    local_s: f64,
}

impl Case {
    /// Rows on the host that has the most.
    fn rows(&self) -> Option<usize> {
        (self.hosts <= self.batch).then(|| self.batch.div_ceil(self.hosts))
    }
}

/// Predicts the step times of the first trial.
pub fn predict(
    options: &RunOptions,
    experiment: &Experiment,
    HostCounts(counts): &HostCounts,
    link: Link,
) -> Result<Exit, Exit> {
    let Some(trial) = experiment.trials.first() else { return Ok(Exit::Done) };
    if !trial.spec.devices.request.is_cpu() || trial.spec.devices.hosts.is_some() {
        let [message, hint] = match trial.spec.devices.hosts {
            Some(_) => {
                ["`--hosts` tries other numbers of hosts than `devices.hosts`", "leave one of them out"]
            }
            None => ["`--hosts` predicts steps on CPUs", "leave `devices.num_gpus` and `devices.use` out"],
        };
        return Err(Exit::refused(message, Some(hint)));
    }
    let mut hosts = Hosts {
        machine: machine(None, false),
        threads: options.thread_count(),
        spec: &trial.spec,
        link,
        steps: Vec::new(),
        others: 0.0,
    };
    let (cases, program) = hosts.cases(counts).map_err(|refusal| match refusal {
        Refusal::Problems(problems) => {
            refuse(&experiment.failure(problems.into_iter().map(|problem| (trial.index, problem))))
        }
        Refusal::Failed(why) => Exit::failed(why, None),
    })?;
    let of = if experiment.is_sweep() { format!(" of trial {}", trial.index) } else { String::new() };
    let page = hosts.page(&cases, &program);
    Ok(print(&fit(&format!("\na step{of} over hosts like this one\n{page}"))))
}

enum Refusal {
    Problems(Vec<Problem>),
    Failed(String),
}

struct Hosts<'a> {
    machine: Machine,
    threads: usize,
    spec: &'a Spec,
    link: Link,
    /// Measurements: whether as one of many hosts, rows, and seconds.
    steps: Vec<(bool, usize, f64)>,
    /// The most that other processes used of the cores meanwhile.
    others: f64,
}

impl Hosts<'_> {
    /// The cases; a single host is always among them, for comparison. Also returns a step of one of many
    /// hosts.
    fn cases(&mut self, counts: &[usize]) -> Result<(Vec<Case>, Program), Refusal> {
        let mut datasets = Datasets::new(&self.machine);
        let alone = self.plan(1, self.spec.data.batch_size, &mut datasets)?;
        let (own, rows) = (alone.programs.train.batch, alone.facts.train_rows);
        // Two hosts do the same as any larger number: each processes its rows, then they sum the same number
        // of elements.
        let program = self.plan(2, own.max(2), &mut datasets)?.programs.train.clone();
        let elements = summed(&program);
        let mut cases = Vec::new();
        for hosts in std::iter::once(1).chain(counts.iter().copied().filter(|hosts| *hosts > 1)) {
            let batch = match self.spec.devices.scaling {
                Scaling::Weak => own.saturating_mul(hosts).min(rows),
                Scaling::Strong => own,
            };
            let local_s = if hosts > 1 { local_s(hosts, elements) } else { 0.0 };
            let mut case = Case { hosts, batch, compute_s: None, local_s };
            if let Some(rows) = case.rows() {
                case.compute_s = self.compute_s(hosts > 1, rows, &mut datasets)?;
            }
            cases.push(case);
        }
        // Fitting a line needs two points.
        if self.steps.iter().all(|step| step.1 == own) && own > 1 {
            self.compute_s(true, own.div_ceil(2), &mut datasets)?;
        }
        if too_busy(self.others).is_some() {
            self.steps.clear();
            cases.iter_mut().for_each(|case| case.compute_s = None);
        }
        bound_by_work(&mut cases);
        Ok((cases, program))
    }

    /// The trial planned for `hosts` hosts with a global batch of `batch` rows.
    fn plan(&self, hosts: u32, batch: usize, datasets: &mut Datasets) -> Result<Trial, Refusal> {
        let mut spec = self.spec.clone();
        spec.devices.hosts = (hosts > 1).then_some(hosts);
        (spec.data.batch_size, spec.devices.scaling) = (batch, Scaling::Strong);
        Trial::plan(&spec, datasets, &self.machine, self.threads).map_err(|e| match e {
            PlanError::Missing(problem) => Refusal::Problems(vec![problem]),
            PlanError::Problems(problems) => Refusal::Problems(problems),
        })
    }

    /// The time of a host for `rows` rows, alone or as one of many without waiting for the others; measured
    /// once per number of rows.
    fn compute_s(
        &mut self,
        is_one_of_many: bool,
        rows: usize,
        datasets: &mut Datasets,
    ) -> Result<Option<f64>, Refusal> {
        let known = self.steps.iter().find(|step| (step.0, step.1) == (is_one_of_many, rows));
        if let Some((.., seconds)) = known {
            return Ok(Some(*seconds));
        }
        let trial = match is_one_of_many {
            true => self.plan(2, 2 * rows, datasets)?,
            false => self.plan(1, rows, datasets)?,
        };
        let dataset = datasets.open(&trial.spec).map_err(Refusal::Problems)?;
        if trial.lower_bound.settled_s(1) > LONGEST_STEP_S {
            return Ok(None);
        }
        let seconds = self.step_s(&trial, &dataset).map_err(|e| Refusal::Failed(e.to_string()))?;
        self.steps.push((is_one_of_many, rows, seconds));
        Ok(Some(seconds))
    }

    /// The median time of a step on blank rows, or on rows of the file if steps fetch their rows from it.
    fn step_s(&mut self, trial: &Trial, dataset: &Dataset) -> Result<f64, DeviceError> {
        let file = match (&dataset.train.features, trial.lower_bound.fetch) {
            (Store::File(rows), Some(ReadCost { in_step: true, .. })) => Some((rows, &dataset.train.targets)),
            _ => None,
        };
        let mut stepper = Stepper::sized(trial, STEPS_FOR.as_secs_f64(), MOST_NUMBERS, file)?;
        let (mut times, before, begun) = (Vec::new(), load::counters(), Instant::now());
        while times.is_empty() || begun.elapsed() < STEPS_FOR {
            times.push(stepper.block(Grain::Blocks)?);
        }
        let used = before.zip(load::counters()).and_then(|(before, after)| Use::between(&before, &after));
        self.others = self.others.max(used.map_or(0.0, |used| used.others));
        times.sort_unstable_by(f64::total_cmp);
        Ok(times[times.len() / 2] / stepper.steps() as f64)
    }

    /// What sums add to a step that computes for `compute_s`: copies and additions, for which the step's threads
    /// leave their cores, and messages over the link, as far as the step has nothing else to do.
    fn sum_s(&self, case: &Case, program: &Program, compute_s: f64) -> f64 {
        let over_link = |elements| self.link.seconds(Traffic::new(elements, case.hosts));
        case.local_s + exposed_s(program, compute_s, over_link)
    }

    fn page(&self, cases: &[Case], program: &Program) -> String {
        let steps: Vec<(usize, f64)> =
            self.steps.iter().map(|(_, rows, seconds)| (*rows, *seconds)).collect();
        let time = StepTime::fit(&steps);
        let alone = cases.first().and_then(|case| Some((case.batch as f64, case.compute_s?)));
        let none = || "-".to_owned();
        let seconds = |value: Option<f64>| value.map_or_else(none, units::seconds);
        let rows = cases.iter().map(|case| {
            let sum_s = |compute_s| self.sum_s(case, program, compute_s);
            let step_s = case.compute_s.map(|compute_s| compute_s + sum_s(compute_s));
            let speedup = alone.zip(step_s).map(|((batch, alone_s), step_s)| {
                case.batch as f64 / batch * alone_s / step_s // rows per second beside one host
            });
            let mut cells = vec![
                units::count(case.hosts as u64),
                case.rows().map_or_else(none, |rows| units::count(rows as u64)),
                seconds(case.compute_s),
                seconds((case.hosts > 1).then(|| sum_s(case.compute_s.unwrap_or(0.0)))),
                seconds(step_s),
                speedup.map_or_else(none, |speedup| format!("{speedup:.2}x")),
                speedup.map_or_else(none, |speedup| units::percent(speedup / case.hosts as f64)),
            ];
            for efficiency in [1.0 / case.hosts as f64, EFFICIENCY] {
                let time = time.filter(|_| case.hosts > 1);
                let batch = time.and_then(|time| time.least_batch(case.hosts, sum_s, efficiency));
                cells.push(batch.map_or(String::new(), about));
            }
            cells
        });
        let efficient = percent_from();
        let header = [
            "hosts",
            "rows each",
            "computes",
            "sums",
            "step",
            "speed-up",
            "efficiency",
            "pays from",
            &efficient,
        ];
        let rows: Vec<_> = rows.collect();
        let width = output_width().map_or(usize::MAX, usize::from);
        let text = text_table::within(width, &header, &rows, |_| true);
        text + &self.notes(cases, program, time.is_some())
    }

    /// Explains the columns.
    fn notes(&self, cases: &[Case], program: &Program, is_fitted: bool) -> String {
        let elements = summed(program);
        let Link { latency_s, bytes_per_s } = self.link;
        let mut text = format!(
            "  computes: measured here on blank rows, with {} at hand; sums: {} elements, {} a step, after all\n  else of it: \
             copies and additions measured here, messages at {}B/s and {} each\n",
            units::counted(self.threads as u64, "thread"),
            units::count(elements as u64),
            units::bytes(4 * elements as u64),
            units::rate(bytes_per_s),
            units::seconds(latency_s),
        );
        let early: usize = program.early_sums().map(|part| part.len).sum();
        if early > 0 {
            text += &format!(
                "  {} of them start before the backward pass ends: of their messages only what outlasts it counts\n",
                units::bytes(4 * early as u64)
            );
        }
        if is_fitted {
            let efficient = percent_from();
            text += &format!(
                "  pays from: the smallest global batch that trains faster than on one host; {efficient}: the smallest that\n  \
                 n hosts train at this part of n times its speed; both about, by a line through the measured steps\n"
            );
        }
        if cases.iter().any(|case| case.rows().is_none()) {
            text += "  rows each -: the global batch has no row for each host\n";
        }
        if let Some(words) = too_busy(self.others) {
            text += &format!("  no speed-ups: {words}\n");
        } else if cases.iter().any(|case| case.rows().is_some() && case.compute_s.is_none()) {
            let longest = units::seconds(LONGEST_STEP_S);
            text += &format!("  computes -: a step of over {longest} is not measured\n");
        }
        text
    }
}

/// Rows take a host no less than their part of the time of one host: what seems faster is noise.
fn bound_by_work(cases: &mut [Case]) {
    let alone = cases.first().and_then(|case| Some((case.batch as f64, case.compute_s?)));
    let Some((batch, alone_s)) = alone else { return };
    for case in cases {
        let least_s = case.rows().map_or(0.0, |rows| alone_s * rows as f64 / batch);
        case.compute_s = case.compute_s.map(|seconds| seconds.max(least_s));
    }
}

fn percent_from() -> String {
    format!("{:.0} % from", EFFICIENCY * 100.0)
}

/// A batch size, rounded up to two digits.
fn about(batch: f64) -> String {
    let scale = 10_f64.powf((batch.log10().floor() - 1.0).max(0.0));
    units::count(((batch / scale).ceil() * scale) as u64)
}

/// The time of a sum without any network: the median of several, repeated for [`LONG`].
pub fn local_s(hosts: usize, elements: usize) -> f64 {
    // A small sum holds the elements of all hosts. With very many hosts, measure fewer and extrapolate.
    let fewer = hosts.min((MOST_HELD / elements.max(1)).max(2));
    let group = ProcessGroup::rehearsal(fewer);
    let mut sum = RankSum::new(&group, Duration::MAX);
    let (mut own, mut times) = (vec![0.0; elements], Vec::new());
    let begun = Instant::now();
    while times.len() < 3 || begun.elapsed() < LONG {
        let start = Instant::now();
        if sum.all_reduce(&mut own, 1).is_err() {
            break; // there are no other processes that could fail
        }
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_unstable_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or(0.0);
    if Traffic::is_small(elements) { median * hosts as f64 / fewer as f64 } else { median }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_rows_takes_at_least_its_part_of_the_time() {
        let case = |hosts, seconds| Case { hosts, batch: 256, compute_s: Some(seconds), local_s: 0.0 };
        let mut cases = [case(1, 0.064), case(2, 0.002), case(4, 0.025), case(300, 0.001)];
        bound_by_work(&mut cases);
        assert_eq!(cases.map(|case| case.compute_s), [Some(0.064), Some(0.032), Some(0.025), Some(0.001)]);
        let mut unmeasured = [Case { compute_s: None, ..case(1, 0.0) }, case(2, 0.002)];
        bound_by_work(&mut unmeasured);
        assert_eq!(unmeasured[1].compute_s, Some(0.002));
    }
}
