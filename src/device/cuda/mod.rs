//! NVIDIA GPUs by the CUDA driver, with kernels of our own that are compiled for the very device where the program
//! runs. Nothing of CUDA is needed to build; what is missing at run time is a sentence, never a crash.
//!
//! | file | owns |
//! | --- | --- |
//! | `library`, `driver`, `compiler`, `blas`, `libraries` | NVIDIA's libraries: where they are looked for, their functions |
//! | `gpu`, `context` | the GPUs that there are, and one that was taken |
//! | `memory`, `stream`, `graph`, `launch` | the driver's things, each freed by its owner |
//! | `cache`, `kernels` | our kernels: compiled, cached, loaded |
//! | `abi`, `steps` | programs as records that kernels read |
//! | `product` | large products by cuBLASLt |
//! | `access`, `peer`, `nccl`, `communicator`, `sums` | sums over the devices of a run: from memory to memory, by NCCL, or through the host |
//! | `engine` | the four ways to run steps |
//! | `feed`, `staging`, `ring`, `mailbox` | what goes to the device and what comes back |
//! | `wait`, `patience`, `pulse` | every wait of the host, for how long, and whether calls of the driver come back |
//! | `timeline` | what the device did when, for a trace |
//! | `rates` | a GPU's speeds, measured |
//! | `backend` | a GPU's memory and kernels below tensors |
//! | `load`, `blocks`, `executor` | all of it behind the [`Executor`](super::Executor) of every device |

mod abi;
mod access;
mod backend;
mod blas;
mod blocks;
mod cache;
mod communicator;
mod compiler;
mod context;
mod driver;
mod engine;
mod executor;
mod feed;
mod gpu;
mod graph;
mod kernels;
mod launch;
mod libraries;
mod library;
mod load;
mod mailbox;
mod memory;
mod nccl;
mod patience;
mod peer;
mod product;
mod pulse;
mod rates;
mod ring;
mod staging;
mod steps;
mod stream;
mod sums;
mod timeline;
mod wait;

pub use access::reaches;
pub use backend::CudaBackend;
pub use communicator::Communicator;
pub use executor::CudaExecutor;
pub use gpu::{Gpu, driver_looked_for, gpus};
pub use libraries::{LibraryRow, libraries, products_library, versions};
pub use load::Job;
pub use nccl::Nccl;
pub use peer::{PeerSums, connect};
pub use rates::{measure as measure_rates, measure_sums};
pub use sums::Way;
