//! Tensors in safetensors files, read straight into a device's memory and written straight from it.

use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::{Device, Tensor, TensorError};
use crate::{
    device::Purpose,
    host::{Durability, open_regular, write_atomically},
};

/// Writes tensors under their names, whole or not at all.
///
/// # Errors
/// Where a device failed or the file cannot be written.
pub fn save(path: &Path, tensors: &[(&str, &Tensor)]) -> Result<(), TensorError> {
    let mut stored = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let mut values = vec![0.0; tensor.len()];
        tensor.read(Purpose::Checkpoint, 0, &mut values)?;
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        stored.push((*name, tensor.shape().axes().to_vec(), bytes));
    }
    let content = |message: String| TensorError::Content { path: path.to_owned(), message };
    let mut views = Vec::with_capacity(stored.len());
    for (name, shape, bytes) in &stored {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes).map_err(|e| content(e.to_string()))?;
        views.push((*name, view));
    }
    let bytes = safetensors::serialize(views, None).map_err(|e| content(e.to_string()))?;
    let failed = |source| TensorError::File { verb: "write", path: path.to_owned(), source };
    write_atomically(path, Durability::Power, |file| file.write_all(&bytes)).map_err(failed)
}

/// Reads one tensor to a device.
///
/// # Errors
/// Where the file has none of that name, or it is not of f32.
pub fn load(path: &Path, name: &str, device: &Device) -> Result<Tensor, TensorError> {
    let bytes = read(path)?;
    let file = parse(path, &bytes)?;
    let (shape, values) = numbers(path, &file, name)?;
    Ok(Tensor::written(device, &shape, &values, Purpose::Checkpoint)?.named(name))
}

/// Reads tensors that are there already, each under its name.
pub(super) fn load_into(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), TensorError> {
    let bytes = read(path)?;
    let file = parse(path, &bytes)?;
    for (name, tensor) in tensors {
        let (shape, values) = numbers(path, &file, name)?;
        if shape != tensor.shape().axes() {
            let message = format!("`{name}` has the shape {shape:?}, the net's has {}", tensor.shape());
            return Err(TensorError::Content { path: path.to_owned(), message });
        }
        tensor.device().write(Purpose::Checkpoint, tensor.handle(), &values)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, TensorError> {
    let mut bytes = Vec::new();
    let read = open_regular(path).and_then(|(mut file, _)| file.read_to_end(&mut bytes));
    read.map_err(|source| TensorError::File { verb: "read", path: path.to_owned(), source })?;
    Ok(bytes)
}

fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>, TensorError> {
    SafeTensors::deserialize(bytes).map_err(|e| TensorError::Content {
        path: PathBuf::from(path),
        message: format!("not a safetensors file: {e}"),
    })
}

fn numbers(path: &Path, file: &SafeTensors<'_>, name: &str) -> Result<(Vec<usize>, Vec<f32>), TensorError> {
    let content = |message: String| TensorError::Content { path: path.to_owned(), message };
    let Ok(view) = file.tensor(name) else {
        let mut there: Vec<_> = file.names().into_iter().map(|n| format!("`{n}`")).collect();
        there.sort();
        return Err(content(format!("there is no `{name}`; there is {}", there.join(", "))));
    };
    if view.dtype() != Dtype::F32 {
        return Err(content(format!("`{name}` holds {:?}: expected F32", view.dtype())));
    }
    let values = view.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    Ok((view.shape().to_vec(), values))
}
