//! The colors in which requests are served.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use dapple_sched::{Color, yield_now};
use dapple_stage::{Stage, StageBuilder};

async fn colors_of(stage: StageBuilder<u32>) -> Vec<Color> {
    let stage = stage.wrap_fn(async |_| {
        yield_now().await;
        Ok::<_, Infallible>(Color::current())
    });
    let mut colors = Vec::new();
    for n in 0..12 {
        colors.push(stage.ask(n).await.unwrap());
    }
    colors
}

#[dapple::test]
async fn each_request_has_its_own_color_by_default() {
    let colors = colors_of(Stage::builder("each")).await;
    assert_eq!(colors.iter().collect::<HashSet<_>>().len(), 12);
    assert!(!colors.contains(&Color::DEFAULT));
}

#[dapple::test]
async fn one_color_for_all() {
    let color = Color::new();
    assert!(colors_of(Stage::builder("one").color(color.clone())).await.iter().all(|other| *other == color));
    assert!(colors_of(Stage::builder("default").color(Color::DEFAULT)).await.iter().all(Color::is_default));
}

#[dapple::test]
async fn equal_keys_have_equal_colors() {
    let colors = colors_of(Stage::builder("key").color_by(|n| n % 3)).await;
    for (n, color) in colors.iter().enumerate() {
        assert_eq!(*color, colors[n % 3]);
        assert_eq!(*color, Color::of(&(n as u32 % 3)));
    }
    assert_eq!(colors.iter().collect::<HashSet<_>>().len(), 3);
}

#[dapple::test(workers = 4)]
async fn requests_of_one_color_do_not_overlap_and_keep_their_order() {
    let inside = Arc::new(AtomicUsize::new(0));
    let last = Arc::new(AtomicUsize::new(0));
    let (inner, order) = (inside.clone(), last.clone());
    let stage = Stage::builder("serial").color(Color::new()).width(8).wrap_sync(move |n: usize| {
        assert_eq!(inner.fetch_add(1, SeqCst), 0, "two at a time");
        assert_eq!(order.swap(n, SeqCst) + 1, n, "out of order");
        std::thread::yield_now();
        inner.fetch_sub(1, SeqCst);
    });
    let responses: Vec<_> = (1..=500).map(|n| stage.ask(n).now()).collect();
    for response in responses {
        assert_eq!(response.await, Ok(()));
    }
    assert_eq!(last.load(SeqCst), 500);
}
