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
        for (i, step) in self.step.iter().enumerate() {
            let at = |key: &str| format!("tensors.step.{i}.{key}");
            for (key, name) in step.op.operands() {
                let is_net = matches!(&step.op, StepOp::Save(save) if matches!(save.what, Saved::Net(_)));
                let there = if is_net { &nets } else { &known };
                if !there.contains(name) {
                    let what = if is_net { "net" } else { "tensor" };
                    let hint = match suggest::nearest(name, there.iter().map(String::as_str)) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None if there.is_empty() => format!("no {what} was made before this step"),
                        None => {
                            let names = suggest::listing(there.iter().map(String::as_str), "and");
                            format!("made before this step: {names}")
                        }
                    };
                    t.report(&at(&key), format!("there is no {what} `{name}` yet"), &hint);
                }
            }
            if let StepOp::Save(save) = &step.op
                && !files.insert(&save.file)
            {
                let message = format!("`{}` is saved twice", save.file);
                t.report(&at("save.file"), message, "give each its own name: nothing is overwritten");
            }
            // A step that is expected to fail defines no name.
            let Some(name) = step.name.as_ref().filter(|_| step.expect.is_none()) else { continue };
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

impl super::steps::Net {
    /// Names such as `0.weight` and `0.bias`.
    pub fn parameter_names(&self) -> impl Iterator<Item = String> {
        let named = |(i, layer): (usize, &crate::Layer)| {
            layer.parameters(1).into_iter().map(move |parameter| format!("{i}.{}", parameter.name))
        };
        self.layers.iter().enumerate().flat_map(named)
    }
}
