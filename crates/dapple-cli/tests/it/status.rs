//! The numbers on the start page.

use serde_json::Value;

use crate::support::{Client, Server, Site};

fn status(client: &mut Client) -> Value {
    let response = client.get("/-/status");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    serde_json::from_slice(&response.body).unwrap()
}

fn sum(status: &Value, list: &str, field: &str) -> u64 {
    status[list].as_array().unwrap().iter().map(|item| item[field].as_u64().unwrap()).sum()
}

#[test]
fn the_numbers_move() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    let before = status(&mut client);
    assert_eq!(before["workers"], 2);
    assert_eq!(before["per_worker"].as_array().unwrap().len(), 2);
    assert_eq!(before["page_cache"].as_array().unwrap().len(), 10);
    assert_eq!(before["serial"], false);
    for _ in 0..100 {
        assert_eq!(client.get("/").status, 200);
    }
    let after = status(&mut client);
    let moved = |field: &str| after[field].as_u64().unwrap() - before[field].as_u64().unwrap();
    assert_eq!(moved("requests"), 101);
    assert!(moved("bytes_sent") >= 1_400);
    assert!(moved("callbacks") > 0);
    assert_eq!(sum(&after, "page_cache", "hits") + sum(&after, "page_cache", "misses"), 100);
    assert_eq!(sum(&after, "page_cache", "pages"), 1);
    assert_eq!(after["connections"]["open"], 1);
    assert!(after["uptime_s"].as_f64().unwrap() > 0.0);
    assert!(after["served_by"]["worker"].as_u64().unwrap() < 2);
    assert_eq!(after["callbacks"].as_u64().unwrap(), sum(&after, "per_worker", "callbacks"));
}

#[test]
fn every_connection_has_its_color() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    let color = |client: &mut Client| status(client)["served_by"]["color"].as_u64().unwrap();
    let mut colors: Vec<u64> = clients.iter_mut().map(color).collect();
    let again: Vec<u64> = clients.iter_mut().map(color).collect();
    assert_eq!(colors, again, "a connection keeps its color");
    let now = status(&mut clients[0]);
    colors.extend(now["page_cache"].as_array().unwrap().iter().map(|shard| shard["color"].as_u64().unwrap()));
    colors.push(now["file_handles"]["color"].as_u64().unwrap());
    colors.push(0);
    colors.sort();
    colors.dedup();
    assert_eq!(colors.len(), 20 + 10 + 1 + 1, "all different, and none the default color");
}

#[test]
fn serial_has_one_color() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &["--serial"]);
    let now = status(&mut server.connect());
    assert_eq!((&now["serial"], &now["served_by"]["color"]), (&Value::Bool(true), &Value::from(0)));
    assert_eq!(sum(&now, "page_cache", "color"), 0);
}

#[test]
fn the_status_page_can_be_switched_off() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &["--no-status"]);
    assert_eq!(server.get("/-/status").status, 404);
}
