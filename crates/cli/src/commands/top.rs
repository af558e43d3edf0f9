//! `cairn top`.

mod client;
mod look;
mod screen;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use self::client::{Client, Refused};
use self::look::{Info, Look};
use self::screen::Screen;
use super::serve::password;
use super::{Outcome, print_json};
use crate::args::Top;
use crate::failure::Failure;
use crate::output;

/// How often keys and signals are looked for.
const ATTENTION: Duration = Duration::from_millis(100);

pub fn run(args: &Top) -> Outcome {
    let password = args.password_file.as_deref().map(password).transpose()?;
    let mut client = Client::new(args.redis.clone(), args.user.clone(), password);
    if args.once || args.json {
        let look = once(&mut client, args.interval).map_err(|refused| failure(&args.redis, refused))?;
        if args.json {
            print_json(&look)?
        } else {
            output::text(format_args!("{look}"))?
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !io::stdout().is_terminal() {
        return Err(Failure::new("standard output is no terminal", "use --once or --json"));
    }
    let ended = Arc::<AtomicBool>::default();
    let told = ended.clone();
    ctrlc::set_handler(move || told.store(true, Relaxed))
        .map_err(|error| Failure::new(format!("signals cannot be waited for: {error}"), "see `cairn help top`"))?;
    let outcome = ratatui::try_init().and_then(|mut terminal| watch(&mut terminal, &mut client, args, &ended));
    ratatui::restore();
    outcome.map_err(|error| Failure::new(format!("the terminal: {error}"), "use --once or --json"))?;
    Ok(ExitCode::SUCCESS)
}

fn failure(address: &str, refused: Refused) -> Failure {
    match refused {
        Refused::Away(why) => {
            Failure::new(format!("{address}: {why}"), "start a server (cairn serve), or say where it is (--redis)")
        }
        Refused::Stranger(why) => Failure::new(format!("{address}: {why}"), "give its password (--password-file)"),
    }
}

#[expect(clippy::disallowed_methods, reason = "rates are per second of real time")]
fn clock() -> Instant {
    Instant::now()
}

/// What a server said, and when.
type Heard = (Instant, Info);

fn ask(client: &mut Client) -> Result<Heard, Refused> {
    let info = client.info()?;
    Ok((clock(), info))
}

fn once(client: &mut Client, interval: Duration) -> Result<Look, Refused> {
    let before = ask(client)?;
    std::thread::sleep(interval);
    let now = ask(client)?;
    Ok(look(client, Some(&before), &now))
}

fn look(client: &Client, before: Option<&Heard>, now: &Heard) -> Look {
    // One that was started anew counts from zero.
    let before = before.filter(|before| before.1.text("run_id") == now.1.text("run_id"));
    let seconds = before.map_or(0.0, |before| now.0.duration_since(before.0).as_secs_f64());
    Look::new(&client.address, before.map(|before| &before.1), &now.1, seconds)
}

/// Until it is ended.
fn watch(terminal: &mut DefaultTerminal, client: &mut Client, args: &Top, ended: &AtomicBool) -> io::Result<()> {
    let mut screen = Screen::new(&client.address);
    let mut before: Option<Heard> = None;
    loop {
        let asked = clock();
        match ask(client) {
            Ok(now) => {
                screen.saw(look(client, before.as_ref(), &now), before.is_some());
                before = Some(now);
            }
            Err(refused) => {
                let (Refused::Away(why) | Refused::Stranger(why)) = refused;
                screen.lost(&why, clock());
                before = None;
            }
        }
        loop {
            terminal.draw(|frame| screen.draw(frame, clock()))?;
            let left = args.interval.saturating_sub(clock().duration_since(asked));
            if left.is_zero() {
                break;
            }
            let quits = event::poll(left.min(ATTENTION))? && quits(&event::read()?);
            if quits || ended.load(Relaxed) {
                return Ok(());
            }
        }
    }
}

fn quits(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let control = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    key.kind == KeyEventKind::Press && (control || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc))
}
