//! `kind = "transfer"`: how long copies take, by direction, kind of host memory and size.

use serde::{Serialize, Serializer};

use super::bytes;
use crate::spec::{
    reader::{Fields, Item, Word},
    tree::Value,
};

/// Bytes of a copy at most: more is a slip.
const MOST_BYTES: u64 = 1 << 36;

/// The table `[transfer]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Transfer {
    /// Bytes of a copy.
    #[serde(serialize_with = "write_sizes")]
    pub sizes: Vec<u64>,
    /// From where to where.
    pub directions: Vec<Direction>,
    /// What the host's memory is to the device.
    pub memory: Vec<Memory>,
    /// Copies of each size.
    pub count: u64,
}

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Direction {
    /// Host to device.
    #[serde(rename = "h2d")]
    HostToDevice,
    /// Device to host.
    #[serde(rename = "d2h")]
    DeviceToHost,
    /// Device to device: to every other one, or within the only one.
    #[serde(rename = "d2d")]
    DeviceToDevice,
}

impl Direction {
    /// `h2d`, ...
    pub fn name(self) -> &'static str {
        match self {
            Self::HostToDevice => "h2d",
            Self::DeviceToHost => "d2h",
            Self::DeviceToDevice => "d2d",
        }
    }
}

/// What the host's memory is to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// As any program has it.
    Pageable,
    /// Locked in place by a GPU's driver.
    Pinned,
}

impl Memory {
    /// `pageable`, `pinned`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pageable => "pageable",
            Self::Pinned => "pinned",
        }
    }
}

fn write_sizes<S: Serializer>(sizes: &[u64], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(sizes.iter().map(|size| bytes::write(*size)))
}

impl Transfer {
    pub(super) fn read(t: &mut Fields<'_>) -> Self {
        let shown = vec!["4KiB", "64KiB", "1MiB", "16MiB"];
        let sizes = t.optional_or("sizes", "bytes of a copy: \"4KiB\", \"1MiB\", or a number", shown, |v| {
            v.list(1..=1000, read_size)
        });
        let sizes = sizes.unwrap_or_else(|| vec![4 << 10, 64 << 10, 1 << 20, 16 << 20]);
        let directions = {
            use Direction::*;
            t.default(
                "directions",
                "from where to where",
                vec![HostToDevice, DeviceToHost, DeviceToDevice],
                |v| {
                    v.list(1..=3, |v| {
                        v.word(
                            &[
                                Word { name: "h2d", value: HostToDevice, doc: "host to device" },
                                Word { name: "d2h", value: DeviceToHost, doc: "device to host" },
                                Word { name: "d2d", value: DeviceToDevice, doc: "device to device" },
                            ],
                            &[],
                        )
                    })
                },
            )
        };
        let memory = t.default(
            "memory",
            "what the host's memory is to the device",
            vec![Memory::Pageable, Memory::Pinned],
            |v| {
                v.list(1..=2, |v| {
                    v.word(
                        &[
                            Word { name: "pageable", value: Memory::Pageable, doc: "as any program has it" },
                            Word { name: "pinned", value: Memory::Pinned, doc: "locked by a GPU's driver" },
                        ],
                        &[],
                    )
                })
            },
        );
        for (i, size) in sizes.iter().enumerate() {
            if sizes[..i].contains(size) {
                t.refuse_item(
                    "sizes",
                    i,
                    format!("{} is named twice", bytes::write(*size)),
                    "name each size once",
                );
            }
        }
        for (i, direction) in directions.iter().enumerate() {
            if directions[..i].contains(direction) {
                let message = format!("`{}` is named twice", direction.name());
                t.refuse_item("directions", i, message, "name each direction once");
            }
        }
        for (i, kind) in memory.iter().enumerate() {
            if memory[..i].contains(kind) {
                let message = format!("`{}` is named twice", kind.name());
                t.refuse_item("memory", i, message, "name each kind once");
            }
        }
        let count = t.default("count", "copies of each size", 100, |v| v.integer(1..=1_000_000));
        Self { sizes, directions, memory, count }
    }
}

fn read_size(v: Item<'_>) -> u64 {
    let text = serde_json::json!({ "type": "string", "pattern": bytes::PATTERN });
    let number =
        serde_json::json!({ "type": "integer", "minimum": 4, "maximum": MOST_BYTES, "multipleOf": 4 });
    let schema = serde_json::json!({ "anyOf": [text, number] });
    let hint =
        format!("f32 has 4 bytes, so a size is a multiple of 4, from 4B to {}", bytes::write(MOST_BYTES));
    v.custom_hinted("a size, such as `4KiB`", schema, 4, Some(hint), |v| {
        let size = match v {
            Value::String(text) => bytes::parse(text),
            Value::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        size.filter(|size| size.is_multiple_of(4) && (4..=MOST_BYTES).contains(size))
    })
}
