//! `runner new csv --from DATA`: drafts a spec for a CSV or Parquet file from what its columns hold.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{
    column_use::{
        MOST_CLASSES, ROWS_EACH, Use, doubt, has_marks, has_units, is_class, marks as mark_words, no_numbers,
        oddities, oddities_of_target, reason, units_of_numbers, use_of, way_with_marks,
    },
    draft_targets::{OTHER, of_one_column, refusal, targets_of},
    missing_cells::{MissingCells, take_markers_for_missing},
    telling::telling,
};
use crate::{
    data::{ColumnProfile, CsvProfile, Marks},
    host::escape_line,
    spec::{MISSING_VALUES, Problem, default_name},
    units,
};

/// Of fewer rows none are held out: one or two would not tell whether the model is better.
pub(super) const ROWS_TO_VALIDATE: usize = 10;

/// Fewer rows are worth cross-validation.
pub(super) const ROWS_TO_FOLD: usize = 50;

/// Columns that are left out are named up to this number; the draft has them all.
const MOST_NOTES: usize = 10;

/// The text of a spec for the table at `data`, to be written to `file`; and sentences on the target, if none was named, on
/// texts taken for missing values, on columns that are left out or may identify rows or groups, and on repeated rows.
///
/// # Errors
/// The table cannot be read, has no such target, or has no column that a model could learn from.
pub fn draft(
    (data, marks): (&Path, Marks),
    named: &[String],
    file: Option<&Path>,
) -> Result<(String, Vec<String>), Box<Problem>> {
    let mut profile = CsvProfile::read(data, marks)?;
    if let [only] = &profile.columns[..] {
        return Err(of_one_column(data, only, profile.is_parquet).into());
    }
    let targets = targets_of(data, &profile.columns, named)?;
    take_markers_for_missing(&mut profile, &targets);
    let CsvProfile { columns, rows, .. } = &profile;
    let targets: Vec<&ColumnProfile> = targets.into_iter().map(|place| &columns[place]).collect();
    let is_class = targets.len() == 1 && is_class(targets[0], *rows);
    for target in &targets {
        let why = match target.distinct() {
            _ if has_marks(target) => (mark_words(target), way_with_marks(target, profile.is_parquet)),
            _ if has_units(target) => (units_of_numbers(target), "write numbers alone"),
            0 => ("it has no value".to_owned(), OTHER),
            1 => ("all its values are equal".to_owned(), OTHER),
            distinct
                if !target.is_numeric()
                    && target.numbers > rows / 2
                    && (distinct > MOST_CLASSES || distinct * ROWS_EACH > *rows) =>
            {
                (no_numbers(target, *rows), "leave cells empty that stand for missing values")
            }
            distinct if is_class && (distinct > rows / 2 || target.has_many()) => {
                ("nearly every row has another text".to_owned(), OTHER)
            }
            _ if !is_class && !target.is_numeric() => {
                ("it holds text, and several targets are numbers".to_owned(), OTHER)
            }
            _ => continue,
        };
        return Err(refusal(format!("`{}` cannot be predicted: {}", target.name, why.0)).hint(why.1).into());
    }
    let is_target = |column: &&ColumnProfile| targets.iter().any(|target| std::ptr::eq(*target, *column));
    let others = columns.iter().filter(|column| !is_target(column));
    let mut uses: Vec<(&ColumnProfile, Use)> =
        others.map(|column| (column, use_of(column, *rows, profile.is_parquet))).collect();
    let has_feature = uses.iter().any(|(_, purpose)| !matches!(purpose, Use::Ignored(_)));
    // If there is no other feature, use columns that were taken for row numbers: they may be times.
    if let Some((_, purpose)) =
        uses.iter_mut().find(|(column, _)| !has_feature && column.counts_rows && column.numbers > 0)
    {
        *purpose = Use::Number;
    } else if !has_feature {
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        let message = format!("`{}` has no column to predict `{}` from", data.display(), names.join("`, `"));
        let reasons = uses.iter().filter_map(|(column, purpose)| reason(column, purpose));
        return Err(refusal(message).hint(reasons.collect::<Vec<_>>().join("; ")).into());
    }
    let telling = telling(data, &profile, &targets, &uses, is_class);
    let missing = MissingCells::new(&targets, &uses, *rows);
    let draft = Draft { data, file, profile: &profile, targets, is_class, uses, missing, telling };
    Ok((draft.text(), draft.notes(named)))
}

/// Numeric features that the draft names.
const MOST_NUMBERS: usize = 40;

pub(super) struct Draft<'a> {
    data: &'a Path,
    file: Option<&'a Path>,
    pub(super) profile: &'a CsvProfile,
    /// One target, or several that are all numeric.
    pub(super) targets: Vec<&'a ColumnProfile>,
    pub(super) is_class: bool,
    pub(super) uses: Vec<(&'a ColumnProfile, Use)>,
    pub(super) missing: MissingCells,
    telling: Vec<(String, String)>,
}

impl Draft<'_> {
    /// What the terminal says.
    fn notes(&self, named: &[String]) -> Vec<String> {
        let target = self.targets.first().filter(|_| named.is_empty());
        let target = target.map(|target| {
            // Where lines end with a separator, the last column is empty.
            let is_last = self.profile.columns.last().is_some_and(|last| std::ptr::eq(last, *target));
            let which = if is_last { "" } else { " with a name" };
            format!("the target is the last column{which}, `{}`; {OTHER}", escape_line(&target.name))
        });
        let missing = self.markers().map(|(_, words)| format!("taken for missing values: {words}"));
        let shortened = |mut notes: Vec<String>, what: &str| {
            if notes.len() > MOST_NOTES {
                let more = units::count((notes.len() - MOST_NOTES) as u64);
                notes.truncate(MOST_NOTES);
                notes.push(format!("{more} more {what}"));
            }
            notes
        };
        let left_out = shortened(self.left_out(), "are left out: the draft has their names and the reasons");
        let doubts = shortened(self.doubts(), "columns are worth a look: the draft names them");
        let target = target.into_iter().chain(self.order()).chain(missing);
        target.chain(left_out).chain(doubts).chain(self.repeats()).collect()
    }

    /// On rows that are there twice.
    fn repeats(&self) -> Option<String> {
        let what = match self.profile.repeated {
            1 if self.validates() => {
                "1 row is an exact repeat of another: if it is in validation, it may repeat a training row"
                    .to_owned()
            }
            more @ 2.. if self.validates() => format!(
                "{} rows are exact repeats of others: those in validation may repeat training rows",
                units::count(more as u64)
            ),
            _ => return None,
        };
        Some(what)
    }

    /// Why columns are left out.
    fn left_out(&self) -> Vec<String> {
        self.uses.iter().filter_map(|(column, purpose)| reason(column, purpose)).collect()
    }

    /// On targets and features whose cells look odd, and on features that may be identifiers of rows or groups.
    fn doubts(&self) -> Vec<String> {
        let rows = self.profile.rows;
        let targets = self.targets.iter().flat_map(|target| oddities_of_target(target, self.is_class, rows));
        let of_feature = |(column, purpose): &(&ColumnProfile, Use)| {
            let telling = self.telling.iter().find(|(name, _)| *name == column.name);
            let telling = telling.map(|(_, words)| words.as_str());
            doubt(column, purpose, rows).into_iter().chain(oddities(column, purpose, telling))
        };
        targets.chain(self.uses.iter().flat_map(of_feature)).collect()
    }

    fn text(&self) -> String {
        let CsvProfile { rows, columns, .. } = self.profile;
        let stem = self.data.file_name().unwrap_or_default().to_string_lossy();
        // The name a spec gets if it has none: that of its file.
        let data = || Path::new(stem.split('.').next().filter(|name| !name.is_empty()).unwrap_or("table"));
        let name = default_name(self.file.unwrap_or_else(data));
        let outputs = if self.is_class { self.targets[0].distinct() } else { self.targets.len() };
        let hidden = match rows {
            0..500 => 16,
            500..5000 => 32,
            _ => 64,
        };
        // About 30 steps per epoch.
        let batch = (rows / 32).next_power_of_two().clamp(16, 256);
        let (loss, other) = if self.is_class {
            ("cross_entropy", "the target holds classes")
        } else {
            ("mse", "\"l1\" and \"huber\" mind outliers less")
        };
        format!(
            "# Drafted for {}: {}, {}. Every line may be changed.\n\
             name = {}\n\n\
             [data]\n\
             batch_size = {batch}\n{}\n\
             [data.{}]\n{}\n\
             [model]\n\
             layers = [\n    {{ linear = {{ out_features = {hidden} }} }},\n    \"relu\",\n    \
             {{ linear = {{ out_features = {outputs} }} }},\n]\n\
             loss = \"{loss}\"    # {other}\n\n\
             [optimizer.adamw]\n\
             lr = 0.003\n\n\
             {}{}",
            escape_line(&stem),
            units::counted(*rows as u64, "row"),
            units::counted(columns.len() as u64, "column"),
            quoted(&name),
            self.split(),
            if self.profile.is_parquet { "parquet" } else { "csv" },
            self.source(),
            self.trainer(),
            self.logging(),
        )
    }

    /// The keys of the data source.
    fn source(&self) -> String {
        let target = self.targets[0];
        let about = match (self.is_class, target.is_numeric()) {
            _ if self.targets.len() > 1 => "quantities, an output for each".to_owned(),
            (true, false) => format!("{} classes", target.distinct()),
            (true, true) => format!(
                "{} whole numbers, taken for classes; as a quantity: loss = \"mse\" and out_features = 1",
                target.distinct()
            ),
            (false, _) => "a quantity".to_owned(),
        };
        let names: Vec<String> = self.targets.iter().map(|target| quoted(&target.name)).collect();
        let name = if let [name] = &names[..] { name.clone() } else { format!("[{}]", names.join(", ")) };
        let mut lines = vec![
            format!("path = {}", quoted(&self.path().to_string_lossy())),
            format!("target = {name}    # {about}"),
        ];
        lines.extend(self.features());
        lines.extend(self.missing.line());
        lines.extend(self.markers().map(|(list, words)| format!("missing_values = {list}    # {words}")));
        lines.extend(self.missing.way_to_indicate());
        if self.profile.delimiter != ',' {
            lines.push(format!("delimiter = {}", quoted(&self.profile.delimiter.to_string())));
        }
        if self.profile.decimal != '.' {
            let mark = self.profile.decimal.to_string();
            lines.push(format!("decimal = {}    # numbers such as 0{mark}5", quoted(&mark)));
        }
        if !self.profile.header {
            lines.push("header = false    # columns are named \"0\", \"1\" and so on".to_owned());
        }
        lines.push("standardize = true    # features to mean 0 and deviation 1".to_owned());
        if !self.is_class {
            lines.push("standardize_target = true    # losses are in the target's deviations".to_owned());
        }
        if !self.validates() {
            lines.push("validation_fraction = 0.0    # too few rows to hold some out".to_owned());
        } else if self.profile.rows < ROWS_TO_FOLD {
            lines.push(
                "# a fifth of few rows validates; `data.folds=5 data.fold=0..5` takes each fifth in turn"
                    .to_owned(),
            );
        }
        lines.join("\n") + "\n"
    }

    /// The lines for columns that are not numeric, and for those left out with the reasons.
    fn features(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let named = |wanted: &dyn Fn(&Use) -> bool| -> Vec<String> {
            self.uses.iter().filter(|(_, purpose)| wanted(purpose)).map(|(c, _)| quoted(&c.name)).collect()
        };
        let numbers = named(&|purpose| *purpose == Use::Number);
        if !numbers.is_empty() {
            let shown = numbers.len().min(MOST_NUMBERS);
            let more = units::and_more(numbers.len() - shown);
            lines.push(format!("# numbers: {}{more}", numbers[..shown].join(", ")));
        }
        let categories = named(&|purpose| *purpose == Use::Category);
        if !categories.is_empty() {
            let list = categories.join(", ");
            lines.push(format!("categorical = [{list}]    # text, a column of 0 and 1 for each value"));
        }
        let ignored = named(&|purpose| matches!(purpose, Use::Ignored(_)));
        if !ignored.is_empty() {
            lines.extend(self.left_out().iter().map(|why| format!("# {why}")));
            lines.push(format!("ignore = [{}]", ignored.join(", ")));
        }
        lines.extend(self.doubts().iter().map(|doubt| format!("# {doubt}")));
        lines
    }

    /// Texts that stand for missing values, as a list with the usual ones; and which columns have them. `None` if there are no
    /// such texts.
    fn markers(&self) -> Option<(String, String)> {
        let used = self.uses.iter().filter(|(_, purpose)| !matches!(purpose, Use::Ignored(_)));
        let used = self.targets.iter().copied().chain(used.map(|(column, _)| *column));
        let marked: Vec<_> = used.filter(|column| !column.taken.is_empty()).collect();
        let own: BTreeSet<&str> = marked.iter().flat_map(|c| &c.taken).map(String::as_str).collect();
        let all: Vec<String> = MISSING_VALUES.into_iter().chain(own).map(quoted).collect();
        let of = |column: &&ColumnProfile| {
            format!("`{}` of `{}`", column.taken.join("`, `"), escape_line(&column.name))
        };
        let mut words: Vec<String> = marked.iter().take(MOST_NOTES).map(of).collect();
        if marked.len() > MOST_NOTES {
            words.push(format!("and of {} more columns", marked.len() - MOST_NOTES));
        }
        (!marked.is_empty()).then(|| (format!("[{}]", all.join(", ")), words.join(", ")))
    }

    /// The table's path relative to the spec's folder.
    fn path(&self) -> PathBuf {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let data = absolute(self.data);
        let file = self.file.map(absolute);
        let folder = file.as_deref().and_then(Path::parent);
        if let Some(below) = folder.and_then(|folder| data.strip_prefix(folder).ok()) {
            return below.to_owned();
        }
        match folder {
            Some(folder) if self.data.is_absolute() || Some(folder) != absolute(Path::new("x")).parent() => {
                data
            }
            _ => self.data.to_owned(),
        }
    }
}

/// Quotes text as a TOML string of one line, which a comment may hold.
fn quoted(text: &str) -> String {
    if !text.contains(char::is_control) {
        return toml::Value::from(text).to_string();
    }
    let escaped = |letter: char| match letter {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '"' | '\\' => format!("\\{letter}"),
        _ if letter.is_control() => format!("\\u{:04X}", u32::from(letter)),
        _ => letter.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}
