//! How a drafted spec judges the model: the parts of the rows, and the metrics that fit the classes.

use super::{
    column_use::order_of,
    draft::{Draft, ROWS_TO_FOLD, ROWS_TO_VALIDATE},
};
use crate::{host::escape_line, units};

/// From this number of rows, a tenth is for a test: a metric of 100 rows has an interval that is narrow enough to help.
const ROWS_TO_TEST: usize = 1000;

/// A class with a smaller share of the rows is rare.
const RARE: f64 = 0.1;

/// With fewer rows of a class, none may be left to validate on: a fifth of them is drawn, or a fifth of all rows.
const FEWEST_STRATIFIED: u64 = 5;
const FEWEST_IN_ORDER: u64 = 10;

impl Draft<'_> {
    /// How rows in the order of time are judged by later ones.
    pub(super) fn order(&self) -> Option<String> {
        let others = self.uses.iter().map(|(column, _)| *column);
        order_of(others, self.profile.rows).filter(|_| self.validates())
    }

    /// The parts of the rows, and what judges rows in the order of time.
    pub(super) fn split(&self) -> String {
        let order = self.order().map(|order| format!("# {order}\n"));
        let is_stratified = self.is_class && order.is_none();
        let split = match (self.rows_with_target(), is_stratified) {
            (ROWS_TO_TEST.., true) => {
                "# `test` keeps a tenth of the rows from every run, for `runner evaluate RUN` once a model is chosen; each class has \
                 its share of every part\nsplit = { test = 0.1, stratify = true }\n"
            }
            (ROWS_TO_TEST.., false) => {
                "# `test` keeps a tenth of the rows from every run, for `runner evaluate RUN` once a model is chosen\n\
                 split = { test = 0.1 }\n"
            }
            (ROWS_TO_FOLD.., true) => {
                "# each class has its share of the rows to validate on; `test = 0.1` would keep rows from every run, for \
                 `runner evaluate RUN`\nsplit = { stratify = true }\n"
            }
            (ROWS_TO_FOLD.., false) => {
                "# `split = { test = 0.1 }` would keep rows from every run, for `runner evaluate RUN`\n"
            }
            (ROWS_TO_VALIDATE.., true) => {
                "split = { stratify = true }    # each class has its share of the rows to validate on\n"
            }
            _ => "",
        };
        order.unwrap_or_default() + split
    }

    pub(super) fn trainer(&self) -> String {
        let stopping = match self.validates() {
            true => {
                "\nearly_stopping = { patience = 10 }    # epochs without a better validation; the best weights are kept\n"
            }
            false => "    # without validation nothing stops it earlier\n",
        };
        let monitor = self.rare_class().map(|(class, share)| {
            let rare = format!("{share} are `{}`", escape_line(class));
            match self.ranks() {
                true => format!("monitor = \"validation.auc\"    # {rare}: a good accuracy may miss them all\n"),
                false => format!("# {rare}: a good accuracy may miss them all, and they are too few to validate on by auc\n"),
            }
        });
        format!(
            "[trainer]\nmax_epochs = 100{stopping}{}\n\
             [checkpoint]\nevery_minutes = 1.0    # `runner run --resume RUN` goes on after a kill\n",
            monitor.unwrap_or_default()
        )
    }

    pub(super) fn logging(&self) -> &'static str {
        match self.is_class {
            _ if !self.validates() => "",
            true if self.ranks() => {
                "\n[logging]\nmetrics = [\"loss\", \"auc\", \"f1\"]    # confusion.csv comes with f1\n"
            }
            true => {
                "\n[logging]\nmetrics = [\"loss\", \"accuracy\", \"f1\"]    # confusion.csv comes with f1\n"
            }
            false => {
                "\n[logging]\nmetrics = [\"loss\", \"mae\", \"r2\"]    # mae in the target's own units\n"
            }
        }
    }

    /// The rarest class and its share of the rows, if few have it.
    fn rare_class(&self) -> Option<(&str, String)> {
        let (class, count) = self.rarest()?;
        let share = count as f64 / self.rows_with_target() as f64;
        (self.is_class && self.validates() && share < RARE).then(|| (class, units::percent(share)))
    }

    fn rarest(&self) -> Option<(&str, u64)> {
        self.targets[0].values().min_by_key(|(class, count)| (*count, *class))
    }

    /// Whether a class is rare, and has enough rows for a ranking of those that validate.
    fn ranks(&self) -> bool {
        let fewest = if self.order().is_none() { FEWEST_STRATIFIED } else { FEWEST_IN_ORDER };
        self.rare_class().is_some() && self.rarest().is_some_and(|(_, count)| count >= fewest)
    }

    /// Whether rows are held out for validation.
    pub(super) fn validates(&self) -> bool {
        self.rows_with_target() >= ROWS_TO_VALIDATE
    }

    fn rows_with_target(&self) -> usize {
        self.profile.rows - self.missing.rows_without_target
    }
}
