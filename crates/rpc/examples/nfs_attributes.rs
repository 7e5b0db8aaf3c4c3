//! The attributes of files through NFSv3 (RFC 1813): its procedures NULL and GETATTR, over TCP and
//! UDP, on one port and without a port mapper.
//!
//! ```text
//! cargo run -p rpc --example nfs_attributes -- FOLDER [PORT]
//! rpcinfo -a 127.0.0.1.27.98 -T tcp 100003 3
//! ```
//!
//! A file handle is a path below the folder, `.` for the folder itself. Types and XDR are those of
//! the crate `nfs3_types`.

use std::ffi::OsStr;
use std::io::{self, Cursor, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use dapple::fs::{Dir, OpenOptions};
use dapple::net::{TcpListener, UdpSocket};
use nfs3_types::nfs3::{
    GETATTR3args, GETATTR3resok, Nfs3Result, PROGRAM, VERSION, fattr3, ftype3, nfsstat3, nfstime3, specdata3,
};
use nfs3_types::xdr_codec::{Pack, Unpack, Void};
use rpc::{Call, Service};

#[dapple::main]
async fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let folder = words.next().ok_or_else(|| io::Error::other("usage: nfs_attributes FOLDER [PORT]"))?;
    let port = words.next().unwrap_or_else(|| "7010".to_owned());
    let root = Dir::open(folder).await?;
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    let address = listener.local_addr()?;
    let socket = UdpSocket::bind(address.to_string())?;
    // Each call is a task with its own color: it shares no state that could change.
    let service = Arc::new(Service::new().procedure(PROGRAM, VERSION, GETATTR, move |call| {
        drop(dapple::spawn(attributes(root.clone(), call)));
    }));
    // The last two numbers are the port.
    let [high, low] = address.port().to_be_bytes();
    println!("nfs_attributes listens on {address}; try: rpcinfo -a {}.{high}.{low} -T tcp 100003 3", address.ip());
    drop(dapple::spawn(service.clone().serve_udp(socket)));
    service.serve_tcp(listener).await
}

async fn attributes(root: Dir, call: Call) {
    let mut arguments = Cursor::new(call.arguments());
    let handle = match GETATTR3args::unpack(&mut arguments) {
        Ok((arguments, read)) if read == call.arguments().len() => arguments.object.data.into_owned(),
        _ => return call.garbage(),
    };
    let result = match look(&root, &handle).await {
        Ok(obj_attributes) => Nfs3Result::Ok(GETATTR3resok { obj_attributes }),
        Err(error) => Nfs3Result::Err((status_of(&error), Void)),
    };
    let mut results = Vec::new();
    // Dropping the call reports a failure of the server.
    if result.pack(&mut results).is_ok() {
        call.succeed(results);
    }
}

async fn look(root: &Dir, handle: &[u8]) -> io::Result<fattr3> {
    // Neither `..` nor a link leads out of the folder: the kernel ensures that.
    let mut options = OpenOptions::new();
    let file = root.open_beneath(OsStr::from_bytes(handle), options.read(true).path_only(true)).await?;
    let about = file.metadata().await?;
    let of = about.as_std();
    let time = |seconds: i64, nanoseconds: i64| nfstime3 { seconds: seconds as u32, nseconds: nanoseconds as u32 };
    Ok(fattr3 {
        type_: if of.is_dir() { ftype3::NF3DIR } else { ftype3::NF3REG },
        mode: of.mode() & 0o7777,
        nlink: of.nlink() as u32,
        uid: of.uid(),
        gid: of.gid(),
        size: of.size(),
        used: of.blocks() * 512,
        rdev: specdata3 { specdata1: 0, specdata2: 0 },
        fsid: of.dev(),
        fileid: of.ino(),
        atime: time(of.atime(), of.atime_nsec()),
        mtime: time(of.mtime(), of.mtime_nsec()),
        ctime: time(of.ctime(), of.ctime_nsec()),
    })
}

fn status_of(error: &io::Error) -> nfsstat3 {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => nfsstat3::NFS3ERR_STALE,
        ErrorKind::PermissionDenied => nfsstat3::NFS3ERR_ACCES,
        ErrorKind::CrossesDevices | ErrorKind::InvalidInput => nfsstat3::NFS3ERR_BADHANDLE,
        _ => nfsstat3::NFS3ERR_IO,
    }
}

const GETATTR: u32 = 1;
