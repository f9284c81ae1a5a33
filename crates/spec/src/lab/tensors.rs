//! `kind = "tensors"`: a tour of tensors and devices, step by step.

use std::{collections::BTreeSet, path::PathBuf};

use super::{FileName, Saved, Start, Step, StepOp};
use crate::{
    reader::{Fields, table},
    suggest,
};

/// Maximum number of steps in a tour.
const MOST_STEPS: usize = 1000;

table! {
    /// The table `[tensors]`.
    pub struct Tensors {
        /// What is done, in order.
        pub step: Vec<Step> => |v| v.list(1..=MOST_STEPS, Step::read),
    }
    check check
}

impl Tensors {
    fn check(&mut self, t: &mut Fields<'_>) {
        self.find_saved();
        if t.is_sound("tensors") {
            self.check_names(t);
        }
    }

    /// Marks files that an earlier step saves before they are read.
    fn find_saved(&mut self) {
        let mut saved = BTreeSet::new();
        for step in &mut self.step {
            let mark = |file: &mut FileName| {
                file.is_saved = saved.contains(&file.text);
                // The file will be in the run's folder, not in the spec's.
                if file.is_saved {
                    file.path = PathBuf::from(&file.text);
                }
            };
            match &mut step.op {
                StepOp::Load(load) => mark(&mut load.file),
                StepOp::Net(net) => {
                    if let Start::Parameters(file) = &mut net.start {
                        mark(file);
                    }
                }
                StepOp::Save(save) => {
                    saved.insert(save.file.clone());
                }
                _ => {}
            }
        }
    }

    /// Every name is defined once, and before it is used.
    fn check_names(&self, t: &mut Fields<'_>) {
        let mut known: BTreeSet<String> = BTreeSet::new();
        let mut nets: BTreeSet<String> = BTreeSet::new();
        let mut files: BTreeSet<&str> = BTreeSet::new();
        // Names of steps that declare an error, so that they make no tensor.
        let mut declared: BTreeSet<&str> = BTreeSet::new();
        for (i, step) in self.step.iter().enumerate() {
            let at = |key: &str| format!("tensors.step.{i}.{key}");
            for (key, name) in step.op.operands() {
                let is_net = matches!(&step.op, StepOp::Save(save) if matches!(save.what, Saved::Net(_)));
                let there = if is_net { &nets } else { &known };
                if !there.contains(name) {
                    let what = if is_net { "net" } else { "tensor" };
                    let [message, hint] = unknown(what, name, there, declared.contains(name));
                    t.report(&at(&key), message, &hint);
                }
            }
            if let StepOp::Save(save) = &step.op
                && !files.insert(&save.file)
            {
                let message = format!("`{}` is saved twice", save.file);
                t.report(&at("save.file"), message, "give each its own name: nothing is overwritten");
            }
            let Some(name) = &step.name else { continue };
            // A step that is expected to fail defines no name.
            if step.expect.is_some() {
                declared.insert(name);
                continue;
            }
            if !known.insert(name.clone()) {
                let message = format!("`{name}` is the name of an earlier step's tensor");
                t.report(&at("name"), message, "give each tensor its own name");
            }
            if let StepOp::Net(net) = &step.op {
                nets.insert(name.clone());
                known.extend(net.parameter_names().map(|own| format!("{name}.{own}")));
            }
        }
    }
}

/// The message about a tensor or net that no earlier step made, and the way out.
fn unknown(what: &str, name: &str, there: &BTreeSet<String>, is_declared: bool) -> [String; 2] {
    if is_declared {
        let message = format!(
            "there is no {what} `{name}`: its step declares by `expect` that it fails, so it makes none"
        );
        let hint = "remove `expect` there if that step is to succeed, or use another tensor here";
        return [message, hint.to_owned()];
    }
    let names = || there.iter().map(String::as_str);
    let hint = match suggest::nearest(name, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if there.is_empty() => format!("no {what} was made before this step"),
        None => format!("made before this step: {}", suggest::listing(names(), "and")),
    };
    [format!("there is no {what} `{name}` yet"), hint]
}

impl super::steps::Net {
    /// Names such as `0.weight` and `0.bias`.
    pub fn parameter_names(&self) -> impl Iterator<Item = String> {
        let named = |(i, layer): (usize, &crate::Layer)| {
            layer.parameters(1).into_iter().map(move |parameter| format!("{i}.{}", parameter.name))
        };
        self.layers.iter().enumerate().flat_map(named)
    }
}
