//! Which rows are for validation and which for a test: drawn by seeds or in their order, as fractions or as a fold, by rows or by
//! groups of rows.

use std::{collections::BTreeMap, ops::Range};

use super::{
    Held,
    draws::{draw, folds_of_groups, nearest_groups, rounded, shares},
};
use crate::{
    random::Purpose,
    spec::{self, Problem},
    units,
};

/// How rows are to be divided.
#[derive(Clone, Debug)]
pub(super) struct Division {
    pub(super) seed: u64,
    /// [`spec::Data::test_seed`]
    pub(super) test_seed: u64,
    pub(super) validation: f64,
    pub(super) test: f64,
    /// The number of folds, and the one that validates.
    pub(super) folds: Option<[u32; 2]>,
    pub(super) stratify: bool,
    /// Whether rows are drawn. If not, the last are for the test, and those before them validate, or a fold of them.
    pub(super) shuffle: bool,
    /// The key that says which rows stay together.
    pub(super) group_key: Option<&'static str>,
    /// The key that error messages name.
    pub(super) key: &'static str,
    pub(super) held: Held,
}

impl Division {
    /// As the spec defines it; `seed` is the run's seed.
    pub(super) fn new(data: &spec::Data, seed: u64, held: Held) -> Self {
        let split = data.split.as_ref();
        let folds = data.folds.zip(data.fold).map(|(folds, fold)| [folds, fold]);
        let (key, validation) = data.validation_fraction().unwrap_or(("data", 0.0));
        Self {
            seed: split.and_then(|split| split.seed).unwrap_or(seed),
            test_seed: data.test_seed().unwrap_or(0),
            validation,
            test: split.map_or(0.0, |split| split.test),
            folds,
            stratify: split.is_some_and(|split| split.stratify),
            shuffle: split.is_none_or(|split| split.shuffle),
            group_key: data.source.group_key(),
            key: if folds.is_some() { "data.folds" } else { key },
            held,
        }
    }

    /// A division that holds out a fraction for validation.
    #[cfg(test)]
    pub(super) fn of_fraction(seed: u64, validation: f64) -> Self {
        let (test, folds, stratify, held) = (0.0, None, false, Held::Validation);
        let (shuffle, group_key, key) = (true, None, "data.csv.validation_fraction");
        Self { seed, test_seed: 0, validation, test, folds, stratify, shuffle, group_key, key, held }
    }
}

impl Division {
    /// Whether parts are drawn without regard to classes.
    pub(super) fn may_stratify(&self) -> bool {
        self.shuffle
            && !self.stratify
            && self.group_key.is_none()
            && (self.folds.is_some() || self.validation > 0.0)
    }

    /// The problem, at the key that is responsible.
    pub(super) fn refused(&self, why: &str) -> Problem {
        let hint = match self.folds {
            Some(_) if self.test > 0.0 => "use fewer folds, or a smaller `data.split.test`",
            Some(_) => "use fewer folds",
            None if self.test > 0.0 => "use smaller fractions",
            None => "use a smaller fraction, or 0 for no validation",
        };
        Problem::at_key(self.key, why).hint(hint)
    }

    /// The rows of this fold, in their order, of `left` rows that are not for the test, as those of scikit-learn's `TimeSeriesSplit`:
    /// with n rows and k folds, the last k blocks of n / (k + 1) rows, rounded down, validate in turn. All rows before a block train,
    /// those after it have no part (`sklearn/model_selection/_split.py`, version 1.9).
    fn fold_in_order(&self, left: usize) -> Result<Option<Range<usize>>, Problem> {
        let Some([folds, fold]) = self.folds.filter(|_| !self.shuffle) else { return Ok(None) };
        let [folds, fold] = [folds, fold].map(|count| count as usize);
        let size = left / (folds + 1);
        if size == 0 {
            let message = format!(
                "{folds} folds of {} in their order need {} or more: the first trains on what comes before the folds",
                units::counted(left as u64, "row"),
                folds + 1
            );
            return Err(self.refused(&message));
        }
        let start = left - (folds - fold) * size;
        Ok(Some(start..start + size))
    }

    /// Calls `held` with every row that is not for training; with `None` for those that have no part.
    pub(super) fn of_rows(
        &self,
        rows: u32,
        classes: Option<impl Iterator<Item = u32>>,
        mut held: impl FnMut(u32, Option<Held>),
    ) -> Result<(), Problem> {
        let Self { validation, test, folds, .. } = *self;
        let mut strata: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        match classes.filter(|_| self.stratify) {
            Some(classes) => {
                (0..rows).zip(classes).for_each(|(row, class)| strata.entry(class).or_default().push(row));
            }
            None if self.stratify => {
                let message = "there are no classes to stratify by";
                return Err(Problem::at_key("data.split.stratify", message).hint("remove it"));
            }
            None => drop(strata.insert(0, (0..rows).collect())),
        }
        let sizes: Vec<usize> = strata.values().map(Vec::len).collect();
        let [validations, tests] = [validation, test].map(|fraction| shares(fraction, &sizes));
        if test > 0.0 && tests.iter().sum::<usize>() == 0 {
            let message = format!("`data.split.test` is {test}, which of {rows} rows is none");
            return Err(Problem::at_key("data.split.test", message).hint("use a larger fraction, or none"));
        }
        let mut dealt = 0;
        for (stratum, mut order) in strata.into_values().enumerate() {
            let take = |order: &mut Vec<u32>, count: usize, seed, purpose| match self.shuffle {
                true => draw(order, count, seed, purpose, stratum as u64),
                false => order.split_off(order.len().saturating_sub(count)),
            };
            for row in take(&mut order, tests[stratum], self.test_seed, Purpose::Test) {
                held(row, Some(Held::Test));
            }
            if let Some(fold) = self.fold_in_order(order.len())? {
                for (place, row) in order.into_iter().enumerate().skip(fold.start) {
                    held(row, fold.contains(&place).then_some(Held::Validation));
                }
                continue;
            }
            let drawn = if folds.is_some() { order.len() } else { validations[stratum] };
            for row in take(&mut order, drawn, self.seed, Purpose::Split) {
                // Rows are dealt to the folds in turn, continuing from one class to the next.
                if folds.is_none_or(|[folds, fold]| dealt % folds == fold) {
                    held(row, Some(Held::Validation));
                }
                dealt = dealt.wrapping_add(1);
            }
        }
        Ok(())
    }

    /// The part of each group; `None` for training.
    pub(super) fn of_groups(&self, groups: &[u32]) -> Result<Vec<Option<Held>>, Problem> {
        let mut sizes: Vec<usize> = Vec::new();
        for &group in groups {
            sizes.resize(sizes.len().max(group as usize + 1), 0);
            sizes[group as usize] += 1;
        }
        let mut parts = vec![None; sizes.len()];
        let mut left: Vec<u32> = (0..sizes.len() as u32).collect();
        // The test groups must not depend on what validates, so one group is left here, too.
        for (held, fraction) in [(Held::Test, self.test), (Held::Validation, self.validation)] {
            if fraction == 0.0 {
                continue;
            }
            let (seed, purpose) = match held {
                Held::Test => (self.test_seed, Purpose::Test),
                Held::Validation => (self.seed, Purpose::Split),
            };
            let count = left.len();
            let order = draw(&mut left, count, seed, purpose, 0);
            let taken = nearest_groups(&order, &sizes, rounded(fraction, groups.len()));
            if taken.len() == count {
                return Err(self.few_groups(sizes.len()));
            }
            taken.iter().for_each(|&group| parts[group as usize] = Some(held));
            left = (0..).zip(&parts).filter(|(_, part)| part.is_none()).map(|(group, _)| group).collect();
        }
        if let Some([folds, fold]) = self.folds {
            let count = left.len();
            if count < folds as usize {
                return Err(self.refused(&format!("{folds} folds of {count} groups: each needs one")));
            }
            let order = draw(&mut left, count, self.seed, Purpose::Split, 0);
            for (group, own) in folds_of_groups(order, &sizes, folds) {
                if own == fold {
                    parts[group as usize] = Some(Held::Validation);
                }
            }
        }
        Ok(parts)
    }

    fn few_groups(&self, count: usize) -> Problem {
        let parts = 1 + usize::from(self.test > 0.0) + usize::from(self.validation > 0.0);
        let message = format!("{} for {parts} parts: each needs one", units::counted(count as u64, "group"));
        let hint = "divide the rows into fewer parts, or group them by something with more values";
        Problem::at_key(self.group_key.unwrap_or(self.key), message).hint(hint)
    }
}
