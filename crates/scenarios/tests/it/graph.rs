//! A graph in a heap, explored; and that what watches over it sees something.

use crash::{Config, Model};
use heap::Policy;
use scenarios::Edges;
use scenarios::graph::{Bug, NODES, Op};
use scenarios::heap::End;
use structures_testing::graph::Step;

use super::in_parallel;

/// Few images a crash point, so that every one is reached; crashes in recovery, too. Every policy there is, one thread and two.
#[test]
fn explored() {
    let threads = |policy| if policy == Policy::None { 1 } else { 2 };
    let cases: Vec<_> =
        Policy::ALL.iter().flat_map(|&policy| (1..=threads(policy)).map(move |n| (policy, n))).collect();
    let configs = [
        Config::seeded(1).budget(1_200).point_budget(5).nested_budget(2),
        Config::seeded(2).budget(1_200).point_budget(5).nested_budget(2).model(Model::File { sector: 512 }),
        Config::seeded(3).budget(1_200).point_budget(12).depth(1),
    ];
    in_parallel(cases.len() * configs.len(), |at| {
        let ((policy, threads), config) = (cases[at / configs.len()], &configs[at % configs.len()]);
        let report = crash::run(Edges::new("graph", policy, threads), config);
        println!("{policy} {threads}: {report}");
        assert!(report.violation().is_none(), "{policy} {threads}: {report}");
        let most = if config.depth == 1 { 0 } else { report.points / 5 };
        assert!(report.unexplored <= most && report.states > 100, "{policy} {threads}: {report}");
    });
}

/// Explores a script as it is, and with a bug: the first must be clean, the second say this.
fn shows(steps: &[Step], after: &[Op], bug: Bug, message: &str) {
    for policy in Policy::ALL.into_iter().filter(|&policy| policy != Policy::None) {
        let ops: Vec<Op> = [Op::Change(steps.to_vec(), End::Commit)].into_iter().chain(after.iter().cloned()).collect();
        let script = || Edges::new("bug", policy, 1).script(ops.clone());
        let config = Config::seeded(1).budget(400).point_budget(40).depth(1);
        let report = crash::run(script(), &config);
        assert!(report.violation().is_none(), "{policy}: {report}");
        let report = crash::run(script().with(bug), &config.shrink(false));
        let found = report.violation().unwrap_or_else(|| panic!("{policy}: nobody noticed {bug:?}"));
        println!("{policy} {bug:?}: {}", found.message);
        assert!(found.message.contains(message), "{policy} {bug:?}: {found}");
    }
}

#[test]
fn two_transactions_where_one_was_promised() {
    // A page more at the hub; then a node with edges.
    shows(&[Step::AddEdge(0, NODES - 1), Step::AddEdge(NODES - 1, 0)], &[], Bug::Piecewise, "in doubt [1]");
    shows(&[Step::RemoveNode(2)], &[], Bug::EdgesFirst, "in doubt [1]");
}

#[test]
fn an_acknowledgement_before_the_commit() {
    shows(&[Step::RemoveEdge(0, 7)], &[], Bug::EarlyAck, "acknowledged Some");
}

#[test]
fn a_block_that_nobody_reaches() {
    shows(&[Step::AddEdge(1, 0)], &[Op::Apply], Bug::Leak, "reachable");
}
