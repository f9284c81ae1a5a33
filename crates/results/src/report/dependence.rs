//! What the values of a setting, one for each seed or fold, have in common: that decides which intervals hold.

use super::{
    grouping::distinct,
    metric::Metric,
    run::{FOLD, Run},
};

/// What the values of a setting have in common.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) enum Dependence {
    Independent,
    /// Each is of another random split of the same rows: the number of validation rows over that of training rows.
    Redrawn(f64),
    /// They are of folds in the order of rows. Each fold trains on the rows of those before it and on more, at a later time, so their
    /// values are neither independent nor of one distribution: no formula for an interval holds. In its place is their range.
    InOrder,
}

impl Dependence {
    /// The stronger of two.
    pub(super) fn or(self, other: Self) -> Self {
        if self < other { other } else { self }
    }
}

/// What a sample of these runs is, and what samples have in common.
pub(super) fn samples_of(runs: &[Run], places: &[usize], metric: &Metric) -> (&'static str, Dependence) {
    let seeds = || places.iter().filter_map(|&place| runs[place].seeds());
    let are_several =
        |part: usize| seeds().any(|own| seeds().next().is_some_and(|first| own[part] != first[part]));
    let each = match metric.is_learned {
        false => "run",
        true if are_several(1) && !are_several(0) => "fold",
        true => "seed",
    };
    let splits = distinct(places.iter().filter_map(|&place| runs[place].split_seed())).len();
    let redrawn = places.iter().filter_map(|&place| redrawn_share(&runs[place]));
    let dependence = match each {
        "fold" if places.iter().any(|&place| runs[place].fold_in_order().is_some()) => Dependence::InOrder,
        "seed" if splits > 1 => {
            redrawn.map(Dependence::Redrawn).fold(Dependence::Independent, Dependence::or)
        }
        _ => Dependence::Independent,
    };
    (each, dependence)
}

/// If a seed draws a run's validation rows from a table that all seeds share: their number over that of training rows. `None` also of
/// folds, and of rows in their order.
fn redrawn_share(run: &Run) -> Option<f64> {
    let spec = run.spec.as_ref()?;
    if spec.get("data.folds").is_some() || spec.get("data.split.shuffle") == Some("false") {
        return None;
    }
    let fraction = |key: &str| spec.get(key)?.parse::<f64>().ok();
    let of_source = |source: &str| fraction(&format!("data.{source}.validation_fraction"));
    let of_sources = || ["csv", "idx", "npy", "parquet"].into_iter().find_map(of_source);
    let validation = fraction("data.split.validation").or_else(of_sources).filter(|own| *own > 0.0)?;
    let test = fraction("data.split.test").unwrap_or(0.0);
    Some(validation / (1.0 - validation - test))
}

impl Run {
    /// The fold that validates, if folds are in the order of rows.
    pub(super) fn fold_in_order(&self) -> Option<u32> {
        let is_in_order = self.axis("data.split.shuffle") == Some("false");
        self.axis(FOLD).filter(|_| is_in_order)?.parse().ok()
    }
}
