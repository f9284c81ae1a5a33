//! Leases of GPUs, without hardware.

use super::*;
use crate::record::SWEEP_FILE;

/// Four GPUs: 0 and 1 have peer access to each other, as do 2 and 3; the last one has a different memory
/// size.
fn machine() -> Machine {
    let gpu = |i: u32| Gpu {
        is_virtual: false,
        uuid: Some(format!("GPU-{i}")),
        reaches: vec![i ^ 1],
        memory_free: if i == 3 { 10 } else { 100 },
        ..Gpu::virtual_of(0)
    };
    Machine::typical((0..4).map(gpu).collect(), 1 << 30)
}

fn devices(gpus: &[u32], machine: &Machine) -> ResolvedDevices {
    let used = gpus.iter().map(|i| DeviceId::Gpu(*i)).collect();
    ResolvedDevices::new(gpus.len().to_string(), used, None, machine)
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(SWEEP_FILE), "").unwrap();
        Self(folder)
    }

    /// The claims of a process.
    fn join(&self) -> Arc<Claims> {
        let claims = Claims::new(self.0.path(), true, || true).unwrap().unwrap();
        claims.go_on().unwrap();
        Arc::new(claims)
    }
}

fn wanted(devices: &ResolvedDevices, bytes: u64) -> Wanted<'_> {
    Wanted { devices, bytes, is_one_block: false }
}

/// Leases GPUs if they are available at once.
fn now<'l>(leases: &'l Leases<'_>, gpus: &[u32], bytes: u64) -> Option<(Lease<'l, 'l>, Vec<u32>)> {
    let devices = devices(gpus, leases.machine);
    let lease = leases.take(&wanted(&devices, bytes), at_once())?;
    let gpus = lease.gpus.clone();
    Some((lease, gpus))
}

/// Returns false on the first call and true afterwards, so that `take` tries only once.
fn at_once() -> impl Fn() -> bool {
    let asked = std::cell::Cell::new(false);
    move || asked.replace(true)
}

#[test]
fn a_gpu_has_one_trial() {
    let (machine, folder) = (machine(), Folder::new());
    let leases = Leases::new(&machine, GpuSharing::Never, folder.join());
    let first = now(&leases, &[0], 1).unwrap();
    let second = now(&leases, &[0], 50).unwrap();
    let pair = now(&leases, &[0, 1], 1);
    assert_eq!((&first.1[..], &second.1[..]), (&[0][..], &[1][..]));
    // The two that are left have peer access to each other, like the planned ones.
    let pair = pair.unwrap();
    assert_eq!(pair.1, [2, 3]);
    assert!(now(&leases, &[0], 1).is_none());
    drop(pair);
    // A GPU that the user named is not replaced, and one with too little memory is not used.
    let named = ResolvedDevices { are_named: true, ..devices(&[1], &machine) };
    assert!(leases.take(&wanted(&named, 1), at_once()).is_none());
    let third = now(&leases, &[0], 50).unwrap();
    assert_eq!(third.1, [2]);
    assert!(now(&leases, &[0], 50).is_none());
    let small = now(&leases, &[0], 5).unwrap();
    assert_eq!(small.1, [3]);
    drop((first, second));
    assert_eq!(now(&leases, &[0, 1], 50).unwrap().1, [0, 1]);
    // The CPU needs no lease.
    let cpu = ResolvedDevices::new("0".to_owned(), vec![DeviceId::Cpu], None, &machine);
    assert!(leases.take(&wanted(&cpu, 1), at_once()).unwrap().devices(&cpu).is_none());
}

/// With many GPUs that are alike, not every order is tried.
#[test]
fn sixteen_of_many_gpus_are_looked_for_in_no_time() {
    // The first sixteen have peer access to each other, the others to none.
    let gpu = |i: u32| Gpu {
        reaches: (0..16).filter(|other| i < 16 && *other != i).collect(),
        memory_free: 100,
        ..Gpu::virtual_of(0)
    };
    let machine = Machine::typical((0..40).map(gpu).collect(), 1 << 30);
    let folder = Folder::new();
    let leases = Leases::new(&machine, GpuSharing::Never, folder.join());
    let all: Vec<u32> = (0..16).collect();
    let whole = now(&leases, &all, 1).unwrap();
    assert_eq!(whole.1, all);
    assert!(now(&leases, &all, 1).is_none());
    drop(whole);
    let _one = now(&leases, &[0], 1).unwrap();
    assert!(now(&leases, &all, 1).is_none());
    assert_eq!(now(&leases, &[0, 1], 1).unwrap().1, [1, 2]);
}

#[test]
fn gpus_of_another_kind_stand_in_for_none() {
    let mut machine = machine();
    machine.gpus[1].model = "another".to_owned();
    machine.gpus[2].limits.cooperative = true;
    machine.gpus.truncate(3);
    let folder = Folder::new();
    let leases = Leases::new(&machine, GpuSharing::Never, folder.join());
    let _first = now(&leases, &[0], 1).unwrap();
    assert!(now(&leases, &[0], 1).is_none());
    assert_eq!(now(&leases, &[1], 1).unwrap().1, [1]);
}

#[test]
fn trials_share_gpus_evenly_and_as_far_as_memory_goes() {
    let mut machine = machine();
    machine.gpus.truncate(2);
    let folder = Folder::new();
    let leases = Leases::new(&machine, GpuSharing::Always, folder.join());
    let held: Vec<_> = (0..4).map(|_| now(&leases, &[0], 45).unwrap()).collect();
    assert_eq!(held.iter().map(|(_, gpus)| gpus[0]).collect::<Vec<_>>(), [0, 1, 0, 1]);
    assert!(now(&leases, &[0], 45).is_none());
    assert_eq!(now(&leases, &[0], 10).unwrap().1, [0]);
}

/// Trials get GPUs in the order in which they came.
#[test]
fn one_that_waits_is_not_passed_by() {
    let mut machine = machine();
    machine.gpus.truncate(2);
    let folder = Folder::new();
    let leases = Leases::new(&machine, GpuSharing::Never, folder.join());
    let first = now(&leases, &[0], 1).unwrap();
    std::thread::scope(|scope| {
        let pair = scope.spawn(|| {
            let devices = devices(&[0, 1], &machine);
            leases.take(&wanted(&devices, 1), || false).map(|lease| lease.gpus.clone())
        });
        while leases.state().came < 2 {
            std::thread::yield_now();
        }
        assert!(now(&leases, &[0], 1).is_none(), "the pair comes first");
        drop(first);
        assert_eq!(pair.join().unwrap().unwrap(), [0, 1]);
    });
}

#[test]
fn processes_that_share_a_sweep_have_other_gpus() {
    let (machine, folder) = (machine(), Folder::new());
    let [own, other] = [0, 1].map(|_| Leases::new(&machine, GpuSharing::Never, folder.join()));
    let held = now(&own, &[0], 1).unwrap();
    assert_eq!(now(&other, &[0], 1).unwrap().1, [1]);
    drop(held);
    assert_eq!(now(&other, &[0], 1).unwrap().1, [0]);
    let sharing = [0, 1].map(|_| Leases::new(&machine, GpuSharing::Always, folder.join()));
    let held = sharing.each_ref().map(|leases| now(leases, &[0], 1).unwrap());
    assert_eq!(held.each_ref().map(|(_, gpus)| gpus[0]), [0, 0]);
    assert_eq!(now(&other, &[0], 1).unwrap().1, [1]);
}

/// By default trials that take one block share a GPU, and one that takes all of it waits until it is free. Other processes have
/// other GPUs.
#[test]
fn trials_of_one_block_share_gpus_within_a_process() {
    let mut machine = machine();
    machine.gpus.truncate(2);
    let folder = Folder::new();
    let [own, other] = [0, 1].map(|_| Leases::new(&machine, GpuSharing::Auto, folder.join()));
    let planned = devices(&[0], &machine);
    let one_block = || {
        let wanted = Wanted { is_one_block: true, ..wanted(&planned, 30) };
        own.take(&wanted, at_once())
    };
    let mut held: Vec<_> = (0..6).map(|_| one_block().unwrap()).collect();
    assert_eq!(held.iter().map(|lease| lease.gpus[0]).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1]);
    assert!(one_block().is_none(), "memory is full");
    held.retain(|lease| lease.gpus == [1]);
    let whole = now(&own, &[0], 1).unwrap();
    assert_eq!(whole.1, [0]);
    held.clear();
    assert_eq!(one_block().unwrap().gpus, [1], "the first has a trial that needs all of it");
    assert_eq!(now(&other, &[0], 1).unwrap().1, [1]);
    drop(whole);
    let _shared = one_block().unwrap();
    assert_eq!(now(&other, &[0], 1).unwrap().1, [1]);
    assert_eq!(now(&own, &[0], 1).unwrap().1, [1], "the other process has ended its trial");
}
