//! A folder of its own for each test, and the program run in it.

#![allow(dead_code)]

pub mod launcher;
pub mod mpi;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A small GPT on a small text: 2 blocks, 32 wide.
pub const TINY: &str = "\
training_config:
  project_name: tiny
  seed: 7
  batch_size: 4
  max_steps: 8
  data_path: text.txt
  eval_every: 4
  model_save_interval: 4
  log_every: 1
  use_clip_grad_norm: true
  optimizer: {type: AdamW, lr: 1e-3}
transformer_config:
  model_type: gpt2
  num_blocks: 2
  num_heads: 4
  embedding_dim: 32
  max_sequence_length: 16
  dropout_prob: 0.1
  weight_tying: true
";

/// What a run of the program gave.
pub struct Done {
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Done {
    fn of(output: Output) -> Done {
        Done {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The exit code is this one, and nothing panicked.
    #[track_caller]
    pub fn ended(self, code: i32) -> Done {
        assert!(
            self.code == Some(code) && !self.err.contains("panicked"),
            "exit code {:?}, {code} expected\n{}\n{}",
            self.code,
            self.out,
            self.err
        );
        self
    }

    /// Standard output holds all of these.
    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Done {
        for part in parts {
            assert!(self.out.contains(part), "no {part:?} in\n{}\n{}", self.out, self.err);
        }
        self
    }

    /// Standard error holds all of these.
    #[track_caller]
    pub fn tells(self, parts: &[&str]) -> Done {
        for part in parts {
            assert!(self.err.contains(part), "no {part:?} in\n{}\n{}", self.out, self.err);
        }
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("no JSON ({error}):\n{}\n{}", self.out, self.err))
    }

    /// The lines of standard error that begin with `error: `, without that.
    pub fn errors(&self) -> Vec<&str> {
        self.err
            .lines()
            .filter_map(|line| line.strip_prefix("error: "))
            .collect()
    }
}

/// A folder with `run.yaml` and `text.txt`, gone with the test.
pub struct Sandbox {
    folder: tempfile::TempDir,
}

impl Sandbox {
    /// With the tiny configuration.
    pub fn new() -> Sandbox {
        let sandbox = Sandbox {
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        sandbox.write("run.yaml", TINY);
        sandbox.write(
            "text.txt",
            &"The fox went home. The bear sat down, and it was late.\n".repeat(40),
        );
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

    /// Reads a file.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Writes the tiny configuration with something in it replaced.
    pub fn config(&self, from: &str, to: &str) {
        assert!(TINY.contains(from), "the tiny configuration has no {from}");
        self.write("run.yaml", &TINY.replace(from, to));
    }

    /// The program with these arguments, not started.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        command
            .args(arguments.split_whitespace())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        for variable in ["UNISONO_LOG", "UNISONO_ISA", "TT_METAL_LOGGER_LEVEL", "NO_COLOR"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs it to its end.
    pub fn run(&self, arguments: &str) -> Done {
        Done::of(self.command(arguments).output().expect("the program runs"))
    }

    /// The same with some environment variables.
    pub fn run_with(&self, arguments: &str, variables: &[(&str, &str)]) -> Done {
        let mut command = self.command(arguments);
        command.envs(variables.iter().copied());
        Done::of(command.output().expect("the program runs"))
    }

    /// Runs any command to its end.
    pub fn finish(command: &mut Command) -> Done {
        Done::of(command.output().expect("it runs"))
    }

    /// Starts it.
    pub fn start(&self, arguments: &str) -> Child {
        self.command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
    }

    /// Waits until a file is there and not empty.
    #[track_caller]
    pub fn wait_for(&self, name: &str) {
        let start = Instant::now();
        while std::fs::metadata(self.path(name)).map_or(0, |file| file.len()) == 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "{name} did not come");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Steps of the metrics of a run, in order.
    pub fn steps(&self, run: &str) -> Vec<u64> {
        let step = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
            line["step"].as_u64().expect("a step")
        };
        self.read(&format!("{run}/metrics.jsonl")).lines().map(step).collect()
    }

    /// Names of a folder's entries, sorted.
    pub fn names(&self, folder: &str) -> Vec<String> {
        names(&self.path(folder))
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Waits for a process that was started, and gathers what it said.
pub fn end(child: Child) -> Done {
    Done::of(child.wait_with_output().expect("it ends"))
}

/// Whether whoever started the tests has SIGHUP ignored, as `nohup` does: programs that they start inherit that, and heed it.
pub fn is_under_nohup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal 1 is the lowest bit.
    let is_under = ignored.is_some_and(|mask| mask & 1 == 1);
    if is_under {
        println!("skipped: the tests run under nohup");
    }
    is_under
}

/// Sends a signal by its name.
pub fn signal(child: &Child, name: &str) {
    let status = Command::new("sh")
        .args(["-c", &format!("kill -{name} {}", child.id())])
        .status();
    assert!(status.expect("a shell").success());
}
