//! Macros that declare an enum or a table of the spec once. Its type, reader, defaults, JSON Schema,
//! suggestions and serialization are all generated from that. **The doc comment of a field or variant is also
//! its text in the schema.**
//!
//! A type that implements `Read` needs no reader; `=>` names another reader:
//!
//! ```text
//! words!    enum Scaling { Strong = "strong", ... }            one of several strings
//! choices!  enum Layer as "layer" { Relu = "relu", ... }       a string, or a table with one key
//! table!    struct Step { step_size: u64 => count,             a required field
//!                         gamma: f64 = 0.1 => positive,        a field with a default
//!                         loss: Loss, else Loss::Mse,          a default that the schema does not state
//!                         trainer: Trainer [default] }         an optional table
//! ```

/// Declares an enum of strings.
macro_rules! words {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $word:literal),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $($(#[doc = $doc])+ $variant),+ }

        impl $name {
            /// The word in a spec and in the files of a run.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.name())
            }
        }

        impl $crate::reader::Words for $name {
            const WORDS: &'static [$crate::reader::Word<Self>] = &[$(
                $crate::reader::Word { name: $word, value: Self::$variant, doc: concat!($($doc),+) }
            ),+];
        }

        impl $crate::reader::Read for $name {
            fn read(v: $crate::reader::Item<'_>) -> Self {
                v.word(<Self as $crate::reader::Words>::WORDS)
            }
        }
    };
}

/// Declares an enum of choices. The table that has it sets exactly one, by its key. With `as "noun"` the enum
/// is a value: a string, or a table with one key.
macro_rules! choices {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident $(as $noun:literal)? {
            $(
                $(#[doc = $doc:literal])+
                $variant:ident $(($inner:ty))? $({ $($field:tt)* })? = $word:literal $(=> $read:expr)?
            ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        $vis enum $name {
            $($(#[doc = $doc])+ #[serde(rename = $word)] $variant $(($inner))? $({ $($field)* })?),+
        }

        impl $name {
            /// Its key or word in a spec.
            #[allow(dead_code)]
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $word),+ }
            }
        }

        impl $crate::reader::Choices for $name {
            fn choices() -> Vec<$crate::reader::Choice<Self>> {
                vec![$($crate::reader::Choice {
                    name: $word,
                    doc: concat!($($doc),+),
                    how: $crate::reader::choices!(@how $variant $(($inner))? $(=> $read)?),
                }),+]
            }
        }

        $(impl $crate::reader::Read for $name {
            fn read(v: $crate::reader::Item<'_>) -> Self {
                v.variant($noun, &<Self as $crate::reader::Choices>::choices())
            }
        })?
    };
    (@how $variant:ident) => { $crate::reader::How::Word(Self::$variant) };
    (@how $variant:ident ($inner:ty)) => {
        $crate::reader::How::Settings(Box::new(|v| {
            Self::$variant(<$inner as $crate::reader::Read>::read(v))
        }))
    };
    (@how $variant:ident ($inner:ty) => $read:expr) => {
        $crate::reader::How::Settings(Box::new(|v| Self::$variant($read(v))))
    };
    (@how $variant:ident => $read:expr) => { $crate::reader::How::Settings(Box::new($read)) };
}

/// Declares a table. `[flatten]` after a type declared by [`choices!`] puts its keys among the fields; other
/// words in brackets are passed to serde. `check` names a method that checks the fields together.
macro_rules! table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $field_vis:vis $field:ident: $type:ty $([$($serde:tt)+])? $(= $default:expr)? $(=> $read:expr)?
                    $(, else $unstated:expr)?
            ),+ $(,)?
        }
        $(check $check:ident)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        $vis struct $name { $($(#[doc = $doc])+ $(#[serde($($serde)+)])? $field_vis $field: $type),+ }

        impl $crate::reader::Read for $name {
            fn read(v: $crate::reader::Item<'_>) -> Self {
                v.table(|t| {
                    #[allow(unused_mut)]
                    let mut table = Self {
                        $($field: $crate::reader::table!(
                            @field [t, stringify!($field), concat!($($doc),+), $type] [$($($serde)+)?]
                            $(else $unstated)? $(= $default)? $(=> $read)?
                        )),+
                    };
                    $(table.$check(t);)?
                    table
                })
            }
        }
    };
    (@field [$t:ident, $name:expr, $doc:expr, $type:ty] [flatten]) => { $t.one_of::<$type>(None) };
    (@field [$t:ident, $name:expr, $doc:expr, $type:ty] [flatten] = $default:expr) => { $t.one_of(Some($default)) };
    (@field [$t:ident, $name:expr, $doc:expr, $type:ty] [default]) => {
        $t.section($name, $doc, $crate::reader::table!(@read $type))
    };
    (@field [$t:ident, $name:expr, $doc:expr, $type:ty] [$($serde:tt)*] else $unstated:expr $(=> $read:expr)?) => {
        $t.optional($name, $doc, $crate::reader::table!(@read $type $(=> $read)?)).unwrap_or($unstated)
    };
    (@field [$t:ident, $name:expr, $doc:expr, $type:ty] [$($serde:tt)*] $(=> $read:expr)?) => {
        $t.required($name, $doc, $crate::reader::table!(@read $type $(=> $read)?))
    };
    (@field [$t:ident, $name:expr, $doc:expr, $type:ty] [$($serde:tt)*] = $default:expr $(=> $read:expr)?) => {
        $t.default($name, $doc, $default, $crate::reader::table!(@read $type $(=> $read)?))
    };
    (@read $type:ty) => { <$type as $crate::reader::Read>::read };
    (@read $type:ty => $read:expr) => { $read };
}

pub(crate) use {choices, table, words};
