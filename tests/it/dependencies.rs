//! Every dependency's licence is in the list of `deny.toml`, and no banned crate is used. `cargo deny check`
//! reads the same file and checks more; this test needs no extra tool.

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::Value;

struct Package {
    name: String,
    version: String,
    licence: String,
    rust: Option<String>,
    source: Option<String>,
}

fn packages() -> Vec<Package> {
    let version = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let arguments = ["metadata", "--format-version=1", "--locked", "--offline", "--filter-platform", host];
    let output = Command::new(env!("CARGO")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    // `packages` lists more than is built; the graph of nodes has what is built.
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let built: BTreeSet<&str> = nodes.iter().map(|node| node["id"].as_str().unwrap()).collect();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .filter(|package| built.contains(package["id"].as_str().unwrap()))
        .map(|package| Package {
            name: text(&package["name"]).unwrap(),
            version: text(&package["version"]).unwrap(),
            licence: text(&package["license"]).unwrap_or_default(),
            rust: text(&package["rust_version"]),
            source: text(&package["source"]),
        })
        .collect()
}

/// Whether the allowed licences satisfy an SPDX expression. `A/B` is the old notation for `A OR B`.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let met = any(&mut rest, allowed);
    met && rest.is_empty()
}

fn any(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = all(rest, allowed);
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        met |= all(rest, allowed);
    }
    met
}

fn all(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = one(rest, allowed);
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        met &= one(rest, allowed);
    }
    met
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    match **rest {
        ["(", ..] => {
            *rest = &rest[1..];
            let met = any(rest, allowed);
            let closed = rest.first() == Some(&")");
            *rest = rest.get(1..).unwrap_or_default();
            met && closed
        }
        [licence, "WITH", exception, ..] => {
            *rest = &rest[3..];
            allowed.contains(&format!("{licence} WITH {exception}"))
        }
        [licence, ..] => {
            *rest = &rest[1..];
            allowed.contains(licence)
        }
        [] => false,
    }
}

#[test]
fn licences_and_sources_are_on_the_lists() {
    let rules: toml::Table = toml::from_str(&fs::read_to_string("deny.toml").unwrap()).unwrap();
    let allowed = rules["licenses"]["allow"].as_array().unwrap().iter();
    let allowed: BTreeSet<String> = allowed.map(|name| name.as_str().unwrap().to_owned()).collect();
    let banned = rules["bans"]["deny"].as_array().unwrap().iter();
    let banned: BTreeSet<&str> = banned.map(|entry| entry["crate"].as_str().unwrap()).collect();
    let packages = packages();
    assert!(packages.len() > 20, "the graph was read: {}", packages.len());
    let mut wrong = Vec::new();
    for Package { name, version, licence, source, .. } in &packages {
        if !is_met(licence, &allowed) {
            wrong.push(format!("{name} {version}: licence `{licence}`"));
        }
        if banned.contains(name.as_str()) {
            wrong.push(format!("{name} {version}: banned"));
        }
        // The package itself has no source.
        if source.as_ref().is_some_and(|s| !s.contains("github.com/rust-lang/crates.io-index")) {
            wrong.push(format!("{name} {version}: from {source:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn expressions_are_read_as_spdx_reads_them() {
    let allowed: BTreeSet<String> = ["MIT", "Zlib", "X WITH y"].map(str::to_owned).into();
    for expression in [
        "MIT",
        "MIT OR GPL",
        "GPL/MIT",
        "MIT AND Zlib",
        "(GPL OR MIT) AND Zlib",
        "X WITH y",
        "GPL AND A OR MIT",
    ] {
        assert!(is_met(expression, &allowed), "{expression}");
    }
    for expression in ["", "GPL", "MIT AND GPL", "X", "X WITH z", "(MIT", "GPL AND (MIT OR Zlib)"] {
        assert!(!is_met(expression, &allowed), "{expression}");
    }
}

/// Every dependency accepts the `rust-version` that Cargo.toml declares.
#[test]
fn no_dependency_needs_a_newer_rust() {
    let number =
        |version: &str| version.split('.').take(2).map(|part| part.parse().unwrap()).collect::<Vec<u32>>();
    let ours = number(env!("CARGO_PKG_RUST_VERSION"));
    let newer: Vec<String> = packages()
        .iter()
        .filter_map(|p| Some((p, p.rust.as_deref()?)))
        .filter(|(_, rust)| number(rust) > ours)
        .map(|(p, rust)| format!("{} {} needs Rust {rust}", p.name, p.version))
        .collect();
    assert!(newer.is_empty(), "{newer:?}");
}
