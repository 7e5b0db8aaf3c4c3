use std::net::IpAddr;

use base64::Engine as _;
use futures_util::FutureExt as _;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use super::{CHECKS_MAX, LoginError, Logins, Users, UsersError};
use crate::attempts::FAILURES_MAX;
use crate::lock::lock;

const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn fields(value: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert(AUTHORIZATION, HeaderValue::from_str(value).expect("a value"));
    fields
}

fn basic(user: &str, password: &str) -> HeaderMap {
    let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    fields(&format!("Basic {text}"))
}

#[test]
fn tokens_and_passwords() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("users");
    Users::set(&file, "ann", "correct horse").expect("a password");
    Users::set(&file, "bob", "battery staple").expect("a password");
    Users::set(&file, "ann", "another horse").expect("a password");
    let users = Users::load(&file).expect("users");
    assert_eq!(users.len(), 2);
    let logins = Logins::new(Some("s3cret".to_owned()), users);
    let runtime = dapple::builder().workers(1).build().expect("a runtime");
    let user = |fields| runtime.block_on(logins.user(&fields, None, None)).map(|user| user.to_string());
    assert_eq!(user(fields("Bearer s3cret")), Ok("token".to_owned()));
    assert_eq!(user(basic("anything", "s3cret")), Ok("token".to_owned()));
    assert_eq!(user(basic("ann", "another horse")), Ok("ann".to_owned()));
    assert_eq!(user(basic("ann", "another horse")), Ok("ann".to_owned()), "from memory");
    for wrong in [
        basic("ann", "correct horse"),
        basic("eve", "another horse"),
        fields("Bearer x"),
        fields("Digest x"),
        fields("Basic !"),
        fields("Bearer"),
        fields("Bearer s3cret2"),
    ] {
        assert_eq!(user(wrong), Err(LoginError::Wrong));
    }
    assert_eq!(user(HeaderMap::new()), Err(LoginError::Missing));
}

#[test]
fn an_address_that_guesses_must_wait_and_others_need_not() {
    let logins = Logins::new(Some("s3cret".to_owned()), Users::default());
    let runtime = dapple::builder().workers(1).build().expect("a runtime");
    let try_from = |address: &str, token: &str| {
        let address: IpAddr = address.parse().expect("an address");
        runtime.block_on(logins.user(&fields(&format!("Bearer {token}")), None, Some(address)))
    };
    for guess in 0..FAILURES_MAX {
        assert_eq!(try_from("192.0.2.1", &guess.to_string()), Err(LoginError::Wrong));
    }
    assert!(matches!(try_from("192.0.2.1", "s3cret"), Err(LoginError::TooMany(_))));
    assert!(try_from("192.0.2.2", "s3cret").is_ok());
    assert!(matches!(try_from("192.0.2.1", "s3cret"), Err(LoginError::TooMany(_))), "also one that is known");
}

#[test]
fn a_bad_user_file_is_refused_by_its_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("users");
    std::fs::write(&file, "# users\n\nann:plain text\n").expect("a file");
    assert!(matches!(Users::load(&file), Err(UsersError::Line(_, 3))));
    assert!(matches!(Users::set(&file, "a:b", "long enough"), Err(UsersError::Name(_))));
    assert!(matches!(Users::set(&file, "ann", "short"), Err(UsersError::Password)));
}
/// Ann and Bob, with hashes that cost little.
fn ann_and_bob() -> Users {
    use argon2::password_hash::{PasswordHasher, SaltString};
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("users");
    let cheap = argon2::Params::new(argon2::Params::MIN_M_COST, 1, 1, None).expect("parameters");
    let argon2 = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, cheap);
    let salt = SaltString::from_b64("c29tZXNhbHRzb21l").expect("a salt");
    let line = |name: &str| {
        let hash = argon2.hash_password(format!("{name}'s password").as_bytes(), &salt).expect("a hash");
        format!("{name}:{hash}\n")
    };
    std::fs::write(&file, line("ann") + &line("bob")).expect("a file");
    Users::load(&file).expect("users")
}

#[test]
fn the_mistakes_of_one_user_lock_out_no_other_behind_the_same_address() {
    let logins = Logins::new(Some("s3cret".to_owned()), ann_and_bob());
    let runtime = dapple::builder().workers(1).build().expect("a runtime");
    let proxy: IpAddr = "127.0.0.1".parse().expect("an address");
    let login = |user: &str, password: &str| runtime.block_on(logins.user(&basic(user, password), None, Some(proxy)));
    for guess in 0..FAILURES_MAX {
        assert_eq!(login("ann", &guess.to_string()), Err(LoginError::Wrong));
    }
    assert!(matches!(login("ann", "ann's password"), Err(LoginError::TooMany(_))));
    assert!(login("bob", "bob's password").is_ok(), "another user of the same address");
    // Many wrong names do not pass.
    let refused = (0..200).find(|guess| matches!(login(&format!("u{guess}"), "x"), Err(LoginError::TooMany(_))));
    assert!(refused.is_some_and(|guess| guess <= 100), "{refused:?}");
}

#[test]
fn guesses_at_one_user_from_many_addresses_are_limited_and_the_user_is_not() {
    let logins = Logins::new(None, ann_and_bob());
    let runtime = dapple::builder().workers(1).build().expect("a runtime");
    let login = |address: u32, password: &str| {
        let address = IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + address));
        runtime.block_on(logins.user(&basic("ann", password), None, Some(address)))
    };
    assert!(login(1, "ann's password").is_ok());
    let refused = (100..1_000).find(|at| matches!(login(*at, &at.to_string()), Err(LoginError::TooMany(_))));
    assert!(refused.is_some_and(|at| at <= 200), "{refused:?}");
    assert!(login(1, "ann's password").is_ok(), "from where the right password came before");
}

/// A runtime with one thread for functions that block, which waits until the sender is dropped.
fn busy_runtime() -> (dapple::Runtime, std::sync::mpsc::Sender<()>) {
    let mut config = dapple::Config::default();
    config.blocking_threads_max = 1;
    let runtime = dapple::builder_with(config).workers(1).build().expect("a runtime");
    let (busy, free) = std::sync::mpsc::channel();
    runtime.block_on(async { drop(dapple::blocking::spawn_blocking(move || free.recv())) });
    (runtime, busy)
}

#[test]
fn a_check_keeps_its_place_and_counts_after_its_client_left() {
    let logins = Logins::new(None, ann_and_bob());
    let (runtime, busy) = busy_runtime();
    runtime.block_on(async {
        for left in 1..=CHECKS_MAX {
            assert!(logins.user(&basic("ann", "a guess"), None, Some(PROXY)).now_or_never().is_none());
            assert_eq!(logins.0.checks.used(), left);
        }
        drop(busy);
        drop(logins.0.checks.acquire().await.expect("a place"));
        for _ in CHECKS_MAX as u32..FAILURES_MAX {
            assert_eq!(logins.user(&basic("ann", "a guess"), None, Some(PROXY)).await, Err(LoginError::Wrong));
        }
        let refused = logins.user(&basic("ann", "ann's password"), None, Some(PROXY)).await;
        assert!(matches!(refused, Err(LoginError::TooMany(_))), "{refused:?}");
    });
}

#[test]
fn guesses_that_waited_for_their_check_are_refused_after_ten_wrong_ones() {
    let logins = Logins::new(None, ann_and_bob());
    let (runtime, busy) = busy_runtime();
    let guesses = (0..30).map(|guess| {
        let fields = basic("ann", &guess.to_string());
        let logins = &logins;
        async move { logins.user(&fields, None, Some(PROXY)).await }
    });
    let all = futures_util::future::join_all(guesses);
    let results = runtime.block_on(async {
        let (results, ()) = futures_util::future::join(all, async { drop(busy) }).await;
        results
    });
    let checked = results.iter().filter(|result| **result == Err(LoginError::Wrong)).count();
    assert!((FAILURES_MAX as usize..FAILURES_MAX as usize + CHECKS_MAX).contains(&checked), "{checked}");
}

#[test]
fn a_password_that_is_taken_back_during_its_check_is_wrong() {
    let logins = Logins::new(None, ann_and_bob());
    let (runtime, busy) = busy_runtime();
    let ann = basic("ann", "ann's password");
    let login = || logins.user(&ann, None, Some(PROXY));
    runtime.block_on(async {
        assert!(login().now_or_never().is_none());
        logins.set_users(Users(ann_and_bob().0.into_iter().filter(|(name, _)| **name == *"bob").collect()));
        drop(busy);
        assert_eq!(login().await, Err(LoginError::Wrong));
        assert!(lock(&logins.0.known).is_empty());
    });
}

#[test]
fn the_answers_to_guesses_do_not_tell_which_users_there_are() {
    let answers = |name: &str| {
        let logins = Logins::new(Some("s3cret".to_owned()), ann_and_bob());
        let runtime = dapple::builder().workers(1).build().expect("a runtime");
        let ask = |address: u8, fields: HeaderMap| {
            let address = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, address));
            runtime.block_on(logins.user(&fields, None, Some(address))) == Err(LoginError::Wrong)
        };
        for guess in 0..FAILURES_MAX {
            ask(1, fields(&format!("Bearer {guess}")));
            ask(1, basic(&format!("u{guess}"), "a guess"));
        }
        let of_one_address = (0..20).map(|_| ask(1, basic(name, "a guess")));
        let of_one_address: Vec<bool> = of_one_address.collect();
        let of_many = (2..100).map(|address| ask(address, basic(name, "a guess")));
        (of_one_address, of_many.collect::<Vec<bool>>())
    };
    let (of_one_address, of_many) = answers("ann");
    assert_eq!(of_one_address.iter().filter(|is_checked| **is_checked).count(), FAILURES_MAX as usize);
    assert!(of_many.contains(&true) && of_many.contains(&false));
    assert_eq!(answers("eve"), (of_one_address, of_many));
}

#[test]
fn only_the_user_that_logged_in_is_trusted() {
    let logins = Logins::new(Some("s3cret".to_owned()), ann_and_bob());
    let runtime = dapple::builder().workers(1).build().expect("a runtime");
    let login = |address: u8, password: &str| {
        let address = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, address));
        runtime.block_on(logins.user(&basic("ann", password), None, Some(address)))
    };
    assert_eq!(login(1, "s3cret").as_deref(), Ok("token"));
    for address in 100..200 {
        assert!(login(address, "a guess").is_err());
    }
    assert!(matches!(login(1, "ann's password"), Err(LoginError::TooMany(_))), "only the token came from there");
    assert_eq!(login(1, "s3cret").as_deref(), Ok("token"), "guesses at a name do not keep the token out");
}

#[test]
fn one_user_takes_one_place_among_the_known_logins_however_it_is_written() {
    let logins = Logins::new(Some("s3cret".to_owned()), ann_and_bob());
    let runtime = dapple::builder().workers(1).build().expect("a runtime");
    for (user, password) in [("ann", "ann's password"), ("%61nn", "ann's password"), ("a", "s3cret"), ("b", "s3cret")] {
        assert!(runtime.block_on(logins.user(&basic(user, password), None, None)).is_ok());
    }
    assert_eq!(lock(&logins.0.known).len(), 1, "the token costs no check");
}
