//! The seeded split into training rows, rows held out for validation or for a test, and rows that are left
//! out.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use super::Held;
use crate::{
    host::prefer_huge_pages,
    random::{self, Purpose},
    spec::{self, Problem},
    units,
};

/// What a row is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowUse {
    Train,
    /// Held out, for validation or for a test.
    Held,
    Unused,
}

/// How rows are to be divided.
#[derive(Clone, Debug)]
pub(super) struct Division {
    seed: u64,
    /// The seed that draws the test rows. It is not the run's seed, or one run would train on the test rows
    /// of another.
    test_seed: u64,
    validation: f64,
    test: f64,
    /// The number of folds, and the one that validates.
    folds: Option<[u32; 2]>,
    pub(super) stratify: bool,
    /// The key that error messages name.
    key: &'static str,
    held: Held,
}

impl Division {
    /// As the spec defines it; `seed` is the run's seed.
    pub(super) fn new(data: &spec::Data, seed: u64, held: Held) -> Self {
        let split = data.split.as_ref();
        let folds = data.folds.zip(data.fold).map(|(folds, fold)| [folds, fold]);
        let (key, validation) = data.validation_fraction().unwrap_or(("data", 0.0));
        let own_seed = split.and_then(|split| split.seed);
        Self {
            seed: own_seed.unwrap_or(seed),
            test_seed: own_seed.unwrap_or(0),
            validation,
            test: split.map_or(0.0, |split| split.test),
            folds,
            stratify: split.is_some_and(|split| split.stratify),
            key: if folds.is_some() { "data.folds" } else { key },
            held,
        }
    }

    /// A division that holds out a fraction for validation.
    #[cfg(test)]
    pub(super) fn of_fraction(seed: u64, validation: f64) -> Self {
        let (test, folds, stratify, held) = (0.0, None, false, Held::Validation);
        let key = "data.csv.validation_fraction";
        Self { seed, test_seed: 0, validation, test, folds, stratify, key, held }
    }
}

impl Division {
    /// Whether parts are drawn without regard to classes.
    pub(super) fn may_stratify(&self) -> bool {
        !self.stratify && (self.folds.is_some() || self.validation > 0.0)
    }

    /// The problem, at the key that is responsible.
    fn refused(&self, why: &str) -> Problem {
        let hint = match self.folds {
            Some(_) => "use fewer folds, or a smaller `data.split.test`",
            None if self.test > 0.0 => "use smaller fractions",
            None => "use a smaller fraction, or 0 for no validation",
        };
        Problem::at_key(self.key, why).hint(hint)
    }
}

fn rounded(fraction: f64, rows: usize) -> usize {
    (fraction * rows as f64).round() as usize
}

/// The number of rows from each class. Together they are the rounded fraction of all rows: what is left after
/// rounding down goes to the classes with the largest remainders.
fn shares(fraction: f64, sizes: &[usize]) -> Vec<usize> {
    let exact: Vec<f64> = sizes.iter().map(|&size| fraction * size as f64).collect();
    let mut shares: Vec<usize> = exact.iter().map(|share| share.floor() as usize).collect();
    let left = rounded(fraction, sizes.iter().sum()).saturating_sub(shares.iter().sum());
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
    order.into_iter().take(left).for_each(|class| shares[class] += 1);
    shares
}

/// Takes `count` random rows out of `order`, or all if there are fewer; the others keep their order.
fn draw(order: &mut Vec<u32>, count: usize, seed: u64, purpose: Purpose, stratum: u64) -> Vec<u32> {
    let count = count.min(order.len());
    // A partial Fisher-Yates shuffle draws without replacement.
    let mut rng = random::fast_stream(seed, purpose, stratum);
    let mut shuffled = order.clone();
    for first in 0..count {
        let chosen = first + random::below(&mut rng, (shuffled.len() - first) as u32) as usize;
        shuffled.swap(first, chosen);
    }
    shuffled.truncate(count);
    let taken: HashSet<u32> = shuffled.iter().copied().collect();
    order.retain(|row| !taken.contains(row));
    shuffled
}

/// A split of rows; all parts keep the file's order.
#[derive(Debug)]
pub(super) struct Split {
    /// The use of each row; empty if all are for training.
    uses: Vec<RowUse>,
    rows: usize,
    train_rows: usize,
    held_rows: usize,
}

impl Split {
    /// All rows are for training.
    pub(super) fn none(rows: usize) -> Self {
        Self { uses: Vec::new(), rows, train_rows: rows, held_rows: 0 }
    }

    /// Fractions are rounded to whole rows. If the division is stratified, each class contributes its share.
    pub(super) fn new(
        division: &Division,
        rows: usize,
        classes: Option<impl Iterator<Item = u32>>,
    ) -> Result<Self, Problem> {
        let Division { seed, test_seed, validation, test, folds, stratify, held, .. } = division;
        if !stratify && folds.is_none() && rounded(*validation, rows) == 0 && *test == 0.0 {
            return Ok(Self::none(rows));
        }
        let count = u32::try_from(rows).map_err(|_| division.refused("more rows than can be divided"))?;
        let mut strata: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        match classes.filter(|_| *stratify) {
            Some(classes) => {
                (0..count).zip(classes).for_each(|(row, class)| strata.entry(class).or_default().push(row));
            }
            None if *stratify => {
                let message = "there are no classes to stratify by";
                return Err(Problem::at_key("data.split.stratify", message).hint("remove it"));
            }
            None => drop(strata.insert(0, (0..count).collect())),
        }
        let sizes: Vec<usize> = strata.values().map(Vec::len).collect();
        let [validations, tests] = [validation, test].map(|fraction| shares(*fraction, &sizes));
        if *test > 0.0 && tests.iter().sum::<usize>() == 0 {
            let message = format!("`data.split.test` is {test}, which of {rows} rows is none");
            return Err(Problem::at_key("data.split.test", message).hint("use a larger fraction, or none"));
        }
        let mut uses = vec![RowUse::Train; rows];
        let as_held = |part: Held| if part == *held { RowUse::Held } else { RowUse::Unused };
        let mut dealt = 0;
        for (stratum, mut order) in strata.into_values().enumerate() {
            for row in draw(&mut order, tests[stratum], *test_seed, Purpose::Test, stratum as u64) {
                uses[row as usize] = as_held(Held::Test);
            }
            let drawn = if folds.is_some() { order.len() } else { validations[stratum] };
            for row in draw(&mut order, drawn, *seed, Purpose::Split, stratum as u64) {
                // Rows are dealt to the folds in turn, continuing from one class to the next.
                if folds.is_none_or(|[folds, fold]| dealt % folds == fold) {
                    uses[row as usize] = as_held(Held::Validation);
                }
                dealt = dealt.wrapping_add(1);
            }
        }
        let counted = |wanted| uses.iter().filter(|own| **own == wanted).count();
        let (train_rows, held_rows) = (counted(RowUse::Train), counted(RowUse::Held));
        if train_rows == 0 {
            let parts = match (folds, test) {
                (None, 0.0) => format!("`{validation}` of {rows} rows leaves"),
                _ => format!("the parts of {rows} rows leave"),
            };
            return Err(division.refused(&format!("{parts} no row to train on")));
        }
        if let Some([folds, fold]) = folds.filter(|_| *held == Held::Validation && held_rows == 0) {
            return Err(division.refused(&format!("fold {fold} of {folds} has none of {rows} rows")));
        }
        Ok(Self { uses, rows, train_rows, held_rows })
    }

    /// The number of all rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// A sentence on how many rows are in neither part; `None` if there are none.
    pub(super) fn note(&self) -> Option<String> {
        let rows = self.rows - self.train_rows - self.held_rows;
        (rows > 0).then(|| format!("{} set aside for a test", units::counted(rows as u64, "row")))
    }

    pub(super) fn train_rows(&self) -> usize {
        self.train_rows
    }

    pub(super) fn held_rows(&self) -> usize {
        self.held_rows
    }

    /// What a row is used for.
    #[inline]
    pub(super) fn use_of(&self, row: usize) -> RowUse {
        self.uses.get(row).copied().unwrap_or(RowUse::Train)
    }

    /// Indices of the rows of a part, in file order.
    pub(super) fn rows_of(&self, part: RowUse) -> impl Iterator<Item = usize> + Clone + '_ {
        (0..self.rows).filter(move |&row| self.use_of(row) == part)
    }

    /// The rows held out and the rows left out, by their numbers in the file; `numbers` has the number of
    /// every row.
    pub(super) fn apart(&self, numbers: impl Iterator<Item = u32>) -> Arc<[Vec<u32>; 2]> {
        let mut apart = [Vec::new(), Vec::new()];
        for (own, number) in self.uses.iter().zip(numbers) {
            match own {
                RowUse::Train => {}
                RowUse::Held => apart[0].push(number),
                RowUse::Unused => apart[1].push(number),
            }
        }
        Arc::new(apart)
    }

    /// Splits `values`, `width` per row, into those for training and those held out.
    pub(super) fn apply(&self, values: Vec<f32>, width: usize) -> (Vec<f32>, Vec<f32>) {
        if self.uses.is_empty() {
            return (values, Vec::new());
        }
        let mut train = Vec::with_capacity(self.train_rows * width);
        prefer_huge_pages(train.spare_capacity_mut());
        let mut held = Vec::with_capacity(self.held_rows * width);
        for (row, values) in values.chunks_exact(width.max(1)).enumerate() {
            match self.use_of(row) {
                RowUse::Train => train.extend_from_slice(values),
                RowUse::Held => held.extend_from_slice(values),
                RowUse::Unused => {}
            }
        }
        (train, held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows without classes.
    const NO_CLASSES: Option<std::iter::Empty<u32>> = None;

    fn split(seed: u64, rows: usize, fraction: f64) -> Split {
        let split = Split::new(&Division::of_fraction(seed, fraction), rows, NO_CLASSES);
        split.map_err(|problem| problem.message).expect("a split")
    }

    #[test]
    fn numbers_are_frozen() {
        assert_eq!(split(0, 20, 0.25).rows_of(RowUse::Held).collect::<Vec<_>>(), [0, 4, 7, 17, 19]);
    }

    #[test]
    fn takes_the_rounded_part_and_keeps_the_order() {
        for (rows, fraction, expected) in [(10, 0.2, 2), (7, 0.5, 4), (3, 0.1, 0), (1000, 0.999, 999)] {
            let split = split(3, rows, fraction);
            assert_eq!((split.held_rows(), split.train_rows()), (expected, rows - expected));
            let (train, validation): (Vec<_>, Vec<_>) =
                (split.rows_of(RowUse::Train).collect(), split.rows_of(RowUse::Held).collect());
            assert!(train.is_sorted() && validation.is_sorted());
            let mut all = [train, validation].concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..rows));
        }
        assert_ne!(
            split(1, 100, 0.2).rows_of(RowUse::Held).collect::<Vec<_>>(),
            split(2, 100, 0.2).rows_of(RowUse::Held).collect::<Vec<_>>()
        );
    }

    #[test]
    fn refuses_what_leaves_nothing() {
        let message =
            |rows, division: &Division| Split::new(division, rows, NO_CLASSES).err().map(|p| p.message);
        let fraction = |fraction| Division::of_fraction(0, fraction);
        assert_eq!(message(2, &fraction(0.9)).as_deref(), Some("`0.9` of 2 rows leaves no row to train on"));
        assert_eq!(message(0, &fraction(0.5)), None);
        let folds = Division { folds: Some([5, 4]), ..fraction(0.0) };
        assert_eq!(message(4, &folds).as_deref(), Some("fold 4 of 5 has none of 4 rows"));
        let stratified = Division { stratify: true, ..fraction(0.5) };
        assert_eq!(message(4, &stratified).as_deref(), Some("there are no classes to stratify by"));
    }

    fn parts(division: &Division, classes: &[u32]) -> [Vec<usize>; 2] {
        let split = Split::new(division, classes.len(), Some(classes.iter().copied()));
        let split = split.map_err(|problem| problem.message).expect("a split");
        [RowUse::Train, RowUse::Held].map(|part| split.rows_of(part).collect())
    }

    /// Every row is in one part, and each class has its share of every part. The test rows depend neither on
    /// the run's seed nor on which rows validate.
    #[test]
    fn parts_are_apart_and_stratified() {
        let classes: Vec<u32> = (0..90).map(|row| u32::from(row % 9 == 0)).collect();
        let validates =
            |seed, fraction| Division { test: 0.2, stratify: true, ..Division::of_fraction(seed, fraction) };
        let tests = |seed, fraction| Division { held: Held::Test, ..validates(seed, fraction) };
        let [train, validation] = parts(&validates(5, 0.3), &classes);
        let [same, test] = parts(&tests(5, 0.3), &classes);
        assert_eq!(train, same);
        assert_eq!(parts(&tests(6, 0.1), &classes)[1], test);
        assert_ne!(parts(&validates(6, 0.3), &classes)[1], validation);
        let mut all = [train, validation.clone(), test.clone()].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..90));
        let of_class_1 = |rows: &[usize]| rows.iter().filter(|&&row| classes[row] == 1).count();
        assert_eq!(
            [validation.len(), of_class_1(&validation), test.len(), of_class_1(&test)],
            [27, 3, 18, 2]
        );
    }

    /// Even if all classes are small, the number of rows matches the fraction.
    #[test]
    fn shares_of_small_classes_add_up() {
        assert_eq!(shares(0.2, &[2; 100]).iter().sum::<usize>(), 40);
        assert_eq!(shares(0.2, &[3; 100]).iter().sum::<usize>(), 60);
        assert_eq!(shares(0.25, &[6, 4, 2]), [2, 1, 0]);
    }

    /// Each row that is not for the test validates in exactly one fold, and each fold has its share of each
    /// class.
    #[test]
    fn folds_cover_all_rows_once() {
        let classes: Vec<u32> = (0..103).map(|row| row % 3).collect();
        let fold = |fold, test| Division {
            folds: Some([5, fold]),
            test,
            stratify: true,
            ..Division::of_fraction(1, 0.0)
        };
        for test in [0.0, 0.25] {
            let (mut seen, mut sizes) = (Vec::new(), Vec::new());
            for number in 0..5 {
                let [train, validation] = parts(&fold(number, test), &classes);
                assert!(train.iter().all(|row| !validation.contains(row)));
                let of_class = |class| validation.iter().filter(|&&row| classes[row] == class).count();
                let counts = [0, 1, 2].map(of_class);
                assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
                sizes.push(validation.len());
                seen.extend(validation);
            }
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
            let tested = parts(&Division { held: Held::Test, ..fold(0, test) }, &classes)[1].len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len() + tested, 103);
        }
    }
}
