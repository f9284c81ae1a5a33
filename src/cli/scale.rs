//! `runner check --hosts 1,2,4,...,64 --link 100Gb/s,2us`: how long a step would take over hosts like this one, and from
//! which batch on it pays.

use std::time::{Duration, Instant};

use super::{
    args::{HostCounts, RunOptions},
    machine::machine,
    measure::{self, Measurement},
};
use crate::{
    collective::{Collective, ProcessGroup, RankSum, Traffic},
    plan::{Link, Machine, PlanError, StepTime, Trial, summed},
    record::text_table,
    run::{Datasets, Exit, Planned, print, print_error, refuse},
    spec::{Devices, Experiment, Problem, Scaling, Spec},
    units,
};

/// How long a sum is repeated, about.
const LONG: Duration = Duration::from_millis(30);

/// The part of its hosts' speed that a batch reaches at least in the last column.
const EFFICIENCY: f64 = 0.8;

/// One count of hosts.
struct Case {
    hosts: usize,
    /// The slowest host has the most.
    rows: usize,
    /// `None` where the batch has no row for each host.
    step: Option<Step>,
}

struct Step {
    /// `None` where it is too long to be measured.
    compute_s: Option<f64>,
    sum_s: f64,
}

/// Predicts the steps of the first trial.
pub fn predict(
    options: &RunOptions,
    experiment: &Experiment,
    HostCounts(counts): &HostCounts,
    link: Link,
) -> Exit {
    let Some(trial) = experiment.trials.first() else { return Exit::Done };
    if !trial.spec.devices.request.is_cpu() || trial.spec.devices.hosts.is_some() {
        let [message, hint] = match trial.spec.devices.hosts {
            Some(_) => {
                ["`--hosts` tries other numbers of hosts than `devices.hosts`", "leave one of them out"]
            }
            None => Devices::CPUS_ONLY,
        };
        print_error(message, Some(hint));
        return Exit::Refused;
    }
    let mut hosts = Hosts {
        machine: machine(None, false),
        threads: options.thread_count(),
        spec: &trial.spec,
        link,
        steps: Vec::new(),
    };
    let cases = hosts.cases(counts);
    match cases {
        Ok((cases, numbers)) => {
            let of = if experiment.is_sweep() { format!(" of trial {}", trial.index) } else { String::new() };
            print(&format!("\na step{of} over hosts like this one\n{}", hosts.page(&cases, numbers)))
        }
        Err(Refusal::Problems(problems)) => {
            refuse(&experiment.failure(problems.into_iter().map(|problem| (trial.index, problem))))
        }
        Err(Refusal::Failed(why)) => {
            print_error(why, None);
            Exit::Failed
        }
    }
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
    /// What was measured: rows of a host, and seconds.
    steps: Vec<(usize, f64)>,
}

impl Hosts<'_> {
    /// One host is measured always; the others are compared with it. Also how many numbers a step sums.
    fn cases(&mut self, counts: &[usize]) -> Result<(Vec<Case>, usize), Refusal> {
        let mut datasets = Datasets::new(&self.machine);
        let batch = self.plan(1, self.spec.data.batch_size, &mut datasets)?.programs.train.batch;
        // Two hosts do what any more would: their own rows, then a sum of as many numbers.
        let numbers = summed(&self.plan(2, batch.max(2), &mut datasets)?.programs.train);
        let mut cases = Vec::new();
        for hosts in std::iter::once(1).chain(counts.iter().copied().filter(|hosts| *hosts > 1)) {
            let rows = match self.spec.devices.scaling {
                Scaling::Weak => batch,
                Scaling::Strong => batch.div_ceil(hosts),
            };
            let step = if hosts > batch && self.spec.devices.scaling == Scaling::Strong {
                None
            } else {
                let compute_s = self.compute_s(hosts, rows, &mut datasets)?;
                Some(Step { compute_s, sum_s: self.sum_s(hosts, numbers) })
            };
            cases.push(Case { hosts, rows, step });
        }
        // A line needs two places.
        if self.steps.len() == 1 && batch > 1 {
            self.compute_s(2, batch.div_ceil(2), &mut datasets)?;
        }
        Ok((cases, numbers))
    }

    /// The trial on `hosts` hosts, with a global batch of `batch` rows.
    fn plan(&self, hosts: u32, batch: usize, datasets: &mut Datasets) -> Result<Trial, Refusal> {
        let mut spec = self.spec.clone();
        (spec.devices.hosts, spec.data.batch_size, spec.devices.scaling) =
            ((hosts > 1).then_some(hosts), batch, Scaling::Strong);
        Trial::plan(&spec, datasets, &self.machine, self.threads).map_err(|e| match e {
            PlanError::Missing(problem) => Refusal::Problems(vec![problem]),
            PlanError::Problems(problems) => Refusal::Problems(problems),
        })
    }

    /// The time of one of `hosts` hosts on `rows` rows, without its wait for the others; measured once for as many rows.
    fn compute_s(
        &mut self,
        hosts: usize,
        rows: usize,
        datasets: &mut Datasets,
    ) -> Result<Option<f64>, Refusal> {
        let of_many = self.steps.iter().skip(1).find(|(measured, _)| *measured == rows);
        if let Some((_, seconds)) = of_many {
            return Ok(Some(*seconds));
        }
        let several = hosts > 1;
        let trial = self.plan(1 + u32::from(several), if several { 2 * rows } else { rows }, datasets)?;
        let dataset = datasets.open(&trial.spec).map_err(Refusal::Problems)?;
        let measured = measure::step(&trial, &dataset).map_err(|e| Refusal::Failed(e.to_string()))?;
        let seconds = measured.map(|Measurement { step_s, .. }| step_s);
        self.steps.extend(seconds.map(|seconds| (rows, seconds)));
        Ok(seconds)
    }

    /// A sum of `numbers` over `hosts`: what this process takes to copy and add, and its messages by the link.
    fn sum_s(&self, hosts: usize, numbers: usize) -> f64 {
        if hosts == 1 {
            return 0.0;
        }
        local_s(hosts, numbers) + self.link.seconds(Traffic::new(numbers, hosts))
    }

    fn page(&self, cases: &[Case], numbers: usize) -> String {
        let time = StepTime::fit(&self.steps);
        let alone_s = cases.first().and_then(|case| case.step.as_ref()?.compute_s);
        let weak = self.spec.devices.scaling == Scaling::Weak;
        let rows = cases.iter().map(|case| {
            let mut cells = vec![units::count(case.hosts as u64), units::count(case.rows as u64)];
            let Some(step) = &case.step else {
                cells.extend(std::iter::repeat_n("-".to_owned(), 5));
                return cells;
            };
            let step_s = step.compute_s.map(|compute_s| compute_s + step.sum_s);
            // Under weak scaling a step of n hosts has n times the rows.
            let work = if weak { case.hosts as f64 } else { 1.0 };
            let speedup = alone_s.zip(step_s).map(|(alone_s, step_s)| work * alone_s / step_s);
            let seconds = |value: Option<f64>| value.map_or("-".to_owned(), units::seconds);
            cells.extend([
                seconds(step.compute_s),
                seconds((case.hosts > 1).then_some(step.sum_s)),
                seconds(step_s),
                speedup.map_or("-".to_owned(), |speedup| format!("{speedup:.2}x")),
                speedup.map_or("-".to_owned(), |speedup| units::percent(speedup / case.hosts as f64)),
            ]);
            for efficiency in [1.0 / case.hosts as f64, EFFICIENCY] {
                let batch = time
                    .filter(|_| case.hosts > 1)
                    .and_then(|time| time.least_batch(case.hosts, step.sum_s, efficiency));
                cells.push(batch.map_or(String::new(), about));
            }
            cells
        });
        let efficient = format!("{:.0} % from", EFFICIENCY * 100.0);
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
        let mut text = text_table::text(&header, &rows, |_| true);
        let Link { latency_s, bytes_per_s } = self.link;
        text += &format!(
            "  computes: measured here on blank rows, by {}; sums: {} numbers, {} a step, after all else of it:\n  \
             copies and additions measured here, messages at {}B/s and {} each\n",
            units::counted(self.threads as u64, "thread"),
            units::count(numbers as u64),
            units::bytes(4 * numbers as u64),
            units::rate(bytes_per_s),
            units::seconds(latency_s),
        );
        if time.is_some() {
            text += &format!(
                "  pays from: the global batch that is faster than on one host; {efficient}: on which n hosts reach so much of n\n  \
                 times its speed; both about, by a line through the measured steps\n"
            );
        }
        if cases.iter().any(|case| case.step.is_none()) {
            text += "  -: the batch has no row for each host\n";
        }
        if cases.iter().any(|case| case.step.as_ref().is_some_and(|step| step.compute_s.is_none())) {
            let longest = units::seconds(measure::LONGEST_STEP_S);
            text += &format!("  -: a step of over {longest} is not measured\n");
        }
        text
    }
}

/// Two digits of a batch.
fn about(batch: f64) -> String {
    let scale = 10_f64.powf((batch.log10().floor() - 1.0).max(0.0));
    units::count(((batch / scale).ceil() * scale) as u64)
}

/// What a sum costs without any network: the median over some [`LONG`].
pub fn local_s(hosts: usize, numbers: usize) -> f64 {
    let group = ProcessGroup::rehearsal(hosts);
    let mut sum = RankSum::new(&group, Duration::MAX);
    let (mut elements, mut times) = (vec![0.0; numbers], Vec::new());
    let begun = Instant::now();
    while times.len() < 3 || begun.elapsed() < LONG {
        let start = Instant::now();
        if sum.all_reduce(&mut elements, 1).is_err() {
            break; // nobody else is there to fail
        }
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}
