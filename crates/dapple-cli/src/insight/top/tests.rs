//! The screen, drawn into memory.

use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

fn snapshot() -> Box<Snapshot> {
    let family = |name: &str, hottest: f64, run_ns: u64| {
        json!({
            "name": name, "line": "src/bank.rs:41", "is_state": true, "colors": 1, "runs": 7, "run_ns": run_ns, "share": 0.5,
            "reads": 0, "hottest": hottest, "speedup_max": 1.6,
            "waits": { "same_color_ns": 5, "other_colors_ns": 0, "worker_ns": 0, "readers_ns": 0, "several_ns": 0 }
        })
    };
    let value = json!({
        "verdict": { "bound_by": "color", "family": "accounts", "line": "src/bank.rs:41", "busy": 0.99, "serial": 0.61, "speedup_max": 1.6 },
        "elapsed_ns": 500_000_000, "lost": 0, "work_ns": 1,
        "workers": (0..12).map(|_| json!({ "busy_ns": 1, "busy": 0.9 })).collect::<Vec<_>>(),
        "families": [family("accounts", 0.99, 1_000), family("log", 0.2, 9_000_000)],
        "edges": [{ "from": "a", "to": "b", "count": 3 }],
        "slow": [{ "name": "src/slow.rs:1", "run_ns": 50_000_000, "worker": 1, "waited": 2, "waited_ns": 4 }],
        "predictions": [{ "workers": 2, "speedup": 1.6, "wait_p99_ns": 9 }]
    });
    serde_json::from_value(value).expect("it is a snapshot")
}

fn screen(view: &mut View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    terminal.draw(|frame| view.draw(frame)).expect("memory");
    terminal.backend().to_string()
}

fn press(view: &mut View, code: KeyCode) -> bool {
    view.key(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn it_shows_the_verdict_the_workers_and_each_table() {
    let mut view = View::new("process 7");
    assert!(screen(&mut view, 100, 30).contains("asks for the first recording"));
    view.take(Ok(snapshot()));
    let shown = screen(&mut view, 100, 30);
    for part in
        ["accounts (src/bank.rs:41) is the bottleneck", "accounts (src/bank.rs:41) (state)", "and 5 more", "2: 1.60"]
    {
        assert!(shown.contains(part), "{part} is missing:\n{shown}");
    }
    for (key, part) in [('2', "other colors"), ('3', "a > b"), ('4', "src/slow.rs:1"), ('1', "busiest")] {
        assert!(!press(&mut view, KeyCode::Char(key)));
        let shown = screen(&mut view, 100, 30);
        assert!(shown.contains(part), "{part} is missing:\n{shown}");
    }
}

#[test]
fn keys_sort_pause_and_end() {
    let mut view = View::new("process 7");
    view.take(Ok(snapshot()));
    let first = |view: &View| view.families()[0].name.clone();
    assert_eq!(first(&view), "accounts");
    press(&mut view, KeyCode::Char('s'));
    assert_eq!(first(&view), "log");
    press(&mut view, KeyCode::Char('p'));
    view.take(Err("gone".to_owned()));
    assert!(screen(&mut view, 100, 30).contains("paused"));
    press(&mut view, KeyCode::Char('p'));
    view.take(Err("the program has gone".to_owned()));
    assert!(screen(&mut view, 100, 30).contains("the program has gone"));
    for code in [KeyCode::Down, KeyCode::End, KeyCode::PageDown, KeyCode::BackTab, KeyCode::Up] {
        assert!(!press(&mut view, code));
        screen(&mut view, 100, 30);
    }
    assert!(press(&mut view, KeyCode::Char('q')));
}

#[test]
fn no_terminal_is_too_small() {
    let mut view = View::new("process 7");
    view.take(Ok(snapshot()));
    for (width, height) in [(1, 1), (3, 40), (20, 5), (200, 2), (40, 12)] {
        screen(&mut view, width, height);
    }
}
