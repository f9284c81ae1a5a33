//! A value that equal specs keep once.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use serde::{Serialize, Serializer};

use super::reader::{Item, Read};

/// A value that many owners share. One that changes it gets a copy of its own.
#[derive(Clone, Debug, Default)]
pub struct Shared<T>(Arc<T>);

impl<T: PartialEq> Shared<T> {
    /// Takes `other` instead of an own copy, if they are equal; returns whether they are.
    pub fn share_with(&mut self, other: &Self) -> bool {
        let is_equal = self == other;
        if is_equal {
            self.0 = Arc::clone(&other.0);
        }
        is_equal
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

impl<T: Read> Read for Shared<T> {
    fn read(v: Item<'_>) -> Self {
        T::read(v).into()
    }
}
