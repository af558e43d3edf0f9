//! The public operations, by the names of the API.

use std::collections::BTreeSet;
use std::path::Path;

/// What is drawn from, by the names of the API.
pub(super) const OPS: &[&str] = &[
    "Transaction::get",
    "Transaction::prefetch",
    "Transaction::scan",
    "Transaction::put",
    "Transaction::put_until",
    "Transaction::delete",
    "Transaction::delete_range",
    "Transaction::expires",
    "Transaction::version",
    "Transaction::commit",
    "Transaction::commit_async",
    "Transaction::commit_async_told",
    "Transaction::abort",
    "drop",
    "Scan::expires",
    "Snapshot::get",
    "Snapshot::scan",
    "Snapshot::expires",
    "Snapshot::backup",
    "Store::get",
    "Store::view",
    "Store::put",
    "Store::put_until",
    "Store::delete",
    "Store::compare_and_set",
    "Store::write",
    "Store::load",
    "Store::loader",
    "Store::transact",
    "Store::transact_at",
    "Store::checkpoint",
    "Store::scan",
    "Store::prefix",
    "Store::expire_before",
    "Store::sync",
    "Store::stats",
    "Store::check",
    "Store::drop_damaged",
    "Store::sweep",
    "Store::backup",
    "restore",
    "Changes::next",
    "Table::get",
    "Table::scan",
    "Table::range",
    "Table::prefix",
    "Table::put",
    "Table::put_until",
    "Table::delete",
    "Table::delete_range",
    "TableOn::get",
    "TableOn::view",
    "TableOn::put",
    "TableOn::put_until",
    "TableOn::delete",
    "Store::close",
    "Options::open",
    "Options::open_read_only",
    "Options::salvage",
];

/// What is used on the way to those, or asks for what does not depend on what else goes on.
pub(super) const ALONG: &[&str] = &[
    "Batch::delete",
    "Batch::is_empty",
    "Batch::len",
    "Batch::new",
    "Batch::put",
    "Batch::put_for",
    "Batch::put_until",
    "Changes::next",
    "Checked::is_sound",
    "Commit::wait",
    "Entries::reverse",
    "Error::advice",
    "Error::is_conflict",
    "Error::kind",
    "Loader::finish",
    "Loader::loaded",
    "Loader::put",
    "Options::background",
    "Options::create",
    "Options::create_in",
    "Options::durability",
    "Options::group_commit",
    "Options::index_memory",
    "Options::max_snapshot_age",
    "Options::new",
    "Options::open_in",
    "Options::open_or_create",
    "Options::pool",
    "Options::progress",
    "Options::segment_bytes",
    "Options::checkpoint_bytes",
    "Options::spare_percent",
    "Options::transactions",
    "Options::verify",
    "Options::watermark_every",
    "Options::without",
    "Salvaged::is_empty",
    "Snapshot::timestamp",
    "Store::abandon",
    "Store::at_risk",
    "Store::begin",
    "Store::changes",
    "Store::commits_wait",
    "Store::effective_durability",
    "Store::grow_ahead",
    "Store::create",
    "Store::open",
    "Store::open_read_only",
    "Store::open_or_create",
    "Store::put_for",
    "Store::pool",
    "Store::salvaged",
    "Store::snapshot",
    "Store::table",
    "Store::tables",
    "Store::drop_table",
    "Table::name",
    "Table::new",
    "Table::on",
    "Table::put_for",
    "TableOn::put_for",
    "Table::raw_key",
    "Timestamp::get",
    "Transaction::isolation",
    "Transaction::put_for",
    "Transaction::snapshot",
    "at_next_commit",
    "hold_log",
];

/// Of stores on several machines: see `replicated`, and `full_copies` for those without room.
pub(super) const REPLICATED: &[&str] = &[
    "Follower::address",
    "Follower::begin_with",
    "Follower::fetch_seed",
    "Follower::found",
    "Follower::has_failed",
    "Follower::promote",
    "Follower::serve",
    "Follower::serve_with",
    "Follower::serve_holding",
    "Follower::snapshot",
    "Follower::status",
    "Follower::stop",
    "Follower::store",
    "Follower::wait",
    "Follower::why_full",
    "NotPromoted::follow",
    "Options::replicated",
    "Store::check_leading",
    "Steward::address",
    "Steward::serve",
    "Steward::serve_with",
    "Store::copies",
    "Store::expect_copy_at",
    "Store::fence",
    "Store::join",
    "Store::lead_for",
    "Store::leader_status",
    "Store::remove_copy",
    "Store::seed",
    "Store::transaction_max",
    "ask_to_join",
    "ask_to_transfer",
    "ask_to_remove",
    "leader_status",
];

#[test]
fn the_list_has_every_public_operation() {
    let mut there = BTreeSet::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut there);
    let listed = OPS.iter().chain(ALONG).chain(REPLICATED).map(|name| (*name).to_owned()).filter(|name| name != "drop");
    assert_eq!(there, listed.collect());
}

/// The public functions of the crate, by their types.
fn sources(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
            continue;
        }
        let mut of = String::new();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            if line.starts_with("impl") && !line.contains(" for ") {
                // Behind its own parameters, which nest.
                let mut depth = 0;
                let behind = line.strip_prefix("impl").unwrap().trim_start_matches(|c| {
                    depth += i32::from(c == '<') - i32::from(c == '>');
                    depth > 0 || c == '>' || c == ' '
                });
                of = behind.split(['<', ' ']).next().unwrap().to_owned();
            }
            let Some(function) = line.trim_start().strip_prefix("pub fn ") else { continue };
            let function = function.split(['(', '<']).next().unwrap();
            match line.len() - line.trim_start().len() {
                0 => found.insert(function.to_owned()),
                _ => found.insert(format!("{of}::{function}")),
            };
        }
    }
}
