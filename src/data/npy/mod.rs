//! `npy`: NumPy arrays. Labels are read to memory; features stay in their file if they do not fit.
//!
//! Features are f32, f64 or u8, row-major and little-endian. They are not scaled: an array may
//! hold any quantity (`idx` scales u8, since it is for images).

mod header;
mod rows;

use std::{
    fs::File,
    io::{BufReader, Seek, SeekFrom},
    path::Path,
    sync::Arc,
};

use self::{
    header::{Header, Refusal},
    rows::{Array, Rows},
};
use super::{
    Dataset, FileFingerprint, Part, Store, Task, file, labels, memory,
    raw::{self, Element},
    split::{self, Split},
};
use crate::spec::{Npy, Placement, Problem};

pub(super) fn open(
    spec: &Npy,
    task: Task,
    seed: u64,
    placement: Placement,
    memory_limit: u64,
) -> Result<Dataset, Vec<Problem>> {
    read(spec, task, seed, placement, memory_limit).map_err(|problem| vec![problem])
}

fn read(
    spec: &Npy,
    task: Task,
    seed: u64,
    placement: Placement,
    memory_limit: u64,
) -> Result<Dataset, Problem> {
    let train = Pair::open(&spec.features, &spec.labels, ["data.npy.features", "data.npy.labels"], task)?;
    let validation = match (&spec.validation_features, &spec.validation_labels) {
        (Some(features), Some(labels)) => {
            let keys = ["data.npy.validation_features", "data.npy.validation_labels"];
            let pair = Pair::open(features, labels, keys, task)?;
            pair.check_like(&train)?;
            Some(pair)
        }
        (None, None) => None,
        (Some(_), None) => return Err(alone("validation_features", "validation_labels")),
        (None, Some(_)) => return Err(alone("validation_labels", "validation_features")),
    };
    let split = match validation {
        Some(_) => Split::none(train.rows),
        None => {
            let fraction = spec.validation_fraction.unwrap_or(split::DEFAULT_FRACTION);
            Split::by_fraction(seed, train.rows, fraction, "data.npy.validation_fraction")?
        }
    };
    let bytes = train.bytes() + validation.as_ref().map_or(0, Pair::bytes);
    let fits = bytes <= u128::from(memory_limit);
    if placement == Placement::Resident && !fits {
        let message = format!(
            "`placement = \"resident\"`: the features need {} as f32, and memory has room for {}",
            memory::size(bytes),
            memory::size(memory_limit.into())
        );
        let hint = "`data.placement = \"auto\"` reads from the file what memory does not hold";
        return Err(Problem::at_key("data.placement", message).hint(hint));
    }
    let stay = placement == Placement::Streamed || !fits;
    let mut notes = Vec::new();
    if stay {
        notes.push(format!("features ({} as f32) are read from their file", memory::size(bytes)));
    }

    let (features, targets) = (train.width, train.targets);
    let (train_targets, classes) = train.labels(task, None)?;
    let (train_targets, validation_targets) = split.apply(train_targets, targets);
    let (train_store, rest) = train.features(&split, stay)?;
    let validation = match validation {
        None => rest.map(|store| part(split.validation_rows(), store, validation_targets)),
        Some(pair) => {
            let (targets, _) = pair.labels(task, classes)?;
            let (store, _) = pair.features(&Split::none(pair.rows), stay)?;
            Some(part(pair.rows, store, targets))
        }
    };
    Ok(Dataset {
        train: part(split.train_rows(), train_store, train_targets),
        validation,
        features,
        targets,
        classes,
        preprocessing: serde_json::Value::Null,
        truth: None,
        notes,
        files: Vec::new(),
    })
}

fn part(rows: usize, features: Store, targets: Vec<f32>) -> Part {
    Part { rows, features, targets: Arc::new(targets) }
}

fn alone(given: &str, other: &str) -> Problem {
    Problem::at_key(format!("data.npy.{given}"), format!("`{given}` is given without `{other}`"))
        .hint("give both, or neither")
}

/// Features and their labels: headers read, sizes checked, elements not yet read.
struct Pair<'a> {
    features_path: &'a Path,
    labels_path: &'a Path,
    features: (File, Header),
    labels: (File, Header),
    rows: usize,
    /// Features per row.
    width: usize,
    /// Numbers per label.
    targets: usize,
}

impl<'a> Pair<'a> {
    fn open(
        features_path: &'a Path,
        labels_path: &'a Path,
        keys: [&str; 2],
        task: Task,
    ) -> Result<Self, Problem> {
        let features = open_array(features_path, keys[0])?;
        let labels = open_array(labels_path, keys[1])?;
        if !matches!(features.1.layout.element, Element::F32 | Element::F64 | Element::U8) {
            let message = format!("features are {:?}: expected f32, f64 or u8", features.1.layout.element)
                .to_lowercase();
            return Err(file::problem(features_path, message)
                .hint("in Python: `numpy.save(path, array.astype(\"float32\"))`"));
        }
        let (rows, width) = rows_and_width(features_path, &features.1)?;
        let (label_rows, targets) = rows_and_width(labels_path, &labels.1)?;
        if rows != label_rows {
            let message = format!("{label_rows} labels, and `{}` holds {rows} rows", features_path.display());
            return Err(file::problem(labels_path, message).hint("both files must be of the same rows"));
        }
        if task == Task::Classification && targets != 1 {
            let message = format!("labels of shape {:?}: expected one class per row", labels.1.shape);
            return Err(file::problem(labels_path, message)
                .hint("for one-hot labels, in Python: `numpy.save(path, labels.argmax(1))`"));
        }
        Ok(Self { features_path, labels_path, features, labels, rows, width, targets })
    }

    /// Validation rows must match the training rows' shape and type.
    fn check_like(&self, train: &Self) -> Result<(), Problem> {
        let unlike = |path: &Path, what: &str, found: usize, other: &Path, expected: usize| {
            let message =
                format!("rows of {found} {what}, and those of `{}` have {expected}", other.display());
            Err(file::problem(path, message))
        };
        if self.width != train.width {
            return unlike(self.features_path, "features", self.width, train.features_path, train.width);
        }
        if self.targets != train.targets {
            return unlike(self.labels_path, "targets", self.targets, train.labels_path, train.targets);
        }
        Ok(())
    }

    /// Bytes of the features as f32.
    fn bytes(&self) -> u128 {
        self.rows as u128 * self.width as u128 * 4
    }

    fn labels(&self, task: Task, known: Option<usize>) -> Result<(Vec<f32>, Option<usize>), Problem> {
        let (file, header) = &self.labels;
        let mut file = at_elements(self.labels_path, file, header)?;
        let size = header.layout.element.bytes();
        let mut exact = vec![0.0; self.rows * self.targets];
        let mut bytes = vec![0; exact.len() * size];
        let read =
            raw::fill(&mut file, &mut bytes).map_err(|error| file::unreadable(self.labels_path, &error))?;
        if read < bytes.len() {
            let fault = raw::Fault::Short(read as u64);
            return Err(file::fault(self.labels_path, bytes.len() as u64, fault));
        }
        header.layout.decode_f64(&bytes, &mut exact);
        let classes = labels::check(&exact, self.targets, task, known, &file::place(self.labels_path))?;
        Ok((exact.iter().map(|&label| label as f32).collect(), classes))
    }

    /// The features of the training rows and of the validation rows, if any.
    fn features(&self, split: &Split, stay: bool) -> Result<(Store, Option<Store>), Problem> {
        let (file, header) = &self.features;
        if !stay {
            let mut reader = at_elements(self.features_path, file, header)?;
            let read = raw::read_split(&mut reader, header.layout, self.width, split, true, |_| {});
            let declared = (self.rows * self.width * header.layout.element.bytes()) as u64;
            let (train, validation) = read.map_err(|fault| {
                let no_room = matches!(fault, raw::Fault::Memory(_));
                let problem = file::fault(self.features_path, declared, fault);
                let hint = "`data.placement = \"streamed\"` leaves the rows in their file";
                if no_room { problem.hint(hint) } else { problem }
            })?;
            let store = |values| Store::Memory(Arc::new(values));
            return Ok((store(train), (split.validation_rows() > 0).then(|| store(validation))));
        }
        let unreadable = |error| file::unreadable(self.features_path, &error);
        let array = Arc::new(Array {
            file: file.try_clone().map_err(unreadable)?,
            path: self.features_path.into(),
            stamp: FileFingerprint::new(self.features_path, &file.metadata().map_err(unreadable)?),
            layout: header.layout,
            width: self.width,
            offset: header.offset,
        });
        let store = |validation: bool| {
            // At most u32::MAX rows: checked with the shape.
            let chosen = (split.validation_rows() > 0)
                .then(|| split.rows_of(validation).map(|row| row as u32).collect::<Arc<[u32]>>());
            let rows = if validation { split.validation_rows() } else { split.train_rows() };
            Store::File(Arc::new(Rows::new(array.clone(), rows as u32, chosen)))
        };
        Ok((store(false), (split.validation_rows() > 0).then(|| store(true))))
    }
}

/// Opens an array and checks its shape against the file's length before allocating memory.
fn open_array(path: &Path, key: &str) -> Result<(File, Header), Problem> {
    let (mut file, length) = file::open(path, key)?;
    let header = header::read(&mut file).map_err(|refusal| match refusal {
        Refusal::Io(error) => file::unreadable(path, &error),
        Refusal::Words { message, hint } => {
            Problem { hint: hint.map(Into::into), ..file::problem(path, message) }
        }
    })?;
    let declared = header
        .shape
        .iter()
        .try_fold(header.layout.element.bytes() as u64, |bytes, &dim| bytes.checked_mul(dim))
        .ok_or_else(|| file::problem(path, format!("no file holds its shape {:?}", header.shape)))?;
    let found = length.saturating_sub(header.offset);
    if found != declared {
        return Err(file::wrong_size(path, declared, &format!("{found} are there")));
    }
    Ok((file, header))
}

fn rows_and_width(path: &Path, header: &Header) -> Result<(usize, usize), Problem> {
    let Some((&rows, rest)) = header.shape.split_first() else {
        return Err(file::problem(path, "a single number: expected rows"));
    };
    let width = rest.iter().try_fold(1_u64, |width, &dim| width.checked_mul(dim));
    let sizes = (u32::try_from(rows).ok(), width.and_then(|width| usize::try_from(width).ok()));
    match sizes {
        (Some(0), _) => Err(file::problem(path, "it holds no rows")),
        (_, Some(0)) => Err(file::problem(path, format!("rows of shape {rest:?} hold no numbers"))),
        (Some(rows), Some(width)) => Ok((rows as usize, width)),
        _ => Err(file::problem(path, format!("shape {:?}: at most {} rows", header.shape, u32::MAX))),
    }
}

fn at_elements<'a>(path: &Path, mut file: &'a File, header: &Header) -> Result<BufReader<&'a File>, Problem> {
    file.seek(SeekFrom::Start(header.offset)).map_err(|error| file::unreadable(path, &error))?;
    Ok(BufReader::new(file))
}
