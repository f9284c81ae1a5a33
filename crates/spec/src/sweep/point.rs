//! One point drawn by a sampler.

use super::{super::tree::Value, conditions::Conditions, space::Space};

/// The value of each swept key; `None` where the key does not vary.
#[derive(Clone, Debug)]
pub struct Point {
    values: Vec<Option<Value>>,
    /// The position of each value in its space, in [0, 1); NaN if the key does not vary.
    places: Vec<f64>,
}

impl Point {
    /// From a value for every key, including keys that do not vary.
    pub(super) fn new(spaces: &[Space], conditions: &Conditions, values: Vec<Value>) -> Self {
        let active = conditions.active(&values.iter().collect::<Vec<_>>());
        let values: Vec<Option<Value>> =
            values.into_iter().zip(active).map(|(value, is_active)| is_active.then_some(value)).collect();
        let place = |(space, value): (&Space, &Option<Value>)| {
            value.as_ref().map_or(f64::NAN, |value| space.place_of(value))
        };
        let places = spaces.iter().zip(&values).map(place).collect();
        Self { values, places }
    }

    /// Parses what [`Point::cells`] wrote; `None` if it is not a point of these axes.
    pub(super) fn read(spaces: &[Space], conditions: &Conditions, cells: &[String]) -> Option<Self> {
        let value = |(space, cell): (&Space, &String)| match cell.is_empty() {
            true => Some(Value::Deleted),
            false => space.read(cell),
        };
        let values: Vec<Value> = spaces.iter().zip(cells).map(value).collect::<Option<_>>()?;
        let is_whole = values.len() == spaces.len();
        // A cell that is empty although its key varies (or the reverse) does not round-trip, so it is
        // rejected.
        is_whole.then(|| Self::new(spaces, conditions, values)).filter(|point| point.cells() == cells)
    }

    /// One text per key: its value in TOML, empty if it does not vary.
    pub(super) fn cells(&self) -> Vec<String> {
        self.texts(Value::literal)
    }

    /// The values as displayed; empty for a key that does not vary.
    pub(crate) fn shown(&self) -> Vec<String> {
        self.texts(Value::display)
    }

    fn texts(&self, text: impl Fn(&Value) -> String) -> Vec<String> {
        self.values.iter().map(|value| value.as_ref().map(&text).unwrap_or_default()).collect()
    }

    pub(super) fn values(&self) -> &[Option<Value>] {
        &self.values
    }

    pub(super) fn place(&self, axis: usize) -> f64 {
        self.places[axis]
    }
}
