//! The cluster's MPI library, opened at run time. One build supports Open MPI as well as MPICH and its
//! relatives. Only non-blocking calls are used, so that a lost rank is noticed here rather than by MPI.
//!
//! Handles are addresses in Open MPI and integers in MPICH; both are passed as machine words.

use std::{
    error::Error,
    ffi::{c_char, c_int, c_void},
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::{Tag, Transfer, Transport};
use crate::{
    collective::give_way,
    host::{self, Launched, Launcher},
};

/// The path of the library, if it is not where the loader searches.
const VARIABLE: &str = "RUNNER_MPI";

const OPEN_MPI: [&str; 2] = ["libmpi.so.40", "libmpi.so"];
const MPICH: [&str; 2] = ["libmpich.so.12", "libmpi.so.12"];

/// `MPI_THREAD_SERIALIZED`: any thread may call MPI, but only one at a time.
const SERIALIZED: c_int = 2;

/// How often a thread yields before it sleeps because MPI is busy.
const YIELDS: u32 = 20;

/// How often a thread then sleeps for [`SLEEP`] before it concludes that another thread's call never returns,
/// although no call used here waits. That takes a second, or more if the system's sleeps are longer. No clock
/// is used, since the process may have been suspended.
const MOST_SLEEPS: u32 = 10_000;

const SLEEP: Duration = Duration::from_micros(50);

/// Buffer size for the version text: the larger limit of the two families.
const VERSION: usize = 8192;

/// Used in place of an MPI error code.
const HANGS: c_int = c_int::MIN;

type Handle = usize;
type Call = unsafe extern "C" fn() -> c_int;
type InitThread = unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int;
type Ask = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type SetHandler = unsafe extern "C" fn(Handle, Handle) -> c_int;
type Send = unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Receive = unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Test = unsafe extern "C" fn(*mut Handle, *mut c_int, *mut c_void) -> c_int;
type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;

/// This process in the job, as MPI knows it.
pub struct Mpi {
    rank: usize,
    size: usize,
    /// Such as `Open MPI v4.1.4`.
    version: String,
    calls: Arc<Calls>,
}

struct Calls {
    /// Held during each call; `count` is the number of calls.
    one: Mutex<()>,
    count: AtomicU64,
    finalize: Call,
    send: Send,
    receive: Receive,
    test: Test,
    world: Handle,
    bytes: Handle,
    ignored: usize,
}

/// Handles of the constants that are used, which differ between the families.
struct Family {
    world: Handle,
    bytes: Handle,
    errors_return: Handle,
    ignored: usize,
}

impl Mpi {
    /// Joins the job that `launched` describes.
    ///
    /// # Errors
    /// If no library is found, if it belongs to another family than the launcher, or if it does not start.
    pub fn join(launched: Launched) -> Result<Self, String> {
        if let Some(why) = without_mpi(launched.by) {
            return Err(why.to_owned());
        }
        let (library, path) = open(launched.by)?;
        let family = Family::from_library(&library);
        let init: InitThread = symbol(&library, "MPI_Init_thread", &path)?;
        let [rank, size]: [Ask; 2] =
            [symbol(&library, "MPI_Comm_rank", &path)?, symbol(&library, "MPI_Comm_size", &path)?];
        let set_handler: SetHandler = symbol(&library, "MPI_Comm_set_errhandler", &path)?;
        let version: Version = symbol(&library, "MPI_Get_library_version", &path)?;
        let calls = Calls {
            one: Mutex::default(),
            count: AtomicU64::new(0),
            finalize: symbol(&library, "MPI_Finalize", &path)?,
            send: symbol(&library, "MPI_Isend", &path)?,
            receive: symbol(&library, "MPI_Irecv", &path)?,
            test: symbol(&library, "MPI_Test", &path)?,
            world: family.world,
            bytes: family.bytes,
            ignored: family.ignored,
        };
        // Never unload it: its threads run until the process ends.
        std::mem::forget(library);
        let (mut provided, mut numbers) = (0, [0; 2]);
        // SAFETY: this is the first call of MPI, which accepts null for the program's arguments.
        let begun = unsafe { init(ptr::null_mut(), ptr::null_mut(), SERIALIZED, &mut provided) };
        if begun != 0 || provided < SERIALIZED {
            return Err(format!("`{path}` does not start (MPI_Init_thread: {begun}, threads: {provided})"));
        }
        for (ask, number) in [rank, size].into_iter().zip(&mut numbers) {
            // SAFETY: MPI is initialized, and writes one integer.
            unsafe { ask(family.world, number) };
        }
        // SAFETY: both handles belong to MPI.
        unsafe { set_handler(family.world, family.errors_return) };
        let [rank, size] = numbers.map(|number| usize::try_from(number).unwrap_or(0));
        if size != launched.size {
            return Err(format!(
                "the launcher started {} processes, and `{path}` knows of {size}: they are of different families of MPI; \
                 `{VARIABLE}` names the library",
                launched.size
            ));
        }
        Ok(Self { rank, size, version: version_of(version), calls: Arc::new(calls) })
    }
}

/// Why processes of a launcher that brings no MPI cannot find each other.
fn without_mpi(launcher: Launcher) -> Option<&'static str> {
    match launcher {
        Launcher::Slurm => Some(
            "`srun` started it without MPI; with `srun --mpi=pmix` (Open MPI) or `--mpi=pmi2` (MPICH) its processes find \
             each other",
        ),
        Launcher::Torch => Some(
            "`torchrun` started it (RANK, WORLD_SIZE and MASTER_ADDR are set) and brings no MPI: start it with `mpirun -n` \
             or `srun --mpi=pmix`; without RANK in the environment it runs alone",
        ),
        Launcher::OpenMpi | Launcher::Mpich | Launcher::SlurmPmix => None,
    }
}

/// The library of the launcher's family, and its name.
fn open(launcher: Launcher) -> Result<(Library, String), String> {
    let named = host::variable(VARIABLE).map(|path| path.to_string_lossy().into_owned());
    let names: Vec<String> = match (&named, launcher) {
        (Some(path), _) => vec![path.clone()],
        (None, Launcher::Mpich) => MPICH.map(str::to_owned).into(),
        (None, _) => OPEN_MPI.map(str::to_owned).into(),
    };
    let mut why = String::new();
    for name in names {
        // SAFETY: the initializers of an MPI library may run at any time before its first call. RTLD_GLOBAL:
        // plugins of the library look up its symbols in the process.
        match unsafe { Library::open(Some(&name), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(library) => return Ok((library, name)),
            Err(e) if why.is_empty() => why = e.source().unwrap_or(&e).to_string(),
            Err(_) => {}
        }
    }
    let hint = if named.is_some() { String::new() } else { format!("; `{VARIABLE}` names it") };
    Err(format!("MPI's library cannot be opened: {why}{hint}"))
}

/// A function of the library.
fn symbol<T: Copy>(library: &Library, name: &str, path: &str) -> Result<T, String> {
    // SAFETY: `T` is the type of this function in the MPI standard.
    let found = unsafe { library.get::<T>(name.as_bytes()) };
    found.map(|symbol| *symbol).map_err(|_| format!("`{path}` is no MPI: it has no `{name}`"))
}

impl Family {
    fn from_library(library: &Library) -> Self {
        let address = |name: &str| -> Option<usize> {
            // SAFETY: only the address of the object is taken.
            let found = unsafe { library.get::<*mut c_void>(name.as_bytes()) };
            found.ok().map(|symbol| symbol.as_raw_ptr() as usize)
        };
        let open_mpi = || {
            Some(Self {
                world: address("ompi_mpi_comm_world")?,
                bytes: address("ompi_mpi_byte")?,
                errors_return: address("ompi_mpi_errors_return")?,
                ignored: 0,
            })
        };
        // The values that MPICH, MVAPICH and Intel MPI share since their ABI initiative of 2013.
        open_mpi().unwrap_or(Self {
            world: 0x4400_0000,
            bytes: 0x4c00_010d,
            errors_return: 0x5400_0001,
            ignored: 1,
        })
    }
}

/// The first line of MPI's own version text, up to the first comma.
fn version_of(version: Version) -> String {
    let (mut text, mut len) = (vec![0_u8; VERSION], 0);
    // SAFETY: MPI writes the length, and at most as many bytes as its own limit, which the buffer can hold.
    unsafe { version(text.as_mut_ptr().cast(), &mut len) };
    let text = String::from_utf8_lossy(&text);
    let line = text.split(['\0', '\n', ',']).next().unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Calls {
    /// Waits for permission to call MPI. `None` if another thread's call does not return in that time: when a
    /// rank is killed, Open MPI may wait for its own end in the call in which it learns of that.
    fn turn(&self, naps: u32) -> Option<MutexGuard<'_, ()>> {
        for turn in 0..YIELDS + naps {
            let one = match self.one.try_lock() {
                Ok(one) => Some(one),
                Err(TryLockError::Poisoned(one)) => Some(one.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if one.is_some() {
                self.count.fetch_add(1, Ordering::Relaxed);
                return one;
            }
            if turn < YIELDS { give_way() } else { thread::sleep(SLEEP) }
        }
        None
    }
}

/// A pending message and its bytes.
struct Request {
    calls: Arc<Calls>,
    handle: Handle,
    bytes: Vec<u8>,
    /// Whether MPI may still read or write the bytes.
    is_open: bool,
    /// The error code if the message could not be started, else 0.
    refused: c_int,
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn name(&self) -> &str {
        &self.version
    }

    fn send(&self, to: usize, tag: Tag, bytes: Vec<u8>) -> Box<dyn Transfer> {
        self.begin(bytes, |calls, bytes, handle| {
            let (start, len) = (bytes.as_ptr().cast(), bytes.len() as c_int);
            // SAFETY: the bytes are not moved or freed until MPI is done with them, or never.
            unsafe { (calls.send)(start, len, calls.bytes, to as c_int, tag as c_int, calls.world, handle) }
        })
    }

    fn receive(&self, from: usize, tag: Tag, len: usize) -> Box<dyn Transfer> {
        self.begin(vec![0; len], |calls, bytes, handle| {
            let (start, len) = (bytes.as_mut_ptr().cast(), bytes.len() as c_int);
            // SAFETY: as above.
            unsafe {
                (calls.receive)(start, len, calls.bytes, from as c_int, tag as c_int, calls.world, handle)
            }
        })
    }

    fn call(&self) -> Option<u64> {
        match self.calls.one.try_lock() {
            Err(TryLockError::WouldBlock) => Some(self.calls.count.load(Ordering::Relaxed)),
            _ => None,
        }
    }

    fn finish(&self) {
        if let Some(_one) = self.calls.turn(MOST_SLEEPS) {
            // SAFETY: this is the last call, since the job is over.
            unsafe { (self.calls.finalize)() };
        }
    }
}

impl Mpi {
    fn begin(
        &self,
        mut bytes: Vec<u8>,
        start: impl FnOnce(&Calls, &mut Vec<u8>, &mut Handle) -> c_int,
    ) -> Box<dyn Transfer> {
        let mut handle = 0;
        let refused = self.calls.turn(MOST_SLEEPS).map(|_one| start(&self.calls, &mut bytes, &mut handle));
        let is_open = refused == Some(0);
        Box::new(Request {
            calls: Arc::clone(&self.calls),
            handle,
            bytes,
            is_open,
            refused: refused.unwrap_or(HANGS),
        })
    }
}

impl Transfer for Request {
    fn poll(&mut self) -> Result<Option<Vec<u8>>, String> {
        if self.is_open {
            let Some(one) = self.calls.turn(0) else { return Ok(None) };
            let mut done = 0;
            // SAFETY: the handle is that of a message that MPI has started; its status is ignored.
            self.refused = unsafe {
                (self.calls.test)(
                    &mut self.handle,
                    &mut done,
                    ptr::without_provenance_mut(self.calls.ignored),
                )
            };
            drop(one);
            if self.refused == 0 && done == 0 {
                return Ok(None);
            }
            self.is_open = self.refused != 0;
        }
        match self.refused {
            0 => Ok(Some(std::mem::take(&mut self.bytes))),
            HANGS => Err("MPI does not return from a call".to_owned()),
            code => Err(format!("MPI's error {code}")),
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.is_open {
            // MPI may still access the bytes at any time, so leak them.
            std::mem::forget(std::mem::take(&mut self.bytes));
        }
    }
}
