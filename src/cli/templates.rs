//! `runner new` and `runner schema`: starter specs and the JSON Schema.

use std::{
    fs::{self, OpenOptions},
    io::Write,
};

use super::{args::NewOptions, draft::draft};
use crate::{
    host::reason,
    record::command_line,
    run::{Exit, print, print_error, print_stderr, refuse},
    spec::{self, Failure},
};

/// Points editors to the schema; the first lines of each starter.
const SCHEMA: &str = "\
#:schema runner.schema.json
# Editors with Even Better TOML complete and check keys once that file is here: runner schema > runner.schema.json
";

/// Prints the JSON Schema of the spec.
pub fn schema() -> Exit {
    match serde_json::to_string_pretty(&spec::schema()) {
        Ok(text) => print(&format!("{text}\n")),
        Err(e) => {
            print_error(e, None);
            Exit::Failed
        }
    }
}

/// Writes a starter spec; never overwrites a file.
pub fn new(options: &NewOptions) -> Exit {
    let Some(template) = spec::templates::find(&options.template) else { return Exit::Refused };
    let text = match &options.from {
        None => template.text.to_owned(),
        Some(_) if template.name != "csv" => {
            print_error("only `csv` is drafted from a table", Some("`runner new csv FILE --from DATA`"));
            return Exit::Refused;
        }
        Some(data) => match draft(data, &options.target, options.file.as_deref()) {
            Ok(text) => text,
            Err(problem) => return refuse(&Failure::new(vec![*problem])),
        },
    };
    let text = format!("{SCHEMA}{text}");
    let Some(path) = &options.file else {
        print(&text);
        return Exit::Done;
    };
    let written = OpenOptions::new().write(true).create_new(true).open(path).and_then(|mut file| {
        // An empty file would block the next attempt.
        file.write_all(text.as_bytes()).inspect_err(|_| drop(fs::remove_file(path)))
    });
    match written {
        Ok(()) => {
            let check = command_line(["runner".into(), "check".into(), path.to_string_lossy()]);
            print_stderr(&format!("wrote {}; next: {check}\n", path.display()));
            Exit::Done
        }
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            print_error(
                format!("`{}` is there already", path.display()),
                Some("name another file; nothing is overwritten"),
            );
            Exit::Refused
        }
        Err(e) => {
            print_error(format!("cannot write `{}`: {}", path.display(), reason(&e)), None);
            Exit::Failed
        }
    }
}
