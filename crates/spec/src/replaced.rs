//! Overrides that take the place of earlier ones.

use super::{
    key::Key,
    overrides::taken_back,
    swept_keys::{Given, axis_of},
    tree::Span,
    typed::{is_swept, split_at_commas},
};

/// The words of `earlier` that no word of `later` replaces, then those of `later`.
pub fn replaced(earlier: &[String], later: &[String]) -> Vec<String> {
    let is_replaced = |word: &str| match given_by(word) {
        Some(given) => {
            let given = [given];
            let by = |new: Given| taken_back(&given, &new.key, new.axes.is_some()).is_some();
            later.iter().any(|new| given_by(new).is_some_and(by))
        }
        None => false,
    };
    earlier.iter().filter(|word| !is_replaced(word)).chain(later).cloned().collect()
}

/// What one argument sets, sweeps or deletes; `None` for one that is no override.
fn given_by(text: &str) -> Option<Given> {
    let (name, values) = text.strip_prefix('~').map(|name| (name, "")).or_else(|| text.split_once('='))?;
    let name = name.trim_end();
    let key = Key::parse(name, Span::new(1, 0..name.len())).ok()?;
    let axis = axis_of(&key);
    let is_swept = is_swept(&split_at_commas(values));
    Some(axis.map_or(Given { key, axes: is_swept.then_some("grid") }, |(key, table)| Given {
        key,
        axes: Some(table),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_replaces_those_that_it_would_contradict() {
        let cases: [(&[&str], &str, &[&str]); 6] = [
            (&["seed=0,1", "~model"], "sweep.grid.seed=0..3", &["~model"]),
            (&["sweep.grid.'a.b'=1,2", "a=1"], "a.b=3", &["a=1"]),
            (&["sweep.trials=14", "a.b=1", "seed=0,1"], "sweep={trials=16}", &["a.b=1"]),
            (&["a.b=1", "a.c=1,2", "ab=1"], "a={}", &["ab=1"]),
            (&["sweep.zip.a=1,2"], "sweep.grid={}", &["sweep.zip.a=1,2"]),
            (&["a=1"], "~a", &[]),
        ];
        for (earlier, word, stay) in cases {
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            let later = owned(&[word]);
            assert_eq!(replaced(&owned(earlier), &later), [owned(stay), later].concat());
        }
    }
}
