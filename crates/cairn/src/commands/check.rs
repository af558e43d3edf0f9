//! `cairn check`.

use std::process::ExitCode;

use pmem::{Options, Pool, RegionInfo, RegionKind};
use serde::Serialize;

use super::info::{InfoJson, kind_name};
use super::{Outcome, print_json};
use crate::args::Check;
use crate::failure::{Failure, is_damage};

/// The JSON object; field names are a contract.
#[derive(Serialize)]
struct CheckJson {
    sound: bool,
    /// Null when not even the header could be read.
    pool: Option<InfoJson>,
    /// What was looked at.
    checked: Vec<String>,
    /// What is wrong.
    findings: Vec<String>,
    /// Regions whose contents this build does not know.
    not_looked_into: Vec<String>,
}

pub fn run(args: &Check) -> Outcome {
    let opened = if args.recover { Options::new().open(&args.path) } else { Options::new().open_read_only(&args.path) };
    let report = match opened {
        Ok(pool) => {
            let report = look_at(&pool);
            if args.recover {
                pool.close().map_err(|error| Failure::pool(&args.path, &error))?;
            }
            report
        }
        Err(error) if is_damage(&error) => CheckJson {
            sound: false,
            pool: None,
            checked: vec!["header".into()],
            findings: vec![error.to_string()],
            not_looked_into: vec![],
        },
        Err(error) => return Err(Failure::pool(&args.path, &error)),
    };
    if args.json {
        print_json(&report)?;
    } else {
        print(args, &report);
    }
    Ok(if report.sound { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The header was checked when the pool was opened.
fn look_at(pool: &Pool) -> CheckJson {
    let info = pool.info();
    let mut report = CheckJson {
        sound: true,
        pool: Some(InfoJson::new(&info)),
        checked: vec!["header".into(), format!("{} regions", info.regions.len())],
        findings: overlaps(&info.regions),
        not_looked_into: vec![],
    };
    for region in info.regions.iter().filter(|region| region.part == 0) {
        look_into(pool, region, &mut report);
    }
    report.sound = report.findings.is_empty();
    report
}

/// Reads every byte, so that a medium that does not return them is found, then checks what stands there.
fn look_into(pool: &Pool, region: &RegionInfo, report: &mut CheckJson) {
    let label = format!("{} {:?}", kind_name(region.kind), region.name);
    let found = pool.region(&region.name).and_then(|claimed| {
        for area in claimed.areas() {
            area.probe("region", 0, area.len())?;
        }
        Ok(())
    });
    match found {
        Err(error) => report.findings.push(format!("{label}: {error}")),
        Ok(()) => match region.kind {
            RegionKind::Raw => report.checked.push(format!("{label}, readable")),
            _ => report.not_looked_into.push(label),
        },
    }
}

fn overlaps(regions: &[RegionInfo]) -> Vec<String> {
    let mut sorted: Vec<&RegionInfo> = regions.iter().collect();
    sorted.sort_by_key(|region| region.offset);
    let pairs = sorted.windows(2).filter(|pair| pair[0].offset.saturating_add(pair[0].len) > pair[1].offset);
    pairs
        .map(|pair| format!("regions {:?} and {:?} overlap at {:#x}", pair[0].name, pair[1].name, pair[1].offset))
        .collect()
}

fn print(args: &Check, report: &CheckJson) {
    for finding in &report.findings {
        println!("damaged: {finding}");
    }
    for region in &report.not_looked_into {
        println!("not looked into: {region}: this build does not know its contents");
    }
    let verdict = if report.sound { "sound" } else { "damaged" };
    println!("{}: {verdict} (checked: {})", args.path.display(), report.checked.join(", "));
    if !report.sound {
        println!("next: restore from a copy; keep this file until that worked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_regions_are_found() {
        let region =
            |name: &str, offset, len| RegionInfo { name: name.into(), kind: RegionKind::Raw, part: 0, offset, len };
        assert!(overlaps(&[region("b", 8192, 4096), region("a", 4096, 4096)]).is_empty());
        let found = overlaps(&[region("b", 8192, 4096), region("a", 4096, 8192)]);
        assert_eq!(found, [r#"regions "a" and "b" overlap at 0x2000"#]);
    }
}
