//! What a session keeps of the GPUs that it has used, and what it opens while trials are planned.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread::{self, JoinHandle},
};

use super::{
    compiler::Compiler,
    driver::Driver,
    gpu::gpu,
    libraries::products_library,
    primary::{Primary, is_given_up},
};
use crate::plan::DeviceId;

/// The GPUs that a session has used: it keeps their contexts, which take the driver a tenth of a second, until it ends.
#[derive(Default)]
pub struct KeptGpus {
    kept: Vec<Arc<Primary>>,
    /// The context of a GPU that is surely needed, which a thread opens meanwhile.
    coming: Option<JoinHandle<Option<Arc<Primary>>>>,
    /// Threads that open libraries; waited for before the process ends, which no thread may do inside a library.
    libraries: BTreeMap<&'static str, JoinHandle<()>>,
}

impl KeptGpus {
    /// Begins to open the context of a GPU, and the compiler, which names itself in the keys of compiled kernels.
    pub fn begin(&mut self, ordinal: u32) {
        let Some((driver, gpu)) = Driver::get().ok().zip(gpu(ordinal).ok()) else { return };
        let architecture = gpu.architecture();
        self.open("nvrtc", move || drop(Compiler::open(driver.version / 1000, architecture)));
        self.coming = begin("context", move || Primary::open(driver, &gpu).ok());
    }

    /// Begins to open the library of large products, which takes as long as many short runs.
    pub fn begin_products(&mut self) {
        self.open("cublaslt", || drop(products_library()));
    }

    fn take_coming(&mut self) {
        self.kept.extend(self.coming.take().and_then(|coming| coming.join().ok().flatten()));
    }

    fn open(&mut self, library: &'static str, open: impl FnOnce() + Send + 'static) {
        if !self.libraries.contains_key(library) {
            self.libraries.extend(begin(library, open).map(|thread| (library, thread)));
        }
    }

    /// Keeps the contexts of the GPUs among these devices for the trials that follow. One in which a call has failed is
    /// released first, so that the driver may begin anew.
    pub fn keep(&mut self, devices: &[DeviceId]) {
        self.take_coming();
        self.kept.retain(|own| !own.has_failed());
        for ordinal in devices.iter().filter_map(|device| device.own_gpu()) {
            let Some((driver, gpu)) = Driver::get().ok().zip(gpu(ordinal).ok()) else { continue };
            if !self.kept.iter().any(|own| own.uuid == gpu.uuid) && !is_given_up(&gpu.uuid) {
                // A trial that loads the GPU meets the same error, and reports it.
                self.kept.extend(Primary::open(driver, &gpu));
            }
        }
    }
}

impl Drop for KeptGpus {
    fn drop(&mut self) {
        for thread in std::mem::take(&mut self.libraries).into_values() {
            let _ = thread.join(); // a panic there has been printed
        }
        self.take_coming();
        self.kept.iter().for_each(|own| own.stay());
    }
}

/// Without a thread the trial itself opens what it needs, and reports why that cannot be opened.
fn begin<T: Send + 'static>(name: &str, open: impl FnOnce() -> T + Send + 'static) -> Option<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(open).ok()
}
