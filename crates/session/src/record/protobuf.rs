//! Writes protocol buffers: <https://protobuf.dev/programming-guides/encoding/>.

/// A message, built field by field in the order of its numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message(Vec<u8>);

/// How a field's value is encoded.
#[derive(Clone, Copy)]
enum Wire {
    Varint = 0,
    Eight = 1,
    Bytes = 2,
    Four = 5,
}

impl Message {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn with_integer(mut self, field: u8, value: i64) -> Self {
        self.begin(field, Wire::Varint);
        self.varint(value as u64);
        self
    }

    /// Integers of a repeated field; none if there are none.
    pub fn with_integers(self, field: u8, values: impl IntoIterator<Item = i64>) -> Self {
        let mut packed = Self::default();
        values.into_iter().for_each(|value| packed.varint(value as u64));
        if packed.0.is_empty() { self } else { self.with_message(field, &packed) }
    }

    pub fn with_float(mut self, field: u8, value: f32) -> Self {
        self.begin(field, Wire::Four);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn with_double(mut self, field: u8, value: f64) -> Self {
        self.begin(field, Wire::Eight);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Left out if it is empty, which means the same.
    pub fn with_text(self, field: u8, text: &str) -> Self {
        if text.is_empty() { self } else { self.with_bytes(field, text.as_bytes()) }
    }

    pub fn with_bytes(mut self, field: u8, bytes: &[u8]) -> Self {
        self.begin(field, Wire::Bytes);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    pub fn with_message(self, field: u8, message: &Self) -> Self {
        self.with_bytes(field, &message.0)
    }

    /// The messages of a repeated field.
    pub fn with_messages<'m>(self, field: u8, messages: impl IntoIterator<Item = &'m Self>) -> Self {
        messages.into_iter().fold(self, |all, message| all.with_message(field, message))
    }

    fn begin(&mut self, field: u8, wire: Wire) {
        self.varint(u64::from(field) << 3 | wire as u64);
    }

    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the specification, and one by hand.
    #[test]
    fn bytes_are_those_of_the_specification() {
        let message = Message::default;
        assert_eq!(message().with_integer(1, 150).bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(message().with_integer(1, -2).bytes(), [&[0x08, 0xfe][..], &[0xff; 8], &[0x01]].concat());
        assert_eq!(message().with_text(2, "testing").bytes(), b"\x12\x07testing");
        assert_eq!(message().with_text(2, ""), message());
        assert_eq!(message().with_bytes(2, b"").bytes(), [0x12, 0x00]);
        let inner = message().with_integer(1, 150);
        assert_eq!(message().with_message(3, &inner).bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let packed = message().with_integers(6, [3, 270, 86942]);
        assert_eq!(packed.bytes(), [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
        assert_eq!(message().with_integers(6, []), message());
        assert_eq!(message().with_float(20, 1.0).bytes(), [0xa5, 0x01, 0, 0, 0x80, 0x3f]);
        assert_eq!(message().with_double(1, -2.0).bytes(), [0x09, 0, 0, 0, 0, 0, 0, 0, 0xc0]);
    }
}
