//! Drawings of meshes and tensors to the character, in every width, and as SVG.

use unisono_mesh::draw::{Cell, Drawing, TensorFacts, mesh_device, system_mesh, tensor};
use unisono_mesh::{MAX_DEVICES, MeshShape};

fn shape(sizes: &[usize]) -> MeshShape {
    MeshShape::new(sizes).expect("a valid shape")
}

fn mesh(sizes: &[usize], width: usize) -> Drawing {
    let shape = shape(sizes);
    let cells: Vec<Cell> = (0..shape.num_devices()).map(Cell::of).collect();
    mesh_device(&shape, &cells, width)
}

/// A matrix of 8 × 4 cut over the rows of a 2×2 mesh, equal over its columns.
fn facts() -> TensorFacts {
    let halves = [0..4, 4..8];
    TensorFacts {
        storage: "device".into(),
        placements: vec!["axis 0: Shard(0)".into(), "axis 1: Replicate".into()],
        shape: vec![8, 4],
        dtype: "f32".into(),
        devices: (0..4).map(Cell::of).collect(),
        slices: (0..4).map(|d| Some(vec![halves[d / 2].clone(), 0..4])).collect(),
    }
}

/// No line is wider than this.
#[track_caller]
fn within(drawing: &Drawing, width: usize) -> String {
    let text = drawing.plain();
    assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    text
}

#[test]
fn the_drawing_of_tt_nn_to_the_character() {
    let expected = "
┌──────────────────────────────┬──────────────────────────────┐
│          Dev. ID: 0          │          Dev. ID: 1          │
│            (0, 0)            │            (0, 1)            │
│                              │                              │
└──────────────────────────────┴──────────────────────────────┘
";
    // The title stands in the middle of the 63 characters, 18 to its left.
    let title = format!("{}MeshDevice(rows=1, cols=2)", " ".repeat(18));
    assert_eq!(mesh(&[1, 2], 80).plain(), title.clone() + expected);
    assert_eq!(mesh(&[1, 2], 63).plain(), title + expected);
}

#[test]
fn cells_become_narrower_with_the_terminal() {
    let text = within(&mesh(&[2, 4], 60), 60);
    assert_eq!(
        text.lines().skip(1).take(3).collect::<Vec<_>>(),
        [
            "┌─────────────┬─────────────┬─────────────┬─────────────┐",
            "│ Dev. ID: 0  │ Dev. ID: 1  │ Dev. ID: 2  │ Dev. ID: 3  │",
            "│   (0, 0)    │   (0, 1)    │   (0, 2)    │   (0, 3)    │",
        ]
    );
    let expected = "  MeshDevice(rows=2, cols=4)
    0   1   2   3
  ┌───┬───┬───┬───┐
0 │ 0 │ 1 │ 2 │ 3 │
1 │ 4 │ 5 │ 6 │ 7 │
  └───┴───┴───┴───┘
";
    assert_eq!(mesh(&[2, 4], 40).plain(), expected);
    // One cell is always drawn.
    assert!(mesh(&[2, 4], 0).plain().contains("│0│"));
}

#[test]
fn a_mesh_of_8_by_32_shows_every_id_in_80_characters() {
    let text = within(&mesh(&[8, 32], 80), 80);
    assert!(
        text.contains("columns 0 to 15") && text.contains("columns 16 to 31"),
        "{text}"
    );
    for id in 0..256 {
        let found = text
            .split(|c: char| !c.is_ascii_digit())
            .any(|word| word == id.to_string());
        assert!(found, "{id} is missing in\n{text}");
    }
    assert!(text.contains("7 │224│225│226│"), "{text}");
    assert!(text.lines().count() <= 24, "{text}");
}

#[test]
fn large_meshes_are_summarised() {
    let text = within(&mesh(&[64, 64], 80), 80);
    assert!(
        text.contains("… 98 of 4096 devices are drawn, of 64 rows and 64 columns"),
        "{text}"
    );
    assert!(text.contains("│4095│") && text.lines().count() < 20, "{text}");
    for sizes in [
        vec![MAX_DEVICES],
        vec![MAX_DEVICES, 1],
        vec![1, MAX_DEVICES],
        vec![16, 16, 16, 16],
    ] {
        let text = within(&mesh(&sizes, 80), 80);
        assert!(text.contains('…') && text.lines().count() < 100, "{text}");
    }
}

#[test]
fn axes_beyond_two_make_a_table_each_and_one_axis_is_a_row() {
    let text = mesh(&[2, 1, 2], 80).plain();
    assert!(text.contains("MeshDevice(shape=[2, 1, 2]) at (0, …, …)"), "{text}");
    assert!(text.contains("(1, 0, 1)") && text.contains("Dev. ID: 3"), "{text}");
    assert!(mesh(&[5, 1, 1], 80).plain().contains("… and 1 more table of 1 device"));
    let row = mesh(&[3], 100).plain();
    assert!(
        row.contains("MeshDevice(rows=1, cols=3)") && row.contains("(2)"),
        "{row}"
    );
}

#[test]
fn devices_of_other_hosts_say_so() {
    let cells = [
        Cell {
            local: Some(true),
            ..Cell::of(0)
        },
        Cell {
            local: Some(false),
            ..Cell::default()
        },
    ];
    let text = system_mesh(&shape(&[1, 2]), &shape(&[1, 1]), &cells, 80).plain();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "SystemMesh Global Shape: (1, 2)");
    assert_eq!(lines[1], "SystemMesh Local Shape: (1, 1)");
    assert_eq!(lines[2].trim(), "SystemMesh Global Shape: (1, 2) | Local Shape: (1, 1)");
    assert_eq!(
        lines[4],
        "│            Local             │            Remote            │"
    );
    assert_eq!(
        lines[5],
        "│          Dev. ID: 0          │          Unknown ID          │"
    );
}

#[test]
fn a_tensor_shows_its_slices() {
    let expected = "\
┌─ Placement Configuration ─┐
│ axis 0: Shard(0)          │
│ axis 1: Replicate         │
└───────────────────────────┘
                    Tensor(storage: device)
┌──────────────────────────────┬──────────────────────────────┐
│          Dev. ID: 0          │          Dev. ID: 1          │
│            (0, 0)            │            (0, 1)            │
│           [0:4, :]           │           [0:4, :]           │
│        Shape: [4, 4]         │        Shape: [4, 4]         │
│          Dtype: f32          │          Dtype: f32          │
├──────────────────────────────┼──────────────────────────────┤
│          Dev. ID: 2          │          Dev. ID: 3          │
│            (1, 0)            │            (1, 1)            │
│           [4:8, :]           │           [4:8, :]           │
│        Shape: [4, 4]         │        Shape: [4, 4]         │
│          Dtype: f32          │          Dtype: f32          │
└──────────────────────────────┴──────────────────────────────┘
Tensor shape: [8, 4], dtype: f32
";
    assert_eq!(tensor(&shape(&[2, 2]), &facts(), 80).plain(), expected);
}

#[test]
fn narrow_tensors_list_their_slices_below() {
    let mut facts = facts();
    facts.slices[3] = None;
    let text = tensor(&shape(&[2, 2]), &facts, 24).plain();
    assert!(
        text.contains("  [0:4, :] Shape: [4, 4] Dtype: f32  devices 0-1\n"),
        "{text}"
    );
    assert!(
        text.contains("  [4:8, :] Shape: [4, 4] Dtype: f32  device 2\n"),
        "{text}"
    );
    assert!(
        text.contains("  no shard                           device 3\n"),
        "{text}"
    );
}

#[test]
fn replicas_have_one_colour_and_other_slices_another() {
    let text = tensor(&shape(&[2, 2]), &facts(), 80).colour();
    let first: Vec<&str> = text.lines().filter(|line| line.contains("[0:4, :]")).collect();
    let second: Vec<&str> = text.lines().filter(|line| line.contains("[4:8, :]")).collect();
    let colours = |line: &str| -> Vec<String> {
        let starts = line.split("\x1b[30;48;5;").skip(1);
        starts
            .filter_map(|rest| rest.split('m').next().map(str::to_string))
            .collect()
    };
    let (a, b) = (colours(first[0]), colours(second[0]));
    assert_eq!((a.len(), b.len()), (2, 2), "{text}");
    assert!(a[0] == a[1] && b[0] == b[1] && a[0] != b[0], "{a:?} {b:?}");
    // Without the colours it is the plain drawing.
    let mut bare = String::new();
    for piece in text.split('\x1b') {
        bare += match piece.strip_prefix('[') {
            Some(rest) => rest.split_once('m').expect("a colour").1,
            None => piece,
        };
    }
    assert_eq!(bare, tensor(&shape(&[2, 2]), &facts(), 80).plain());
}

#[test]
fn svg_stands_alone_and_is_escaped() {
    let mut facts = facts();
    facts.storage = "<host> & \"more\"\u{1b}[2J".into();
    let svg = tensor(&shape(&[2, 2]), &facts, 80).svg();
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(
        svg.contains("Tensor(storage: &lt;host&gt; &amp; &quot;more&quot;\u{fffd}[2J)"),
        "{svg}"
    );
    assert!(
        !svg.contains("href") && !svg.contains("url(") && !svg.contains("<style"),
        "{svg}"
    );
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    // Two of the four cells have the colour of the first slice.
    assert_eq!(svg.matches("fill=\"#87d7ff\"").count(), 2);
    assert_eq!(svg.matches("fill=\"#ffaf5f\"").count(), 2);
}

#[test]
fn names_cannot_move_the_cursor() {
    let mut facts = facts();
    facts.dtype = "f32\r\n\x1b[31mred".into();
    facts.placements.push("evil\x07\nline".into());
    let text = tensor(&shape(&[2, 2]), &facts, 80).plain();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
}
