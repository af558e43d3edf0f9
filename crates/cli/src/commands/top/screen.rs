//! Draws a server in the terminal.

use std::collections::VecDeque;
use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};

use super::look::{Look, count, time};

/// Looks that are remembered: as many as a wide terminal has columns.
const HISTORY: usize = 512;
/// Columns from which on two charts stand side by side.
const WIDE: u16 = 70;
const ONE: Color = Color::Cyan;
const TWO: Color = Color::Yellow;

/// What is shown.
pub struct Screen {
    address: String,
    last: Option<Look>,
    charts: [VecDeque<u64>; 4],
    /// Since when it cannot be asked, and why.
    lost: Option<(Instant, String)>,
}

impl Screen {
    pub fn new(address: &str) -> Self {
        Self { address: address.to_owned(), last: None, charts: Default::default(), lost: None }
    }

    /// Rates of the first look after a while are of nothing.
    pub fn saw(&mut self, look: Look, has_rates: bool) {
        if has_rates {
            let us = |of: Option<f64>| of.unwrap_or(0.0) as u64;
            let values = [
                look.per_second.commands as u64,
                look.per_second.commits as u64,
                us(look.reply.p99_us),
                us(look.commit.p99_us),
            ];
            for (chart, value) in self.charts.iter_mut().zip(values) {
                chart.push_front(value);
                chart.truncate(HISTORY);
            }
        }
        self.lost = None;
        self.last = Some(look);
    }

    pub fn lost(&mut self, why: &str, now: Instant) {
        let since = self.lost.as_ref().map_or(now, |(since, _)| *since);
        self.lost = Some((since, why.to_owned()));
    }

    pub fn draw(&self, frame: &mut Frame<'_>, now: Instant) {
        let [head, charts, rest] =
            Layout::vertical([Constraint::Length(3), Constraint::Percentage(50), Constraint::Min(8)])
                .areas(frame.area());
        frame.render_widget(self.head(now), head);
        let Some(look) = &self.last else { return };
        self.draw_charts(frame, charts, look);
        let [numbers, commands] =
            Layout::horizontal([Constraint::Length(33), Constraint::Fill(1)]).spacing(2).areas(rest);
        draw_numbers(frame, numbers, look);
        draw_commands(frame, commands, look);
    }

    fn head(&self, now: Instant) -> Paragraph<'_> {
        let state = match &self.lost {
            None if self.last.is_some() => "live".green().bold(),
            None => "connecting".bold(),
            Some(_) => "away".red().bold(),
        };
        let title = self.last.as_ref().map(Look::title).unwrap_or_default();
        let mut lines = vec![Line::from(vec![
            Span::from(self.address.as_str()).bold(),
            "  ".into(),
            state,
            "  q ends  ".dim(),
            title.into(),
        ])];
        match &self.lost {
            Some((since, why)) => {
                let seconds = now.duration_since(*since).as_secs();
                lines.push(
                    Line::from(format!(
                        "{why}; asked again all the time, for {seconds} s; what is below is from before"
                    ))
                    .red(),
                );
            }
            None => {
                let survives = self.last.as_ref().map_or("", |look| look.survives.as_str());
                if !survives.is_empty() {
                    lines.push(Line::from(format!("acknowledged writes survive {survives}")).dim());
                }
            }
        }
        Paragraph::new(lines)
    }

    fn draw_charts(&self, frame: &mut Frame<'_>, area: Rect, look: &Look) {
        let both = |of: &super::look::Latency| format!("p50 {}, p99 {}", time(of.p50_us), time(of.p99_us));
        let titles = [
            format!("commands {}/s", count(look.per_second.commands)),
            format!("commits {}/s", count(look.per_second.commits)),
            format!("replies {}", both(&look.reply)),
            format!("commits {}", both(&look.commit)),
        ];
        let halves = |area: Rect| Layout::horizontal([Constraint::Fill(1); 2]).spacing(1).areas::<2>(area);
        let places: Vec<Rect> = if area.width < WIDE {
            Layout::vertical([Constraint::Fill(1); 4]).split(area).to_vec()
        } else {
            Layout::vertical([Constraint::Fill(1); 2]).areas::<2>(area).into_iter().flat_map(halves).collect()
        };
        for (at, ((place, title), chart)) in places.into_iter().zip(titles).zip(&self.charts).enumerate() {
            // The newest one stands at the right.
            let width = usize::from(place.width);
            let mut values: Vec<u64> = chart.iter().copied().take(width).collect();
            values.resize(width, 0);
            values.reverse();
            let most = values.iter().max().copied().unwrap_or(0);
            let most_text = if at < 2 { format!("{}/s", count(most as f64)) } else { time(Some(most as f64)) };
            let block = Block::new()
                .title(title.bold())
                .title(Line::from(format!("most {most_text}").dim()).alignment(Alignment::Right));
            let color = if at < 2 { ONE } else { TWO };
            frame.render_widget(Sparkline::default().block(block).data(values).style(Style::new().fg(color)), place);
        }
    }
}

fn draw_numbers(frame: &mut Frame<'_>, area: Rect, look: &Look) {
    let lines = look
        .numbers()
        .into_iter()
        .map(|(name, value)| Row::new([Line::from(name).dim(), Line::from(value).right_aligned()]));
    frame.render_widget(Table::new(lines, [Constraint::Length(16), Constraint::Length(16)]), area);
}

fn draw_commands(frame: &mut Frame<'_>, area: Rect, look: &Look) {
    let most = look.commands.first().map_or(0.0, |first| first.per_second).max(1.0);
    let room = usize::from(area.width.saturating_sub(32)).min(40);
    let rows = look.commands.iter().take(usize::from(area.height.saturating_sub(1))).map(|called| {
        let bar = "█".repeat((called.per_second / most * room as f64).round() as usize);
        let number = |value: f64| Line::from(count(value)).right_aligned();
        Row::new([
            called.name.clone().into(),
            number(called.per_second),
            number(called.calls as f64),
            Line::from(bar).fg(ONE),
        ])
    });
    let right = |text: &'static str| Line::from(text).right_aligned();
    let head = Row::new([Line::from("command"), right("per second"), right("calls"), Line::default()])
        .style(Style::new().add_modifier(Modifier::DIM));
    let widths = [Constraint::Length(12), Constraint::Length(10), Constraint::Length(7), Constraint::Fill(1)];
    frame.render_widget(Table::new(rows, widths).header(head), area);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::look::Info;
    use super::*;

    fn drawn(screen: &Screen, width: u16, height: u16, now: Instant) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame, now)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn every_terminal_is_large_enough() {
        let now = super::super::clock();
        let mut screen = Screen::new("here:1");
        assert!(drawn(&screen, 100, 30, now).contains("connecting"));
        for round in 0..600_u64 {
            let info = |commands: u64| {
                Info::parse(&format!(
                    "cairn_version:1\ntotal_commands_processed:{commands}\ncmdstat_set:calls={commands}"
                ))
            };
            screen.saw(Look::new("here:1", Some(&info(0)), &info(round * 10), 1.0), true);
        }
        for (width, height) in [(100, 30), (80, 24), (60, 40), (20, 5), (1, 1)] {
            drawn(&screen, width, height, now);
        }
        let text = drawn(&screen, 100, 30, now);
        for part in ["here:1", "live", "commands 5.99k/s", "set", "█", "connections"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        screen.lost("connection refused", now);
        screen.lost("connection refused", now + Duration::from_secs(5));
        let text = drawn(&screen, 100, 30, now + Duration::from_secs(7));
        assert!(text.contains("away") && text.contains("connection refused") && text.contains("for 7 s"), "{text}");
    }
}
