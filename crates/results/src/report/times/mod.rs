//! Tables of measured times: repeats, logging policies, scaling over devices, and what makes a time doubtful.

pub(super) mod noise;
pub(super) mod policies;
mod repeats;
mod scaling;
pub(super) mod verdict;

pub(super) use repeats::Repeats;
pub(super) use scaling::{Kind, Point};
pub(super) use verdict::DeviceSweep;
