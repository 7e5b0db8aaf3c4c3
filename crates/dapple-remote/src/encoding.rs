//! The encodings of messages.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The encoding of a message. The sender chooses, and a reply has the encoding of its request.
///
/// ```
/// use dapple_remote::Encoding;
///
/// let bytes = Encoding::Postcard.encode(&(7_u32, "seven"))?;
/// assert_eq!(&bytes[..], b"\x07\x05seven");
/// let back: (u32, String) = Encoding::Postcard.decode(&bytes)?;
/// assert_eq!(back, (7, "seven".to_owned()));
/// # Ok::<(), dapple_remote::EncodingError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// [Postcard](https://postcard.jamesmunns.com/): compact and fast, bytes as they are. It cannot
    /// read types that serde describes by looking ahead (`untagged`, `flatten`).
    #[default]
    Postcard,
    /// JSON, for other languages and for people. Bytes become lists of numbers, some four times as
    /// long.
    Json,
}

/// A message could not be encoded, or bytes are not a message of the type.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct EncodingError(String);

impl Encoding {
    /// Its value of `content-type`.
    pub const fn media_type(self) -> &'static str {
        match self {
            Encoding::Postcard => "application/vnd.dapple.postcard",
            Encoding::Json => "application/json",
        }
    }

    /// The encoding of a `content-type`, whatever its parameters.
    pub fn of_media_type(value: &str) -> Option<Encoding> {
        let name = value.split(';').next().unwrap_or_default().trim();
        [Encoding::Postcard, Encoding::Json].into_iter().find(|known| known.media_type().eq_ignore_ascii_case(name))
    }

    /// Writes a message.
    ///
    /// # Errors
    ///
    /// The type cannot be encoded, for example in JSON a map with keys that are not strings.
    pub fn encode<T: Serialize + ?Sized>(self, message: &T) -> Result<Bytes, EncodingError> {
        match self {
            Encoding::Postcard => postcard::to_stdvec(message).map(Bytes::from).map_err(EncodingError::of),
            Encoding::Json => serde_json::to_vec(message).map(Bytes::from).map_err(EncodingError::of),
        }
    }

    /// Reads a message, which must be the whole input.
    ///
    /// # Errors
    ///
    /// The bytes are not such a message, or more follow it.
    pub fn decode<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, EncodingError> {
        match self {
            Encoding::Postcard => match postcard::take_from_bytes(bytes) {
                Ok((message, [])) => Ok(message),
                Ok((_, rest)) => Err(EncodingError(format!("{} bytes follow the message", rest.len()))),
                Err(error) => Err(EncodingError::of(error)),
            },
            Encoding::Json => serde_json::from_slice(bytes).map_err(EncodingError::of),
        }
    }
}

impl EncodingError {
    fn of(error: impl std::fmt::Display) -> EncodingError {
        EncodingError(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::Encoding;

    #[test]
    fn bytes_after_a_message_are_an_error() {
        for encoding in [Encoding::Postcard, Encoding::Json] {
            let mut bytes = encoding.encode(&(1_u8, "a")).unwrap().to_vec();
            assert_eq!(encoding.decode::<(u8, String)>(&bytes).unwrap(), (1, "a".to_owned()));
            bytes.push(b'0');
            assert!(encoding.decode::<(u8, String)>(&bytes).is_err(), "{encoding:?}");
            assert!(encoding.decode::<(u8, String)>(&bytes[..1]).is_err(), "{encoding:?}");
        }
    }

    #[test]
    fn media_types_are_read_with_parameters_and_in_any_case() {
        assert_eq!(Encoding::of_media_type("Application/JSON; charset=utf-8"), Some(Encoding::Json));
        assert_eq!(Encoding::of_media_type("application/vnd.dapple.postcard"), Some(Encoding::Postcard));
        assert_eq!(Encoding::of_media_type("text/plain"), None);
    }
}
