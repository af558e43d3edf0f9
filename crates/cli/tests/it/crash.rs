//! `cairn crash`: every built-in scenario is sound, and its explorer can see a barrier that is missing.

use std::fs;

use serde_json::Value;

use super::{cairn, temp};

fn names() -> Vec<String> {
    let list = cairn(temp().path(), "crash --list");
    assert_eq!(list.code, 0, "{list:?}");
    list.out.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

/// As far as few states show it; the scenarios' own tests take far more.
#[test]
fn all_scenarios_are_sound() {
    let dir = temp();
    let run = cairn(dir.path(), "crash --budget 500 --seed 3 --json reports.json");
    assert_eq!(run.code, 0, "{run:?}");
    let text = fs::read_to_string(dir.path().join("reports.json")).unwrap();
    let reports: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let explored: Vec<&str> = reports.iter().map(|report| report["scenario"].as_str().unwrap()).collect();
    assert_eq!(explored, names());
    for report in &reports {
        assert!(report["points"].as_u64() > Some(3), "{report}");
        assert!(report["states"].as_u64() > Some(20), "{report}");
        assert_eq!(report["violations"].as_array().unwrap().len(), 0, "{report}");
    }
}

/// However many are asked for, each has some states, and it ends.
#[test]
fn workloads_are_as_many_as_the_budget_has_states_for() {
    let run = cairn(temp().path(), "crash --scenario two-slot --budget 500 --schedules 100000000 --json -");
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(run.json()["schedules"].as_u64(), Some(50), "{run:?}");
}

#[test]
fn one_seed_explores_the_same_states() {
    let dir = temp();
    let states = |seed: u32| {
        let run = cairn(dir.path(), &format!("crash --scenario two-slot --budget 5k --seed {seed} --json -"));
        let json = run.json();
        (json["points"].clone(), json["states"].clone(), json["recoveries"].clone())
    };
    assert_eq!(states(5), states(5));
}

/// A checker that was never seen to fail proves nothing: leaving barriers out must be found.
#[test]
fn missing_barriers_are_found() {
    let dir = temp();
    for name in ["two-slot", "ring"] {
        let run = cairn(dir.path(), &format!("crash --scenario {name} --budget 20k --mutate --json -"));
        assert_eq!(run.code, 0, "{run:?}");
        let json = run.json();
        assert!(json["killed"].as_array().is_some_and(|killed| killed.len() >= 2), "{run:?}");
    }
}

#[test]
fn an_unknown_scenario_is_answered_with_the_known_ones() {
    let run = cairn(temp().path(), "crash --scenario nonsense");
    assert_eq!(run.code, 2, "{run:?}");
    let failure = run.failure();
    assert!(failure.0.contains("nonsense") && names().iter().all(|name| failure.1.contains(name)), "{run:?}");
}

/// Media that fail: which ones a scenario is held to is said, and what is not is refused rather than explored for nothing.
#[test]
fn faults_and_models() {
    let dir = temp();
    let line =
        "crash --scenario checksummed --scenario log --budget 300 --faults flip,poison,sync,full --model file:4096";
    let run = cairn(dir.path(), &format!("{line} --json reports.json"));
    assert_eq!(run.code, 0, "{run:?}");
    let text = fs::read_to_string(dir.path().join("reports.json")).unwrap();
    for report in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        assert!(report["faults_detected"].as_u64() > Some(20), "{report}");
        // An exploration for each drain, and for each length.
        assert!(report["schedules"].as_u64() > Some(8), "{report}");
    }
    let list = cairn(dir.path(), "crash --list").out;
    let of = |name: &str| list.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap().to_owned();
    assert!(of("ring").ends_with("[withstands flip, poison]") && !of("two-slot").contains("withstands"), "{list}");
    for line in ["--scenario two-slot --faults flip", "--faults water", "--model paper", "--faults flip --mutate"] {
        let run = cairn(dir.path(), &format!("crash {line}"));
        assert_eq!(run.code, 2, "{line}: {run:?}");
    }
}
