//! Graphs of stages, as text, as a drawing, and in a file.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use dapple_stage::Stage;
use dapple_stage::graph::{Graph, from_arguments};

use super::support::{Gate, eventually};

#[dapple::test]
async fn all_that_is_joined_is_shown_with_its_numbers() {
    let gate = Gate::new();
    let inner = gate.clone();
    let first = Stage::builder("a <first> & \"quoted\" stage").queue_len_max(8).width(2).wrap_fn(move |n: u32| {
        let gate = inner.clone();
        async move {
            gate.pass().await;
            Ok::<_, Infallible>(n)
        }
    });
    let second = Stage::builder("second").wrap_sync(|n: u32| n);
    let third = Stage::builder("third").replicate(2..=2, |_| Stage::builder("inner").wrap_sync(|n: u32| n));
    let side = Stage::builder("side").wrap_sync(|n: u32| n);
    let pipeline = first.clone().then(second.clone()).then(third);
    let kept: Vec<_> = (0..5).map(|n| first.ask(n).now()).collect();
    let graph = Graph::new();
    graph.add(&pipeline);
    graph.add(&first);
    graph.link(&second, &side, "asks");
    eventually(|| gate.inside().0 == 2).await;

    let text = graph.to_string();
    assert!(text.contains("3 of 8 wait  2 of 2 in service  0 served, 0 refused  running"), "{text}");
    for line in
        ["  then → second\n", "  then → third\n", "  asks → side\n", "  replica → third 0\n", "  replica → third 1\n"]
    {
        assert_eq!(text.matches(line).count(), 1, "{line} in {text}");
    }
    let svg = graph.to_svg();
    assert!(svg.contains("a &lt;first&gt; &amp; &quot;quoted&quot; stage") && svg.contains("3 of 8 wait"), "{svg}");
    assert!(!svg.contains("<first>"));
    assert_eq!((svg.matches("<g>").count(), svg.matches("marker-end").count()), (6, 5));
    assert_eq!((svg.matches("<text").count(), svg.matches("</text>").count()), (5 + 6 * 5, 5 + 6 * 5));
    drop(kept);
    drop((pipeline, first));
    eventually(|| !graph.to_string().contains("first")).await;
}

#[dapple::test]
async fn what_leads_back_is_drawn_too() {
    let (one, two) = (Stage::builder("one").wrap_sync(|n: u32| n), Stage::builder("two").wrap_sync(|n: u32| n));
    let graph = Graph::new();
    graph.link(&one, &two, "asks");
    graph.link(&two, &one, "answers");
    graph.link(&two, &two, "again");
    assert_eq!(graph.to_svg().matches("marker-end").count(), 3);
}

#[dapple::test(clock = "real")]
async fn a_graph_is_kept_in_a_file() {
    let dir = std::env::temp_dir().join(format!("dapple-graph-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let stage = Stage::builder("drawn").wrap_sync(|n: u32| n);
    let graph = Graph::new();
    graph.add(&stage);
    let (drawing, text) = (dir.join("out.svg"), dir.join("out.txt"));
    let kept = graph.keep(&drawing, Duration::from_millis(5));
    eventually(|| std::fs::read_to_string(&drawing).is_ok_and(|svg| svg.contains("0 served"))).await;
    stage.ask(1).await.unwrap();
    eventually(|| std::fs::read_to_string(&drawing).is_ok_and(|svg| svg.contains("1 served"))).await;
    drop(kept);
    graph.write(&text).await.unwrap();
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("drawn  "));
    let error = graph.write(dir.join("not there/out.svg")).await.unwrap_err().to_string();
    assert!(error.contains("not there/out.svg"), "{error}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_argument_names_the_file() {
    let of = |arguments: &[&str]| from_arguments(["program"].iter().chain(arguments).map(OsString::from));
    assert_eq!(of(&["--port", "1"]), Ok(None));
    assert_eq!(of(&["-x", "--graph", "a.svg"]), Ok(Some(PathBuf::from("a.svg"))));
    assert_eq!(of(&["--graph=b.svg"]), Ok(Some(PathBuf::from("b.svg"))));
    assert_eq!(of(&["--", "--graph", "c"]), Ok(None));
    assert!(of(&["--graph"]).is_err());
}
