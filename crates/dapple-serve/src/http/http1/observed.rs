//! The replies that are being sent and have an observer.

use std::collections::VecDeque;

use crate::http::Observer;

/// These replies, in order. Positions are counted in bytes since the buffer was taken.
#[derive(Default)]
pub(super) struct Observed(VecDeque<Watched>);

struct Watched {
    observer: Box<dyn Observer>,
    body_start: u64,
    /// Known when the last piece of the body waits to be written.
    end: Option<u64>,
    told: u64,
}

impl Observed {
    /// Whether no reply is observed.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Watches the reply with a body that begins at this position.
    pub(super) fn begin(&mut self, observer: Box<dyn Observer>, body_start: u64) {
        self.0.push_back(Watched { observer, body_start, end: None, told: 0 });
    }

    /// Notes that the last reply ends at this position.
    pub(super) fn end(&mut self, end: u64) {
        if let Some(watched) = self.0.back_mut() {
            watched.end.get_or_insert(end);
        }
    }

    /// Notes that everything up to this position is written.
    pub(super) fn written(&mut self, place: u64) {
        while let Some(watched) = self.0.front_mut() {
            let sent = place.min(watched.end.unwrap_or(u64::MAX)).saturating_sub(watched.body_start);
            if sent > watched.told {
                watched.observer.sent(sent - watched.told);
                watched.told = sent;
            }
            if watched.end.is_none_or(|end| end > place) {
                return;
            }
            watched.observer.complete();
            self.0.pop_front();
        }
    }

    /// Marks all unwritten replies as lost.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::Observed;
    use crate::http::Observer;

    type Told = Arc<Mutex<(u64, bool)>>;

    struct Notes(Told);

    impl Observer for Notes {
        fn sent(&mut self, len: u64) {
            self.0.lock().unwrap().0 += len;
        }

        fn complete(&mut self) {
            self.0.lock().unwrap().1 = true;
        }
    }

    fn begin(observed: &mut Observed, body_start: u64) -> Told {
        let told = Told::default();
        observed.begin(Box::new(Notes(told.clone())), body_start);
        told
    }

    #[test]
    fn bytes_belong_to_their_reply() {
        let mut observed = Observed::default();
        let one = begin(&mut observed, 100);
        observed.end(150);
        let other = begin(&mut observed, 250);
        observed.written(120);
        assert_eq!((*one.lock().unwrap(), *other.lock().unwrap()), ((20, false), (0, false)));
        observed.written(270);
        assert_eq!((*one.lock().unwrap(), *other.lock().unwrap()), ((50, true), (20, false)));
        observed.written(300);
        observed.end(300);
        observed.written(300);
        assert_eq!(*other.lock().unwrap(), (50, true));
        assert!(observed.is_empty());
    }

    #[test]
    fn a_cut_reply_is_not_complete() {
        let mut observed = Observed::default();
        let told = begin(&mut observed, 10);
        observed.end(20);
        observed.written(15);
        observed.clear();
        assert_eq!(*told.lock().unwrap(), (5, false));
        assert_eq!(Arc::strong_count(&told), 1);
    }
}
