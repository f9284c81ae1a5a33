//! NVIDIA GPUs through the CUDA driver. This project's kernels are compiled at run time for the GPU at hand.
//! A build needs no part of CUDA; what is missing at run time is reported as an error.
//!
//! | module | owns |
//! | --- | --- |
//! | `ffi` | NVIDIA's libraries: where they are searched for, their functions; the GPUs and their contexts |
//! | `memory` | memory of the device and of the host, uploads and downloads |
//! | `launch` | kernels, streams, graphs; every wait of the host, and its time limit |
//! | `all_reduce` | sums over the devices of a run |
//! | `engines` | the five ways to run steps |
//! | `measure` | a GPU's measured speeds, and its timeline for a trace |
//! | `backend` | memory and kernels of a GPU for the lab's tensors |
//! | `load`, `blocks`, `proof`, `progress`, `executor` | the [`Executor`](device::Executor) of a GPU |

// Modules that only this project uses may leave `missing_docs` unmet: a name that says enough needs no doc.
#![allow(missing_docs, unsafe_code)]

mod all_reduce;
mod backend;
mod blocks;
mod engines;
mod executor;
mod ffi;
mod launch;
mod limits;
mod load;
mod measure;
mod memory;
mod progress;
mod proof;

use all_reduce::MOST_PEERS;
pub use all_reduce::{Communicator, PeerAllReduce, connect, reaches};
pub use backend::CudaBackend;
pub use engines::QueuedSums;
pub use executor::CudaExecutor;
pub use ffi::{
    Gpu, KeptGpus, LibraryRow, Nccl, NcclId, allow_many_streams, driver_looked_for, gpu, gpus, is_given_up,
    libraries, products_library, versions,
};
pub use launch::{cache_trouble, hang_timeout::least_set as least_wait_set};
pub use load::{CudaSetup, RankLink};
pub use measure::{measure as measure_rates, measure_sums};

use runner_base::{host, units};
use runner_engine::{collective, device, op, plan, program};
use runner_spec as spec;
