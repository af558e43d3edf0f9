//! What README's limits allow of a log whose end is damaged is all that is allowed: without watermarks more is gone, and that is found.

use crash::{Config, FaultKind, Report, Scenario};
use scenarios::{EveryKv, EveryLog, Records, Stored};

fn pages<S: Scenario>(scenario: impl Fn() -> S) -> Report {
    let config = Config::seeded(1).depth(1).budget(3_000).schedules(12).point_budget(4).faults(40).shrink(false);
    crash::run(scenario(), &config.kills(false).fault_kinds(vec![FaultKind::Page]))
}

fn is_found(name: &str, report: &Report) {
    let violation = report.violation().unwrap_or_else(|| panic!("{name}, without its watermark: {report}"));
    assert!(violation.fault.is_some(), "{violation}");
}

#[test]
fn more_of_a_log_than_its_watermark_leaves_out_is_found() {
    is_found("log", &pages(|| Records::new("log", 1, 1).adjust(|o| o.without(log::Step::Watermark))));
    is_found("log-every", &pages(|| EveryLog::new("log-every", 1).adjust(|o| o.without(log::Step::Watermark))));
}

#[test]
fn more_of_a_store_than_its_watermark_leaves_out_is_found() {
    is_found("kv", &pages(|| Stored::new("kv", 1).adjust(|o| o.without(kv::Step::Watermark))));
    is_found("kv-every", &pages(|| EveryKv::new("kv-every", 0).adjust(|o| o.without(kv::Step::Watermark))));
}
