//! The end of reading a table: reports unknown keys and missing fields.

use super::Fields;
use crate::{
    problem::{Location, Problem},
    reader::{At, MAX_PROBLEMS},
    suggest,
    tree::{Entry, Node, Table, Value},
};

impl Fields<'_> {
    /// Reports keys that are not declared, and required ones that are missing.
    pub(super) fn finish(mut self) {
        let At::Node(Node { value: Value::Table(table), span }) = self.at else { return };
        let meant = if self.opaque { Vec::new() } else { self.report_unknown(table) };
        let path = self.reading.path_to(None);
        for (names, message, hint) in std::mem::take(&mut self.missing) {
            if !self.opaque && !names.iter().any(|n| meant.contains(n)) {
                // The root has no key of its own to point at, so the whole file is the location.
                let place = if path.is_empty() { Location::Key(String::new()) } else { span.place() };
                let key = self.reading.path_to(names.first().copied());
                self.reading.report(key, Problem { hint, ..Problem::new(place, message) });
            }
        }
    }

    /// Reports unknown keys. Returns the declared names that they were probably meant to be.
    fn report_unknown(&mut self, table: &Table) -> Vec<&'static str> {
        let mut meant = Vec::new();
        // Of names as near, one that the table lacks.
        let (free, set): (Vec<&'static str>, Vec<&'static str>) =
            self.known.iter().copied().partition(|key| table.get(key).is_none());
        let unknown = table.entries.iter().filter(|e| !self.known.contains(&e.key.as_str()));
        // No more than this is reported.
        for entry in unknown.take(MAX_PROBLEMS) {
            let known = || free.iter().chain(&set).copied();
            let choice = self.named_choice(entry);
            let near = choice.or_else(|| suggest::nearest(&entry.key, known()));
            meant.extend(near.filter(|near| free.contains(near)));
            let near = near.or_else(|| suggest::longer(&entry.key, known()));
            let path = self.reading.path_to(Some(&entry.key));
            let direction = suggest::at_direction(&self.reading.path_to(None), &entry.key);
            let hint = match (direction, choice, near) {
                (Some(hint), ..) => hint.to_owned(),
                (None, Some(choice), _) => {
                    let table = self.reading.path_to(Some(choice));
                    let is_in_list = table.split('.').any(|part| part.parse::<usize>().is_ok());
                    match entry.key_span.is_argument() {
                        true => format!("write `'{table}={{ ... }}'` instead"),
                        false if is_in_list => format!("write `{choice} = {{ ... }}` instead"),
                        false => format!("write `[{table}]` instead"),
                    }
                }
                (None, None, Some(near)) => format!("did you mean `{near}`?"),
                (None, None, None) => {
                    self.reading.unknown.push((self.reading.problems.len(), path.clone()));
                    let mut names = self.known.clone();
                    names.dedup();
                    format!("known here: {}", suggest::listing(names.into_iter(), "and"))
                }
            };
            let problem = Problem::new(entry.key_span.place(), format!("unknown key `{path}`")).hint(hint);
            self.reading.report(path, problem);
        }
        meant
    }

    /// The choice that a key names, as in other programs: `name = "adam"`.
    fn named_choice(&self, entry: &Entry) -> Option<&'static str> {
        let word = entry.node.value.as_str().filter(|_| suggest::NAMES_A_CHOICE.contains(&&*entry.key))?;
        suggest::nearest(word, self.choices.iter().copied())
    }
}
