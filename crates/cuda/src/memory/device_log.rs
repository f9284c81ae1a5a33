//! What the device writes for the host: the log, running sums, and the flag for a loss that is not finite.
//!
//! The flag is in pinned host memory. Kernels only write it, and only in the step that fails, so the host
//! sees it without a copy or a wait. Under `per_epoch` kernels read it in every step: then it is in device
//! memory, before the sums, and is copied along with them.

use std::sync::Arc;

use super::allocation::{DeviceMemory, Pinned};
use crate::{
    device::DeviceError,
    ffi::Context,
    launch::Stream,
    plan::FLAG,
    program::{Accumulator, Layout, LogTarget, Op, Programs, SUMS},
};

/// Bytes for the flag, padded to separate it from the sums.
const HEAD: usize = FLAG as usize;
const SET: usize = SUMS * size_of::<f64>();
const BEFORE_LOG: usize = HEAD + 2 * SET;

pub struct DeviceLog {
    device: DeviceMemory,
    host: Pinned,
    flag_on_host: bool,
    /// The flag, as it was last copied from the device.
    seen: u64,
}

impl DeviceLog {
    pub fn new(context: &Arc<Context>, stream: &Stream, programs: &Programs) -> Result<Self, DeviceError> {
        let bytes = BEFORE_LOG + Self::log_bytes(&programs.layout);
        let device = DeviceMemory::new(context, bytes, "the log")?;
        let host = Pinned::new(context, bytes, "the log")?;
        stream.fill(device.at, 0, bytes)?;
        let epoch = |to: LogTarget| matches!(to, LogTarget::Sums { sums: Accumulator::Epoch, .. });
        let reads = |op: &Op| matches!(op, Op::Log(log) if epoch(log.to));
        let flag_on_host = !programs.train.instructions.iter().any(|i| reads(&i.op));
        Ok(Self { device, host, flag_on_host, seen: 0 })
    }

    pub fn log_bytes(layout: &Layout) -> usize {
        4 * layout.log_slots * layout.log_width
    }

    pub fn bytes(&self) -> usize {
        self.device.bytes
    }

    pub fn flag(&self) -> u64 {
        if self.flag_on_host { self.host.at() } else { self.device.at }
    }

    pub fn sums(&self) -> u64 {
        self.device.at + HEAD as u64
    }

    pub fn sums_of(&self, sums: Accumulator) -> u64 {
        self.device.at + Self::set(sums) as u64
    }

    pub fn log(&self) -> u64 {
        self.device.at + BEFORE_LOG as u64
    }

    /// The first step whose loss is not finite, if the host knows of one yet.
    pub fn non_finite(&self) -> Option<u64> {
        let flag = if self.flag_on_host { self.host.watch(0) } else { self.seen };
        (flag != 0).then_some(flag)
    }

    /// Queues a copy of log elements to the host.
    pub fn fetch_log(&self, stream: &Stream, offset: usize, len: usize) -> Result<(), DeviceError> {
        let at = BEFORE_LOG + 4 * offset;
        stream.download(&self.host, at, self.device.at + at as u64, 4 * len)
    }

    /// Reads what was fetched; the host must have waited.
    pub fn read_log(&self, offset: usize, to: &mut [f32]) {
        self.host.read(BEFORE_LOG + 4 * offset, to);
    }

    /// Queues a copy of sums to the host, and then their reset. Returns the number of bytes.
    pub fn fetch_sums(&self, stream: &Stream, sums: Accumulator, len: usize) -> Result<usize, DeviceError> {
        let set = Self::set(sums);
        // The flag precedes the epoch's sums. If the flag is on the host, the copy must not overwrite it.
        let from = if sums == Accumulator::Epoch && !self.flag_on_host { 0 } else { set };
        let bytes = set + len.min(SUMS) * size_of::<f64>() - from;
        stream.download(&self.host, from, self.device.at + from as u64, bytes)?;
        stream.fill(self.device.at + set as u64, 0, SET)?;
        Ok(bytes)
    }

    /// Reads what was fetched; the host must have waited.
    pub fn read_sums(&mut self, sums: Accumulator, to: &mut [f64]) {
        to.fill(0.0);
        let len = to.len().min(SUMS);
        self.host.read(Self::set(sums), &mut to[..len]);
        if sums == Accumulator::Epoch && !self.flag_on_host {
            self.seen = self.host.watch(0);
        }
    }

    fn set(sums: Accumulator) -> usize {
        HEAD + if sums == Accumulator::Validation { SET } else { 0 }
    }
}
