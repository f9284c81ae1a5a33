//! "did you mean": the known name nearest to a mistyped one.

use std::cmp::Reverse;

/// The most similar of `names`; `None` if none is similar enough. Ignores case, and takes `-` for `_`.
pub fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    nearest_within(typed, (typed.chars().count() / 3).max(1), names)
}

/// The nearest of `names`, no more than `allowed` letters away.
pub(super) fn nearest_within<'a>(
    typed: &str,
    allowed: usize,
    names: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    // A word this long is no slip of a name, and would cost time to compare.
    if typed.len() > 100 {
        return None;
    }
    let typed = typed.to_lowercase().replace('-', "_");
    names
        .map(|name| (strsim::osa_distance(&typed, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= allowed && *distance < name.chars().count())
        .min_by_key(|(distance, name)| (*distance, Reverse(alike(&typed, name))))
        .map(|(_, name)| name)
}

/// The number of letters that two words begin with alike.
fn alike(word: &str, other: &str) -> usize {
    word.chars().zip(other.chars()).take_while(|(own, other)| own == other).count()
}

/// The shortest name that begins or ends with `word`: `trainer` for `train`.
pub fn longer<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let fits = |name: &&str| word.len() > 3 && (name.starts_with(word) || ends_in(name, word));
    names.filter(fits).min_by_key(|name| name.len())
}

/// Words that others use for keys.
const SYNONYMS: [(&str, &str); 4] = [
    ("learning_rate", "lr"),
    ("num_epochs", "max_epochs"),
    ("num_steps", "max_steps"),
    ("early_stop", "early_stopping"),
];

/// What a word of another program is called here.
pub(super) fn called_here(word: &str) -> Option<&'static str> {
    SYNONYMS.into_iter().find(|(usual, _)| *usual == word).map(|(_, here)| here)
}

/// Whether `name` is a longer one for `word`: `batch_size` for `batch`.
pub(super) fn begins_with(name: &str, word: &str) -> bool {
    name.strip_prefix(word).is_some_and(|rest| rest.starts_with('_'))
}

/// Whether `name` is a longer one for `word`: `max_epochs` for `epochs`.
pub(super) fn ends_in(name: &str, word: &str) -> bool {
    name.strip_suffix(word).is_some_and(|before| before.ends_with('_'))
}

/// "`a`, `b` and `c`", with `and` before the last.
pub(super) fn listing<'a>(names: impl Iterator<Item = &'a str>, and: &str) -> String {
    let names: Vec<String> = names.map(|n| format!("`{n}`")).collect();
    match names.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} {and} {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognized_and_strangers_are_not() {
        let names = ["batch_size", "shuffle", "lr", "relu", "validate_every_epochs", "max_epochs", "trainer"];
        let near = |t| nearest(t, names.into_iter());
        assert_eq!(near("batchsize"), Some("batch_size"));
        assert_eq!(near("batch-size"), Some("batch_size"));
        assert_eq!(near("ReLU"), Some("relu"));
        assert_eq!(near("lrr"), Some("lr"));
        assert_eq!(longer("epochs", names.into_iter()), Some("max_epochs"));
        assert_eq!(longer("train", names.into_iter()), Some("trainer"));
        assert_eq!(near("sgd"), None);
        assert_eq!(near("x"), None);
        // Of names as near, the one that begins alike.
        assert_eq!(
            nearest("validation.f2", ["validation.r2", "validation.f1"].into_iter()),
            Some("validation.f1")
        );
    }

    #[test]
    fn lists_read_as_sentences() {
        assert_eq!(listing(["a"].into_iter(), "or"), "`a`");
        assert_eq!(listing(["a", "b", "c"].into_iter(), "or"), "`a`, `b` or `c`");
    }
}
