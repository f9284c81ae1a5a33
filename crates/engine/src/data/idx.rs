//! `idx`: the format of MNIST, gzipped or not.
//!
//! A file has two zero bytes, an element type, the number of dimensions, the dimensions as big-endian u32,
//! then the elements, big-endian and row-major (<http://yann.lecun.com/exdb/mnist/>).

use std::io::Read;

use serde_json::json;

use super::{
    Dataset, Task,
    array_file::{Header, Refusal, refuse},
    arrays::{Arrays, Pair},
    division::Division,
    file,
    raw::{self, Element, Endian, Layout},
};
use crate::spec::{Idx, Problem};

pub(super) fn open(spec: &Idx, task: Task, division: &Division) -> Result<Dataset, Problem> {
    let validation = spec.validation_images.as_deref().zip(spec.validation_labels.as_deref());
    let arrays = Arrays {
        read_header,
        train: [("data.idx.images", &spec.images), ("data.idx.labels", &spec.labels)],
        validation: validation.map(|(images, labels)| {
            [("data.idx.validation_images", images), ("data.idx.validation_labels", labels)]
        }),
        groups: None,
        check,
        placement: None,
        scale: Some(spec.scale),
        standardize: None,
    };
    let preprocessing = json!({ "source": "idx", "features": { "scale": spec.scale } });
    Ok(Dataset { preprocessing, ..arrays.open(task, division)? })
}

fn check(Pair { features, labels }: &Pair<'_>, _: Task) -> Result<(), Problem> {
    let has_numbers = features.header.shape.len() == 1;
    if has_numbers && labels.header.shape.len() > 1 {
        let message = format!("one number per row, and `{}` holds the arrays", labels.path.display());
        return Err(file::problem(features.path, message).hint("images and labels look interchanged"));
    }
    if labels.width != 1 {
        let message = format!("labels of shape {:?}: expected one per row", labels.header.shape);
        return Err(file::problem(labels.path, message));
    }
    if has_numbers {
        let message = "one dimension: expected rows of features, such as images";
        return Err(file::problem(features.path, message));
    }
    Ok(())
}

pub(super) fn read_header(reader: &mut dyn Read) -> Result<Header, Refusal> {
    let mut magic = [0; 4];
    let found = raw::fill(reader, &mut magic)?;
    let [0, 0, element, rank @ 1..=255] = magic[..found] else {
        let start: Vec<String> = magic[..found].iter().map(|byte| format!("{byte:02x}")).collect();
        return refuse(
            format!("not an IDX file: it starts with `{}`", start.join(" ")),
            Some("images start with `00 00 08 03`, labels with `00 00 08 01`, once decompressed"),
        );
    };
    let element = match element {
        0x08 => Element::U8,
        0x09 => Element::I8,
        0x0b => Element::I16,
        0x0c => Element::I32,
        0x0d => Element::F32,
        0x0e => Element::F64,
        other => {
            let message = format!("`{other:02x}` is not an element type of an IDX file");
            return refuse(message, Some("08 is u8, 09 i8, 0b i16, 0c i32, 0d f32, 0e f64"));
        }
    };
    let mut dims = vec![0; 4 * usize::from(rank)];
    if raw::fill(reader, &mut dims)? < dims.len() {
        return refuse(format!("ends within its header of {rank} dimensions"), None);
    }
    let shape = dims.as_chunks().0.iter().map(|dim| u32::from_be_bytes(*dim).into()).collect();
    let layout = Layout { element, endian: Endian::Big };
    Ok(Header { layout, shape, offset: 4 + dims.len() as u64 })
}
