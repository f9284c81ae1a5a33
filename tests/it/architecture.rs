//! The project's structural rules, checked by reading the sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// A layer may use only itself and the layers before it in this list, which is the one in `src/lib.rs`.
const LAYERS: [&str; 21] = [
    "units",
    "host",
    "random",
    "spec",
    "collective",
    "op",
    "program",
    "plan",
    "device",
    "data",
    "event",
    "train",
    "cuda",
    "lab",
    "record",
    "run",
    "files",
    "report",
    "predict",
    "slurm",
    "cli",
];

/// Crates that are a layer each.
const ONE_LAYER: [&str; 4] = ["cuda", "files", "predict", "spec"];

/// The files that may hold `unsafe`.
const UNSAFE: [&str; 17] = [
    "crates/base/src/host/byte_locks.rs",
    "crates/base/src/host/huge_pages.rs",
    "crates/base/src/host/macos.rs",
    "crates/base/src/host/nvml/device.rs",
    "crates/base/src/host/page_faults.rs",
    "crates/base/src/host/signals.rs",
    "crates/base/src/host/stream.rs",
    "crates/base/src/host/write_out.rs",
    "crates/cuda/src/",
    "crates/engine/src/collective/processes/mpi.rs",
    "crates/engine/src/device/cpu/arena.rs",
    "crates/engine/src/device/cpu/pool.rs",
    "crates/engine/src/device/cpu/pool_tests.rs",
    "crates/engine/src/device/cpu/state.rs",
    "crates/engine/src/op/bytes.rs",
    "crates/engine/src/train/helpers.rs",
    "crates/vector/src/simd/",
];

#[test]
fn a_layer_uses_only_those_above_it() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let Some(layer) = layer_of(&path) else { continue };
        let rank = LAYERS.iter().position(|l| *l == layer);
        let rank = rank.unwrap_or_else(|| panic!("{}: `{layer}` is no layer of src/lib.rs", path.display()));
        for used in used_modules(&code(&text)) {
            let allowed = LAYERS.iter().position(|l| *l == used).is_none_or(|r| r <= rank);
            if !allowed {
                wrong.push(format!("{} uses crate::{used}, which stands below {layer}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_layers_are_those_of_the_crate_docs() {
    let text = fs::read_to_string("src/lib.rs").unwrap();
    let listed: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("//! | "))
        .filter_map(|row| row.trim_start_matches('[').strip_prefix('`'))
        .filter_map(|rest| rest.split_once('`').map(|(name, _)| name))
        .collect();
    assert_eq!(listed, LAYERS);
}

#[test]
fn unsafe_stands_only_where_it_is_allowed() {
    let found: Vec<String> = sources()
        .into_iter()
        .filter(|(_, text)| words(&code(text)).any(|w| w == "unsafe"))
        .map(|(path, _)| path.display().to_string())
        .filter(|path| !UNSAFE.iter().any(|allowed| path.starts_with(allowed)))
        .collect();
    assert!(found.is_empty(), "unsafe outside the list: {found:?}");
}

/// A thread that waits and yields gives its core to any process that computes, for milliseconds each time.
#[test]
fn threads_that_wait_give_way() {
    let yields = |(_, text): &(PathBuf, String)| {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        words(code).any(|word| word == "yield_now")
    };
    let is_free = |path: &Path| {
        path.ends_with("collective/give_way.rs") || path.to_string_lossy().ends_with("_tests.rs")
    };
    let found = sources().into_iter().filter(yields).map(|(path, _)| path);
    let found: Vec<PathBuf> = found.filter(|path| !is_free(path)).collect();
    assert!(found.is_empty(), "`give_way` in place of `yield_now`: {found:?}");
}

/// Files of a run are opened as regular files (`host::open_regular` and its kin): a pipe in the place of one would be waited for
/// without end.
#[test]
fn files_of_a_run_are_opened_as_regular_files() {
    const READERS: [&str; 6] = [
        "crates/files/src/",
        "crates/predict/src/",
        "crates/results/src/",
        "crates/session/src/record/",
        "crates/session/src/run/",
        "src/slurm/",
    ];
    // They open folders, or files that they have found to be regular.
    const OTHERS: [&str; 4] = [
        "crates/session/src/record/durable.rs",
        "crates/session/src/record/row_file.rs",
        "crates/session/src/record/run_dir.rs",
        "src/slurm/submissions.rs",
    ];
    const OPENS: [&str; 4] = ["File::open(", "fs::read(", "fs::read_to_string(", "Reader::from_path("];
    let mut found = Vec::new();
    for (path, text) in sources() {
        let path = path.display().to_string();
        let is_reader = READERS.iter().any(|folder| path.starts_with(folder)) && !path.contains("_tests");
        if is_reader && !OTHERS.contains(&&*path) {
            let text = code(text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default());
            let opens = |open: &&&str| {
                let mut places = text.match_indices(**open);
                places.any(|(at, _)| !text[..at].ends_with(char::is_alphanumeric))
            };
            found.extend(OPENS.iter().filter(opens).map(|open| format!("{path}: {open}")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let is_there = |folder: &&str| sources().iter().any(|(path, _)| path.starts_with(folder));
    assert!(READERS.iter().all(is_there), "a folder has moved");
}

/// What adding an optimizer or a layer costs: lists the files (except tests) that mention the one that was
/// added last.
#[test]
fn an_op_is_one_file_and_few_others_name_it() {
    for (name, most) in [("Rmsprop", 4), ("LayerNorm", 6)] {
        let names = |text: &str| words(&code(text)).any(|word| word.starts_with(name));
        let files: Vec<String> = sources()
            .into_iter()
            .filter(|(path, text)| names(text) && !path.ends_with("properties.rs"))
            .map(|(path, _)| path.display().to_string())
            .collect();
        assert!(files.len() <= most, "{name} is named in {files:?}");
    }
    // An op's kernel is in `kernels/`, in a file named like the op's.
    for entry in fs::read_dir("kernels").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "cu")
            && fs::read_to_string(&path).unwrap().contains("void op_")
        {
            let op = Path::new("crates/engine/src/op").join(path.with_extension("rs").file_name().unwrap());
            assert!(op.exists(), "{} has no {}", path.display(), op.display());
        }
    }
}

#[test]
fn every_file_says_what_it_owns() {
    let silent: Vec<PathBuf> =
        sources().into_iter().filter(|(_, text)| !text.starts_with("//!")).map(|(path, _)| path).collect();
    assert!(silent.is_empty(), "files without a first `//!` line: {silent:?}");
}

#[test]
fn no_file_is_long() {
    let long: Vec<String> = sources()
        .into_iter()
        .chain(rust_files(vec!["tests".into()]))
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > 400)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect();
    assert!(long.is_empty(), "split these files by idea: {}", long.join("; "));
}

#[test]
fn few_functions_are_long() {
    let exceptions = |text: &str| text.matches("clippy::too_many_lines").count();
    let count: usize = sources().iter().map(|(_, text)| exceptions(text)).sum();
    assert!(count < 10, "{count} functions may be longer than clippy.toml allows");
}

#[test]
fn files_side_by_side_do_not_use_each_other_in_a_circle() {
    let files: Vec<_> = sources()
        .into_iter()
        .map(|(path, text)| (path, code(text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default())))
        .collect();
    let folders: BTreeSet<_> = files.iter().filter_map(|(path, _)| path.parent()).collect();
    for inside in folders {
        let Some((root, name)) = crate_of(inside) else { continue };
        // Files within these layers have an order of their own: the ops' records name the ops' constants, and
        // the list of optimizers names each of them.
        if (inside == root && !ONE_LAYER.contains(&&*name)) || inside.ends_with("op") {
            continue;
        }
        let folder = inside.strip_prefix(&root).unwrap().to_str().unwrap().replace('/', "::");
        let prefix = if folder.is_empty() { "crate::".to_owned() } else { format!("crate::{folder}::") };
        // The folders of `cuda` use each other; its files do not.
        let only_files = inside == root && name == "cuda";
        let child = |path: &Path| {
            let first = path.strip_prefix(inside).ok()?.iter().next()?.to_str()?;
            (!only_files || first.ends_with(".rs"))
                .then(|| first.trim_end_matches(".rs").to_owned())
                .filter(|name| !["mod", "lib"].contains(&name.as_str()))
        };
        let children: BTreeSet<_> = files.iter().filter_map(|(path, _)| child(path)).collect();
        // Maps each item that the folder's module re-exports to its file.
        let mut owners = BTreeMap::new();
        let is_parent = |path: &Path| {
            [inside.join("mod.rs"), inside.join("lib.rs"), inside.with_extension("rs")]
                .iter()
                .any(|p| p == path)
        };
        let parent = files.iter().find(|(path, _)| is_parent(path)).unwrap();
        for (_, reexport) in parent.1.split(';').filter_map(|statement| statement.split_once("use ")) {
            let mut path = words(reexport);
            let owner = path.next().filter(|owner| children.contains(*owner)).unwrap_or_default();
            owners.extend(path.filter(|_| !owner.is_empty()).map(|item| (item, owner)));
        }
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (path, text) in &files {
            let Some(name) = child(path) else { continue };
            let mut used = names_after(&prefix, text);
            let is_beside = |folder: &Path| folder.parent() == Some(inside) && path.ends_with("mod.rs");
            if path.parent().is_some_and(|folder| folder == inside || is_beside(folder)) {
                used.extend(names_after("super::", text));
            }
            let files = used.iter().map(|used| owners.get(used.as_str()).copied().unwrap_or(used));
            let others = files.filter(|used| children.contains(*used) && **used != name).map(str::to_owned);
            uses.entry(name.clone()).or_default().extend(others);
        }
        // A file that uses none of the remaining ones is not part of a cycle.
        while let Some(leaf) = uses.iter().find(|(_, used)| used.is_empty()).map(|(name, _)| name.clone()) {
            uses.remove(&leaf);
            uses.values_mut().for_each(|used| used.retain(|name| *name != leaf));
        }
        assert!(uses.is_empty(), "a circle in {}, or behind one: {uses:?}", inside.display());
    }
}

/// The layer of a file; `None` for `lib.rs` and `main.rs`, which may use everything, and for `crates/vector`.
fn layer_of(path: &Path) -> Option<String> {
    let (root, name) = crate_of(path)?;
    if ONE_LAYER.contains(&&*name) {
        return Some(name);
    }
    let first = path.strip_prefix(&root).ok()?.components().next()?.as_os_str().to_str()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!matches!(name, "lib" | "main")).then(|| name.to_owned())
}

/// The source folder and the name of a file's crate; `None` in `crates/vector`, which has no layers.
fn crate_of(path: &Path) -> Option<(PathBuf, String)> {
    let mut parts = path.iter().map(|part| part.to_str().unwrap_or_default());
    match [parts.next()?, parts.next().unwrap_or_default()] {
        ["crates", "vector"] => None,
        ["crates", name] => Some((Path::new("crates").join(name).join("src"), name.to_owned())),
        _ => Some(("src".into(), "runner".to_owned())),
    }
}

/// The first path segments after `crate::`, including those in braces, as in `use crate::{spec, data::Task}`.
fn used_modules(code: &str) -> BTreeSet<String> {
    names_after("crate::", code)
}

fn names_after(prefix: &str, code: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        // `$crate::` and `other_crate::` are different paths.
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        match rest.strip_prefix('{') {
            None => used.extend(words(rest).next().map(str::to_owned)),
            Some(inner) => {
                let (mut depth, mut fresh) = (0, true);
                for (i, c) in inner.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => fresh = true,
                        c if fresh && depth == 0 && c.is_alphabetic() => {
                            used.extend(words(&inner[i..]).next().map(str::to_owned));
                            fresh = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    used
}

pub(super) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty())
}

/// The text without line comments, because docs may name any layer.
fn code(text: &str) -> String {
    text.lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect::<Vec<_>>()
        .join("\n")
}

pub(super) fn sources() -> Vec<(PathBuf, String)> {
    let crates = fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path().join("src"));
    rust_files(crates.chain(["src".into()]).collect())
}

/// The Rust files in these folders, with their text.
fn rust_files(mut folders: Vec<PathBuf>) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path, text));
            }
        }
    }
    files.sort();
    files
}

#[test]
fn paths_are_found_in_all_their_forms() {
    let code = "use crate::spec::{self, Problem};\nuse crate::{data::Task, event::{Event, Level}, plan};\nlet x = crate::train::run(); $crate::y; my_crate::z;";
    let used: Vec<String> = used_modules(code).into_iter().collect();
    assert_eq!(used, ["data", "event", "plan", "spec", "train", "y"]);
}
