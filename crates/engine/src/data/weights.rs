//! Initial weights from a safetensors file, with the names of PyTorch's `nn.Sequential`.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

use safetensors::{Dtype, SafeTensors};

use super::file;
use crate::{spec::Problem, units};

/// Tensors by name.
pub type Weights = BTreeMap<String, Tensor>;

/// A tensor in PyTorch's axis order.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// `[out, in]` for a weight, `[out]` for a bias.
    pub shape: Vec<usize>,
    /// Row-major.
    pub values: Vec<f32>,
}

/// The metadata of a run's safetensors file, by key.
///
/// # Errors
/// If it cannot be read, or is not a safetensors file.
pub fn read_metadata(path: &Path) -> Result<HashMap<String, String>, Problem> {
    let bytes = file::read_of_run(path)?;
    let (_, header) = SafeTensors::read_metadata(&bytes)
        .map_err(|e| file::problem(path, format!("not a safetensors file: {e}")))?;
    Ok(header.metadata().clone().unwrap_or_default())
}

/// Reads the file and checks that it contains exactly `wanted`: names and shapes in PyTorch's axis order.
///
/// # Errors
/// All tensors that are missing, have another shape or type, or are not wanted.
pub fn read_weights(path: &Path, wanted: &[(String, Vec<usize>)]) -> Result<Weights, Vec<Problem>> {
    let bytes = file::read(path, "model.init.file").map_err(|problem| vec![problem])?;
    taken(path, &bytes, wanted, None)
}

/// Like [`read_weights`], for a run's own file. If there is a `prefix`, the names begin with it and other tensors may occur.
///
/// # Errors
/// All tensors that are missing, or have another shape or type; without a prefix also those that are not wanted.
pub fn read_weights_of_run(
    path: &Path,
    prefix: Option<&str>,
    wanted: &[(String, Vec<usize>)],
) -> Result<Weights, Vec<Problem>> {
    let bytes = file::read_of_run(path).map_err(|problem| vec![problem])?;
    taken(path, &bytes, wanted, prefix)
}

/// Takes the tensors from a file's content.
fn taken(
    path: &Path,
    bytes: &[u8],
    wanted: &[(String, Vec<usize>)],
    prefix: Option<&str>,
) -> Result<Weights, Vec<Problem>> {
    let at_file = |message: String| file::problem(path, message);
    let tensors = SafeTensors::deserialize(bytes).map_err(|e| {
        // What `torch.save` writes is a ZIP file, that of old versions a pickle.
        let is_torch = bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"\x80\x02");
        let what = if is_torch { "it is of `torch.save`".to_owned() } else { e.to_string() };
        let hint = "after `pip install safetensors`: `safetensors.torch.save_file(model.state_dict(), FILE)`";
        vec![at_file(format!("not a safetensors file: {what}")).hint(hint)]
    })?;
    let mut problems = Vec::new();
    let mut weights = Weights::new();
    for (name, shape) in wanted {
        let Ok(tensor) = tensors.tensor(&format!("{}{name}", prefix.unwrap_or_default())) else {
            let there = tensors.names();
            let hint = format!("the file holds {}", listed(&there));
            problems.push(at_file(format!("the model's tensor `{name}` is not there")).hint(hint));
            continue;
        };
        if tensor.shape() != shape {
            let message = format!("`{name}` has the shape {:?}, the model's has {shape:?}", tensor.shape());
            problems.push(at_file(message).hint("the file must come from a model of the same layers"));
            continue;
        }
        let values: Vec<f32> = match tensor.dtype() {
            Dtype::F32 => tensor.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            Dtype::F64 => tensor.data().as_chunks().0.iter().map(|b| f64::from_le_bytes(*b) as f32).collect(),
            other => {
                problems.push(at_file(format!("`{name}` holds {other:?}: expected F32 or F64")));
                continue;
            }
        };
        if let Some(i) = values.iter().position(|v| !v.is_finite()) {
            problems.push(at_file(format!(
                "`{name}` holds {} at element {i}: expected finite numbers",
                values[i]
            )));
        }
        weights.insert(name.clone(), Tensor { shape: shape.clone(), values });
    }
    let names: HashSet<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
    for name in tensors.names().into_iter().filter(|_| prefix.is_none()) {
        if !names.contains(name) {
            problems.push(at_file(format!("the file's tensor `{name}` is not in the model")));
        }
    }
    problems.truncate(20);
    if problems.is_empty() { Ok(weights) } else { Err(problems) }
}

fn listed(names: &[&str]) -> String {
    let mut names: Vec<_> = names.iter().map(|n| format!("`{n}`")).collect();
    names.sort();
    let more = units::and_more(names.len().saturating_sub(8));
    names.truncate(8);
    if names.is_empty() { "no tensor".to_owned() } else { names.join(", ") + &more }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_regular_files_only() {
        let folder = env!("CARGO_MANIFEST_DIR");
        let found =
            "a relative path is taken from the folder of the spec; `model.init.file=PATH` names another file";
        let write = "write what it gives to a file and name that: data files are looked at again";
        for (path, words, hint) in [
            ("/dev/zero", "it is a device: expected a regular file", write),
            (folder, "it is a folder: expected a regular file", "name a file in it"),
            ("/dev/null/x", "not a directory", found),
            ("/none", "no such file or directory", found),
        ] {
            let message = format!("cannot read `{path}`: {words}");
            let problem = Problem::at_key("model.init.file", message).hint(hint);
            assert_eq!(read_weights(path.as_ref(), &[]), Err(vec![problem]));
        }
    }
}
