//! The decoder of ordered keys.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, SeqAccess, VariantAccess, Visitor,
};

use super::KeyError;

pub(super) struct Decoder<'de>(&'de [u8]);

impl<'de> Decoder<'de> {
    pub(super) fn new(bytes: &'de [u8]) -> Self {
        Decoder(bytes)
    }

    /// Refuses bytes after the key.
    pub(super) fn end(&self) -> Result<(), KeyError> {
        if self.0.is_empty() { Ok(()) } else { Err(KeyError::custom("the stored key is longer than its type")) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], KeyError> {
        let (taken, rest) =
            self.0.split_first_chunk().ok_or_else(|| KeyError::custom("the stored key is shorter than its type"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn flag(&mut self) -> Result<bool, KeyError> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(KeyError::custom("the stored key has another type: no 0 or 1 where one must be")),
        }
    }

    fn terminated(&mut self) -> Result<Vec<u8>, KeyError> {
        let mut bytes = Vec::new();
        loop {
            let [byte] = self.array()?;
            if byte != 0 {
                bytes.push(byte);
                continue;
            }
            match self.array()? {
                [0] => return Ok(bytes),
                [255] => bytes.push(0),
                _ => return Err(KeyError::custom("the stored key has another type: a text is not ended")),
            }
        }
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty, $flip:expr;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
            visitor.$visit(<$type>::from_be_bytes(self.array()?) ^ $flip)
        }
    )*};
}

macro_rules! refused {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, KeyError> {
            Err(KeyError::custom("no such type can be part of an ordered key"))
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Decoder<'de> {
    type Error = KeyError;

    numbers! {
        deserialize_u8 visit_u8 u8, 0;
        deserialize_u16 visit_u16 u16, 0;
        deserialize_u32 visit_u32 u32, 0;
        deserialize_u64 visit_u64 u64, 0;
        deserialize_u128 visit_u128 u128, 0;
        deserialize_i8 visit_i8 i8, i8::MIN;
        deserialize_i16 visit_i16 i16, i16::MIN;
        deserialize_i32 visit_i32 i32, i32::MIN;
        deserialize_i64 visit_i64 i64, i64::MIN;
        deserialize_i128 visit_i128 i128, i128::MIN;
    }

    refused! { deserialize_any deserialize_f32 deserialize_f64 deserialize_map deserialize_identifier deserialize_ignored_any }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_bool(self.flag()?)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        let number = u32::from_be_bytes(self.array()?);
        visitor
            .visit_char(char::from_u32(number).ok_or_else(|| KeyError::custom("a stored key has no such character"))?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        self.deserialize_string(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_string(String::from_utf8(self.terminated()?).map_err(KeyError::custom)?)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        self.deserialize_byte_buf(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_byte_buf(self.terminated()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        if self.flag()? { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_seq(Elements { decoder: self, left: None })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_seq(Elements { decoder: self, left: Some(len) })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        visitor.visit_enum(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// The elements of a tuple, of known number, or of a sequence, with a flag before each.
struct Elements<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    left: Option<usize>,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = KeyError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, KeyError> {
        let more = match &mut self.left {
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
            None => self.decoder.flag()?,
        };
        if more { seed.deserialize(&mut *self.decoder).map(Some) } else { Ok(None) }
    }
}

impl<'de> EnumAccess<'de> for &mut Decoder<'de> {
    type Error = KeyError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), KeyError> {
        let index = u32::from_be_bytes(self.array()?);
        let variant = seed.deserialize(IntoDeserializer::<KeyError>::into_deserializer(index))?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for &mut Decoder<'de> {
    type Error = KeyError;

    fn unit_variant(self) -> Result<(), KeyError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, KeyError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, KeyError> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}
