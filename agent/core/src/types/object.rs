//! One small reflection over the API types: every struct lists its fields once, and reading, writing and walking
//! are single functions over that list. Derived serde code for all of v1 would be several hundred kilobytes for
//! every deserializer; this is one driver for each.
//!
//! Rules that hold for every type: `null` means absent; a text is not accepted for a number nor a number for a
//! text; an unknown key is handed to `deserialize_ignored_any` (a deserializer can report it, and gets the list of
//! known names through `deserialize_struct`); a key given twice is an error.
use alloc::{boxed::Box, collections::BTreeMap, string::String, vec::Vec};
use core::fmt;

/// The name of an API type and its fields, in the order of the API.
#[derive(Debug)]
pub struct Shape {
    /// Name of the type in the API, for messages.
    pub name: &'static str,
    /// Names of the fields as they are written in a manifest.
    pub fields: &'static [&'static str],
    /// Whether the field of the same position is written even when it is empty, as the API server does.
    pub always: &'static [bool],
}

/// An API struct whose fields can be reached by position. Implemented by [`object!`](crate::object).
pub trait Object {
    /// Names of the fields.
    fn shape(&self) -> &'static Shape;
    /// The field at a position of [`Shape::fields`].
    fn at(&self, index: usize) -> Option<&dyn Field>;
    /// The same, to be changed.
    fn at_mut(&mut self, index: usize) -> Option<&mut dyn Field>;
}

/// Anything that can stand in a field.
pub trait Field {
    /// What is in it.
    fn view(&self) -> View<'_>;
    /// The same, to be filled.
    fn edit(&mut self) -> Edit<'_>;
}

/// Read access to a field.
pub enum View<'a> {
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// A text.
    Str(&'a str),
    /// A value that is written as text: a quantity, a time, bytes in base64.
    Text(&'a dyn fmt::Display),
    /// A struct that is part of its parent and is always written.
    Object(&'a dyn Object),
    /// A list.
    List(&'a dyn List),
    /// A map with text keys.
    Map(&'a dyn Map),
    /// A value that may be absent.
    Opt(Option<&'a dyn Field>),
}

/// Write access to a field.
pub enum Edit<'a> {
    /// A boolean.
    Bool(&'a mut bool),
    /// A number of 32 bits.
    I32(&'a mut i32),
    /// A number of 64 bits.
    I64(&'a mut i64),
    /// A number with a fraction.
    F64(&'a mut f64),
    /// A text.
    Str(&'a mut String),
    /// A value with its own reading of a scalar.
    Scalar(&'a mut dyn Scalar),
    /// A struct.
    Object(&'a mut dyn Object),
    /// A list.
    List(&'a mut dyn ListMut),
    /// A map.
    Map(&'a mut dyn MapMut),
    /// A value that may be absent.
    Opt(&'a mut dyn OptMut),
}

/// A scalar as it stands in the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Literal<'a> {
    /// A text.
    Str(&'a str),
    /// A whole number.
    Int(i128),
    /// A number with a fraction.
    Float(f64),
    /// A boolean.
    Bool(bool),
}

/// Why a scalar was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScalarError {
    /// A value of another kind is wanted.
    Kind,
    /// The kind is right, the value is not; the text says why and names the value.
    Value(String),
}

/// A type with its own reading of a scalar, such as a quantity.
pub trait Scalar {
    /// What is accepted, for messages: "a quantity such as 100m or 64Mi".
    fn expects(&self) -> &'static str;
    /// Takes the value over.
    fn set(&mut self, literal: Literal<'_>) -> Result<(), ScalarError>;
}

/// Read access to a list.
pub trait List {
    /// Number of elements.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The element at a position.
    fn item(&self, index: usize) -> Option<&dyn Field>;
}

/// Write access to a list.
pub trait ListMut {
    /// Adds an empty element and gives it out.
    fn push(&mut self) -> Option<&mut dyn Field>;
}

/// Read access to a map.
pub trait Map {
    /// Whether there is no entry.
    fn is_empty(&self) -> bool;
    /// Calls for every entry in the order of the keys, until one answers false.
    fn each(&self, entry: &mut dyn FnMut(&str, &dyn Field) -> bool);
}

/// Write access to a map.
pub trait MapMut {
    /// A new empty entry; nothing if the key is there already.
    fn insert(&mut self, key: String) -> Option<&mut dyn Field>;
}

/// Write access to a value that may be absent.
pub trait OptMut {
    /// Makes it present and empty.
    fn fill(&mut self) -> &mut dyn Field;
    /// Makes it absent.
    fn clear(&mut self);
}

impl View<'_> {
    /// Whether the API leaves the field out: zero, false, no text, no element, absent. A struct inside its parent
    /// is never left out.
    pub fn is_empty(&self) -> bool {
        match self {
            View::Bool(b) => !b,
            View::Int(i) => *i == 0,
            View::Float(f) => *f == 0.0,
            View::Str(s) => s.is_empty(),
            View::Text(_) | View::Object(_) => false,
            View::List(l) => l.is_empty(),
            View::Map(m) => m.is_empty(),
            View::Opt(o) => o.is_none(),
        }
    }
}

macro_rules! plain_fields {
    ($($ty:ty, $edit:ident, $view:ident, $map:expr;)*) => { $(
        impl Field for $ty {
            fn view(&self) -> View<'_> {
                View::$view($map(self))
            }
            fn edit(&mut self) -> Edit<'_> {
                Edit::$edit(self)
            }
        }
    )* };
}
plain_fields! {
    bool, Bool, Bool, |v: &bool| *v;
    i32, I32, Int, |v: &i32| i64::from(*v);
    i64, I64, Int, |v: &i64| *v;
    f64, F64, Float, |v: &f64| *v;
    String, Str, Str, String::as_str;
}

impl<T: Field> Field for Box<T> {
    fn view(&self) -> View<'_> {
        (**self).view()
    }
    fn edit(&mut self) -> Edit<'_> {
        (**self).edit()
    }
}

impl<T: Field + Default> Field for Option<T> {
    fn view(&self) -> View<'_> {
        View::Opt(self.as_ref().map(|v| v as &dyn Field))
    }
    fn edit(&mut self) -> Edit<'_> {
        Edit::Opt(self)
    }
}

impl<T: Field + Default> OptMut for Option<T> {
    fn fill(&mut self) -> &mut dyn Field {
        self.insert(T::default())
    }
    fn clear(&mut self) {
        *self = None;
    }
}

impl<T: Field + Default> Field for Vec<T> {
    fn view(&self) -> View<'_> {
        View::List(self)
    }
    fn edit(&mut self) -> Edit<'_> {
        Edit::List(self)
    }
}

impl<T: Field> List for Vec<T> {
    fn len(&self) -> usize {
        Vec::len(self)
    }
    fn item(&self, index: usize) -> Option<&dyn Field> {
        self.get(index).map(|v| v as &dyn Field)
    }
}

impl<T: Field + Default> ListMut for Vec<T> {
    fn push(&mut self) -> Option<&mut dyn Field> {
        Vec::push(self, T::default());
        self.last_mut().map(|v| v as &mut dyn Field)
    }
}

impl<T: Field + Default> Field for BTreeMap<String, T> {
    fn view(&self) -> View<'_> {
        View::Map(self)
    }
    fn edit(&mut self) -> Edit<'_> {
        Edit::Map(self)
    }
}

impl<T: Field> Map for BTreeMap<String, T> {
    fn is_empty(&self) -> bool {
        BTreeMap::is_empty(self)
    }
    fn each(&self, entry: &mut dyn FnMut(&str, &dyn Field) -> bool) {
        for (key, value) in self {
            if !entry(key, value) {
                break;
            }
        }
    }
}

impl<T: Field + Default> MapMut for BTreeMap<String, T> {
    fn insert(&mut self, key: String) -> Option<&mut dyn Field> {
        match self.entry(key) {
            alloc::collections::btree_map::Entry::Occupied(_) => None,
            alloc::collections::btree_map::Entry::Vacant(v) => Some(v.insert(T::default())),
        }
    }
}

/// Declares API structs: `field: Type = "nameInTheApi",`, with `always` behind the name of a field that is written
/// even when it is empty. Gives the struct, `Default`, reading, writing and walking.
#[macro_export]
macro_rules! object {
    (@always) => { false };
    (@always always) => { true };
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* $field:ident : $ty:ty = $key:literal $($always:ident)? ),* $(,)?
        }
    )+) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $( $(#[$field_meta])* #[doc = concat!("`", $key, "`")] pub $field: $ty, )*
        }

        impl $crate::types::object::Object for $name {
            fn shape(&self) -> &'static $crate::types::object::Shape {
                const SHAPE: &$crate::types::object::Shape = &$crate::types::object::Shape {
                    name: stringify!($name),
                    fields: &[$($key),*],
                    always: &[$($crate::object!(@always $($always)?)),*],
                };
                SHAPE
            }
            fn at(&self, index: usize) -> Option<&dyn $crate::types::object::Field> {
                let mut _position = 0usize;
                $( if index == _position { return Some(&self.$field); } _position += 1; )*
                None
            }
            fn at_mut(&mut self, index: usize) -> Option<&mut dyn $crate::types::object::Field> {
                let mut _position = 0usize;
                $( if index == _position { return Some(&mut self.$field); } _position += 1; )*
                None
            }
        }

        impl $crate::types::object::Field for $name {
            fn view(&self) -> $crate::types::object::View<'_> {
                $crate::types::object::View::Object(self)
            }
            fn edit(&mut self) -> $crate::types::object::Edit<'_> {
                $crate::types::object::Edit::Object(self)
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::types::wire::write(self, serializer)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let mut value = Self::default();
                $crate::types::wire::read(&mut value, deserializer)?;
                Ok(value)
            }
        }
    )+ };
}
