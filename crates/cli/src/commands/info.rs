//! `cairn info`.

use std::process::ExitCode;

use heap::Heap;
use mvcc::Mvcc;
use pmem::{HeapUsage, Options, Pool, PoolInfo, RegionKind};
use serde::Serialize;

use super::object_engine::{HEAP, VERSIONS};
use super::{Outcome, print_json};
use crate::args::Info;
use crate::failure::Failure;
use crate::output::say;
use crate::size;

/// The JSON object; field names are a contract.
#[derive(Serialize)]
pub struct InfoJson {
    path: String,
    /// Hexadecimal, since JSON numbers lose bits.
    id: String,
    format_version: u32,
    size: u64,
    free: u64,
    generation: u64,
    closed_cleanly: bool,
    layout: String,
    engine: String,
    domain: String,
    survives: &'static str,
    flush: Option<String>,
    regions: Vec<RegionJson>,
    /// The objects under transactions, if there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<ObjectsJson>,
}

/// Of `cairn info` alone.
#[derive(Clone, Serialize)]
struct ObjectsJson {
    /// Policy of a heap, or mvcc.
    engine: String,
    slots: u64,
    log_bytes: u64,
    live_blocks: u64,
    live_bytes: u64,
    room: u64,
    /// Of mvcc: names and versions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    procedures: Vec<(String, u32)>,
    /// Of mvcc: the timestamp of the last commit that is written back.
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<u64>,
}

#[derive(Serialize)]
struct RegionJson {
    name: String,
    kind: String,
    part: u32,
    offset: u64,
    bytes: u64,
}

impl InfoJson {
    pub fn new(info: &PoolInfo) -> Self {
        let region = |region: &pmem::RegionInfo| RegionJson {
            name: region.name.clone(),
            kind: kind_name(region.kind),
            part: region.part,
            offset: region.offset,
            bytes: region.len,
        };
        Self {
            path: info.path.display().to_string(),
            id: format!("{:016x}", info.id),
            format_version: info.format_version,
            size: info.size,
            free: info.free,
            generation: info.generation,
            closed_cleanly: info.was_clean,
            layout: info.layout.clone(),
            engine: info.engine.clone(),
            domain: info.domain.to_string(),
            survives: info.domain.survives(),
            flush: info.flush_with.map(|with| format!("{with:?}").to_lowercase()),
            regions: info.regions.iter().map(region).collect(),
            objects: None,
        }
    }
}

/// The kind as printed.
pub fn kind_name(kind: RegionKind) -> String {
    match kind {
        ::log::REGION_KIND => "log".into(),
        kv::REGION_KIND => "kv".into(),
        RegionKind::Other(code) => format!("other-{code}"),
        known => format!("{known:?}").to_lowercase(),
    }
}

pub fn run(args: &Info) -> Outcome {
    let pool = Options::new().open_read_only(&args.path).map_err(|error| Failure::pool(&args.path, &error))?;
    let known = pool.info();
    let mut info = InfoJson::new(&known);
    let looked = look_into(&pool, &known);
    if let Ok(objects) = &looked {
        info.objects.clone_from(objects);
    }
    if args.json {
        print_json(&info)?;
    } else {
        print(&info)?;
    }
    // What the pool is was to be told whatever is in it.
    looked.map_err(|error| Failure::heap(&args.path, &error))?;
    Ok(ExitCode::SUCCESS)
}

/// Opens what a program opens, for reading.
fn look_into(pool: &Pool, info: &PoolInfo) -> tx::Result<Option<ObjectsJson>> {
    if HEAP.is_in(info) {
        let heap = Heap::open_in(pool, &heap::Options::new().coordinator(false))?;
        let sizes = (heap.slots(), heap.log_bytes());
        return Ok(Some(ObjectsJson::new(heap.policy().name(), sizes, heap.live_blocks(|_, _| {})?)));
    }
    if VERSIONS.is_in(info) {
        let store = Mvcc::open_in(pool, &mvcc::Options::new().background(false))?;
        let sizes = store.sizes();
        let objects = ObjectsJson::new("mvcc", (sizes.slots, sizes.log_bytes), store.live_blocks(|_, _| {})?);
        return Ok(Some(ObjectsJson { procedures: sizes.procedures, written: Some(sizes.written), ..objects }));
    }
    Ok(None)
}

impl ObjectsJson {
    fn new(engine: &str, (slots, log_bytes): (u64, u64), used: HeapUsage) -> Self {
        let HeapUsage { live_blocks, live_bytes, chunk_bytes: room, .. } = used;
        let (engine, procedures, written) = (engine.to_owned(), Vec::new(), None);
        Self { engine, slots, log_bytes, live_blocks, live_bytes, room, procedures, written }
    }
}

fn print(info: &InfoJson) -> Result<(), Failure> {
    let or_none = |text: &str| if text.is_empty() { "(none)".to_owned() } else { text.to_owned() };
    say!("pool        {}", info.path)?;
    say!("id          {}", info.id)?;
    say!("format      version {}", info.format_version)?;
    say!("size        {} ({} bytes), {} in no region", size::human(info.size), info.size, size::human(info.free))?;
    say!("layout      {}", or_none(&info.layout))?;
    say!("engine      {}", or_none(&info.engine))?;
    say!("domain      {}: survives {}", info.domain, info.survives)?;
    say!("flush with  {}", info.flush.as_deref().unwrap_or("nothing: a drain is enough"))?;
    say!("opened      {} times for writing", info.generation)?;
    if let Some(objects) = &info.objects {
        let ObjectsJson { engine, slots, live_blocks, .. } = objects;
        let (live, room) = (size::human(objects.live_bytes), size::human(objects.room));
        say!("objects     {engine}: {live_blocks} live blocks in {live} of {room}")?;
        say!("logs        {slots} of {}", size::human(objects.log_bytes))?;
        for (name, version) in &objects.procedures {
            say!("procedure   {name:?}, version {version}")?;
        }
    }
    say!("regions     {}", info.regions.len())?;
    for region in &info.regions {
        let part = if region.part == 0 { String::new() } else { format!(" (part {})", region.part + 1) };
        say!(
            "  {:<24} {:<8} {:>12} at {:#x}{part}",
            region.name,
            region.kind,
            size::human(region.bytes),
            region.offset
        )?;
    }
    Ok(())
}
