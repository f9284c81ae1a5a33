//! `sweep.share`: which trials may run side by side on one GPU.

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::{
    reader::{Item, Read},
    tree::Value,
};

/// Which trials may share a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuSharing {
    /// None: each has it to itself.
    Never,
    /// Trials that take one block of it each, a small part.
    Auto,
    /// All.
    Always,
}

impl GpuSharing {
    /// Whether a trial may run beside others of its kind, given whether it takes one block.
    pub fn allows(self, is_one_block: bool) -> bool {
        self == Self::Always || self == Self::Auto && is_one_block
    }
}

impl Serialize for GpuSharing {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => s.serialize_str("auto"),
            _ => s.serialize_bool(*self == Self::Always),
        }
    }
}

impl Read for GpuSharing {
    fn read(v: Item<'_>) -> Self {
        let schema = json!({ "oneOf": [{ "type": "boolean" }, { "const": "auto" }] });
        v.custom("true, false or `auto`", schema, Self::Auto, |v| match v {
            Value::Boolean(true) => Some(Self::Always),
            Value::Boolean(false) => Some(Self::Never),
            Value::String(s) if s == "auto" => Some(Self::Auto),
            _ => None,
        })
    }
}
