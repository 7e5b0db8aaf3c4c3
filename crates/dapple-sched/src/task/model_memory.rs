//! Memory for tasks in a model: one allocation each, and a list of them. Models keep track of each
//! atomic, so memory must not be reused.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::{Header, LiveTask, TaskRef};
use crate::runtime::shared::Shared;
use crate::sync::lock::Lock;

/// The tasks of one runtime.
pub(crate) struct TaskMemory {
    /// Entries have no count.
    tasks: Lock<Vec<ManuallyDrop<TaskRef>>>,
}

impl TaskMemory {
    pub(crate) fn new() -> TaskMemory {
        TaskMemory { tasks: Lock::new(Vec::new()) }
    }

    /// Adds a task, without a count.
    pub(crate) fn add(&self, task: TaskRef) {
        self.tasks.lock().push(ManuallyDrop::new(task));
    }

    pub(crate) fn remove(&self, task: NonNull<Header>) {
        self.tasks.lock().retain(|other| other.0 != task);
    }

    /// As in `memory`.
    pub(crate) fn each(&self, visit: impl FnMut(TaskRef)) {
        let all = {
            let tasks = self.tasks.lock();
            // SAFETY: a task leaves the list, under this lock, before it is freed.
            tasks.iter().filter_map(|task| unsafe { TaskRef::retain_if_any(task.0) }).collect::<Vec<_>>()
        };
        all.into_iter().for_each(visit);
    }

    pub(crate) fn id_at(&self, _address: usize) -> Option<u64> {
        None
    }
}

/// The runtime of a task.
pub(super) fn shared_of(task: LiveTask<'_>) -> &Shared {
    &task.header().shared
}

pub(super) fn id_of(task: LiveTask<'_>) -> u64 {
    shared_of(task).fresh_ids(1)
}

/// Models have no free lists.
pub(crate) struct FreeTasks;

impl FreeTasks {
    pub(crate) fn new() -> FreeTasks {
        FreeTasks
    }

    pub(crate) fn give_back_some(&self, _: &Shared) -> bool {
        false
    }
}
