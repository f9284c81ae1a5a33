//! NVIDIA GPUs through the CUDA driver. Our kernels are compiled at run time for the GPU that is there. A build needs
//! nothing of CUDA; what is missing at run time is reported as an error.
//!
//! | module | owns |
//! | --- | --- |
//! | `ffi` | NVIDIA's libraries: where they are looked for, their functions; the GPUs, and one that was taken |
//! | `memory` | memory of the device and of the host, what goes to the device and what comes back |
//! | `launch` | kernels, streams, graphs; every wait of the host, and for how long |
//! | `all_reduce` | sums over the devices of a run |
//! | `engines` | the five ways to run steps |
//! | `measure` | a GPU's speeds, measured, and what it did when, for a trace |
//! | `backend` | a GPU's memory and kernels below tensors |
//! | `load`, `blocks`, `proof`, `progress`, `executor` | all of it behind the [`Executor`](super::Executor) of every device |

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
    Context, Gpu, LibraryRow, Nccl, NcclId, driver_looked_for, gpu, gpus, is_given_up, libraries,
    products_library, versions,
};
pub use launch::{cache_trouble, hang_timeout::least_set as least_wait_set};
pub use load::CudaSetup;
pub use measure::{measure as measure_rates, measure_sums};
