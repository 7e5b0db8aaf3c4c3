//! No reference gets out of the closure, by its result or by a capture.
use dapple_sched::Colored;

async fn by_result(state: Colored<String>) {
    let leaked: &mut String = state.with(|text| text).await;
    leaked.clear();
}

async fn by_capture(state: Colored<String>) {
    let mut leaked: Option<&mut String> = None;
    state.with(|text| leaked = Some(text)).await;
    leaked.unwrap().clear();
}

fn now(state: Colored<String>) {
    let leaked = state.try_with(|text| text.as_str()).unwrap();
    println!("{leaked}");
}

fn main() {}
