//! A task's bytes in a message to a host: as they are in postcard; in JSON a list of numbers.

use std::fmt;

use bytes::Bytes;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(body: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(body)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    deserializer.deserialize_byte_buf(Body)
}

struct Body;

impl<'de> Visitor<'de> for Body {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes::copy_from_slice(bytes))
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
        Ok(bytes.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
        self.visit_bytes(text.as_bytes())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Bytes, A::Error> {
        // The stated length of the list is not trusted; the message bounds its real length.
        let mut bytes = Vec::new();
        while let Some(byte) = list.next_element()? {
            bytes.push(byte);
        }
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use dapple::stage::remote::Encoding;

    use crate::signer::Task;

    #[test]
    fn a_task_survives_encoding_and_takes_little_more_than_its_bytes() {
        let task = Task { id: 300, body: Bytes::from((0..=255).collect::<Vec<u8>>()) };
        for (encoding, len_max) in [(Encoding::Postcard, 260), (Encoding::Json, 1_000)] {
            let bytes = encoding.encode(&task).unwrap();
            assert!(bytes.len() <= len_max, "{encoding:?}: {}", bytes.len());
            let back: Task = encoding.decode(&bytes).unwrap();
            assert_eq!((back.id, back.body), (task.id, task.body.clone()));
        }
        let text: Task = Encoding::Json.decode(br#"{"id":1,"body":"a task"}"#).unwrap();
        assert_eq!(text.body, "a task");
        assert!(Encoding::Json.decode::<Task>(br#"{"id":1,"body":[256]}"#).is_err());
    }
}
