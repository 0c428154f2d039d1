//! What this machine has and who else uses it, as Linux tells; elsewhere most answers are "not known".

use std::path::Path;
use std::time::{Duration, Instant};
use unisono_mesh::cpu_topology::parse_processors;

/// One cache of a core.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Cache {
    /// 1, 2, 3.
    pub level: u32,
    /// Data, Instruction or Unified.
    pub kind: String,
    /// Bytes.
    pub bytes: u64,
    /// Logical processors that share one.
    pub shared_by: usize,
}

/// The processor's name.
pub fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("model name") || line.starts_with("Model"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Logical processors of the machine, whether this process may use them or not.
pub fn processors() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let is_core = |line: &&str| {
        line.strip_prefix("cpu")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    Some(text.lines().filter(is_core).count())
}

/// The logical processors that this process may run on; empty where the system does not say.
pub fn allowed_processors() -> Vec<usize> {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(parse_processors).unwrap_or_default()
}

/// The caches of the first processor.
pub fn caches() -> Vec<Cache> {
    let at = Path::new("/sys/devices/system/cpu/cpu0/cache");
    let mut caches: Vec<Cache> = (0..16).filter_map(|i| cache(&at.join(format!("index{i}")))).collect();
    caches.sort_by(|a, b| (a.level, &a.kind).cmp(&(b.level, &b.kind)));
    caches
}

fn cache(at: &Path) -> Option<Cache> {
    let read = |name: &str| {
        std::fs::read_to_string(at.join(name))
            .ok()
            .map(|text| text.trim().to_string())
    };
    Some(Cache {
        level: read("level")?.parse().ok()?,
        kind: read("type")?,
        bytes: size(&read("size")?)?,
        shared_by: read("shared_cpu_list").map_or(1, |list| listed(&list)),
    })
}

/// `48K` in bytes.
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix(['K', 'M']) {
        Some(digits) if text.ends_with('K') => (digits, 1 << 10),
        Some(digits) => (digits, 1 << 20),
        None => (text, 1),
    };
    Some(digits.parse::<u64>().ok()? * unit)
}

/// How many numbers a list like `0-3,8` names.
fn listed(list: &str) -> usize {
    list.split(',')
        .filter_map(|part| match part.split_once('-') {
            Some((a, b)) => {
                let (a, b): (usize, usize) = (a.trim().parse().ok()?, b.trim().parse().ok()?);
                Some((b + 1).saturating_sub(a))
            }
            None => part.trim().parse::<usize>().ok().map(|_| 1),
        })
        .sum()
}

/// The quota of this process's control group in processors, where there is one.
pub fn cpu_quota() -> Option<f64> {
    let text = std::fs::read_to_string("/sys/fs/cgroup/cpu.max").ok()?;
    let mut words = text.split_whitespace();
    let (quota, period) = (words.next()?.parse::<f64>().ok()?, words.next()?.parse::<f64>().ok()?);
    (period > 0.0).then_some(quota / period)
}

/// The memory limit of this process's control group, where there is one.
pub fn memory_limit() -> Option<u64> {
    let text = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?;
    text.trim().parse().ok()
}

/// Bytes of memory that the machine has, and that are free to take.
pub fn memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    };
    Some((value("MemTotal:")?, value("MemAvailable:")?))
}

/// The most memory that this process has had at once, as the system counts it.
pub fn process_peak() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Seconds that this process has run, over all its threads; waits for a core do not count. `None` where it is not known.
#[cfg(unix)]
pub fn cpu_seconds() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
}

/// Not known on this system.
#[cfg(not(unix))]
pub fn cpu_seconds() -> Option<f64> {
    None
}

/// Watches what other processes take of the processors, from its making to [`LoadProbe::others`].
pub struct LoadProbe {
    start: Instant,
    ticks: Option<Ticks>,
}

/// Processor time since the machine and this process began, in the kernel's ticks.
struct Ticks {
    busy: u64,
    idle: u64,
    own: u64,
}

/// A shorter look would see too few of the kernel's ticks.
const SHORTEST: Duration = Duration::from_millis(120);

impl LoadProbe {
    /// Begins to watch.
    pub fn start() -> LoadProbe {
        LoadProbe {
            start: Instant::now(),
            ticks: ticks(),
        }
    }

    /// Processors that other processes have kept busy since, on average; `None` where the system does not say.
    pub fn others(&self) -> Option<f64> {
        if let Some(missing) = SHORTEST.checked_sub(self.start.elapsed()) {
            std::thread::sleep(missing);
        }
        let (before, after) = (self.ticks.as_ref()?, ticks()?);
        let busy = after.busy.saturating_sub(before.busy);
        let idle = after.idle.saturating_sub(before.idle);
        let own = after.own.saturating_sub(before.own);
        let share = busy.saturating_sub(own) as f64 / (busy + idle).max(1) as f64;
        Some(share * processors()? as f64)
    }
}

fn ticks() -> Option<Ticks> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guests are in user already.
    let counted = numbers.get(..8)?;
    let idle = counted[3] + counted[4];
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in brackets, may hold anything; user and system time are the 12th and 13th fields after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let own = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Ticks {
        busy: counted.iter().sum::<u64>() - idle,
        idle,
        own,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_sizes_are_read() {
        assert_eq!(listed("0-3,8"), 5);
        assert_eq!(listed("0"), 1);
        assert_eq!(listed(""), 0);
        assert_eq!(size("48K"), Some(48 << 10));
        assert_eq!(size("32M"), Some(32 << 20));
        assert_eq!(size("x"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_machine_answers() {
        assert!(processors().is_some_and(|n| n >= 1));
        assert!(!allowed_processors().is_empty());
        assert!(process_peak().is_some_and(|n| n > 1 << 16));
        let probe = LoadProbe::start();
        let others = probe.others().expect("Linux says");
        assert!((0.0..=processors().unwrap_or(1) as f64).contains(&others));
    }
}
