use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::{decode_ordered_key, ordered_key};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Shape {
    Nothing,
    Text(String),
    Pair(Option<i16>, char),
    Fields { list: Vec<u8>, number: i64 },
}

type Key = (String, Shape, Vec<String>, Option<bool>, (i32, u128));

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Nothing),
        "[\\x00a\u{ff}]{0,4}".prop_map(Shape::Text),
        (any::<Option<i16>>(), any::<char>()).prop_map(|(number, letter)| Shape::Pair(number, letter)),
        (prop::collection::vec(0u8..3, 0..3), any::<i64>()).prop_map(|(list, number)| Shape::Fields { list, number }),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    (
        "[\\x00\\x01b]{0,3}",
        shape(),
        prop::collection::vec("[\\x00c]{0,2}", 0..3),
        any::<Option<bool>>(),
        any::<(i32, u128)>(),
    )
}

proptest! {
    #[test]
    fn ordered_keys_come_back_and_keep_their_order(left in key(), right in key()) {
        let (left_bytes, right_bytes) = (ordered_key(&left).unwrap(), ordered_key(&right).unwrap());
        prop_assert_eq!(left_bytes.cmp(&right_bytes), left.cmp(&right));
        prop_assert_eq!(decode_ordered_key::<Key>(&left_bytes).unwrap(), left);
    }

    #[test]
    fn any_bytes_are_a_key_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(key) = decode_ordered_key::<Key>(&bytes) {
            prop_assert_eq!(&ordered_key(&key).unwrap()[..], &bytes[..]);
        }
    }
}
