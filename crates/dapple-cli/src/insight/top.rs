//! `dapple top`: the live page, in a terminal.
//!
//! A task asks the program for a snapshot each second; the thread of the terminal draws the last one, and reads keys. Keys
//! work while the program does not answer.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use dapple::insight::{Family, Snapshot, time_text};
use dapple::time::sleep;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState, Wrap};

use super::InsightError;
use super::target::{Page, Target};

/// Show in the terminal which color holds a running program back; refreshed each second
#[derive(Debug, clap::Args)]
#[command(after_help = "Keys: 1 to 4 or Tab choose a table, arrows move in it, s sorts, p pauses, q ends.\n\
                  Example: dapple top $(pgrep -f 'dapple serve')")]
pub(crate) struct TopArgs {
    /// The number of a process of the same user, or the address that it was given by --insight
    #[arg(value_name = "PID|HOST:PORT")]
    target: Target,

    /// The token that the program was given by --insight-token
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,

    /// Print one report of half a second, and end
    #[arg(long)]
    once: bool,
}

/// Shows a program until the user ends it.
pub(crate) fn top(args: &TopArgs) -> Result<(), InsightError> {
    if !args.once && !io::stdout().is_terminal() {
        return Err(InsightError::NoTerminal);
    }
    let page = Page::open(&args.target, args.token.clone(), ANSWER_MAX)?;
    let runtime = dapple::builder().workers(1).build().map_err(InsightError::Runtime)?;
    if args.once {
        let snapshot = runtime.block_on(runtime.spawn(async move { snapshot(&page).await }));
        let snapshot = snapshot.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        return write!(io::stdout(), "{snapshot}").map_err(InsightError::Print);
    }
    let (tx, snapshots) = sync_channel(1);
    // It ends with this process.
    drop(runtime.spawn(watch(page, tx)));
    let mut terminal = ratatui::try_init().map_err(InsightError::Print)?;
    let ended = show(&mut terminal, &args.target.to_string(), &snapshots);
    ratatui::restore();
    ended.map_err(InsightError::Print)
}

async fn snapshot(page: &Page) -> Result<Snapshot, InsightError> {
    let answer = page.ask("/snapshot.json?ms=500").await?;
    serde_json::from_slice(&answer).map_err(|_| InsightError::Refused(page.addr().to_owned(), OTHER.to_owned()))
}

type Answer = Result<Box<Snapshot>, String>;

/// Sends the answers. A full channel means that the terminal is slower: the answer is dropped.
async fn watch(page: Page, tx: SyncSender<Answer>) {
    loop {
        let begin = dapple::time::Instant::now();
        let answer = snapshot(&page).await.map(Box::new).map_err(|error| error.to_string());
        if let Err(std::sync::mpsc::TrySendError::Disconnected(_)) = tx.try_send(answer) {
            return;
        }
        sleep(EVERY.saturating_sub(begin.elapsed()).max(PAUSE_MIN)).await;
    }
}

fn show(terminal: &mut ratatui::DefaultTerminal, name: &str, snapshots: &Receiver<Answer>) -> io::Result<()> {
    let mut view = View::new(name);
    loop {
        match snapshots.try_recv() {
            Ok(answer) => view.take(answer),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
        terminal.draw(|frame| view.draw(frame))?;
        if event::poll(KEYS_EVERY)?
            && let Event::Key(key) = event::read()?
            && view.key(key)
        {
            return Ok(());
        }
    }
}

/// The tables, in the order of their keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    Colors,
    Waits,
    Edges,
    Slow,
}

impl Shown {
    const ALL: [Shown; 4] = [Shown::Colors, Shown::Waits, Shown::Edges, Shown::Slow];

    fn title(self) -> &'static str {
        match self {
            Shown::Colors => "1 colors",
            Shown::Waits => "2 waits",
            Shown::Edges => "3 posts between colors",
            Shown::Slow => "4 longest callbacks",
        }
    }
}

/// The order of the families.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Hottest,
    Time,
    Waiting,
}

/// Everything on the screen.
struct View {
    name: String,
    snapshot: Option<Box<Snapshot>>,
    came: Option<Instant>,
    /// The reason why the last question got no answer.
    trouble: Option<String>,
    paused: bool,
    shown: Shown,
    order: Order,
    rows: TableState,
}

impl View {
    fn new(name: &str) -> View {
        let rows = TableState::default().with_selected(0);
        View {
            name: name.to_owned(),
            snapshot: None,
            came: None,
            trouble: None,
            paused: false,
            shown: Shown::Colors,
            order: Order::Hottest,
            rows,
        }
    }

    fn take(&mut self, answer: Answer) {
        match answer {
            _ if self.paused => {}
            // REAL: a person looks at it.
            Ok(snapshot) => (self.snapshot, self.came, self.trouble) = (Some(snapshot), Some(Instant::now()), None),
            Err(trouble) => self.trouble = Some(trouble),
        }
    }

    /// Whether the user wants to leave.
    fn key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let at = Shown::ALL.iter().position(|shown| *shown == self.shown).unwrap_or(0);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('p') | KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('s') => {
                self.order = match self.order {
                    Order::Hottest => Order::Time,
                    Order::Time => Order::Waiting,
                    Order::Waiting => Order::Hottest,
                }
            }
            KeyCode::Char(digit @ '1'..='4') => self.choose(digit as usize - '1' as usize),
            KeyCode::Tab | KeyCode::Right => self.choose(at + 1),
            KeyCode::BackTab | KeyCode::Left => self.choose(at + Shown::ALL.len() - 1),
            KeyCode::Down | KeyCode::Char('j') => self.rows.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.rows.select_previous(),
            KeyCode::PageDown => self.rows.scroll_down_by(PAGE_ROWS),
            KeyCode::PageUp => self.rows.scroll_up_by(PAGE_ROWS),
            KeyCode::Home => self.rows.select_first(),
            KeyCode::End => self.rows.select_last(),
            _ => {}
        }
        false
    }

    fn choose(&mut self, at: usize) {
        self.shown = Shown::ALL[at % Shown::ALL.len()];
        self.rows = TableState::default().with_selected(0);
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let verdict = Paragraph::new(self.verdict()).bold().wrap(Wrap { trim: true });
        let workers = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.workers.len().min(WORKER_ROWS)) as u16;
        let [state, said, busy, rates, tabs, table, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(VERDICT_ROWS),
            Constraint::Length(workers),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(self.state(), state);
        frame.render_widget(verdict, said);
        if let Some(snapshot) = &self.snapshot {
            frame.render_widget(workers_of(snapshot, busy), busy);
            frame.render_widget(rates_of(snapshot), rates);
        }
        let titles = Shown::ALL.map(|shown| match shown == self.shown {
            true => format!(" {} ", shown.title()).reversed(),
            false => format!(" {} ", shown.title()).dim(),
        });
        frame.render_widget(Line::from(titles.to_vec()), tabs);
        let rows = self.table(table.width);
        frame.render_stateful_widget(rows, table, &mut self.rows);
        frame.render_widget(Line::from("q quit  1-4 Tab table  ↑↓ move  s sort  p pause").dim(), keys);
    }

    fn verdict(&self) -> Text<'_> {
        match &self.snapshot {
            Some(snapshot) => Text::from(snapshot.verdict.to_string()),
            None if self.trouble.is_some() => Text::default(),
            None => Text::from("asks for the first recording"),
        }
    }

    /// The name of the program, and how old the figures are.
    fn state(&self) -> Line<'_> {
        let age = self.came.map_or(0, |came| came.elapsed().as_secs());
        let lost = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.lost);
        let name = format!("dapple top: {}", self.name).bold();
        let said = match &self.trouble {
            Some(trouble) => format!("  {trouble}; the figures are {age} s old").red().bold(),
            None if self.paused => "  paused".yellow(),
            None if lost > 0 => format!("  {lost} events found no room").yellow(),
            None => "".into(),
        };
        Line::from(vec![name, said])
    }

    fn families(&self) -> Vec<&Family> {
        let all = self.snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.families);
        let mut all: Vec<&Family> = all.iter().collect();
        match self.order {
            Order::Hottest => {}
            Order::Time => all.sort_by_key(|family| std::cmp::Reverse(family.run_ns)),
            Order::Waiting => all.sort_by_key(|family| std::cmp::Reverse(family.waits.total_ns())),
        }
        all
    }

    fn table(&self, width: u16) -> Table<'static> {
        let (heads, rows): (Vec<&str>, Vec<Vec<String>>) = match (self.shown, &self.snapshot) {
            (Shown::Colors, _) => (
                vec!["color", "colors", "runs", "time", "share", "busiest", "at most"],
                self.families().into_iter().map(color_row).collect(),
            ),
            (Shown::Waits, _) => (
                vec!["waited", "same color", "other colors", "worker", "readers", "several"],
                self.families().into_iter().map(wait_row).collect(),
            ),
            (Shown::Edges, snapshot) => {
                let edges = snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.edges).iter();
                let row =
                    |edge: &dapple::insight::Edge| vec![format!("{} > {}", edge.from, edge.to), edge.count.to_string()];
                (vec!["from > to", "posts"], edges.map(row).collect())
            }
            (Shown::Slow, snapshot) => {
                let slow = snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.slow).iter();
                let row = |slow: &dapple::insight::Slow| {
                    let worker = slow.worker.map_or("-".to_owned(), |worker| worker.to_string());
                    vec![
                        slow.name.clone(),
                        time_text(slow.run_ns),
                        worker,
                        slow.waited.to_string(),
                        time_text(slow.waited_ns),
                    ]
                };
                (vec!["line", "time", "worker", "waited", "together"], slow.map(row).collect())
            }
        };
        let others = heads.len() - 1;
        let column_len = heads[1..].iter().map(|head| head.len()).fold(COLUMN_LEN_MIN, usize::max);
        // A narrow terminal shows names and the first columns.
        let name_len = usize::from(width).saturating_sub(others * (column_len + 1)).max(NAME_LEN_MIN);
        let columns = std::iter::repeat_n(Constraint::Length(column_len as u16), others);
        let widths = std::iter::once(Constraint::Length(name_len as u16)).chain(columns);
        let head = Row::new(heads.into_iter().map(Cell::from)).style(Style::new().dim());
        let rows = rows.into_iter().map(|mut cells| {
            cells[0] = end_of(&cells[0], name_len);
            Row::new(cells)
        });
        Table::new(rows, widths).header(head).row_highlight_style(Modifier::REVERSED)
    }
}

fn color_row(family: &Family) -> Vec<String> {
    let most = if family.speedup_max < 1000.0 { format!("{:.1} x", family.speedup_max) } else { "-".to_owned() };
    vec![
        named(family),
        family.colors.to_string(),
        family.runs.to_string(),
        time_text(family.run_ns),
        percent(family.share),
        percent(family.hottest),
        most,
    ]
}

fn wait_row(family: &Family) -> Vec<String> {
    let waits = &family.waits;
    let all = [waits.same_color_ns, waits.other_colors_ns, waits.worker_ns, waits.readers_ns, waits.several_ns];
    std::iter::once(named(family)).chain(all.map(time_text)).collect()
}

fn named(family: &Family) -> String {
    let name = match family.name == family.line || family.line.is_empty() {
        true => family.name.clone(),
        false => format!("{} ({})", family.name, family.line),
    };
    if family.is_state { name + " (state)" } else { name }
}

/// A bar for each worker, and for the rest of them one line.
fn workers_of(snapshot: &Snapshot, area: Rect) -> Text<'static> {
    let width = usize::from(area.width).saturating_sub(12).min(60);
    let bar = |(at, worker): (usize, &dapple::insight::Worker)| {
        let full = (worker.busy.clamp(0.0, 1.0) * width as f64).round() as usize;
        let bar = format!("{at:>4} {}{} {}", "█".repeat(full), "·".repeat(width - full), percent(worker.busy));
        if worker.busy > 0.85 { Line::from(bar.red()) } else { Line::from(bar) }
    };
    let fits = snapshot.workers.len() <= WORKER_ROWS;
    let shown = if fits { WORKER_ROWS } else { WORKER_ROWS - 1 };
    let mut lines: Vec<Line<'static>> = snapshot.workers.iter().enumerate().take(shown).map(bar).collect();
    if let Some(rest) = snapshot.workers.get(shown..).filter(|rest| !rest.is_empty()) {
        let busy = rest.iter().map(|worker| worker.busy).sum::<f64>() / rest.len() as f64;
        lines.push(Line::from(format!("     and {} more, busy for {} on the average", rest.len(), percent(busy))));
    }
    Text::from(lines)
}

fn rates_of(snapshot: &Snapshot) -> Line<'static> {
    let rates = snapshot.predictions.iter().map(|one| format!("{}: {:.2}", one.workers, one.speedup));
    Line::from(format!("predicted rate by workers  {}", rates.collect::<Vec<_>>().join("   "))).cyan()
}

/// The end of a name, which tells more than its begin.
fn end_of(name: &str, len_max: usize) -> String {
    let len = name.chars().count();
    match len <= len_max {
        true => name.to_owned(),
        false => std::iter::once('…').chain(name.chars().skip(len + 1 - len_max)).collect(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

const OTHER: &str = "it sent no snapshot of this version: use the `dapple` of the same release";

/// How often the program is asked, and the least pause between two recordings of it.
const EVERY: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(200);
const KEYS_EVERY: Duration = Duration::from_millis(100);
/// A recording of half a second, and its analysis.
const ANSWER_MAX: Duration = Duration::from_secs(20);
const COLUMN_LEN_MIN: usize = 8;
const NAME_LEN_MIN: usize = 20;
const WORKER_ROWS: usize = 8;
const VERDICT_ROWS: u16 = 3;
const PAGE_ROWS: u16 = 10;

#[cfg(test)]
mod tests;
