//! Children and their ends.

use std::process::{Command, Stdio};

use dapple_io::event::on_child_exit;
use dapple_io::process;

use crate::{LIMIT, channel_callback, run, runtime};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn the_status_comes_back() {
    run(1, async {
        let mut child = process::spawn(shell("exit 3")).await?;
        assert_eq!(child.wait().await?.code(), Some(3));
        assert_eq!(child.wait().await?.code(), Some(3), "again");
        std::io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn pipes_to_a_child() {
    run(1, async {
        let mut command = shell("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = process::spawn(command).await?;
        let stdin = child.take_stdin().unwrap()?;
        let stdout = child.take_stdout().unwrap()?;
        stdin.write_all(b"through").await?;
        drop(stdin);
        let mut buf = [0; 7];
        stdout.read_exact(&mut buf).await?;
        assert_eq!(&buf, b"through");
        assert_eq!(stdout.read(&mut buf).await?, 0);
        assert!(child.wait().await?.success());
        std::io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn a_killed_child_ends() {
    run(1, async {
        let mut command = shell("read forever");
        command.stdin(Stdio::piped());
        let mut child = process::spawn(command).await?;
        let _stdin = child.take_stdin();
        assert!(child.try_wait()?.is_none());
        child.kill()?;
        assert!(!child.wait().await?.success());
        std::io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn child_exit_calls_back_once() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (callback, rx) = channel_callback();
    let child = shell("exit 4").spawn().unwrap();
    let _registration = on_child_exit(child, callback).unwrap();
    let status = rx.recv_timeout(LIMIT).unwrap().unwrap();
    assert_eq!(status.code(), Some(4));
    assert!(rx.recv_timeout(LIMIT).is_err(), "the callback was dropped");
}
