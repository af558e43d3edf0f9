//! How an array is made and opened.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use pmem::sync::{CachePadded, Mutex};
use pmem::{Area, Domain, Pool, TwoSlot};

use super::Array;
use super::chunks::Chunks;
#[cfg(not(any(test, feature = "failpoints")))]
use super::failpoints;
use super::files::{FILES_MAX, File, Listed, Striping};
use super::layout::{ENTRY, Header, Keys, LINE, MEMBERS_MAX, PAGE, REGION_KIND, SLOT_MAX, VERSION, file_of};
use super::mark::{MARK_BYTES, MarkCell};
use super::member::{Member, State, When};
use super::order::Order;
use super::recovery::{self, Opened};
use super::tid::Tids;
use crate::error::{Error, Result};

/// The engine of a pool that is a member and nothing else.
const NAME: &str = "array";
/// A log chunk has at most so many bytes.
const CHUNK_MAX: u64 = 16 << 10;

/// How to make or open an array. What is not about its sizes can be different at every open.
///
/// ```
/// # fn main() -> eaw::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let members = ["one", "other"].map(|name| dir.path().join(name));
/// use eaw::array::Options;
///
/// Options::new().log_bytes(4 << 20).create(&members)?.create_file("pages", 1 << 20)?;
/// let array = Options::new().open(&members)?; // in any order
/// assert_eq!(array.recovered().applied, 0); // it was closed
/// assert_eq!(array.file("pages")?.len(), 1 << 20);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    log_bytes: u64,
    log_max: u64,
    transactions: u32,
    stripe: u64,
    entries: u32,
    checksum_max: u64,
    draft_max: usize,
    whole_writes: bool,
    /// None: on a file.
    late: Option<bool>,
    /// None: of what waits in memory, on a file.
    slot: Option<u64>,
    pool: pmem::Options,
    #[cfg(any(test, feature = "failpoints"))]
    without: Option<super::Step>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// 16 MiB of log on each member, that may grow to a GiB; 64 transactions at once; stripes of 64 KiB.
    pub fn new() -> Self {
        Self {
            log_bytes: 16 << 20,
            log_max: 1 << 30,
            transactions: 64,
            stripe: 64 << 10,
            entries: 32,
            checksum_max: 64 << 10,
            draft_max: 64 << 10,
            whole_writes: false,
            late: None,
            slot: None,
            pool: pmem::Options::new(),
            #[cfg(any(test, feature = "failpoints"))]
            without: None,
        }
    }

    /// Bytes of log that each member has when it is made. All that is logged and not committed, and what was committed last, has to have room.
    #[must_use]
    pub fn log_bytes(self, bytes: u64) -> Self {
        Self { log_bytes: bytes, ..self }
    }

    /// Bytes to which a member's log may grow when a transaction finds no room.
    #[must_use]
    pub fn log_max(self, bytes: u64) -> Self {
        Self { log_max: bytes, ..self }
    }

    /// TIDs: transactions that are open or whose logs are still needed. At least 8 more than threads that commit.
    #[must_use]
    pub fn transactions(self, count: u32) -> Self {
        Self { transactions: count, ..self }
    }

    /// Bytes of a file that are on one member before the next follows: a multiple of 64.
    #[must_use]
    pub fn stripe_bytes(self, bytes: u64) -> Self {
        Self { stripe: bytes, ..self }
    }

    /// On memory, a commit of more bytes than this drains them before it checksums them, instead of computing checksums over them: a barrier in place of a checksum. 64 KiB
    /// unless it is set: checksums cost little while the bytes are in memory anyway. On a file, where a barrier is a sync, it is always the checksums.
    #[must_use]
    pub fn checksum_max(self, bytes: u64) -> Self {
        Self { checksum_max: bytes, ..self }
    }

    /// Bytes of a transaction that wait in memory for its commit, of those for one member; what is beyond waits in the log, on media. 64 KiB unless it is set, 1 GiB at most.
    #[must_use]
    pub fn draft_max(self, bytes: usize) -> Self {
        Self { draft_max: bytes.min(1 << 30), ..self }
    }

    /// On a file that takes writes whole ([`pmem::Area::write_whole`]), an [`atomic_write`](Array::atomic_write) of a page goes there at once, without a log: half the bytes. Off unless it is
    /// set: worth it where the device does that, less where the file system does it by writing elsewhere.
    #[must_use]
    pub fn whole_writes(self, on: bool) -> Self {
        Self { whole_writes: on, ..self }
    }

    /// How pools are made and opened: domain, latency, address space.
    #[must_use]
    pub fn pool(self, pool: pmem::Options) -> Self {
        Self { pool, ..self }
    }

    /// Whether what is durable stays in the log for some commits before it goes to the files: as a rule on files, and not on memory.
    #[cfg(any(test, feature = "failpoints", feature = "testing"))]
    #[must_use]
    pub fn late(self, on: bool) -> Self {
        Self { late: Some(on), ..self }
    }

    /// Bytes of a slot of the table, a multiple of a line; 0: a line.
    #[cfg(any(test, feature = "failpoints", feature = "testing"))]
    #[must_use]
    pub fn slot_bytes(self, bytes: u64) -> Self {
        Self { slot: Some(bytes), ..self }
    }

    /// Entries of a metadata chunk, its link included: an even number, so that a chunk is whole lines.
    #[cfg(any(test, feature = "failpoints", feature = "testing"))]
    #[must_use]
    pub fn entries(self, entries: u32) -> Self {
        Self { entries, ..self }
    }

    /// Leaves a step of the protocol out.
    #[cfg(any(test, feature = "failpoints"))]
    #[must_use]
    pub fn without(self, step: super::Step) -> Self {
        Self { without: Some(step), ..self }
    }

    fn check(&self, members: usize) -> Result<()> {
        let limit = |what, found, min, max| {
            if (min..=max).contains(&found) { Ok(()) } else { Err(Error::Limit { what, found, min, max }) }
        };
        limit("members of an array", members as u64, 1, MEMBERS_MAX as u64)?;
        limit("transactions at once", self.transactions.into(), 2, 1 << 16)?;
        limit("bytes of a stripe", self.stripe, LINE, 1 << 30)?;
        limit("bytes of a member's log", self.log_bytes, self.chunk(), 1 << 40)?;
        if !self.stripe.is_multiple_of(LINE) {
            let (min, max) = (self.stripe / LINE * LINE, self.stripe.next_multiple_of(LINE));
            return Err(Error::Limit { what: "bytes of a stripe (a multiple of 64)", found: self.stripe, min, max });
        }
        Ok(())
    }

    fn chunk(&self) -> u64 {
        self.stripe.min(CHUNK_MAX)
    }

    /// Chunks of log and of metadata: each part has at least one of both.
    fn chunks(&self) -> (u32, u32) {
        let log = (self.log_bytes / self.chunk()) as u32;
        (log, log.max(self.transactions) / (self.entries - 1) + self.transactions)
    }

    // ---- pools of their own -----------------------------------------------------------------------------------

    /// Makes an array of new pools at these paths.
    ///
    /// # Errors
    /// [`Error::Limit`]; those of [`pmem::Options::create`]. Pools that were made until then are removed.
    pub fn create<P: AsRef<Path>>(&self, paths: &[P]) -> Result<Array> {
        self.check(paths.len())?;
        let mut pools: Vec<Pool> = Vec::new();
        let made = paths.iter().enumerate().try_for_each(|(member, path)| {
            let first = pools.first().map(Pool::id);
            let options = self.pool.clone().size(self.bytes()).engine(NAME, [0; 64]);
            let pool = options.create_with(path, |pool| -> Result<Pool> {
                let slot = self.slot(pools.first().unwrap_or(pool));
                self.create_member(pool, first.unwrap_or(pool.id()), (member, paths.len()), slot)?;
                Ok(pool.clone())
            })?;
            pools.push(pool);
            Ok(())
        });
        if let Err(error) = made {
            let left: Vec<_> = pools.iter().map(|pool| pool.path().to_owned()).collect();
            drop(pools);
            // A device stays.
            let files = left.iter().filter(|path| path.is_file());
            files.filter_map(|path| std::fs::remove_file(path).err()).for_each(|error| {
                tracing::warn!(%error, "a member of an array that was not made could not be removed");
            });
            return Err(error);
        }
        self.open_in(&pools)
    }

    fn bytes(&self) -> u64 {
        let (log, meta) = self.chunks();
        let page = |bytes: u64| bytes.next_multiple_of(PAGE);
        let table = page(u64::from(self.transactions) * LINE) + 3 * PAGE;
        table + page(u64::from(log) * self.chunk()) + page(u64::from(meta * self.entries) * ENTRY) + 4 * PAGE
    }

    /// Opens the array whose members are at these paths, in any order, and recovers it if it was not closed. What was found is
    /// [`Array::recovered`].
    ///
    /// # Errors
    /// [`Error::MissingMember`], [`Error::NotAMember`], [`Error::NewerVersion`], [`Error::Damaged`]; those of [`pmem::Options::open`].
    pub fn open<P: AsRef<Path>>(&self, paths: &[P]) -> Result<Array> {
        let open = |path: &P| Ok(self.pool.clone().engine(NAME, [0; 64]).open(path)?);
        self.open_in(&paths.iter().map(open).collect::<Result<Vec<Pool>>>()?)
    }

    /// Opens an array that was closed, for reading: no byte of its members changes, which need not be writable, and several processes may do it at once. [`Error::Pool`] with
    /// [`pmem::Error::ReadOnly`] is what everything returns that would change something.
    ///
    /// ```
    /// # fn main() -> eaw::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let members = ["one", "other"].map(|name| dir.path().join(name));
    /// use eaw::array::Options;
    ///
    /// let array = Options::new().log_bytes(1 << 20).create(&members)?;
    /// array.atomic_write(&array.create_file("pages", 1 << 20)?, 0, b"here")?;
    /// array.close()?;
    ///
    /// let one = Options::new().open_read_only(&members)?;
    /// let other = Options::new().open_read_only(&members)?;
    /// for array in [&one, &other] {
    ///     let (pages, mut bytes) = (array.file("pages")?, [0; 4]);
    ///     array.read(&pages, 0, &mut bytes)?;
    ///     assert_eq!(&bytes, b"here");
    ///     assert!(array.atomic_write(&pages, 0, b"there").is_err());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open); [`pmem::Error::NeedsRecovery`] if it was not closed: recovery writes.
    pub fn open_read_only<P: AsRef<Path>>(&self, paths: &[P]) -> Result<Array> {
        let mut pools: Vec<Pool> = Vec::with_capacity(paths.len());
        for path in paths {
            let pool = self.pool.clone().engine(NAME, [0; 64]).open_read_only(path)?;
            // To be written it could not be opened twice.
            if pools.iter().any(|earlier| earlier.path() == pool.path()) {
                return Err(Error::NotAMember { path: pool.path().to_owned(), why: "it is named twice" });
            }
            pools.push(pool);
        }
        self.open_in(&pools)
    }

    // ---- among other things -----------------------------------------------------------------------------------

    /// Makes an array whose members are in these pools, one for each time a pool is named. A pool in which a crash cut that short cannot be used for another try.
    ///
    /// # Errors
    /// [`Error::Limit`]; [`pmem::Error::RegionExists`], [`pmem::Error::NoSpace`].
    pub fn create_in(&self, pools: &[Pool]) -> Result<Array> {
        self.check(pools.len())?;
        let id = pools.first().map_or(0, Pool::id);
        for (member, pool) in pools.iter().enumerate() {
            self.create_member(pool, id, (member, pools.len()), self.slot(&pools[0]))?;
        }
        self.open_in(pools)
    }

    /// Bytes of a slot of the table, the same at all members: if the first is on a file, there is room for what waits in memory, as long as that is not much beside the log.
    fn slot(&self, first: &Pool) -> u64 {
        let is_file = first.domain() == Domain::File;
        let most = (self.log_bytes / 2 / u64::from(self.transactions)).min(SLOT_MAX) / PAGE * PAGE;
        let wanted = (self.draft_max as u64).next_multiple_of(PAGE).saturating_add(PAGE);
        self.slot.unwrap_or(if is_file { wanted.min(most) } else { 0 })
    }

    /// The table last: with it the member is there.
    fn create_member(&self, pool: &Pool, array: u64, (member, members): (usize, usize), slot: u64) -> Result<()> {
        let (log, meta) = self.chunks();
        Chunks::create(pool, format!("{member}:log"), self.chunk(), log)?;
        Chunks::create(pool, format!("{member}:meta"), u64::from(self.entries) * ENTRY, meta)?;
        let header_of = Header {
            array,
            stripe: self.stripe,
            chunk: self.chunk(),
            member: member as u32,
            members: members as u32,
            tids: self.transactions,
            entries: self.entries,
            version: if slot == 0 { 1 } else { VERSION },
            reserved: slot as u32,
        };
        let bytes = PAGE + header_of.table_bytes() + MARK_BYTES;
        let region = pool.add_region_as(&table_name(member), bytes, REGION_KIND, member as u64)?;
        let (header, rest) = region.into_area()?.split_at(PAGE)?;
        let (table, mark) = rest.split_at(header_of.table_bytes())?;
        MarkCell::create(mark, Keys::new(&pool.checksum_key(table.offset())).mark)?;
        TwoSlot::create(header, &header_of)?.update_mirrored(&header_of)?;
        Ok(())
    }

    /// Opens the array whose members are in these pools, in any order.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in(&self, pools: &[Pool]) -> Result<Array> {
        // A pool that is named several times holds several members.
        let mut found: Vec<(Pool, Header, Area)> = Vec::new();
        for (index, pool) in pools.iter().enumerate() {
            if pools[..index].iter().any(|earlier| earlier.path() == pool.path() && earlier.id() == pool.id()) {
                continue;
            }
            let own = pool.info().regions.into_iter().filter(|region| region.kind == REGION_KIND && region.part == 0);
            let tables: Vec<String> = own.map(|region| region.name).filter(|name| name.ends_with(TABLE)).collect();
            if tables.is_empty() {
                return Err(Error::NotAMember { path: pool.path().to_owned(), why: "it holds no member of an array" });
            }
            for name in tables {
                let (header, rest) = pool.region(&name)?.into_area()?.split_at(PAGE)?;
                let (cell, _) = TwoSlot::<Header>::open(header)?;
                found.push((pool.clone(), cell.get(), rest));
            }
        }
        found.sort_by_key(|(_, header, _)| header.member);
        let Some((_, first, _)) = found.first().map(|(a, header, b)| (a, *header, b)) else {
            return Err(Error::Limit { what: "members of an array", found: 0, min: 1, max: MEMBERS_MAX as u64 });
        };
        for (number, (pool, header, _)) in found.iter().enumerate() {
            let path = || pool.path().to_owned();
            if header.version > VERSION {
                return Err(Error::NewerVersion { path: path(), found: header.version, known: VERSION });
            }
            if (Header { member: first.member, ..*header }) != first {
                return Err(Error::NotAMember { path: path(), why: "it is a member of another array" });
            }
            if number > 0 && found[number - 1].1.member == header.member {
                return Err(Error::NotAMember { path: path(), why: "another pool is the same member: one is a copy" });
            }
            if header.member != number as u32 && header.member < header.members {
                return Err(Error::MissingMember { member: number as u32, members: header.members });
            }
        }
        if found.len() < first.members as usize {
            return Err(Error::MissingMember { member: found.len() as u32, members: first.members });
        }
        let is_sound = first.stripe.is_multiple_of(LINE)
            && first.stripe >= LINE
            && first.chunk == first.stripe.min(CHUNK_MAX)
            && (1..=MEMBERS_MAX as u32).contains(&first.members)
            && found.len() == first.members as usize
            && (2..=1 << 16).contains(&first.tids)
            && (2..=1 << 16).contains(&first.entries)
            && first.entries.is_multiple_of(2)
            && (first.version == VERSION) == (first.slot_bytes() > 0)
            && first.slot_bytes() <= SLOT_MAX
            && first.slot_bytes().is_multiple_of(LINE);
        if !is_sound {
            return Err(Error::Damaged { path: found[0].0.path().to_owned(), what: "header of an array" });
        }
        self.open_members(found.into_iter().map(|(pool, _, rest)| (pool, rest)).collect(), &first)
    }

    fn open_members(&self, found: Vec<(Pool, Area)>, header: &Header) -> Result<Array> {
        let striping = Striping { stripe: header.stripe, members: header.members.into() };
        let pools: Vec<Pool> = found.iter().map(|(pool, _)| pool.clone()).collect();
        let (files, unfinished, areas) = files(header.array, &pools, striping)?;
        let mut opened = Vec::with_capacity(found.len());
        for (number, ((pool, rest), files)) in found.into_iter().zip(areas).enumerate() {
            let (table, mark) = rest.split_at(header.table_bytes())?;
            let keys = Keys::new(&pool.checksum_key(table.offset()));
            let max = |size: u64| u32::try_from(self.log_max / size).unwrap_or(u32::MAX);
            let log = Chunks::open(&pool, format!("{number}:log"), header.chunk, max(header.chunk))?;
            let meta_bytes = u64::from(header.entries) * ENTRY;
            let meta = Chunks::open(&pool, format!("{number}:meta"), meta_bytes, max(meta_bytes))?;
            let damaged = || Error::Damaged { path: pool.path().to_owned(), what: "mark of an array, in both slots" };
            let mark = MarkCell::open(mark, keys.mark.clone())?.ok_or_else(damaged)?;
            opened.push(Opened { pool, keys, table, stride: header.stride(), mark, files, log, meta });
        }
        let digest = opened[0].pool.checksum_key(header.array).of_kind(4);
        #[cfg(any(test, feature = "failpoints"))]
        let has = |step| self.without != Some(step);
        #[cfg(not(any(test, feature = "failpoints")))]
        let has = |_: failpoints::Step| true;
        let (recovered, next) = recovery::recover(&mut opened, header, &digest, &files, striping, has)?;
        let drains = opened.iter().map(|one| {
            let same = |other: &Opened| other.pool.path() == one.pool.path() && other.pool.id() == one.pool.id();
            opened.iter().position(same).unwrap_or(0)
        });
        let drains = drains.collect();
        let members = opened.into_iter().map(|one| {
            let (pool, keys) = (one.pool.clone(), one.keys.clone());
            let is_late = self.late.unwrap_or(pool.domain() == Domain::File);
            let every = (header.tids as usize / if is_late { 4 } else { 8 }).clamp(1, if is_late { 64 } else { 16 });
            Ok(Member::new(pool, keys, State::new(one, header, When { every, is_late })?))
        });
        let members = members.collect::<Result<Vec<Member>>>()?;
        pools.iter().for_each(|pool| pool.set_pending(true));
        Ok(Array {
            id: header.array,
            order: CachePadded(Mutex::new(Order::new(next, members.len()))),
            stopped: AtomicBool::new(false),
            drains,
            tids: CachePadded(Tids::new(header.tids)),
            files: Mutex::new(Listed { files, unfinished }),
            striping,
            digest,
            chunk: header.chunk,
            entries: header.entries,
            checksum_max: self.checksum_max,
            draft_max: self.draft_max,
            whole_writes: self.whole_writes,
            starving: 0.into(),
            sleepers: AtomicUsize::new(0),
            is_read_only: pools.iter().any(Pool::is_read_only),
            recovered,
            members,
            #[cfg(any(test, feature = "failpoints"))]
            without: self.without,
        })
    }
}

const TABLE: &str = ":table";

fn table_name(member: usize) -> String {
    format!("{member}{TABLE}")
}

/// The files of an array: whole ones, those that some members only have because they could not be made, and by member the areas by number.
type Files = (Vec<File>, Vec<File>, Vec<Vec<Option<Area>>>);

fn files(array: u64, pools: &[Pool], striping: Striping) -> Result<Files> {
    let mut known: BTreeMap<u32, (File, usize)> = BTreeMap::new();
    let mut areas: Vec<Vec<Option<Area>>> = Vec::with_capacity(pools.len());
    for (member, pool) in pools.iter().enumerate() {
        let damaged = || Error::Damaged { path: pool.path().to_owned(), what: "list of files of an array" };
        let prefix = format!("{member}/");
        let mut own = Vec::new();
        for info in pool.info().regions.iter().filter(|region| region.kind == REGION_KIND && region.part == 0) {
            let Some(name) = info.name.strip_prefix(&prefix) else { continue };
            let region = pool.region(&info.name)?;
            let (number, len) = file_of(region.options());
            let (file, area) = (File::new(array, number, len, name), region.into_area()?);
            let known = known.entry(number).or_insert_with(|| (file.clone(), 0));
            if len == 0 || number as usize >= FILES_MAX || area.len() < striping.share(len) || known.0 != file {
                return Err(damaged());
            }
            known.1 += 1;
            own.resize_with(own.len().max(number as usize + 1), || None);
            own[number as usize] = Some(striping.place_in(area, len)?);
        }
        areas.push(own);
    }
    let (whole, parts): (Vec<_>, Vec<_>) = known.into_values().partition(|(_, members)| *members == pools.len());
    let names = |files: Vec<(File, usize)>| files.into_iter().map(|(file, _)| file).collect();
    Ok((names(whole), names(parts), areas))
}
