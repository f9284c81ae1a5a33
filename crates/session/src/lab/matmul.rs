//! Products of random matrices, their norms, and when the norms are copied to the host.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{Bench, Emit, LabError, counter::Counter, device::Device, go_on, laps::Laps, tensors::uniform};
use crate::{
    device::Purpose,
    event::{Event, Norms, ProductRow, Together},
    host::CoreWaits,
    op::{self, BufferId, Mean, NormKind, Op, Slice, Zero},
    plan::lab::product,
    spec::{
        Policy,
        lab::{FEWEST_PRODUCTS, Matmul, Norm, Order},
    },
    train::StopFlag,
};

impl Bench<'_> {
    /// Computes the products of every shape on every device that the spec names.
    pub(super) fn multiply(
        &mut self,
        matmul: &Matmul,
        shapes: &[[usize; 3]],
        kept: usize,
    ) -> Result<(), LabError> {
        let Self { trial, stop, emit, .. } = *self;
        let policy = trial.spec.logging.as_ref().map_or(Policy::Off, |logging| logging.policy);
        let used = &trial.devices.used;
        for (index, &shape) in shapes.iter().enumerate() {
            let mut jobs: Vec<(Job<'_>, Laps)> = Vec::with_capacity(self.devices.len());
            for device in self.devices.iter_mut().filter(|device| used.contains(&device.id())) {
                go_on(stop)?;
                let ([m, k, n], matrices) = (shape, matmul.matrices as usize);
                let kept_norms = if matmul.norm == Norm::None { 0 } else { kept };
                let lens = [matrices * m * k, matrices * k * n, m * n, kept_norms, 1];
                let counter = &self.counter;
                let mut job = Job {
                    device,
                    matmul,
                    count: matmul.count,
                    policy,
                    kept,
                    shape,
                    threads: None,
                    stop,
                    emit,
                    counter,
                    lens,
                };
                let laps = job.ready(trial.spec.seed, index as u64)?;
                jobs.push((job, laps));
            }
            let begun = Instant::now();
            let ends = run_all(&mut jobs, matmul.order);
            let wall = begun.elapsed();
            self.clear();
            self.work += wall;
            let mut halt = None;
            // If one device halted, the results of the others still count.
            for end in ends {
                if let Some(row) = end.row {
                    self.done += row.count;
                    self.logging += Duration::from_secs_f64(row.log_s);
                    emit(Event::Product(row))?;
                }
                halt = halt.or(end.halt);
            }
            if let Some(halt) = halt {
                return Err(halt);
            }
            let (devices, wall_s) = (trial.devices.used_names(), wall.as_secs_f64());
            emit(Event::Together(Together { devices, order: matmul.order, shape, wall_s }))?;
        }
        Ok(())
    }
}

/// Runs one job after the other until one halts, or all at once.
fn run_all(jobs: &mut [(Job<'_>, Laps)], order: Order) -> Vec<End> {
    let mut ends: Vec<End> = Vec::with_capacity(jobs.len());
    match order {
        Order::Sequential => {
            for (job, laps) in jobs {
                if ends.last().is_none_or(|end| end.halt.is_none()) {
                    ends.push(job.run(laps));
                }
            }
        }
        Order::Concurrent => thread::scope(|scope| {
            let started: Vec<_> = jobs
                .iter_mut()
                .map(|(job, laps)| (job.device.id().to_string(), scope.spawn(|| job.run(laps))))
                .collect();
            let lost = |device| End { row: None, halt: Some(LabError::Lost { device }) };
            ends.extend(started.into_iter().map(|(name, t)| t.join().unwrap_or_else(|_| lost(name))));
        }),
    }
    ends
}

/// The products of a shape on one device.
struct Job<'a> {
    device: &'a mut Device,
    matmul: &'a Matmul,
    /// Number of products.
    count: u64,
    policy: Policy,
    /// Number of norms that the device keeps before they are copied.
    kept: usize,
    shape: [usize; 3],
    /// Threads of the host that share a product.
    threads: Option<usize>,
    stop: &'a StopFlag,
    emit: Emit<'a>,
    counter: &'a Counter<'a>,
    /// Lengths of its blocks: left factors, right factors, the product, the kept norms, and one cell for
    /// their sum.
    lens: [usize; 5],
}

/// How a device's products of one shape ended.
struct End {
    /// The products that were done, if their number is known.
    row: Option<ProductRow>,
    halt: Option<LabError>,
}

impl Job<'_> {
    /// Fills the factors on the device and multiplies, so that the extra cost of the first product is not
    /// measured and the number of threads is known.
    fn ready(&mut self, seed: u64, index: u64) -> Result<Laps, LabError> {
        for (block, (len, value)) in
            self.lens.into_iter().zip([f32::NAN, f32::NAN, f32::NAN, 0.0, 0.0]).enumerate()
        {
            self.device.alloc(BufferId(block), len, value)?;
        }
        for factor in [0, 1] {
            let matrices = self.matmul.matrices;
            let streams = (index * matrices..(index + 1) * matrices).map(|matrix| 2 * matrix + factor as u64);
            let len = self.lens[factor] / matrices as usize;
            let values: Vec<f32> = streams.flat_map(|stream| uniform(seed, stream, len)).collect();
            self.device.write(Purpose::Tensor, BufferId(factor), &values)?;
        }
        self.threads = self.device.prepare(&self.product(0))?;
        let laps = Laps::new(self.count, self.device)?;
        self.device.synchronize(Purpose::Tensor)?;
        Ok(laps)
    }

    /// The slice that covers a whole block.
    fn slice(&self, block: usize) -> Slice {
        Slice { buffer: BufferId(block), offset: 0, len: self.lens[block] }
    }

    /// Product `number`: pairs of left and right factors are used in rotation.
    fn product(&self, number: u64) -> Op {
        let matrices = self.matmul.matrices;
        let (left, right) = (number % matrices, (number + number / matrices) % matrices);
        let factor = |block: usize, matrix: u64| {
            let len = self.lens[block] / matrices as usize;
            Slice { offset: matrix as usize * len, len, ..self.slice(block) }
        };
        product([factor(0, left), factor(1, right), self.slice(2)], self.shape)
    }

    fn run(&mut self, laps: &mut Laps) -> End {
        let mut log = Log { waits: CoreWaits::of_this_thread(), ..Log::default() };
        let (begun, mut done) = (Instant::now(), 0);
        let ended = self.multiply(&mut log, laps, &mut done);
        // After a device failure nothing more can be read; after a signal, the finished products still count.
        let settled = match ended {
            Ok(()) | Err(LabError::Interrupted) => self.settle(&mut log, done),
            Err(e) => return End { row: None, halt: Some(e) },
        };
        let total_s = begun.elapsed().as_secs_f64();
        let spread = match settled.and_then(|()| Ok(laps.spread(self.device)?)) {
            Ok(spread) => spread,
            Err(e) => return End { row: None, halt: Some(e) },
        };
        let logs = self.matmul.norm != Norm::None && self.policy != Policy::Off;
        let row = ProductRow {
            device: self.device.id().to_string(),
            order: self.matmul.order,
            shape: self.shape,
            count: done,
            total_s,
            log_s: log.time.as_secs_f64(),
            norm_sum: logs.then_some(log.sum),
            spread,
            in_a_row: laps.stride(),
            threads: self.threads,
        };
        End { row: (done > 0).then_some(row), halt: ended.err() }
    }

    /// Computes the products and the norm of each; `done` counts them.
    fn multiply(&mut self, log: &mut Log, laps: &mut Laps, done: &mut u64) -> Result<(), LabError> {
        let (of, norms) = (self.slice(2), self.slice(3));
        let how = if self.matmul.norm == Norm::Frobenius { NormKind::Exact } else { NormKind::Squared };
        let begun = Instant::now();
        let is_over = || self.matmul.max_time.is_some_and(|most| begun.elapsed() >= most);
        laps.start(self.device)?;
        while *done < self.count && (*done < FEWEST_PRODUCTS || !is_over()) {
            go_on(self.stop)?;
            self.device.run(&self.product(*done))?;
            *done += 1;
            if self.matmul.norm != Norm::None {
                let cell = norms.part(log.taken..log.taken + 1);
                self.device.run(&op::Norm { of, cell, how }.into())?;
                if self.policy != Policy::Off {
                    log.taken += 1;
                }
                if log.taken == self.kept {
                    self.device.wait_before_read(Purpose::Log)?;
                    self.flush(log, *done)?;
                }
            }
            laps.product(self.device)?;
            self.counter.count()?;
        }
        Ok(())
    }

    /// Waits for unfinished products, which is not part of the time for logging, and copies the last norms.
    fn settle(&mut self, log: &mut Log, done: u64) -> Result<(), LabError> {
        if log.taken > 0 {
            self.device.wait_before_read(Purpose::Log)?;
        } else {
            self.device.synchronize(Purpose::Tensor)?;
        }
        self.flush(log, done)
    }

    /// Copies the norms kept on the device to the host and reports them; `last` is the number of the last
    /// one.
    fn flush(&mut self, log: &mut Log, last: u64) -> Result<(), LabError> {
        if log.taken == 0 {
            return Ok(());
        }
        let begun = Instant::now();
        log.waits.begin(begun);
        let (norms, cell) = (self.slice(3), self.slice(4));
        let values = if self.policy == Policy::PerEpoch {
            // The rest of the block is 0 and does not change the sum.
            self.device.run(&Mean { of: norms, cell, scale: 1.0 }.into())?;
            let sum = f64::from(self.device.values(Purpose::Log, cell.buffer, 1)?[0]);
            self.device.run(&Zero { of: norms }.into())?;
            log.sum += sum;
            vec![(sum / log.taken as f64) as f32]
        } else {
            let values = self.device.values(Purpose::Log, norms.buffer, log.taken)?;
            log.sum += values.iter().map(|v| f64::from(*v)).sum::<f64>();
            values
        };
        log.taken = 0;
        let (device, shape) = (self.device.id().to_string(), self.shape);
        (self.emit)(Event::Norms(Norms { device, shape, last, values }))?;
        let time = begun.elapsed();
        log.time += time - log.waits.within(time);
        Ok(())
    }
}

/// State of the norms on their way to the host.
#[derive(Default)]
struct Log {
    /// Norms on the device that are not copied yet.
    taken: usize,
    /// Time spent copying norms, without waits for a core.
    time: Duration,
    waits: CoreWaits,
    /// The sum of all norms copied so far.
    sum: f64,
}
