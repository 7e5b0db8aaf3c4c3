//! `examples/nfs_attributes.rs`, called by this crate's client, and by `rpcinfo` if that is
//! installed.

use std::fs;
use std::io::{BufRead, BufReader, Cursor};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nfs3_types::nfs3::{GETATTR3args, GETATTR3resok, Nfs3Result, PROGRAM, fattr3, ftype3, nfs_fh3, nfsstat3};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack, Void};
use rpc::{CallError, Client};

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(folder: &Path) -> Server {
        let mut child = Command::new(executable()).arg(folder).arg("0").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split(" listens on ").nth(1).and_then(|rest| rest.split(';').next()?.parse().ok());
        Server { child, address: address.unwrap_or_else(|| panic!("it says where it listens: {line:?}")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Cargo builds examples for `cargo test`, but not when specific tests are selected. CI names its own
/// packages and features: with other ones, cargo would build most libraries again.
fn executable() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    let selection = std::env::var("DAPPLE_TEST_SELECTION");
    let selection = selection.as_deref().unwrap_or("--package rpc");
    cargo.arg("build").args(selection.split(' ')).args(["--example", "nfs_attributes", "--message-format", "json"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let found = messages.split("\"executable\":\"").filter_map(|rest| rest.split('"').next());
    found.map(PathBuf::from).find(|path| path.ends_with("nfs_attributes")).expect("it is an example")
}

async fn attributes(client: &Client, handle: &str) -> Result<fattr3, nfsstat3> {
    let object = nfs_fh3 { data: Opaque::owned(handle.as_bytes().to_vec()) };
    let mut arguments = Vec::new();
    GETATTR3args { object }.pack(&mut arguments).unwrap();
    let results = client.call(PROGRAM, 3, 1, arguments).await.unwrap();
    let (result, read) = Nfs3Result::<GETATTR3resok, Void>::unpack(&mut Cursor::new(&results)).unwrap();
    assert_eq!(read, results.len());
    match result {
        Nfs3Result::Ok(found) => Ok(found.obj_attributes),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

#[test]
fn files_have_attributes() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    fs::write(folder.path().join("a/file"), "twelve bytes").unwrap();
    symlink("/etc", folder.path().join("out")).unwrap();
    let server = Server::start(folder.path());
    dapple::block_on(async {
        for client in [Client::tcp(server.address).await.unwrap(), Client::udp(server.address).await.unwrap()] {
            assert_eq!(client.call(PROGRAM, 3, 0, Vec::new()).await, Ok(Vec::new()));
            let found = attributes(&client, "a/file").await.unwrap();
            let expected = fs::metadata(folder.path().join("a/file")).unwrap();
            assert_eq!((found.type_, found.size, found.fileid), (ftype3::NF3REG, 12, expected.ino()));
            assert_eq!(attributes(&client, ".").await.unwrap().type_, ftype3::NF3DIR);
            assert_eq!(attributes(&client, "a/none").await.unwrap_err(), nfsstat3::NFS3ERR_STALE);
            for outside in ["..", "/etc", "out/passwd", "a/../../x"] {
                assert_eq!(attributes(&client, outside).await.unwrap_err(), nfsstat3::NFS3ERR_BADHANDLE, "{outside}");
            }
            for garbage in [&[][..], &[0, 0, 1], &[0, 0, 0, 200, 1], &[0, 0, 0, 0, 1]] {
                let error = client.call(PROGRAM, 3, 1, garbage.to_vec()).await.unwrap_err();
                assert_eq!(error, CallError::GarbageArguments, "{garbage:?}");
            }
            let error = client.call(PROGRAM, 2, 1, Vec::new()).await.unwrap_err();
            assert_eq!(error, CallError::ProgramMismatch { low: 3, high: 3 });
        }
    });
}

#[test]
fn rpcinfo_finds_it_where_that_is_installed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let [high, low] = server.address.port().to_be_bytes();
    for transport in ["tcp", "udp"] {
        let mut rpcinfo = Command::new("rpcinfo");
        rpcinfo.args(["-a", &format!("127.0.0.1.{high}.{low}"), "-T", transport, "100003", "3"]);
        let Ok(output) = rpcinfo.output() else {
            println!("rpcinfo is not installed (Debian: rpcbind)");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("program 100003 version 3 ready and waiting"), "{transport}: {output:?}");
    }
}
