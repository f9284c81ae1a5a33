//! TOML files as dotted keys with values, and rows of CSV files as columns with cells. Runs of a sweep differ in only a few
//! values, so the common part is parsed and stored once.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{Hash, Hasher},
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use crate::{
    FileError,
    host::{self, lock},
    spec::add_leaves,
    texts::Texts,
};

/// The key of all layers.
pub const LAYERS: &str = "model.layers";

/// Whether a key is that of all layers, or within a layer.
pub fn is_of_layers(key: &str) -> bool {
    key.strip_prefix(LAYERS).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A table's leaves by dotted key, sorted. In arrays of tables, indices are part of the key.
#[derive(Clone, Debug, Default)]
pub struct Leaves {
    shared: Shared,
    own: Own,
}

/// Values that replace shared ones.
#[derive(Clone, Debug, Default)]
struct Own {
    /// The index of each among the shared ones, ascending.
    places: Box<[u32]>,
    values: Texts,
}

impl Own {
    fn get(&self, place: usize) -> Option<&str> {
        self.values.get(self.places.binary_search(&(place as u32)).ok()?)
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &str)> {
        self.places().zip(self.values.iter())
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        self.places.iter().map(|place| *place as usize)
    }
}

impl<T: AsRef<str>> FromIterator<(usize, T)> for Own {
    /// In ascending order.
    fn from_iter<I: IntoIterator<Item = (usize, T)>>(own: I) -> Self {
        let (places, values): (Vec<u32>, Vec<T>) =
            own.into_iter().map(|(place, value)| (place as u32, value)).unzip();
        Self { places: places.into(), values: values.into_iter().collect() }
    }
}

impl Leaves {
    /// Reads a TOML file; `None` if there is no such file.
    pub fn read(path: &Path) -> Result<Option<Self>, FileError> {
        let text = match host::read_text(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(FileError::read(path, e)),
        };
        if text.is_empty() {
            return Err(FileError::Empty(path.to_owned()));
        }
        // Cloned, so that threads do not wait for each other.
        let known = lock(&TEMPLATES).clone();
        if let Some(leaves) = known.iter().find_map(|template| template.fit(&text)) {
            return Ok(Some(leaves));
        }
        let table: toml::Table = toml::from_str(&text).map_err(|e| {
            let before = e.span().map_or("", |span| text.get(..span.start).unwrap_or_default());
            let line = before.bytes().filter(|&byte| byte == b'\n').count() as u64 + 1;
            FileError::malformed(path, line, e.message().to_owned())
        })?;
        let mut leaves = BTreeMap::new();
        for (key, value) in &table {
            add_leaves(key.clone(), value, &mut leaves);
        }
        with_plain_split(&mut leaves);
        let leaves: Self = leaves.into_iter().collect();
        // In a multi-line string, a line may look like a key.
        if !text.contains("\"\"\"") && !text.contains("'''") {
            let mut templates = lock(&TEMPLATES);
            templates.truncate(MOST_TEMPLATES - 1);
            templates.push_front(Arc::new(Template::new(&text, leaves.shared.clone())));
        }
        Ok(Some(leaves))
    }

    /// The cells of a row that are not empty, by their columns; of equal columns the last counts.
    pub fn from_cells<'a>(cells: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut known: Vec<(&str, &str)> = cells.filter(|(_, cell)| !cell.is_empty()).collect();
        known.reverse();
        known.sort_by_key(|(column, _)| *column);
        known.dedup_by_key(|(column, _)| *column);
        let is_alike = |row: &Shared| {
            row.len() == known.len() && row.iter().zip(&known).all(|((column, _), (own, _))| column == own)
        };
        let rows = lock(&ROWS).clone();
        if let Some(shared) = rows.into_iter().find(is_alike) {
            let own = known.iter().enumerate().filter(|(place, (_, cell))| shared[*place].1 != *cell);
            let own = own.map(|(place, (_, cell))| (place, *cell)).collect();
            return Self { shared, own };
        }
        let row: Self =
            known.iter().map(|(column, cell)| ((*column).to_owned(), (*cell).to_owned())).collect();
        let mut rows = lock(&ROWS);
        rows.truncate(MOST_TEMPLATES - 1);
        rows.push_front(row.shared.clone());
        row
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        let place = self.shared.binary_search_by(|(known, _)| known.as_str().cmp(key)).ok()?;
        Some(self.value(place))
    }

    fn value(&self, place: usize) -> &str {
        self.own.get(place).unwrap_or(&self.shared[place].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut own = self.own.iter().peekable();
        self.shared.iter().enumerate().map(move |(place, (key, value))| {
            let own = own.next_if(|(own, _)| *own == place);
            (key.as_str(), own.map_or(value.as_str(), |(_, value)| value))
        })
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.shared.iter().map(|(key, _)| key.as_str())
    }

    /// The keys whose values differ, or that only one of the two has.
    pub fn differing<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        if Arc::ptr_eq(&self.shared, &other.shared) {
            let places = self.own.places().chain(other.own.places());
            let differing = places.filter(|&place| self.value(place) != other.value(place));
            return differing.map(|place| self.shared[place].0.as_str()).collect();
        }
        let (mut others, mut differing) = (other.iter().peekable(), Vec::new());
        for (key, value) in self.iter() {
            while let Some((added, _)) = others.next_if(|(other, _)| *other < key) {
                differing.push(added);
            }
            if others.next_if(|(other, _)| *other == key).is_none_or(|(_, other)| other != value) {
                differing.push(key);
            }
        }
        differing.extend(others.map(|(key, _)| key));
        differing
    }
}

impl FromIterator<(String, String)> for Leaves {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(leaves: I) -> Self {
        let sorted: BTreeMap<_, _> = leaves.into_iter().collect();
        Self { shared: Arc::new(sorted.into_iter().collect()), own: Own::default() }
    }
}

impl PartialEq for Leaves {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Leaves {}

impl Hash for Leaves {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.iter().for_each(|leaf| leaf.hash(state));
    }
}

/// Leaves that several tables share.
type Shared = Arc<Vec<(String, String)>>;

/// Rows read recently, newest first.
static ROWS: Mutex<VecDeque<Shared>> = Mutex::new(VecDeque::new());

/// Files parsed recently, newest first.
static TEMPLATES: Mutex<VecDeque<Arc<Template>>> = Mutex::new(VecDeque::new());

/// Enough for a spec and an environment for each of several sweeps read in turns.
const MOST_TEMPLATES: usize = 8;

/// A parsed file against which others are compared line by line.
struct Template {
    lines: Vec<Line>,
    leaves: Shared,
}

struct Line {
    text: String,
    /// The header of its table (for a header line, its own), without brackets. `None` if the header is not in
    /// simple form.
    table: Option<Arc<str>>,
    is_comment: bool,
}

impl Template {
    fn new(text: &str, leaves: Shared) -> Self {
        let mut table: Option<Arc<str>> = Some(Arc::from(""));
        let line = |text: &str| {
            if let Some(header) = text.trim_start().strip_prefix('[') {
                table = table.as_ref().and_then(|_| header.strip_suffix(']')).map(Arc::from);
            }
            Line { text: text.to_owned(), table: table.clone(), is_comment: text.starts_with('#') }
        };
        Self { lines: text.lines().map(line).collect(), leaves }
    }

    /// The leaves of a text with the same keys on the same lines; `None` if they cannot be determined this
    /// simply.
    fn fit(&self, text: &str) -> Option<Leaves> {
        let mut own = Vec::new();
        let mut lines = text.lines();
        for known in &self.lines {
            let line = lines.next()?;
            let table = known.table.as_ref()?;
            if known.text != line && !(known.is_comment && line.starts_with('#')) {
                own.push(self.leaf(table, &known.text, line)?);
            }
        }
        own.sort_unstable_by_key(|(place, _)| *place);
        lines.next().is_none().then(|| Leaves { shared: self.leaves.clone(), own: own.into_iter().collect() })
    }

    /// Parses a line that gives a known key a different value.
    fn leaf(&self, table: &str, known: &str, line: &str) -> Option<(usize, String)> {
        let (key, _) = line.split_once(" = ")?;
        let is_bare = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_bare || !known.strip_prefix(key)?.starts_with(" = ") {
            return None;
        }
        let full = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
        if let Some(value) = plain_value(&line[key.len() + 3..])
            && plain_value(&known[key.len() + 3..]).is_some()
        {
            let split = full.starts_with("data.split");
            let place = self.leaves.binary_search_by(|(known, _)| known.cmp(&full)).ok();
            return Some((place.filter(|_| !split)?, value));
        }
        // A line may hold an inline table; accept it only with exactly one leaf.
        let only_leaf = |line: &str| {
            let parsed: toml::Table = toml::from_str(line).ok()?;
            let mut leaves = BTreeMap::new();
            add_leaves(full.clone(), parsed.get(key)?, &mut leaves);
            leaves.pop_first().filter(|_| leaves.is_empty())
        };
        let (full, value) = only_leaf(line)?;
        // The keys of a split must be seen together, because `with_plain_split` may rewrite them.
        if only_leaf(known)?.0 != full || full.starts_with("data.split") {
            return None;
        }
        Some((self.leaves.binary_search_by(|(known, _)| known.cmp(&full)).ok()?, value))
    }
}

/// A number or string in the form that [`add_leaves`] produces; `None` if it is not in simple form.
fn plain_value(text: &str) -> Option<String> {
    if let Some(inner) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        return (!inner.contains(['"', '\\'])).then(|| inner.to_owned());
    }
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let is_plain = digits.len() < 18 && digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let [first, .., last] = digits else { return digits.first()?.is_ascii_digit().then(|| text.to_owned()) };
    if !is_plain || !first.is_ascii_digit() || !last.is_ascii_digit() {
        return None;
    }
    let is_float = digits.contains(&b'.');
    // TOML has no numbers with leading zeros, such as 01.
    let is_number = *first != b'0' || digits[1] == b'.';
    if is_float {
        text.parse::<f64>().ok().filter(|_| is_number).map(|x| format!("{x:?}"))
    } else {
        is_number.then(|| text.to_owned())
    }
}

/// Removes what a `data.split` has if nobody wrote it, since a spec without that table lacks it, and rewrites one that is equivalent
/// to a source's `validation_fraction` as that key, so that both count as the same task.
fn with_plain_split(spec: &mut BTreeMap<String, String>) {
    const DEFAULTS: [(&str, &str); 3] =
        [("data.split.shuffle", "true"), ("data.split.stratify", "false"), ("data.split.test", "0.0")];
    for (key, default) in DEFAULTS {
        if spec.get(key).is_some_and(|own| own == default) {
            spec.remove(key);
        }
    }
    if !DEFAULTS.iter().any(|(key, _)| spec.contains_key(*key)) {
        let validation = spec.remove("data.split.validation");
        let source = ["csv", "idx", "npy", "parquet"].into_iter().find(|source| {
            let prefix = format!("data.{source}.");
            spec.range(prefix.clone()..).next().is_some_and(|(key, _)| key.starts_with(&prefix))
        });
        if let (Some(validation), Some(source)) = (validation, source) {
            spec.insert(format!("data.{source}.validation_fraction"), validation);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn leaves(text: &str) -> Leaves {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        fs::write(&path, text).unwrap();
        Leaves::read(&path).unwrap().unwrap()
    }

    #[test]
    fn keys_are_dotted_down_to_the_layers() {
        let found = leaves(
            "a = 'x'\nb = [1, 2]\ne = 0.00000001\nf = 3.0\nlayers = ['relu', { linear = { out_features = 3 } }]\n[c]\nd = 0.5\n",
        );
        let expected = [
            ("a", "x"),
            ("b", "[1, 2]"),
            ("c.d", "0.5"),
            ("e", "1e-8"),
            ("f", "3.0"),
            ("layers.0", "relu"),
            ("layers.1.linear.out_features", "3"),
        ];
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn rows_share_what_is_equal() {
        let row = |cells: &[(&'static str, &'static str)]| Leaves::from_cells(cells.iter().copied());
        let first = row(&[("b", "1"), ("a", "x"), ("c", ""), ("d", "0.5")]);
        let second = row(&[("b", "2"), ("a", "x"), ("d", "0.25")]);
        assert_eq!(second.iter().collect::<Vec<_>>(), [("a", "x"), ("b", "2"), ("d", "0.25")]);
        assert!(Arc::ptr_eq(&first.shared, &second.shared) && first != second);
        assert_eq!(first.differing(&second), ["b", "d"]);
        // Of equal columns the last counts, and what is added comes last.
        let third = Leaves::from_cells(first.iter().chain([("b", "3"), ("e", "y")]));
        assert_eq!(third.iter().collect::<Vec<_>>(), [("a", "x"), ("b", "3"), ("d", "0.5"), ("e", "y")]);
        assert_eq!([third.get("b"), third.get("c")], [Some("3"), None]);
    }

    /// A text has the same leaves whether it is parsed by itself or against another file.
    #[test]
    fn what_is_shared_is_what_is_written() {
        let base = "# one\na = 1\nlist = [\n    2,\n]\n[b.c]\nx = 'y' # z\ns = { t = 1 }\n";
        let template = Template::new(base, leaves(base).shared);
        let fits = |text: &str| {
            template
                .fit(text)
                .map(|leaves| leaves.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>())
        };
        let expected = ["a=2", "b.c.s.t=1", "b.c.x=n", "list=[2]"].map(str::to_owned).to_vec();
        assert_eq!(fits(&base.replace("# one\na = 1", "# two\na = 2").replace("'y'", "'n'")), Some(expected));
        for (old, new) in
            [("a = 1", "d = 1"), ("    2", "    3"), ("= 1 }", "= 2 }"), ("a = 1\n", ""), ("[b.c]", "[b.d]")]
        {
            assert_eq!(fits(&base.replace(old, new)).is_some(), old == "= 1 }", "{old}");
        }
        assert_eq!(fits(&format!("{base}u = 1\n")), None);
    }

    #[test]
    fn a_file_has_no_leaf_of_another() {
        let fits = |base: &str, text: &str| Template::new(base, leaves(base).shared).fit(text).is_some();
        assert!(!fits("z = { p = 1, q = 2 }\n", "z = { p = 1 }\n"));
        assert!(!fits("z = { p = 1 }\n", "z = { p = 1, q = 2 }\n"));
        let split = |test| format!("[data.csv]\nx = 1\n[data.split]\ntest = {test}\nvalidation = 0.3\n");
        assert!(!fits(&split("0.2"), &split("0.0")) && !fits(&split("0.0"), &split("0.2")));
        assert!(!fits("[a]\nx = 1\ny = 1\n  [b]\nx = 1\n", "[a]\nx = 1\ny = 1\n  [b]\ny = 1\n"));
        let places = [" 1", " 2"].map(|value| format!("[a]\nx = 1\n  [b]\nx ={value}\n"));
        let template = Template::new(&places[0], leaves(&places[0]).shared);
        let fitted = template.fit(&places[1]).unwrap();
        assert_eq!(fitted.iter().collect::<Vec<_>>(), [("a.x", "1"), ("b.x", "2")]);
    }
}
