//! The sources of one slot, found by the data that epoll returns.
//!
//! The data of an event is a key and a generation. Freeing a key raises its generation. So an event
//! that was in transit when its source was removed, or that arrives for a duplicate of a closed
//! descriptor, finds no source.

use std::sync::Arc;

use rustix::event::epoll::EventData;

use super::entry::Entry;

/// The name of one registration in one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    key: u32,
    generation: u32,
}

#[derive(Default)]
pub(crate) struct Table {
    places: Vec<TableSlot>,
    free: Vec<u32>,
    is_closed: bool,
}

#[derive(Default)]
struct TableSlot {
    entry: Option<Arc<Entry>>,
    generation: u32,
}

impl Table {
    /// `None` after [`Table::close`].
    pub(crate) fn insert(&mut self, entry: Arc<Entry>) -> Option<Token> {
        if self.is_closed {
            return None;
        }
        let key = self.free.pop().unwrap_or_else(|| {
            self.places.push(TableSlot::default());
            u32::try_from(self.places.len() - 1).expect("fewer descriptors than 2^32")
        });
        let place = &mut self.places[key as usize];
        place.entry = Some(entry);
        Some(Token { key, generation: place.generation })
    }

    pub(crate) fn find(&self, token: Token) -> Option<&Arc<Entry>> {
        let place = self.places.get(token.key as usize)?;
        (place.generation == token.generation).then_some(place.entry.as_ref()).flatten()
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<Arc<Entry>> {
        self.find(token)?;
        let place = &mut self.places[token.key as usize];
        place.generation = place.generation.wrapping_add(1);
        self.free.push(token.key);
        place.entry.take()
    }

    /// All entries.
    pub(super) fn entries(&self) -> Vec<Arc<Entry>> {
        self.places.iter().filter_map(|place| place.entry.clone()).collect()
    }

    /// Removes all entries, and refuses new ones from now on.
    pub(crate) fn close(&mut self) -> Vec<Arc<Entry>> {
        self.is_closed = true;
        self.free.clear();
        let places = std::mem::take(&mut self.places);
        places.into_iter().filter_map(|place| place.entry).collect()
    }
}

impl Token {
    pub(crate) fn data(self) -> EventData {
        EventData::new_u64(u64::from(self.generation) << 32 | u64::from(self.key))
    }

    pub(crate) fn from_data(data: EventData) -> Self {
        Token { key: data.u64() as u32, generation: (data.u64() >> 32) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_token_finds_no_entry() {
        let mut table = Table::default();
        let entry = || Arc::new(Entry::new(false, false));
        let old = table.insert(entry()).unwrap();
        assert!(table.remove(old).is_some());
        let new = table.insert(entry()).unwrap();
        assert_eq!(old.key, new.key, "the place is used again");
        assert!(table.find(old).is_none());
        assert!(table.remove(old).is_none());
        assert!(table.find(Token::from_data(new.data())).is_some());
    }

    #[test]
    fn a_closed_table_refuses() {
        let mut table = Table::default();
        let token = table.insert(Arc::new(Entry::new(true, true))).unwrap();
        assert_eq!(table.close().len(), 1);
        assert!(table.find(token).is_none());
        assert!(table.insert(Arc::new(Entry::new(true, true))).is_none());
    }
}
