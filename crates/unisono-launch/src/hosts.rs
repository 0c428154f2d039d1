//! Hosts as `--hosts a,b` lists them.

use unisono_train::config::Findings;

/// The hosts of a list, in its order; what is wrong with it is told, and then there are none.
pub(crate) fn parse(text: &str, findings: &mut Findings) -> Vec<String> {
    let before = findings.problems.len();
    let entries: Vec<&str> = text.split(',').map(str::trim).collect();
    let hosts: Vec<&str> = entries.iter().copied().filter(|host| !host.is_empty()).collect();
    if hosts.is_empty() {
        findings.problem(
            None,
            format!("--hosts \"{text}\" names no host: give their names, separated by commas, as in --hosts a,b"),
        );
    } else if hosts.len() < entries.len() {
        let message = format!(
            "--hosts {text}: {} of its {} entries {} empty and left out",
            entries.len() - hosts.len(),
            entries.len(),
            if entries.len() - hosts.len() == 1 { "is" } else { "are" }
        );
        findings.note(None, message);
    }
    for (index, host) in hosts.iter().enumerate() {
        if hosts[..index].contains(host) {
            findings.problem(
                None,
                format!("--hosts {text} names {host} twice; name each host once (it may carry several ranks)"),
            );
        }
        if host.starts_with('-') {
            findings.problem(
                None,
                format!("--hosts {text}: {host} begins with -, as an option and no host does"),
            );
        }
        if host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            let shown = host.escape_debug();
            findings.problem(
                None,
                format!("--hosts: \"{shown}\" holds a blank; hosts are separated by commas"),
            );
        }
    }
    if findings.problems.len() > before {
        return Vec::new();
    }
    hosts.into_iter().map(str::to_string).collect()
}
