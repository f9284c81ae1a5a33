//! `[[tensors.step]]` as it is read, and what of it excludes each other.

use serde_json::json;

use super::{
    numbers::read_numbers,
    steps::{Expect, FileName, Load, MOST_AXES, Net, Save, Saved, Start, Step, StepOp},
};
use crate::spec::{
    DeviceName, Init, Layer,
    reader::{Choice, Fields, Item, Word},
    tree::Value,
};

impl Step {
    pub(super) fn read(t: &mut Fields<'_>) -> Self {
        let name = t.optional("name", "what the result is called", read_name);
        let nothing = StepOp::Ones(Vec::new());
        let op = t.one_of(
            None,
            &[
                Choice { name: "ones", doc: "ones of that shape", read: |v| StepOp::Ones(read_shape(v)) },
                Choice { name: "zeros", doc: "zeros of that shape", read: |v| StepOp::Zeros(read_shape(v)) },
                Choice {
                    name: "rand",
                    doc: "random numbers in [0, 1) of that shape, from the seed",
                    read: |v| StepOp::Rand(read_shape(v)),
                },
                Choice {
                    name: "from",
                    doc: "numbers of the host, such as [[1, 2], [3, 4]]",
                    read: |v| StepOp::From(read_numbers(v)),
                },
                Choice {
                    name: "copy",
                    doc: "the tensor on `device`; where it is there already, the same tensor",
                    read: |v| StepOp::Copy(read_operand(v)),
                },
                Choice { name: "add", doc: "the sum of two tensors", read: |v| StepOp::Add(read_pair(v)) },
                Choice {
                    name: "matmul",
                    doc: "the matrix product of two tensors",
                    read: |v| StepOp::Matmul(read_pair(v)),
                },
                Choice { name: "norm", doc: "the Frobenius norm", read: |v| StepOp::Norm(read_operand(v)) },
                Choice {
                    name: "net",
                    doc: "a Sequential applied to a tensor",
                    read: |v| StepOp::Net(v.table(Net::read)),
                },
                Choice {
                    name: "save",
                    doc: "tensors to a safetensors file in the run's folder",
                    read: |v| StepOp::Save(v.table(Save::read)),
                },
                Choice {
                    name: "load",
                    doc: "a tensor from a safetensors file",
                    read: |v| StepOp::Load(v.table(Load::read)),
                },
            ],
        );
        let op = op.unwrap_or(nothing);
        let doc = "where the result lives (the first device in use, or where the operands are)";
        let device = t.optional("device", doc, DeviceName::read);
        let force = t
            .default("force", "of a copy: make one even where the tensor is already", false, |v| v.boolean());
        let expect = t.optional("expect", "the error that the step must raise", |v| {
            let doc = "operands live on different devices";
            v.word(&[Word { name: "device_mismatch", value: Expect::DeviceMismatch, doc }], &[])
        });
        let step = Self { name, op, device, force, expect };
        step.check(t);
        step
    }

    fn check(&self, t: &mut Fields<'_>) {
        let op = self.op.name();
        if !t.has(op) {
            return;
        }
        if let StepOp::Save(_) = self.op {
            if self.name.is_some() {
                t.refuse("name", &["save"], "`save` has no result to name", "remove it");
            }
        } else if !t.has("name") {
            t.refuse(op, &[], "its result needs a name", "add one, such as `name = \"X\"`");
        }
        if self.force && !matches!(self.op, StepOp::Copy(_)) {
            t.refuse("force", &[op], "only a copy can be forced", "remove it");
        }
        match self.op {
            StepOp::Copy(_) if self.device.is_none() => {
                t.refuse(
                    "copy",
                    &["device"],
                    "a copy needs a device to go to",
                    "add one: `device = \"gpu:0\"`",
                );
            }
            StepOp::Add(_) | StepOp::Matmul(_) | StepOp::Norm(_) | StepOp::Save(_)
                if self.device.is_some() =>
            {
                let message = "the result lives where the operands do";
                t.refuse("device", &[op], message, "remove it; another device takes a `copy`");
            }
            _ => {}
        }
        let meets = matches!(self.op, StepOp::Add(_) | StepOp::Matmul(_) | StepOp::Net(_));
        if self.expect.is_some() && !meets {
            let message = "only `add`, `matmul` and `net` have operands that can be on different devices";
            t.refuse("expect", &[op], message, "remove it");
        }
    }
}

impl Net {
    fn read(t: &mut Fields<'_>) -> Self {
        let layers = t.required("layers", "the layers, first to last", |v| v.list(1..=1000, Layer::read));
        if let Some(layer) = layers.iter().find(|layer| layer.learns_by_training_only()) {
            let message = format!("a net of tensors has no `{}`", layer.name());
            t.refuse("layers", &[], message, "leave the layer out");
        }
        let input = t.required("input", "the tensor it is applied to, [rows, in]", read_operand);
        let by_rule = Start::Init(Init::Pytorch);
        let start = t.one_of(
            Some(by_rule.clone()),
            &[
                Choice {
                    name: "init",
                    doc: "how its parameters begin (pytorch)",
                    read: |v| Start::Init(Init::read(v)),
                },
                Choice {
                    name: "parameters",
                    doc: "a safetensors file with its parameters",
                    read: |v| Start::Parameters(read_file(v)),
                },
            ],
        );
        Self { layers, input, start: start.unwrap_or(by_rule) }
    }
}

impl Save {
    fn read(t: &mut Fields<'_>) -> Self {
        let what = t.one_of(
            None,
            &[
                Choice {
                    name: "net",
                    doc: "the parameters of the net that made that tensor",
                    read: |v| Saved::Net(read_operand(v)),
                },
                Choice {
                    name: "tensors",
                    doc: "tensors, each under its name",
                    read: |v| Saved::Tensors(v.list(1..=1000, read_operand)),
                },
            ],
        );
        let file = t.required("file", "its name in the run's folder, ending in .safetensors", |v| {
            let schema = json!({ "type": "string", "pattern": r"^[^/\\.][^/\\]*\.safetensors$" });
            v.custom("a file's name, such as `net.safetensors`", schema, String::new(), |v| match v {
                Value::String(s) => {
                    let plain = s.chars().all(|c| c.is_ascii_alphanumeric() || "._=+-".contains(c));
                    (plain && !s.starts_with('.') && s.ends_with(".safetensors")).then(|| s.clone())
                }
                _ => None,
            })
        });
        Self { what: what.unwrap_or(Saved::Tensors(Vec::new())), file }
    }
}

impl Load {
    fn read(t: &mut Fields<'_>) -> Self {
        let file = t.required("file", "one that an earlier step saved, or one that is there", read_file);
        Self { file, tensor: t.optional("tensor", "its name in the file (the step's)", |v| v.string()) }
    }
}

/// A name that can be told from that of a net's parameter, such as `Y.0.weight`.
fn read_name(v: Item<'_>) -> String {
    let schema = json!({ "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" });
    v.custom("a name of letters, digits and `_`", schema, String::new(), |v| match v {
        Value::String(s) => {
            let fits = s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            (fits && s.len() <= 100 && s.starts_with(|c: char| !c.is_ascii_digit())).then(|| s.clone())
        }
        _ => None,
    })
}

fn read_operand(v: Item<'_>) -> String {
    let schema = json!({ "type": "string", "minLength": 1 });
    v.custom("the name of a tensor", schema, String::new(), |v| match v {
        Value::String(s) if !s.is_empty() => Some(s.clone()),
        _ => None,
    })
}

fn read_pair(v: Item<'_>) -> [String; 2] {
    v.array(
        "the names of two tensors, such as `[\"X\", \"Y\"]`",
        [String::new(), String::new()],
        read_operand,
    )
}

fn read_file(v: Item<'_>) -> FileName {
    let (text, path) = v.path_as_written();
    FileName { text, path, is_saved: false }
}

fn read_shape(v: Item<'_>) -> Vec<usize> {
    v.list(0..=MOST_AXES, |v| v.size(0))
}
