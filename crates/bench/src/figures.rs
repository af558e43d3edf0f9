//! The figures of the papers, measured here: `cairn bench figures --paper NAME`.
//!
//! Each says what the paper claims beside what comes out; where this machine cannot show it, it says so.

pub mod arcadia;
pub mod kamino;
pub mod mars;
pub mod midas;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use crate::plot::Lines;
use crate::{Error, Plan, Result, Row, Watch};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "figures";

/// Papers whose figures are here.
pub const PAPERS: [&str; 4] = ["arcadia", "kamino", "mars", "midas"];

/// Where to measure, and how much.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Where logs and pools go.
    pub dir: PathBuf,
    /// How much to measure.
    pub plan: Plan,
    /// Fewer and smaller cases.
    pub quick: bool,
    /// What one figure has measured for another.
    known: Known,
}

/// Rows, by what they are of; clones share them.
type Known = Rc<RefCell<BTreeMap<String, Vec<Row>>>>;

impl Setting {
    /// In memory, if there is some.
    #[must_use]
    pub fn here(quick: bool) -> Self {
        let plan = if quick { Plan::quick() } else { Plan::full() };
        Self { dir: crate::contest::memory(), plan, quick, known: Known::default() }
    }

    /// The rows of that name, measured at most once.
    fn once(&self, name: &str, measure: impl FnOnce() -> Result<Vec<Row>>) -> Result<Vec<Row>> {
        let known = self.known.borrow().get(name).cloned();
        if let Some(rows) = known {
            return Ok(rows);
        }
        let rows = measure()?;
        self.known.borrow_mut().insert(name.to_owned(), rows.clone());
        Ok(rows)
    }

    fn cases<T: Clone>(&self, full: &[T], quick: &[T]) -> Vec<T> {
        if self.quick { quick } else { full }.to_vec()
    }
}

/// One figure.
pub struct Figure {
    /// As the paper numbers it.
    pub number: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What the paper finds.
    pub claim: &'static str,
    measure: fn(&Setting, &dyn Watch) -> Result<Shown>,
}

/// What a figure shows here.
#[derive(Clone, Debug)]
pub struct Shown {
    /// For people.
    pub text: String,
    /// For programs; none if this machine cannot show it.
    pub rows: Vec<Row>,
    /// As a picture, if the rows alone do not make one.
    pub lines: Option<Lines>,
}

impl Shown {
    /// Text and rows.
    #[must_use]
    pub fn new(text: String, rows: Vec<Row>) -> Self {
        Self { text, rows, lines: None }
    }
}

impl Figure {
    /// Measures.
    ///
    /// # Errors
    /// Those of the contestants.
    pub fn measure(&self, setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
        (self.measure)(setting, watch)
    }
}

/// The figures of a paper: all, the one of that number, or those that are parts of it (`5` is 5a, 5b …, `6` is 6.3, 6.4 …).
///
/// # Errors
/// There is no such paper, or no such figure in it.
pub fn chosen(paper: &str, number: Option<&str>) -> Result<Vec<&'static Figure>> {
    let all = match paper {
        "arcadia" => arcadia::FIGURES,
        "kamino" => kamino::FIGURES,
        "mars" => mars::FIGURES,
        "midas" => midas::FIGURES,
        _ => {
            return Err(Error::Parameter(format!(
                "no figures of {paper:?} are here; choose from: {}",
                PAPERS.join(", ")
            )));
        }
    };
    let Some(number) = number else { return Ok(all.iter().collect()) };
    let is_part = |figure: &&Figure| {
        let rest = figure.number.strip_prefix(number);
        rest.is_some_and(|rest| rest.starts_with('.') || rest.chars().all(char::is_alphabetic))
    };
    let found: Vec<_> = all.iter().filter(is_part).collect();
    if number.is_empty() || found.is_empty() {
        let numbers: Vec<_> = all.iter().map(|figure| figure.number).collect();
        let there = numbers.join(", ");
        return Err(Error::Parameter(format!("{paper} has no figure {number:?} here; choose from: {there}")));
    }
    Ok(found)
}

/// A row of that figure, still to be measured.
fn row(paper: &str, number: &str) -> Row {
    Row::new(EXPERIMENT, "").param("paper", paper).param("figure", number)
}

/// A parameter, for a line or a column of its own.
fn param(row: &Row, name: &str) -> String {
    row.params
        .get(name)
        .map_or_else(String::new, |value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_chosen_by_number() {
        let numbers = |asked| -> Vec<_> { chosen("arcadia", asked).unwrap().iter().map(|f| f.number).collect() };
        assert_eq!(
            numbers(None),
            ["5a", "5b", "5c", "5d", "6a", "6c", "6d", "7a", "7b", "8a", "8b", "8c", "8d", "9", "10"]
        );
        assert_eq!(numbers(Some("5")), ["5a", "5b", "5c", "5d"]);
        assert_eq!((numbers(Some("8d")), numbers(Some("10"))), (vec!["8d"], vec!["10"]));
        for asked in ["", "1", "4", "5e", "a"] {
            let error = chosen("arcadia", Some(asked)).err().unwrap().to_string();
            assert!(error.contains("5a, 5b"), "{error}");
        }
        let error = chosen("venus", None).err().unwrap().to_string();
        assert!(error.contains("\"venus\"") && error.ends_with("choose from: arcadia, kamino, mars, midas"), "{error}");
        assert_eq!(chosen("midas", Some("6")).unwrap().len(), 16);
        let one = chosen("midas", Some("6.1")).err().unwrap().to_string();
        assert!(one.contains("6.10"), "{one}");
    }
}
