//! One small reflection over the API types: every struct lists its fields once, and reading, writing and walking
//! are single functions over that list. Derived serde code for all of v1 would be several hundred kilobytes for
//! every deserializer; this is one driver for each.
//!
//! Rules that hold for every type: `null` means absent; a text is not accepted for a number nor a number for a
//! text; an unknown key is handed to `deserialize_ignored_any` (a deserializer can report it, and gets the list of
//! known names through `deserialize_struct`); a key given twice is an error.
use alloc::{boxed::Box, collections::BTreeMap, string::String, vec::Vec};
use core::fmt;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

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

/// Reads an object with any deserializer into its empty value.
pub fn read<'de, D: Deserializer<'de>>(object: &mut dyn Object, deserializer: D) -> Result<(), D::Error> {
    let shape = object.shape();
    deserializer.deserialize_struct(shape.name, shape.fields, FieldVisitor(Edit::Object(object)))
}

/// Writes an object with any serializer, leaving out what the API leaves out.
pub fn write<S: Serializer>(object: &dyn Object, serializer: S) -> Result<S::Ok, S::Error> {
    let shape = object.shape();
    let mut map = serializer.serialize_map(None)?;
    for (index, (name, always)) in shape.fields.iter().zip(shape.always).enumerate() {
        let Some(field) = object.at(index) else { break };
        if *always || !field.view().is_empty() {
            map.serialize_entry(name, &Written(field))?;
        }
    }
    map.end()
}

struct Written<'a>(&'a dyn Field);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.view() {
            View::Bool(b) => serializer.serialize_bool(b),
            View::Int(i) => serializer.serialize_i64(i),
            View::Float(f) => serializer.serialize_f64(f),
            View::Str(s) => serializer.serialize_str(s),
            View::Text(t) => serializer.collect_str(t),
            View::Object(o) => write(o, serializer),
            View::List(l) => {
                let mut seq = serializer.serialize_seq(Some(l.len()))?;
                let mut index = 0;
                while let Some(item) = l.item(index) {
                    seq.serialize_element(&Written(item))?;
                    index += 1;
                }
                seq.end()
            }
            View::Map(m) => {
                let mut map = serializer.serialize_map(None)?;
                let mut result = Ok(());
                m.each(&mut |key, value| {
                    result = map.serialize_entry(key, &Written(value));
                    result.is_ok()
                });
                result?;
                map.end()
            }
            View::Opt(None) => serializer.serialize_none(),
            View::Opt(Some(inner)) => Written(inner).serialize(serializer),
        }
    }
}

struct FieldVisitor<'a>(Edit<'a>);

/// A value of a field, where `null` means "as if it were not there".
impl<'de> DeserializeSeed<'de> for FieldVisitor<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl FieldVisitor<'_> {
    fn scalar<E: de::Error>(self, literal: Literal<'_>) -> Result<(), E> {
        let found = match literal {
            Literal::Str(s) => Unexpected::Str(s),
            Literal::Int(i) => match (i64::try_from(i), u64::try_from(i)) {
                (Ok(i), _) => Unexpected::Signed(i),
                (_, Ok(u)) => Unexpected::Unsigned(u),
                _ => Unexpected::Other("a number beyond 64 bits"),
            },
            Literal::Float(f) => Unexpected::Float(f),
            Literal::Bool(b) => Unexpected::Bool(b),
        };
        match (self.0, literal) {
            (Edit::Bool(slot), Literal::Bool(b)) => *slot = b,
            (Edit::I32(slot), Literal::Int(i)) => {
                *slot = i32::try_from(i).map_err(|_| E::invalid_value(found, &"a number of 32 bits"))?;
            }
            (Edit::I64(slot), Literal::Int(i)) => {
                *slot = i64::try_from(i).map_err(|_| E::invalid_value(found, &"a number of 64 bits"))?;
            }
            (Edit::F64(slot), Literal::Float(f)) => *slot = f,
            (Edit::F64(slot), Literal::Int(i)) => *slot = i as f64,
            (Edit::Str(slot), Literal::Str(s)) => *slot = String::from(s),
            (Edit::Scalar(slot), literal) => match slot.set(literal) {
                Ok(()) => {}
                Err(ScalarError::Kind) => return Err(E::invalid_type(found, &slot.expects())),
                Err(ScalarError::Value(text)) => return Err(E::custom(text)),
            },
            (Edit::Opt(slot), literal) => return FieldVisitor(slot.fill().edit()).scalar(literal),
            (other, _) => return Err(E::invalid_type(found, &FieldVisitor(other))),
        }
        Ok(())
    }

    fn hinted<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.0 {
            Edit::Opt(slot) => FieldVisitor(slot.fill().edit()).hinted(deserializer),
            Edit::Bool(_) => deserializer.deserialize_bool(self),
            Edit::I32(_) | Edit::I64(_) => deserializer.deserialize_i64(self),
            Edit::F64(_) => deserializer.deserialize_f64(self),
            Edit::Str(_) => deserializer.deserialize_str(self),
            Edit::Scalar(_) => deserializer.deserialize_any(self),
            Edit::List(_) => deserializer.deserialize_seq(self),
            Edit::Map(_) => deserializer.deserialize_map(self),
            Edit::Object(object) => read(object, deserializer),
        }
    }
}

impl<'de> Visitor<'de> for FieldVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Edit::Bool(_) => "true or false",
            Edit::I32(_) | Edit::I64(_) => "a whole number",
            Edit::F64(_) => "a number",
            Edit::Str(_) => "a text",
            Edit::Scalar(s) => s.expects(),
            Edit::List(_) => "a list",
            Edit::Map(_) => "a map",
            Edit::Object(o) => return write!(f, "a map with the fields of {}", o.shape().name),
            Edit::Opt(_) => "a value",
        })
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<(), E> {
        self.scalar(Literal::Bool(v))
    }
    fn visit_i64<E: de::Error>(self, v: i64) -> Result<(), E> {
        self.scalar(Literal::Int(v.into()))
    }
    fn visit_u64<E: de::Error>(self, v: u64) -> Result<(), E> {
        self.scalar(Literal::Int(v.into()))
    }
    fn visit_i128<E: de::Error>(self, v: i128) -> Result<(), E> {
        self.scalar(Literal::Int(v))
    }
    fn visit_f64<E: de::Error>(self, v: f64) -> Result<(), E> {
        self.scalar(Literal::Float(v))
    }
    fn visit_str<E: de::Error>(self, v: &str) -> Result<(), E> {
        self.scalar(Literal::Str(v))
    }
    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.hinted(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Edit::List(list) = self.0 else {
            return Err(de::Error::invalid_type(Unexpected::Seq, &self));
        };
        while let Some(()) = seq.next_element_seed(NextItem(list))? {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        match self.0 {
            Edit::Object(object) => {
                let shape = object.shape();
                // 256 fields are more than any API struct has
                let mut seen = [0u64; 4];
                while let Some(index) = map.next_key_seed(Key(shape.fields))? {
                    let Some((index, field)) = index.and_then(|i| Some((i, object.at_mut(i)?))) else {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    };
                    let bit = 1u64 << (index % 64);
                    if let Some(word) = seen.get_mut(index / 64) {
                        if *word & bit != 0 {
                            let name = shape.fields.get(index).copied().unwrap_or_default();
                            return Err(de::Error::duplicate_field(name));
                        }
                        *word |= bit;
                    }
                    map.next_value_seed(FieldVisitor(field.edit()))?;
                }
                Ok(())
            }
            Edit::Map(entries) => {
                while let Some(key) = map.next_key::<String>()? {
                    // kept for the message: the entry takes the key
                    let name = key.clone();
                    let Some(value) = entries.insert(key) else {
                        return Err(de::Error::custom(format_args!("the key '{name}' is given twice")));
                    };
                    map.next_value_seed(FieldVisitor(value.edit()))?;
                }
                Ok(())
            }
            other => Err(de::Error::invalid_type(Unexpected::Map, &FieldVisitor(other))),
        }
    }
}

struct NextItem<'a>(&'a mut dyn ListMut);

impl<'de> DeserializeSeed<'de> for NextItem<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.0.push() {
            Some(item) => FieldVisitor(item.edit()).deserialize(deserializer),
            None => Err(de::Error::custom("the list takes no more elements")),
        }
    }
}

/// A key of a struct: its position, or nothing if it is unknown.
struct Key(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<usize>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Option<usize>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }
    fn visit_str<E: de::Error>(self, v: &str) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|name| *name == v))
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
                $crate::types::object::write(self, serializer)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let mut value = Self::default();
                $crate::types::object::read(&mut value, deserializer)?;
                Ok(value)
            }
        }
    )+ };
}
