//! YCSB's core workloads.

use std::fmt;
use std::str::FromStr;

use super::{Latest, Op, Random, Scrambled, Uniform};

/// A mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads.
    C,
    /// 95 % reads, mostly of what is new, 5 % inserts.
    D,
    /// 95 % scans of up to 100, 5 % inserts.
    E,
    /// Half reads, half read-modify-writes.
    F,
    /// Updates; not one of YCSB's.
    Put,
    /// An update, and a read of the same key behind it; not one of YCSB's.
    ReadBack,
    /// A key is removed, and put again behind it; not one of YCSB's.
    Churn,
}

impl Workload {
    /// All of YCSB's.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F];
    /// All there are.
    pub const WITH_PUT: [Self; 7] = [Self::Put, Self::A, Self::B, Self::C, Self::D, Self::E, Self::F];
    /// All there are; a run without a choice leaves the last two out.
    pub const EVERY: [Self; 9] =
        [Self::Put, Self::A, Self::B, Self::C, Self::D, Self::E, Self::F, Self::ReadBack, Self::Churn];

    /// Its letter, or its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::E => "E",
            Self::F => "F",
            Self::Put => "put",
            Self::ReadBack => "readback",
            Self::Churn => "churn",
        }
    }

    /// True if it scans, which a hash map cannot.
    #[must_use]
    pub fn scans(self) -> bool {
        self == Self::E
    }

    /// True if it adds keys, or takes some away: the next one needs a store of its own.
    #[must_use]
    pub fn inserts(self) -> bool {
        matches!(self, Self::D | Self::E | Self::Churn)
    }

    /// Of 100 operations so many are the first kind: reads, or scans in E.
    fn reads(self) -> u64 {
        match self {
            Self::A | Self::F => 50,
            Self::B | Self::D | Self::E => 95,
            Self::C => 100,
            Self::Put | Self::ReadBack | Self::Churn => 0,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::EVERY.into_iter().find(|workload| workload.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| format!("{name:?} is no workload: A, B, C, D, E, F, put, readback or churn"))
    }
}

/// Which keys are asked for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// A few of them, anywhere.
    Zipfian,
    /// The newest.
    Latest,
    /// None more than another.
    Uniform,
}

impl Distribution {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Zipfian, Self::Latest, Self::Uniform];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Zipfian => "zipfian",
            Self::Latest => "latest",
            Self::Uniform => "uniform",
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|distribution| distribution.name() == name);
        found.ok_or_else(|| format!("{name:?} is no distribution: zipfian, latest or uniform"))
    }
}

/// A workload on a number of keys.
#[derive(Clone, Copy, Debug)]
pub struct Ycsb {
    workload: Workload,
    keys: u64,
    value_bytes: u32,
    distribution: Distribution,
}

/// Longest scan.
const SCAN_MAX: u64 = 100;

impl Ycsb {
    /// On keys 0 to `keys`, at least one, with values of 1 KiB, in the workload's own distribution: latest for D, uniform
    /// for put, else zipfian.
    #[must_use]
    pub fn new(workload: Workload, keys: u64) -> Self {
        let distribution = match workload {
            Workload::D => Distribution::Latest,
            Workload::Put | Workload::ReadBack | Workload::Churn => Distribution::Uniform,
            _ => Distribution::Zipfian,
        };
        Self { workload, keys: keys.max(1), value_bytes: 1024, distribution }
    }

    /// Values of that length.
    #[must_use]
    pub fn value_bytes(self, value_bytes: u32) -> Self {
        Self { value_bytes, ..self }
    }

    /// Another distribution.
    #[must_use]
    pub fn distribution(self, distribution: Distribution) -> Self {
        Self { distribution, ..self }
    }

    /// Keys at first.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Its distribution.
    #[must_use]
    pub fn chosen(&self) -> Distribution {
        self.distribution
    }

    /// What fills the store.
    pub fn load(self) -> impl Iterator<Item = Op> {
        (0..self.keys).map(move |key| Op::Insert { key, bytes: self.value_bytes })
    }

    /// Operations without end; the same seed gives the same.
    #[must_use]
    pub fn stream(self, seed: u64) -> Stream {
        let choice = match self.distribution {
            Distribution::Zipfian => Choice::Zipfian(Scrambled::default()),
            Distribution::Latest => Choice::Latest(Latest::new(self.keys)),
            Distribution::Uniform => Choice::Uniform,
        };
        Stream {
            ycsb: self,
            random: Random::new(seed),
            choice,
            known: self.keys,
            from: self.keys,
            to: self.keys,
            pending: None,
        }
    }
}

#[derive(Clone, Debug)]
enum Choice {
    Zipfian(Scrambled),
    Latest(Latest),
    Uniform,
}

/// Operations of one thread. It only asks for keys that are there: those that every thread knows, and those it has inserted itself.
#[derive(Clone, Debug)]
pub struct Stream {
    ycsb: Ycsb,
    random: Random,
    choice: Choice,
    /// Keys below are there.
    known: u64,
    /// Keys from here to `to` too: its own inserts.
    from: u64,
    to: u64,
    /// What follows the operation before.
    pending: Option<Op>,
}

impl Stream {
    /// Threads that insert tell each other from time to time: all keys below `known` are there, and this stream's next insert is
    /// `from`.
    pub fn meet(&mut self, known: u64, from: u64) {
        (self.known, self.from, self.to) = (known, from, from);
    }

    /// What it is a stream of.
    #[must_use]
    pub fn workload(&self) -> Workload {
        self.ycsb.workload
    }

    /// The key that the next insert has.
    #[must_use]
    pub fn next_insert(&self) -> u64 {
        self.to
    }

    fn existing(&mut self) -> u64 {
        let own = self.to - self.from;
        let all = self.known + own;
        let at = match &mut self.choice {
            Choice::Zipfian(scrambled) => scrambled.next(&mut self.random, all),
            Choice::Uniform => Uniform.next(&mut self.random, all),
            Choice::Latest(latest) => all - 1 - latest.next(&mut self.random, all),
        };
        if at < self.known { at } else { self.from + (at - self.known) }
    }
}

impl Iterator for Stream {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        let Ycsb { workload, value_bytes: bytes, .. } = self.ycsb;
        if let Some(op) = self.pending.take() {
            return Some(op);
        }
        let first_kind = self.random.below(100) < workload.reads();
        Some(match (workload, first_kind) {
            (Workload::E, true) => Op::Scan { key: self.existing(), count: 1 + self.random.below(SCAN_MAX) as u32 },
            (_, true) => Op::Read { key: self.existing() },
            (Workload::D | Workload::E, false) => {
                self.to += 1;
                Op::Insert { key: self.to - 1, bytes }
            }
            (Workload::ReadBack, false) => {
                let key = self.existing();
                self.pending = Some(Op::Read { key });
                Op::Update { key, bytes }
            }
            (Workload::Churn, false) => {
                let key = self.existing();
                self.pending = Some(Op::Insert { key, bytes });
                Op::Delete { key }
            }
            (Workload::F, false) => Op::ReadModifyWrite { key: self.existing(), bytes },
            (_, false) => Op::Update { key: self.existing(), bytes },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn mixes_are_those_of_ycsb() {
        for (workload, reads, other) in [
            (Workload::A, 0.5, "Update"),
            (Workload::B, 0.95, "Update"),
            (Workload::C, 1.0, ""),
            (Workload::D, 0.95, "Insert"),
            (Workload::E, 0.0, "Insert"),
            (Workload::F, 0.5, "ReadModifyWrite"),
            (Workload::Put, 0.0, "Update"),
        ] {
            let ops: Vec<Op> = Ycsb::new(workload, 100).stream(1).take(20_000).collect();
            let share = |name: &str| {
                ops.iter().filter(|op| format!("{op:?}").starts_with(name)).count() as f64 / ops.len() as f64
            };
            assert!((share("Read {") - reads).abs() < 0.02, "{workload}");
            if workload.scans() {
                assert!((share("Scan") - 0.95).abs() < 0.02);
                assert!((share("Insert") - 0.05).abs() < 0.02);
            } else if !other.is_empty() {
                assert!((share(other) - (1.0 - reads)).abs() < 0.02, "{workload}");
            }
        }
    }

    /// Threads that meet between batches number their inserts without gaps and ask only for what is there.
    #[test]
    fn streams_only_ask_for_what_is_there() {
        for distribution in Distribution::ALL {
            let ycsb = Ycsb::new(Workload::D, 50).distribution(distribution);
            let mut streams = [ycsb.stream(1), ycsb.stream(2)];
            let mut there: BTreeSet<u64> = ycsb.load().map(Op::key).collect();
            let mut known = 50;
            for _ in 0..20 {
                let (before, mut next) = (there.clone(), known);
                for stream in &mut streams {
                    stream.meet(known, next);
                    let mut own = before.clone();
                    for op in stream.take(200) {
                        match op {
                            Op::Insert { key, .. } => assert!(own.insert(key) && there.insert(key), "new: {key}"),
                            op => assert!(own.contains(&op.key()), "{op:?} of {known}"),
                        }
                    }
                    next = stream.next_insert();
                }
                known = next;
                assert_eq!(there.len() as u64, known);
            }
            assert!(known > 50);
        }
    }

    #[test]
    fn the_newest_are_read_most_in_d() {
        let mut stream = Ycsb::new(Workload::D, 10_000).stream(5);
        let mut newest = 0;
        for _ in 0..20_000 {
            let next = stream.next_insert();
            if let Some(Op::Read { key }) = stream.next() {
                newest += u32::from(key + 10 >= next);
            }
        }
        assert!(newest > 4_000, "{newest} of 20000 reads were of the ten newest");
    }

    /// What follows is of the same key, also across the end of a batch.
    #[test]
    fn pairs_of_operations_are_of_one_key() {
        for workload in [Workload::ReadBack, Workload::Churn] {
            let mut stream = Ycsb::new(workload, 100).stream(3);
            let ops: Vec<Op> = (0..60).flat_map(|_| stream.by_ref().take(7).collect::<Vec<_>>()).collect();
            for pair in ops.chunks_exact(2) {
                let (first, second) = (pair[0], pair[1]);
                assert_eq!(first.key(), second.key());
                match workload {
                    Workload::ReadBack => assert!(matches!((first, second), (Op::Update { .. }, Op::Read { .. }))),
                    _ => assert!(matches!((first, second), (Op::Delete { .. }, Op::Insert { .. }))),
                }
            }
        }
    }

    #[test]
    fn names_parse() {
        assert_eq!("f".parse(), Ok(Workload::F));
        assert_eq!("latest".parse(), Ok(Distribution::Latest));
        assert!("G".parse::<Workload>().is_err() && "".parse::<Distribution>().is_err());
    }
}
