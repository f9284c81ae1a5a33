//! The data of a job: the .npy files that every contender reads.

use std::fs;
use std::path::Path;

use crate::{Job, Loss, Outcome};

/// Targets, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    Values(Vec<f32>),
    Classes(Vec<i64>),
}

pub struct Data {
    pub rows: usize,
    /// `rows` x inputs.
    pub x: Vec<f32>,
    pub y: Targets,
    /// The same for the validation rows.
    pub held_out: Option<(usize, Vec<f32>, Targets)>,
}

impl Data {
    pub fn load(job: &Job) -> Outcome<Self> {
        let (rows, x, y) = part(job, "")?;
        let held_out = job.validates.then(|| part(job, "v")).transpose()?;
        Ok(Self { rows, x, y, held_out })
    }
}

fn part(job: &Job, suffix: &str) -> Outcome<(usize, Vec<f32>, Targets)> {
    let path = |letter| job.data.join(format!("{}_{letter}{suffix}.npy", job.name));
    let x = floats(&path("x"), job.inputs())?;
    let rows = x.len() / job.inputs();
    let (y, found) = match job.loss {
        Loss::Mse => {
            let values = floats(&path("y"), job.outputs())?;
            let found = values.len() / job.outputs();
            (Targets::Values(values), found)
        }
        Loss::CrossEntropy => {
            let classes = classes(&path("y"), job.outputs())?;
            let found = classes.len();
            (Targets::Classes(classes), found)
        }
    };
    if rows != found || rows == 0 {
        return Err(format!("{}: {rows} rows of features, {found} of targets", job.name).into());
    }
    Ok((rows, x, y))
}

fn floats(path: &Path, width: usize) -> Outcome<Vec<f32>> {
    let found = array(path, "<f4", Some(width))?;
    Ok(found.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

fn classes(path: &Path, classes: usize) -> Outcome<Vec<i64>> {
    let bytes = array(path, "<i8", None)?;
    let found: Vec<i64> = bytes
        .chunks_exact(8)
        .map(|b| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
        .collect();
    match found.iter().find(|&&class| !(0..classes as i64).contains(&class)) {
        Some(class) => Err(format!("{}: class {class} of {classes}", path.display()).into()),
        None => Ok(found),
    }
}

/// The bytes of an array of this type in C order: rows of `width` numbers, or one axis if that is `None`.
fn array(path: &Path, descr: &str, width: Option<usize>) -> Outcome<Vec<u8>> {
    let bytes =
        fs::read(path).map_err(|e| format!("{}: {e}; benches/peers/run writes it", path.display()))?;
    let wrong = |what: String| format!("{}: {what}", path.display());
    let len = match bytes.get(..12) {
        Some([0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, low, high, ..]) => {
            usize::from(u16::from_le_bytes([*low, *high]))
        }
        _ => return Err(wrong("no .npy file of version 1".into()).into()),
    };
    let head = bytes.get(10..10 + len).ok_or_else(|| wrong("ends within its header".into()))?;
    let head = String::from_utf8_lossy(head).replace(' ', "");
    for entry in [format!("'descr':'{descr}'"), "'fortran_order':False".into()] {
        if !head.contains(&entry) {
            return Err(wrong(format!("its header has no {entry}")).into());
        }
    }
    let shape = head.split_once("'shape':(").and_then(|(_, rest)| rest.split_once(')'));
    let shape: Option<Vec<usize>> =
        shape.and_then(|(axes, _)| axes.split_terminator(',').map(|axis| axis.parse().ok()).collect());
    let rows = match (shape.as_deref(), width) {
        (Some(&[rows]), None) => rows,
        (Some(&[rows, found]), Some(width)) if found == width => rows * width,
        _ => return Err(wrong(format!("its shape is not that of the job: {}", head.trim())).into()),
    };
    let body = bytes.get(10 + len..).unwrap_or_default();
    let size = if descr.ends_with('8') { 8 } else { 4 };
    if body.len() != rows * size {
        return Err(wrong(format!("{} bytes of numbers, not {}", body.len(), rows * size)).into());
    }
    Ok(body.to_vec())
}

/// Gathers rows of an array, in the given order.
pub fn picked(array: &[f32], width: usize, rows: &[u32], into: &mut Vec<f32>) {
    into.clear();
    for &row in rows {
        let first = row as usize * width;
        into.extend_from_slice(&array[first..first + width]);
    }
}

/// One-hot rows: one at the row's class, zero elsewhere.
pub fn one_hot(classes: impl ExactSizeIterator<Item = i64>, width: usize) -> Vec<f32> {
    let mut found = vec![0.0; classes.len() * width];
    for (row, class) in found.chunks_exact_mut(width).zip(classes) {
        row[class as usize] = 1.0;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, head: &str, body: &[u8]) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("rivals-{}-{name}.npy", std::process::id()));
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((head.len() as u16).to_le_bytes());
        bytes.extend(head.bytes());
        bytes.extend(body);
        fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn arrays_are_read() {
        let body: Vec<u8> = (0..6).flat_map(|i| (i as f32 / 2.0).to_le_bytes()).collect();
        let path = file("floats", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }  \n", &body);
        assert_eq!(floats(&path, 2).unwrap(), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        let told = floats(&path, 3).unwrap_err().to_string();
        assert!(told.contains("its shape is not that of the job"), "{told}");

        let body: Vec<u8> = [7i64, 0, 9].iter().flat_map(|c| c.to_le_bytes()).collect();
        let path = file("classes", "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }\n", &body);
        assert_eq!(classes(&path, 10).unwrap(), [7, 0, 9]);
        assert!(classes(&path, 9).unwrap_err().to_string().ends_with("class 9 of 9"));
        assert!(floats(&path, 1).unwrap_err().to_string().ends_with("its header has no 'descr':'<f4'"));
        let path = file("short", "{'descr': '<i8', 'fortran_order': False, 'shape': (4,), }\n", &body);
        assert!(classes(&path, 10).unwrap_err().to_string().ends_with("24 bytes of numbers, not 32"));
    }

    #[test]
    fn rows_are_picked_in_order() {
        let mut into = vec![9.0];
        picked(&[0.0, 0.1, 1.0, 1.1, 2.0, 2.1], 2, &[2, 0], &mut into);
        assert_eq!(into, [2.0, 2.1, 0.0, 0.1]);
        assert_eq!(one_hot([2, 0].into_iter(), 3), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    }
}
