//! `model.safetensors`: final weights under PyTorch's names.
//!
//! The container is written here rather than by the `safetensors` crate: the crate keeps metadata in a hash
//! map, so the order of its keys, and with it the file's bytes, would change from run to run. The tests read
//! the file back with the crate.

use std::{collections::BTreeMap, io::Write, path::Path};

use serde_json::{Map, Value, json};

use super::RecordError;
use crate::{
    host::{Durability, write_atomically},
    program::{Parameter, exported},
};

/// A tensor to write: its name, its parameter, and the flat buffer that holds all parameters.
pub type Exported<'a> = (String, &'a Parameter, &'a [f32]);

/// Writes a model so that it survives a kill of the process; see `write_tensors`.
pub fn write_model(
    path: &Path,
    tensors: &[Exported],
    metadata: &BTreeMap<String, String>,
) -> Result<(), RecordError> {
    write_tensors(path, Durability::Process, tensors, metadata)
}

/// Writes tensors in the given order, with PyTorch's order of axes, without making a second copy of them. On
/// an error no file is left.
pub(super) fn write_tensors(
    path: &Path,
    durability: Durability,
    tensors: &[Exported],
    metadata: &BTreeMap<String, String>,
) -> Result<(), RecordError> {
    let header = header(tensors, metadata);
    write_atomically(path, durability, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        let mut values = tensors.iter().flat_map(|(_, parameter, values)| exported(parameter, values));
        values.try_for_each(|value| file.write_all(&value.to_le_bytes()))
    })
    .map_err(|e| RecordError::write(path, e))
}

/// The JSON header, padded with spaces so that the tensors start at a multiple of 8.
fn header(tensors: &[Exported], metadata: &BTreeMap<String, String>) -> String {
    let mut entries = Map::new();
    if !metadata.is_empty() {
        entries.insert("__metadata__".to_owned(), json!(metadata));
    }
    let mut begin = 0;
    for (name, parameter, _) in tensors {
        let end = begin + 4 * parameter.elements();
        let shape: Vec<_> = parameter.shape.iter().rev().collect();
        entries.insert(name.clone(), json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, end] }));
        begin = end;
    }
    let mut text = Value::Object(entries).to_string();
    text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
    text
}

#[cfg(test)]
mod tests {
    use safetensors::{Dtype, SafeTensors};

    use super::*;

    #[test]
    fn the_crate_reads_it_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let values: Vec<f32> = (0..8).map(|n| n as f32 / 7.0).collect();
        let parameter = |name: &str, shape: &[usize], offset| Parameter {
            name: name.to_owned(),
            shape: shape.to_owned(),
            offset,
            constant: None,
        };
        let parameters = [parameter("0.weight", &[3, 2], 0), parameter("0.bias", &[2], 6)];
        let tensors = parameters.each_ref().map(|p| (p.name.clone(), p, &values[..]));
        let metadata =
            BTreeMap::from([("b".to_owned(), "\"2\"".to_owned()), ("a".to_owned(), "1".to_owned())]);
        write_model(&path, &tensors, &metadata).unwrap();

        let bytes = std::fs::read(&path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(header.metadata().as_ref().unwrap()["b"], "\"2\"");
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let view = file.tensor("0.weight").unwrap();
        assert_eq!((view.dtype(), view.shape()), (Dtype::F32, &[2, 3][..]));
        let read: Vec<f32> =
            view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        assert_eq!(read, [0, 2, 4, 1, 3, 5].map(|i| values[i]));
        assert_eq!(file.tensor("0.bias").unwrap().shape(), [2]);

        let again = folder.path().join("again");
        write_model(&again, &tensors, &metadata).unwrap();
        assert_eq!(std::fs::read(again).unwrap(), bytes);
    }
}
