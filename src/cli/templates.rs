//! `runner new` and `runner schema`: starter specs and the JSON Schema.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
};

use super::{
    args::{NO_PARQUET, NewOptions},
    draft::draft,
};
use crate::{
    host::reason,
    record::command_line,
    run::{Exit, print, print_stderr, refuse},
    spec::{self, Failure},
};

/// The file of the schema, beside each starter.
const SCHEMA_FILE: &str = "runner.schema.json";

/// Names the schema for editors, above each starter.
const SCHEMA: &str = "\
#:schema runner.schema.json
# Editors with Even Better TOML complete and check keys by that file, which this renews: runner schema > runner.schema.json
";

/// Prints the JSON Schema of the spec.
pub fn schema() -> Result<Exit, Exit> {
    schema_text().map(|text| print(&text)).map_err(|e| Exit::failed(e, None))
}

fn schema_text() -> serde_json::Result<String> {
    let text = serde_json::to_string_pretty(&spec::schema())? + "\n";
    Ok(match cfg!(feature = "parquet") {
        true => text,
        false => text.replace(", in a build with `--features parquet`", &format!(". {NO_PARQUET}")),
    })
}

/// Writes the schema into the folder of a spec, if none is there; whether it did.
fn write_schema(spec: &Path) -> io::Result<bool> {
    let path = spec.with_file_name(SCHEMA_FILE);
    match write_new(&path, &schema_text()?) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        written => written.map(|()| true),
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    // An empty file would be in the way of the next try.
    file.write_all(text.as_bytes()).inspect_err(|_| drop(fs::remove_file(path)))
}

fn print_notes(notes: &[String]) {
    notes.iter().for_each(|note| print_stderr(&format!("{note}\n")));
}

/// Writes a starter spec, never over a file that is there.
pub fn new(options: &NewOptions) -> Result<Exit, Exit> {
    let Some(template) = spec::templates::find(&options.template) else { return Err(Exit::Refused) };
    let file = options.file.as_deref().filter(|file| *file != Path::new("-"));
    let (text, notes) = match &options.from {
        None => (template.text.to_owned(), Vec::new()),
        Some(_) if template.name != "csv" => {
            let hint = "`runner new csv FILE --from DATA`";
            return Err(Exit::refused("only `csv` is drafted from a table", Some(hint)));
        }
        Some(data) => draft((data, options.marks.marks()), &options.target, file)
            .map_err(|problem| refuse(&Failure::new(vec![*problem])))?,
    };
    let text = format!("{SCHEMA}{text}");
    let Some(path) = file else {
        let printed = print(&text);
        print_notes(&notes);
        return Ok(printed);
    };
    write_new(path, &text).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            let message = format!("`{}` is there already", path.display());
            Exit::refused(message, Some("name another file; nothing is overwritten"))
        }
        _ => Exit::failed(format!("cannot write `{}`: {}", path.display(), reason(&e)), None),
    })?;
    let schema = match write_schema(path) {
        Ok(true) => format!(" and {SCHEMA_FILE} for editors"),
        Ok(false) => String::new(),
        Err(e) => format!(", but no {SCHEMA_FILE}: {}", reason(&e)),
    };
    let check = command_line(["runner".into(), "check".into(), path.to_string_lossy()]);
    print_notes(&notes);
    print_stderr(&format!("wrote {}{schema}; next: {check}\n", path.display()));
    Ok(Exit::Done)
}
