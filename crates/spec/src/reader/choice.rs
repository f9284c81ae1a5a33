//! Reads a choice: one of several words, or a word or a table with one key.

use serde_json::json;

use super::{At, Item, Json, Reading, Segment, append_description, plain};
use crate::{
    problem::Problem,
    suggest,
    tree::{Node, Table, Value},
};

/// A word with its meaning and its value.
#[derive(Clone)]
pub(crate) struct Word<T> {
    pub name: &'static str,
    pub value: T,
    pub doc: &'static str,
}

/// Implemented by [`words!`](super::words).
pub(crate) trait Words: Sized + 'static {
    const WORDS: &'static [Word<Self>];
}

/// One of several choices: a string, or a key with settings, such as `[optimizer.sgd]`.
pub(crate) struct Choice<T> {
    pub name: &'static str,
    pub doc: &'static str,
    pub how: How<T>,
}

/// How a choice is written in a spec.
pub(crate) enum How<T> {
    /// As a string.
    Word(T),
    /// As a key with a value.
    Settings(Settings<T>),
}

type Settings<T> = Box<dyn Fn(Item<'_>) -> T>;

/// Implemented by [`choices!`](super::choices).
pub(crate) trait Choices: Sized {
    fn choices() -> Vec<Choice<Self>>;
}

impl<T: 'static> Choice<T> {
    /// Wraps the choice in another type.
    pub fn map<U: 'static>(self, wrap: fn(T) -> U) -> Choice<U> {
        let how = match self.how {
            How::Word(value) => How::Word(wrap(value)),
            How::Settings(read) => How::Settings(Box::new(move |v| wrap(read(v)))),
        };
        Choice { name: self.name, doc: self.doc, how }
    }

    /// Reads the settings; a word has none and returns its value.
    pub(super) fn read(&self, v: Item<'_>) -> T
    where
        T: Clone,
    {
        match &self.how {
            How::Word(value) => value.clone(),
            How::Settings(read) => read(v),
        }
    }

    fn is_word(&self) -> bool {
        matches!(self.how, How::Word(_))
    }

    /// The schema of its settings.
    fn describe(&self, reading: &mut Reading) -> Json
    where
        T: Clone,
    {
        let mut schema = Json::new();
        schema.insert("description".into(), plain(self.doc).into());
        self.read(Item { at: At::Schema(&mut schema), doc: self.doc, reading });
        schema
    }
}

impl Item<'_> {
    /// Reads one of `words`.
    pub fn word<T: Copy>(self, words: &[Word<T>]) -> T {
        let meanings: Vec<_> = words.iter().map(|w| (w.name, w.doc)).collect();
        words[self.word_index(&meanings)].value
    }

    /// Reads one of `words`, or a text that matches the pattern, given with its meaning, and that `other` accepts.
    pub fn word_or<T: Copy>(
        self,
        words: &[Word<T>],
        (pattern, meaning): (&str, &str),
        other: impl Fn(&str) -> Option<T>,
    ) -> T {
        if let Some(value) = self.text().and_then(other) {
            return value;
        }
        let Self { at, doc, reading } = self;
        let At::Schema(schema) = at else { return Item { at, doc, reading }.word(words) };
        let value = Item { at: At::Schema(&mut *schema), doc, reading }.word(words);
        let names = schema.remove("enum");
        schema.insert("oneOf".into(), json!([{ "enum": names }, { "type": "string", "pattern": pattern }]));
        append_description(schema, meaning);
        value
    }

    /// Reads one of these words (given with their meanings) and returns its index; 0 after an error.
    fn word_index(self, words: &[(&'static str, &'static str)]) -> usize {
        let names = || words.iter().map(|&(name, _)| name);
        let find = |s: &str| names().position(|name| name == s);
        match self.at {
            At::Schema(schema) => {
                schema.insert("enum".into(), names().collect());
                let meanings: Vec<String> =
                    words.iter().map(|(name, doc)| format!("`{name}`: {}", plain(doc))).collect();
                append_description(schema, &meanings.join("; "));
                0
            }
            At::Absent => 0,
            At::Node(Node { value: Value::String(s), .. }) => {
                if let Some(index) = find(s) {
                    return index;
                }
                let listing = suggest::listing(names(), "or");
                let hint = match suggest::nearest(s, names()) {
                    Some(near) => format!("did you mean `{near}`? it is one of {listing}"),
                    None => format!("it is {listing}"),
                };
                let message = format!("`{}`: unknown value `{s}`", self.reading.path_to(None));
                let label = plain(self.doc);
                self.report(|p| Problem { message, ..p }.label(label).hint(hint));
                0
            }
            At::Node(_) => {
                let expected = suggest::listing(names(), "or");
                self.custom(&expected, serde_json::Value::Null, 0, |value| find(value.as_str()?))
            }
        }
    }

    /// Reads a string of `choices`, or a table with one of them as its key. If all settings of a choice have
    /// defaults, its name alone is enough. `noun` names what is chosen, such as "layer".
    pub fn variant<T: Clone + 'static>(self, noun: &str, choices: &[Choice<T>]) -> T {
        let Self { at, doc, reading } = self;
        let find = |name: &str, is_word| choices.iter().find(|c| c.name == name && c.is_word() == is_word);
        let stand_in = |reading| choices[0].read(Item { at: At::Absent, doc, reading });
        let node = match at {
            At::Schema(schema) => {
                let (mut one_of, mut tables) = (Vec::new(), Vec::new());
                for choice in choices {
                    let inner = choice.describe(reading);
                    if choice.is_word() || has_defaults(&inner) {
                        one_of.push(json!({ "const": choice.name, "description": plain(choice.doc) }));
                    }
                    if !choice.is_word() {
                        tables.push(json!({
                            "type": "object", "properties": { choice.name: inner },
                            "required": [choice.name], "additionalProperties": false,
                        }));
                    }
                }
                one_of.append(&mut tables);
                schema.insert("oneOf".into(), one_of.into());
                return stand_in(reading);
            }
            At::Absent => return stand_in(reading),
            At::Node(node) => node,
        };
        let entry = node.value.as_table().and_then(|table| match &table.entries[..] {
            [entry] => Some(entry),
            _ => None,
        });
        if let Value::String(name) = &node.value {
            let with_defaults = |reading: &mut Reading| {
                find(name, false).filter(|choice| has_defaults(&choice.describe(reading)))
            };
            if let Some(choice) = find(name, true).or_else(|| with_defaults(reading)) {
                return choice.read(Item { at: At::Absent, doc, reading });
            }
        }
        let given = entry.and_then(|entry| Some((find(&entry.key, false)?, &entry.node)));
        if let Some((choice, node)) = given {
            reading.path.push(Segment::Key(choice.name));
            let value = choice.read(Item { at: At::Node(node), doc: choice.doc, reading });
            reading.path.pop();
            return value;
        }
        let item = Item { at: At::Node(node), doc, reading: &mut *reading };
        match (&node.value, entry) {
            (Value::String(name), _) => item.report_unknown_variant(noun, name, choices),
            (_, Some(entry)) => item.report_unknown_variant(noun, &entry.key, choices),
            (Value::Table(table), None) => item.report_not_one_key(noun, table, choices),
            _ => {
                let a = if noun.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
                let expected = format!("{a} {noun}: its name, or a table with its name as the only key");
                let hint = of_number(node, choices, item.reading);
                item.custom_hinted(&expected, serde_json::Value::Null, (), hint, |_| None);
            }
        }
        stand_in(reading)
    }

    fn report_not_one_key<T: Clone + 'static>(self, noun: &str, table: &Table, choices: &[Choice<T>]) {
        let found = match &table.entries[..] {
            [] => "an empty table".to_owned(),
            entries => suggest::listing(entries.iter().map(|e| e.key.as_str()), "and"),
        };
        let path = self.reading.path_to(None);
        let message = format!("`{path}`: a {noun} has one key, found {found}");
        let place = table.entries.last().map(|e| e.key_span.place());
        // A setting beside its choice: `linear` and `out_features`.
        let hint = table.entries.iter().find_map(|entry| {
            let (choice, setting) = choice_with(&entry.key, choices, self.reading)?;
            table.get(choice).map(|_| format!("did you mean `{path}.{choice}.{setting}`?"))
        });
        self.report(|p| Problem { message, hint, place: place.unwrap_or(p.place), ..p });
    }

    fn report_unknown_variant<T: Clone + 'static>(self, noun: &str, found: &str, choices: &[Choice<T>]) {
        let path = self.reading.path_to(None);
        let names = || choices.iter().map(|c| c.name);
        let (message, hint) = match choices.iter().find(|c| c.name == found) {
            Some(choice) if choice.is_word() => {
                (format!("`{path}`: `{found}` takes no settings"), format!("write `\"{found}\"`"))
            }
            Some(_) => {
                (format!("`{path}`: `{found}` needs its settings"), format!("write `{{ {found} = ... }}`"))
            }
            None => {
                let near = suggest::nearest(found, names());
                let hint = match (near, choice_with(found, choices, self.reading)) {
                    (Some(near), _) => format!("did you mean `{near}`?"),
                    (None, Some((choice, setting))) => {
                        format!("write `{{ {choice} = {{ {setting} = ... }} }}`")
                    }
                    // What other programs have, and users look for.
                    (None, None) if noun == "layer" => {
                        format!("this version has only {}", suggest::listing(names(), "and"))
                    }
                    (None, None) => format!("known: {}", suggest::listing(names(), "and")),
                };
                (format!("`{path}`: unknown {noun} `{found}`"), hint)
            }
        };
        self.report(|p| Problem { message, ..p }.hint(hint));
    }
}

/// The choice that has a setting of this name or nearly so, and the setting.
fn choice_with<T: Clone + 'static>(
    setting: &str,
    choices: &[Choice<T>],
    reading: &mut Reading,
) -> Option<(&'static str, String)> {
    choices.iter().filter(|choice| !choice.is_word()).find_map(|choice| {
        let described = choice.describe(reading);
        let settings = described.get("properties")?.as_object()?;
        let near = suggest::nearest(setting, settings.keys().map(String::as_str))?;
        Some((choice.name, near.to_owned()))
    })
}

/// The hint at the first choice whose only required setting may be this number: `{ linear = { out_features = 32 } }` for 32.
fn of_number<T: Clone + 'static>(
    number: &Node,
    choices: &[Choice<T>],
    reading: &mut Reading,
) -> Option<String> {
    if !matches!(number.value, Value::Integer(_) | Value::Float(_)) {
        return None;
    }
    choices.iter().filter(|choice| !choice.is_word()).find_map(|choice| {
        let settings = choice.describe(reading);
        let [setting] = &settings.get("required")?.as_array()?[..] else { return None };
        let setting = setting.as_str()?;
        let mut table = Table::default();
        table.insert(setting, number.span, number.clone());
        let node = Node { span: number.span, value: Value::Table(table) };
        let mut tried = Reading::new(&reading.folders);
        choice.read(Item { at: At::Node(&node), doc: choice.doc, reading: &mut tried });
        let written = number.value.display();
        tried
            .problems
            .is_empty()
            .then(|| format!("write `{{ {} = {{ {setting} = {written} }} }}`", choice.name))
    })
}

/// Whether every setting has a default, so that the choice's name alone is enough.
fn has_defaults(settings: &Json) -> bool {
    settings.get("type") == Some(&"object".into()) && !settings.contains_key("required")
}
