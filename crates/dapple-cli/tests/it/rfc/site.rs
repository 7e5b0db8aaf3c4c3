//! The site for all cases, with fixed times.

use std::fs::File;
use std::time::{Duration, SystemTime};

use crate::support::{Client, Server, Site, eventually, noise};

pub(super) const INDEX: &str = "<h1>start</h1>";

/// `/text.txt`.
pub(super) const TEXT: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

/// `/packed.js` and the start of its encoded neighbors. The server never looks inside those.
pub(super) const PACKED: &str = "console.log('plain')";
pub(super) const PACKED_BR: &str = "brotli, says the name";
pub(super) const PACKED_GZ: &str = "gzip, says the name";

/// Content that is requested only after a refused request.
pub(super) const SECRET: &str = "smuggled";

/// The time of the last change of all files: Sun, 06 Nov 1994 08:49:37 GMT.
pub(super) const MODIFIED_S: u64 = 784_111_777;

/// Length of `/big.bin`, which is too long for the cache.
pub(super) const BIG_LEN: usize = 1 << 20;

/// A server with the site, and its entity tags.
pub(super) struct Fixture {
    pub(super) server: Server,
    /// The entity tag of `/text.txt`, with its quotes.
    pub(super) etag: String,
    _site: Site,
}

impl Fixture {
    pub(super) fn start() -> Fixture {
        let site = Site::new();
        for (name, content) in [
            ("index.html", INDEX),
            ("text.txt", TEXT),
            ("empty.txt", ""),
            ("dir/index.html", "dir"),
            ("bare/file.txt", "x"),
            ("packed.js", PACKED),
            ("packed.js.br", PACKED_BR),
            ("packed.js.gz", PACKED_GZ),
            ("secret.txt", SECRET),
            ("a b.txt", "spaced"),
            ("future.txt", "not yet"),
        ] {
            site.write(name, content);
        }
        site.write("long.html", "all work and no play ".repeat(200));
        site.write("big.bin", noise(BIG_LEN, 9110));
        set_times(&site.path, SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED_S));
        let later = SystemTime::now() + Duration::from_secs(864_000);
        File::options().write(true).open(site.path.join("future.txt")).unwrap().set_modified(later).unwrap();
        let server = Server::start(&site.path, &["--cache-mb", "8"]);
        let etag = settled_tag(&mut server.connect());
        Fixture { server, etag, _site: site }
    }
}

fn set_times(folder: &std::path::Path, time: SystemTime) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => set_times(&path, time),
            false => File::options().write(true).open(&path).unwrap().set_modified(time).unwrap(),
        }
    }
}

/// The tag of a file that was changed just now is good for one reply only; a moment later it stays.
fn settled_tag(client: &mut Client) -> String {
    let mut tag = String::new();
    let is_settled = eventually(Duration::from_secs(20), || {
        let new = client.get("/text.txt").header("etag").unwrap().to_owned();
        let is_same = new == tag && new.matches('-').count() == 1;
        tag = new;
        is_same
    });
    assert!(is_settled, "the entity tag keeps changing: {tag}");
    tag
}
