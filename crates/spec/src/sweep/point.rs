//! A point that a sampler drew.

use super::{super::tree::Value, conditions::Conditions, space::Space};

/// The value of each swept key; none where the key does not vary.
#[derive(Clone, Debug)]
pub struct Point {
    values: Vec<Option<Value>>,
    /// Where each value lies in its space; NaN for none.
    places: Vec<f64>,
}

impl Point {
    /// From a value for each key, also for those that do not vary.
    pub(super) fn new(spaces: &[Space], conditions: &Conditions, values: Vec<Value>) -> Self {
        let active = conditions.active(&values.iter().collect::<Vec<_>>());
        let values: Vec<Option<Value>> = values
            .into_iter()
            .zip(active)
            .map(|(value, is_active)| Some(value).filter(|_| is_active))
            .collect();
        let place = |(space, value): (&Space, &Option<Value>)| {
            value.as_ref().map_or(f64::NAN, |value| space.place_of(value))
        };
        let places = spaces.iter().zip(&values).map(place).collect();
        Self { values, places }
    }

    /// As [`Point::cells`] wrote it; `None` where it is no point of these axes.
    pub(super) fn read(spaces: &[Space], conditions: &Conditions, cells: &[String]) -> Option<Self> {
        let value = |(space, cell): (&Space, &String)| match cell.is_empty() {
            true => Some(Value::Deleted),
            false => space.read(cell),
        };
        let values: Vec<Value> = spaces.iter().zip(cells).map(value).collect::<Option<_>>()?;
        let is_whole = values.len() == spaces.len();
        // Cells that are empty, or are not, against the conditions come back as others.
        is_whole.then(|| Self::new(spaces, conditions, values)).filter(|point| point.cells() == cells)
    }

    /// A text for each key: its value in TOML, nothing where it does not vary.
    pub(super) fn cells(&self) -> Vec<String> {
        self.texts(Value::literal)
    }

    /// The values as they are shown; an empty text for a key that does not vary.
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
