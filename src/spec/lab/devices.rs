//! `[devices]` of a lab: a list that may hold the CPU beside GPUs.

use serde::Serialize;

use crate::spec::{
    devices::{DeviceName, GpuCount, OnMissing, Request},
    reader::{Choice, Fields},
};

/// The table `[devices]`; absent, it means the CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabDevices {
    /// `num_gpus` or `use`.
    #[serde(flatten)]
    pub request: Request,
    /// What to do when a requested device is not there.
    pub on_missing: OnMissing,
}

impl LabDevices {
    pub(super) fn read(t: &mut Fields<'_>) -> Self {
        let cpu = Request::NumGpus(GpuCount::Exactly(0));
        let request = t.one_of(
            Some(cpu.clone()),
            &[
                Choice {
                    name: "num_gpus",
                    doc: "GPUs to use: a number, or \"all\"; 0 is the CPU (0)",
                    read: |v| Request::NumGpus(GpuCount::read(v)),
                },
                Choice {
                    name: "use",
                    doc: "instead of `num_gpus`, a list of devices: \"cpu\", \"gpu:1\" (\"cuda:1\"), \"gpu\"",
                    read: |v| Request::Use(v.list(1..=1024, DeviceName::read)),
                },
            ],
        );
        let request = request.unwrap_or(cpu);
        if let Request::Use(devices) = &request {
            for (i, device) in devices.iter().enumerate() {
                if devices[..i].contains(device) {
                    t.refuse_item("use", i, format!("`{device}` is named twice"), "name each device once");
                }
            }
        }
        let doc = "what to do when a device is not there";
        Self { request, on_missing: t.default("on_missing", doc, OnMissing::Error, OnMissing::read) }
    }
}
