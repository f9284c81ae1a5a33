//! Products of random matrices, their norms, and when those are brought to the host.

use std::time::{Duration, Instant};

use super::{Finding, LabError, ProductRow, Sums, Tell, go_on};
use crate::{
    device::{Purpose, backend::Reduction},
    plan::lab::LabTrial,
    spec::{
        Lab, Policy,
        lab::{Matmul, Norm, Order},
    },
    tensor::{Device, Devices, Tensor},
    train::StopFlag,
};

/// Products between two looks at the stop flag.
const LOOK_EVERY: u64 = 64;

/// All shapes on all devices.
pub fn run(
    trial: &LabTrial,
    shapes: &[[usize; 3]],
    kept: usize,
    devices: &Devices,
    stop: &StopFlag,
    tell: Tell<'_>,
    sums: &mut Sums,
) -> Result<(), LabError> {
    let Lab::Matmul(matmul) = &trial.spec.lab else { return Ok(()) };
    let policy = trial.spec.logging.as_ref().map_or(Policy::Off, |logging| logging.policy);
    let names = trial.devices.used_names();
    for (index, shape) in shapes.iter().enumerate() {
        let mut jobs = Vec::with_capacity(names.len());
        for name in &names {
            let job = Job { matmul, policy, kept, seed: trial.spec.seed, index: index as u64, stop, tell };
            jobs.push(job.ready(devices.get(name)?, *shape)?);
        }
        let begun = Instant::now();
        let rows: Vec<Result<ProductRow, LabError>> = match matmul.order {
            Order::Sequential => jobs.iter().map(Ready::run).collect(),
            Order::Concurrent => std::thread::scope(|scope| {
                // Collected first: a lazy one would wait for each thread before it starts the next.
                let threads: Vec<_> = jobs.iter().map(|job| (job, scope.spawn(|| job.run()))).collect();
                let lost = |job: &Ready<'_>| LabError::Lost { device: job.device.name().to_owned() };
                threads.into_iter().map(|(job, t)| t.join().unwrap_or_else(|_| Err(lost(job)))).collect()
            }),
        };
        let wall = begun.elapsed();
        for row in rows {
            let row = row?;
            sums.done += row.count;
            sums.logging += Duration::from_secs_f64(row.log_s);
            tell(Finding::Product(row))?;
        }
        sums.work += wall;
        let wall_s = wall.as_secs_f64();
        tell(Finding::Together { devices: names.clone(), order: matmul.order, shape: *shape, wall_s })?;
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
    tell: Tell<'a>,
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

impl Ready<'_> {
    fn run(&self) -> Result<ProductRow, LabError> {
        let Self { job, device, .. } = self;
        let (count, reduction) = (job.matmul.count, job.reduction());
        let mut log = Log { ready: self, taken: 0, time: Duration::ZERO, sum: 0.0 };
        let begun = Instant::now();
        for done in 0..count {
            if done % LOOK_EVERY == 0 {
                go_on(job.stop)?;
            }
            self.a.matmul_into(&self.b, &self.product)?;
            let Some(reduction) = reduction else { continue };
            let slot = if job.policy == Policy::Off { 0 } else { log.taken };
            self.product.reduce_into(reduction, &self.norms, slot)?;
            log.take(done + 1)?;
        }
        // What waits for products that are still computed is no part of the log.
        device.synchronize(Purpose::Tensor)?;
        log.flush(count)?;
        let total_s = begun.elapsed().as_secs_f64();
        let logs = reduction.is_some() && job.policy != Policy::Off;
        Ok(ProductRow {
            device: device.name().to_owned(),
            order: job.matmul.order,
            shape: self.shape,
            count,
            total_s,
            log_s: log.time.as_secs_f64(),
            norm_sum: logs.then_some(log.sum),
        })
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
        (job.tell)(Finding::Norms { device: device.name().to_owned(), shape: *shape, last, values })?;
        self.time += begun.elapsed();
        Ok(())
    }
}
