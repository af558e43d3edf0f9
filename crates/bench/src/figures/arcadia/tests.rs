use std::time::Duration;

use super::*;
use crate::Plan;

fn shown(number: &str) -> Shown {
    let plan = Plan { batch_time: Duration::from_micros(200), ..Plan::quick() };
    let figure = FIGURES.iter().find(|figure| figure.number == number).unwrap();
    figure.measure(&Setting { plan, ..Setting::here(true) }, &()).unwrap()
}

#[test]
fn figures_of_appends() {
    for number in ["5a", "5c", "5d", "8a"] {
        let Shown { text, rows, .. } = shown(number);
        assert!(text.contains("log sync") && rows.len() >= 10, "{text}");
        for row in &rows {
            assert_eq!((&row.params["paper"], &row.params["figure"]), (&"arcadia".into(), &number.into()));
            assert!(row.ops > 0 || row.missing.is_some(), "{row:?}");
        }
    }
}

#[test]
fn parts_of_an_append() {
    let Shown { text, rows, .. } = shown("5b");
    let parts = |who: &str| -> Vec<&str> {
        let of = rows.iter().filter(|row| row.engine == who && row.missing.is_none());
        of.map(|row| row.params["part"].as_str().unwrap()).collect()
    };
    assert_eq!(parts("log"), ["reserve", "copy", "complete", "force", "append"]);
    assert_eq!(parts("flex"), ["lock", "header", "payload", "tail"]);
    assert_eq!((parts("bare"), parts("pwrite")), (vec!["append"], vec!["append"]));
    assert!(text.contains("reserve") && text.contains("libpmemlog"), "{text}");
}

/// Each side says itself how many records it found; fewer are an error.
#[test]
fn recovery_finds_all_records() {
    let Shown { text, rows, .. } = shown("7a");
    assert_eq!(rows.len(), 8);
    assert!(text.contains("bare"), "{text}");
    assert!(rows.iter().all(|row| row.missing.is_some() || row.bytes_per_s > Some(0.0)));
}

/// Over sizes, over backups, over live bytes.
#[test]
fn figures_of_a_log_with_backups() {
    for (number, rows_expected, lines_expected, words) in [
        ("6a", 2 * 3, 3, ["remote first", "p99"]),
        ("6d", 2 * 3 * 4, 3, ["3 backups take", "pipelined:16 with one backup"]),
        ("7b", 2 * 4, 4, ["own copy lost", "B/s"]),
    ] {
        let Shown { text, rows, lines } = shown(number);
        assert_eq!(rows.len(), rows_expected, "{text}");
        assert!(rows.iter().all(|row| row.params["figure"] == number && row.ops > 0), "{rows:?}");
        let lines = lines.unwrap().lines;
        assert_eq!(lines.len(), lines_expected, "{lines:?}");
        assert!(
            lines.iter().all(|line| line.points.len() == rows.len() / lines_expected || number == "6d"),
            "{lines:?}"
        );
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}

#[test]
fn windows_stay_below_their_bound() {
    for number in ["8c", "8d"] {
        let Shown { text, rows, .. } = shown(number);
        let [row] = &rows[..] else { panic!("one row: {text}") };
        assert!(row.params["largest"].as_u64() <= row.params["bound"].as_u64(), "{text}");
        assert_eq!(row.ops, 20_000);
    }
}

#[test]
fn the_map_is_measured_with_each_policy() {
    let Shown { text, rows, .. } = shown("10");
    assert_eq!(rows.len(), 12);
    assert!(["no log", "log sync", "log freq:8", "log group:8T"].iter().all(|who| text.contains(who)), "{text}");
    assert!(rows.iter().all(|row| row.ops > 0));
}

#[test]
fn what_cannot_be_counted_is_said() {
    for (number, words) in [("8b", "no hardware counters"), ("6c", "no hardware counters")] {
        let Shown { text, rows, .. } = shown(number);
        assert!(text.contains(words) && rows.is_empty(), "{text}");
    }
}
