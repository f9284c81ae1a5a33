//! Exports a run's model as an ONNX file: preprocessing, layers, and outputs as printed by `runner predict`.

mod graph;
mod messages;

use std::{collections::BTreeMap, path::Path};

use serde_json::json;

use self::{
    graph::{Graph, GraphBuilder},
    messages::{Element, attribute},
};
use super::{PredictError, Trained, output_file::OutputFile};
use crate::{
    data::{ArrayScale, ColumnKind, Preprocessing, Scale, StoredColumn},
    record::protobuf::Message,
    spec::Layer,
};

/// The first operator set with GELU, and the format version that introduced it.
const OPSETS: [(&str, i64); 2] = [("", 20), ("ai.onnx.ml", 3)];
const IR_VERSION: i64 = 9;
const PRODUCER: &str = "runner";

/// Protobuf readers do not accept larger messages.
const MOST_BYTES: usize = i32::MAX as usize;

/// Writes the model to `path`. Returns the names of its inputs and outputs. The model refuses categories that the training file
/// lacks, or with `takes_unknown` sets all inputs of the column to 0.
pub fn write_onnx(
    trained: &Trained,
    path: &Path,
    takes_unknown: bool,
) -> Result<[Vec<String>; 2], PredictError> {
    let file = OutputFile::new(path, [&*trained.folder], [])?;
    file.check_replaces(head().bytes(), "a model that `runner export` wrote")?;
    let mut graph = GraphBuilder::default();
    let features = features(&mut graph, trained, takes_unknown);
    let outputs = layers(&mut graph, trained, features);
    let graph = answers(graph, trained, &outputs);
    let model = model(trained, &graph.message);
    if model.bytes().len() > MOST_BYTES {
        return Err(PredictError::TooLarge { file: path.to_owned() });
    }
    file.write(|out| {
        out.write_all(model.bytes()).map_err(|source| PredictError::Write { to: file.name(), source })
    })?;
    Ok([graph.inputs, graph.outputs])
}

/// The first fields of a model that this program writes.
fn head() -> Message {
    Message::default().with_integer(1, IR_VERSION).with_text(2, PRODUCER)
}

/// `ModelProto`
fn model(trained: &Trained, graph: &Message) -> Message {
    let run = trained.folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let spec = &trained.spec;
    let classes = trained.data.class_names().map(|names| json!(names).to_string());
    let targets = Some(trained.data.target_names()).filter(|names| !names.is_empty());
    let metadata = [
        ("run", run),
        ("weights", Some(trained.file.clone())),
        ("epoch", Some(trained.epoch.clone())),
        ("step", Some(trained.step.clone())),
        ("loss", Some(spec.model.loss.name().to_owned())),
        ("classes", classes),
        ("targets", targets.map(|names| json!(names).to_string())),
    ];
    let entry = |(key, value): &(&str, Option<String>)| Some(messages::entry(key, value.as_ref()?));
    let metadata: Vec<Message> = metadata.iter().filter_map(entry).collect();
    let opsets = OPSETS.map(|(domain, version)| messages::operator_set(domain, version));
    let model = head().with_text(3, env!("CARGO_PKG_VERSION")).with_text(6, &spec.description);
    model.with_message(7, graph).with_messages(8, &opsets).with_messages(14, &metadata)
}

/// Builds the part from the inputs to the first layer's input, (rows, features).
fn features(graph: &mut GraphBuilder, trained: &Trained, takes_unknown: bool) -> String {
    match trained.data.preprocessing() {
        Preprocessing::Array(scale) => {
            let input = graph.input("features", Element::Float, trained.features);
            match scale {
                ArrayScale::None => input,
                ArrayScale::Divide(scale) => {
                    let scale = graph.floats("scale", &[], &[*scale]);
                    graph.node("Div", &[&input, &scale], &[], "scaled")
                }
                ArrayScale::Standardize(scales) => {
                    let numbers = cast(graph, &input, Element::Double, "numbers");
                    let standardized = standardized(graph, &numbers, scales.iter().map(|s| (s.mean, s.std)));
                    cast(graph, &standardized, Element::Float, "rounded")
                }
            }
        }
        Preprocessing::Table { columns, fills, missing: (missing_words, missing_numbers) } => {
            // Add inputs first, so that they keep the names of the columns whatever else is in the graph.
            let inputs: Vec<String> = columns.iter().map(|column| column_input(graph, column)).collect();
            let of_kind = |kind| columns.iter().zip(&inputs).filter(move |(column, _)| column.kind == kind);
            let (numeric, names): (Vec<_>, Vec<_>) = of_kind(ColumnKind::Numeric).unzip();
            let mut parts = Vec::new();
            if !numeric.is_empty() {
                parts.extend(numbers(graph, &numeric, &names, (fills, &missing_numbers)));
            }
            for (column, name) in of_kind(ColumnKind::Categorical) {
                let keys = category_keys(column, &missing_words);
                let codes = attribute::ints("values_int64s", keys.values().copied());
                let keys = attribute::strings("keys_strings", keys.into_keys());
                let unknown = attribute::int("default_int64", -1);
                let code = graph.node("ai.onnx.ml.LabelEncoder", &[name], &[keys, codes, unknown], "code");
                let codes = 0..column.categories.iter().flatten().count() as i64;
                let zeros = attribute::int("zeros", i64::from(takes_unknown));
                let attributes = [attribute::ints("cats_int64s", codes), zeros];
                let indices = graph.node("ai.onnx.ml.OneHotEncoder", &[&code], &attributes, "indices");
                parts.push(graph.node("Flatten", &[&indices], &[attribute::int("axis", 1)], "one_hot"));
            }
            concat(graph, &parts, "features")
        }
    }
}

/// The texts of a column's cells and their categories. Missing cells are one: empty, or a text that stands for it, as the spec has it
/// or in one case.
fn category_keys(column: &StoredColumn, missing: &[String]) -> BTreeMap<String, i64> {
    let mut keys = BTreeMap::new();
    for (code, category) in (0..).zip(column.categories.iter().flatten()) {
        match category {
            Some(text) => _ = keys.insert(text.clone(), code),
            None => {
                let texts = missing
                    .iter()
                    .flat_map(|own| [own.clone(), own.to_ascii_lowercase(), own.to_ascii_uppercase()]);
                keys.extend(texts.chain([String::new()]).map(|text| (text, code)));
            }
        }
    }
    keys
}

fn column_input(graph: &mut GraphBuilder, column: &StoredColumn) -> String {
    let element = match column.kind {
        ColumnKind::Numeric => Element::Double,
        ColumnKind::Categorical => Element::String,
    };
    graph.input(&column.name, element, 1)
}

fn concat<S: AsRef<str>>(graph: &mut GraphBuilder, parts: &[S], name: &str) -> String {
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts[..] {
        [only] => only.to_owned(),
        _ => graph.node("Concat", &parts, &[attribute::int("axis", 1)], name),
    }
}

/// Numeric columns: missing values filled in, standardized in f64 like those of the training file, then
/// rounded to f32; and their indicators. A number that stands for a missing one is NaN where none is filled in, and so is the answer.
fn numbers(
    graph: &mut GraphBuilder,
    columns: &[&StoredColumn],
    names: &[&String],
    (fills, missing): (bool, &[f64]),
) -> Vec<String> {
    let mut x = concat(graph, names, "numbers");
    let mut found = Vec::new();
    if fills {
        found.push(graph.node("IsNaN", &[&x], &[], "missing"));
    }
    for &number in missing {
        let number = graph.doubles("missing_value", &[number]);
        found.push(graph.node("Equal", &[&x, &number], &[], "missing"));
    }
    let any = found.into_iter().reduce(|a, b| graph.node("Or", &[&a, &b], &[], "missing"));
    if let Some(any) = &any {
        let fill = |column: &&StoredColumn| if fills { column.fill() } else { f64::NAN };
        let fill = graph.doubles("fill", &columns.iter().map(fill).collect::<Vec<_>>());
        x = graph.node("Where", &[any, &fill, &x], &[], "filled");
    }
    if columns.iter().any(|column| column.scale.is_some()) {
        let scales = columns.iter().map(|column| column.scale.map_or((0.0, 1.0), |s| (s.mean, s.std)));
        x = standardized(graph, &x, scales);
    }
    let numbers = cast(graph, &x, Element::Float, "rounded");
    [numbers].into_iter().chain(any.and_then(|any| indicators(graph, columns, &any))).collect()
}

/// For each numeric column with an indicator, 1 where its cell is missing as `missing` has it, else 0; or always 0.
fn indicators(graph: &mut GraphBuilder, columns: &[&StoredColumn], missing: &str) -> Option<String> {
    let own = (0..).zip(columns).filter_map(|(place, column)| Some((place, f32::from(column.indicator?))));
    let (places, tell): (Vec<i64>, Vec<f32>) = own.unzip();
    if places.is_empty() {
        return None;
    }
    let missing = cast(graph, missing, Element::Float, "missing");
    let (places, tell) = (graph.integers("indicated", &places), graph.floats("tells", &[tell.len()], &tell));
    let own = graph.node("Gather", &[&missing, &places], &[attribute::int("axis", 1)], "missing");
    Some(graph.node("Mul", &[&own, &tell], &[], "indicators"))
}

/// Subtracts the columns' means and divides by their standard deviations, in f64.
fn standardized(graph: &mut GraphBuilder, x: &str, scales: impl Iterator<Item = (f64, f64)>) -> String {
    let (means, deviations): (Vec<f64>, Vec<f64>) = scales.unzip();
    let (mean, std) = (graph.doubles("mean", &means), graph.doubles("std", &deviations));
    let centred = graph.node("Sub", &[x, &mean], &[], "centred");
    graph.node("Div", &[&centred, &std], &[], "standardized")
}

fn cast(graph: &mut GraphBuilder, x: &str, to: Element, name: &str) -> String {
    graph.node("Cast", &[x], &[attribute::int("to", to as i64)], name)
}

/// Adds all layers; weights have PyTorch's names.
fn layers(graph: &mut GraphBuilder, trained: &Trained, mut x: String) -> String {
    for (i, layer) in trained.spec.model.layers.iter().enumerate() {
        let mut parameter = |name: &str| {
            let name = format!("{i}.{name}");
            trained.weights.get(&name).map(|tensor| graph.floats(&name, &tensor.shape, &tensor.values))
        };
        let parameters: Vec<String> = ["weight", "bias"].iter().filter_map(|name| parameter(name)).collect();
        let (op, attributes) = match layer {
            Layer::Linear(_) => ("Gemm", vec![attribute::int("transB", 1)]),
            Layer::Relu => ("Relu", Vec::new()),
            Layer::Gelu => ("Gelu", Vec::new()),
            // An operator of its own only since the operator set 24.
            Layer::Silu => {
                let gate = graph.node("Sigmoid", &[&x], &[], &format!("{i}.gate"));
                x = graph.node("Mul", &[&x, &gate], &[], &i.to_string());
                continue;
            }
            Layer::Tanh => ("Tanh", Vec::new()),
            Layer::Sigmoid => ("Sigmoid", Vec::new()),
            Layer::LayerNorm { eps } => {
                ("LayerNormalization", vec![attribute::float("epsilon", *eps as f32)])
            }
            Layer::Dropout { .. } => continue,
        };
        let inputs: Vec<&str> = [&x].into_iter().chain(&parameters).map(String::as_str).collect();
        x = graph.node(op, &inputs, &attributes, &i.to_string());
    }
    x
}

/// Adds the outputs: a class and the probability of each class, or numbers in the units of the training file.
fn answers(mut graph: GraphBuilder, trained: &Trained, y: &str) -> Graph {
    let (name, width) = (trained.spec.name.to_string(), Some(trained.outputs));
    if let Some(classes) = trained.data.class_names() {
        let axis = || attribute::int("axis", 1);
        let best = graph.node("ArgMax", &[y], &[axis(), attribute::int("keepdims", 0)], "best");
        let labels = [
            attribute::ints("keys_int64s", 0..classes.len() as i64),
            attribute::strings("values_strings", classes),
        ];
        let class = graph.node("ai.onnx.ml.LabelEncoder", &[&best], &labels, "class");
        let shares = graph.node("Softmax", &[y], &[axis()], "probabilities");
        return graph.finish(&name, &[(&class, Element::String, None), (&shares, Element::Float, width)]);
    }
    let scales = trained.data.target_scales();
    if scales.iter().all(Scale::is_identity) {
        let prediction = graph.node("Identity", &[y], &[], "prediction");
        return graph.finish(&name, &[(&prediction, Element::Float, width)]);
    }
    let y = cast(&mut graph, y, Element::Double, "standardized");
    let of = |number: fn(&Scale) -> f64| scales.iter().map(number).collect::<Vec<_>>();
    let mean = graph.doubles("target_mean", &of(|scale| scale.mean));
    let std = graph.doubles("target_std", &of(|scale| scale.std));
    let y = graph.node("Mul", &[&y, &std], &[], "scaled");
    let prediction = graph.node("Add", &[&y, &mean], &[], "prediction");
    graph.finish(&name, &[(&prediction, Element::Double, width)])
}
