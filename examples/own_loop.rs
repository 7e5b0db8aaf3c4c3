//! The program's own event loop, next to Dapple's (PLDI 2007, section 4.5): it watches files
//! through inotify.
//!
//! ```text
//! cargo run --example own_loop
//! ```
//!
//! inotify reports all watched files through one descriptor, in batches, by numbers that it assigns
//! itself. So one loop must read it for all tasks and know which task waits for which number: the
//! paper's `worker_epoll`, with its registered continuations. A task just asks and awaits:
//! `watcher.ask(path).await` returns when the file has changed.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use dapple::event_loop::{self, EventLoop, Inbox, Reply};
use dapple::fs;
use dapple::time::sleep;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// The loop: its descriptor, and the waiting tasks by number.
struct Watcher {
    inotify: OwnedFd,
    waiting: HashMap<i32, Vec<Reply<Answer>>>,
}

/// When the file has changed; or why it cannot be watched.
type Answer = io::Result<&'static str>;

impl EventLoop for Watcher {
    type Request = PathBuf;
    type Answer = Answer;

    /// Runs on its own thread. It waits for its descriptor and for the inbox, which signals
    /// requests and the end.
    fn run(mut self, inbox: Inbox<PathBuf, Answer>) {
        while !inbox.is_stopping() {
            let mut fds = [PollFd::new(&self.inotify, PollFlags::IN), PollFd::new(&inbox, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                // All waiting tasks get this as their error.
                Err(error) => panic!("poll: {error}"),
            }
            self.take_events();
            while let Some(asked) = inbox.try_next() {
                self.watch(asked.request, asked.reply);
            }
        }
        // Tasks that still wait learn that the loop has ended, because the replies are dropped.
    }
}

impl Watcher {
    fn new() -> io::Result<Watcher> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Watcher { inotify, waiting: HashMap::new() })
    }

    fn watch(&mut self, path: PathBuf, reply: Reply<Answer>) {
        // A canceled task can stay in the list, because no task is answered twice.
        let events = WatchFlags::CLOSE_WRITE | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONESHOT;
        match inotify::add_watch(&self.inotify, &path, events) {
            Ok(number) => self.waiting.entry(number).or_default().push(reply),
            Err(error) => reply.send(Err(error.into())),
        }
    }

    fn take_events(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.inotify, &mut buffer);
        // An error: there are no more for now.
        while let Ok(event) = events.next() {
            let what = match event.events() {
                flags if flags.contains(ReadFlags::CLOSE_WRITE) => "written",
                flags if flags.contains(ReadFlags::MOVE_SELF) => "moved",
                flags if flags.contains(ReadFlags::DELETE_SELF) => "deleted",
                // The end of a watch, which the loop knows already.
                _ => continue,
            };
            for reply in self.waiting.remove(&event.wd()).unwrap_or_default() {
                reply.send(Ok(what));
            }
        }
    }
}

#[dapple::main]
async fn main() -> io::Result<()> {
    let folder = std::env::temp_dir().join(format!("dapple-own-loop-{}", std::process::id()));
    fs::create_dir(&folder).await?;
    let result = watch_some(folder.clone()).await;
    fs::remove_dir_all(folder).await?;
    result
}

async fn watch_some(folder: PathBuf) -> io::Result<()> {
    let watcher = event_loop::start("inotify", Watcher::new()?)?;
    let paths = ["one", "two", "three"].map(|name| folder.join(name));
    for path in &paths {
        fs::write(path, "before").await?;
    }
    let ask = |path: &PathBuf| {
        let (watcher, path) = (watcher.clone(), path.clone());
        dapple::spawn(async move { watcher.ask(path).await })
    };

    // Two tasks wait for the same file, which is one watch for inotify.
    let tasks = [ask(&paths[0]), ask(&paths[1]), ask(&paths[1])];
    // A change before a task's request does not count: so change the files until all tasks have
    // seen one.
    while tasks.iter().any(|task| !task.is_finished()) {
        fs::write(&paths[0], "after").await?;
        fs::write(&paths[1], "after").await?;
        sleep(Duration::from_millis(1)).await;
    }
    for (name, task) in ["one", "two", "two"].into_iter().zip(tasks) {
        println!("{name} was {}", task.await.expect("no panic")??);
    }

    // An error of the mechanism is an answer like any other.
    let missing = watcher.ask(folder.join("four")).await?;
    println!("four cannot be watched: {}", missing.expect_err("it is not there"));

    // The third file never changes. The task that waits for it gets an error when the loop is
    // stopped.
    let waits = ask(&paths[2]);
    watcher.stop();
    println!("three: {}", waits.await.expect("no panic").expect_err("it was not changed"));
    Ok(())
}
