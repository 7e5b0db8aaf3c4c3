//! The encoder of ordered keys.

use bytes::Bytes;
use serde::ser::{Error as _, Impossible, Serialize, SerializeSeq, Serializer};

use super::KeyError;
use crate::error::Refusal;

/// Encodes a key so that the bytes have the order of the keys.
///
/// | type | bytes |
/// |---|---|
/// | `u8` to `u128` | big-endian |
/// | `i8` to `i128` | big-endian with the sign bit flipped |
/// | `bool`, `char` | as `u8`, `u32` |
/// | `str`, bytes | the bytes, each 0 followed by 255, and 0 0 at the end |
/// | `Option` | 0, or 1 and the value |
/// | tuple, struct, array | the fields, one after another |
/// | sequence such as `Vec` | before each element a 1, and 0 at the end |
/// | enum | the index of the variant as `u32`, then its fields |
///
/// Floating-point numbers and maps have no total order and are refused.
///
/// # Errors
/// The type holds a number with a fraction, or a map.
///
/// ```
/// use dapple_store::ordered_key;
///
/// assert!(ordered_key(&("ann", 2u64))? < ordered_key(&("ann", 10u64))?);
/// assert!(ordered_key(&-5i32)? < ordered_key(&3i32)?);
/// assert!(ordered_key(&1.5f64).is_err());
/// # Ok::<(), dapple_store::Refusal>(())
/// ```
pub fn ordered_key<T: Serialize + ?Sized>(key: &T) -> Result<Bytes, Refusal> {
    let mut encoder = Encoder(Vec::new());
    key.serialize(&mut encoder)?;
    Ok(encoder.0.into())
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn terminated(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0.push(*byte);
            if *byte == 0 {
                self.0.push(255);
            }
        }
        self.0.extend([0, 0]);
    }
}

macro_rules! numbers {
    ($($method:ident $type:ty, $flip:expr;)*) => {$(
        fn $method(self, value: $type) -> Result<(), KeyError> {
            self.0.extend((value ^ $flip).to_be_bytes());
            Ok(())
        }
    )*};
}

impl<'a> Serializer for &'a mut Encoder {
    type Ok = ();
    type Error = KeyError;
    type SerializeSeq = Elements<'a>;
    type SerializeTuple = &'a mut Encoder;
    type SerializeTupleStruct = &'a mut Encoder;
    type SerializeTupleVariant = &'a mut Encoder;
    type SerializeMap = Impossible<(), KeyError>;
    type SerializeStruct = &'a mut Encoder;
    type SerializeStructVariant = &'a mut Encoder;

    numbers! {
        serialize_u8 u8, 0;
        serialize_u16 u16, 0;
        serialize_u32 u32, 0;
        serialize_u64 u64, 0;
        serialize_u128 u128, 0;
        serialize_i8 i8, i8::MIN;
        serialize_i16 i16, i16::MIN;
        serialize_i32 i32, i32::MIN;
        serialize_i64 i64, i64::MIN;
        serialize_i128 i128, i128::MIN;
    }

    fn serialize_bool(self, value: bool) -> Result<(), KeyError> {
        self.serialize_u8(value.into())
    }

    fn serialize_char(self, value: char) -> Result<(), KeyError> {
        self.serialize_u32(value.into())
    }

    fn serialize_f32(self, _: f32) -> Result<(), KeyError> {
        Err(KeyError::custom("a floating-point number cannot be part of an ordered key: it has no total order"))
    }

    fn serialize_f64(self, _: f64) -> Result<(), KeyError> {
        self.serialize_f32(0.0)
    }

    fn serialize_str(self, value: &str) -> Result<(), KeyError> {
        self.serialize_bytes(value.as_bytes())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), KeyError> {
        self.terminated(value);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), KeyError> {
        self.serialize_u8(0)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), KeyError> {
        self.serialize_bool(true)?;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), KeyError> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), KeyError> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Result<(), KeyError> {
        self.serialize_u32(index)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), KeyError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), KeyError> {
        self.serialize_u32(index)?;
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Elements<'a>, KeyError> {
        Ok(Elements(self))
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, KeyError> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, KeyError> {
        Ok(self)
    }

    fn serialize_tuple_variant(self, _: &'static str, index: u32, _: &'static str, _: usize) -> Result<Self, KeyError> {
        self.serialize_u32(index)?;
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, KeyError> {
        Err(KeyError::custom("a map cannot be part of an ordered key"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, KeyError> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, KeyError> {
        self.serialize_u32(index)?;
        Ok(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// A sequence of any length.
struct Elements<'a>(&'a mut Encoder);

impl SerializeSeq for Elements<'_> {
    type Ok = ();
    type Error = KeyError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), KeyError> {
        self.0.serialize_bool(true)?;
        value.serialize(&mut *self.0)
    }

    fn end(self) -> Result<(), KeyError> {
        self.0.serialize_bool(false)
    }
}

macro_rules! fields {
    ($($of:ident $method:ident ($($name:ty)?);)*) => {$(
        impl serde::ser::$of for &mut Encoder {
            type Ok = ();
            type Error = KeyError;

            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $name,)? value: &T) -> Result<(), KeyError> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), KeyError> {
                Ok(())
            }
        }
    )*};
}

fields! {
    SerializeTuple serialize_element ();
    SerializeTupleStruct serialize_field ();
    SerializeTupleVariant serialize_field ();
    SerializeStruct serialize_field (&'static str);
    SerializeStructVariant serialize_field (&'static str);
}
