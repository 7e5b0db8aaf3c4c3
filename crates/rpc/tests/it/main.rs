//! Servers and clients, and hand-written messages.

mod nfs;

use std::io::{Read, Write};
use std::net::{self, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use dapple::net::{TcpListener, UdpSocket};
use dapple::sync::mpsc;
use dapple::{Color, Colored};
use rpc::{CALLS_MAX, CallError, Client, MESSAGE_MAX, Service};

const PROGRAM: u32 = 0x2000_0001;
const ECHO: u32 = 1;
const COUNT: u32 = 2;
const DROP: u32 = 3;
const LONG: u32 = 4;
const GARBAGE: u32 = 5;

/// A service with versions 2 and 4 on both transports, and a counter of the calls of procedure
/// `COUNT`.
fn start() -> (SocketAddr, SocketAddr, Arc<AtomicU32>) {
    let runs = Arc::new(AtomicU32::new(0));
    let (counted, total) = (Colored::new(0_u32), runs.clone());
    let service = Service::new()
        .procedure(PROGRAM, 2, ECHO, |call| {
            let arguments = call.arguments().to_vec();
            call.succeed(arguments);
        })
        .procedure(PROGRAM, 4, ECHO, |call| call.succeed(Vec::new()))
        .procedure(PROGRAM, 2, COUNT, move |call| {
            total.fetch_add(1, SeqCst);
            counted.post(|count| {
                *count += 1;
                call.succeed(count.to_be_bytes().to_vec());
            });
        })
        .procedure(PROGRAM, 2, DROP, drop)
        .procedure(PROGRAM, 2, LONG, |call| call.succeed(vec![0; MESSAGE_MAX]))
        .procedure(PROGRAM, 2, GARBAGE, rpc::Call::garbage);
    let service = Arc::new(service);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addresses = (listener.local_addr().unwrap(), socket.local_addr().unwrap());
    drop(dapple::spawn(service.clone().serve_tcp(listener)));
    drop(dapple::spawn(service.serve_udp(socket)));
    (addresses.0, addresses.1, runs)
}

async fn clients() -> [Client; 2] {
    let (tcp, udp, _) = start();
    [Client::tcp(tcp).await.unwrap(), Client::udp(udp).await.unwrap()]
}

fn run(test: impl Future<Output = ()>) {
    dapple::builder().workers(2).build().unwrap().block_on(test);
}

#[test]
fn calls_are_dispatched_by_program_version_and_procedure() {
    run(async {
        for client in clients().await {
            assert_eq!(client.call(PROGRAM, 2, ECHO, b"echo".to_vec()).await, Ok(b"echo".to_vec()));
            assert_eq!(client.call(PROGRAM, 4, ECHO, b"echo".to_vec()).await, Ok(Vec::new()));
            assert_eq!(client.call(PROGRAM, 4, 0, Vec::new()).await, Ok(Vec::new()), "the procedure that does nothing");
            for (program, version, procedure, error) in [
                (PROGRAM + 1, 2, ECHO, CallError::ProgramUnavailable),
                (PROGRAM, 3, ECHO, CallError::ProgramMismatch { low: 2, high: 4 }),
                (PROGRAM, 4, COUNT, CallError::ProcedureUnavailable),
                (PROGRAM, 2, GARBAGE, CallError::GarbageArguments),
                (PROGRAM, 2, DROP, CallError::SystemError),
                (PROGRAM, 2, LONG, CallError::SystemError),
            ] {
                assert_eq!(client.call(program, version, procedure, Vec::new()).await, Err(error));
            }
            assert_eq!(client.call(PROGRAM, 2, ECHO, vec![0; MESSAGE_MAX]).await, Err(CallError::TooLong));
            let long = vec![7; 60_000];
            assert_eq!(client.call(PROGRAM, 2, ECHO, long.clone()).await, Ok(long));
        }
    });
}

#[test]
fn replies_are_callbacks_in_a_color() {
    run(async {
        for client in clients().await {
            let (tell, mut told) = mpsc::channel(CALLS_MAX);
            let color = Color::new();
            for number in 0..100_u32 {
                let (tell, expected) = (tell.clone(), color.clone());
                let callback = color.wrap(move |result: Result<Vec<u8>, CallError>| {
                    assert_eq!(Color::current(), expected);
                    tell.try_send((number, result)).unwrap();
                });
                client.call_then(PROGRAM, 2, ECHO, number.to_be_bytes().to_vec(), callback);
            }
            for _ in 0..100 {
                let (number, result) = told.recv().await.unwrap();
                assert_eq!(result, Ok(number.to_be_bytes().to_vec()));
            }
        }
    });
}

#[test]
fn a_client_has_a_bounded_number_of_calls_and_fails_them_at_its_end() {
    run(async {
        // A server that reads everything and never answers.
        let silent = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::tcp(silent.local_addr().unwrap()).await.unwrap();
        let (tell, mut told) = mpsc::channel(2 * CALLS_MAX);
        for _ in 0..=CALLS_MAX {
            let tell = tell.clone();
            let callback = Color::new().wrap(move |result| tell.try_send(result).unwrap());
            client.call_then(PROGRAM, 2, ECHO, Vec::new(), callback);
        }
        assert_eq!(told.recv().await, Some(Err(CallError::TooManyCalls)));
        drop(client);
        for _ in 0..CALLS_MAX {
            let ended = Err(CallError::Disconnected(std::io::ErrorKind::ConnectionAborted));
            assert_eq!(told.recv().await, Some(ended));
        }
        // A server that closes.
        let client = Client::tcp(silent.local_addr().unwrap()).await.unwrap();
        drop(silent);
        let error = client.call(PROGRAM, 2, ECHO, Vec::new()).await.unwrap_err();
        assert!(matches!(error, CallError::Disconnected(_)), "{error}");
    });
}

/// The network loses the first call and the reply to the second one: the client sends the call
/// three times, and it runs once.
#[test]
fn a_call_is_sent_again_and_runs_once() {
    run(async {
        let (_, server, runs) = start();
        let network = net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = Client::udp(network.local_addr().unwrap()).await.unwrap();
        let losing = std::thread::spawn(move || {
            let to_server = net::UdpSocket::bind("127.0.0.1:0").unwrap();
            to_server.connect(server).unwrap();
            to_server.set_read_timeout(Some(PATIENCE)).unwrap();
            network.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut buffer = [0; 1000];
            let mut calls = Vec::new();
            let mut replies = Vec::new();
            for round in 0..3 {
                let (len, from) = network.recv_from(&mut buffer).unwrap();
                calls.push(buffer[..len].to_vec());
                if round == 0 {
                    continue;
                }
                to_server.send(&buffer[..len]).unwrap();
                let len = to_server.recv(&mut buffer).unwrap();
                replies.push(buffer[..len].to_vec());
                if round == 2 {
                    network.send_to(&buffer[..len], from).unwrap();
                    // A second reply gives no second result.
                    network.send_to(&buffer[..len], from).unwrap();
                }
            }
            (calls, replies)
        });
        assert_eq!(client.call(PROGRAM, 2, COUNT, Vec::new()).await, Ok(vec![0, 0, 0, 1]));
        let (calls, replies) = losing.join().unwrap();
        assert!(calls.iter().all(|call| *call == calls[0]), "the same call");
        assert_eq!(replies[0], replies[1], "the same reply");
        assert_eq!(runs.load(SeqCst), 1);
    });
}

/// A hand-written call: transaction 9, of this version of RPC, for the procedure that does nothing.
fn call(rpc_version: u32) -> Vec<u8> {
    let words = [9, 0, rpc_version, PROGRAM, 2, 0, 0, 0, 0, 0];
    words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn records_in_pieces_and_other_versions_of_rpc() {
    run(async {
        let (tcp, udp, _) = start();
        let by_hand = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(tcp).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let message = call(2);
            // In three fragments, one of which is empty; then each byte alone.
            let mut pieces = 10_u32.to_be_bytes().to_vec();
            pieces.extend_from_slice(&message[..10]);
            pieces.extend_from_slice(&0_u32.to_be_bytes());
            pieces.extend_from_slice(&(1 << 31 | (message.len() as u32 - 10)).to_be_bytes());
            pieces.extend_from_slice(&message[10..]);
            pieces.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
            let mut reply = [0; 28];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(words(&reply), [1 << 31 | 24, 9, 1, 0, 0, 0, 0]);
            stream.write_all(&(1_u32 << 31 | 40).to_be_bytes()).unwrap();
            stream.write_all(&call(3)).unwrap();
            let mut reply = [0; 28];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(words(&reply), [1 << 31 | 24, 9, 1, 1, 0, 2, 2], "RPC_MISMATCH: 2 to 2");

            let socket = net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            // Not a call: no answer, and no harm.
            for nonsense in [&b""[..], b"x", &[0xff; 100]] {
                socket.send_to(nonsense, udp).unwrap();
            }
            socket.send_to(&call(2), udp).unwrap();
            let mut reply = [0; 100];
            let len = socket.recv(&mut reply).unwrap();
            assert_eq!(words(&reply[..len]), [9, 1, 0, 0, 0, 0]);

            // Too long, endless, and not a call: the connection ends.
            let endless = 1_u32.to_be_bytes().into_iter().chain([0]).collect::<Vec<u8>>().repeat(100);
            for bytes in [&[0xff; 4][..], &(1_u32 << 30).to_be_bytes(), &endless, b"GET / HTTP/1.1\r\n\r\n"] {
                let mut stream = TcpStream::connect(tcp).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.write_all(bytes).unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
            }
        });
        dapple::blocking::spawn_blocking(move || by_hand.join().unwrap()).await.unwrap();
    });
}

/// Only a bug reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
