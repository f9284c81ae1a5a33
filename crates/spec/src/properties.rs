//! Properties of every spec: a spec that the schema accepts can be read, and its resolved text reads back the
//! same. Garbage is reported and never panics.

use std::path::Path;

use proptest::{
    collection::{hash_map, vec},
    option,
    prelude::*,
    sample::select,
    strategy::Union,
    string::string_regex,
};
use serde_json::{Map, Value as Json};

use super::{load::load_text, reader::Read, *};

fn read_any(text: &str, overrides: &[String]) -> Result<Loaded, Failure> {
    load_text(Path::new("x.toml"), Path::new("/folder"), text.to_owned(), (overrides, 0))
}

fn read(text: &str, overrides: &[String]) -> Result<Experiment, Failure> {
    match read_any(text, overrides)? {
        Loaded::Train(experiment) => Ok(*experiment),
        Loaded::Lab(experiment) => Err(experiment.failure([(0, Problem::at_key("kind", "of the lab"))])),
    }
}

/// Generates values that a schema accepts.
fn value(schema: &Json) -> BoxedStrategy<Json> {
    let any_of = |schemas: &Json| -> BoxedStrategy<Json> {
        Union::new(schemas.as_array().into_iter().flatten().map(value)).boxed()
    };
    let bound = |name: &str| schema.get(name).and_then(Json::as_u64);
    match (schema["type"].as_str(), schema.get("const"), schema.get("enum"), schema.get("oneOf")) {
        (_, Some(constant), ..) => Just(constant.clone()).boxed(),
        (_, _, Some(words), _) => select(words.as_array().cloned().unwrap_or_default()).boxed(),
        (.., Some(schemas)) => any_of(schemas),
        (Some("object"), ..) if schema["additionalProperties"].is_object() => {
            let inner = value(&schema["additionalProperties"]);
            hash_map("[a-z ]{1,9}", inner, 1..4)
                .prop_map(|all| Json::Object(all.into_iter().collect()))
                .boxed()
        }
        (Some("object"), ..) => table(schema),
        (Some("array"), ..) => {
            let least = bound("minItems").unwrap_or(0) as usize;
            let most = bound("maxItems").map_or(least + 3, |most| (most as usize).min(least + 3));
            vec(value(&schema["items"]), least..=most).prop_map(Json::from).boxed()
        }
        (Some("boolean"), ..) => any::<bool>().prop_map(Json::from).boxed(),
        (Some("integer"), ..) => {
            let (least, most) = (bound("minimum").unwrap_or(0), bound("maximum").unwrap_or(u64::MAX));
            prop_oneof![3 => least..=most.min(99), 1 => Just(least), 1 => Just(most)]
                .prop_map(Json::from)
                .boxed()
        }
        (Some("number"), ..) => number(schema),
        _ => string(schema),
    }
}

fn number(schema: &Json) -> BoxedStrategy<Json> {
    let bound = |name: &str| schema.get(name).and_then(Json::as_f64);
    let above = bound("exclusiveMinimum").map(|least| least + f64::from(f32::MIN_POSITIVE));
    let least = bound("minimum").or(above).unwrap_or(-1e30);
    let most = bound("maximum").or(bound("exclusiveMaximum").map(f64::next_down)).unwrap_or(1e30);
    let some =
        [least, most, 0.1, 1e-8, -0.0].into_iter().filter(|x| (least..=most).contains(x)).collect::<Vec<_>>();
    prop_oneof![least..=most, select(some)].prop_map(Json::from).boxed()
}

fn string(schema: &Json) -> BoxedStrategy<Json> {
    let strings = match (schema["pattern"].as_str(), schema["maxLength"] == 1, schema.get("minLength")) {
        // For a folder's name the schema is looser than the check (see `read_name`).
        (Some(pattern), ..) if pattern.contains("\\s") => "[a-zA-Z0-9_ä][a-zA-Z0-9._=+-]{0,20}".boxed(),
        (Some(pattern), ..) => string_regex(pattern.trim_matches(['^', '$'])).expect("a pattern").boxed(),
        (_, true, _) => select(vec![",", ";", "\t", "|"]).prop_map(str::to_owned).boxed(),
        (.., Some(_)) => "[^\0/.]{1,12}/[a-z\"'\\\\\n ]{1,8}x".boxed(),
        _ => prop_oneof![any::<String>(), "[a-z ]{0,10}"].boxed(),
    };
    strings.prop_map(Json::from).boxed()
}

/// Generates tables whose keys obey the rules between fields.
fn table(schema: &Json) -> BoxedStrategy<Json> {
    let names = |list: &Json| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let (required, rules) =
        (names(&schema["required"]), schema["allOf"].as_array().cloned().unwrap_or_default());
    let fields = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !["kind", "launcher", "sweep", "extends", "delete"].contains(&name.as_str()));
    let fields = fields.map(|(name, inner)| {
        let is_required = required.contains(name);
        (
            Just(name.clone()),
            if is_required { value(inner).prop_map(Some).boxed() } else { option::of(value(inner)).boxed() },
        )
    });
    (fields.collect::<Vec<_>>(), any::<prop::sample::Index>())
        .prop_map(move |(fields, which)| {
            let mut table: Map<String, Json> =
                fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            for rule in &rules {
                if let Some(choices) = rule["oneOf"].as_array() {
                    let all: Vec<String> =
                        choices.iter().flat_map(|choice| names(&choice["required"])).collect();
                    let given: Vec<_> =
                        all.iter().filter(|name| table.contains_key(*name)).cloned().collect();
                    let keep = (!given.is_empty()).then(|| given[which.index(given.len())].clone());
                    table.retain(|name, _| !all.contains(name) || Some(name) == keep.as_ref());
                }
                if let [_, other] = &names(&rule["not"]["required"])[..]
                    && names(&rule["not"]["required"]).iter().all(|name| table.contains_key(name))
                {
                    table.remove(other);
                }
                if let Some(pairs) = rule["dependentRequired"].as_object() {
                    let is_half = pairs.keys().any(|name| !table.contains_key(name));
                    table.retain(|name, _| !(is_half && pairs.contains_key(name)));
                }
            }
            table.into()
        })
        .boxed()
}

/// Rules between fields, which the schema does not express.
const RULES: [&str; 37] = [
    "needs exactly one of",
    "needs `patience` or `stopping_threshold`",
    "nesterov momentum requires",
    "does not come after",
    "is above the highest",
    "every curve but the last",
    "the last curve lasts",
    "a plateau lasts to the end",
    "is named twice",
    "cannot train together",
    "each process of several trains on its CPU or on one GPU",
    "the batch does not grow",
    "needs classes",
    "needs numbers to predict",
    "gives classes",
    "needs `weights` or `features`",
    "has one column of classes to predict",
    "is named twice",
    "classes cannot be standardized",
    "there is no validation to watch",
    "there are no rows to validate on",
    "both say which rows validate",
    "synthetic rows are made for each part",
    "the folds are 0 to",
    "keeps rows together",
    "rows stay in their order",
    "leave no row to train on",
    "is already in",
    "there must be at least one column",
    "as f32, and leaves no unit",
    "a time above 0",
    "a device, such as",
    "no target is called",
    "the data have one target",
    "an empty text",
    "spaces around a cell do not count",
    "indicators are of cells that are filled in",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, max_global_rejects: 60_000, ..ProptestConfig::default() })]
    #[test]
    fn what_the_schema_accepts_is_read_and_reads_back_the_same(spec in value(&reader::describe(Spec::read).into())) {
        let text = toml::to_string(&spec).map_err(|e| TestCaseError::fail(format!("{spec}: {e}")))?;
        let spec = match read(&text, &[]) {
            Ok(experiment) => experiment.trials[0].spec.clone(),
            Err(failure) => {
                for problem in &failure.problems {
                    prop_assert!(RULES.iter().any(|rule| problem.message.contains(rule)), "{}\n{}", text, failure);
                }
                return Err(TestCaseError::reject("a rule between fields"));
            }
        };
        let resolved = spec.to_toml();
        let experiment = read(&resolved, &[]).map_err(|f| TestCaseError::fail(format!("{resolved}\n{f}")))?;
        prop_assert_eq!(&experiment.trials[0].spec, &spec, "{}", resolved);
        prop_assert_eq!(experiment.hash8(), spec.hash8());
        let text = Loaded::Train(Box::new(experiment)).to_toml_with_origins();
        let experiment = read(&text, &[]).map_err(|f| TestCaseError::fail(format!("{text}\n{f}")))?;
        prop_assert_eq!(&experiment.trials[0].spec, &spec, "{}", text);
    }
}

proptest! {
    #[test]
    fn garbage_is_told(text in any::<String>(), overrides in vec(any::<String>(), 0..3)) {
        is_told(&text, &overrides);
    }

    #[test]
    fn a_damaged_spec_is_told(
        template in select(templates::TEMPLATES.to_vec()),
        cuts in vec((any::<prop::sample::Index>(), 0..4_usize, "[\\[\\]{}=\"'.,\n# a-z0-9-]{0,3}"), 1..4),
        overrides in vec("~?[a-z_.0-9]{0,24}=?[\\[\\]{}=\"'., a-z0-9-]{0,6}", 0..2),
    ) {
        let mut text: Vec<char> = template.text.chars().collect();
        for (at, length, insert) in cuts {
            let at = at.index(text.len());
            let end = (at + length).min(text.len());
            text.splice(at..end, insert.chars());
        }
        is_told(&text.into_iter().collect::<String>(), &overrides);
    }

    #[test]
    fn overrides_of_real_keys_are_told(
        key in select(vec![
            "seed", "name", "data", "data.batch_size", "model.layers", "model.layers.0", "model.layers.0.linear.in_features",
            "optimizer", "optimizer.sgd", "optimizer.sgd.lr", "devices.num_gpus", "devices.use", "sweep", "sweep.grid",
            "schedule.chain", "trainer.max_time", "logging.metrics", "logging.metrics.0",
        ]),
        value in "[\\[\\]{}=\"'., a-z0-9-]{0,12}",
        delete in any::<bool>(),
    ) {
        let template = templates::find("sweep").map_or("", |t| t.text);
        let arguments = [if delete { format!("~{key}") } else { format!("{key}={value}") }];
        is_told(template, &arguments);
    }
}

/// Reading gives an experiment, or at least one problem that can be rendered.
fn is_told(text: &str, overrides: &[String]) {
    match read(text, overrides) {
        Ok(experiment) => assert!(!experiment.trials.is_empty()),
        Err(failure) => {
            assert!(!failure.problems.is_empty());
            assert!(failure.render(false).starts_with("error: "));
            assert!(failure.render(true).contains("error"));
        }
    }
}
