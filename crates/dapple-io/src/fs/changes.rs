//! Changes that other processes make in directories.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use dapple_sched::environment::HashMap;

use super::FILE;
use crate::environment;
use crate::lock::Mutex;

/// Tells of changes that *other* processes make in directories; changes by this process are left out.
///
/// It is non-blocking: give it to [`event::on_readable`](crate::event::on_readable), and call [`read`](Self::read) when it has news. It
/// needs Linux 5.13, and no privileges; network file systems tell only of changes by this machine.
///
/// ```
/// use dapple_io::fs::{ForeignChange, ForeignChanges};
///
/// let dir = std::env::temp_dir().join(format!("dapple-io-changes-{}", std::process::id()));
/// std::fs::create_dir(&dir)?;
/// // Containers may refuse it.
/// if let Ok(changes) = ForeignChanges::new() {
///     changes.add(std::fs::File::open(&dir)?, 7)?;
///     std::fs::write(dir.join("own"), "not told")?;
///     let touched = std::process::Command::new("touch").arg(dir.join("other's")).status()?;
///     assert!(touched.success());
///     let names = |tag| ForeignChange::Entry { tag, name: "other's".into(), is_name: true };
///     assert_eq!(changes.read()?.first(), Some(&names(7)));
/// }
/// std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Built on fanotify, which names the process that made a change; inotify does not.
pub struct ForeignChanges {
    fd: OwnedFd,
    /// The directories, by the handles that the kernel names in its events.
    tags: Mutex<HashMap<Handle, u128>>,
}

/// A change by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignChange {
    /// In a directory.
    Entry {
        /// The caller's number of the directory.
        tag: u128,
        /// The name of what changed in it; `.` is the directory itself.
        name: OsString,
        /// Whether the name was made, removed, or given to another file; otherwise its data or attributes changed.
        is_name: bool,
    },
    /// There were more than the kernel keeps: anything may have changed.
    Lost,
}

/// The kernel's name of a file: its file system, and its handle there.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Handle {
    system: [u8; 8],
    kind: i32,
    bytes: Vec<u8>,
}

impl ForeignChanges {
    /// Begins with no directory.
    ///
    /// # Errors
    ///
    /// The kernel is older, or a container refuses it; too many are in use (`EMFILE`).
    pub fn new() -> io::Result<ForeignChanges> {
        environment::refuse(FILE);
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_REPORT_DFID_NAME;
        // SAFETY: the arguments are numbers.
        let fd = unsafe { libc::fanotify_init(flags, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call made this descriptor, and nothing else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(ForeignChanges { fd, tags: Mutex::default() })
    }

    /// Adds a directory, which may be open with `O_PATH`, under a number of the caller's. Returns once changes are told. Blocks as far as
    /// looking at an open directory does.
    ///
    /// # Errors
    ///
    /// The file system tells of no changes (`EXDEV`, `ENODEV`, `EOPNOTSUPP`); this user may not read the directory; there are too many
    /// (`ENOSPC`).
    pub fn add(&self, dir: impl AsFd, tag: u128) -> io::Result<()> {
        let dir = dir.as_fd();
        // Before the first event can name it.
        self.tags.lock().insert(Handle::of(dir)?, tag);
        let mask = EVENTS | libc::FAN_ONDIR | libc::FAN_EVENT_ON_CHILD;
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_ONLYDIR;
        // SAFETY: both descriptors are open, and the path is a string that ends with NUL.
        let made = unsafe { libc::fanotify_mark(self.fd.as_raw_fd(), flags, mask, dir.as_raw_fd(), c".".as_ptr()) };
        if made < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Drops all directories.
    ///
    /// # Errors
    ///
    /// None are known.
    pub fn clear(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open, and this call reads no path.
        let cleared = unsafe {
            libc::fanotify_mark(self.fd.as_raw_fd(), libc::FAN_MARK_FLUSH, 0, libc::AT_FDCWD, std::ptr::null())
        };
        if cleared < 0 {
            return Err(io::Error::last_os_error());
        }
        self.tags.lock().clear();
        Ok(())
    }

    /// The changes that are known by now; none if there are none. Does not block.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn read(&self) -> io::Result<Vec<ForeignChange>> {
        let mut buf = [0; 16 << 10];
        let len = match rustix::io::read(&self.fd, &mut buf) {
            Ok(len) => len,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let own = std::process::id();
        let tags = self.tags.lock();
        let mut changes = Vec::new();
        let mut rest = &buf[..len];
        while let Some((event, after)) = Event::parse(rest) {
            rest = after;
            if event.mask & libc::FAN_Q_OVERFLOW != 0 {
                changes.push(ForeignChange::Lost);
            } else if event.pid != own
                && let Some((handle, name)) = event.entry
                && let Some(tag) = tags.get(&handle)
            {
                let is_name = event.mask & NAME_EVENTS != 0;
                changes.push(ForeignChange::Entry { tag: *tag, name: OsString::from_vec(name), is_name });
            }
        }
        Ok(changes)
    }
}

impl AsFd for ForeignChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for ForeignChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignChanges").field("directories", &self.tags.lock().len()).finish_non_exhaustive()
    }
}

impl Handle {
    fn of(file: BorrowedFd<'_>) -> io::Result<Handle> {
        let mut found = MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: the descriptor is open, and the call writes one `statfs`.
        if unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all bytes of it are set: by zeroes before, and by the call.
        let found = unsafe { found.assume_init() };
        // SAFETY: both are eight plain bytes.
        let system = unsafe { std::mem::transmute::<libc::fsid_t, [u8; 8]>(found.f_fsid) };
        // The kind of handle that events have; before Linux 6.5 there was only one.
        let (kind, bytes) = match name_to_handle(file, AT_HANDLE_FID) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => name_to_handle(file, 0)?,
            named => named?,
        };
        Ok(Handle { system, kind, bytes })
    }
}

/// The handle of an open file: its type, and its bytes.
fn name_to_handle(file: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<(i32, Vec<u8>)> {
    /// The kernel's `struct file_handle`, with room for the longest one.
    #[repr(C)]
    struct FileHandle {
        len: u32,
        kind: i32,
        bytes: [u8; HANDLE_LEN_MAX],
    }
    let mut handle = FileHandle { len: HANDLE_LEN_MAX as u32, kind: 0, bytes: [0; HANDLE_LEN_MAX] };
    let mut mount: libc::c_int = 0;
    // SAFETY: the descriptor is open, the path ends with NUL, the call writes at most as many bytes of the handle as `len` says, and
    // one `int` of the mount.
    let named = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            file.as_raw_fd(),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount,
            flags | libc::AT_EMPTY_PATH,
        )
    };
    if named < 0 {
        return Err(io::Error::last_os_error());
    }
    let len = (handle.len as usize).min(HANDLE_LEN_MAX);
    Ok((handle.kind, handle.bytes[..len].to_vec()))
}

/// An event, as the kernel writes it: 24 bytes, and records of information after them.
struct Event {
    mask: u64,
    pid: u32,
    /// The handle of the directory, and the name in it.
    entry: Option<(Handle, Vec<u8>)>,
}

impl Event {
    /// The first event, and the bytes after it.
    fn parse(bytes: &[u8]) -> Option<(Event, &[u8])> {
        let len = number(bytes, 0)? as usize;
        if len < EVENT_LEN || bytes.len() < len {
            return None;
        }
        let (event, after) = bytes.split_at(len);
        let mask = u64::from_ne_bytes(event.get(8..16)?.try_into().ok()?);
        let pid = number(event, 20)?;
        let mut records = event.get(EVENT_LEN..)?;
        let mut entry = None;
        while let [kind, _, a, b, ..] = records {
            let len = usize::from(u16::from_ne_bytes([*a, *b]));
            let Some(record) = records.get(..len).filter(|_| len >= 4) else { break };
            if *kind == libc::FAN_EVENT_INFO_TYPE_DFID_NAME {
                entry = Event::entry(record);
            }
            records = &records[len..];
        }
        Some((Event { mask, pid, entry }, after))
    }

    /// Directory and name in a record: a header of 4 bytes, the file system's 8, length and type of the handle, handle, name.
    fn entry(record: &[u8]) -> Option<(Handle, Vec<u8>)> {
        let system = record.get(4..12)?.try_into().ok()?;
        let len = number(record, 12)? as usize;
        let kind = number(record, 16)? as i32;
        let bytes = record.get(20..20usize.checked_add(len)?)?.to_vec();
        let name = record.get(20 + len..)?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Some((Handle { system, kind, bytes }, name[..end].to_vec()))
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

const NAME_EVENTS: u64 = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
const EVENTS: u64 = NAME_EVENTS | libc::FAN_MODIFY | libc::FAN_ATTRIB;

/// The bytes of an event before its records (`struct fanotify_event_metadata`).
const EVENT_LEN: usize = 24;

/// The kernel's `MAX_HANDLE_SZ`.
const HANDLE_LEN_MAX: usize = 128;

/// Of `name_to_handle_at`: a handle to compare, and not to open (Linux 6.5).
const AT_HANDLE_FID: libc::c_int = 0x200;
