//! The messages between a mount and the service.
//!
//! A mount asks by `POST /-/mount` over HTTP/2, one request for each call, many at a time. A body is the length of a message (four bytes, little-endian), the message in postcard's format, and then data: of a write in requests, of a read in replies. Data are not part
//! of the message, so that neither side copies them once more.
//!
//! Rejected: WebDAV (no leases, no handles, and XML for each attribute) and a protocol of its own on TLS (HTTP/2 already has streams,
//! windows, pings and the end of a connection, and one server serves both faces).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::lease::{ClientId, Lease, Recall};
use crate::path::TreePath;
use crate::ranges::Range;
use crate::tree::{AttributeChange, Attributes, Entry, Kind, NodeId, Space};

/// A call of a mount.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    /// The mount.
    pub(crate) client: ClientId,
    /// The call's number: a call that is sent again has the same, and happens once.
    pub(crate) number: u64,
    /// All changes with lower numbers are answered, or will not be sent again.
    pub(crate) oldest: u64,
    /// Leases given back, up to the grants of these numbers.
    pub(crate) released: Vec<(NodeId, u64)>,
    /// The action.
    pub(crate) action: Action,
}

/// The action of a call. Handles are numbers that the mount chooses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Action {
    /// Begins, and learns the duration of leases.
    Hello,
    /// Waits for recalls, up to some seconds. Answered by `Hello` if the service did not start with this number.
    Recalls {
        seconds: u32,
        start: u64,
    },
    /// The attributes of a name.
    LookUp(TreePath),
    /// A page of a directory with the attributes of its entries: those after a name.
    List {
        path: TreePath,
        after: Vec<u8>,
    },
    ReadLink(TreePath),
    Space,
    /// Opens a file; with the permissions of one to be made.
    Open {
        path: TreePath,
        handle: u64,
        how: OpenHow,
    },
    Close(u64),
    Read {
        handle: u64,
        offset: u64,
        len: u32,
    },
    /// Writes the data in pieces, each at an offset and with a length, and then changes attributes. With the grant of a
    /// delegation if they were kept by one, which must still last.
    Put {
        handle: u64,
        delegation: Option<u64>,
        pieces: Vec<(u64, u32)>,
        change: AttributeChange,
    },
    /// Waits until the data of a handle are on the disk.
    Sync(u64),
    SyncDir(TreePath),
    MakeDir(TreePath, u32),
    MakeNode(TreePath, Kind, u32),
    RemoveFile(TreePath),
    RemoveDir(TreePath),
    Rename {
        from: TreePath,
        to: TreePath,
        replace: bool,
    },
    Link(TreePath, TreePath),
    Symlink {
        path: TreePath,
        target: Vec<u8>,
    },
    Set(TreePath, AttributeChange),
    /// The attributes of an open file, which may have no name any more.
    SetOpen(u64, AttributeChange),
    Extended(TreePath, Vec<u8>),
    SetExtended(TreePath, Vec<u8>, Option<Vec<u8>>),
    ListExtended(TreePath),
    /// Locks bytes of an open file, for an owner that the mount names; answered by `Locked` if another lock is in the way.
    Lock {
        handle: u64,
        owner: u64,
        range: Range,
    },
    Unlock {
        handle: u64,
        owner: u64,
        start: u64,
        end: u64,
    },
    /// The lock that is in the way of one.
    TestLock {
        handle: u64,
        owner: u64,
        range: Range,
    },
    /// Waits until no lock is in the way of one, up to some seconds.
    AwaitLock {
        handle: u64,
        owner: u64,
        range: Range,
        seconds: u32,
    },
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenHow {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) truncate: bool,
    pub(crate) create: Option<u32>,
    pub(crate) only_new: bool,
    /// Each write goes to the end of the file, wherever that is by then.
    pub(crate) append: bool,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The start of the service, which a restart changes, that of its machine, and the duration of leases in milliseconds.
    Hello {
        start: u64,
        boot: u64,
        lease_ms: u32,
    },
    Recalls(Vec<Recall>),
    Found(Attributes, Option<Lease>),
    /// A directory just made, with its lease: as long as that lasts, it is empty but for what this mount makes in it.
    NewDir(Attributes, Lease),
    /// There is no such name, with the directory's identity and lease: as long as that lasts, there is none.
    Missing(Option<(NodeId, Lease)>),
    Entries {
        directory: NodeId,
        lease: Option<Lease>,
        entries: Vec<(Entry, Option<Lease>)>,
        /// Where the next page begins.
        next: Option<Vec<u8>>,
    },
    /// Open; the beginning of the file follows, if it was asked to be read.
    Opened(Attributes, Option<Lease>),
    /// The data follow.
    Data,
    Done,
    Bytes(Option<Vec<u8>>),
    Names(Vec<Vec<u8>>),
    Space(Space),
    /// The number of the kernel's error.
    Failed(i32),
    /// The service does not know the handle, because it started anew.
    UnknownHandle,
    /// A lock that is in the way, with its process if that is one of the same mount.
    Locked(Option<Range>),
}

/// Writes a message and the data after it.
pub(crate) fn encode(message: &impl Serialize, data: &[u8]) -> Result<Bytes, postcard::Error> {
    let message = postcard::to_stdvec(message)?;
    let mut body = BytesMut::with_capacity(4 + message.len() + data.len());
    body.put_u32_le(message.len() as u32);
    body.put_slice(&message);
    body.put_slice(data);
    Ok(body.freeze())
}

/// Reads a message and the data after it.
pub(crate) fn decode<T: DeserializeOwned>(mut body: Bytes) -> Option<(T, Bytes)> {
    if body.len() < 4 {
        return None;
    }
    let len = body.get_u32_le() as usize;
    if len > body.len() {
        return None;
    }
    let message = body.split_to(len);
    Some((postcard::from_bytes(&message).ok()?, body))
}

/// The type of a call's body.
pub(crate) const CONTENT_TYPE: &str = "application/x-dapple-mount";

/// The path of all calls.
pub(crate) const PATH: &str = "/-/mount";

/// The most pieces of one [`Action::Put`].
pub(crate) const PIECES_MAX: usize = 256;

/// The most bytes of data in a call or an answer.
pub(crate) const DATA_MAX: usize = 1 << 20;

/// Calls and reads of more bytes than this have their limits.
pub(crate) const SMALL_CALL: usize = 64 << 10;

/// The bytes of a file that an answer to its opening has.
pub(crate) const FIRST_LEN: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Action, Call, decode, encode};
    use crate::lease::ClientId;
    use crate::path::TreePath;

    #[test]
    fn messages_come_back_and_broken_ones_are_refused() {
        let path = TreePath::parse("a/b").expect("a path");
        let action = Action::Rename { from: path.clone(), to: path, replace: true };
        let call = Call { client: ClientId(7), number: 3, oldest: 2, released: Vec::new(), action };
        let body = encode(&call, b"data").expect("a body");
        let (read, data) = decode::<Call>(body.clone()).expect("a call");
        assert_eq!((read.action, data.as_ref()), (call.action, &b"data"[..]));
        for len in 0..body.len() - 4 {
            assert!(decode::<Call>(body.slice(..len)).is_none(), "{len}");
        }
        // A path that leads out is no path.
        let hostile = postcard::to_stdvec(&b"a/../../b".to_vec()).expect("bytes");
        assert!(postcard::from_bytes::<TreePath>(&hostile).is_err());
        assert!(decode::<Call>(Bytes::from_static(b"\xff\xff\xff\xff")).is_none());
    }
}
