//! New versions take over from old ones.

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dapple::stage::remote::{Peer, RemoteStage};

use super::{StageHost, command, until};

#[test]
fn no_request_is_lost_while_one_process_after_the_other_takes_over() {
    let mut host = StageHost::start(&["--take-over"]);
    let address = host.address.clone();
    let runtime = dapple::builder().workers(2).build().unwrap();
    runtime.block_on(async {
        let (replies, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let senders: Vec<_> = (0..8)
            .map(|number| {
                // Each sender has a separate connection, and every fourth sender makes a new one
                // each time.
                let peer = Peer::new(address.as_str()).unwrap();
                let (address, replies, stop) = (address.clone(), replies.clone(), stop.clone());
                dapple::spawn(async move {
                    let mut echo: RemoteStage<String, String> = peer.stage("echo");
                    while !stop.load(Ordering::SeqCst) {
                        if number % 4 == 0 {
                            echo = Peer::new(address.as_str()).unwrap().stage("echo");
                        }
                        let text = replies.load(Ordering::SeqCst).to_string();
                        let reply = echo.send(text.clone()).await;
                        assert_eq!(reply.unwrap_or_else(|error| panic!("a request was lost: {error}")), text);
                        replies.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        for _ in 0..5 {
            let before = replies.load(Ordering::SeqCst);
            until("requests flow", || replies.load(Ordering::SeqCst) > before + 200).await;
            let next = StageHost::start_at(&address, &["--take-over"]);
            assert!(host.wait().success(), "the previous one ends by itself");
            host = next;
        }
        let before = replies.load(Ordering::SeqCst);
        until("requests flow", || replies.load(Ordering::SeqCst) > before + 200).await;
        stop.store(true, Ordering::SeqCst);
        for sender in senders {
            sender.await.expect("no request was lost");
        }
    });
    host.signal("TERM");
    assert!(host.wait().success());
}

#[test]
fn a_failed_successor_leaves_the_host_unchanged() {
    let mut host = StageHost::start(&[]);
    let mut wrong = command();
    wrong.args(["--listen", &host.address, "--take-over", "--stage", "nonsense"]);
    assert_eq!(StageHost::try_spawn(wrong).err().and_then(|status| status.code()), Some(2));
    // A process that gets the socket and ends.
    let name = UnixAddr::from_abstract_name(format!("dapple-stage-host/{}", host.address)).unwrap();
    let mut word = [0];
    UnixStream::connect_addr(&name).unwrap().read_exact(&mut word).unwrap();
    let runtime = dapple::builder().workers(1).build().unwrap();
    runtime.block_on(async {
        let mut echo: RemoteStage<String, String> = Peer::new(host.address.as_str()).unwrap().stage("echo");
        assert_eq!(echo.send("still here".into()).await.unwrap(), "still here");
    });
    assert!(host.child.try_wait().unwrap().is_none(), "it goes on");
}
