//! Requests for several colors, some of them held for reading.

use dapple_sched::{Color, when};

use crate::readers::Page;
use crate::support::{Crossing, Wait, check, drain, finish, model};

/// Two colors, and the data that their callbacks read and write.
#[derive(Clone)]
struct Pair {
    colors: [Color; 2],
    pages: [Page; 2],
}

impl Pair {
    fn new(model: &dapple_sched::model::Model) -> Pair {
        Pair { colors: [(); 2].map(|()| model.handle().new_color_at(0)), pages: [Page::new(), Page::new()] }
    }

    /// Posts a set that reads both, and sees this in the first.
    fn post_reads(&self, expected: u32) {
        let pages = self.pages.clone();
        when((self.colors[0].reading(), self.colors[1].reading())).post(move |_| {
            assert_eq!(pages[0].read(), expected);
            pages[1].read();
        });
    }

    /// Posts a set that reads the first and writes the second.
    fn post_copy(&self) {
        let pages = self.pages.clone();
        when((self.colors[0].reading(), &self.colors[1])).post(move |_| pages[1].write(pages[0].read()));
    }

    /// Posts a writer of one.
    fn post_write(&self, color: usize, entry: u32) {
        let page = self.pages[color].clone();
        self.colors[color].post(move || page.write(entry));
    }
}

// Two sets that only read, and a writer between them, are posted to a worker that runs them as they
// come.
#[test]
fn a_writer_comes_between_sets_that_read() {
    check(2, || {
        let model = model(1);
        let (crossing, pair) = (Crossing::new(), Pair::new(&model));
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        crossing.pass();
        pair.post_reads(0);
        pair.post_write(0, 1);
        pair.post_reads(1);
        worker.join().unwrap();
        drain(&model);
        assert_eq!(pair.pages[0].read(), 1);
        drop(pair);
        finish(&model);
    });
}

// A set reads one color and writes the other, next to a reader on a foreign executor and before a
// writer.
#[test]
fn a_set_reads_one_color_and_writes_the_other() {
    check(2, || {
        let model = model(1);
        let (crossing, pair) = (Crossing::new(), Pair::new(&model));
        pair.post_write(0, 1);
        let reader = {
            let (color, page) = (pair.colors[0].clone(), pair.pages[0].clone());
            let read = async move { when((color.reading(),)).with(|_| page.read()).await };
            Wait::begin(read).err().expect("a writer waits before it")
        };
        pair.post_copy();
        pair.post_write(0, 2);
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        crossing.pass();
        assert_eq!(reader.end(), 1, "between the writers");
        worker.join().unwrap();
        drain(&model);
        assert_eq!([pair.pages[0].read(), pair.pages[1].read()], [2, 1]);
        drop(pair);
        finish(&model);
    });
}

// The future of a set that reads both colors is dropped while they are being handed over to it.
#[test]
fn a_set_that_reads_is_canceled() {
    check(2, || {
        let model = model(1);
        let (crossing, pair) = (Crossing::new(), Pair::new(&model));
        pair.post_write(0, 1);
        let canceled = {
            let pair = pair.clone();
            let read = async move {
                let pages = pair.pages.clone();
                when((pair.colors[0].reading(), pair.colors[1].reading())).with(|_| pages[0].read()).await
            };
            Wait::begin(read).err().expect("a writer waits before it")
        };
        pair.post_write(0, 2);
        pair.post_write(1, 2);
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        crossing.pass();
        drop(canceled);
        worker.join().unwrap();
        drain(&model);
        assert_eq!([pair.pages[0].read(), pair.pages[1].read()], [2, 2]);
        drop(pair);
        finish(&model);
    });
}
