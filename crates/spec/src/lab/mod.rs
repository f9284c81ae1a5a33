//! Specs of the lab: experiments on the machine itself, `kind = "matmul"`, `"transfer"` or `"tensors"`.

mod bytes;
mod devices;
mod dtype;
mod matmul;
mod numbers;
mod read_steps;
mod steps;
mod tensors;
mod transfer;

pub use devices::LabDevices;
pub use dtype::{DType, Scalar};
pub use matmul::{FEWEST_PRODUCTS, LabLogging, Matmul, Norm, Operands, Order};
pub use numbers::Numbers;
pub use steps::{Expect, FileName, Load, Net, Save, Saved, Start, Step, StepOp};
pub use tensors::Tensors;
pub use transfer::{Direction, Memory, Transfer};

use serde::Serialize;

use super::{
    Kind, read_name, read_seed,
    reader::{Fields, Read, Words},
};

/// One trial of a lab, with every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabSpec {
    /// Names the folder of the runs; the file's stem by default.
    pub name: String,
    /// Free text, stored with the run.
    pub description: String,
    /// The source of every random number.
    pub seed: u64,
    /// What is run.
    pub kind: Kind,
    /// The devices that it runs on.
    pub devices: LabDevices,
    /// The experiment itself.
    #[serde(flatten)]
    pub lab: Lab,
    /// When results leave the device; `None` for kinds that log nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logging: Option<LabLogging>,
}

/// The experiment, serialized under the name of its table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lab {
    /// Matrix products.
    Matmul(Matmul),
    /// Copies.
    Transfer(Transfer),
    /// Tensors, step by step.
    Tensors(Tensors),
}

/// Tables that only apply to training.
const OF_TRAINING: [&str; 6] = ["data", "model", "optimizer", "schedule", "trainer", "checkpoint"];

impl LabSpec {
    /// Reads a trial of this kind.
    pub(super) fn read(t: &mut Fields<'_>, kind: Kind) -> Self {
        let name = t.optional("name", "names the folder of the runs (the file's stem)", read_name);
        let description =
            t.default("description", "free text, kept with the run", String::new(), |v| v.string());
        let seed = t.default("seed", "the source of every random number", 0, read_seed);
        t.required("kind", "what is run", |v| {
            let own: Vec<_> = Kind::WORDS.iter().filter(|word| word.value == kind).cloned().collect();
            v.word(&own)
        });
        let devices = t.section("devices", "where it runs; absent, the CPU", LabDevices::read);
        let mut logging = None;
        let lab = match kind {
            Kind::Matmul => {
                logging = Some(t.section("logging", "when norms leave the device", LabLogging::read));
                Lab::Matmul(t.section("matmul", "matrix products and their norms", Matmul::read))
            }
            Kind::Transfer => Lab::Transfer(t.section("transfer", "copies between memories", Transfer::read)),
            Kind::Train | Kind::Tensors => {
                Lab::Tensors(t.required("tensors", "tensors, step by step", Tensors::read))
            }
        };
        for other in Kind::LABS.into_iter().filter(|other| *other != kind) {
            t.foreign(other.name(), other.name(), kind.name());
        }
        if kind != Kind::Matmul {
            t.foreign("logging", "train", kind.name());
        }
        OF_TRAINING.iter().for_each(|table| t.foreign(table, "train", kind.name()));
        super::tables_of_sweeps(t);
        Self { name: name.unwrap_or_default(), description, seed, kind, devices, lab, logging }
    }

    /// The spec as TOML that reads back the same from any folder.
    pub fn to_toml(&self) -> String {
        super::resolved::to_toml(self)
    }

    /// First 8 hex digits of the spec's hash.
    pub fn hash8(&self) -> String {
        super::resolved::hash8(self)
    }
}
