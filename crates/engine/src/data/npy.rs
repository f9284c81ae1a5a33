//! `npy`: NumPy arrays. Labels are read into memory; features stay in their file if they do not fit.
//!
//! Features are f32, f64 or u8, row-major and little-endian. They are scaled by `standardize` alone, since an
//! array may hold any quantity (unlike `idx`, which is for images and scales u8).

use super::{
    Dataset, Task,
    arrays::{Arrays, Pair},
    division::Division,
    file, npy_header,
    raw::Element,
};
use crate::spec::{Npy, Placement, Problem};

pub(super) fn open(
    spec: &Npy,
    task: Task,
    division: &Division,
    placement: Placement,
    memory_limit: u64,
) -> Result<Dataset, Problem> {
    let validation = spec.validation_features.as_deref().zip(spec.validation_labels.as_deref());
    let arrays = Arrays {
        read_header: npy_header::read,
        train: [("data.npy.features", &spec.features), ("data.npy.labels", &spec.labels)],
        validation: validation.map(|(features, labels)| {
            [("data.npy.validation_features", features), ("data.npy.validation_labels", labels)]
        }),
        groups: spec.groups.as_deref().map(|path| ("data.npy.groups", path)),
        check,
        placement: Some((placement, memory_limit)),
        scale: None,
        standardize: spec.standardize.then_some("data.npy.standardize"),
    };
    arrays.open(task, division)
}

fn check(Pair { features, labels }: &Pair<'_>, task: Task) -> Result<(), Problem> {
    let element = features.header.layout.element;
    if !matches!(element, Element::F32 | Element::F64 | Element::U8) {
        let message = format!("features are {element:?}: expected f32, f64 or u8").to_lowercase();
        return Err(file::problem(features.path, message)
            .hint("in Python: `numpy.save(path, array.astype(\"float32\"))`"));
    }
    if task == Task::Classification && labels.width != 1 {
        let message = format!("labels of shape {:?}: expected one class per row", labels.header.shape);
        return Err(file::problem(labels.path, message)
            .hint("for one-hot labels, in Python: `numpy.save(path, labels.argmax(1))`"));
    }
    Ok(())
}
