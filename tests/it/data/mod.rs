//! Sources of rows, driven through `runner::data::open`.

mod categories;
mod csv;
mod csv_problems;
mod garbage;
pub mod idx;
mod indicators;
mod mutated;
pub mod npy;
mod npy_in_file;
mod opened;
mod parquet_absent;
mod parsed;
mod real;
mod synthetic;

use std::path::PathBuf;

use opened::{MUCH, csv_of, data, memory, problems, read_ok, reported};
use runner::spec::{Idx, Npy};

fn idx_of(images: PathBuf, labels: PathBuf) -> Idx {
    Idx {
        images,
        labels,
        validation_images: None,
        validation_labels: None,
        validation_fraction: Some(0.0),
        scale: 255.0,
    }
}

fn npy_of(features: PathBuf, labels: PathBuf) -> Npy {
    Npy {
        features,
        labels,
        groups: None,
        validation_features: None,
        validation_labels: None,
        validation_fraction: Some(0.0),
        standardize: false,
    }
}
