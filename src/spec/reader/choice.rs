//! Reading one of several: a word of a list, a word or a table with one key.

use serde_json::json;

use super::{At, Item, Json, Segment};
use crate::spec::{
    problem::Problem,
    suggest,
    tree::{Node, Value},
};

/// A string with a meaning.
pub(in crate::spec) struct Word<T> {
    pub name: &'static str,
    pub value: T,
    pub doc: &'static str,
}

/// A key whose presence selects an alternative, such as `[optimizer.sgd]`.
pub(in crate::spec) struct Choice<T> {
    pub name: &'static str,
    pub doc: &'static str,
    pub read: fn(Item<'_>) -> T,
}

impl Item<'_> {
    /// One of `words`; those of `later` are refused by name.
    pub fn word<T: Clone>(self, words: &[Word<T>], later: &[&str]) -> T {
        let names = || words.iter().map(|w| w.name);
        let stand_in = words[0].value.clone();
        match self.at {
            At::Schema(schema) => {
                schema.insert("enum".into(), names().collect());
                let meanings: Vec<String> =
                    words.iter().map(|w| format!("`{}`: {}", w.name, w.doc)).collect();
                append_description(schema, &meanings.join("; "));
                stand_in
            }
            At::Absent => stand_in,
            At::Node(Node { value: Value::String(s), .. }) => {
                let (s, path) = (s.clone(), self.reading.path_to(None));
                if let Some(word) = words.iter().find(|w| w.name == s) {
                    return word.value.clone();
                }
                if later.contains(&s.as_str()) {
                    self.report(|p| Problem {
                        message: format!("not in this version: `{path} = \"{s}\"`"),
                        ..p
                    });
                    return stand_in;
                }
                let hint = match suggest::nearest(&s, names()) {
                    Some(near) => {
                        format!("did you mean `{near}`? it is one of {}", suggest::listing(names(), "or"))
                    }
                    None => format!("it is {}", suggest::listing(names(), "or")),
                };
                let label = self.doc;
                self.report(|p| {
                    Problem { message: format!("`{path}`: unknown value `{s}`"), ..p }.label(label).hint(hint)
                });
                stand_in
            }
            At::Node(_) => {
                let expected = suggest::listing(names(), "or");
                self.custom(&expected, serde_json::Value::Null, stand_in, |_| None)
            }
        }
    }

    /// One of `words`, or a table with one key that is among `choices`. `noun` is what is chosen, such as "layer".
    pub fn variant<T: Clone>(self, noun: &str, words: &[Word<T>], choices: &[Choice<T>]) -> T {
        let Self { at, doc, reading } = self;
        let stand_in = words[0].value.clone();
        match at {
            At::Schema(schema) => {
                let mut alternatives: Vec<serde_json::Value> =
                    words.iter().map(|w| json!({ "const": w.name, "description": w.doc })).collect();
                for choice in choices {
                    let mut inner = Json::new();
                    inner.insert("description".into(), choice.doc.into());
                    (choice.read)(Item { at: At::Schema(&mut inner), doc: choice.doc, reading });
                    alternatives.push(json!({
                        "type": "object", "properties": { choice.name: inner },
                        "required": [choice.name], "additionalProperties": false,
                    }));
                }
                schema.insert("oneOf".into(), alternatives.into());
                stand_in
            }
            At::Absent => stand_in,
            At::Node(node) => {
                let item = Item { at: At::Node(node), doc, reading };
                match &node.value {
                    Value::String(s) => match words.iter().find(|w| w.name == s) {
                        Some(word) => word.value.clone(),
                        None => {
                            item.report_unknown_variant(noun, s, words, choices);
                            stand_in
                        }
                    },
                    Value::Table(table) => match &table.entries[..] {
                        [entry] => match choices.iter().find(|c| c.name == entry.key) {
                            Some(choice) => {
                                item.reading.path.push(Segment::Key(choice.name));
                                let at = At::Node(&entry.node);
                                let value =
                                    (choice.read)(Item { at, doc: choice.doc, reading: item.reading });
                                item.reading.path.pop();
                                value
                            }
                            None => {
                                item.report_unknown_variant(noun, &entry.key, words, choices);
                                stand_in
                            }
                        },
                        entries => {
                            let path = item.reading.path_to(None);
                            let found = match entries {
                                [] => "an empty table".to_owned(),
                                _ => suggest::listing(entries.iter().map(|e| e.key.as_str()), "and"),
                            };
                            let place = entries.last().map(|e| e.key_span.place());
                            item.report(|p| Problem {
                                message: format!("`{path}`: a {noun} has one key, found {found}"),
                                place: place.unwrap_or(p.place),
                                ..p
                            });
                            stand_in
                        }
                    },
                    _ => {
                        let expected =
                            format!("a {noun}: its name, or a table with its name as the only key");
                        item.custom(&expected, serde_json::Value::Null, stand_in, |_| None)
                    }
                }
            }
        }
    }

    fn report_unknown_variant<T>(self, noun: &str, found: &str, words: &[Word<T>], choices: &[Choice<T>]) {
        let path = self.reading.path_to(None);
        let names = || words.iter().map(|w| w.name).chain(choices.iter().map(|c| c.name));
        let (message, hint) = if words.iter().any(|w| w.name == found) {
            (format!("`{path}`: `{found}` takes no settings"), format!("write `\"{found}\"`"))
        } else if choices.iter().any(|c| c.name == found) {
            (format!("`{path}`: `{found}` needs its settings"), format!("write `{{ {found} = ... }}`"))
        } else {
            let hint = match suggest::nearest(found, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known: {}", suggest::listing(names(), "and")),
            };
            (format!("`{path}`: unknown {noun} `{found}`"), hint)
        };
        self.report(|p| Problem { message, ..p }.hint(hint));
    }
}

/// Adds a sentence to what a schema says of itself.
pub(super) fn append_description(schema: &mut Json, more: &str) {
    let text = match schema.get("description").and_then(|d| d.as_str()) {
        Some(text) if !text.is_empty() => format!("{text}. {more}"),
        _ => more.to_owned(),
    };
    schema.insert("description".into(), text.into());
}
