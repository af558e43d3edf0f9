//! Steps of the server are left out, and each time one of the checks notices.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pmem::DomainChoice;
use server::Step;
use tx::Isolation;

use crate::support::{Reply, Running, Store};
use crate::{
    chunks, durability, evict, first, kill, lifetimes, panics, pauses, pubsub, reactor, reaper, swapdb, tracking,
    transactions,
};

const DOMAINS: [DomainChoice; 2] = [DomainChoice::Emulated, DomainChoice::File];

/// Whether the check finds just that.
fn finds(says: &str, check: impl FnOnce()) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(check)) else { return false };
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or_default();
    assert!(text.contains(says), "another failure: {text}");
    true
}

/// Whether histories of so many seeds are strictly serializable.
fn is_serializable(step: Option<Step>, domain: DomainChoice, seeds: u64) -> bool {
    (1..=seeds).all(|seed| {
        let running = Running::without(step, Store::Kv, domain);
        transactions::history(&running, seed, 400, true).check(Isolation::Strict).is_ok()
    })
}

#[test]
fn histories_show_transactions_that_are_none() {
    for step in [Step::OneTransaction, Step::Watched] {
        for domain in DOMAINS {
            assert!(!is_serializable(Some(step), domain, 20), "without {step:?} nobody noticed, {domain:?}");
        }
    }
    // In between is time only where batches wait for a sync.
    let step = Step::WatchedInside;
    assert!(!is_serializable(Some(step), DomainChoice::File, 20), "without {step:?} nobody noticed");
}

#[test]
fn scripts_show_what_is_not_watched_and_not_in_order() {
    for domain in DOMAINS {
        let running = |step| Running::without(Some(step), Store::Kv, domain);
        assert!(finds("SET k 1, SET k 1", || transactions::watched_as_a_whole(&running(Step::Watched))), "{domain:?}");
        assert!(finds("out of order", || transactions::in_order(&running(Step::InOrder))), "{domain:?}");
    }
}

#[test]
fn panics_show_what_is_not_given_up() {
    for domain in DOMAINS {
        let half = || panics::ends_nothing_else(Some(Step::PanicGivesUp), Store::Kv, domain);
        assert!(finds("as if it were alone", half), "{domain:?}");
    }
}

#[test]
fn sockets_show_who_is_answered_before_the_commit() {
    let check = || reactor::answered_behind_the_commit(Some(Step::TogetherFirst));
    assert!(finds("answered before its transaction was committed", check));
}

#[test]
fn elements_show_a_collection_that_was_overlooked() {
    for what in first::BLIND {
        assert!(first::made_in_between(Some(Step::LookAgain), Store::Tree, what) > 0, "{what}");
    }
}

#[test]
fn elements_show_what_the_reaper_forgets() {
    assert!(finds(" notes, ", || reaper::what_nobody_owns_goes(Some(Step::Abandoned), 8)));
}

#[test]
fn lifetimes_show_notes_that_no_longer_hold() {
    assert!(!lifetimes::differ(Some(Step::NoteMoves), Store::Kv, 3).is_empty());
}

#[test]
fn waiters_show_who_is_not_woken() {
    let woken = |step| {
        let running = Running::without(step, Store::Kv, DomainChoice::Emulated);
        let (mut one, mut other) = (running.client(), running.client());
        one.send(b"BLPOP list 1\r\n");
        // It waits.
        while !matches!(other.say("INFO clients"), Reply::Bulk(text) if String::from_utf8_lossy(&text).contains("blocked_clients:1"))
        {
        }
        other.say("RPUSH list a");
        one.reply() != Reply::Null
    };
    assert!(woken(None) && !woken(Some(Step::Woken)));
}

#[test]
fn kills_show_ids_that_were_used_before() {
    let killed = || assert!(kill::killed(Some(Step::FreshIds), "emulated", 4) > 0);
    assert!(finds("not what was acknowledged last", killed));
}

#[test]
fn calls_show_replies_before_the_sync() {
    assert!(finds("was sent before a sync had ended well", || kill::synced(Some(Step::DurableFirst))));
}

#[test]
fn failed_syncs_show_who_is_not_told() {
    assert!(finds("was sent before a sync had ended well", || kill::synced(Some(Step::FailureTold))));
}

#[test]
fn subscribers_show_what_is_published_before_the_commit() {
    for domain in DOMAINS {
        let check = || pubsub::heard_behind_the_commit(Some(Step::PublishedBehind), domain);
        assert!(finds("heard before the commit", check), "{domain:?}");
    }
}

#[test]
fn stages_show_who_is_answered_too_early() {
    let stage = || durability::answered_at_its_stage(Some(Step::EnoughFirst));
    assert!(finds("answered before it is enough", stage));
    let seen = || durability::unseen_before_the_commit(Some(Step::OthersUnseen));
    assert!(finds("shown what is not committed", seen));
    let led = || durability::answered_by_who_leads(Some(Step::LeadsEarly));
    assert!(finds("answered by one that may not lead", led));
}

#[test]
fn evictions_show_keys_that_do_not_expire() {
    let check = || evict::what_does_not_expire_is_left(Some(Step::LastingStays));
    assert!(finds("keys that do not expire", check));
}

#[test]
fn clients_that_track_show_what_they_are_not_told() {
    for domain in DOMAINS {
        let late = || tracking::change_beside_a_read(Some(Step::NotedFirst), domain);
        assert!(finds("the news comes behind it", late), "{domain:?}");
    }
    // In memory a connection's answer is written at once.
    let early = || tracking::change_beside_a_read(Some(Step::ToldBehind), DomainChoice::File);
    assert!(finds("the value comes first", early));
    let unknown = || tracking::write_that_knows_no_keys(Some(Step::UnknownTellsAll));
    assert!(finds("it is told to forget everything", unknown));
    assert!(finds("it is told to forget everything", || tracking::swaps_are_told(Some(Step::SwapTold))));
    assert!(finds("was not told", || tracking::expiry_is_told(Some(Step::ExpiryTold), 100)));
}

#[test]
fn pauses_show_a_write_that_is_not_awaited() {
    let check = || pauses::write_under_way(Some(Step::WritesAwaited));
    assert!(finds("beside a write that was under way", check));
}

#[test]
fn long_strings_show_chunks_that_are_not_theirs() {
    assert!(finds("of the long string with id", || chunks::small_ones(Some(Step::LastChunkWhole))));
    assert!(finds("expected", || chunks::small_ones(Some(Step::OwnChunks))));
    assert!(finds("chunks without an owner", || chunks::shorter_in_its_place(Some(Step::RestRemoved))));
    assert!(finds("older servers take it for theirs", || chunks::refused_by_others(Some(Step::FormNoted))));
}

#[test]
fn databases_show_a_swap_that_is_not_one() {
    assert!(finds("left", || swapdb::numbers_change(Some(Step::SwapAlone))));
    assert!(finds("the map is in the store", || swapdb::map_is_kept(Some(Step::MapWritten))));
    assert!(finds("k, SWAPDB 0 1", || swapdb::watched_in_either(Some(Step::SeenDatabase))));
}

/// Each of them is found by a test above.
#[test]
fn no_step_is_left_out() {
    let found = include_str!("failpoints.rs");
    for step in Step::ALL {
        let name = format!("Step::{step:?}");
        let mut words = found.split(|c: char| !c.is_alphanumeric() && c != ':');
        assert!(words.any(|word| word == name), "{step:?}");
    }
}
