fn forge(ring: &mut pmem::Ring) {
    ring.forced(&pmem::Persisted { thread: 0, number: u64::MAX });
}

fn main() {}
