//! Programs that really run. Assertions hold on a busy machine too: they are about what ran, and not about how long.

use std::time::{Duration, Instant};

use dapple_insight::{AlreadyRecording, Insight, Recording};
use dapple_sched::{Colored, Runtime, spawn, when};
use dapple_sync::task::{TraceContext, traced};

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn the_state_that_all_tasks_use_is_found_with_its_line() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let insight = Insight::new(runtime.handle()).unwrap();
    let _entered = runtime.enter();
    let line = line!() + 1;
    let state = Colored::new(0);
    let session = insight.begin().unwrap();
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let state = state.clone();
            spawn(async move {
                let work = |count: &mut i32| {
                    spin(Duration::from_micros(200));
                    *count += 1;
                };
                state.with(work).await;
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    let snapshot = session.end().snapshot();
    let family = &snapshot.families[0];
    assert_eq!(family.name, format!("{}:{line}", file!()), "{snapshot}");
    assert!(family.is_state && family.colors == 1 && family.runs == 100, "{snapshot}");
    // All of the work is in it, but for the begins and ends of the tasks.
    assert!(family.run_ns >= 100 * 200_000, "{snapshot}");
    assert_eq!(snapshot.lost, 0);
}

#[test]
fn nothing_is_recorded_before_and_after_and_one_at_a_time() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let insight = Insight::new(runtime.handle()).unwrap();
    assert!(Insight::new(runtime.handle()).is_err(), "it has an observer");
    let run = || runtime.block_on(runtime.spawn(async {})).unwrap();
    run();
    let session = insight.begin().unwrap();
    assert_eq!(insight.begin().err(), Some(AlreadyRecording));
    drop(session);
    run();
    let snapshot = insight.begin().unwrap().end().snapshot();
    assert!(snapshot.families.is_empty() && snapshot.work_ns == 0, "{snapshot}");
}

#[test]
fn a_full_buffer_is_counted() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let insight = Insight::with_capacity(runtime.handle(), 10).unwrap();
    let session = insight.begin().unwrap();
    let color = runtime.handle().new_color();
    (0..100).for_each(|_| color.post(|| {}));
    runtime.block_on(color.spawn(async {})).unwrap();
    let snapshot = session.end().snapshot();
    assert!(snapshot.lost > 100, "{snapshot}");
    assert!(snapshot.to_string().contains("found no room"));
}

#[test]
fn edges_lead_from_the_poster() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let insight = Insight::new(runtime.handle()).unwrap();
    let session = insight.begin().unwrap();
    let (one, two) = (runtime.handle().new_color(), runtime.handle().new_color());
    let (tx, done) = std::sync::mpsc::channel();
    let inner = two.clone();
    let first = line!() + 1;
    one.post(move || inner.post(move || tx.send(()).unwrap()));
    done.recv().unwrap();
    runtime.block_on(runtime.spawn(async {})).unwrap();
    let snapshot = session.end().snapshot();
    let name = format!("{}:{first}", file!());
    assert!(snapshot.edges.iter().any(|edge| edge.from == name && edge.to == name), "{snapshot:?}");
}

#[test]
fn a_wait_for_several_colors_is_told_from_others() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let insight = Insight::new(runtime.handle()).unwrap();
    let session = insight.begin().unwrap();
    let (one, two) = (runtime.handle().new_color(), runtime.handle().new_color());
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let (tx, done) = std::sync::mpsc::channel();
    one.post(move || gate.recv().unwrap());
    let begin = Instant::now();
    let line = line!() + 1;
    when((&one, &two)).post(move |_| tx.send(()).unwrap());
    let posted = Instant::now();
    while begin.elapsed() < Duration::from_millis(5) {}
    let opened = Instant::now();
    open.send(()).unwrap();
    done.recv().unwrap();
    runtime.block_on(runtime.spawn(async {})).unwrap();
    let snapshot = session.end().snapshot();
    let name = format!("{}:{line}", file!());
    let several: u64 = snapshot.families.iter().map(|family| family.waits.several_ns).sum();
    // A hundredth for the two clocks.
    assert!(u128::from(several) * 100 >= (opened - posted).as_nanos() * 99, "{name}: {snapshot}");
}

#[test]
fn readers_are_told_from_writers() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let insight = Insight::new(runtime.handle()).unwrap();
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let session = insight.begin().unwrap();
    for n in 0..30 {
        let state = state.clone();
        let task = spawn(async move {
            match n % 3 {
                0 => state.with(|count| *count += 1).await,
                _ => state.read(|count| assert!(*count < 30)).await,
            }
        });
        runtime.block_on(task).unwrap();
    }
    let snapshot = session.end().snapshot();
    let family = snapshot.families.iter().find(|family| family.is_state).expect("it was used");
    assert_eq!((family.runs, family.reads), (30, 20), "{snapshot}");
}

#[test]
fn colors_with_one_label_are_one_family() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let insight = Insight::new(runtime.handle()).unwrap();
    let _entered = runtime.enter();
    let line = line!() + 1;
    let shards: Vec<_> = (0..4).map(|_| Colored::new(0)).collect();
    let plain = runtime.handle().new_color();
    shards.iter().for_each(|shard| shard.color().set_label("accounts"));
    let session = insight.begin().unwrap();
    runtime.block_on(dapple_sched::named("cleaner").spawn(async { spin(Duration::from_micros(100)) })).unwrap();
    let work = |count: &mut i32| {
        spin(Duration::from_millis(2));
        *count += 1;
    };
    let task = async move {
        for shard in shards {
            shard.with(work).await;
        }
    };
    runtime.block_on(plain.spawn(task)).unwrap();
    let recording = session.end();
    let snapshot = recording.snapshot();
    let family = |name: &str| snapshot.families.iter().find(|family| family.name == name).expect("it ran");
    let accounts = family("accounts");
    assert_eq!((accounts.colors, accounts.runs, accounts.is_state), (4, 4, true), "{snapshot}");
    assert_eq!(accounts.line, format!("{}:{line}", file!()));
    assert_eq!(family("cleaner").colors, 1);
    assert!(snapshot.to_string().contains("real.rs"), "{snapshot}");
    let mut saved = Vec::new();
    recording.save(&mut saved).unwrap();
    assert_eq!(Recording::load(&saved[..]).unwrap(), recording);
}

#[test]
fn tools_attach_to_a_process_one_after_the_other_and_not_too_many() {
    use std::io::{Read, Write};
    let runtime = dapple_io::runtime_builder().workers(2).build().unwrap();
    let _entered = runtime.enter();
    dapple_insight::attachable().unwrap();
    assert!(dapple_insight::attachable().is_err(), "the name is taken");
    let pid = std::process::id();
    let send = |attached: &dapple_insight::Attached, query: &str, field: &str| {
        let mut stream = std::net::TcpStream::connect(attached.addr()).unwrap();
        let request =
            format!("GET /snapshot.json?ms=10{query} HTTP/1.1\r\nhost: a\r\n{field}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let ask = |attached: &dapple_insight::Attached, token: &str| send(attached, &format!("&token={token}"), "a: b");
    for _ in 0..3 {
        let attached = dapple_insight::attach(pid).unwrap();
        // The name of the scheme is in any case (RFC 9110, section 11.1).
        let field = format!("authorization: bearer {}", attached.token());
        assert!(send(&attached, "", &field).starts_with("HTTP/1.1 200"));
        assert!(ask(&attached, attached.token()).starts_with("HTTP/1.1 200"));
        assert!(ask(&attached, "0123").starts_with("HTTP/1.1 401"));
    }
    // The program notices the end of the last one a little later.
    let until = Instant::now() + Duration::from_secs(60);
    let mut open = Vec::new();
    while open.len() < 4 {
        match dapple_insight::attach(pid) {
            Ok(attached) => open.push(attached),
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    }
    let refused = dapple_insight::attach(pid).unwrap_err().to_string();
    assert!(refused.contains("4 tools are attached already"), "{refused}");
    let absent = dapple_insight::attach(u32::MAX / 2).unwrap_err().to_string();
    assert!(absent.contains("lets no tool attach"), "{absent}");
}

#[test]
fn a_request_has_its_callbacks_and_the_states_that_it_used() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let insight = Insight::new(runtime.handle()).unwrap();
    let _entered = runtime.enter();
    let state = Colored::new(0);
    state.color().set_label("accounts");
    let ask = |sender| {
        let state = state.clone();
        let handler = async move {
            let work = |count: &mut i32| {
                spin(Duration::from_micros(300));
                *count += 1;
            };
            state.with(work).await;
            spawn(async { spin(Duration::from_micros(200)) }).await.unwrap();
            TraceContext::current()
        };
        runtime.block_on(spawn(traced(sender, handler))).unwrap()
    };
    let sender = TraceContext::parse(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    assert_eq!(ask(sender), sender, "nothing records: the sender's part goes on");
    assert_eq!(ask(None), None);
    let session = insight.begin().unwrap();
    let inside = ask(sender).unwrap();
    let other = ask(None).unwrap();
    // A request of another thread has no worker, and is left out.
    dapple_sched::block_on(traced(None, async {}));
    let recording = session.end();
    assert_eq!(inside.trace_id(), sender.unwrap().trace_id());
    assert!(inside.span_id() != sender.unwrap().span_id() && other.trace_id() != inside.trace_id());
    let snapshot = recording.snapshot();
    assert_eq!(snapshot.requests.len(), 2, "{:?}", snapshot.requests);
    let request = snapshot.requests.iter().find(|request| request.span == inside.span_id()).expect("it was answered");
    assert_eq!((request.parent, &*request.trace), (0x00f0_67aa_0ba9_02b7, "4bf92f3577b34da6a3ce929d0e0e4736"));
    assert!(request.steps.iter().any(|step| step.in_line && step.name == "accounts"), "{request:?}");
    let callbacks = request.steps.iter().filter(|step| !step.in_line);
    assert!(callbacks.count() >= 3, "the handler twice, and its task: {request:?}");
    assert!(request.took_ns >= 500_000, "{request:?}");
    let waterfall =
        dapple_insight::Waterfall::of(std::slice::from_ref(&recording), Some(&request.trace)).unwrap().to_string();
    assert!(waterfall.contains("  in accounts") && waterfall.contains('#'), "{waterfall}");
    let mut saved = Vec::new();
    recording.save(&mut saved).unwrap();
    assert_eq!(Recording::load(&saved[..]).unwrap(), recording);
}
