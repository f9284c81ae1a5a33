//! How two GPUs are connected, in the notation of `nvidia-smi topo`.

use nvml_wrapper::{
    Device, Nvml,
    enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus, TopologyLevel},
};

use super::GpuLink;

/// `NVML_NVLINK_MAX_LINKS` of nvml.h.
const MOST_LINKS: u32 = 18;

pub fn between((a, first): (u32, &Device<'_>), (b, second): (u32, &Device<'_>), nvml: &Nvml) -> GpuLink {
    let peer_access = first.p2p_status(second, P2pCapabilitiesIndex::Read).ok();
    let kind = match nvlinks(first, second) {
        0 => path(b, first, nvml).to_owned(),
        count => format!("NV{count}"),
    };
    GpuLink { between: (a, b), kind, peer_access: peer_access.map(|status| status == P2pStatus::Ok) }
}

/// NVLinks between two GPUs: those that end at the other or, with a switch, all active ones.
fn nvlinks(first: &Device<'_>, second: &Device<'_>) -> usize {
    let up = |device: &Device<'_>, link| device.link_wrapper_for(link).is_active().unwrap_or(false);
    let own: Vec<u32> = (0..MOST_LINKS).filter(|link| up(first, *link)).collect();
    let other = second.pci_info().ok().map(|pci| (pci.domain, pci.bus, pci.device));
    let ends_there = |link: &&u32| {
        let end = first.link_wrapper_for(**link).remote_pci_info().ok();
        other.is_some() && end.map(|pci| (pci.domain, pci.bus, pci.device)) == other
    };
    match own.iter().filter(ends_there).count() {
        0 if matches!(first.p2p_status(second, P2pCapabilitiesIndex::NvLink), Ok(P2pStatus::Ok)) => {
            own.len().min((0..MOST_LINKS).filter(|link| up(second, *link)).count())
        }
        direct => direct,
    }
}

/// The closest common ancestor in the PCIe topology.
fn path(b: u32, first: &Device<'_>, nvml: &Nvml) -> &'static str {
    let level = nvml.device_by_index(b).and_then(|second| first.topology_common_ancestor(second));
    match level {
        Ok(TopologyLevel::Internal | TopologyLevel::Single) => "PIX",
        Ok(TopologyLevel::Multiple) => "PXB",
        Ok(TopologyLevel::HostBridge) => "PHB",
        Ok(TopologyLevel::Node) => "NODE",
        Ok(TopologyLevel::System) => "SYS",
        Err(_) => "?",
    }
}
