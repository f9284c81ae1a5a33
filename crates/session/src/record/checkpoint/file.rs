//! The two files of a checkpoint.

use std::{hash::Hasher, io::Write, path::Path};

use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::CheckpointIdentity;
use crate::{
    event::{Checkpoint, CheckpointFacts, StateArrays},
    host::{Durability, read_regular, read_text, reason, write_atomically},
    program::{Layout, Parameter, Role, imported},
    record::{RecordError, model_file::write_tensors},
};

/// The format version of both files.
const VERSION: u32 = 2;

/// Prefix of the names of the best validation's parameters.
pub(super) const BEST: &str = "best.";

/// The contents of the `.toml` file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Description {
    version: u32,
    framework: String,
    spec_hash: String,
    pub kept_hash: String,
    pub data_digest: String,
    /// XXH3 (64 bits) of the elements of the arrays.
    arrays_digest: String,
    /// Number of rows of `metrics.csv` written before the checkpoint.
    pub metrics_rows: u64,
    pub state: CheckpointFacts,
}

impl Description {
    pub fn read(folder: &Path, name: &str) -> Result<Self, String> {
        let path = folder.join(format!("{name}.toml"));
        let text = read_text(&path).map_err(|e| format!("cannot be read: {}", reason(&e)))?;
        let (first, text) = text.split_once('\n').unwrap_or_default();
        if first != digest_line(text) {
            return Err("is damaged: its first line is not the digest of the others".to_owned());
        }
        let read: Self = toml::from_str(text).map_err(|e| format!("is damaged: {}", e.message()))?;
        let CheckpointFacts { epoch, batch, elapsed_s, train_s, logging_s, .. } = read.state;
        let is_time = |seconds: f64| (0.0..1e12).contains(&seconds);
        if epoch == 0 || batch == 0 || ![elapsed_s, train_s, logging_s].into_iter().all(is_time) {
            return Err("is damaged: it counts what cannot be".to_owned());
        }
        // In another version, the same keys may have other meanings.
        if read.version == VERSION { Ok(read) } else { Err("was written by another version".to_owned()) }
    }
}

/// Where to write, and what must be on the disk by the end.
#[derive(Clone, Copy)]
pub(super) struct Files<'a> {
    pub folder: &'a Path,
    pub name: &'a str,
    pub durability: Durability,
}

/// Writes both files. The arrays have PyTorch's names: the parameters under their own, those of the best
/// validation as `best.NAME`, and the optimizer's state number K of each as `stateK.NAME`.
pub(super) fn write(
    files: Files<'_>,
    checkpoint: &Checkpoint,
    parameters: &[Parameter],
    identity: &CheckpointIdentity,
    metrics_rows: u64,
) -> Result<Description, RecordError> {
    let Files { folder, name, durability } = files;
    let arrays = &*checkpoint.arrays;
    let tensors = sets(arrays).flat_map(|(prefix, values)| {
        parameters.iter().map(move |p| (format!("{prefix}{}", p.name), p, values))
    });
    let tensors: Vec<_> = tensors.collect();
    let framework = concat!("runner ", env!("CARGO_PKG_VERSION")).to_owned();
    let preprocessing = identity.preprocessing.clone().map(|text| ("preprocessing", text));
    let metadata =
        [("format", "pt".to_owned()), ("framework", framework.clone())].into_iter().chain(preprocessing);
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value)).collect();
    let path = folder.join(format!("{name}.safetensors"));
    write_tensors(&path, durability, &tensors, &metadata)?;
    let description = Description {
        version: VERSION,
        framework,
        spec_hash: identity.spec_hash.clone(),
        kept_hash: identity.kept_hash.clone(),
        data_digest: identity.data_digest.clone(),
        arrays_digest: digest(arrays),
        metrics_rows,
        state: checkpoint.facts.clone(),
    };
    let path = folder.join(format!("{name}.toml"));
    let text = toml::to_string(&description).map_err(|e| RecordError::encode(&path, e))?;
    let text = format!("{}\n{text}", digest_line(&text));
    write_atomically(&path, durability, |file| file.write_all(text.as_bytes()))
        .map_err(|e| RecordError::write(&path, e))?;
    Ok(description)
}

/// The first line of a description: the digest of the lines after it.
fn digest_line(text: &str) -> String {
    format!("digest = \"{:016x}\"", XxHash3_64::oneshot(text.as_bytes()))
}

/// Each array that has a value per parameter, with the prefix of its names.
fn sets(arrays: &StateArrays) -> impl Iterator<Item = (String, &[f32])> {
    let states = arrays.optimizer.chunks(arrays.values.len().max(1)).enumerate();
    let states = states.map(|(k, values)| (format!("state{k}."), values));
    let best = Some((BEST.to_owned(), &arrays.best[..])).filter(|(_, values)| !values.is_empty());
    [(String::new(), &arrays.values[..])].into_iter().chain(states).chain(best)
}

fn digest(arrays: &StateArrays) -> String {
    let mut hash = XxHash3_64::new();
    for values in [&arrays.values, &arrays.optimizer, &arrays.best] {
        hash.write(bytemuck::cast_slice(values));
    }
    format!("{:016x}", hash.finish())
}

/// Reads the arrays for a model with this layout.
pub(super) fn read_arrays(
    folder: &Path,
    name: &str,
    description: &Description,
    layout: &Layout,
) -> Result<StateArrays, String> {
    let path = folder.join(format!("{name}.safetensors"));
    let bytes = read_regular(&path).map_err(|e| format!("its arrays cannot be read: {}", reason(&e)))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| format!("its arrays are damaged: {e}"))?;
    let len = layout.whole(layout.values).len;
    let state = layout.of_role(Role::State).map_or(0, |state| state.len);
    let best = if description.state.best.is_some() { len } else { 0 };
    let mut arrays =
        StateArrays { values: vec![0.0; len], optimizer: vec![0.0; state], best: vec![0.0; best] };
    let read = |prefix: &str, to: &mut [f32]| {
        layout.parameters.iter().try_for_each(|parameter| {
            let name = format!("{prefix}{}", parameter.name);
            let values = tensor(&file, &name, parameter.elements())?;
            imported(parameter, &values, &mut to[parameter.offset..parameter.offset + parameter.elements()]);
            Ok::<_, String>(())
        })
    };
    read("", &mut arrays.values)?;
    for (k, values) in arrays.optimizer.chunks_mut(len.max(1)).enumerate() {
        read(&format!("state{k}."), values)?;
    }
    if best > 0 {
        read(BEST, &mut arrays.best)?;
    }
    if digest(&arrays) == description.arrays_digest {
        Ok(arrays)
    } else {
        Err("its arrays are not those that were saved".to_owned())
    }
}

fn tensor(file: &SafeTensors<'_>, name: &str, elements: usize) -> Result<Vec<f32>, String> {
    let tensor = file.tensor(name).map_err(|_| format!("it has no tensor `{name}`"))?;
    if tensor.dtype() != Dtype::F32 || tensor.data().len() != 4 * elements {
        return Err(format!("its tensor `{name}` does not fit the model"));
    }
    let numbers = tensor.data().chunks_exact(4);
    Ok(numbers.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}
