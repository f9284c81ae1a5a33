//! Compares two printed texts, ignoring whatever depends on the machine.
//!
//! Times, rates, free memory and names of run folders are ignored. Losses may differ by 3 %, since the CPU's
//! instruction set changes the last digits.

/// Beginnings of lines whose presence or words depend on the machine.
const DEPENDS: [&str; 7] =
    ["noise:", "bound by ", "instrument ", "a page of ", "no verdict:", "p: sign test", "time       "];

/// The first line that differs too much, or `None`.
pub fn difference(shown: &[String], printed: &[String]) -> Option<String> {
    let depends = |line: &&String| DEPENDS.iter().any(|head| line.trim_start().starts_with(head));
    let [shown, printed] = [shown, printed].map(|lines| {
        let mut lines: Vec<&String> = lines.iter().filter(|line| !depends(line)).collect();
        // An empty line follows such lines.
        lines.dedup_by(|line, above| line.is_empty() && above.is_empty());
        lines
    });
    let line =
        |lines: &[&String], i: usize| lines.get(i).map_or("(nothing)", |line| line.as_str()).to_owned();
    (0..shown.len().max(printed.len()))
        .map(|i| (line(&shown, i), line(&printed, i)))
        .find(|(shown, printed)| !alike(&words(shown), &words(printed)))
        .map(|(shown, printed)| format!("  shown:   {shown}\n  printed: {printed}"))
}

/// A word of a line, as it is compared.
#[derive(Debug, PartialEq)]
enum Word {
    /// Must be the same.
    Exact(String),
    /// A loss and the like: may differ slightly.
    Near(f64),
    /// A time, a rate, a share or free memory: ignored.
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
    if line.contains(['│', '┤']) {
        // A curve: the last digits of a loss may move a dot.
        return Vec::new();
    }
    let is_csv = !line.contains(' ') && line.contains(',');
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
        // Which engine is chosen, and why, depends on the number of cores and their speed.
        let engine = line.split(':').next().unwrap_or_default();
        return vec![Word::Exact(engine.trim().replace("team", "serial"))];
    }
    if let Some((count, _)) = line.split_once(": all-reduce is ") {
        // Which other parts are mentioned depends on the machine.
        return vec![Word::Exact(count.trim().to_owned())];
    }
    if line.ends_with(" the same") {
        // How far sums in another order differ depends on the last digits.
        return vec![Word::Exact(
            line.split("  ").find(|cell| !cell.is_empty()).unwrap_or_default().to_owned(),
        )];
    }
    if has_interval(line) {
        // The row's name is compared; its times and their units depend on the machine.
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        let is_time = |cell: &str| cell.split(' ').nth(1).is_some_and(|unit| UNITS.contains(&unit));
        return cells
            .take_while(|cell| !is_time(cell))
            .take(2)
            .map(|cell| Word::Exact(cell.to_owned()))
            .collect();
    }
    if line.trim_start().starts_with("steps/s ") {
        // Rates have units, but not on a busy machine.
        return vec![Word::Exact("steps/s".to_owned())];
    }
    if let Some((head, _)) = line.split_once(" more per step ") {
        // On a busy machine there are no p and no verdict.
        return words(head);
    }
    if line.contains(" rates, bound by ") {
        // The model's figures depend on the instruction set.
        return Vec::new();
    }
    if let Some((product, figures)) = line.rsplit_once(']')
        && product.contains("] x [")
        && figures.split_whitespace().all(|figure| figure.parse::<f64>().is_ok())
    {
        // Speeds of products, one column per trial.
        return product.split_whitespace().map(|word| Word::Exact(word.to_owned())).collect();
    }
    let mut found: Vec<Word> = Vec::new();
    // In a sparkline, the last digits may change a level.
    let is_curve = |word: &str| word.chars().all(|c| ('\u{2581}'..='\u{2588}').contains(&c));
    for word in without_rate(line).split_whitespace().filter(|word| !is_curve(word)) {
        let bare = word.trim_end_matches([',', ';', ':']);
        // Which of the two engines is faster depends on the machine and its load.
        let bare = if bare == "team" && line.contains(", engine ") { "serial" } else { bare };
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

/// A table's row without the rate after its time, which has no unit on a slow machine.
fn without_rate(line: &str) -> &str {
    let is_number = |cell: &str| cell.trim().parse::<f64>().is_ok();
    let is_time = |cell: &str| {
        cell.trim().split_once(' ').is_some_and(|(n, unit)| is_number(n) && UNITS.contains(&unit))
    };
    match line.trim_end().rsplit_once("  ") {
        Some((row, rate)) if is_number(rate) && row.trim_end().rsplit("  ").next().is_some_and(is_time) => {
            row
        }
        _ => line,
    }
}

const UNITS: [&str; 12] = ["µs", "ms", "s", "min", "h", "k", "M", "G", "steps/s", "rows/s", "%", "GiB"];

/// Whether a line contains an interval such as `1.2 to 1.5 ms`.
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

#[test]
fn lines_are_compared_by_what_they_say() {
    let same = |a: &str, b: &str| alike(&words(a), &words(b));
    assert!(same("x finished in 2 min 05 s", "x finished in 1.02 ms"));
    assert!(same("speed  461.8 k steps/s, 14.43 M rows/s", "speed  900.0 steps/s, 1 rows/s"));
    assert!(same(" steps/s   102.8 k    43.16 k", " steps/s   1049   366.6"));
    assert!(same("1,1,train,32,34.464943,0.5", "1,1,train,32,34.464942,0.0001"));
    assert!(!same("1,1,train,32,34.464943,0.5", "1,1,train,32,38.4,0.5"));
    assert!(same("1,77.00797210232943,75.0", "1,77.00799479294521,75.0"));
    assert!(!same("1,77.00797210232943,75.0", "1,97.0,75.0"));
    assert!(!same("validation loss  0.1", "validation loss  0.2"));
    assert!(same("  64  off  92.4 ms  75.9 to 95.0 ms  10.8 k", "  64  off  1.5 s  626 ms to 4.6 s  665.3"));
    assert!(!same("  64  off  92.4 ms  75.9 to 95.0 ms", "  1  off  92.4 ms  75.9 to 95.0 ms"));
    assert!(same("  cpu  [2, 2] x [2, 2]  52.77", "  cpu  [2, 2] x [2, 2]  4.562"));
    assert!(same("  0  buffered  1,000  29.4 ms  34.01 k", "  0  buffered  1,000  1.82 s      548"));
    assert!(!same("  cpu  [2, 2] x [2, 2]  52.77", "  cpu  [2, 3] x [3, 2]  52.77"));
    assert!(same("folder  runs/a/20270115T080000Z-0123abcd", "folder runs/a/20280115T080000Z-ffffffff"));
    assert!(!same("folder  runs/a/20270115T080000Z-0123abcd", "folder runs/b/20270115T080000Z-0123abcd"));
}
