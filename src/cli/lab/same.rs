//! When two trials of a sweep are alike: one that would only repeat another is not run, and only those that do the same
//! work have a ratio of their speeds.

use crate::{
    plan::{
        DeviceId,
        lab::{LabTrial, Work},
    },
    spec::{Lab, LabSpec, OnMissing, lab::Order},
};

/// Whether `b` would only repeat `a`: it asks for other devices and gets the same ones, or for another order of a single
/// device.
pub fn repeats(a: &LabTrial, b: &LabTrial) -> bool {
    let asks_for_others = a.spec.devices.request != b.spec.devices.request;
    if a.devices.used != b.devices.used || (asks_for_others && b.spec.devices.on_missing != OnMissing::Clamp)
    {
        return false;
    }
    let alone = b.devices.used.len() == 1;
    let without = |spec: &LabSpec| {
        let mut spec = spec.clone();
        spec.devices.request = a.spec.devices.request.clone();
        if alone { without_order(spec) } else { spec }
    };
    // What is asked for twice is done twice.
    a.spec != b.spec && without(&a.spec) == without(&b.spec)
}

/// Whether two trials do the same, be it elsewhere, in another order or under another policy for their log.
pub fn same_work(a: &LabTrial, b: &LabTrial) -> bool {
    let same = match (&a.work, &b.work) {
        (Work::Matmul { shapes: x, .. }, Work::Matmul { shapes: y, .. }) => {
            x == y && a.devices.used.len() == b.devices.used.len()
        }
        (Work::Transfer(x), Work::Transfer(y)) => {
            let is_host = |place| place == DeviceId::Cpu;
            let ways = |copies: &[crate::plan::lab::CopyPlan]| -> Vec<_> {
                let way = |c: &crate::plan::lab::CopyPlan| {
                    (is_host(c.from), is_host(c.to), c.from == c.to, c.memory)
                };
                copies.iter().map(way).collect()
            };
            ways(x) == ways(y)
        }
        // A tour is no measurement.
        _ => false,
    };
    let without = |spec: &LabSpec| {
        let mut spec = without_order(spec.clone());
        (spec.devices, spec.logging) = (a.spec.devices.clone(), None);
        spec
    };
    same && without(&a.spec) == without(&b.spec)
}

fn without_order(mut spec: LabSpec) -> LabSpec {
    if let Lab::Matmul(matmul) = &mut spec.lab {
        matmul.order = Order::Sequential;
    }
    spec
}
