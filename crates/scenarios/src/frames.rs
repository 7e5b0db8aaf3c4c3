//! Messages with a length in front, over connections that break.

use std::io;
use std::time::Duration;

use dapple_sim::net::{TcpListener, TcpStream};
use dapple_sim::time::{sleep, timeout};
use dapple_sim::{Faults, Simulation};

use crate::Scenario;

pub(crate) const FRAMES: Scenario = Scenario {
    name: "frames",
    holds: "each question has its own answer, whole, over connections that are cut into pieces and break",
    setup: |sim| frames(sim, None),
    bugs: &[
        ("a message is taken for one read", |sim| frames(sim, Some(Bug::OneRead))),
        ("a message is taken for one write", |sim| frames(sim, Some(Bug::OneWrite))),
        ("a question that timed out is asked again on the same connection", |sim| {
            frames(sim, Some(Bug::SameConnection))
        }),
        ("a connection that broke ends the client", |sim| frames(sim, Some(Bug::GivesUp))),
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    OneRead,
    OneWrite,
    SameConnection,
    GivesUp,
}

fn frames(sim: &mut Simulation, bug: Option<Bug>) {
    sim.settings(|settings| settings.time_max = Duration::from_secs(600));
    sim.host("server", || async {
        let listener = TcpListener::bind("0.0.0.0:80").unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            let _detached = dapple_sched::spawn(async move {
                while let Ok(mut message) = receive(&stream, None).await {
                    message.reverse();
                    if send(&stream, &message, None).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let len_max = 1 + sim.pick(200_000);
    sim.client("client", move || async move {
        let mut connection = None;
        for number in 0..20_usize {
            let question: Vec<u8> = (0..1 + number * 7_919 % len_max).map(|at| (at ^ number) as u8).collect();
            loop {
                let asked = timeout(Duration::from_secs(2), ask(&mut connection, &question, bug)).await;
                match asked {
                    Ok(Ok(answer)) => {
                        assert!(answer.iter().eq(question.iter().rev()), "question {number} has another's answer");
                        break;
                    }
                    Ok(Err(error)) if bug == Some(Bug::GivesUp) => panic!("{error}"),
                    Err(_) if bug == Some(Bug::SameConnection) => {}
                    _ => connection = None,
                }
                sleep(Duration::from_millis(100)).await;
            }
        }
    });
    sim.faults(
        &Faults::new(Duration::from_secs(3)).cut("client", "server").reset("server").freeze("server").crash("server"),
    );
}

async fn ask(connection: &mut Option<TcpStream>, question: &[u8], bug: Option<Bug>) -> io::Result<Vec<u8>> {
    let stream = match connection {
        Some(stream) => stream,
        None => connection.insert(TcpStream::connect("server:80").await?),
    };
    send(stream, question, bug).await?;
    receive(stream, bug).await
}

async fn send(stream: &TcpStream, message: &[u8], bug: Option<Bug>) -> io::Result<()> {
    let mut bytes = (message.len() as u32).to_be_bytes().to_vec();
    bytes.extend(message);
    match bug {
        Some(Bug::OneWrite) => stream.write(&bytes).await.map(drop),
        _ => stream.write_all(&bytes).await,
    }
}

async fn receive(stream: &TcpStream, bug: Option<Bug>) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).await?;
    let mut message = vec![0; u32::from_be_bytes(len) as usize];
    match bug {
        Some(Bug::OneRead) => _ = stream.read(&mut message).await?,
        _ => stream.read_exact(&mut message).await?,
    }
    Ok(message)
}
