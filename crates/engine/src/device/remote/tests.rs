//! A device of another process; both sides run in threads of this process.

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use super::{RemoteExecutor, ask_for_report, end, report, serve, wait_for_end};
use crate::{
    collective::{ProcessGroup, groups, leave},
    device::{
        Block, Clock, Device, DeviceError, Executor, Grain, Kind, Meters, Moved, PassKind, Purpose, Ran,
        Store, Timer, digest,
    },
    program::{Accumulator, BufferId, Hyper, Phase, Slice},
};

/// A fake device with eight numbers, which a step multiplies by its rate.
#[derive(Default)]
struct Numbers {
    values: Vec<f32>,
    sums: Vec<f64>,
    rows: Vec<f32>,
    order: Vec<u32>,
    /// As a GPU, it is done with a block only once it settles.
    is_gpu: bool,
    is_warm: bool,
}

impl Executor for Numbers {
    fn warm_up(&mut self) -> Result<(), DeviceError> {
        self.is_warm = true;
        Ok(())
    }

    fn bind(&mut self, _: BufferId, rows: &Arc<Vec<f32>>) -> Result<Moved, DeviceError> {
        self.rows = rows.to_vec();
        Ok(if self.is_gpu { Moved::Bytes(4 * rows.len() as u64) } else { Moved::Nothing })
    }

    fn bind_order(&mut self, order: &Arc<Vec<u32>>) -> Result<Moved, DeviceError> {
        self.order = order.to_vec();
        Ok(Moved::Nothing)
    }

    fn write(&mut self, to: Slice, from: &[f32]) -> Result<Moved, DeviceError> {
        self.values[to.offset..to.end()].copy_from_slice(from);
        Ok(Moved::Nothing)
    }

    fn read(&mut self, from: Slice, to: &mut [f32]) -> Result<Moved, DeviceError> {
        to.copy_from_slice(&self.values[from.offset..from.end()]);
        Ok(Moved::Nothing)
    }

    fn copy(&mut self, from: Slice, to: Slice) -> Result<Moved, DeviceError> {
        self.values.copy_within(from.offset..from.end(), to.offset);
        Ok(Moved::Nothing)
    }

    fn take_sums(&mut self, _: Accumulator, to: &mut [f64]) -> Result<Moved, DeviceError> {
        to.copy_from_slice(&self.sums);
        Ok(Moved::Nothing)
    }

    fn write_sums(&mut self, _: Accumulator, from: &[f64]) -> Result<Moved, DeviceError> {
        self.sums = from.to_vec();
        Ok(Moved::Nothing)
    }

    fn digest(&mut self, of: Slice) -> Result<(u64, Moved), DeviceError> {
        Ok((digest(&self.values[of.offset..of.end()]), Moved::Nothing))
    }

    fn run(&mut self, block: &Block<'_>, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        for (hyper, order) in block.hyper.iter().zip(&self.order) {
            self.values.iter_mut().for_each(|v| *v = *v * hyper.rate + self.rows[*order as usize]);
            meters.clock.record_many(Phase::Forward, Duration::from_micros(5), 1);
        }
        meters.ledger.copies(
            Kind::AllReduce,
            Purpose::Gradients,
            block.steps as u64,
            32,
            Duration::from_micros(3),
        );
        if block.slot == 9 {
            return Err(DeviceError::OutOfMemory { device: "rank:1@h1".to_owned(), bytes: 1 << 20 });
        }
        Ok(Ran { non_finite: Some(7), ..Ran::default() })
    }

    fn settle(&mut self, _: Purpose, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        meters.clock.record_device(Phase::Step, Duration::from_micros(7), 1);
        let waited = Duration::from_micros(2);
        let notice = self.is_warm.then(|| "it was warm".to_owned());
        Ok(Ran { non_finite: Some(8), step_time: Some(waited), waited, notice })
    }

    fn bytes(&self) -> u64 {
        32
    }
}

const ROWS: BufferId = BufferId(3);
const ALL: Slice = Slice { buffer: BufferId(0), offset: 0, len: 8 };

/// Calls `lead` with the device of the second of two ranks, while that rank serves.
fn with_remote(lead: impl FnOnce(&Arc<ProcessGroup>, &mut RemoteExecutor)) {
    with_remote_of(false, lead);
}

fn with_remote_of(is_gpu: bool, lead: impl FnOnce(&Arc<ProcessGroup>, &mut RemoteExecutor)) {
    let groups = groups(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let executor = Numbers { values: vec![0.0; 8], is_gpu, ..Numbers::default() };
            let device = Device::new("rank:1@h1", Box::new(executor));
            let rows = vec![(ROWS, Purpose::Batch, Store::Memory(Arc::new(vec![0.5, 0.25, 0.125])))];
            serve(&groups[1], device, rows).expect("rank 0 is there");
            groups[1].finish();
        });
        lead(&groups[0], &mut RemoteExecutor::new(&groups[0], 1, is_gpu));
        end(&groups[0]);
        groups[0].finish();
    });
}

fn block(hyper: &[Hyper], slot: usize) -> Block<'_> {
    let (steps, work) = (hyper.len(), PassKind::Train);
    Block { work, step: 4, position: 0, order: 0, offset: 0, rows: 3, steps, hyper, slot }
}

#[test]
fn a_device_of_another_process_does_what_it_does_here() {
    with_remote(|_, remote| {
        let mut own = Numbers { values: vec![0.0; 8], ..Numbers::default() };
        let values: Vec<f32> = (0..8).map(|i| (i as f32).exp() * 1e-3).collect();
        let order = Arc::new(vec![2, 0, 1]);
        let hyper = [0.3, 1e-9, 3.4e38].map(|rate| Hyper { rate, first: 1.0, ..Hyper::default() });
        let mut read = [[0.0; 8]; 2];
        let mut digests = [0; 2];
        let mut sums = [[0.0; 2]; 2];
        for (place, device) in [&mut own as &mut dyn Executor, remote].into_iter().enumerate() {
            let rows = if place == 0 { vec![0.5, 0.25, 0.125] } else { Vec::new() };
            device.bind(ROWS, &Arc::new(rows)).expect("bound");
            device.bind_order(&order).expect("ordered");
            device.write(ALL, &values).expect("written");
            device.copy(Slice { len: 2, ..ALL }, Slice { offset: 6, len: 2, ..ALL }).expect("copied");
            device.write_sums(Accumulator::Epoch, &[0.1, f64::MAX]).expect("written");
            let (mut clock, mut ledger) = (Clock::new(Grain::Phases), Default::default());
            let mut meters = Meters { clock: &mut clock, ledger: &mut ledger, ends: &mut Vec::new() };
            let ran = device.run(&block(&hyper, 0), &mut meters).expect("ran");
            assert_eq!(ran.non_finite, Some(7));
            device.close(&mut meters).expect("closed");
            device.read(ALL, &mut read[place]).expect("read");
            digests[place] = device.digest(ALL).expect("digested").0;
            device.take_sums(Accumulator::Epoch, &mut sums[place]).expect("taken");
            // The counts and times of the other process have arrived.
            let (phase, times) = clock.summaries(Timer::Host).next().expect("one phase");
            assert_eq!((phase, times.count, times.samples), (Phase::Forward, 3, 3));
            assert_eq!((times.min_s, times.total), (5e-6, Duration::from_micros(15)));
            let sum = ledger.lines().find(|(kind, ..)| *kind == Kind::AllReduce).expect("it is there").2;
            assert_eq!((sum.count, sum.bytes, sum.time), (3, 32, Duration::from_micros(3)));
            assert_eq!(device.bytes(), 32);
        }
        assert_eq!(read[0].map(f32::to_bits), read[1].map(f32::to_bits));
        assert_eq!((digests[0], sums[0]), (digests[1], sums[1]));
    });
}

#[test]
fn what_is_sent_is_counted_and_own_rows_are_not_sent() {
    with_remote(|_, remote| {
        assert_eq!(remote.bind(ROWS, &Arc::new(vec![1.0; 100])).expect("bound"), Moved::Nothing);
        assert_eq!(remote.write(ALL, &[1.0; 8]).expect("written"), Moved::Bytes(32));
        assert_eq!(remote.bind_order(&Arc::new(vec![1; 5])).expect("ordered"), Moved::Bytes(20));
    });
}

/// It is warmed up there, counts its copies there, and tells what is known once its steps are done.
#[test]
fn a_gpu_of_another_process_settles_there() {
    for is_gpu in [true, false] {
        with_remote_of(is_gpu, |_, remote| {
            let (mut clock, mut ledger) = (Clock::new(Grain::Phases), Default::default());
            let mut meters = Meters { clock: &mut clock, ledger: &mut ledger, ends: &mut Vec::new() };
            remote.warm_up().expect("warm");
            let copied = remote.bind(ROWS, &Arc::new(Vec::new())).expect("bound");
            assert_eq!(copied, if is_gpu { Moved::Bytes(12) } else { Moved::Nothing });
            remote.bind_order(&Arc::new(vec![0])).expect("ordered");
            remote.run(&block(&[Hyper::default()], 0), &mut meters).expect("ran");
            let ran = remote.settle(Purpose::Log, &mut meters).expect("settled");
            let waited = Duration::from_micros(2);
            let notice = Some("it was warm".to_owned());
            let settled = Ran { non_finite: Some(8), step_time: Some(waited), waited, notice };
            let known = Ran { non_finite: Some(7), ..Ran::default() };
            assert_eq!(ran, if is_gpu { settled } else { known });
            remote.close(&mut meters).expect("closed");
            let by_device: Vec<_> = clock.summaries(Timer::Device).map(|(_, times)| times.total).collect();
            assert_eq!(by_device, if is_gpu { vec![Duration::from_micros(7)] } else { Vec::new() });
            let has_constants = ledger.lines().any(|(_, purpose, _)| purpose == Purpose::Constants);
            assert_eq!(has_constants, !is_gpu);
        });
    }
}

/// Its own words come back, and it serves on.
#[test]
fn an_error_and_a_signal_of_another_process_arrive() {
    with_remote(|group, remote| {
        let (mut clock, mut ledger) = (Clock::new(Grain::Phases), Default::default());
        let mut meters = Meters { clock: &mut clock, ledger: &mut ledger, ends: &mut Vec::new() };
        let error = remote.run(&block(&[], 9), &mut meters).expect_err("it fails");
        assert_eq!(error.to_string(), "`rank:1@h1` has no room for 1 MiB");
        let error = remote.bind(BufferId(5), &Arc::default()).expect_err("there are none");
        assert_eq!(error.to_string(), "`rank:1@h1` has no rows of that kind");
        assert_eq!(group.signal().load(Ordering::SeqCst), 0);
    });
    let groups = groups(2);
    groups[1].signal().store(15, Ordering::SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| serve(&groups[1], Device::new("rank:1@h1", Box::new(Numbers::default())), Vec::new()));
        RemoteExecutor::new(&groups[0], 1, false).write_sums(Accumulator::Epoch, &[]).expect("written");
        assert_eq!(groups[0].signal().load(Ordering::SeqCst), 15);
        end(&groups[0]);
    });
    leave(&groups);
}

#[test]
fn a_rank_reports_only_where_it_is_asked() {
    for is_asked in [true, false] {
        let groups = groups(2);
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let is_awaited = report(&groups[1], b"no data".to_vec()).expect("rank 0 is there");
                if is_awaited {
                    wait_for_end(&groups[1]).expect("rank 0 is there");
                }
                is_awaited
            });
            if is_asked {
                assert_eq!(ask_for_report(&groups[0], 1), Ok(b"no data".to_vec()));
            }
            end(&groups[0]);
            assert_eq!(other.join().expect("no panic"), is_asked);
        });
        leave(&groups);
    }
}
