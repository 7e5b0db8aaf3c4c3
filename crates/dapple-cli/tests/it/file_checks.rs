//! Long checks of mounts, by hand: `cargo test -p dapple-cli --features full --test it file_checks -- --ignored --nocapture`.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use dapple::tls::{Pin, TlsConnector};
use dapple_files::MountOptions;

use crate::file_service::{MountPoint, Service, can_mount, place};

/// Numbers that a seed decides (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, max: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % max
    }
}

/// Does what `fsx` does, by turns on two mounts: each read, length and attribute is compared with a copy in memory.
fn fsx(operations: u32) {
    if !can_mount() {
        return;
    }
    let place = place();
    let service = Service::start(place.path(), &["--addr", "127.0.0.1:0"]);
    let mounts = [MountPoint::new(&service, "one"), MountPoint::new(&service, "two")];
    let seed = std::env::var("DAPPLE_FSX_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random(seed);
    let open = |at: usize| {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).open(mounts[at].dir.join("f")).expect("open")
    };
    let (mut files, mut model) = ([open(0), open(1)], Vec::<u8>::new());
    for operation in 0..operations {
        let at = random.below(2) as usize;
        let (offset, len) = (random.below(FILE_MAX) as usize, 1 + random.below(32 << 10) as usize);
        let told = format!("operation {operation} of seed {seed}, on mount {at}");
        match random.below(100) {
            0..40 => {
                let mut bytes = vec![0; len];
                let mut read = 0;
                while let count @ 1.. = files[at].read_at(&mut bytes[read..], (offset + read) as u64).expect("read") {
                    read += count;
                }
                let expected = &model[offset.min(model.len())..(offset + len).min(model.len())];
                assert!(bytes[..read] == *expected, "{told}: {len} bytes at {offset} differ");
            }
            40..80 => {
                let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                model.resize(model.len().max(offset + len), 0);
                model[offset..offset + len].copy_from_slice(&bytes);
                files[at].write_all_at(&bytes, offset as u64).expect("written");
            }
            80..87 => {
                model.resize(offset, 0);
                files[at].set_len(offset as u64).expect("cut");
            }
            87..93 => {
                let by_name = fs::metadata(mounts[at].dir.join("f")).expect("attributes").len();
                let lens = (by_name, files[at].metadata().expect("attributes").len());
                assert_eq!(lens, (model.len() as u64, model.len() as u64), "{told}");
            }
            93..97 => files[at] = open(at),
            _ => files[at].sync_all().expect("synced"),
        }
    }
    assert!(
        fs::read(place.path().join("tree/f")).is_ok_and(|bytes| bytes == model) || {
            files[0].sync_all().and(files[1].sync_all()).expect("synced");
            fs::read(place.path().join("tree/f")).expect("the file") == model
        }
    );
    drop(files);
    mounts.into_iter().for_each(MountPoint::unmount);
    assert!(service.stop());
}

#[test]
fn two_mounts_agree_with_a_copy_in_memory() {
    fsx(1_000);
}

#[test]
#[ignore = "minutes"]
fn two_mounts_agree_with_a_copy_in_memory_for_100_000_operations() {
    fsx(100_000);
}

#[test]
#[ignore = "a minute; needs fio"]
fn data_is_verified_while_the_server_is_killed_ten_times() {
    if !can_mount() || Command::new("fio").arg("--version").output().is_err() {
        return;
    }
    let place = place();
    let mut service = Service::start(place.path(), &["--addr", "127.0.0.1:0"]);
    let addr = service.url.trim_start_matches("https://").to_owned();
    let mount = MountPoint::new(&service, "m");
    for mode in ["write", "randwrite"] {
        let mut fio = Command::new("fio");
        fio.args(["--name=check", "--bs=16k", "--size=24m", "--numjobs=2", "--verify=crc32c", "--verify_fatal=1"]);
        fio.args(["--fsync=64", "--ioengine=psync", "--thinktime=3000", &format!("--rw={mode}"), "--output=fio.txt"]);
        let mut fio = fio.arg("--directory").arg(&mount.dir).current_dir(place.path()).spawn().expect("it starts");
        for _ in 0..5 {
            sleep(Duration::from_millis(900));
            assert!(fio.try_wait().expect("a process").is_none(), "it is over before the server was killed five times");
            service.child.kill().expect("killed");
            service.child.wait().expect("it ended");
            service = Service::start(place.path(), &["--addr", &addr]);
        }
        let is_well = fio.wait().expect("it ends").success();
        assert!(is_well, "{}", fs::read_to_string(place.path().join("fio.txt")).unwrap_or_default());
    }
    mount.unmount();
    assert!(service.stop());
}

#[test]
#[ignore = "a minute"]
fn a_thousand_idle_mounts_take_little_memory() {
    if !can_mount() {
        return;
    }
    let place = place();
    let service = Service::start(place.path(), &["--addr", "127.0.0.1:0"]);
    let memory_kb = || {
        let status = fs::read_to_string(format!("/proc/{}/status", service.child.id())).expect("the process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the memory");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number")
    };
    let token = fs::read_to_string(place.path().join("state/token")).expect("a token").trim().to_owned();
    let options = MountOptions {
        url: service.url.clone(),
        token: Some(token),
        login: None,
        tls: Some(TlsConnector::pinned(&Pin::first_use()).expect("a connector")),
        patience: Duration::from_secs(300),
        server_owners: false,
        allow_other: false,
    };
    let before = memory_kb();
    let runtime = dapple::builder().workers(2).build().expect("a runtime");
    let mounted = runtime.block_on(async {
        let mut mounted = Vec::new();
        for number in 0..IDLE {
            let dir = place.path().join(format!("m{number}"));
            fs::create_dir(&dir).expect("a directory");
            mounted.push(dapple_files::mount(options.clone(), dir).await.expect("mounted"));
        }
        // Each asks for recalls three times.
        dapple::time::sleep(Duration::from_secs(30)).await;
        mounted
    });
    let grown = memory_kb() - before;
    println!("{IDLE} idle mounts take {grown} kB of the server");
    assert!(grown / IDLE < 256, "{grown} kB");
    mounted.into_iter().for_each(|mounted| mounted.unmount().expect("unmounted"));
    assert!(service.stop());
}

/// The length of a file in which `fsx` writes.
const FILE_MAX: u64 = 256 << 10;

const IDLE: usize = 1000;
