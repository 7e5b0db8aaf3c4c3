//! The client redis-rs against `dapple store serve`; `cargo xtask redis-clients` has others.

use std::collections::HashMap;

use redis::{Commands, Connection, RedisError};

use super::server::Server;

fn connect(server: &Server, protocol: &str) -> Connection {
    let client = redis::Client::open(format!("redis://{}/?protocol={protocol}", server.addr())).unwrap();
    client.get_connection().unwrap()
}

#[test]
fn a_client_of_redis_rs_does_its_work() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    for protocol in ["resp2", "resp3"] {
        let mut client = connect(&server, protocol);
        redis::cmd("FLUSHALL").exec(&mut client).unwrap();
        values(&mut client).unwrap();
        transactions(&mut client).unwrap();
        about(&mut client).unwrap();
    }
    messages(&server).unwrap();
    server.stop();
}

fn values(client: &mut Connection) -> Result<(), RedisError> {
    let () = client.set("n", 1)?;
    assert_eq!(client.incr::<_, _, i64>("n", 41)?, 42);
    assert_eq!(client.get::<_, String>("n")?, "42");
    assert_eq!(client.mget::<_, Vec<Option<i64>>>(&["n", "none"])?, [Some(42), None]);
    let () = client.set_ex("e", "x", 100)?;
    assert!((90..=100).contains(&client.ttl::<_, i64>("e")?));
    assert!(client.persist::<_, bool>("e")?);
    let () = client.hset_multiple("h", &[("x", 1), ("y", 2)])?;
    let fields: HashMap<String, i64> = client.hgetall("h")?;
    assert_eq!(fields, HashMap::from([("x".to_owned(), 1), ("y".to_owned(), 2)]));
    assert_eq!(client.get::<_, String>("h").unwrap_err().code(), Some("WRONGTYPE"));
    let (next, keys): (u64, Vec<String>) =
        redis::cmd("SCAN").arg(0).arg("MATCH").arg("[en]").arg("COUNT").arg(100).query(client)?;
    assert_eq!((next, keys), (0, vec!["e".to_owned(), "n".to_owned()]));
    assert_eq!(client.del::<_, i64>(&["n", "e", "none"])?, 2);
    assert!(!client.exists::<_, bool>("n")?);
    Ok(())
}

fn transactions(client: &mut Connection) -> Result<(), RedisError> {
    let (first, second): (i64, i64) =
        redis::pipe().atomic().set("t", 1).ignore().incr("t", 1).incr("t", 1).query(client)?;
    assert_eq!((first, second), (2, 3));
    let (now,): (i64,) = redis::transaction(client, &["t"], |client, pipe| {
        let before: i64 = client.get("t")?;
        pipe.set("t", before * 10).ignore().get("t").query(client)
    })?;
    assert_eq!(now, 30);
    Ok(())
}

fn about(client: &mut Connection) -> Result<(), RedisError> {
    redis::cmd("CLIENT").arg("SETNAME").arg("test").exec(client)?;
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(client)?;
    assert!(clients.contains(" name=test "), "{clients}");
    let settings: HashMap<String, String> = redis::cmd("CONFIG").arg("GET").arg("appendonly").query(client)?;
    assert_eq!(settings["appendonly"], "yes");
    let count: i64 = redis::cmd("COMMAND").arg("COUNT").query(client)?;
    assert!(count > 50);
    Ok(())
}

fn messages(server: &Server) -> Result<(), RedisError> {
    let mut subscriber = connect(server, "resp2");
    let mut messages = subscriber.as_pubsub();
    messages.subscribe("news")?;
    let told: i64 = connect(server, "resp3").publish("news", "hello")?;
    assert_eq!(told, 1);
    let message = messages.get_message()?;
    assert_eq!((message.get_channel_name(), message.get_payload::<String>()?), ("news", "hello".to_owned()));
    Ok(())
}
