//! `model.safetensors`: final weights under PyTorch's names.
//!
//! The container is written here rather than by the `safetensors` crate, which keeps metadata in a hash map: the order
//! of its keys, and so the file's bytes, would change from run to run. The crate reads it back in the tests.

use std::{collections::BTreeMap, io::Write, path::Path};

use serde_json::{Map, Value, json};

use super::RecordError;
use crate::host::{Durability, write_atomically};

/// Numbers that are turned to bytes at once.
const CHUNK: usize = 4096;

/// Writes a model that outlives a kill of the process; see `write_tensors`.
pub fn write_model(
    path: &Path,
    tensors: &[(String, Vec<usize>, &[f32])],
    metadata: &BTreeMap<String, String>,
) -> Result<(), RecordError> {
    write_tensors(path, Durability::Process, tensors, metadata)
}

/// Writes tensors (name, shape, row-major values) in the given order. On an error nothing is left.
pub(super) fn write_tensors(
    path: &Path,
    durability: Durability,
    tensors: &[(String, Vec<usize>, &[f32])],
    metadata: &BTreeMap<String, String>,
) -> Result<(), RecordError> {
    let header = header(tensors, metadata).map_err(|e| RecordError::encode(path, e))?;
    write_atomically(path, durability, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        let mut bytes = Vec::with_capacity(4 * CHUNK);
        for chunk in tensors.iter().flat_map(|(_, _, values)| values.chunks(CHUNK)) {
            bytes.clear();
            bytes.extend(chunk.iter().flat_map(|value| value.to_le_bytes()));
            file.write_all(&bytes)?;
        }
        Ok(())
    })
    .map_err(|e| RecordError::write(path, e))
}

/// The JSON header, padded with spaces so that the tensors start at a multiple of 8.
fn header(
    tensors: &[(String, Vec<usize>, &[f32])],
    metadata: &BTreeMap<String, String>,
) -> Result<String, String> {
    let mut entries = Map::new();
    if !metadata.is_empty() {
        entries.insert("__metadata__".to_owned(), json!(metadata));
    }
    let mut begin = 0;
    for (name, shape, values) in tensors {
        if shape.iter().product::<usize>() != values.len() {
            return Err(format!("tensor `{name}` of shape {shape:?} has {} values", values.len()));
        }
        let end = begin + 4 * values.len();
        entries.insert(name.clone(), json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, end] }));
        begin = end;
    }
    let mut text = Value::Object(entries).to_string();
    text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use safetensors::{Dtype, SafeTensors};

    use super::*;

    #[test]
    fn the_crate_reads_it_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let weight: Vec<f32> = (0..6).map(|n| n as f32 / 7.0).collect();
        let tensors =
            [("0.weight".to_owned(), vec![2, 3], &weight[..]), ("0.bias".to_owned(), vec![2], &weight[4..])];
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
        assert_eq!(read, weight);
        assert_eq!(file.tensor("0.bias").unwrap().shape(), [2]);

        let again = folder.path().join("again");
        write_model(&again, &tensors, &metadata).unwrap();
        assert_eq!(std::fs::read(again).unwrap(), bytes);
    }

    #[test]
    fn a_shape_that_does_not_fit_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let error =
            write_model(&path, &[("w".to_owned(), vec![2, 2], &[1.0])], &BTreeMap::new()).unwrap_err();
        let expected = format!("cannot write `{}`: tensor `w` of shape [2, 2] has 1 values", path.display());
        assert_eq!(error.to_string(), expected);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
