//! The tutorial keeps its word: the planted bug is found as told, the fix passes completely, its barriers are needed.

#[path = "../../examples/queue.rs"]
#[allow(missing_docs)]
mod queue;

use crash::Config;
use queue::{Push, QueueScenario, explore};

#[test]
fn the_planted_bug_is_found_in_one_push() {
    let report = explore(Push::OneBarrier);
    let violation = report.violation().expect("the planted bug");
    assert_eq!(violation.ops.len(), 1, "{report}");
    let point = &violation.trail[0];
    assert!(point.barrier.as_ref().is_some_and(|b| b.file.ends_with("queue.rs")), "{report}");
    assert!(point.lost.iter().all(|lost| lost.flushed), "{report}");
}

#[test]
fn the_fix_passes_completely() {
    let report = explore(Push::TwoBarriers);
    report.expect_clean();
    assert!(report.is_complete(), "{report}");
}

#[test]
fn every_barrier_of_the_queue_is_needed() {
    let report = crash::mutate(QueueScenario { how: Push::TwoBarriers }, &Config::seeded(1).budget(5_000));
    let ours = |b: &&crash::Barrier| b.file.ends_with("queue.rs");
    assert!(!report.survivors.iter().any(|b| ours(&b)), "{report}");
    assert!(report.killed.iter().map(|(barrier, _)| barrier).filter(ours).count() >= 5, "{report}");
}
