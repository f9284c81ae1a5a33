//! Tensors in safetensors files.

use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::{
    host::{Durability, open_regular, reason, write_atomically},
    spec::lab::DType,
};

/// A tensor in host memory.
pub struct Tensor {
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// Its elements as 32-bit words.
    pub words: Vec<f32>,
}

/// Element types that tensors and files have in common.
const FORMATS: [(DType, Dtype); 3] =
    [(DType::F32, Dtype::F32), (DType::I32, Dtype::I32), (DType::I64, Dtype::I64)];

/// Writes named tensors to a file atomically.
pub fn save(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), String> {
    let content = |e: safetensors::SafeTensorError| format!("`{}`: {e}", path.display());
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|(_, t)| t.words.iter().flat_map(|w| w.to_le_bytes()).collect()).collect();
    let mut views = Vec::with_capacity(tensors.len());
    for ((name, Tensor { dtype, shape, .. }), bytes) in tensors.iter().zip(&bytes) {
        let format = FORMATS.iter().find(|(own, _)| own == dtype).map_or(Dtype::F32, |(_, format)| *format);
        views.push((name, TensorView::new(format, shape.clone(), bytes).map_err(content)?));
    }
    let bytes = safetensors::serialize(views, None).map_err(content)?;
    write_atomically(path, Durability::Power, |file| file.write_all(&bytes))
        .map_err(|e| format!("cannot write `{}`: {}", path.display(), reason(&e)))
}

/// A file read into memory.
pub struct TensorFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl TensorFile {
    pub fn open(path: &Path) -> Result<Self, String> {
        let mut bytes = Vec::new();
        let read = open_regular(path).and_then(|(mut file, _)| file.read_to_end(&mut bytes));
        read.map_err(|e| format!("cannot read `{}`: {}", path.display(), reason(&e)))?;
        Ok(Self { path: path.to_owned(), bytes })
    }

    pub fn get(&self, name: &str) -> Result<Tensor, String> {
        let content = |message: String| format!("`{}`: {message}", self.path.display());
        let file = SafeTensors::deserialize(&self.bytes)
            .map_err(|e| content(format!("not a safetensors file: {e}")))?;
        let Ok(view) = file.tensor(name) else {
            let mut there: Vec<_> = file.names().into_iter().map(|n| format!("`{n}`")).collect();
            there.sort();
            return Err(content(format!("there is no `{name}`; there is {}", there.join(", "))));
        };
        let Some((dtype, _)) = FORMATS.iter().find(|(_, format)| *format == view.dtype()) else {
            return Err(content(format!("`{name}` holds {:?}: expected F32, I32 or I64", view.dtype())));
        };
        let words = view.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        Ok(Tensor { dtype: *dtype, shape: view.shape().to_vec(), words })
    }
}
