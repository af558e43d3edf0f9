//! What the numbers were measured on.

use std::fs;
use std::thread::available_parallelism;

/// Processor, cores and kernel in one line; `unknown` for what the system does not tell.
#[must_use]
pub fn describe() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| cpu_model(&text)).unwrap_or("unknown".into());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or("unknown".into());
    let cores = available_parallelism().map_or(0, usize::from);
    format!("{cpu}, {cores} cores, Linux {}", kernel.trim())
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name") || line.starts_with("CPU part"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_model_is_found() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Fast One\n"), Some("Fast One".into()));
        assert_eq!(cpu_model("CPU part\t: 0xd0c\n"), Some("0xd0c".into()));
        assert_eq!(cpu_model(""), None);
        assert!(describe().contains("cores"));
    }
}
