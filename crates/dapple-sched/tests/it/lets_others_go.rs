//! A check for the tests of budgets in all crates, which each name `runtime`, `spawn` and `MANY`.

/// Checks, with one worker, that a task which prepares this and then repeats this round lets
/// another one start.
macro_rules! lets_others_go {
    ($name:expr, $round:block) => {
        lets_others_go!($name, {}, |()| $round)
    };
    ($name:expr, $prepare:block, |$of:pat_param| $round:block) => {
        runtime(1).block_on(async {
            let rounds = spawn(async move {
                let $of = $prepare;
                let started = Arc::new(AtomicBool::new(false));
                drop(spawn({
                    let started = started.clone();
                    async move { started.store(true, Relaxed) }
                }));
                let mut rounds = 0;
                while rounds < MANY && !started.load(Relaxed) {
                    $round
                    rounds += 1;
                }
                rounds
            });
            assert!(rounds.await.unwrap() < MANY, "{}: no other task has started", $name);
        })
    };
}
