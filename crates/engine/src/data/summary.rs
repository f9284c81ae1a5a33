//! What a table became: its numeric features, and the rows of each class.

use serde_json::Value;

use super::Dataset;
use crate::{host::escape_line, units};

/// Names that are listed.
const SHOWN: usize = 20;

impl Dataset {
    /// Lines for `check`; none for arrays, whose features have no names.
    pub fn summary(&self) -> Vec<String> {
        let columns = self.preprocessing["features"].as_array().into_iter().flatten();
        let numbers = columns.filter(|column| column["kind"] == "numeric").filter_map(|c| c["name"].as_str());
        let numbers: Vec<String> = numbers.map(|name| format!("`{}`", escape_line(name))).collect();
        let numbers = (!numbers.is_empty()).then(|| format!("numbers: {}", listed(&numbers)));
        numbers.into_iter().chain(self.class_sizes()).collect()
    }

    fn class_sizes(&self) -> Option<String> {
        let classes = self.classes?;
        let names = &self.preprocessing["target"]["classes"];
        let mut counts = vec![0_u64; classes];
        for part in [Some(&self.train), self.validation.as_ref()].into_iter().flatten() {
            for class in self.targets_of(part) {
                if let Some(count) = counts.get_mut(class as usize) {
                    *count += 1;
                }
            }
        }
        let size = |(class, count): (usize, &u64)| {
            let name = names[class].as_str().map_or_else(|| class.to_string(), str::to_owned);
            format!("`{}` {}", escape_line(&name), units::count(*count))
        };
        let sizes: Vec<String> = counts.iter().enumerate().map(size).collect();
        (*names != Value::Null).then(|| format!("rows of each class: {}", listed(&sizes)))
    }
}

fn listed(words: &[String]) -> String {
    let shown = words.len().min(SHOWN);
    words[..shown].join(", ") + &units::and_more(words.len() - shown)
}
