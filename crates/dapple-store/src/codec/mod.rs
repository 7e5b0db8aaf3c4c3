//! The encodings of keys and values.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;

use crate::error::Refusal;

pub use encode::ordered_key;

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
