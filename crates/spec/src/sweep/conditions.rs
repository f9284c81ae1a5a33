//! `sweep.when`: keys that vary only where other keys have given values.

use super::{
    super::{
        key::Key,
        problem::Problem,
        suggest,
        tree::{Entry, Table, Value},
    },
    fit::{Fit, read_fit, read_key},
    space::same,
};

/// The conditions under which keys vary.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    /// Each axis and its condition, in an order where an axis comes after those that it depends on. Empty if
    /// nothing is conditional.
    fits: Vec<(usize, Fit)>,
}

impl Conditions {
    pub const NONE: Self = Self { fits: Vec::new() };

    /// Reads the table for `keys`, the first `of_grid` of which belong to the grid. `can_be` says whether a
    /// key can have a value.
    pub fn read(
        (keys, of_grid): (&[&Key], usize),
        when: &Table,
        can_be: impl Fn(usize, &Value) -> bool,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut fits = vec![Fit::new(); keys.len()];
        let mut unknown: Vec<Key> = Vec::new();
        for entry in &when.entries {
            let Some((axis, fit)) = read_condition((keys, of_grid), entry, &mut unknown, problems) else {
                continue;
            };
            for (other, values) in &fit {
                if !values.iter().any(|value| can_be(*other, value)) {
                    let message =
                        format!("`sweep.when`: `{}` never has the value asked for", keys[*other].dotted());
                    let hint = "name one of its values; `uniform` and `loguniform` have none to name";
                    problems.push(Problem::new(entry.node.span.place(), message).hint(hint));
                }
            }
            fits[axis] = fit;
        }
        refuse_unknown(&unknown, &keys[..of_grid], problems);
        let mut left: Vec<usize> = (0..keys.len()).collect();
        let mut order = Vec::new();
        while !left.is_empty() {
            let is_free = |axis: &usize| fits[*axis].iter().all(|(other, _)| !left.contains(other));
            let Some(next) = left.iter().position(is_free) else { break };
            order.push(left.remove(next));
        }
        if !left.is_empty() {
            // Every remaining axis depends on another remaining one, so following the dependencies ends in a
            // cycle.
            let next =
                |axis: usize| fits[axis].iter().map(|(other, _)| *other).find(|other| left.contains(other));
            let axis = (0..keys.len()).fold(left[0], |axis, _| next(axis).unwrap_or(axis));
            let [own, other] = [axis, next(axis).unwrap_or(axis)].map(|axis| keys[axis].dotted());
            let message = match own == other {
                true => format!("`sweep.when`: `{own}` varies by itself"),
                false => {
                    format!("`sweep.when`: `{own}` varies by `{other}`, which in turn varies by `{own}`")
                }
            };
            let entry = when.entries.iter().find(|entry| entry.key == own);
            let place = entry.map_or(keys[axis].place(), |entry| entry.key_span.place());
            problems.push(Problem::new(place, message).hint("leave one of the conditions out"));
            return Self::NONE;
        }
        let is_conditional = fits.iter().any(|fit| !fit.is_empty());
        let fits = order.into_iter().map(|axis| (axis, std::mem::take(&mut fits[axis])));
        Self { fits: if is_conditional { fits.collect() } else { Vec::new() } }
    }

    pub fn is_empty(&self) -> bool {
        self.fits.is_empty()
    }

    /// The position of an axis in the order of dependencies; `None` if nothing is conditional.
    pub fn place_of(&self, axis: usize) -> Option<usize> {
        self.fits.iter().position(|(own, _)| *own == axis)
    }

    /// Which axes vary, given the value of every axis.
    pub fn active(&self, values: &[&Value]) -> Vec<bool> {
        let mut active = vec![true; values.len()];
        for (axis, fit) in &self.fits {
            let holds = |(other, fits): &(usize, Vec<Value>)| {
                active[*other] && fits.iter().any(|value| same(value, values[*other]))
            };
            active[*axis] = fit.iter().all(holds);
        }
        active
    }

    /// The values as displayed; empty for a key that does not vary.
    pub fn shown(&self, values: &[&Value]) -> Vec<String> {
        let shown =
            |(value, is_active): (&&Value, bool)| if is_active { value.display() } else { String::new() };
        values.iter().zip(self.active(values)).map(shown).collect()
    }
}

/// Reports all keys outside the grid as one problem.
fn refuse_unknown(unknown: &[Key], grid: &[&Key], problems: &mut Vec<Problem>) {
    let [first, others @ ..] = unknown else { return };
    let names: Vec<String> = unknown.iter().map(Key::dotted).collect();
    let listed = suggest::listing(names.iter().map(String::as_str), "and");
    let verb = if others.is_empty() { "is" } else { "are" };
    let grid: Vec<String> = grid.iter().map(|key| key.dotted()).collect();
    let near = suggest::nearest(&names[0], grid.iter().map(String::as_str));
    let hint = near.map_or("give values there".to_owned(), |near| format!("did you mean `{near}`?"));
    let mut problem =
        Problem::new(first.place(), format!("`sweep.when`: {listed} {verb} not in `sweep.grid`"));
    problem.related = others.iter().map(|key| (key.place(), "nor is this".to_owned())).collect();
    problems.push(problem.hint(hint));
}

/// Reads one condition: its axis, and the values that other axes must have.
fn read_condition(
    (keys, of_grid): (&[&Key], usize),
    entry: &Entry,
    unknown: &mut Vec<Key>,
    problems: &mut Vec<Problem>,
) -> Option<(usize, Fit)> {
    let key = read_key(entry, problems)?;
    let name = key.dotted();
    let Some(axis) = keys[..of_grid].iter().position(|own| own.dotted() == name) else {
        unknown.push(key);
        return None;
    };
    let Value::Table(table) = &entry.node.value else {
        let found = entry.node.value.found();
        let message = format!("`sweep.when`: expected a table of swept keys and values, found {found}");
        let hint = format!("write `\"{name}\" = {{ \"KEY\" = VALUE }}`");
        problems.push(Problem::new(entry.node.span.place(), message).hint(hint));
        return None;
    };
    Some((axis, read_fit(keys, table, ("so nothing can vary by it", "sweep.when"), problems)?))
}
