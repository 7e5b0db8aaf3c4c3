//! The whole service behind one bounded queue: *wrap* (Gribble, 4.4.2, Figure 23).
//!
//! One color serves: it computes both digests of all tasks one after another, like the thesis's one
//! thread. While a task waits for the disk the next one runs, up to the stage's width.

use dapple::Color;
use dapple::stage::Stage;

use super::{Parts, Signed, Task};
use crate::args::Args;
use crate::log::{Entry, LogError};

pub(super) fn stage(args: &Args, parts: Parts) -> Stage<Task, Signed, LogError> {
    let builder = Stage::builder("sign").queue_len_max(args.queue()).width(args.width()).color(Color::new()).shed();
    builder.wrap_fn(move |task: Task| {
        let parts = parts.clone();
        async move {
            let first = parts.secrets.first(&task.body);
            let sequence = parts.log.append(Entry { id: task.id, digest: first }).await?;
            Ok(Signed { sequence, first, second: parts.secrets.second(&task.body) })
        }
    })
}
