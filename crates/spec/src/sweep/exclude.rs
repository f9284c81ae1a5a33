//! `sweep.exclude`: points of the product that do not run.

use super::{
    super::{key::Key, problem::Problem, tree::Node},
    Sweep,
    fit::{Fit, read_fit},
    space::same,
};

/// The points of `all` that no exclusion matches. Reports an exclusion that matches no point.
pub(super) fn left(
    sweep: &Sweep,
    mut all: Vec<usize>,
    exclude: &[Node],
    problems: &mut Vec<Problem>,
) -> Vec<usize> {
    let keys: Vec<&Key> = sweep.keys().collect();
    let so = ("so no trial can be excluded by it", "sweep.exclude");
    let read = |node: &Node| read_fit(&keys, node.value.as_table()?, so, problems);
    let exclusions: Vec<Option<Fit>> = exclude.iter().map(read).collect();
    if exclusions.iter().any(Option::is_none) {
        all.truncate(1);
        return all;
    }
    let mut matched = vec![false; exclusions.len()];
    let mut is_left = |point: &usize| {
        let values = sweep.values_of(*point);
        let matches = |exclusion: &Fit| {
            exclusion.iter().all(|(axis, excluded)| {
                values[*axis].is_some_and(|own| excluded.iter().any(|value| same(value, &own.value)))
            })
        };
        let mut is_left = true;
        for (exclusion, matched) in exclusions.iter().flatten().zip(&mut matched) {
            if matches(exclusion) {
                (is_left, *matched) = (false, true);
            }
        }
        is_left
    };
    all.retain(|point| is_left(point));
    for (node, _) in exclude.iter().zip(&matched).filter(|(_, matched)| !**matched) {
        let message = "no trial has what this exclusion names";
        let hint = "`runner check` without it lists the trials";
        problems.push(Problem::new(node.span.place(), message).hint(hint));
    }
    if let (true, Some(last)) = (all.is_empty(), exclude.last()) {
        problems.push(Problem::new(last.span.place(), "every trial is excluded"));
    }
    all
}
