//! What each path of a replicated log costs on each machine, counted exactly.

use log::testing::{Cluster, Home};
use log::{Lsn, Options};
use pmem::{DomainChoice, Pool, Stats};

const BYTES: u64 = 32 << 10;

/// Machines, each with a pool of its own, and a log on some of them.
struct Machines {
    _dir: tempfile::TempDir,
    pools: Vec<Pool>,
    cluster: Option<Cluster>,
}

/// Of each machine: barriers, and lines flushed.
type Costs = Vec<(u64, u64)>;

fn alone(_: usize, act: &mut dyn FnMut()) {
    act();
}

fn homes(pools: &[Pool]) -> Vec<Home> {
    pools.iter().map(|pool| Home { pool: pool.clone(), region: log::NAME }).collect()
}

impl Machines {
    fn new(count: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = pmem::Options::new().size(64 << 10).domain(DomainChoice::Emulated);
        let pools: Vec<Pool> = (0..count).map(|n| options.create(dir.path().join(n.to_string())).unwrap()).collect();
        Self { _dir: dir, pools, cluster: None }
    }

    fn made(count: usize) -> Self {
        let mut this = Self::new(count);
        this.make(count);
        this
    }

    fn make(&mut self, replicas: usize) {
        let homes = homes(&self.pools[..replicas]);
        self.cluster = Some(Cluster::create(&options(), &homes, 2, alone).unwrap());
    }

    fn lead(&mut self, replicas: usize, owner: u64) {
        self.cluster = None;
        let homes = homes(&self.pools[..replicas]);
        self.cluster = Some(Cluster::open(&options(), &homes, owner, alone).unwrap().0);
    }

    fn cluster(&mut self) -> &mut Cluster {
        self.cluster.as_mut().unwrap()
    }

    fn append(&mut self, records: u64, len: usize) -> Lsn {
        let lsns: Vec<Lsn> = (0..records).map(|_| self.cluster().complete(&vec![7; len]).unwrap()).collect();
        self.cluster().force().unwrap();
        let last = *lsns.last().unwrap();
        assert_eq!(self.cluster().log().forced(), last);
        last
    }

    fn cost(&mut self, work: impl FnOnce(&mut Self)) -> Costs {
        let before: Vec<Stats> = self.pools.iter().map(Pool::stats).collect();
        work(self);
        let spent = self.pools.iter().zip(before).map(|(pool, before)| pool.stats() - before);
        spent.map(|spent| (spent.drains, spent.flushed_lines)).collect()
    }

    fn barriers(&mut self, work: impl FnOnce(&mut Self)) -> Vec<u64> {
        self.cost(work).into_iter().map(|cost| cost.0).collect()
    }
}

fn options() -> Options {
    Options::new().bytes(BYTES).segment_bytes(4096).idle(None)
}

#[test]
fn a_force_is_one_barrier_on_each_machine_however_many_records() {
    let mut machines = Machines::made(3);
    for (records, len) in [(1, 40), (1, 0), (3, 40), (2, 8)] {
        let lines = (machines.cluster().log().stats().live_bytes, records * (24 + len as u64).next_multiple_of(8));
        let lines = (lines.0 + lines.1).div_ceil(64) - lines.0 / 64;
        let cost = machines.cost(|m| {
            m.append(records, len);
        });
        assert_eq!(cost, [(1, lines); 3], "{records} records of {len} bytes");
    }
    assert_eq!(machines.barriers(|m| m.cluster().force().unwrap()), [0; 3], "nothing is new");
}

#[test]
fn making_taking_over_and_reclaiming() {
    let mut machines = Machines::new(3);
    let region: Vec<u64> = {
        let before = machines.pools[0].stats();
        drop(machines.pools[0].add_region("like it", 4096 + BYTES).unwrap());
        vec![(machines.pools[0].stats() - before).drains]
    };
    // Cells 3 each, the promise 2, the installation 4.
    assert_eq!(machines.barriers(|m| m.make(3)), [region[0] + 6 + 2 + 4; 3], "made");
    machines.append(3, 40);
    // Each cell's first update behind an open is one more.
    let opened = machines.barriers(|m| m.lead(3, 5));
    assert_eq!(opened, [3 + 5; 3], "taken over");
    let last = machines.append(2, 40);
    assert_eq!(machines.barriers(|m| m.cluster().log().truncate_to(last).unwrap()), [0; 3], "discarded");
    let reclaimed = machines.barriers(|m| {
        m.cluster().log().reclaim().unwrap();
        m.cluster().catch_up().unwrap();
    });
    assert_eq!(reclaimed, [2; 3], "reclaimed");
}

#[test]
fn joining() {
    let mut machines = Machines::new(4);
    machines.make(3);
    machines.append(2, 40);
    let home = homes(&machines.pools).pop().unwrap();
    let region = {
        let before = machines.pools[3].stats();
        drop(machines.pools[3].add_region("like it", 4096 + BYTES).unwrap());
        (machines.pools[3].stats() - before).drains
    };
    // All the others: a record without it, and the list of replicas, joint and alone; a replica is told of that as of a log that it has, the leader has but the list.
    let joined = machines.barriers(|m| m.cluster().join(&home).unwrap());
    assert_eq!(joined, [1 + 2 * 2, 1 + 2 * 4, 1 + 2 * 4, region + 6 + 2 + 2 * 4]);
    assert_eq!(
        machines.barriers(|m| {
            m.append(1, 8);
        }),
        [1; 4]
    );
}
