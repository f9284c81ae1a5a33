//! Products of random matrices, their norms, and when those are brought to the host.

use std::time::{Duration, Instant};

use super::{Emit, LabError, Sums, go_on};
use crate::{
    device::{Purpose, backend::Reduction},
    event::{Event, Norms, ProductRow, Together},
    plan::lab::LabTrial,
    spec::{
        Lab, Policy,
        lab::{Matmul, Norm, Order},
    },
    tensor::{Device, Devices, Tensor},
    train::StopFlag,
};

pub fn run(
    trial: &LabTrial,
    shapes: &[[usize; 3]],
    kept: usize,
    devices: &Devices,
    stop: &StopFlag,
    emit: Emit<'_>,
    sums: &mut Sums,
) -> Result<(), LabError> {
    let Lab::Matmul(matmul) = &trial.spec.lab else { return Ok(()) };
    let policy = trial.spec.logging.as_ref().map_or(Policy::Off, |logging| logging.policy);
    let names = trial.devices.used_names();
    for (index, shape) in shapes.iter().enumerate() {
        let mut jobs = Vec::with_capacity(names.len());
        for name in &names {
            go_on(stop)?;
            let job = Job { matmul, policy, kept, seed: trial.spec.seed, index: index as u64, stop, emit };
            jobs.push(job.ready(devices.get(name)?, *shape)?);
        }
        let begun = Instant::now();
        let ends: Vec<End> = match matmul.order {
            Order::Sequential => {
                let mut ends: Vec<End> = Vec::with_capacity(jobs.len());
                for job in &jobs {
                    if ends.last().is_none_or(|end| end.halt.is_none()) {
                        ends.push(job.run());
                    }
                }
                ends
            }
            Order::Concurrent => std::thread::scope(|scope| {
                // Collected first: a lazy one would wait for each thread before it starts the next.
                let threads: Vec<_> = jobs.iter().map(|job| (job, scope.spawn(|| job.run()))).collect();
                let lost = |job: &Ready<'_>| LabError::Lost { device: job.device.name().to_owned() };
                let end = |(job, thread): (&Ready<'_>, std::thread::ScopedJoinHandle<'_, End>)| {
                    thread.join().unwrap_or_else(|_| End { row: None, halt: Some(lost(job)) })
                };
                threads.into_iter().map(end).collect()
            }),
        };
        let wall = begun.elapsed();
        sums.work += wall;
        let mut halt = None;
        // One that halted takes nothing from the others.
        for end in ends {
            if let Some(row) = end.row {
                sums.done += row.count;
                sums.logging += Duration::from_secs_f64(row.log_s);
                emit(Event::Product(row))?;
            }
            halt = halt.or(end.halt);
        }
        if let Some(halt) = halt {
            return Err(halt);
        }
        let wall_s = wall.as_secs_f64();
        let together = Together { devices: names.clone(), order: matmul.order, shape: *shape, wall_s };
        emit(Event::Together(together))?;
    }
    Ok(())
}

/// What is to be done on one device.
struct Job<'a> {
    matmul: &'a Matmul,
    policy: Policy,
    kept: usize,
    seed: u64,
    index: u64,
    stop: &'a StopFlag,
    emit: Emit<'a>,
}

/// The same, with everything on the device.
struct Ready<'a> {
    job: Job<'a>,
    device: Device,
    shape: [usize; 3],
    a: Tensor,
    b: Tensor,
    product: Tensor,
    /// Norms that have not left the device.
    norms: Tensor,
}

impl<'a> Job<'a> {
    /// Puts the factors on the device and multiplies once: what only the first product costs is not measured.
    fn ready(self, device: &Device, [m, k, n]: [usize; 3]) -> Result<Ready<'a>, LabError> {
        let a = Tensor::rand(device, &[m, k], self.seed, 2 * self.index)?;
        let b = Tensor::rand(device, &[k, n], self.seed, 2 * self.index + 1)?;
        let product = a.matmul(&b)?;
        let norms = Tensor::zeros(device, &[if self.reduction().is_some() { self.kept } else { 0 }])?;
        device.synchronize(Purpose::Tensor)?;
        Ok(Ready { job: self, device: device.clone(), shape: [m, k, n], a, b, product, norms })
    }

    fn reduction(&self) -> Option<Reduction> {
        match self.matmul.norm {
            Norm::Frobenius => Some(Reduction::Frobenius),
            Norm::Trace => Some(Reduction::Trace),
            Norm::None => None,
        }
    }
}

/// What came of a device's products of a shape.
struct End {
    /// Those that were done, where that is known.
    row: Option<ProductRow>,
    halt: Option<LabError>,
}

impl Ready<'_> {
    fn run(&self) -> End {
        let mut log = Log { ready: self, taken: 0, time: Duration::ZERO, sum: 0.0 };
        let (begun, mut done) = (Instant::now(), 0);
        let ended = self.multiply(&mut log, &mut done);
        // Of a device that failed nothing more is to be had; a signal takes nothing from what was done before it.
        let settled = match ended {
            Ok(()) | Err(LabError::Interrupted) => self.settle(&mut log, done),
            Err(e) => return End { row: None, halt: Some(e) },
        };
        let total_s = begun.elapsed().as_secs_f64();
        if let Err(e) = settled {
            return End { row: None, halt: Some(e) };
        }
        let logs = self.job.reduction().is_some() && self.job.policy != Policy::Off;
        let row = ProductRow {
            device: self.device.name().to_owned(),
            order: self.job.matmul.order,
            shape: self.shape,
            count: done,
            total_s,
            log_s: log.time.as_secs_f64(),
            norm_sum: logs.then_some(log.sum),
        };
        End { row: (done > 0).then_some(row), halt: ended.err() }
    }

    /// The products, and the norm of each; `done` counts them.
    fn multiply(&self, log: &mut Log<'_>, done: &mut u64) -> Result<(), LabError> {
        let Self { job, .. } = self;
        let reduction = job.reduction();
        while *done < job.matmul.count {
            go_on(job.stop)?;
            self.a.matmul_into(&self.b, &self.product)?;
            if let Some(reduction) = reduction {
                let slot = if job.policy == Policy::Off { 0 } else { log.taken };
                self.product.reduce_into(reduction, &self.norms, slot)?;
            }
            *done += 1;
            if reduction.is_some() {
                log.take(*done)?;
            }
        }
        Ok(())
    }

    /// Waits for products that are still computed, which is no part of the log, and brings the last norms.
    fn settle(&self, log: &mut Log<'_>, done: u64) -> Result<(), LabError> {
        self.device.synchronize(Purpose::Tensor)?;
        log.flush(done)
    }
}

/// Brings norms to the host, as the policy says.
struct Log<'a> {
    ready: &'a Ready<'a>,
    /// Norms on the device that were not brought yet.
    taken: usize,
    time: Duration,
    sum: f64,
}

impl Log<'_> {
    /// One more norm is on the device; `last` is its number.
    fn take(&mut self, last: u64) -> Result<(), LabError> {
        if self.ready.job.policy == Policy::Off {
            return Ok(());
        }
        self.taken += 1;
        if self.taken < self.ready.job.kept {
            return Ok(());
        }
        self.ready.device.synchronize(Purpose::Log)?;
        self.flush(last)
    }

    /// Brings what has not been brought, and tells it.
    fn flush(&mut self, last: u64) -> Result<(), LabError> {
        if self.taken == 0 {
            return Ok(());
        }
        let begun = Instant::now();
        let Ready { job, device, norms, shape, .. } = self.ready;
        let values = if job.policy == Policy::PerEpoch {
            // The rest of the block is 0 and adds nothing.
            let sum = norms.reduce(Reduction::Sum)?;
            let mut cell = [0.0];
            sum.read(Purpose::Log, 0, &mut cell)?;
            norms.fill(0.0)?;
            self.sum += f64::from(cell[0]);
            vec![(f64::from(cell[0]) / self.taken as f64) as f32]
        } else {
            let mut values = vec![0.0; self.taken];
            norms.read(Purpose::Log, 0, &mut values)?;
            self.sum += values.iter().map(|v| f64::from(*v)).sum::<f64>();
            values
        };
        self.taken = 0;
        let norms = Norms { device: device.name().to_owned(), shape: *shape, last, values };
        (job.emit)(Event::Norms(norms))?;
        self.time += begun.elapsed();
        Ok(())
    }
}
