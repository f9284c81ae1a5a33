//! `[data]`: where the rows come from and how they are batched.

// Doc comments also become schema text, where brackets mean arrays, not links.
#![allow(rustdoc::broken_intra_doc_links)]

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use super::{
    reader::{Fields, Rule, below_one, choices, positive, size, some, table, words},
    synthetic::{Synthetic, SyntheticClassification, SyntheticRegression},
    tables::{Csv, DEFAULT_FRACTION, Parquet, check_validation},
};

table! {
    /// The table `[data]`.
    pub struct Data {
        /// Rows per optimizer step.
        pub batch_size: usize = 32 => size,
        /// Whether each epoch has its own order of rows, drawn from (seed, epoch).
        pub shuffle: bool = true,
        /// What draws the orders of rows; by default the seed of the run.
        pub shuffle_seed: Option<u64> = None => some(super::read_seed),
        /// Where the rows live while training.
        pub placement: Placement = Placement::Auto,
        /// How the rows of a file are divided, in place of `validation_fraction`.
        pub split: Option<SplitRule> = None,
        /// Parts of a cross-validation; each run validates on one of them and trains on the others, with `split.shuffle = false` on
        /// the rows before it.
        pub folds: Option<u32> = None => some(|v| v.integer(2..=1000) as u32),
        /// The part that validates, from 0: an axis of a sweep, as in `data.fold=0..5`.
        pub fold: Option<u32> = None => some(|v| v.integer(0..=999) as u32),
        /// Exactly one source of rows.
        pub source: Source [flatten],
    }
    check check
}

table! {
    /// Parts of the rows of a file, drawn by a seed or in the order of the file.
    pub struct SplitRule {
        /// Fraction of the rows to validate on (0.2 without `data.folds`).
        pub validation: Option<f64> = None => some(below_one),
        /// Fraction that no run sees, for `runner evaluate RUN`; drawn by `seed` here, else alike for all seeds of runs.
        pub test: f64 = 0.0 => below_one,
        /// Whether each class has its share in every part.
        pub stratify: bool = false,
        /// Whether the parts are drawn; `false` leaves the rows in their order: the last are for the test, those before them
        /// validate, or a fold of them.
        pub shuffle: bool = true,
        /// What draws the parts; by default the seed of the run.
        pub seed: Option<u64> = None => some(super::read_seed),
    }
}

words! {
    /// Where the rows live while training.
    pub enum Placement {
        /// On the device where they fit, else in chunks.
        Auto = "auto",
        /// On the device from the start.
        Resident = "resident",
        /// Brought to the device in chunks; rows of `npy` stay in their file, where the CPU fetches them. For a GPU they are
        /// read into memory when a trial begins, if a fifth of it holds them.
        Streamed = "streamed",
    }
}

choices! {
    /// A source of rows; the variant is the name of the sub-table.
    pub enum Source {
        /// `y = X w + b + noise`, features from N(0, 1).
        SyntheticRegression(SyntheticRegression) = "synthetic_regression",
        /// Classes, each with rows around a centre of its own.
        SyntheticClassification(SyntheticClassification) = "synthetic_classification",
        /// Text tables (CSV), gzipped or not.
        Csv(Csv) = "csv",
        /// Images and labels in MNIST's format, gzipped or not.
        Idx(Idx) = "idx",
        /// Arrays of NumPy.
        Npy(Npy) = "npy",
        /// Tables of columns (Parquet), in a build with `--features parquet`.
        Parquet(Parquet) = "parquet",
    }
}

table! {
    /// Images and labels in MNIST's IDX format, gzipped or not.
    pub struct Idx {
        /// The images, or any array of rows.
        pub images: PathBuf,
        /// One label per row.
        pub labels: PathBuf,
        /// Images to validate on.
        pub validation_images: Option<PathBuf> = None,
        /// Their labels.
        pub validation_labels: Option<PathBuf> = None,
        /// Fraction of the rows held out for validation, chosen by the seed; 0 for none (0.2 without a validation file).
        pub validation_fraction: Option<f64> = None => some(below_one),
        /// Every feature is divided by this.
        pub scale: f64 = 255.0 => positive,
    }
    check check
}

table! {
    /// NumPy's `.npy` arrays.
    pub struct Npy {
        /// An array [rows, ...] of f32, f64 or u8.
        pub features: PathBuf,
        /// An array [rows] or [rows, targets]; integers for classes.
        pub labels: PathBuf,
        /// An array [rows] of integers: rows with the same one, such as those of a patient, stay in one part of a split or fold.
        pub groups: Option<PathBuf> = None,
        /// Features to validate on.
        pub validation_features: Option<PathBuf> = None,
        /// Their labels.
        pub validation_labels: Option<PathBuf> = None,
        /// Fraction of the rows held out for validation, chosen by the seed; 0 for none (0.2 without a validation file).
        pub validation_fraction: Option<f64> = None => some(below_one),
        /// Whether features are scaled to mean 0 and standard deviation 1, fitted on the training rows; they are read to memory.
        pub standardize: bool = false,
    }
    check check
}

/// Keys of a source that choose validation rows in a way of their own, and so exclude `data.split` and `data.folds`.
const OWN_SPLIT: [&[&str]; 8] = [
    &["csv.validation_path"],
    &["csv.validation_fraction"],
    &["idx.validation_images", "idx.validation_labels"],
    &["idx.validation_fraction"],
    &["npy.validation_features", "npy.validation_labels"],
    &["npy.validation_fraction"],
    &["parquet.validation_path"],
    &["parquet.validation_fraction"],
];

impl Data {
    fn check(&mut self, t: &mut Fields<'_>) {
        t.rule(Rule::Together("folds", "fold"));
        let Some(key) = ["split", "folds"].into_iter().find(|key| t.has(key)) else { return };
        if self.source.synthetic().is_some() {
            let hint = "`train_rows` and `validation_rows` set their numbers";
            t.refuse(key, &[], "synthetic rows are made for each part", hint);
        }
        let (folds, why) = (&["folds", "fold"], "both say which rows validate");
        let chosen: &[&str] = if key == "folds" { folds } else { &[key] };
        OWN_SPLIT.iter().for_each(|own| t.exclude(chosen, own, why));
        if let (Some(folds), Some(fold)) = (self.folds, self.fold)
            && fold >= folds
        {
            let hint = format!("`data.fold=0..{folds}` sweeps all of them");
            t.refuse("fold", &["folds"], format!("the folds are 0 to {}", folds - 1), &hint);
        }
        t.exclude(folds, &["split.validation"], why);
        self.check_order(t);
        if let Some(group) = self.source.group_key()
            && self.split.as_ref().is_some_and(|split| split.stratify)
        {
            let message =
                format!("`{group}` keeps rows together: classes cannot have their share of every part, too");
            t.refuse("split", &[], message, "leave out `stratify`");
        }
        let by_folds = self.folds.is_some();
        if let Some(split) = self.split.as_mut().filter(|_| !by_folds) {
            let validation = *split.validation.get_or_insert(DEFAULT_FRACTION);
            if validation + split.test >= 1.0 {
                let message = format!(
                    "{validation} to validate on and {} for a test leave no row to train on",
                    split.test
                );
                t.refuse("split", &[], message, "the two fractions must add up to less than 1");
            }
        }
        match &mut self.source {
            Source::SyntheticRegression(_) | Source::SyntheticClassification(_) => {}
            Source::Csv(s) => s.validation_fraction = None,
            Source::Idx(s) => s.validation_fraction = None,
            Source::Npy(s) => s.validation_fraction = None,
            Source::Parquet(s) => s.validation_fraction = None,
        }
    }

    /// Refuses what draws rows, if they stay in their order.
    fn check_order(&self, t: &mut Fields<'_>) {
        let Some(split) = self.split.as_ref().filter(|split| !split.shuffle) else { return };
        let group = self.source.group_key().map(|key| key.trim_start_matches("data."));
        let draws = [
            split.stratify.then_some(("split.stratify", "no class gets a share of each part")),
            split.seed.is_some().then_some(("split.seed", "no seed draws them")),
            group.map(|key| (key, "groups are drawn")),
        ];
        for (key, why) in draws.into_iter().flatten() {
            let message = format!("with `data.split.shuffle = false` rows stay in their order: {why}");
            t.refuse(key, &[], message, &format!("leave out one of the two: `~data.{key}` deletes this one"));
        }
    }

    /// The seed that draws the test rows, if a seed draws some. It is not the run's seed, or one run would train on the test rows of
    /// another.
    pub fn test_seed(&self) -> Option<u64> {
        let split = self.split.as_ref().filter(|split| split.test > 0.0 && split.shuffle)?;
        Some(split.seed.unwrap_or(0))
    }

    /// Whether folds are in the order of the rows, so that each trains on those before it.
    pub fn has_folds_in_order(&self) -> bool {
        self.folds.is_some() && self.split.as_ref().is_some_and(|split| !split.shuffle)
    }

    /// Whether there are rows to validate on.
    pub fn has_validation(&self) -> bool {
        match self.source.synthetic() {
            Some(made) => made.validation_rows > 0,
            None if self.folds.is_some() => true,
            None => self.validation_fraction().is_none_or(|(_, fraction)| fraction != 0.0),
        }
    }

    /// The fraction of the rows held out for validation, with its key. `None` where validation rows come from
    /// separate files or are a fold.
    pub fn validation_fraction(&self) -> Option<(&'static str, f64)> {
        let fraction = match &self.source {
            Source::SyntheticRegression(_) | Source::SyntheticClassification(_) => None,
            _ if self.split.is_some() => self.split.as_ref()?.validation,
            Source::Csv(s) => s.validation_fraction,
            Source::Idx(s) => s.validation_fraction,
            Source::Npy(s) => s.validation_fraction,
            Source::Parquet(s) => s.validation_fraction,
        };
        Some((self.validation_key(), fraction?))
    }

    /// The key that says how many rows validate, where files of their own or folds do not.
    pub fn validation_key(&self) -> &'static str {
        match &self.source {
            Source::SyntheticRegression(_) => "data.synthetic_regression.validation_rows",
            Source::SyntheticClassification(_) => "data.synthetic_classification.validation_rows",
            _ if self.split.is_some() => "data.split.validation",
            Source::Csv(_) => "data.csv.validation_fraction",
            Source::Idx(_) => "data.idx.validation_fraction",
            Source::Npy(_) => "data.npy.validation_fraction",
            Source::Parquet(_) => "data.parquet.validation_fraction",
        }
    }

    /// How a spec without validation rows gets some.
    pub(super) fn set_aside(&self) -> String {
        let some = if self.source.synthetic().is_some() { "1000" } else { "0.2" };
        format!("set aside some, such as `{} = {some}`", self.validation_key())
    }
}

impl Source {
    /// What the source makes; `None` if it reads its rows.
    pub fn synthetic(&self) -> Option<Synthetic> {
        match self {
            Self::SyntheticRegression(s) => Some(s.made()),
            Self::SyntheticClassification(s) => Some(s.made()),
            _ => None,
        }
    }

    /// For a source with named columns: its key in `[data]`, and its settings as those of a CSV file.
    pub fn table(&self) -> Option<(&'static str, Cow<'_, Csv>)> {
        match self {
            Self::Csv(s) => Some(("data.csv", Cow::Borrowed(s))),
            Self::Parquet(s) => Some(("data.parquet", Cow::Owned(s.as_csv()))),
            _ => None,
        }
    }

    /// The keys of the files that hold the validation rows.
    pub fn validation_files(&self) -> Vec<&'static str> {
        let keys = self.files_by_key().into_iter().map(|(key, _)| key);
        keys.filter(|key| key.contains(".validation_")).collect()
    }

    /// The key that says which rows stay together.
    pub fn group_key(&self) -> Option<&'static str> {
        match self {
            Self::Csv(s) => s.group.as_ref().map(|_| "data.csv.group"),
            Self::Parquet(s) => s.group.as_ref().map(|_| "data.parquet.group"),
            Self::Npy(s) => s.groups.as_ref().map(|_| "data.npy.groups"),
            _ => None,
        }
    }

    /// The files that rows are read from; the groups of rows come last.
    pub fn files(&self) -> Vec<&Path> {
        self.files_by_key().into_iter().map(|(_, path)| path).collect()
    }

    /// The same, each with the key that names it.
    pub fn files_by_key(&self) -> Vec<(&'static str, &Path)> {
        let files = match self {
            Self::SyntheticRegression(_) | Self::SyntheticClassification(_) => Vec::new(),
            Self::Csv(s) => {
                vec![
                    ("data.csv.path", Some(&s.path)),
                    ("data.csv.validation_path", s.validation_path.as_ref()),
                ]
            }
            Self::Parquet(s) => vec![
                ("data.parquet.path", Some(&s.path)),
                ("data.parquet.validation_path", s.validation_path.as_ref()),
            ],
            Self::Idx(s) => vec![
                ("data.idx.images", Some(&s.images)),
                ("data.idx.labels", Some(&s.labels)),
                ("data.idx.validation_images", s.validation_images.as_ref()),
                ("data.idx.validation_labels", s.validation_labels.as_ref()),
            ],
            Self::Npy(s) => vec![
                ("data.npy.features", Some(&s.features)),
                ("data.npy.labels", Some(&s.labels)),
                ("data.npy.validation_features", s.validation_features.as_ref()),
                ("data.npy.validation_labels", s.validation_labels.as_ref()),
                ("data.npy.groups", s.groups.as_ref()),
            ],
        };
        files.into_iter().filter_map(|(key, path)| Some((key, path?.as_path()))).collect()
    }

    /// Whether a key names such a file.
    pub fn names_file(key: &str) -> bool {
        let parts: Vec<&str> = key.split('.').collect();
        matches!(
            parts[..],
            ["data", "csv" | "parquet", "path" | "validation_path"]
                | ["data", "idx", "images" | "labels" | "validation_images" | "validation_labels"]
                | [
                    "data",
                    "npy",
                    "features" | "labels" | "validation_features" | "validation_labels" | "groups"
                ]
        )
    }

    /// The same source with its files at other paths.
    pub fn with_files(&self, other: impl Fn(&Path) -> PathBuf) -> Self {
        let mut source = self.clone();
        let (needed, more) = match &mut source {
            Self::SyntheticRegression(_) | Self::SyntheticClassification(_) => return source,
            Self::Csv(s) => ([Some(&mut s.path), None], [s.validation_path.as_mut(), None]),
            Self::Parquet(s) => ([Some(&mut s.path), None], [s.validation_path.as_mut(), None]),
            Self::Idx(s) => {
                let validation = [s.validation_images.as_mut(), s.validation_labels.as_mut()];
                ([Some(&mut s.images), Some(&mut s.labels)], validation)
            }
            Self::Npy(s) => {
                let features = s.validation_features.as_mut().or(s.groups.as_mut());
                let validation = [features, s.validation_labels.as_mut()];
                ([Some(&mut s.features), Some(&mut s.labels)], validation)
            }
        };
        needed.into_iter().chain(more).flatten().for_each(|path| *path = other(path));
        source
    }
}

impl Idx {
    fn check(&mut self, t: &mut Fields<'_>) {
        check_validation(t, &["validation_images", "validation_labels"], &mut self.validation_fraction);
    }
}

impl Npy {
    fn check(&mut self, t: &mut Fields<'_>) {
        check_validation(t, &["validation_features", "validation_labels"], &mut self.validation_fraction);
        t.rule(Rule::Exclude("validation_features", "groups"));
    }
}
