//! In which order transactions commit, and how far each is.
//!
//! A transaction's way: *numbered*, and checksummed at its members; *durable*, when their drains are over: it is committed; *applied* to the files, at each member in the order of numbers,
//! behind those before it; *washed*, when that is persistent; *retired*, when it and all before it are washed everywhere.
//!
//! A transaction that commits does not wait for those before it. A reader of what is durable and not applied yet does, at each member: so none sees half.

use std::collections::VecDeque;

/// One for the array, behind a lock that is held for a few instructions.
pub(super) struct Order {
    next: u64,
    /// The newest number that is washed somewhere, whatever is with those before it: for a test that must fail.
    newest_washed: u64,
    members: Vec<AtMember>,
}

#[derive(Default)]
struct AtMember {
    /// Numbered here, not durable, in order.
    checksummed: VecDeque<u64>,
    /// Numbered here and not washed, in order.
    unwashed: VecDeque<u64>,
    /// A thread washes, or moves the mark.
    is_busy: bool,
}

impl Order {
    pub(super) fn new(next: u64, members: usize) -> Self {
        let members = (0..members).map(|_| AtMember::default()).collect();
        Self { next, newest_washed: 0, members }
    }

    /// A number for what is to be checksummed at these members; and through which number everything is durable, at least.
    pub(super) fn checksum(&mut self, members: impl Iterator<Item = usize>) -> (u64, u64) {
        let sequence = self.next;
        self.next += 1;
        let durable =
            self.members.iter().filter_map(|member| member.checksummed.front()).min().map_or(sequence, |first| *first)
                - 1;
        for member in members {
            self.members[member].checksummed.push_back(sequence);
            self.members[member].unwashed.push_back(sequence);
        }
        (sequence, durable)
    }

    /// What has this number is durable, and waits at its members to be applied.
    pub(super) fn pass(&mut self, sequence: u64, members: &[usize]) {
        for member in members {
            let checksummed = &mut self.members[*member].checksummed;
            if let Ok(at) = checksummed.binary_search(&sequence) {
                checksummed.remove(at);
            }
        }
    }

    /// The first number that may not be applied at a member: it is not durable.
    pub(super) fn limit(&self, member: usize) -> u64 {
        self.members[member].checksummed.front().copied().unwrap_or(self.next)
    }

    /// Everything through this number that this member has a part in is persistent in its files.
    pub(super) fn washed(&mut self, member: usize, through: u64) {
        let unwashed = &mut self.members[member].unwashed;
        while unwashed.front().is_some_and(|first| *first <= through) {
            unwashed.pop_front();
        }
        self.newest_washed = self.newest_washed.max(through);
    }

    /// Everything through here is persistent in the files of all members.
    pub(super) fn retired(&self, in_order: bool) -> u64 {
        if !in_order {
            return self.newest_washed;
        }
        self.members.iter().filter_map(|member| member.unwashed.front()).min().copied().unwrap_or(self.next) - 1
    }

    /// A transaction has a number here and is not durable.
    pub(super) fn is_committing(&self, member: usize) -> bool {
        !self.members[member].checksummed.is_empty()
    }

    pub(super) fn is_busy(&self, member: usize) -> bool {
        self.members[member].is_busy
    }

    pub(super) fn set_busy(&mut self, member: usize, is_busy: bool) {
        self.members[member].is_busy = is_busy;
    }

    /// The newest number that was given.
    pub(super) fn last(&self) -> u64 {
        self.next - 1
    }
}
