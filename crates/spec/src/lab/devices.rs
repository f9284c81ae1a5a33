//! `[devices]` of a lab: a list that may contain both the CPU and GPUs.

use crate::{
    devices::{OnMissing, Request},
    reader::{Fields, table},
};

table! {
    /// The table `[devices]`; without it, the lab runs on the CPU.
    pub struct LabDevices {
        /// `num_gpus` or `use`.
        pub request: Request [flatten] = Request::CPU,
        /// What to do when a requested device is not there.
        pub on_missing: OnMissing = OnMissing::Error,
    }
    check check
}

impl LabDevices {
    fn check(&mut self, t: &mut Fields<'_>) {
        if let Request::Use(devices) = &self.request {
            t.refuse_repeated("use", devices, "name each device once");
        }
    }
}
