//! Shell completion beyond commands and options: keys of the spec, values from a fixed set of words, spec
//! files, runs.

use std::{
    cmp::Reverse,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use serde_json::Value;

use super::spec_of;
use crate::{
    record::runs_dir,
    spec::{Kind, OF_FILES, schema, written},
};

/// Completes the path of a run or sweep.
pub fn run_path() -> ArgValueCompleter {
    ArgValueCompleter::new(runs)
}

/// Completes a spec file, or the overrides that follow it.
pub fn spec_word() -> ArgValueCompleter {
    ArgValueCompleter::new(words)
}

/// Runs, newest first; outside the runs folder and inside a run, any folder.
fn runs(typed: &OsStr) -> Vec<CompletionCandidate> {
    let inner = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let is_hidden = |name: &OsStr| name.to_string_lossy().starts_with('.');
        entries.filter(|entry| !is_hidden(&entry.file_name())).map(|entry| entry.path()).collect()
    };
    let mut runs: Vec<PathBuf> = inner(&runs_dir()).iter().flat_map(|name| inner(name)).collect();
    runs.retain(|run| run.to_string_lossy().starts_with(&*typed.to_string_lossy()));
    runs.sort_by_key(|run| Reverse(run.file_name().map(OsStr::to_owned)));
    if runs.is_empty() {
        return PathCompleter::dir().complete(typed);
    }
    let candidate = |(place, run)| CompletionCandidate::new(run).display_order(Some(place));
    runs.into_iter().enumerate().map(candidate).collect()
}

fn words(typed: &OsStr) -> Vec<CompletionCandidate> {
    let text = typed.to_string_lossy();
    // Ignore what follows the cursor. If a shell does not report the cursor's position, it passes only the
    // words before it.
    let cursor = std::env::var("_CLAP_COMPLETE_INDEX").ok();
    let cursor = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(usize::MAX);
    // The shell's script calls the program with the words of its line after `--`.
    let line: Vec<String> = std::env::args_os()
        .skip_while(|word| word != "--")
        .skip(2)
        .take(cursor)
        .map(|word| word.to_string_lossy().trim_matches(['"', '\'']).replace("\\ ", " "))
        .collect();
    let Some(spec) = line.iter().filter(|word| **word != *text).find_map(|word| spec_of(word)) else {
        let is_spec = |path: &Path| path.extension().is_some_and(|end| end == "toml");
        return PathCompleter::any().filter(is_spec).stdio().complete(typed);
    };
    let spec = written(&spec).unwrap_or_default();
    let found = match &line[..] {
        // Bash treats `=` as a separate word. It is the word to complete right after it is typed, and what
        // follows is replaced.
        [.., key, equals] if equals == "=" && (text.is_empty() || text == "=") => values_of(key, "", &spec),
        [.., key, equals, _] if equals == "=" => values_of(key, &text, &spec),
        _ => overrides(&text, &spec),
    };
    found.into_iter().map(CompletionCandidate::new).collect()
}

/// Keys that begin with what was typed, as `key=`; once a key is complete, its values, as `key=value`.
fn overrides(typed: &str, spec: &toml::Table) -> Vec<String> {
    if let Some((key, value)) = typed.split_once('=') {
        return values_of(key, value, spec).into_iter().map(|value| format!("{key}={value}")).collect();
    }
    if let Some(typed) = typed.strip_prefix('~') {
        let mut written = Vec::new();
        list_written(spec, "", &mut written);
        return written.iter().filter(|key| key.starts_with(typed)).map(|key| format!("~{key}")).collect();
    }
    keys_of(spec).into_iter().map(|(key, _)| key + "=").filter(|key| key.starts_with(typed)).collect()
}

/// Lists every key and table in a spec, all of which may be deleted.
fn list_written(table: &toml::Table, above: &str, written: &mut Vec<String>) {
    for (key, value) in table {
        let path = format!("{above}{key}");
        written.push(path.clone());
        value.as_table().into_iter().for_each(|inner| list_written(inner, &format!("{path}."), written));
    }
}

/// The values of a key that begin with what was typed after the last comma.
fn values_of(key: &str, typed: &str, spec: &toml::Table) -> Vec<String> {
    let (before, typed) = typed.split_at(typed.rfind(',').map_or(0, |comma| comma + 1));
    let values = keys_of(spec).into_iter().filter(|(name, _)| name == key).flat_map(|(_, values)| values);
    values.filter(|value| value.starts_with(typed)).map(|value| format!("{before}{value}")).collect()
}

/// The keys that a spec may have, each with its possible values if these are words.
type Keys = Vec<(String, Vec<String>)>;

fn keys_of(spec: &toml::Table) -> Keys {
    let mut keys = Keys::new();
    collect(&schema(), Some(&toml::Value::Table(spec.clone())), "", &mut keys);
    keys
}

/// Adds a key, or the keys below it. Of tables that exclude each other, uses those present in the spec.
fn collect(schema: &Value, written: Option<&toml::Value>, path: &str, keys: &mut Keys) {
    let list = |name: &str| schema[name].as_array().into_iter().flatten();
    let all: Vec<&Value> = std::iter::once(schema).chain(list("oneOf")).chain(list("anyOf")).collect();
    let is_written = |name: &str| written.is_some_and(|written| written.get(name).is_some());
    let excluded: Vec<&str> = list("allOf")
        .map(|rule| {
            rule["oneOf"].as_array().into_iter().flatten().filter_map(|one| one["required"][0].as_str())
        })
        .map(Iterator::collect::<Vec<&str>>)
        .filter(|names| names.iter().any(|name| is_written(name)))
        .flatten()
        .collect();
    let properties = all.iter().filter_map(|choice| choice["properties"].as_object());
    let has = |of: &&serde_json::Map<String, Value>| of.keys().any(|name| is_written(name));
    let is_choice = properties.clone().count() > 1 && properties.clone().any(|of| has(&of));
    let mut is_table = false;
    for (name, inner) in properties.filter(|of| !is_choice || has(of)).flatten() {
        is_table = true;
        let is_other_kind = Kind::LABS.iter().any(|lab| lab.name() == name);
        let is_no_key = path.is_empty() && (is_other_kind || OF_FILES.contains(&name.as_str()));
        if is_written(name) || !(excluded.contains(&name.as_str()) || is_no_key) {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            collect(inner, written.and_then(|written| written.get(name)), &path, keys);
        }
    }
    for (place, item) in written.and_then(toml::Value::as_array).into_iter().flatten().enumerate() {
        collect(&schema["items"], Some(item), &format!("{path}.{place}"), keys);
    }
    let words = all.iter().flat_map(|choice| {
        let booleans = (choice["type"] == "boolean").then_some(["true", "false"]).into_iter().flatten();
        let listed = choice["enum"].as_array().into_iter().flatten().chain([&choice["const"]]);
        booleans.chain(listed.filter_map(Value::as_str))
    });
    let words: Vec<String> = words.map(str::to_owned).collect();
    if !is_table || !words.is_empty() {
        keys.push((path.to_owned(), words));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_words_are_those_of_the_spec() {
        let spec = "[model]\nlayers = [{ linear = { out_features = 1 } }, 'relu']\n[optimizer.adam]\nlr = 1";
        let spec: toml::Table = spec.parse().unwrap();
        let found = |typed: &str| overrides(typed, &spec).join(" ");
        assert_eq!(
            found("opt"),
            "optimizer.adam.lr= optimizer.adam.beta1= optimizer.adam.beta2= optimizer.adam.eps= \
             optimizer.adam.weight_decay="
        );
        assert_eq!(found("model.layers.0.linear.o"), "model.layers.0.linear.out_features=");
        assert_eq!(found("model.loss=h"), "model.loss=huber");
        assert_eq!(found("data.shuffle="), "data.shuffle=true data.shuffle=false");
        assert_eq!(found("sweep.sampler=t"), "sweep.sampler=tpe");
        assert_eq!(found("model.loss=mse,h"), "model.loss=mse,huber");
        assert_eq!(found("~opt"), "~optimizer ~optimizer.adam ~optimizer.adam.lr");
        assert!(found("matmul").is_empty() && found("extends").is_empty() && found("delete").is_empty());
        assert!(found("data.csv.").contains("data.csv.path="));
    }
}
