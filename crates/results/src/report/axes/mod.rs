//! The keys in which runs differ, and those of other kinds of layers, optimizers and schedules as one axis each.

mod architecture;
pub(super) mod differences;
mod kinds;

pub(super) use architecture::take_layers;
pub(super) use differences::{
    AVAILABLE, Difference, THREADS, file_name, is_inferred, is_of_record, is_path, keys, names_same_rows,
};
pub(super) use kinds::{TABLES, take_kinds};
