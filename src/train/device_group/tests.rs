//! Devices that fail, panic, stall or differ, with mock executors.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use super::*;
use crate::{
    collective::{Collective, Shared, shared},
    device::{Executor, Grain, Kind, Meters, Moved},
    program::Hyper,
};

/// Time limit of waits in these tests.
const SHORT: Duration = Duration::from_millis(500);

/// A stalled device ends after this time; no test waits for it.
const FOR_EVER: Duration = Duration::from_secs(600);

/// The error, in the block of steps with step 3.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Error,
    Panic,
    Stall,
    /// A parameter differs from the others'.
    Differ,
}

/// All-reduces one element at each step.
struct Pretended {
    name: String,
    fault: Fault,
    collective: Shared,
    value: f32,
    /// Alive while its thread holds it.
    alive: Arc<AtomicUsize>,
    /// Held by the test during the stall.
    stall: Arc<Mutex<()>>,
}

impl Drop for Pretended {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Executor for Pretended {
    fn bind(&mut self, _: BufferId, _: &Arc<Vec<f32>>) -> Result<Moved, DeviceError> {
        Ok(Moved::Nothing)
    }
    fn bind_order(&mut self, _: &Arc<Vec<u32>>) -> Result<Moved, DeviceError> {
        Ok(Moved::Nothing)
    }
    fn write(&mut self, _: Slice, from: &[f32]) -> Result<Moved, DeviceError> {
        self.value = from[0];
        Ok(Moved::Bytes(4))
    }
    fn read(&mut self, _: Slice, to: &mut [f32]) -> Result<Moved, DeviceError> {
        to.fill(self.value);
        Ok(Moved::Bytes(4))
    }
    fn copy(&mut self, _: Slice, _: Slice) -> Result<Moved, DeviceError> {
        Ok(Moved::Nothing)
    }
    fn take_sums(&mut self, _: Accumulator, to: &mut [f64]) -> Result<Moved, DeviceError> {
        to.fill(self.value.into());
        Ok(Moved::Bytes(8))
    }
    fn digest(&mut self, _: Slice) -> Result<(u64, Moved), DeviceError> {
        Ok((u64::from(self.value.to_bits()), Moved::Bytes(8)))
    }
    fn run(&mut self, block: &Block<'_>, _: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        for step in block.step + 1..=block.step + block.steps as u64 {
            match self.fault {
                _ if step != 3 => {}
                Fault::None => {}
                Fault::Error => return Err(DeviceError::Lost { device: self.name.clone(), step }),
                Fault::Panic => panic!("the end of {}", self.name),
                Fault::Stall => drop(self.stall.lock()),
                Fault::Differ => self.value += 1.0,
            }
            let mut sum = [1.0];
            let summed = self.collective.all_reduce(&mut sum, step);
            summed.map_err(|source| DeviceError::Collective { device: self.name.clone(), step, source })?;
            self.value += sum[0];
        }
        Ok(Ran::default())
    }
    fn settle(&mut self, _: Purpose, _: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        Ok(Ran::default())
    }
    fn bytes(&self) -> u64 {
        4
    }
}

/// A group of devices with these errors, and a count of those alive. The limits are for waits among devices and for
/// answers.
fn group(faults: &[Fault], limits: [Duration; 2], stall: &Arc<Mutex<()>>) -> (DeviceGroup, Arc<AtomicUsize>) {
    let names: Vec<String> = (0..faults.len()).map(|rank| format!("gpu:{rank}")).collect();
    let (handles, abort) = shared(names.clone(), limits[0]);
    let alive = Arc::new(AtomicUsize::new(faults.len()));
    let devices = handles.into_iter().zip(faults).zip(names).map(|((collective, fault), name)| {
        let (alive, stall) = (Arc::clone(&alive), Arc::clone(stall));
        let made = Pretended { name: name.clone(), fault: *fault, collective, value: 0.0, alive, stall };
        Device::new(name, Box::new(made))
    });
    let mut group = DeviceGroup::new(devices.collect(), abort, limits[1]).expect("threads");
    group.start(&Clock::new(Grain::Phases)).expect("started");
    (group, alive)
}

const VALUE: Slice = Slice { buffer: BufferId(0), offset: 0, len: 1 };

fn steps(group: &mut DeviceGroup, step: u64, steps: usize) -> Result<Ran, DeviceError> {
    let hyper = vec![Hyper::default(); steps];
    let block =
        Block { work: PassKind::Train, step, position: 0, offset: 0, rows: 1, steps, hyper: &hyper, slot: 0 };
    group.run(&block, &mut Clock::new(Grain::Phases), &mut Vec::new())
}

/// Two good steps, then a block with an error: the message, and the number of devices that end.
fn after(faults: &[Fault], limits: [Duration; 2]) -> (String, usize) {
    let stall = Arc::new(Mutex::new(()));
    let stalled = stall.lock().expect("no panic");
    let (mut group, alive) = group(faults, limits, &stall);
    steps(&mut group, 0, 2).expect("the first steps");
    let begun = Instant::now();
    let said = steps(&mut group, 2, 7).map(drop).map_err(|e| e.to_string());
    // Later commands are answered by a working device or refused at once.
    let _ = group.read(Purpose::Log, VALUE, &mut [0.0]);
    let _ = group.settle(Purpose::Log, &mut Clock::new(Grain::Phases), &mut Vec::new());
    let ended = group.finish().len();
    assert!(begun.elapsed() < FOR_EVER, "somebody was waited for");
    // Ended devices are gone; only a stalled one lives until it is released.
    let stalling = faults.iter().filter(|f| **f == Fault::Stall).count();
    assert_eq!((alive.load(Ordering::SeqCst), ended), (stalling, faults.len() - stalling));
    drop(stalled);
    (said.expect_err("a fault"), ended)
}

#[test]
fn a_device_that_fails_ends_the_work_of_all() {
    use Fault::*;
    for (faults, said) in [
        (vec![Error, None], "a thread of `gpu:0` ended unexpectedly at step 3"),
        (vec![None, Error], "a thread of `gpu:1` ended unexpectedly at step 3"),
        (vec![None, None, Error, None], "a thread of `gpu:2` ended unexpectedly at step 3"),
        (vec![Panic, None], "`gpu:0` panicked at steps 3 to 9: the end of gpu:0"),
        (vec![None, None, Panic], "`gpu:2` panicked at steps 3 to 9: the end of gpu:2"),
    ] {
        // The others would wait for ever without the release.
        assert_eq!(after(&faults, [FOR_EVER; 2]), (said.to_owned(), faults.len()));
    }
}

#[test]
fn a_device_that_stalls_is_named_by_those_that_wait() {
    use Fault::*;
    for (faults, limits, said) in [
        (
            vec![Stall, None],
            [SHORT, FOR_EVER],
            "`gpu:1`, step 3: `gpu:0` did not come to the sum over devices within 500 ms",
        ),
        (
            vec![None, Stall],
            [SHORT, FOR_EVER],
            "`gpu:0`, step 3: `gpu:1` did not come to the sum over devices within 500 ms",
        ),
        // No device is left to report the other.
        (vec![Stall, Stall], [FOR_EVER, SHORT], "`gpu:0` did not answer within 500 ms, at steps 3 to 9"),
    ] {
        assert_eq!(after(&faults, limits).0, said);
    }
}

#[test]
fn what_is_asked_of_several_comes_in_their_order() {
    let stall = Arc::default();
    let (mut group, _) = group(&[Fault::None, Fault::Differ, Fault::None], [FOR_EVER; 2], &stall);
    group.write(Purpose::Parameters, VALUE, &[0.5]).expect("written");
    steps(&mut group, 0, 3).expect("three steps");
    assert_eq!(group.names(), ["gpu:0", "gpu:1", "gpu:2"]);
    let digest = |value: f32| u64::from(value.to_bits());
    assert_eq!(group.digests(VALUE).expect("digests"), [digest(9.5), digest(10.5), digest(9.5)]);
    let mut sum = [0.0];
    group.take_sums(Purpose::Validation, Accumulator::Validation, &mut sum).expect("sums");
    assert_eq!(sum, [9.5 + 10.5 + 9.5]);
    group.take_sums(Purpose::Log, Accumulator::Epoch, &mut sum).expect("sums");
    assert_eq!(sum, [9.5]);
    let ranks = group.finish();
    // Each device's ledger counts its own transfers.
    let written = |rank: &Rank| rank.device.ledger.lines().find(|(kind, ..)| *kind == Kind::HostToDevice);
    assert_eq!(ranks.iter().filter_map(written).map(|(.., line)| line.bytes).collect::<Vec<_>>(), [4; 3]);
}
