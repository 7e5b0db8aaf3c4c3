//! Crashes, cuts, frozen hosts, clocks.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_sched::environment;
use dapple_sim::net::{TcpListener, TcpStream, UdpSocket};
use dapple_sim::time::{Instant, sleep, timeout};
use dapple_sim::{Fault, NameFault, Plan, Simulation, run_plan, run_seed, shrink};

const SECOND: Duration = Duration::from_secs(1);

fn with(fault: Fault, at: u32, lasts: u32) -> Plan {
    let mut plan = Plan::default();
    plan.add(SECOND * at, SECOND * lasts, fault);
    plan
}

/// Accepts, and keeps what it has accepted.
async fn keep() {
    let listener = TcpListener::bind("0.0.0.0:7").unwrap();
    let mut all = Vec::new();
    loop {
        all.push(listener.accept().await.unwrap());
    }
}

#[test]
fn a_crash_leaves_connections_half_open_and_memory_empty() {
    let mut sim = Simulation::new(1);
    let starts = Arc::new(AtomicU32::new(0));
    let inside = starts.clone();
    sim.host("server", move || {
        inside.fetch_add(1, Relaxed);
        keep()
    });
    sim.client("client", || async {
        let stream = TcpStream::connect("server:7").await.unwrap();
        assert!(timeout(SECOND * 5, stream.read(&mut [0])).await.is_err(), "nothing tells the client of the crash");
        stream.write_all(b"hello").await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        TcpStream::connect("server:7").await.unwrap();
    });
    sim.plan(with(Fault::Crash("server".into()), 1, 2));
    let outcome = sim.run();
    assert_eq!(outcome.failure, None);
    assert_eq!(starts.load(Relaxed), 2);
}

#[test]
fn a_crash_ends_everything_at_once() {
    let mut sim = Simulation::new(1);
    let count = Arc::new(AtomicU32::new(0));
    let (inside, seen) = (count.clone(), count.clone());
    sim.host("counts", move || {
        let count = inside.clone();
        async move {
            loop {
                sleep(SECOND).await;
                count.fetch_add(1, Relaxed);
            }
        }
    });
    sim.client("client", || sleep(SECOND * 100));
    sim.plan(with(Fault::Crash("counts".into()), 10, 1_000));
    assert_eq!(sim.run().failure, None);
    assert_eq!(seen.load(Relaxed), 9);
    assert_eq!(Arc::strong_count(&count), 2, "what the host had was dropped");
}

#[test]
fn a_cut_one_way_breaks_a_connection_when_patience_is_over() {
    let mut sim = Simulation::new(1);
    sim.host("server", keep);
    sim.client("client", || async {
        let stream = TcpStream::connect("server:7").await.unwrap();
        sleep(SECOND * 2).await;
        let start = Instant::now();
        stream.write_all(b"hello").await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(start.elapsed() > SECOND * 10);
        let error = TcpStream::connect("server:7").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
    sim.plan(with(Fault::Cut("client".into(), "server".into()), 1, 1_000));
    assert_eq!(sim.run().failure, None);
}

#[test]
fn a_short_cut_only_delays() {
    let mut sim = Simulation::new(1);
    sim.host("server", || async {
        let listener = TcpListener::bind("0.0.0.0:7").unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        std::future::pending::<()>().await;
    });
    sim.client("client", || async {
        let stream = TcpStream::connect("server:7").await.unwrap();
        sleep(SECOND * 2).await;
        let start = Instant::now();
        stream.write_all(b"hello").await.unwrap();
        stream.read_exact(&mut [0; 5]).await.unwrap();
        assert!(start.elapsed() > SECOND * 2);
    });
    sim.plan(with(Fault::Isolate("server".into()), 1, 4));
    assert_eq!(sim.run().failure, None);
}

#[test]
fn a_frozen_host_goes_on_where_it_was() {
    let mut sim = Simulation::new(1);
    sim.client("client", || async {
        let start = Instant::now();
        for _ in 0..20 {
            sleep(SECOND / 10).await;
        }
        assert!(start.elapsed() > SECOND * 11, "{:?}", start.elapsed());
    });
    sim.plan(with(Fault::Freeze("client".into()), 1, 10));
    assert_eq!(sim.run().failure, None);
}

/// The times at which 64 functions of the blocking pool ran on a host that begins them at once, and again after each start.
fn job_times(plan: Plan) -> Vec<Duration> {
    let times = Arc::new(Mutex::new(Vec::new()));
    let mut sim = Simulation::new(1);
    let of_host = times.clone();
    sim.host("a", move || {
        let times = of_host.clone();
        async move {
            let jobs = [(); 64].map(|()| {
                let times = times.clone();
                dapple_io::blocking::spawn_blocking(move || times.lock().unwrap().push(environment::start().elapsed()))
            });
            for job in jobs {
                job.await.unwrap();
            }
        }
    });
    sim.client("watch", || sleep(Duration::from_secs(30)));
    sim.plan(plan);
    assert_eq!(sim.run().failure, None);
    Arc::into_inner(times).unwrap().into_inner().unwrap()
}

#[test]
fn the_blocking_pool_of_a_frozen_host_stands_still() {
    let (start, second) = (Duration::from_micros(100), Duration::from_secs(1));
    let mut plan = Plan::default();
    plan.add(start, second * 10, Fault::Freeze("a".into()));
    let times = job_times(plan.clone());
    assert_eq!(times.len(), 64);
    assert!(times.iter().all(|time| *time <= start || *time >= start + second * 10), "{times:?}");
    assert!(times.last() >= Some(&(start + second * 10)), "none had to wait");
    // Those of a host that crashes meanwhile are gone, and those of its next start run once.
    plan.add(second * 5, second, Fault::Crash("a".into()));
    let again = job_times(plan);
    let before = times.iter().filter(|time| **time <= start).count();
    assert_eq!(again.len(), before + 64, "{again:?}");
}

#[test]
fn a_wall_clock_jumps_and_the_other_one_does_not() {
    let mut sim = Simulation::new(1);
    sim.client("client", || async {
        let (start, wall) = (Instant::now(), environment::system_now());
        sleep(SECOND * 2).await;
        assert!(environment::system_now().duration_since(wall).unwrap() > SECOND * 60);
        assert!(start.elapsed() < SECOND * 3);
        sleep(SECOND * 3).await;
        assert!(environment::system_now().duration_since(wall).unwrap() < SECOND * 6);
    });
    sim.plan(with(Fault::WallClock("client".into(), SECOND * 100), 1, 3));
    assert_eq!(sim.run().failure, None);
}

#[test]
fn a_wall_clock_goes_back_and_returns() {
    let mut sim = Simulation::new(1);
    sim.client("client", || async {
        let (start, wall) = (Instant::now(), environment::system_now());
        sleep(SECOND * 2).await;
        assert!(wall.duration_since(environment::system_now()).unwrap() > SECOND * 97);
        assert!(start.elapsed() < SECOND * 3);
        sleep(SECOND * 3).await;
        let since = environment::system_now().duration_since(wall).unwrap();
        assert!(since >= SECOND * 5 && since < SECOND * 6, "{since:?}");
    });
    sim.plan(with(Fault::WallClockBack("client".into(), SECOND * 100), 1, 3));
    assert_eq!(sim.run().failure, None);
}

/// When the timers of a host fire that has one each tenth of a second: for so many seconds of its clocks, in those of another host.
fn ticks_under(fault: Fault, lasts: u32, seconds: u32) -> Vec<Duration> {
    let (clock, ticks) = (Arc::new(Mutex::new(Duration::ZERO)), Arc::new(Mutex::new(Vec::new())));
    let mut sim = Simulation::new(1);
    let shown = clock.clone();
    sim.host("right", move || {
        let shown = shown.clone();
        async move {
            loop {
                sleep(Duration::from_millis(1)).await;
                *shown.lock().unwrap() = environment::start().elapsed();
            }
        }
    });
    let of_client = ticks.clone();
    sim.client("client", move || {
        let (clock, ticks) = (clock.clone(), of_client.clone());
        async move {
            let (start, wall) = (Instant::now(), environment::system_now());
            for tick in 1..=seconds * 10 {
                dapple_sim::time::sleep_until(start + SECOND * tick / 10).await;
                let late = start.elapsed() - SECOND * tick / 10;
                assert!(late < SECOND / 100, "tick {tick} is {late:?} late by its own clock");
                let by_wall = environment::system_now().duration_since(wall).unwrap();
                assert_eq!(by_wall, start.elapsed(), "both clocks drift");
                ticks.lock().unwrap().push(*clock.lock().unwrap());
            }
        }
    });
    sim.plan(with(fault, 1, lasts));
    assert_eq!(sim.run().failure, None);
    Arc::into_inner(ticks).unwrap().into_inner().unwrap()
}

#[test]
fn clocks_drift_for_as_long_as_the_plan_says() {
    let near = |time: Duration, seconds: f64| (time.as_secs_f64() - seconds).abs() < 0.02;
    // From second 1 on they go at one and a half times their speed, for two seconds.
    let fast = ticks_under(Fault::Drift("client".into(), 500_000), 2, 6);
    assert!(near(fast[9], 1.0) && near(fast[24], 2.0) && near(fast[39], 3.0) && near(fast[59], 5.0), "{fast:?}");
    // And at half of it.
    let slow = ticks_under(Fault::Drift("client".into(), -500_000), 2, 4);
    assert!(near(slow[9], 1.0) && near(slow[14], 2.0) && near(slow[19], 3.0) && near(slow[39], 5.0), "{slow:?}");
    // They nearly stand, whatever is asked for.
    let stood = ticks_under(Fault::Drift("client".into(), i32::MIN), 2, 2);
    assert!(near(stood[8], 0.9) && near(stood[10], 3.1) && near(stood[19], 4.0), "{stood:?}");
}

#[test]
fn a_reset_reaches_both_sides() {
    let mut sim = Simulation::new(1);
    sim.host("server", keep);
    sim.client("client", || async {
        let stream = TcpStream::connect("server:7").await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
    sim.plan(with(Fault::Reset("server".into()), 1, 1));
    assert_eq!(sim.run().failure, None);
}

/// The outcome of a read on a server that sends after so many seconds: after three, a cut has begun, and the client has reset the
/// connection.
fn read_after_a_reset(sends_after: u64, cut_for: u64) -> (Result<usize, ErrorKind>, Duration) {
    let read = Arc::new(Mutex::new(None));
    let of_server = read.clone();
    let mut sim = Simulation::new(1);
    sim.client("server", move || {
        let read = of_server.clone();
        async move {
            let (stream, _) = TcpListener::bind("0.0.0.0:7").unwrap().accept().await.unwrap();
            let early = timeout(Duration::from_secs(sends_after), stream.read(&mut [0])).await;
            assert!(early.is_err(), "a reset came through the cut: {early:?}");
            stream.write_all(b"!").await.unwrap();
            let got = stream.read(&mut [0]).await.map_err(|error| error.kind());
            *read.lock().unwrap() = Some((got, environment::start().elapsed()));
        }
    });
    sim.client("client", || async {
        let stream = TcpStream::connect("server:7").await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!(environment::start().elapsed() < Duration::from_secs(4));
    });
    let mut plan = with(Fault::Isolate("client".into()), 2, cut_for as u32);
    plan.add(Duration::from_secs(3), Duration::ZERO, Fault::Reset("client".into()));
    sim.plan(plan);
    assert_eq!(sim.run().failure, None);
    read.lock().unwrap().take().unwrap()
}

#[test]
fn no_reset_gets_through_a_cut() {
    let (read, at) = read_after_a_reset(10, 5);
    assert_eq!(read, Err(ErrorKind::ConnectionReset), "after the cut");
    assert!(at < Duration::from_secs(11), "{at:?}");
    let (read, at) = read_after_a_reset(10, 100);
    assert_eq!(read, Err(ErrorKind::TimedOut), "during the cut");
    assert!(at > Duration::from_secs(25), "{at:?}");
}

/// How an attempt to connect ends that comes to the server after 50 ms; the answer to it would need as long again.
fn attempt_during(fault: Fault, seconds: u32) -> (Option<ErrorKind>, Duration) {
    let end = Arc::new(Mutex::new(None));
    let of_client = end.clone();
    let mut sim = Simulation::new(1);
    sim.settings(|settings| settings.network.latency = Duration::from_millis(50)..Duration::from_millis(51));
    sim.host("server", keep);
    sim.client("client", move || {
        let end = of_client.clone();
        async move {
            let error = TcpStream::connect("server:7").await.err().map(|error| error.kind());
            *end.lock().unwrap() = Some((error, environment::start().elapsed()));
        }
    });
    let mut plan = Plan::default();
    plan.add(Duration::from_millis(75), Duration::from_secs(seconds.into()), fault);
    sim.plan(plan);
    assert_eq!(sim.run().failure, None);
    end.lock().unwrap().take().unwrap()
}

#[test]
fn a_client_asks_again_when_the_answer_is_lost() {
    let (error, at) = attempt_during(Fault::Crash("server".into()), 1);
    assert_eq!(error, None, "the server is up again");
    assert!(at > Duration::from_secs(1) && at < Duration::from_secs(3), "{at:?}");
    let (error, at) = attempt_during(Fault::Cut("server".into(), "client".into()), 600);
    assert_eq!(error, Some(ErrorKind::TimedOut));
    assert!(at < Duration::from_secs(30), "{at:?}");
}

/// For each of three seconds, in the second of which there is the fault: the longest time that an answer took, and how many of
/// a hundred were lost.
fn rounds_during(fault: &str) -> [(Duration, u32); 3] {
    let rounds = Arc::new(Mutex::new([(Duration::ZERO, 0); 3]));
    let of_client = rounds.clone();
    let mut sim = Simulation::new(1);
    sim.settings(|settings| (settings.network.loss, settings.network.reordering) = (0, 0));
    sim.host("server", || async {
        let socket = UdpSocket::bind("0.0.0.0:7").unwrap();
        loop {
            let (_, from) = socket.recv_from(&mut [0]).await.unwrap();
            socket.send_to(b"!", from).await.unwrap();
        }
    });
    sim.client("client", move || {
        let rounds = of_client.clone();
        async move {
            for number in 0..300 {
                let (socket, start) = (UdpSocket::bind("0.0.0.0:0").unwrap(), SECOND * number / 100);
                sleep((environment::start() + start).saturating_duration_since(Instant::now().into())).await;
                let sent = environment::start().elapsed();
                socket.send_to(b"?", "server:7").await.unwrap();
                let rounds = rounds.clone();
                let _answer = dapple_sched::spawn(async move {
                    let answer = timeout(SECOND * 2, socket.recv_from(&mut [0])).await;
                    let (slowest, lost) = &mut rounds.lock().unwrap()[number as usize / 100];
                    match answer {
                        Ok(_) => *slowest = (environment::start().elapsed() - sent).max(*slowest),
                        Err(_) => *lost += 1,
                    }
                });
            }
            sleep(SECOND * 3).await;
        }
    });
    sim.plan(format!("at 995ms, for 1s: {fault}").parse().unwrap());
    assert_eq!(sim.run().failure, None);
    *rounds.lock().unwrap()
}

#[test]
fn packets_take_longer_for_as_long_as_the_plan_says() {
    for fault in ["packets of server take 20 times as long", "packets from client to server take 20 times as long"] {
        let [before, during, after] = rounds_during(fault);
        assert!(before.0.max(after.0) < SECOND / 20 && during.0 > SECOND / 20, "{before:?} {during:?} {after:?}");
        assert_eq!((before.1, during.1, after.1), (0, 0, 0));
    }
}

#[test]
fn more_datagrams_are_lost_for_as_long_as_the_plan_says() {
    for ways in ["of client", "from server to client"] {
        let [before, during, after] = rounds_during(&format!("500000 of a million datagrams {ways} are lost"));
        assert!(during.1 > 30 && during.1 < 90, "{during:?}");
        assert_eq!((before.1, after.1), (0, 0));
    }
    let [_, other, _] = rounds_during("500000 of a million datagrams from server to server are lost");
    assert_eq!(other.1, 0);
}

/// When answers come to a client that asks on three connections at second 1; it connects `before` or after the begin of a stall.
fn answers_during_a_stall(before: bool, lasts: u32) -> Vec<Result<Duration, ErrorKind>> {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let of_client = answers.clone();
    let mut sim = Simulation::new(1);
    sim.host("server", || async {
        let listener = TcpListener::bind("0.0.0.0:7").unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let _answers = dapple_sched::spawn(async move {
                stream.read_exact(&mut [0]).await?;
                stream.write_all(b"!").await
            });
        }
    });
    sim.client("client", move || {
        let answers = of_client.clone();
        async move {
            sleep(if before { Duration::ZERO } else { SECOND * 3 / 4 }).await;
            let tasks = [(); 3].map(|()| {
                let answers = answers.clone();
                dapple_sched::spawn(async move {
                    let ask = async {
                        let stream = TcpStream::connect("server:7").await?;
                        sleep((environment::start() + SECOND).saturating_duration_since(Instant::now().into())).await;
                        stream.write_all(b"?").await?;
                        stream.read_exact(&mut [0]).await
                    };
                    let answer: std::io::Result<()> = ask.await;
                    let answer = answer.map(|()| environment::start().elapsed()).map_err(|error| error.kind());
                    answers.lock().unwrap().push(answer);
                })
            });
            for task in tasks {
                task.await.unwrap();
            }
        }
    });
    let mut plan = Plan::default();
    plan.add(SECOND / 2, SECOND * lasts, Fault::Stall("server".into(), "client".into()));
    sim.plan(plan);
    assert_eq!(sim.run().failure, None);
    Arc::into_inner(answers).unwrap().into_inner().unwrap()
}

#[test]
fn one_connection_stalls_and_others_work() {
    for before in [true, false] {
        let short = answers_during_a_stall(before, 5);
        let quick = |answer: &Result<Duration, _>| answer.is_ok_and(|at| at < SECOND * 2);
        assert!(quick(&short[0]) && quick(&short[1]), "{short:?}");
        assert!(short[2].is_ok_and(|at| at > SECOND * 5), "{short:?}");
        let long = answers_during_a_stall(before, 100);
        assert!(quick(&long[0]) && quick(&long[1]), "{long:?}");
        assert_eq!(long[2], Err(ErrorKind::TimedOut));
    }
}

#[test]
fn shrinking_leaves_what_matters() {
    let scenario = |sim: &mut Simulation| {
        sim.host("server", keep);
        sim.client("client", || async {
            let stream = TcpStream::connect("server:7").await.unwrap();
            sleep(SECOND * 20).await;
            stream.write_all(b"hello").await.unwrap();
        });
        let mut plan = Plan::default();
        plan.add(SECOND, SECOND, Fault::Freeze("server".into()));
        plan.add(SECOND * 3, SECOND, Fault::Reset("client".into()));
        plan.add(SECOND * 5, SECOND, Fault::WallClock("server".into(), SECOND));
        sim.plan(plan);
    };
    let outcome = run_seed(5, &scenario);
    assert!(outcome.failure.is_some());
    assert_eq!(shrink(&outcome, &scenario), [1]);
}

/// Connects at 0 s, 10 s and 20 s, with a fault of the name server between 9 s and 19 s: which attempts succeed, and how long they take.
fn attempts(seed: u64, how: NameFault) -> Vec<(bool, Duration)> {
    let all = Arc::new(Mutex::new(Vec::new()));
    let inside = all.clone();
    let mut sim = Simulation::new(seed);
    sim.host("server", keep);
    sim.host("other", std::future::pending::<()>);
    sim.client("client", move || {
        let all = inside.clone();
        async move {
            let began = Instant::now();
            for attempt in 0..3 {
                sleep((SECOND * 10 * attempt).saturating_sub(began.elapsed())).await;
                let start = Instant::now();
                let connected = timeout(SECOND * 5, TcpStream::connect("server:7")).await;
                all.lock().unwrap().push((matches!(connected, Ok(Ok(_))), start.elapsed()));
            }
        }
    });
    sim.plan(with(Fault::Names("client".into(), how), 9, 10));
    assert_eq!(sim.run().failure, None);
    Arc::into_inner(all).unwrap().into_inner().unwrap()
}

#[test]
fn name_servers_lie_for_as_long_as_the_plan_says() {
    for seed in 1..20 {
        let works = |attempts: &[(bool, Duration)]| attempts.iter().map(|(works, _)| *works).collect::<Vec<_>>();
        for how in [NameFault::Missing, NameFault::Wrong] {
            assert_eq!(works(&attempts(seed, how)), [true, false, true], "{how:?}, seed {seed}");
        }
        let late = attempts(seed, NameFault::Slow(SECOND * 3));
        assert_eq!(works(&late), [true; 3], "seed {seed}");
        assert!(late[0].1 < SECOND && late[1].1 >= SECOND * 3 && late[2].1 < SECOND, "{late:?}");
    }
}

#[test]
fn a_written_plan_is_in_place_of_that_of_the_scenario() {
    let scenario = |sim: &mut Simulation| {
        sim.host("server", keep);
        sim.client("client", || async {
            let stream = TcpStream::connect("server:7").await.unwrap();
            assert!(timeout(SECOND * 5, stream.read(&mut [0])).await.is_err(), "the connection ends");
        });
        sim.plan(with(Fault::Reset("client".into()), 1, 1));
    };
    assert!(run_seed(1, &scenario).failure.is_some_and(|why| why.contains("the connection ends")));
    let peace = run_plan(1, &Plan::default(), &scenario);
    assert_eq!(peace.failure, None);
    let written = "at 2s, for 1s: connections of server are reset".parse().unwrap();
    let outcome = run_plan(1, &written, &scenario);
    assert!(outcome.failure.is_some() && outcome.plan == written);
    assert!(outcome.lines.iter().any(|line| line.contains("fault 0 begins")), "{:?}", outcome.lines);
    let elsewhere = run_plan(1, &"at 2s, for 1s: db crashes".parse().unwrap(), &scenario);
    assert!(elsewhere.failure.is_some_and(|why| why.contains("a host \"db\"")));
}
