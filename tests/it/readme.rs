//! What README.md shows is what the program prints: every `console` block is run, and its output compared.
//!
//! Times, rates and names of run folders are not compared, and losses only to a few per cent, since the processor's
//! instruction set may change the last digits. `README_REFRESH=1 cargo test readme` writes the blocks anew;
//! `README_RUNNER=target/release/runner` beside it takes them from that build.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::process::without_build;

const FENCE: &str = "```";

/// A command and the lines below it.
#[derive(Debug)]
struct Step {
    command: String,
    output: Vec<String>,
}

/// The readme in pieces: text as it stands, and blocks that are run.
enum Piece {
    Text(String),
    Console(Vec<Step>),
}

#[test]
fn what_the_readme_shows_is_what_is_printed() {
    let readme = fs::read_to_string("README.md").unwrap();
    let pieces = pieces(&readme);
    let folder = tempfile::tempdir().unwrap();
    copy(Path::new("experiments"), &folder.path().join("experiments"));
    let mut fresh = String::new();
    let mut wrong = Vec::new();
    for piece in &pieces {
        match piece {
            Piece::Text(text) => fresh.push_str(text),
            Piece::Console(steps) => {
                fresh.push_str(&format!("{FENCE}console\n"));
                for step in steps {
                    let printed = run(&step.command, folder.path());
                    fresh.push_str(&format!("$ {}\n{printed}", step.command));
                    let step = Step { command: step.command.clone(), output: quiet(&step.output) };
                    let printed: Vec<String> = quiet(&printed.lines().map(str::to_owned).collect::<Vec<_>>());
                    let printed: Vec<&str> = printed.iter().map(String::as_str).collect();
                    if let Some(difference) = difference(&step.output, &printed) {
                        wrong.push(format!("$ {}\n{difference}", step.command));
                    }
                }
                fresh.push_str(&format!("{FENCE}\n"));
            }
        }
    }
    if env::var_os("README_REFRESH").is_some() {
        fs::write("README.md", fresh).unwrap();
    } else {
        assert!(
            wrong.is_empty(),
            "README.md shows something else (README_REFRESH=1 renews it):\n{}",
            wrong.join("\n")
        );
    }
}

/// Without remarks on noise, bottlenecks and timing costs, which depend on the machine and its load.
fn quiet(lines: &[String]) -> Vec<String> {
    let depends = |line: &&String| {
        ["noise:", "bound by ", "instrument "].iter().any(|head| line.trim_start().starts_with(head))
    };
    lines.iter().filter(|line| !depends(line)).cloned().collect()
}

fn pieces(readme: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut lines = readme.lines();
    let mut text = String::new();
    while let Some(line) = lines.next() {
        if line != "```console" {
            text.push_str(line);
            text.push('\n');
            continue;
        }
        let mut steps: Vec<Step> = Vec::new();
        for line in lines.by_ref().take_while(|line| *line != FENCE) {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command: command.to_owned(), output: Vec::new() }),
                (None, Some(step)) => step.output.push(line.to_owned()),
                (None, None) => panic!("a console block begins with a command, not with `{line}`"),
            }
        }
        pieces.extend([Piece::Text(std::mem::take(&mut text)), Piece::Console(steps)]);
    }
    pieces.push(Piece::Text(text));
    pieces
}

/// Standard error, then standard output, as a shell in that folder prints them. A failure is shown by its exit code.
fn run(command: &str, folder: &Path) -> String {
    let runner = env::var_os("README_RUNNER")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_runner")), PathBuf::from);
    let runner = fs::canonicalize(runner).unwrap();
    let path = env::join_paths(
        [runner.parent().unwrap().to_owned()]
            .into_iter()
            .chain(env::split_paths(&env::var_os("PATH").unwrap())),
    )
    .unwrap();
    let command = command.replace("cargo run --release --", "runner");
    let output = Command::new("sh")
        .args(["-c", &command])
        .env("PATH", path)
        .env("RUNNER_CACHE_DIR", folder.join("cache"))
        .current_dir(folder)
        .output()
        .unwrap();
    let texts = [&output.stderr, &output.stdout].map(|bytes| without_build(&String::from_utf8_lossy(bytes)));
    texts.concat()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The first line that differs in more than it may.
fn difference(shown: &[String], printed: &[&str]) -> Option<String> {
    let lines = shown.len().max(printed.len());
    let line = |lines: &[String], i: usize| lines.get(i).cloned().unwrap_or_else(|| "(nothing)".to_owned());
    let printed: Vec<String> = printed.iter().map(|&l| l.to_owned()).collect();
    (0..lines)
        .map(|i| (line(shown, i), line(&printed, i)))
        .find(|(shown, printed)| !alike(&words(shown), &words(printed)))
        .map(|(shown, printed)| format!("  shown:   {shown}\n  printed: {printed}"))
}

/// What a line is compared by.
#[derive(Debug, PartialEq)]
enum Word {
    /// As it stands.
    Exact(String),
    /// A loss and the like.
    Near(f64),
    /// A time, a rate, a share, free memory.
    Any,
}

fn alike(a: &[Word], b: &[Word]) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 0.03 * a.abs().max(b.abs());
    a.len() == b.len()
        && a.iter().zip(b).all(|pair| match pair {
            (Word::Near(a), Word::Near(b)) => near(*a, *b),
            (a, b) => a == b,
        })
}

fn words(line: &str) -> Vec<Word> {
    let is_csv = !line.contains(' ') && line.matches(',').count() >= 3;
    if is_csv {
        let cells: Vec<&str> = line.split(',').collect();
        let is_metrics = matches!(cells.get(2), Some(&"train" | &"validation"));
        let last = cells.len() - 1;
        let is_time = |i: usize| is_metrics && i == last;
        return cells
            .iter()
            .enumerate()
            .map(|(i, c)| if is_time(i) { Word::Any } else { number_or_text(c) })
            .collect();
    }
    if line.trim_start().starts_with("engine ") {
        // Why that one depends on the number of cores.
        let engine = line.split(':').next().unwrap_or_default();
        return vec![Word::Exact(engine.trim().to_owned())];
    }
    if let Some((count, _)) = line.split_once(": all-reduce is ") {
        // Which other parts are worth a word depends on the machine.
        return vec![Word::Exact(count.trim().to_owned())];
    }
    if line.ends_with(" the same") {
        // Sums in another order differ in the last digits.
        return vec![Word::Exact(
            line.split("  ").find(|cell| !cell.is_empty()).unwrap_or_default().to_owned(),
        )];
    }
    if has_interval(line) {
        // The row's label; its times and their units depend on the machine.
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        return cells.take(2).map(|cell| Word::Exact(cell.to_owned())).collect();
    }
    if line.trim_start().starts_with("steps/s ") {
        // A row of rates, with units or, on a machine that is busy, without.
        return vec![Word::Exact("steps/s".to_owned())];
    }
    if line.contains(" by the cost model, ") {
        // The model's figures are those of the instruction set.
        return Vec::new();
    }
    let mut found: Vec<Word> = Vec::new();
    for word in line.split_whitespace() {
        let bare = word.trim_end_matches([',', ';', ':']);
        let is_unit = UNITS.contains(&bare);
        match found.last_mut() {
            Some(last @ (Word::Near(_) | Word::Any)) if is_unit => *last = Word::Any,
            _ => found.push(number_or_text(bare)),
        }
    }
    // `2 min 05 s` is one time, as `3 ms` is.
    found.dedup_by(|b, a| *a == Word::Any && *b == Word::Any);
    found
}

const UNITS: [&str; 12] = ["µs", "ms", "s", "min", "h", "k", "M", "G", "steps/s", "rows/s", "%", "GiB"];

/// Whether a line holds something like `1.2 to 1.5 ms`.
fn has_interval(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_number = |word: &str| word.trim_end_matches('x').parse::<f64>().is_ok();
    words.windows(3).any(|w| w[1] == "to" && is_number(w[2]) && (is_number(w[0]) || UNITS.contains(&w[0])))
}

fn number_or_text(word: &str) -> Word {
    let is_rate = word.len() >= 4 && word.bytes().all(|b| b.is_ascii_digit());
    let is_ratio = word.strip_suffix('x').is_some_and(|ratio| ratio.parse::<f64>().is_ok());
    if is_rate || is_ratio {
        return Word::Any;
    }
    match word.parse::<f64>() {
        Ok(number) => Word::Near(number),
        Err(_) => Word::Exact(without_run_name(word)),
    }
}

/// `runs/x/20270115T080000Z-0123abcd/y` without the time and the hash.
fn without_run_name(word: &str) -> String {
    let is_name = |part: &str| part.get(8..9) == Some("T") && part.get(15..16) == Some("Z");
    let parts = word.split('/').map(|part| {
        if !is_name(part) {
            return part.to_owned();
        }
        if part.contains("-sweep-") { "SWEEP".to_owned() } else { "RUN".to_owned() }
    });
    parts.collect::<Vec<_>>().join("/")
}

/// A table whose head is a key, such as `on_missing`, marks the default among the values below.
#[test]
fn the_defaults_of_its_tables_are_those_of_the_schema() {
    let schema = runner::spec::schema();
    let readme = fs::read_to_string("README.md").unwrap();
    let first_cell = |line: &str| line.strip_prefix("| ")?.split(" |").next().map(str::to_owned);
    let mut key = String::new();
    let mut checked = Vec::new();
    for line in readme.lines() {
        let Some(cell) = first_cell(line) else {
            key.clear();
            continue;
        };
        if key.is_empty() {
            key = cell.trim_matches('`').rsplit('.').next().unwrap_or_default().to_owned();
        } else if let Some(value) = cell.strip_suffix(" (default)") {
            let value = value.trim_matches(['`', '"']);
            let defaults = defaults(&schema, &key);
            assert!(defaults.iter().any(|d| d.as_str() == Some(value)), "`{key}`: {defaults:?}, not {value}");
            checked.push(key.clone());
        }
    }
    assert!(checked.contains(&"on_missing".to_owned()), "{checked:?}");
}

/// Every default of a property of that name.
fn defaults(schema: &serde_json::Value, key: &str) -> Vec<serde_json::Value> {
    let inner: Vec<&serde_json::Value> = match schema {
        serde_json::Value::Object(map) => map.values().collect(),
        serde_json::Value::Array(list) => list.iter().collect(),
        _ => Vec::new(),
    };
    let own = schema.get("properties").and_then(|p| p.get(key)?.get("default")).cloned();
    own.into_iter().chain(inner.into_iter().flat_map(|v| defaults(v, key))).collect()
}

#[test]
fn lines_are_compared_by_what_they_say() {
    let same = |a: &str, b: &str| alike(&words(a), &words(b));
    assert!(same("x finished in 2 min 05 s", "x finished in 1.02 ms"));
    assert!(same("speed  461.8 k steps/s, 14.43 M rows/s", "speed  900.0 steps/s, 1 rows/s"));
    assert!(same(" steps/s   102.8 k    43.16 k", " steps/s   1049   366.6"));
    assert!(same("1,1,train,32,34.464943,0.5", "1,1,train,32,34.464942,0.0001"));
    assert!(!same("1,1,train,32,34.464943,0.5", "1,1,train,32,38.4,0.5"));
    assert!(!same("validation loss  0.1", "validation loss  0.2"));
    assert!(same("  64  off  92.4 ms  75.9 to 95.0 ms  10.8 k", "  64  off  1.5 s  626 ms to 4.6 s  665.3"));
    assert!(!same("  64  off  92.4 ms  75.9 to 95.0 ms", "  1  off  92.4 ms  75.9 to 95.0 ms"));
    assert!(same("folder  runs/a/20270115T080000Z-0123abcd", "folder runs/a/20280115T080000Z-ffffffff"));
    assert!(!same("folder  runs/a/20270115T080000Z-0123abcd", "folder runs/b/20270115T080000Z-0123abcd"));
}
