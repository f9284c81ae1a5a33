//! The JSON Schema of a spec, for editors. It is written by the very definitions that read a spec.

use serde_json::{Value, json};

use super::{Spec, reader};

/// JSON Schema 2020-12 of a spec file.
pub fn schema() -> Value {
    let mut schema = reader::Json::new();
    schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".into(), json!("runner experiment"));
    schema.insert(
        "description".into(),
        json!("A declarative experiment: data, model, optimizer, devices, sweep"),
    );
    schema.extend(reader::describe(|t| Spec::read(t, "name")));
    schema.into()
}
