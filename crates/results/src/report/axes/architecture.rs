//! The layers of runs as one axis, where other keys than those of a sweep tell their architectures apart: a key of each layer says
//! little of models that differ in depth or in the kinds of their layers.

use std::{collections::HashMap, sync::Arc};

use super::differences::Difference;
use crate::{
    files::{LAYERS, Leaves, is_of_layers},
    report::{grouping::distinct, run::Run},
    spec::layers_in_words,
};

/// Gives each run its layers as one value, in place of its sweep's axes within them, if runs differ in depth or kinds of layers and
/// the axes of sweeps do not tell that. `spec` has the keys in which specs differ.
pub(in crate::report) fn take_layers(runs: &mut [Run], spec: &[Difference]) {
    if !differ_in_kinds(runs, spec) {
        return;
    }
    let mut known: HashMap<String, Arc<str>> = HashMap::new();
    for run in runs {
        if let Some(spec) = &run.spec {
            let words = layers_in_words(layers(spec));
            run.layers =
                Some(Arc::clone(known.entry(words).or_insert_with_key(|words| words.as_str().into())));
        }
        if run.axes.is_empty() {
            continue;
        }
        let place = run.axes.iter().position(|(axis, _)| is_of_layers(axis)).unwrap_or(0);
        // A trial that was not run has no spec, and only a sweep over all layers names them.
        let own = run.layers.as_deref().or_else(|| run.axis(LAYERS)).map(str::to_owned);
        run.axes.retain(|(axis, _)| !is_of_layers(axis));
        run.axes.splice(place..place, own.map(|words| (LAYERS.to_owned(), words)));
        run.tables.retain(|(axis, _)| !is_of_layers(axis));
    }
}

impl Run {
    /// Its layers in words, as its spec has them: `linear32+relu+linear10`.
    pub(in crate::report) fn architecture(&self) -> Option<&str> {
        let of_spec = || Some(layers_in_words(layers(self.spec.as_ref()?))).filter(|words| !words.is_empty());
        self.in_words.get_or_init(of_spec).as_deref()
    }
}

/// Whether runs differ in depth or kinds of layers, other than by what a sweep varies: all layers, or a layer as a whole.
fn differ_in_kinds(runs: &[Run], spec: &[Difference]) -> bool {
    let is_other_kind = |own: &Difference| {
        is_of_layers(&own.key)
            && (is_one_layer(&own.key) || own.values.iter().any(|(value, _)| value.is_none()))
    };
    if !spec.iter().any(is_other_kind) {
        return false;
    }
    let axes = runs.iter().flat_map(|run| &run.axes).map(|(axis, _)| axis.as_str());
    let axes = distinct(axes.filter(|axis| *axis == LAYERS || is_one_layer(axis)));
    let swept: Vec<&str> = axes.iter().filter_map(|axis| within(axis)).collect();
    let mut by_layers = HashMap::new();
    runs.iter().any(|run| {
        let Some(spec) = &run.spec else { return false };
        let kinds = distinct(layers(spec).map(kind).filter(|(number, _)| !swept.contains(number)));
        let is_told = axes.iter().all(|axis| run.axis(axis).is_some());
        !is_told || *by_layers.entry(run.axis(LAYERS)).or_insert_with(|| kinds.clone()) != kinds
    })
}

/// A key within that of all layers, without it.
fn within(key: &str) -> Option<&str> {
    key.strip_prefix(LAYERS)?.strip_prefix('.')
}

fn is_one_layer(key: &str) -> bool {
    within(key).is_some_and(|number| !number.contains('.'))
}

/// What a spec says of its layers, by keys such as `1.linear.bias`.
fn layers(spec: &Leaves) -> impl Iterator<Item = (&str, &str)> {
    spec.iter().filter_map(|(key, value)| Some((within(key)?, value)))
}

/// The number of a layer, and its kind.
fn kind<'a>((key, value): (&'a str, &'a str)) -> (&'a str, &'a str) {
    let (number, of_layer) = key.split_once('.').unwrap_or((key, value));
    (number, of_layer.split_once('.').map_or(of_layer, |(kind, _)| kind))
}
