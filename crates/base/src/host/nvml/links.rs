//! How two GPUs are connected, in the notation of `nvidia-smi topo`.

use super::{GpuLink, device::Device};

/// `NVML_NVLINK_MAX_LINKS` of nvml.h.
const MOST_LINKS: u32 = 18;

/// `NVML_P2P_CAPS_INDEX_READ` and `NVML_P2P_CAPS_INDEX_NVLINK`, with `NVML_P2P_STATUS_OK`.
const READ: u32 = 0;
const NVLINK: u32 = 2;
const OK: u32 = 0;

pub fn between((a, first): (u32, Device<'_>), (b, second): (u32, Device<'_>)) -> GpuLink {
    let kind = match nvlinks(first, second) {
        0 => path(first, second).to_owned(),
        count => format!("NV{count}"),
    };
    let peer_access = first.p2p_status(second.handle, READ).map(|status| status == OK);
    GpuLink { between: (a, b), kind, peer_access }
}

/// NVLinks between two GPUs: those that end at the other or, with a switch, all active ones.
fn nvlinks(first: Device<'_>, second: Device<'_>) -> usize {
    let active = |device: Device<'_>| -> Vec<u32> {
        (0..MOST_LINKS).filter(|link| device.nvlink_state(*link) == Some(1)).collect()
    };
    let own = active(first);
    let other = second.pci_info();
    let ends_there = |link: &&u32| {
        let end = first.nvlink_end(**link);
        end.zip(other.as_ref()).is_some_and(|(end, other)| end.is_same_slot(other))
    };
    match own.iter().filter(ends_there).count() {
        0 if first.p2p_status(second.handle, NVLINK) == Some(OK) => own.len().min(active(second).len()),
        direct => direct,
    }
}

/// The closest common ancestor in the PCIe topology, of `nvmlGpuTopologyLevel_t`.
fn path(first: Device<'_>, second: Device<'_>) -> &'static str {
    match first.topology(second.handle) {
        Some(0 | 10) => "PIX",
        Some(20) => "PXB",
        Some(30) => "PHB",
        Some(40) => "NODE",
        Some(50) => "SYS",
        _ => "?",
    }
}
