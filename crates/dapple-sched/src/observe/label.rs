//! Labels of colors: the words by which a program knows them, for tools that look into it.
//!
//! | | |
//! |---|---|
//! | a label | a number in the color's side record, 0 for none |
//! | the table of labels | one for the process, because numbers of one runtime's colors meet those of others in a tool |
//!
//! The table only grows, so that an observer may keep a label for ever, and it is bounded: a program that makes a label
//! for each connection gets [`LABELS_MAX`] of them, and further colors stay without. Rejected: a label in each event, as a
//! text, because an observer would have to compare texts; and a map from a color's number to its label, because the number
//! is used again after the color has ended.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The label of a color, as [`Color::set_label`](crate::Color::set_label) has made it. Equal texts have equal labels.
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// use dapple_sched::Color;
///
/// let (one, two) = (Color::new(), Color::new());
/// one.set_label("accounts");
/// two.set_label("accounts");
/// assert_eq!(one.label(), two.label());
/// assert_eq!(one.label().unwrap().as_str(), "accounts");
/// assert_eq!(Color::new().label(), None);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Label(NonZeroU32);

impl Label {
    /// The most labels of a process.
    pub const MAX: usize = LABELS_MAX;

    /// The text.
    pub fn as_str(self) -> &'static str {
        lock().texts[self.0.get() as usize - 1]
    }

    /// A number from 1 to [`Label::MAX`], for tables.
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// The label with this number, if there is one.
    pub fn of_number(number: u32) -> Option<Label> {
        let label = NonZeroU32::new(number)?;
        (number as usize <= lock().texts.len()).then_some(Label(label))
    }

    /// As [`of_number`](Label::of_number), for a number that came from a label, or 0.
    pub(crate) fn known(number: u32) -> Option<Label> {
        NonZeroU32::new(number).map(Label)
    }

    /// The label with this text, cut after 60 bytes; `None` if there are too many others.
    pub(crate) fn of(text: &str) -> Option<Label> {
        Label::of_at_most(text, LABELS_MAX)
    }

    /// The label of a task with this name: names may be many, and leave half of the table to labels.
    pub(crate) fn of_name(name: &str) -> Option<Label> {
        Label::of_at_most(name, LABELS_MAX / 2)
    }

    fn of_at_most(text: &str, labels_max: usize) -> Option<Label> {
        let end = (0..=BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let text = &text[..end];
        let mut table = lock();
        if let Some(known) = table.numbers.get(text) {
            return Some(Label(*known));
        }
        if text.is_empty() || table.texts.len() >= labels_max {
            return None;
        }
        let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
        table.texts.push(text);
        let label = NonZeroU32::new(table.texts.len() as u32)?;
        table.numbers.insert(text, label);
        Some(Label(label))
    }
}

struct Table {
    texts: Vec<&'static str>,
    numbers: BTreeMap<&'static str, NonZeroU32>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { texts: Vec::new(), numbers: BTreeMap::new() });

/// No foreign code runs under this lock, so poison means nothing.
fn lock() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most labels: 60 kB of texts.
const LABELS_MAX: usize = 1_000;

/// The longest text.
const BYTES_MAX: usize = 60;
