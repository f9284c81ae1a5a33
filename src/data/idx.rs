//! `idx`: MNIST's format, gzipped or not.
//!
//! A file is two zero bytes, an element type, the number of dimensions, the dimensions as big-endian u32, then the
//! elements, big-endian and row-major (<http://yann.lecun.com/exdb/mnist/>). Sizes are checked before memory is taken.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use serde_json::json;

use super::{
    Dataset, Part, Task, file, labels,
    raw::{self, Element, Endian, Layout},
    split::{self, Split},
};
use crate::spec::{Idx, Problem};

pub(super) fn open(spec: &Idx, task: Task, seed: u64) -> Result<Dataset, Vec<Problem>> {
    read(spec, task, seed).map_err(|problem| vec![problem])
}

fn read(spec: &Idx, task: Task, seed: u64) -> Result<Dataset, Problem> {
    if !(spec.scale.is_finite() && spec.scale as f32 != 0.0) {
        let message = format!("`{}` divides no feature: expected a finite number other than 0", spec.scale);
        return Err(Problem::at_key("data.idx.scale", message));
    }
    let (images, labels_file) = pair(&spec.images, &spec.labels, ["data.idx.images", "data.idx.labels"])?;
    let validation = match (&spec.validation_images, &spec.validation_labels) {
        (Some(images), Some(labels)) => {
            Some(pair(images, labels, ["data.idx.validation_images", "data.idx.validation_labels"])?)
        }
        (None, None) => None,
        (Some(_), None) => return Err(alone("validation_images", "validation_labels")),
        (None, Some(_)) => return Err(alone("validation_labels", "validation_images")),
    };
    let features = images.width()?;
    let split = match validation {
        Some(_) => Split::none(images.rows()),
        None => {
            let fraction = spec.validation_fraction.unwrap_or(split::DEFAULT_FRACTION);
            Split::by_fraction(seed, images.rows(), fraction, "data.idx.validation_fraction")?
        }
    };
    let (targets, classes) = labels_file.labels(task, None)?;
    let (train_targets, validation_targets) = split.apply(targets, 1);
    let (train, rest) = images.features(&split, spec.scale)?;
    let validation = match validation {
        None if split.validation_rows() == 0 => None,
        None => Some(Part::in_memory(split.validation_rows(), rest, validation_targets)),
        Some((images, labels)) => {
            let width = images.width()?;
            if width != features {
                let message = format!(
                    "rows of {width} features, and those of `{}` have {features}",
                    spec.images.display()
                );
                return Err(file::problem(images.path, message));
            }
            let (targets, _) = labels.labels(task, classes)?;
            let rows = images.rows();
            let (features, _) = images.features(&Split::none(rows), spec.scale)?;
            Some(Part::in_memory(rows, features, targets))
        }
    };
    Ok(Dataset {
        train: Part::in_memory(split.train_rows(), train, train_targets),
        validation,
        features,
        targets: 1,
        classes,
        preprocessing: json!({ "source": "idx", "features": { "scale": spec.scale } }),
        truth: None,
        notes: Vec::new(),
        files: Vec::new(),
    })
}

fn alone(given: &str, other: &str) -> Problem {
    Problem::at_key(format!("data.idx.{given}"), format!("`{given}` is given without `{other}`"))
        .hint("give both, or neither")
}

/// Opens images and their labels, which must be equally many.
fn pair<'a>(images: &'a Path, labels: &'a Path, keys: [&str; 2]) -> Result<(Array<'a>, Array<'a>), Problem> {
    let images = Array::open(images, keys[0])?;
    let labels = Array::open(labels, keys[1])?;
    if images.dims.len() == 1 && labels.dims.len() > 1 {
        let message = format!("one number per row, and `{}` holds the arrays", labels.path.display());
        return Err(file::problem(images.path, message)
            .hint(format!("`{}` and `{}` look interchanged", keys[0], keys[1])));
    }
    if labels.dims[1..].iter().any(|&dim| dim != 1) {
        let message = format!("labels of shape {:?}: expected one per row", labels.dims);
        return Err(file::problem(labels.path, message));
    }
    if images.dims[0] != labels.dims[0] {
        let message = format!(
            "{} labels, and `{}` holds {} rows",
            labels.dims[0],
            images.path.display(),
            images.dims[0]
        );
        return Err(file::problem(labels.path, message).hint("both files must be of the same rows"));
    }
    if images.dims[0] == 0 {
        return Err(file::problem(images.path, "it holds no rows"));
    }
    Ok((images, labels))
}

/// A file whose header has been read.
struct Array<'a> {
    path: &'a Path,
    dims: Vec<u32>,
    layout: Layout,
    /// Positioned at the first element.
    elements: Box<dyn Read>,
    /// Bytes of elements that the header declares.
    declared: u64,
    /// Whether the file's length confirms them.
    trusted: bool,
}

impl<'a> Array<'a> {
    fn open(path: &'a Path, key: &str) -> Result<Self, Problem> {
        let (mut file, length) = file::open(path, key)?;
        let gzipped = is_gzip(&mut file).map_err(|error| file::unreadable(path, &error))?;
        let mut elements: Box<dyn Read> = if gzipped {
            Box::new(MultiGzDecoder::new(std::io::BufReader::new(file)))
        } else {
            Box::new(file)
        };
        let mut bytes = |count: usize| -> Result<Vec<u8>, Problem> {
            let mut bytes = vec![0; count];
            let read =
                raw::fill(&mut *elements, &mut bytes).map_err(|error| file::unreadable(path, &error))?;
            bytes.truncate(read);
            Ok(bytes)
        };
        let magic = bytes(4)?;
        let [0, 0, element, rank @ 1..=255] = magic[..] else {
            let start: Vec<String> = magic.iter().map(|byte| format!("{byte:02x}")).collect();
            let message = format!("not an IDX file: it starts with `{}`", start.join(" "));
            return Err(file::problem(path, message)
                .hint("images start with `00 00 08 03`, labels with `00 00 08 01`, once decompressed"));
        };
        let element = element_of(element).ok_or_else(|| {
            file::problem(path, format!("`{element:02x}` is no element type of an IDX file"))
                .hint("08 is u8, 09 i8, 0b i16, 0c i32, 0d f32, 0e f64")
        })?;
        let dims = bytes(4 * usize::from(rank))?;
        let dims: Vec<u32> = dims.as_chunks().0.iter().map(|dim| u32::from_be_bytes(*dim)).collect();
        if dims.len() < usize::from(rank) {
            return Err(file::problem(path, format!("ends within its header of {rank} dimensions")));
        }
        let declared = dims
            .iter()
            .try_fold(element.bytes() as u64, |bytes, &dim| bytes.checked_mul(dim.into()))
            .ok_or_else(|| file::problem(path, format!("no file holds its shape {dims:?}")))?;
        let found = length.saturating_sub(4 + 4 * u64::from(rank));
        if !gzipped && found != declared {
            return Err(file::wrong_size(path, declared, &format!("{found} are there")));
        }
        // Deflate expands a byte to at most 1032 bytes.
        if gzipped && declared > length.saturating_mul(1032) {
            return Err(file::wrong_size(
                path,
                declared,
                &format!("{length} compressed ones cannot hold them"),
            ));
        }
        let layout = Layout { element, endian: Endian::Big };
        Ok(Self { path, dims, layout, elements, declared, trusted: !gzipped })
    }

    fn rows(&self) -> usize {
        self.dims[0] as usize
    }

    /// Features per row.
    fn width(&self) -> Result<usize, Problem> {
        let width = self.dims[1..].iter().try_fold(1_usize, |width, &dim| width.checked_mul(dim as usize));
        match width {
            _ if self.dims.len() < 2 => {
                let message = "one dimension: expected rows of features, such as images";
                Err(file::problem(self.path, message))
            }
            Some(0) | None => {
                Err(file::problem(self.path, format!("rows of shape {:?} hold no features", &self.dims[1..])))
            }
            Some(width) => Ok(width),
        }
    }

    fn features(mut self, split: &Split, scale: f64) -> Result<(Vec<f32>, Vec<f32>), Problem> {
        let scale = scale as f32;
        let scaled = |block: &mut [f32]| block.iter_mut().for_each(|x| *x /= scale);
        let width = self.width()?;
        raw::read_split(&mut *self.elements, self.layout, width, split, self.trusted, scaled)
            .map_err(|fault| file::fault(self.path, self.declared, fault))
    }

    fn labels(mut self, task: Task, known: Option<usize>) -> Result<(Vec<f32>, Option<usize>), Problem> {
        let all = Split::none(self.rows());
        let (values, _) = raw::read_split(&mut *self.elements, self.layout, 1, &all, self.trusted, |_| {})
            .map_err(|fault| file::fault(self.path, self.declared, fault))?;
        let exact: Vec<f64> = values.iter().map(|&value| value.into()).collect();
        let classes = labels::check(&exact, 1, task, known, &file::place(self.path))?;
        Ok((values, classes))
    }
}

/// Whether a file starts with gzip's magic number; rewinds it.
fn is_gzip(file: &mut File) -> std::io::Result<bool> {
    let mut start = [0; 2];
    let read = raw::fill(file, &mut start)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(read == 2 && start == [0x1f, 0x8b])
}

fn element_of(byte: u8) -> Option<Element> {
    Some(match byte {
        0x08 => Element::U8,
        0x09 => Element::I8,
        0x0b => Element::I16,
        0x0c => Element::I32,
        0x0d => Element::F32,
        0x0e => Element::F64,
        _ => return None,
    })
}
