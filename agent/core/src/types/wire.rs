//! The drivers that read and write any API type with any serde format.
use super::object::{Edit, Field, ListMut, Literal, Object, ScalarError, View};
use alloc::string::String;
use core::fmt;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

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
