//! The split into training rows, rows held out for validation or for a test, and rows that are left out.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{Held, division::Division, draws::rounded};
use crate::{host::prefer_huge_pages, spec::Problem, units};

/// What a row is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowUse {
    Train,
    /// Held out, for validation or for a test.
    Held,
    /// In the other of the two.
    Unused,
    /// After the fold that validates, in the order of rows.
    Later,
}

/// A split of rows; all parts keep the file's order.
#[derive(Debug)]
pub(super) struct Split {
    /// The use of each row; empty if all are for training.
    uses: Vec<RowUse>,
    rows: usize,
    train_rows: usize,
    held_rows: usize,
    /// The group of each row, where rows of a group are in one part.
    groups: Option<Vec<u32>>,
    /// The number of folds in the order of rows, and the one that validates.
    in_order: Option<[u32; 2]>,
}

impl Split {
    /// All rows are for training.
    pub(super) fn none(rows: usize) -> Self {
        Self { uses: Vec::new(), rows, train_rows: rows, held_rows: 0, groups: None, in_order: None }
    }

    /// Fractions are rounded to whole rows. If the division is stratified, each class contributes its share. Rows of equal
    /// `groups`, which are numbered from 0, are in one part.
    pub(super) fn new(
        division: &Division,
        rows: usize,
        classes: Option<impl Iterator<Item = u32>>,
        groups: Option<&[u32]>,
    ) -> Result<Self, Problem> {
        let Division { validation, test, folds, stratify, held, group_key, .. } = division;
        let is_divided = folds.is_some() || (group_key.is_some() && *validation > 0.0) || *test > 0.0;
        if !stratify && !is_divided && rounded(*validation, rows) == 0 {
            return Ok(Self::none(rows));
        }
        let count = u32::try_from(rows).map_err(|_| division.refused("more rows than can be divided"))?;
        let mut uses = vec![RowUse::Train; rows];
        let as_held = |part: Held| if part == *held { RowUse::Held } else { RowUse::Unused };
        match groups {
            Some(groups) => {
                let parts = division.of_groups(groups)?;
                let parts = groups.iter().map(|&group| parts[group as usize]);
                uses.iter_mut().zip(parts).for_each(|(own, part)| *own = part.map_or(RowUse::Train, as_held));
            }
            None => division.of_rows(count, classes, |row, part| {
                uses[row as usize] = part.map_or(RowUse::Later, as_held);
            })?,
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
        let in_order = folds.filter(|_| !division.shuffle);
        Ok(Self { uses, rows, train_rows, held_rows, groups: groups.map(Into::into), in_order })
    }

    /// The group of each row that is held out, numbered from 0 among these.
    pub(super) fn held_groups(&self) -> Option<Vec<u32>> {
        let groups = self.groups.as_ref()?;
        let mut numbers = HashMap::new();
        let number = |row: usize| {
            let next = numbers.len() as u32;
            *numbers.entry(groups[row]).or_insert(next)
        };
        Some(self.rows_of(RowUse::Held).map(number).collect())
    }

    /// The number of all rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Sentences on a fold in the order of rows, and on the rows that are in neither part.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> + use<> {
        let later = self.rows_of(RowUse::Later).count();
        let rows = self.rows - self.train_rows - self.held_rows - later;
        let counted = |rows: usize| units::counted(rows as u64, "row");
        let of_fold = self.in_order.map(|[folds, fold]| {
            let after =
                if later > 0 { format!("; {} after it left out", counted(later)) } else { String::new() };
            format!("fold {fold} of {folds} in the order of rows: trains on those before it{after}")
        });
        of_fold.into_iter().chain((rows > 0).then(|| format!("{} set aside for a test", counted(rows))))
    }

    /// A sentence on the groups in each part; `name` is where they come from.
    pub(super) fn group_note(&self, name: &str) -> Option<String> {
        let groups = self.groups.as_ref()?;
        let of = |part| {
            let rows = groups.iter().zip(&self.uses).filter(|(_, own)| **own == part);
            rows.map(|(group, _)| group).collect::<HashSet<_>>().len()
        };
        let [train, held, unused] = [RowUse::Train, RowUse::Held, RowUse::Unused].map(of);
        let parts = [(train, "to train on"), (held, "to validate on"), (unused, "set aside for a test")];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> =
            parts.map(|(count, what)| format!("{} {what}", units::count(count as u64))).collect();
        let all = units::counted((train + held + unused) as u64, "group");
        Some(format!("{all} of `{name}`: {}", parts.join(", ")))
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

    /// The rows held out, the rows of the other part and those after a fold, by their numbers in the file; `numbers` has the number
    /// of every row.
    pub(super) fn apart(&self, numbers: impl Iterator<Item = u32>) -> Arc<[Vec<u32>; 3]> {
        let mut apart = [const { Vec::new() }; 3];
        for (own, number) in self.uses.iter().zip(numbers) {
            match own {
                RowUse::Train => {}
                RowUse::Held => apart[0].push(number),
                RowUse::Unused => apart[1].push(number),
                RowUse::Later => apart[2].push(number),
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
                RowUse::Unused | RowUse::Later => {}
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
        let split = Split::new(&Division::of_fraction(seed, fraction), rows, NO_CLASSES, None);
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
            |rows, division: &Division| Split::new(division, rows, NO_CLASSES, None).err().map(|p| p.message);
        let fraction = |fraction| Division::of_fraction(0, fraction);
        assert_eq!(message(2, &fraction(0.9)).as_deref(), Some("`0.9` of 2 rows leaves no row to train on"));
        assert_eq!(message(0, &fraction(0.5)), None);
        let folds = Division { folds: Some([5, 4]), ..fraction(0.0) };
        assert_eq!(message(4, &folds).as_deref(), Some("fold 4 of 5 has none of 4 rows"));
        let in_order = Division { shuffle: false, ..folds };
        let few = "5 folds of 5 rows in their order need 6 or more: the first trains on what comes before the folds";
        assert_eq!(message(5, &in_order).as_deref(), Some(few));
        assert_eq!(message(6, &in_order), None);
        let stratified = Division { stratify: true, ..fraction(0.5) };
        assert_eq!(message(4, &stratified).as_deref(), Some("there are no classes to stratify by"));
    }

    fn parts(division: &Division, classes: &[u32]) -> [Vec<usize>; 2] {
        let split = Split::new(division, classes.len(), Some(classes.iter().copied()), None);
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

    /// The groups of rows in file order, of 1 to 9 rows each.
    fn of_groups(division: &Division) -> [Vec<usize>; 2] {
        let groups: Vec<u32> = (0..30).flat_map(|group| vec![group; 1 + group as usize % 9]).collect();
        let split = Split::new(division, groups.len(), NO_CLASSES, Some(&groups));
        let split = split.map_err(|problem| problem.message).expect("a split");
        let parts = [RowUse::Train, RowUse::Held].map(|part| split.rows_of(part).collect::<Vec<_>>());
        let own = parts.each_ref().map(|rows| rows.iter().map(|&row| groups[row]).collect::<HashSet<_>>());
        assert!(own[0].is_disjoint(&own[1]));
        parts
    }

    /// No group is in two parts. The test groups depend neither on the run's seed nor on which rows validate; 141 rows are
    /// divided as their fractions say, within half of the largest group.
    #[test]
    fn groups_stay_together() {
        let validates = |seed, fraction| Division {
            test: 0.2,
            group_key: Some("data.csv.group"),
            ..Division::of_fraction(seed, fraction)
        };
        let tests = |seed, fraction| Division { held: Held::Test, ..validates(seed, fraction) };
        let [train, validation] = of_groups(&validates(5, 0.3));
        let [same, test] = of_groups(&tests(5, 0.3));
        assert_eq!((train.len() + validation.len() + test.len(), &train), (141, &same));
        assert!(validation.len().abs_diff(42) <= 4 && test.len().abs_diff(28) <= 4);
        assert_eq!(of_groups(&tests(6, 0.0))[1], test);
        assert_ne!(of_groups(&validates(6, 0.3))[1], validation);
        let fold = |fold| Division { folds: Some([4, fold]), ..validates(1, 0.0) };
        let folds = [0, 1, 2, 3].map(|number| of_groups(&fold(number))[1].clone());
        let rows = folds.each_ref().map(Vec::len);
        assert!(rows.iter().max().unwrap() - rows.iter().min().unwrap() <= 2, "{rows:?}");
        let mut seen = [folds.concat(), test].concat();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..141));
    }

    #[test]
    fn too_few_groups_are_refused() {
        let message = |division: Division| {
            let division = Division { group_key: Some("data.csv.group"), ..division };
            let split = Split::new(&division, 6, NO_CLASSES, Some(&[0, 0, 0, 1, 1, 1]));
            split.err().map(|problem| problem.message)
        };
        let test = Division { test: 0.3, ..Division::of_fraction(0, 0.3) };
        assert_eq!(message(test).as_deref(), Some("2 groups for 3 parts: each needs one"));
        let folds = Division { folds: Some([3, 0]), ..Division::of_fraction(0, 0.0) };
        assert_eq!(message(folds).as_deref(), Some("3 folds of 2 groups: each needs one"));
        assert_eq!(message(Division::of_fraction(0, 0.01)), None, "at least one group");
    }

    /// The rows of scikit-learn's `TimeSeriesSplit`, as `tests/fixtures/splits/make.py` recorded them; also where as many rows more
    /// are for the test. Those after a fold have no part.
    #[test]
    fn folds_in_order_are_those_of_time_series_split() {
        let recorded = include_str!("../../../../tests/fixtures/splits/time_series_split.csv");
        for line in recorded.lines().skip(1) {
            let numbers: Vec<usize> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
            let [rows, folds, fold, train_first, train_last, first, last] = numbers[..] else {
                panic!("{line}")
            };
            for (all, test) in [(rows, 0.0), (2 * rows, 0.5)] {
                let folds = Some([folds, fold].map(|count| count as u32));
                let division = Division { folds, test, shuffle: false, ..Division::of_fraction(1, 0.0) };
                let split = |division: &Division| {
                    let split = Split::new(division, all, NO_CLASSES, None);
                    split.map_err(|problem| problem.message).expect("a split")
                };
                let own = split(&division);
                let part = |split: &Split, part| split.rows_of(part).collect::<Vec<_>>();
                let parts = [RowUse::Train, RowUse::Held, RowUse::Later, RowUse::Unused];
                let expected = [train_first..train_last + 1, first..last + 1, last + 1..rows, rows..all];
                assert_eq!(
                    parts.map(|of| part(&own, of)),
                    expected.map(|rows| rows.collect::<Vec<_>>()),
                    "{line}"
                );
                let apart = own.apart(100..);
                assert_eq!(apart.iter().map(Vec::len).sum::<usize>(), all - own.train_rows());
                assert!(apart[2].iter().copied().eq((last as u32 + 101)..(rows as u32 + 100)), "{line}");
                let tested = split(&Division { held: Held::Test, ..division });
                assert_eq!(part(&tested, RowUse::Held), (rows..all).collect::<Vec<_>>(), "{line}");
            }
        }
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
