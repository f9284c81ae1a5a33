//! `kind = "transfer"`: how long copies take, by direction, kind of host memory and size.

use serde::Serializer;

use super::bytes;
use crate::{
    reader::{Fields, Item, table, words},
    tree::Value,
};

/// Maximum bytes of a copy; more are taken for a typo.
const MOST_BYTES: u64 = 1 << 36;

table! {
    /// The table `[transfer]`.
    pub struct Transfer {
        /// Bytes of a copy: "4KiB", "1MiB", or a number.
        pub sizes: Vec<u64> [serialize_with = "write_sizes"] = vec![4 << 10, 64 << 10, 1 << 20, 16 << 20]
            => |v| v.list(1..=1000, read_size),
        /// From where to where.
        pub directions: Vec<Direction> =
            vec![Direction::HostToDevice, Direction::DeviceToHost, Direction::DeviceToDevice]
            => |v| v.list(1..=3, Direction::read),
        /// Kind of host memory. `pageable`: ordinary; `pinned`: page-locked by the GPU's driver.
        pub memory: Vec<Memory> = vec![Memory::Pageable, Memory::Pinned] => |v| v.list(1..=2, Memory::read),
        /// Copies of each size.
        pub count: u64 = 100 => |v| v.integer(1..=1_000_000),
    }
    check check
}

words! {
    /// From where to where.
    pub enum Direction {
        /// Host to device.
        HostToDevice = "h2d",
        /// Device to host.
        DeviceToHost = "d2h",
        /// Device to device: to every other one, or within the only one.
        DeviceToDevice = "d2d",
    }
}

words! {
    /// Kind of host memory. `pageable`: ordinary; `pinned`: page-locked by the GPU's driver.
    pub enum Memory {
        /// As any program has it.
        Pageable = "pageable",
        /// Locked in place by a GPU's driver.
        Pinned = "pinned",
    }
}

fn write_sizes<S: Serializer>(sizes: &[u64], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(sizes.iter().map(|size| bytes::write(*size)))
}

impl Transfer {
    fn check(&mut self, t: &mut Fields<'_>) {
        let sizes: Vec<String> = self.sizes.iter().map(|size| bytes::write(*size)).collect();
        t.refuse_repeated("sizes", &sizes, "name each size once");
        t.refuse_repeated("directions", &self.directions, "name each direction once");
        t.refuse_repeated("memory", &self.memory, "name each kind once");
    }
}

fn read_size(v: Item<'_>) -> u64 {
    let text = serde_json::json!({ "type": "string", "pattern": bytes::PATTERN });
    let number =
        serde_json::json!({ "type": "integer", "minimum": 4, "maximum": MOST_BYTES, "multipleOf": 4 });
    let schema = serde_json::json!({ "anyOf": [text, number] });
    let hint = v.text().and_then(spelling).unwrap_or_else(|| {
        format!("f32 has 4 bytes, so a size is a multiple of 4, from 4B to {}", bytes::write(MOST_BYTES))
    });
    let expected = format!("a size up to {}, such as `4KiB`", bytes::write(MOST_BYTES));
    v.custom_hinted(&expected, schema, 4, Some(hint), |v| {
        let size = match v {
            Value::String(text) => bytes::parse(text),
            Value::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        size.filter(|size| is_size(*size))
    })
}

fn is_size(bytes: u64) -> bool {
    bytes.is_multiple_of(4) && (4..=MOST_BYTES).contains(&bytes)
}

/// How to write a text that is no size; `None` if it is one, of a number of bytes that cannot be.
fn spelling(text: &str) -> Option<String> {
    if bytes::parse(text).is_some() {
        return None;
    }
    let meant: Vec<(String, u64)> = bytes::meant(text)
        .into_iter()
        .filter_map(|text| bytes::parse(&text).map(|bytes| (text, bytes)))
        .collect();
    let possible: Vec<_> = meant.iter().filter(|(_, bytes)| is_size(*bytes)).collect();
    match &possible[..] {
        [] if meant.is_empty() => Some("units are `B`, `kB`, `MB`, `GB`, `KiB`, `MiB` and `GiB`".to_owned()),
        [] => None,
        [(one, _)] => Some(format!("write `{one}`")),
        several => {
            let each = several
                .iter()
                .map(|(text, bytes)| format!("`{text}` for {} bytes", runner_base::units::count(*bytes)));
            Some(format!("write {}", each.collect::<Vec<_>>().join(" or ")))
        }
    }
}
