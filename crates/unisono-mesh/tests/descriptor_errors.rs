//! A wrong descriptor for every rule: the exact text of each error, as `docs/mgd.md` lists them.
//!
//! `UNISONO_BLESS=1` rewrites the lists in the document.

#[path = "common/cases.rs"]
mod cases;
mod common;

use cases::{CASES, INCOMPATIBLE, text};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use unisono_mesh::descriptor::{Architecture, BUILTINS, LinkKind, Stage, check};

/// Two tests write one document.
static WRITING: Mutex<()> = Mutex::new(());

/// The document, and where in it the list called `name` stands between its markers.
fn hold(name: &str, list: &str) {
    let _one_at_a_time = WRITING.lock();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mgd.md");
    let document = std::fs::read_to_string(&path).expect("docs/mgd.md can be read");
    let begin = format!("<!-- {name}: written by the test descriptor_errors -->\n");
    let end = format!("<!-- end of {name} -->");
    let from = document.find(&begin).expect("the list begins") + begin.len();
    let to = from + document[from..].find(&end).expect("the list ends");
    if std::env::var_os("UNISONO_BLESS").is_some() {
        let blessed = format!("{}{list}{}", &document[..from], &document[to..]);
        std::fs::write(&path, blessed).expect("docs/mgd.md can be written");
    } else {
        assert_eq!(
            &document[from..to],
            list,
            "docs/mgd.md: UNISONO_BLESS=1 rewrites the list"
        );
    }
}

#[test]
fn every_rule_has_its_error() {
    let mut by_stage: BTreeMap<Stage, String> = BTreeMap::new();
    for (rule, case) in CASES {
        let report = match check("machine.textproto", text(case).as_bytes()) {
            Err(report) => report,
            Ok(_) => panic!("{rule}: it was accepted"),
        };
        let list = by_stage.entry(report.stage).or_default();
        list.push_str(&format!("- {rule}:\n"));
        for problem in report.problems.list() {
            assert!(problem.at.line > 0 && problem.at.column > 0, "{rule}: {problem}");
            list.push_str(&format!("  `{problem}`\n"));
        }
    }
    let mut document = String::new();
    for (stage, list) in by_stage {
        document.push_str(&format!("\n**{}**\n\n{list}", capital(stage.name())));
    }
    hold("errors", &(document + "\n"));
}

#[test]
fn the_control_plane_refuses_what_is_valid_otherwise() {
    let mut list = String::from("\n");
    for (rule, case) in INCOMPATIBLE {
        let checked =
            check("machine.textproto", text(case).as_bytes()).unwrap_or_else(|report| panic!("{rule}: {report}"));
        assert!(!checked.compatibility.is_empty(), "{rule}");
        list.push_str(&format!("- {rule}:\n"));
        for problem in checked.compatibility.list() {
            list.push_str(&format!("  `{problem}`\n"));
        }
    }
    hold("incompatibilities", &(list + "\n"));
}

#[test]
fn all_problems_of_one_stage_come_together_and_none_of_the_next() {
    let wrong = "mesh_descriptors { arch: WORMHOLE_B0 device_topology { dims: [0, 4] } }\n\
                 mesh_descriptors { name: \"M1\" arch: BLACKHOLE channels { count: 1 } }\n$T";
    let report = check("a.textproto", text(wrong).as_bytes()).expect_err("it is wrong");
    assert_eq!(report.stage, Stage::Names);
    assert_eq!(report.problems.count(), 3, "{report}");
    let printed = report.to_string();
    assert!(
        printed.starts_with("the mesh graph descriptor a.textproto has 3 problems"),
        "{printed}"
    );
    assert!(
        printed.contains("\n- a.textproto:1:18: mesh_descriptors[0].name: "),
        "{printed}"
    );
    assert!(!printed.contains("dims"), "a later stage is not looked at: {printed}");
}

#[test]
fn unknown_fields_are_skipped_with_a_warning_that_names_the_nearest() {
    let odd = "$M\n$T\nmesh_descriptor { name: \"x\" nested { a: [1, -2] b < c: 'd' > } }\n\
               [other.maker] { anything: 1 }\nnonsense: -inf\n[unisono.links] { }";
    let checked = check("a.textproto", text(odd).as_bytes()).unwrap_or_else(|report| panic!("{report}"));
    let warnings: Vec<String> = checked.warnings.list().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "3:1: mesh_descriptor: unknown field, skipped; did you mean \"mesh_descriptors\"?",
            "4:1: [other.maker]: unknown field, skipped",
            "5:1: nonsense: unknown field, skipped",
            "6:1: [unisono.links]: unknown field, skipped",
        ]
    );
    let stale = text("$M\n$T").replace("dims: [2, 4]", "dims: [2, 4] types: [LINE, RING]");
    let checked = check("a.textproto", stale.as_bytes()).unwrap_or_else(|report| panic!("{report}"));
    assert!(
        checked.warnings.list()[0]
            .text
            .ends_with("the field is called dim_types")
    );
}

#[test]
fn more_problems_than_are_worth_reading_are_counted() {
    let many = text("$M\n$T\n") + &"mesh_descriptors { arch: X }\n".repeat(250);
    let report = check("a.textproto", many.as_bytes()).expect_err("it is wrong");
    assert_eq!((report.problems.list().len(), report.problems.left_off()), (100, 150));
    assert!(report.to_string().ends_with("\n- and 150 more"));
}

#[test]
fn the_document_has_every_builtin_kind_and_word() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mgd.md");
    let document = std::fs::read_to_string(path).expect("docs/mgd.md can be read");
    for builtin in BUILTINS {
        let row = format!("| `{}` | {} |\n", builtin.name, builtin.about());
        assert!(document.contains(&row), "docs/mgd.md has no row {row}");
    }
    let words = LinkKind::ALL
        .map(LinkKind::name)
        .into_iter()
        .chain(Architecture::ALL.map(Architecture::name));
    for word in words {
        assert!(
            document.contains(&format!("`{word}`")),
            "docs/mgd.md does not have {word}"
        );
    }
    for kind in LinkKind::ALL {
        if let Some(rate) = kind.channel_gbps(Architecture::Cuda) {
            let row = document.lines().find(|line| {
                line.starts_with('|') && line.contains(&format!("`{}`", kind.name())) && !line.contains("by `arch`")
            });
            assert!(
                row.is_some_and(|row| row.contains(&format!("{rate}"))),
                "docs/mgd.md: the rate of {}",
                kind.name()
            );
        }
    }
}

fn capital(text: &str) -> String {
    text[..1].to_uppercase() + &text[1..]
}
