//! Shapes and element types.

use std::fmt;

/// Lengths of the axes, row-major. No axes: one element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape(Vec<usize>);

impl Shape {
    pub fn new(axes: &[usize]) -> Self {
        Self(axes.to_vec())
    }

    pub fn axes(&self) -> &[usize] {
        &self.0
    }

    /// The number of elements; `None` on overflow.
    pub fn elements(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |n, axis| n.checked_mul(*axis)).filter(|n| n.checked_mul(8).is_some())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE single precision.
    F32,
}

impl DType {
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
        }
    }

    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_count_and_print() {
        assert_eq!(Shape::new(&[2, 3]).to_string(), "[2, 3]");
        let elements = |axes: &[usize]| Shape::new(axes).elements();
        assert_eq!((elements(&[]), elements(&[2, 3]), elements(&[0, 5])), (Some(1), Some(6), Some(0)));
        assert_eq!(elements(&[usize::MAX, 2]), None);
    }
}
