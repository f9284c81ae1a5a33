//! Tensors in safetensors files.

use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::host::{Durability, open_regular, reason, write_atomically};

/// A tensor with its name, its shape and its numbers.
pub type Named = (String, Vec<usize>, Vec<f32>);

/// Writes tensors, whole or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn save(path: &Path, tensors: &[Named]) -> Result<(), String> {
    let content = |e: safetensors::SafeTensorError| format!("`{}`: {e}", path.display());
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|(.., values)| values.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    let mut views = Vec::with_capacity(tensors.len());
    for ((name, shape, _), bytes) in tensors.iter().zip(&bytes) {
        views.push((name, TensorView::new(Dtype::F32, shape.clone(), bytes).map_err(content)?));
    }
    let bytes = safetensors::serialize(views, None).map_err(content)?;
    write_atomically(path, Durability::Power, |file| file.write_all(&bytes))
        .map_err(|e| format!("cannot write `{}`: {}", path.display(), reason(&e)))
}

/// A file that was read.
pub struct TensorFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl TensorFile {
    /// # Errors
    /// The file cannot be read.
    pub fn open(path: &Path) -> Result<Self, String> {
        let mut bytes = Vec::new();
        let read = open_regular(path).and_then(|(mut file, _)| file.read_to_end(&mut bytes));
        read.map_err(|e| format!("cannot read `{}`: {}", path.display(), reason(&e)))?;
        Ok(Self { path: path.to_owned(), bytes })
    }

    /// A tensor's shape and numbers.
    ///
    /// # Errors
    /// There is none of that name, or it is not of f32.
    pub fn get(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>), String> {
        let content = |message: String| format!("`{}`: {message}", self.path.display());
        let file = SafeTensors::deserialize(&self.bytes)
            .map_err(|e| content(format!("not a safetensors file: {e}")))?;
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
}
