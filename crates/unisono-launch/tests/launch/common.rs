//! A folder for each test, a caller in it, and golden texts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unisono_launch::{Caller, Job, LaunchErrors, Mpirun, Program, Request, plan};

/// A descriptor of one mesh.
pub fn descriptor(dims: &str, hosts: &str) -> String {
    format!(
        "mesh_descriptors {{ name: \"M0\" arch: BLACKHOLE device_topology {{ dims: [{dims}] }} \
         host_topology {{ dims: [{hosts}] }} channels {{ count: 2 }} }}\n\
         top_level_instance {{ mesh {{ mesh_descriptor: \"M0\" mesh_id: 0 }} }}\n"
    )
}

/// Bindings of ranks to a descriptor: `rank mesh_id mesh_host_rank`, one a line; the last may be left out.
pub fn bindings(ranks: &[&str], descriptor: &str) -> String {
    let mut text = String::from("rank_bindings:\n");
    for rank in ranks {
        let words: Vec<&str> = rank.split_whitespace().collect();
        text += &format!("- rank: {}\n  mesh_id: {}\n", words[0], words[1]);
        if let Some(host) = words.get(2) {
            text += &format!("  mesh_host_rank: {host}\n");
        }
    }
    text + &format!("mesh_graph_desc_path: {descriptor}\n")
}

/// A folder, gone with the test.
pub struct Sandbox {
    folder: tempfile::TempDir,
}

impl Sandbox {
    /// With a program, a descriptor of 1×4 devices over two hosts, and bindings to it.
    pub fn new() -> Sandbox {
        let sandbox = Sandbox {
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        sandbox.write("prog", "#!/bin/sh\n");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(sandbox.path("prog"), mode).expect("a program");
        }
        sandbox.write("mgd.textproto", &descriptor("1, 4", "1, 2"));
        sandbox.write("b.yaml", &bindings(&["0 0 0", "1 0 1"], "mgd.textproto"));
        sandbox
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it lies in the folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }

    /// A caller in the folder with Open MPI 4 and 64 cores.
    pub fn caller(&self) -> Caller {
        Caller {
            environment: BTreeMap::from([("HOME".to_string(), "/home/u".to_string())]),
            directory: self.folder.path().to_path_buf(),
            hostname: "node".to_string(),
            cores: 64,
            is_root: false,
            mpirun: Mpirun::parse("mpirun", "mpirun (Open MPI) 4.1.4"),
        }
    }

    /// What a plan says, with the folder as DIR.
    pub fn verdict(&self, result: &Result<Job, LaunchErrors>) -> String {
        let mut text = String::new();
        let notes = match result {
            Ok(job) => {
                text += &format!("starts {} ranks\n", job.ranks.len());
                &job.notes
            }
            Err(errors) => {
                for problem in &errors.problems {
                    text += &format!("error: {problem}\n");
                }
                &errors.notes
            }
        };
        for note in notes {
            text += &format!("note: {note}\n");
        }
        text.replace(&self.folder.path().display().to_string(), "DIR")
    }

    /// Plans a request and tells what came of it.
    pub fn tell(&self, request: &Request) -> String {
        self.verdict(&plan(request, &self.caller()))
    }

    /// Plans a request that is right.
    #[track_caller]
    pub fn job(&self, request: &Request) -> Job {
        self.job_of(request, &self.caller())
    }

    /// The same for a caller.
    #[track_caller]
    pub fn job_of(&self, request: &Request, caller: &Caller) -> Job {
        plan(request, caller).unwrap_or_else(|errors| panic!("{errors}"))
    }
}

/// A request for `./prog` with something set.
pub fn request(set: impl FnOnce(&mut Request)) -> Request {
    let mut request = Request {
        program: Program {
            words: vec!["./prog".to_string()],
            ours: false,
            tried: false,
        },
        ..Request::default()
    };
    set(&mut request);
    request
}

/// A request for the bindings b.yaml with something set.
pub fn bound(set: impl FnOnce(&mut Request)) -> Request {
    request(|request| {
        request.rank_binding = Some("b.yaml".to_string());
        set(request);
    })
}

/// Compares a text with a golden file; `UNISONO_BLESS=1` rewrites the file instead.
#[track_caller]
pub fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/launch/data")
        .join(name);
    if std::env::var_os("UNISONO_BLESS").is_some() {
        std::fs::write(path, text).expect("the golden file");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    for (line, (found, wanted)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(
            found,
            wanted,
            "{}:{} differs; UNISONO_BLESS=1 rewrites it",
            path.display(),
            line + 1
        );
    }
    assert_eq!(
        text.lines().count(),
        expected.lines().count(),
        "{} has other lines",
        path.display()
    );
}
