//! What this process may use of the machine it runs on.

/// Cores that this process may use: affinity and control-group quota respected.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Cores that this process could use before it was restricted to some of them: all of its control group's quota.
pub fn host_cores() -> usize {
    static FIRST: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *FIRST.get_or_init(cores)
}

/// The name of this host.
pub fn host_name() -> String {
    #[cfg(unix)]
    return rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    return std::env::var("COMPUTERNAME").unwrap_or_else(|_| "this host".to_string());
}

/// Bytes of memory that this process may use: the machine's, or the control group's limit if that is lower. `None` where the
/// system does not say.
pub fn memory() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .as_deref()
        .and_then(total_of_meminfo);
    [machine, group_limit()].into_iter().flatten().min()
}

fn total_of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The lowest limit on the way from this process's control group (version 2, else 1) to the root.
fn group_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut lowest = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|name| name == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        for group in std::path::Path::new(path).ancestors() {
            let group = group.to_string_lossy();
            let limit = std::fs::read_to_string(format!("{root}/{}/{file}", group.trim_matches('/'))).ok();
            let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
            lowest = [lowest, limit].into_iter().flatten().min();
        }
    }
    lowest
}

/// Keeps this thread, and those that it will start, to some processors. A refusal costs speed only.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn restrict(cpus: &[usize]) {
    // What there was before.
    host_cores();
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < rustix::thread::CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Keeps this thread to some processors; not on this system.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn restrict(_cpus: &[usize]) {}

/// The processors that this process may run on; empty where the system does not say.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn allowed_cpus() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .collect(),
        Err(_) => Vec::new(),
    }
}

/// Ties the calling thread to one processor. A refusal costs speed only.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// The processors that this process may run on; empty where the system does not say.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn allowed_cpus() -> Vec<usize> {
    Vec::new()
}

/// Ties the calling thread to one processor; not on this system.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn pin(_cpu: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_cores_and_memory() {
        assert!(cores() >= 1);
        #[cfg(target_os = "linux")]
        assert!(memory().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn meminfo_is_read_in_kib() {
        assert_eq!(
            total_of_meminfo("MemTotal:       24 kB\nMemFree: 1 kB\n"),
            Some(24 * 1024)
        );
        assert_eq!(total_of_meminfo("MemFree: 1 kB\n"), None);
        assert_eq!(total_of_meminfo("MemTotal: many kB\n"), None);
    }
}
