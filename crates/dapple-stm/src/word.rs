//! Values that fit into a machine word, and values that do not.
//!
//! A variable of an integer, float, `bool`, `char` or `()` keeps its value in an atomic word: a
//! read is a load. Any other value is in an `Arc`, replaced as a whole: a read is a short lock and
//! a reference, a write an allocation. The compiler knows which one applies; safe code asks through
//! `Any`, which costs nothing.

use std::any::{Any, TypeId};
use std::sync::Arc;

/// A value in an `Arc`.
pub(crate) type Shared = Arc<dyn Any + Send + Sync>;

/// A value on its way into or out of a variable.
#[derive(Clone)]
pub(crate) enum Value {
    Word(u64),
    Shared(Shared),
}

macro_rules! words {
    ($($kind:ty: $to:expr, $from:expr;)*) => {
        /// Whether values of this type are kept in a word.
        #[inline(always)]
        pub(crate) fn is_word<T: 'static>() -> bool {
            let kind = TypeId::of::<T>();
            $(kind == TypeId::of::<$kind>())||*
        }

        #[inline(always)]
        pub(crate) fn to_word<T: 'static>(value: &T) -> Option<u64> {
            let value = value as &dyn Any;
            $(if let Some(value) = value.downcast_ref::<$kind>() {
                let to: fn($kind) -> u64 = $to;
                return Some(to(*value));
            })*
            None
        }

        #[inline(always)]
        fn from_word<T: 'static>(word: u64) -> Option<T> {
            let mut value = None::<T>;
            let slot = &mut value as &mut dyn Any;
            $(if let Some(slot) = slot.downcast_mut::<Option<$kind>>() {
                let from: fn(u64) -> $kind = $from;
                *slot = Some(from(word));
                return value;
            })*
            None
        }
    };
}

words! {
    u64: |value| value, |word| word;
    i64: |value| value as u64, |word| word as i64;
    usize: |value| value as u64, |word| word as usize;
    isize: |value| value as u64, |word| word as isize;
    u32: u64::from, |word| word as u32;
    i32: |value| value as u64, |word| word as i32;
    u16: u64::from, |word| word as u16;
    i16: |value| value as u64, |word| word as i16;
    u8: u64::from, |word| word as u8;
    i8: |value| value as u64, |word| word as i8;
    bool: u64::from, |word| word != 0;
    char: u64::from, |word| char::from_u32(word as u32).unwrap_or_default();
    f64: f64::to_bits, f64::from_bits;
    f32: |value| u64::from(value.to_bits()), |word| f32::from_bits(word as u32);
    (): |()| 0, |_| ();
}

impl Value {
    #[inline(always)]
    pub(crate) fn new<T: Send + Sync + 'static>(value: T) -> Value {
        match to_word(&value) {
            Some(word) => Value::Word(word),
            None => Value::Shared(Arc::new(value)),
        }
    }

    /// The value in its own type.
    ///
    /// # Panics
    ///
    /// If it was made of another type, which the types of variables rule out.
    #[inline(always)]
    pub(crate) fn get<T: Clone + 'static>(&self) -> T {
        let value = match self {
            Value::Word(word) => from_word(*word),
            Value::Shared(shared) => (**shared).downcast_ref().cloned(),
        };
        value.expect("a variable holds values of its own type only")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same<T: Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static>(values: &[T], word: bool) {
        assert_eq!(is_word::<T>(), word);
        for value in values {
            let stored = Value::new(value.clone());
            assert_eq!(matches!(stored, Value::Word(_)), word);
            assert_eq!(stored.get::<T>(), *value);
        }
    }

    #[test]
    fn values_come_out_as_they_went_in() {
        same(&[0, 1, u64::MAX], true);
        same(&[0, -1, i64::MIN], true);
        same(&[0, -1, i32::MIN], true);
        same(&[0, -1, i16::MIN], true);
        same(&[0, -1, i8::MIN], true);
        same(&[0, -1, isize::MIN], true);
        same(&[0, usize::MAX], true);
        same(&[0, u32::MAX], true);
        same(&[0, u16::MAX], true);
        same(&[0, u8::MAX], true);
        same(&[true, false], true);
        same(&['a', '\u{10FFFF}'], true);
        same(&[0.5, f64::NEG_INFINITY], true);
        same(&[0.5_f32, f32::MAX], true);
        same(&[()], true);
        same(&[String::from("a")], false);
        same(&[Some(1_u64), None], false);
    }
}
