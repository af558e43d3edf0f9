//! The report: one file, nothing else needed to read it.

use std::fmt::Write as _;
use std::path::Path;

use crate::plots::{self, Failed, Line};
use crate::summary::{Outcome, Summary};
use crate::{Error, Result};

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}th,td{padding:.3em .8em;border-bottom:1px solid #ccc;text-align:right}\
td{white-space:nowrap}th:first-child,td:first-child{text-align:left}li{margin:.2em 0}.bad{color:#a00}.good{color:#060}\
.scale{position:relative;width:200px;text-align:left}.bar{background:#0072b2;position:absolute;top:50%;height:.9em;margin-top:-.45em}.slow{background:#e69f00}\
.one{position:absolute;left:33.3%;top:0;bottom:0;border-left:1px solid #222}\
svg{max-width:100%;height:auto;margin:.5em 0}";

impl Summary {
    /// Writes the report.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_html(&self, path: &Path) -> Result<()> {
        let text =
            self.html().map_err(|error| Error::Option(format!("{}: drawing failed: {error}", path.display())))?;
        std::fs::write(path, text).map_err(Error::io("write", path))
    }

    fn html(&self) -> Result<String, Failed> {
        let mut page = String::new();
        let p = &mut page;
        writeln!(p, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>cairn demo</title>")?;
        writeln!(p, "<style>{STYLE}</style></head><body>\n<h1>Cairn: transactions that survive</h1>")?;
        let (kills, acknowledged) =
            self.outcomes.iter().fold((0, 0), |(k, a), outcome| (k + outcome.kills, a + outcome.acknowledged));
        if self.findings().next().is_none() {
            writeln!(
                p,
                "<p class=\"good\">A process was killed {kills} times while it worked. Of {acknowledged} updates it had acknowledged, \
                 none was lost.</p>"
            )?;
        } else {
            writeln!(p, "<p class=\"bad\">After some of {kills} kills, something was wrong:</p>\n<ul class=\"bad\">")?;
            for (kind, finding) in self.findings() {
                writeln!(p, "<li>{kind}, kill {}: {}</li>", finding.kill, escape(&finding.what))?;
            }
            writeln!(p, "</ul>")?;
        }
        self.write_beside(p)?;
        writeln!(p, "<h2>Killed and recovered</h2>")?;
        self.write_table(p)?;
        for picture in self.pictures()? {
            writeln!(p, "{picture}")?;
        }
        writeln!(p, "</body></html>")?;
        Ok(page)
    }

    /// Bars of how many times as fast, on a logarithmic scale, from the line: to the right it is faster.
    fn write_beside(&self, p: &mut String) -> std::fmt::Result {
        if self.beside.is_empty() {
            return Ok(());
        }
        writeln!(p, "<h2>Beside what would be used instead</h2>\n<table><tr>")?;
        for head in Self::BESIDE {
            writeln!(p, "<th>{}</th>", escape(head))?;
        }
        writeln!(p, "<th class=\"scale\">a tenth, <b>as fast</b>, 10, 100 times</th></tr>")?;
        for (row, cells) in self.beside.iter().zip(self.beside_rows()) {
            let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
            let bar = row.measured.as_ref().map_or_else(
                |_| String::new(),
                |measured| {
                    let at = |times: f64| (times.max(0.1).log10() + 1.0).min(3.0) * 100.0 / 3.0;
                    let class = if measured.ratio.median < 1.0 { "bar slow" } else { "bar" };
                    let (one, end) = (at(1.0), at(measured.ratio.median));
                    let (left, width) = (one.min(end), (end - one).abs());
                    format!("<div class=\"{class}\" style=\"left:{left:.1}%;width:{width:.1}%\"></div>")
                },
            );
            writeln!(p, "<tr>{cells}<td class=\"scale\"><div class=\"one\"></div>{bar}</td></tr>")?;
        }
        writeln!(p, "</table>\n<ul>")?;
        for note in self.beside_notes() {
            writeln!(p, "<li>{}</li>", escape(&note))?;
        }
        writeln!(p, "</ul>")
    }

    fn write_table(&self, p: &mut String) -> std::fmt::Result {
        let cells = |cells: &[String], tag: &str| {
            cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect::<String>()
        };
        writeln!(p, "<table><tr>{}</tr>", cells(&Self::COLUMNS.map(str::to_owned), "th"))?;
        for row in self.rows() {
            writeln!(p, "<tr>{}</tr>", cells(&row, "td"))?;
        }
        writeln!(p, "</table>\n<ul>")?;
        for note in self.notes() {
            writeln!(p, "<li>{}</li>", escape(&note))?;
        }
        writeln!(p, "</ul>")
    }

    fn pictures(&self) -> Result<[String; 3], Failed> {
        let lines = |of: &dyn Fn(&Outcome) -> Vec<f64>| -> Vec<Line> {
            self.outcomes.iter().map(|outcome| (outcome.kind.to_string(), of(outcome))).collect()
        };
        let rates = lines(&|outcome| outcome.rates().into_iter().map(|rate| rate / 1e3).collect());
        let rounds: Vec<String> =
            (1..=rates.iter().map(|(_, r)| r.len()).max().unwrap_or(0)).map(|n| format!("round {n}")).collect();
        let rounds: Vec<&str> = rounds.iter().map(String::as_str).collect();
        let latencies = lines(&|outcome| {
            let us = |of: fn(&crate::message::Round) -> f64| outcome.latency(of) / 1e3;
            vec![us(|round| round.p50_ns), us(|round| round.p99_ns), us(|round| round.p999_ns)]
        });
        let recoveries = lines(&|outcome| outcome.recoveries_ms());
        Ok([
            plots::bars("Thousand operations per second", &rounds, &rates)?,
            plots::bars(
                "Latency in µs: that share of the operations is no slower",
                &["50 %", "99 %", "99.9 %"],
                &latencies,
            )?,
            plots::points("Recovery in ms, on a logarithmic scale", "recovery", &recoveries)?,
        ])
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Finding;
    use crate::summary::tests::summary;

    #[test]
    fn a_page_that_needs_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.html");
        summary().write_html(&path).unwrap();
        let page = std::fs::read_to_string(&path).unwrap();
        assert_eq!(page.matches("<svg").count(), 3);
        for words in [
            "none was lost",
            "YCSB A &amp; more",
            "a &lt;fast&gt; one",
            "1 234 567",
            "updates lost",
            "Beside what",
            "2.50 (2.00-3.00)",
        ] {
            assert!(page.contains(words), "{words}");
        }
        assert!(!page.contains("src=") && !page.contains("href="));
    }

    #[test]
    fn a_loss_is_told_first() {
        let mut summary = summary();
        summary.outcomes[1].findings.push(Finding { kill: 3, what: "key \"a\": LOST".into() });
        let page = summary.html().unwrap();
        let at = |words: &str| page.find(words).unwrap();
        assert!(at("inplace, kill 3: key &quot;a&quot;: LOST") < at("<table"));
        assert!(!page.contains("none was lost"));
        assert!(summary.write_html(Path::new("/proc/no/such")).unwrap_err().to_string().contains("/proc/no/such"));
    }
}
