//! `idx`.

use std::{fs, io::Write, path::PathBuf};

use flate2::{Compression, write::GzEncoder};
use runner::{
    data::Task,
    spec::{Idx, Source},
};
use tempfile::TempDir;

use super::{idx_of, memory, problems, read_ok};

/// An IDX file of element type `element`.
pub fn idx(element: u8, dims: &[u32], elements: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, element, dims.len() as u8];
    dims.iter().for_each(|dim| bytes.extend(dim.to_be_bytes()));
    bytes.extend(elements);
    bytes
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).expect("memory");
    packed.finish().expect("memory")
}

struct Folder(TempDir);

impl Folder {
    fn new(images: &[u8], labels: &[u8]) -> Self {
        let folder = Self(TempDir::new().expect("a folder"));
        folder.write("images", images);
        folder.write("labels", labels);
        folder
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).expect("a file");
        path
    }

    fn spec(&self) -> Idx {
        idx_of(self.0.path().join("images"), self.0.path().join("labels"))
    }

    fn problems(&self) -> String {
        problems(Source::Idx(self.spec()), Task::Classification, self.0.path())
    }
}

const IMAGES: [u8; 12] = [0, 51, 102, 153, 204, 255, 1, 2, 3, 4, 5, 6];

#[test]
fn reads_images_plain_and_gzipped() {
    let (images, labels) = (idx(8, &[3, 2, 2], &IMAGES), idx(8, &[3], &[1, 0, 2]));
    for folder in [Folder::new(&images, &labels), Folder::new(&gzip(&images), &gzip(&labels))] {
        let made = read_ok(Source::Idx(folder.spec()), Task::Classification);
        assert_eq!((made.features, made.targets, made.classes, made.train.rows), (4, 1, Some(3), 3));
        assert_eq!(memory(&made.train), IMAGES.map(|pixel| f32::from(pixel) / 255.0));
        assert_eq!(**made.train.targets, [1.0, 0.0, 2.0]);
        assert_eq!(made.preprocessing.to_string(), r#"{"source":"idx","features":{"scale":255.0}}"#);
    }
}

#[test]
fn reads_other_elements_and_numbers() {
    let floats: Vec<u8> = [1.5_f32, -2.5].iter().flat_map(|x| x.to_be_bytes()).collect();
    let folder = Folder::new(&idx(0x0d, &[2, 1], &floats), &idx(0x0b, &[2], &[0xff, 0xfe, 0, 7]));
    let spec = Idx { scale: 0.5, ..folder.spec() };
    let made = read_ok(Source::Idx(spec), Task::Regression);
    assert_eq!((memory(&made.train), &made.train.targets[..]), (&[3.0, -5.0][..], &[-2.0, 7.0][..]));
    assert_eq!(made.classes, None);
}

#[test]
fn splits_and_validates() {
    let pixels: Vec<u8> = (0..100).collect();
    let labels: Vec<u8> = (0..100).map(|i| i % 2).collect();
    let folder = Folder::new(&idx(8, &[100, 1], &pixels), &idx(8, &[100], &labels));
    let split = Idx { validation_fraction: Some(0.3), scale: 1.0, ..folder.spec() };
    let made = read_ok(Source::Idx(split), Task::Classification);
    let validation = made.validation.expect("rows to validate on");
    assert_eq!((made.train.rows, validation.rows), (70, 30));
    for part in [&made.train, &validation] {
        assert!(memory(part).iter().zip(part.targets.iter()).all(|(x, y)| x % 2.0 == *y));
    }

    let spec = Idx {
        validation_images: Some(folder.write("v-images", &idx(8, &[2, 1], &[7, 8]))),
        validation_labels: Some(folder.write("v-labels", &idx(8, &[2], &[1, 1]))),
        scale: 1.0,
        ..folder.spec()
    };
    let made = read_ok(Source::Idx(spec.clone()), Task::Classification);
    let validation = made.validation.expect("rows to validate on");
    assert_eq!(
        (made.train.rows, memory(&validation), &validation.targets[..]),
        (100, &[7.0, 8.0][..], &[1.0, 1.0][..])
    );

    folder.write("v-images", &idx(8, &[2, 2], &[7, 8, 9, 9]));
    let text = |spec: &Idx| problems(Source::Idx(spec.clone()), Task::Classification, folder.0.path());
    assert_eq!(text(&spec), "rows have 2 features, but those of `images` have 1\n  --> v-images\n");
    folder.write("v-images", &idx(8, &[2, 1], &[7, 8]));
    folder.write("v-labels", &idx(8, &[2], &[1, 5]));
    assert_eq!(
        text(&spec),
        "the label of row 1 (counted from 0) is 5, and the training labels end at 1\n  --> v-labels\n"
    );
}

#[test]
fn a_header_that_lies_is_told() {
    let labels = idx(8, &[3], &[1, 0, 2]);
    let lie = |dims: &[u32], elements: &[u8]| idx(8, dims, elements);
    let size = "  --> images\n  hint: the file is damaged, or was cut while it was copied\n";
    for (images, expected) in [
        (
            lie(&[3, 2, 2], &IMAGES[..11]),
            format!("the header declares 12 bytes of elements, and 11 are there\n{size}"),
        ),
        (
            lie(&[3, 2, 2], &[0; 13]),
            format!("the header declares 12 bytes of elements, and 13 are there\n{size}"),
        ),
        (
            lie(&[3, 65536, 65536], &IMAGES),
            format!("the header declares 12884901888 bytes of elements, and 12 are there\n{size}"),
        ),
        (
            lie(&[3, u32::MAX, u32::MAX], &IMAGES),
            "no file holds its shape [3, 4294967295, 4294967295]\n  --> images\n".into(),
        ),
        (
            gzip(&lie(&[3, 2, 2], &IMAGES[..11])),
            format!("the header declares 12 bytes of elements, and only 11 are there\n{size}"),
        ),
        (
            gzip(&lie(&[3, 2, 2], &[0; 13])),
            format!("the header declares 12 bytes of elements, and more are there\n{size}"),
        ),
        (lie(&[3, 0, 2], &[]), "rows of shape [0, 2] hold no numbers\n  --> images\n".into()),
        (lie(&[0, 2, 2], &[]), "it holds no rows\n  --> images\n".into()),
        (
            idx(8, &[3, 2, 2], &[])[..9].to_vec(),
            "ends within its header of 3 dimensions\n  --> images\n".into(),
        ),
    ] {
        assert_eq!(Folder::new(&images, &labels).problems(), expected);
    }
    let packed = gzip(&lie(&[3, 1 << 30, 2], &IMAGES));
    let length = packed.len();
    assert_eq!(
        Folder::new(&packed, &labels).problems(),
        format!(
            "the header declares 6442450944 bytes of elements, and {length} compressed ones cannot hold them\n{size}"
        )
    );
}

#[test]
fn files_that_do_not_fit_are_told() {
    let (images, labels) = (idx(8, &[3, 2, 2], &IMAGES), idx(8, &[3], &[1, 0, 2]));
    assert_eq!(
        Folder::new(&images, &idx(8, &[2], &[0, 1])).problems(),
        "2 labels, but `images` has 3 rows\n  --> labels\n  hint: both files need the same number of rows\n"
    );
    assert_eq!(
        Folder::new(&labels, &images).problems(),
        "\
one number per row, and `labels` holds the arrays
  --> images
  hint: images and labels look interchanged
"
    );
    assert_eq!(
        Folder::new(&labels, &labels).problems(),
        "one dimension: expected rows of features, such as images\n  --> images\n"
    );
    assert_eq!(
        Folder::new(b"PK\x03\x04...", &labels).problems(),
        "\
not an IDX file: it starts with `50 4b 03 04`
  --> images
  hint: images start with `00 00 08 03`, labels with `00 00 08 01`, once decompressed
"
    );
    assert_eq!(
        Folder::new(b"", &labels).problems(),
        "\
not an IDX file: it starts with ``
  --> images
  hint: images start with `00 00 08 03`, labels with `00 00 08 01`, once decompressed
"
    );
    assert_eq!(
        Folder::new(&idx(7, &[3, 2, 2], &IMAGES), &labels).problems(),
        "\
`07` is not an element type of an IDX file
  --> images
  hint: 08 is u8, 09 i8, 0b i16, 0c i32, 0d f32, 0e f64
"
    );
    let packed = gzip(&images);
    let text = Folder::new(&packed[..packed.len() - 12], &labels).problems();
    assert!(text.starts_with("cannot be read: ") && text.ends_with("  --> images\n"), "{text}");
    assert_eq!(
        Folder::new(&images, &idx(8, &[3], &[1, 2, 3])).problems(),
        "\
classes are numbered 0, 1, 2, ... without a gap: found 1, 2, 3
  --> labels
  hint: renumber them; for numbers instead of classes use `loss = \"mse\"`
"
    );
}
