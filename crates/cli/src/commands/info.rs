//! `cairn info`.

use std::process::ExitCode;

use pmem::{Options, PoolInfo, RegionKind};
use serde::Serialize;

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
    let info = InfoJson::new(&pool.info());
    if args.json {
        print_json(&info)?;
    } else {
        print(&info)?;
    }
    Ok(ExitCode::SUCCESS)
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
