//! The encodings of keys and values.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Refusal;

pub use encode::ordered_key;

/// Encodes a value, or a key of a table without order.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, Refusal> {
    let bytes = postcard::to_stdvec(value).map_err(|error| Refusal::Codec(format!("cannot encode: {error}")))?;
    Ok(bytes.into())
}

/// Decodes all of `bytes`.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(Refusal::Codec("the stored bytes are longer than the type that is read".to_owned())),
        Err(error) => Err(Refusal::Codec(format!("the stored bytes are not of the type that is read: {error}"))),
    }
}

/// Decodes a key that [`ordered_key`] encoded.
///
/// # Errors
/// The bytes are not such a key.
///
/// ```
/// use dapple_store::{decode_ordered_key, ordered_key};
///
/// let bytes = ordered_key(&("ann", 7u32)).unwrap();
/// assert_eq!(decode_ordered_key(&bytes), Ok(("ann".to_owned(), 7u32)));
/// ```
pub fn decode_ordered_key<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut decoder = decode::Decoder::new(bytes);
    let key = T::deserialize(&mut decoder).map_err(Refusal::from)?;
    decoder.end()?;
    Ok(key)
}

/// The error of the encoder and decoder of ordered keys.
#[derive(Debug)]
struct KeyError(String);

impl std::fmt::Display for KeyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KeyError {}

impl serde::ser::Error for KeyError {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        KeyError(text.to_string())
    }
}

impl serde::de::Error for KeyError {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        KeyError(text.to_string())
    }
}

impl From<KeyError> for Refusal {
    fn from(error: KeyError) -> Self {
        Refusal::Codec(error.0)
    }
}
