//! The waits of tasks, gathered for a dump. A task that waits notes its wait only if it waits for a
//! color. For other waits, the dump asks the object that has the task's waker.

use crate::color::node::Origin;
use crate::environment::HashMap;
use crate::observe::dump::{TaskWait, TasksDump, WorkerDump};
use crate::runtime::shared::Shared;
use crate::task::{self, TaskLook};

/// All tasks that have not ended, by the line that spawned them and by their wait; and the number
/// of tasks left out.
pub(super) fn by_line(shared: &Shared, workers: &[WorkerDump]) -> (Vec<TasksDump>, usize) {
    let waits = known(shared);
    let running: Vec<u64> = workers.iter().filter_map(|worker| Some(worker.running.as_ref()?.color_id)).collect();
    let mut groups: HashMap<(Origin, TaskWait), usize> = HashMap::default();
    let mut left_out = 0;
    shared.tasks.each(|task| {
        let Some(look) = task.look() else { return };
        let Some(spawned_from) = look.spawned_from else {
            left_out += 1;
            return;
        };
        let key = (spawned_from, wait_of(&look, &waits, &running));
        if groups.len() < GATHERED_MAX || groups.contains_key(&key) {
            *groups.entry(key).or_default() += 1;
        } else {
            left_out += 1;
        }
    });
    let mut groups: Vec<TasksDump> =
        groups.into_iter().map(|((spawned_from, wait), count)| TasksDump { spawned_from, count, wait }).collect();
    groups.sort_by_key(|tasks| (std::cmp::Reverse(tasks.count), tasks.spawned_from));
    left_out += groups.drain(groups.len().min(SHOWN_MAX)..).map(|tasks| tasks.count).sum::<usize>();
    (groups, left_out)
}

/// The objects that have wakers of tasks: joined tasks, and the driver. By the address of the task.
fn known(shared: &Shared) -> HashMap<usize, TaskWait> {
    let mut waits = HashMap::default();
    shared.driver.each_waiter(&mut |table, data, wait| {
        if task::is_table(table) && waits.len() < WAITS_MAX {
            waits.insert(data.addr(), wait);
        }
    });
    shared.tasks.each(|task| {
        if let Some(TaskLook { joined_by: Some(waiter), spawned_from: Some(spawned_from), .. }) = task.look()
            && waits.len() < WAITS_MAX
        {
            waits.insert(waiter, TaskWait::Join { spawned_from });
        }
    });
    waits
}

fn wait_of(look: &TaskLook, waits: &HashMap<usize, TaskWait>, running: &[u64]) -> TaskWait {
    if look.scheduled {
        return TaskWait::Runs;
    }
    let known = look.wait.or_else(|| waits.get(&look.address).copied());
    // If the color of the task runs, this may be the task that is running.
    let runs = look.color_id.is_some_and(|id| running.contains(&id));
    known.unwrap_or(if runs { TaskWait::Runs } else { TaskWait::Unknown })
}

/// The most entries of a dump.
const SHOWN_MAX: usize = 200;

/// The most different pairs of line and wait that are counted.
const GATHERED_MAX: usize = 10_000;

/// The most wakers that are remembered.
const WAITS_MAX: usize = 100_000;
