//! The programs as their users meet them: their command lines, and curl.

mod programs;

use std::path::Path;
use std::time::{Duration, Instant};

use programs::{Program, has_curl, load, run};
use serde_json::Value;

/// Forty documents, each with `color` and its own number; every fifth one has `worker`, too.
fn write_documents(folder: &Path) {
    for number in 0..40 {
        let more = if number % 5 == 0 { "and a worker" } else { "" };
        let text = format!("# Title {number}\nA color called c{number} {more}.\n");
        std::fs::write(folder.join(format!("{number:02}.md")), text).unwrap();
    }
}

/// Four partitions, loaded and started, and a front.
struct Cluster {
    folder: tempfile::TempDir,
    parts: Vec<Program>,
    front: Program,
}

impl Cluster {
    fn start(options: &[&str]) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let documents = folder.path().join("documents");
        std::fs::create_dir(&documents).unwrap();
        write_documents(&documents);
        let store = |part: usize| format!("redb:{}", folder.path().join(format!("part-{part}")).display());
        let parts: Vec<Program> = (1..=PARTS)
            .map(|part| {
                let said = load(&format!("{part}/{PARTS}"), &store(part), &documents);
                assert!(said.starts_with("10 of 40 documents in "), "{said}");
                Program::part(&store(part), "127.0.0.1:0")
            })
            .collect();
        let addresses: Vec<&str> = parts.iter().map(|part| part.address.as_str()).collect();
        let front =
            Program::start(&[&["front", "--listen=127.0.0.1:0", "--parts", &addresses.join(",")], options].concat());
        Cluster { folder, parts, front }
    }

    /// Starts a partition again, at its address and with its store.
    fn restart(&mut self, index: usize) {
        let store = format!("redb:{}", self.folder.path().join(format!("part-{}", index + 1)).display());
        let address = self.parts[index].address.clone();
        self.parts[index] = Program::part(&store, &address);
    }

    fn search(&self, query: &str) -> (u16, Value) {
        let (status, body) = self.front.curl(&format!("/search?q={query}&json"));
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{query}: {error}: {body}")))
    }

    /// Asks until an answer has this harvest. Each answer on the way must be one, whatever its harvest.
    fn until_harvest(&self, wanted: f64) -> Value {
        let begin = Instant::now();
        loop {
            let (status, answer) = self.search("color");
            assert_eq!(status, 200, "a failure costs harvest, not yield: {answer}");
            let harvest = answer["harvest"].as_f64().unwrap();
            let missing = answer["missing"].as_array().unwrap().len();
            assert_eq!(harvest, (PARTS - missing) as f64 / PARTS as f64, "{answer}");
            assert_eq!(answer["found"], 10 * (PARTS - missing), "{answer}");
            if harvest == wanted {
                return answer;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "no answer with the harvest {wanted}: {answer}");
        }
    }
}

const PARTS: usize = 4;

#[test]
fn a_query_is_answered_from_all_partitions() {
    if !has_curl() {
        return;
    }
    let cluster = Cluster::start(&["--limit-ms=10000"]);
    let (status, answer) = cluster.search("c17");
    assert_eq!((status, &answer["harvest"], &answer["found"]), (200, &Value::from(1.0), &Value::from(1)), "{answer}");
    assert_eq!(answer["documents"], 40);
    let hit = &answer["hits"][0];
    assert_eq!(hit["title"], "Title 17");
    assert!(hit["place"].as_str().unwrap().ends_with("17.md") && hit["snippet"] == "A color called c17 .", "{hit}");
    // All words, in any case; the best ten of all partitions.
    let (_, answer) = cluster.search("WORKER+color");
    assert_eq!((&answer["found"], answer["hits"].as_array().unwrap().len()), (&Value::from(8), 8));
    let (_, answer) = cluster.search("color");
    assert_eq!((&answer["found"], answer["hits"].as_array().unwrap().len()), (&Value::from(40), 10));
    let scores: Vec<f64> =
        answer["hits"].as_array().unwrap().iter().map(|hit| hit["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    let (_, answer) = cluster.search("worker+nonsense");
    assert_eq!((&answer["found"], &answer["harvest"]), (&Value::from(0), &Value::from(1.0)));
    // A whole answer is kept, and the words decide.
    let (_, again) = cluster.search("Color");
    assert_eq!((&again["cached"], &again["found"]), (&Value::from(true), &Value::from(40)));

    let (status, start) = cluster.front.curl("/");
    assert!(status == 200 && start.contains("<form action=\"/search\">"), "{start}");
    let (status, page) = cluster.front.curl("/search?q=c17%3Cb%3E");
    assert!(status == 200 && page.contains("value=\"c17&lt;b&gt;\"") && !page.contains("<b>\""), "{page}");
    assert_eq!(cluster.search("%3F!").0, 400);
    assert_eq!(cluster.front.curl("/other").0, 404);
}

#[test]
fn partitions_that_end_freeze_and_come_back_cost_harvest_and_no_answer() {
    if !has_curl() {
        return;
    }
    let mut cluster = Cluster::start(&["--cache-s=0", "--limit-ms=3000"]);
    cluster.until_harvest(1.0);
    let address = cluster.parts[1].address.clone();
    cluster.parts[1].kill();
    let answer = cluster.until_harvest(0.75);
    assert_eq!(answer["missing"][0]["part"], address.as_str());
    // Another one may be late on a busy machine.
    let begin = Instant::now();
    loop {
        let (status, page) = cluster.front.curl("/search?q=color");
        assert_eq!(status, 200);
        if page.contains("<b>This answer covers 75 % of the index</b>") && page.contains(&address) {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{page}");
    }
    cluster.parts[2].kill();
    cluster.until_harvest(0.5);
    cluster.restart(1);
    cluster.until_harvest(0.75);
    cluster.restart(2);
    cluster.until_harvest(1.0);
    // One that has a connection and does not answer is late.
    cluster.parts[0].signal("STOP");
    let answer = cluster.until_harvest(0.75);
    assert_eq!(answer["missing"][0]["part"], cluster.parts[0].address.as_str());
    cluster.parts[0].signal("CONT");
    cluster.until_harvest(1.0);
    // One that ends in order is missing as well.
    cluster.parts[3].signal("TERM");
    cluster.until_harvest(0.75);
    cluster.restart(3);
    cluster.until_harvest(1.0);
    let (_, status) = cluster.front.curl("/status");
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["yield"], &status["none"]), (&Value::from(1.0), &Value::from(0)), "{status}");
    assert!(status["harvest"].as_f64().is_some_and(|harvest| harvest > 0.5 && harvest < 1.0), "{status}");

    cluster.parts.iter_mut().for_each(Program::kill);
    let (code, problem) = loop {
        let reply = cluster.search("color");
        if reply.0 != 200 {
            break reply;
        }
    };
    assert_eq!(code, 503);
    assert!(problem["error"].as_str().unwrap().starts_with("the answer covers 0.00 of the whole"), "{problem}");
}

#[test]
fn mistakes_on_the_command_line_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("--store=redb:{}", folder.path().join("store").display());
    let failure = |args: &[&str]| {
        let output = run(args);
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(failure(&["part", &store, "--listen=127.0.0.1:0"]).contains("has no documents: `search load` fills it"));
    assert!(failure(&["load", &store, "/no/such/folder"]).contains("cannot read /no/such/folder: No such file"));
    assert!(failure(&["load", "--part=5/4", &store, "."]).contains("such as 1/4 for the first of four"));
    assert!(failure(&["front", "--parts=nonsense"]).contains("nonsense"));
    assert!(failure(&["front", "--parts=127.0.0.1:1", "--harvest-min=2"]).contains("from 0 to 1"));
    assert!(
        failure(&["front", "--parts=127.0.0.1:1", "--listen=192.0.2.1:1"]).contains("another address with --listen")
    );
}
