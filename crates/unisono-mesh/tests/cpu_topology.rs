//! Machines read from trees of files as Linux has them: whole, partly missing, garbled.

use std::fs;
use std::path::{Path, PathBuf};
use unisono_mesh::cpu_topology::{CpuTopology, parse_processors};

/// A folder that goes when the test ends.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Tree {
        let path = std::env::temp_dir().join(format!("unisono-cpu-topology-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder can be made");
        Tree(path)
    }

    fn write(&self, file: &str, text: impl AsRef<[u8]>) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("the folder can be made");
        fs::write(path, text).expect("the file can be written");
    }

    /// A processor with its socket, its core's processors, and who shares its L2 and L3.
    fn processor(&self, id: usize, socket: usize, siblings: &str, l3: &str) {
        let at = format!("cpu/cpu{id}");
        self.write(&format!("{at}/topology/physical_package_id"), format!("{socket}\n"));
        self.write(&format!("{at}/topology/thread_siblings_list"), format!("{siblings}\n"));
        let caches = [
            (0, 1, "Data", "32K", siblings),
            (1, 1, "Instruction", "32K", siblings),
            (2, 2, "Unified", "1024K", siblings),
            (3, 3, "Unified", "32M", l3),
        ];
        for (index, level, kind, size, shared) in caches {
            let at = format!("{at}/cache/index{index}");
            self.write(&format!("{at}/level"), format!("{level}\n"));
            self.write(&format!("{at}/type"), format!("{kind}\n"));
            self.write(&format!("{at}/size"), format!("{size}\n"));
            self.write(&format!("{at}/shared_cpu_list"), format!("{shared}\n"));
        }
    }

    fn node(&self, id: usize, processors: &str, kib: u64) {
        self.write(&format!("node/node{id}/cpulist"), format!("{processors}\n"));
        self.write(
            &format!("node/node{id}/meminfo"),
            format!("Node {id} MemTotal:       {kib} kB\nNode {id} MemFree: 1 kB\n"),
        );
    }

    fn read(&self, allowed: &[usize]) -> CpuTopology {
        CpuTopology::read(&self.0, allowed)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // What stays in the folder for temporary files harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One socket of two cores with two threads each, no NUMA folder.
fn one_socket(name: &str) -> Tree {
    let tree = Tree::new(name);
    tree.write("cpu/online", "0-3\n");
    for id in 0..4 {
        tree.processor(id, 0, ["0,2", "1,3"][id % 2], "0-3");
    }
    tree
}

/// Two sockets with two NUMA nodes each, two cores a node, a cache of level 3 for each node.
fn two_sockets(name: &str) -> Tree {
    let tree = Tree::new(name);
    tree.write("cpu/online", "0-7\n");
    for id in 0..8 {
        let node = id / 2;
        tree.processor(id, id / 4, &id.to_string(), &format!("{}-{}", 2 * node, 2 * node + 1));
    }
    for node in 0..4 {
        tree.node(node, &format!("{}-{}", 2 * node, 2 * node + 1), 16 << 20);
    }
    tree
}

#[test]
fn one_socket_without_numa() {
    let machine = one_socket("one").read(&[]);
    let expected = "      CPU0  CPU1  CPU2  CPU3  CPU affinity  NUMA affinity  Socket
CPU0  X     L3    SMT   L3    0             ?              0
CPU1  L3    X     L3    SMT   1             ?              0
CPU2  SMT   L3    X     L3    2             ?              0
CPU3  L3    SMT   L3    X     3             ?              0

Legend:
  X    the same
  SMT  threads of one core
  L3   cores that share a cache of level 3
";
    assert_eq!(machine.matrix(80).text(80), expected);
    assert_eq!(
        machine.describe(),
        [
            "1 socket, 2 cores, 4 logical processors (0-3)",
            "caches: L1 data 32 KiB × 2, L1 instruction 32 KiB × 2, L2 1 MiB × 2, L3 32 MiB × 1",
        ]
    );
    assert_eq!(machine.cores(), [vec![0, 2], vec![1, 3]]);
}

#[test]
fn two_sockets_with_two_numa_nodes_each() {
    let machine = two_sockets("two").read(&[]);
    let codes: Vec<&str> = (0..8).map(|other| machine.code(0, other)).collect();
    assert_eq!(codes, ["X", "L3", "SOC", "SOC", "SYS", "SYS", "SYS", "SYS"]);
    assert_eq!(
        machine.describe(),
        [
            "2 sockets, 4 NUMA nodes, 8 cores, 8 logical processors (0-7)",
            "caches: L1 data 32 KiB × 8, L1 instruction 32 KiB × 8, L2 1 MiB × 8, L3 32 MiB × 4",
            "NUMA node 0: processors 0-1, 16 GiB of memory",
            "NUMA node 1: processors 2-3, 16 GiB of memory",
            "NUMA node 2: processors 4-5, 16 GiB of memory",
            "NUMA node 3: processors 6-7, 16 GiB of memory",
        ]
    );
    // Too narrow for eight processors: those with a cache in common are one row.
    let expected = "        CACHE0  CACHE1  CACHE2  CACHE3  CPU affinity  NUMA affinity  Socket
CACHE0  X       SOC     SYS     SYS     0-1           0              0
CACHE1  SOC     X       SYS     SYS     2-3           1              0
CACHE2  SYS     SYS     X       SOC     4-5           2              1
CACHE3  SYS     SYS     SOC     X       6-7           3              1

Legend:
  X    the same
  SOC  cores of one socket, in other NUMA nodes or where nothing nearer is known
  SYS  another socket: through the link between sockets
";
    assert_eq!(machine.matrix(78).text(78), expected);
    assert!(machine.matrix(100).text(100).starts_with("      CPU0  CPU1"));
    // So narrow that not even sockets fit in one band: bands, and nothing is lost.
    let text = machine.matrix(20).text(20);
    assert!(text.contains("SOCKET1") && text.contains("NUMA affinity"), "{text}");
}

#[test]
fn nodes_of_cores_without_a_shared_cache() {
    let tree = two_sockets("node");
    for id in 0..8 {
        tree.write(&format!("cpu/cpu{id}/cache/index3/shared_cpu_list"), format!("{id}\n"));
    }
    assert_eq!(tree.read(&[]).code(0, 1), "NODE");
}

#[test]
fn only_processors_that_may_be_used_and_are_online_count() {
    let tree = two_sockets("affinity");
    tree.write("cpu/online", "0-5,7\n");
    let ids = |allowed: &[usize]| -> Vec<usize> {
        tree.read(allowed)
            .processors
            .iter()
            .map(|processor| processor.id)
            .collect()
    };
    assert_eq!(ids(&[]), [0, 1, 2, 3, 4, 5, 7]);
    assert_eq!(ids(&[6, 5, 1, 1]), [1, 5]);
    let machine = tree.read(&[1, 5]);
    assert_eq!((machine.sockets().len(), machine.cores().len()), (2, 2));
    assert_eq!(machine.code(0, 1), "SYS");
    // Without the list, the folders and their own `online` files say it.
    fs::remove_file(tree.0.join("cpu/online")).expect("it was there");
    tree.write("cpu/cpu3/online", "0\n");
    assert_eq!(ids(&[]), [0, 1, 2, 4, 5, 6, 7]);
}

#[test]
fn what_is_missing_costs_detail_only() {
    let nothing = CpuTopology::read(Path::new("/nonexistent"), &[]);
    assert_eq!(nothing.processors, []);
    assert_eq!(nothing.describe(), ["0 cores, 0 logical processors (none)"]);
    assert_eq!(nothing.matrix(80).names, [""; 0]);
    let ids = CpuTopology::read(Path::new("/nonexistent"), &[2, 3]);
    assert_eq!(ids.describe(), ["2 cores, 2 logical processors (2-3)"]);
    assert_eq!((ids.code(0, 0), ids.code(0, 1)), ("X", "?"));
    assert!(ids.matrix(80).text(80).contains("CPU2"));

    let tree = one_socket("missing");
    for id in 0..4 {
        fs::remove_dir_all(tree.0.join(format!("cpu/cpu{id}/cache"))).expect("it was there");
    }
    assert_eq!(tree.read(&[]).code(0, 1), "SOC");
    fs::remove_dir_all(tree.0.join("cpu/cpu1/topology")).expect("it was there");
    assert_eq!(tree.read(&[]).code(0, 1), "?");
}

#[test]
fn garbage_costs_detail_only() {
    let garbage: [&[u8]; 9] = [
        b"",
        b"-1",
        b"0-",
        b"3-0",
        b"0-99999999999999999999",
        b"0-4000000000",
        b"\xff\xfe\x00",
        b"x,y",
        b"1\n2\n3",
    ];
    let files = [
        "cpu/online",
        "cpu/cpu0/topology/physical_package_id",
        "cpu/cpu0/topology/thread_siblings_list",
        "cpu/cpu0/cache/index3/level",
        "cpu/cpu0/cache/index3/size",
        "cpu/cpu0/cache/index3/type",
        "cpu/cpu0/cache/index3/shared_cpu_list",
        "node/node0/cpulist",
        "node/node0/meminfo",
    ];
    let tree = two_sockets("garbage");
    for file in files {
        let whole = fs::read(tree.0.join(file)).expect("it is there");
        for bytes in garbage {
            tree.write(file, bytes);
            let machine = tree.read(&[0, 1, 2]);
            let text = machine.matrix(80).text(80) + &machine.describe().join("\n");
            assert!(
                text.len() < 4000 && text.chars().all(|c| c == '\n' || !c.is_control()),
                "{text}"
            );
            assert!(machine.processors.len() <= 3, "{file}: {machine:?}");
        }
        tree.write(file, whole);
    }
    assert_eq!(tree.read(&[]), two_sockets("whole").read(&[]));
}

#[test]
fn lists_of_processors_are_read() {
    assert_eq!(parse_processors("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
    assert_eq!(parse_processors(" 5, 1-2,2 \n"), Some(vec![1, 2, 5]));
    assert_eq!(parse_processors(""), Some(vec![]));
    assert_eq!(parse_processors("3-1"), None);
    assert_eq!(parse_processors("0-65536"), None);
    assert_eq!(parse_processors("a"), None);
}

#[test]
#[cfg(target_os = "linux")]
fn this_machine_answers() {
    let machine = CpuTopology::read(Path::new(unisono_mesh::cpu_topology::SYSTEM), &[]);
    if let [first, ..] = machine.processors.as_slice() {
        assert!(first.siblings.contains(&first.id), "{machine:?}");
        assert!(machine.matrix(100).text(100).contains('X'));
    }
}
