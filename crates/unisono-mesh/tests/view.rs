//! Views: submeshes, reshaping, orders, and what they refuse.

use unisono_mesh::{Mesh, MeshCoordinate, MeshView};

fn grid(sizes: &[usize]) -> MeshView {
    MeshView::whole(Mesh::grid(sizes).expect("a mesh"))
}

#[test]
fn submeshes_are_boxes_with_the_names_of_their_parent() {
    let whole = MeshView::whole(Mesh::new(&[("dp", 4), ("tp", 8)]).expect("a mesh"));
    let part = whole.submesh(&[2, 4], Some(&[1, 2])).expect("inside");
    assert_eq!(part.devices(), [10, 11, 12, 13, 18, 19, 20, 21]);
    assert_eq!(part.mesh().describe(), "2×4 = 8 devices (dp 2, tp 4)");
    let inner = part.submesh(&[1, 2], Some(&[1, 1])).expect("inside");
    assert_eq!(inner.devices(), [19, 20]);
    assert_eq!(inner.id(&MeshCoordinate(vec![0, 1])), Ok(20));
}

#[test]
fn tiles_come_row_major_and_cover_the_mesh() {
    let tiles = grid(&[8, 4]).submeshes(&[4, 2]).expect("they tile");
    let firsts: Vec<usize> = tiles.iter().map(|tile| tile.devices()[0]).collect();
    assert_eq!(firsts, [0, 2, 16, 18]);
    let mut all: Vec<usize> = tiles.iter().flat_map(|tile| tile.devices().to_vec()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..32).collect::<Vec<_>>());
}

#[test]
fn lines_zigzag_and_grids_are_asked_for_again() {
    let whole = grid(&[2, 4]);
    let line = whole.reshape(&[1, 8]).expect("a line");
    assert_eq!(line.devices(), [0, 1, 2, 3, 7, 6, 5, 4]);
    assert_eq!(line.reshape(&[2, 4]).expect("back").devices(), whole.devices());
    assert_eq!(
        whole.reshape(&[4, 2]).expect("turned").devices(),
        [0, 4, 1, 5, 2, 6, 3, 7]
    );
    assert_eq!(whole.reshape(&[2, 4]).expect("the same"), whole);
    let square = grid(&[2, 2]).reshape(&[4, 1]).expect("a line");
    assert_eq!(square.devices(), [0, 1, 3, 2]);
}

#[test]
fn ids_are_those_that_were_given() {
    let mesh = Mesh::grid(&[2, 2]).expect("a mesh");
    let view = MeshView::with_ids(mesh.clone(), vec![4, 5, 6, 9]).expect("four ids");
    assert_eq!(view.submesh(&[1, 2], Some(&[1, 0])).expect("inside").ids(), [6, 9]);
    assert_eq!(view.ring_order().expect("two axes"), [0, 1, 3, 2]);
    for ids in [vec![1, 2, 3], vec![1, 1, 2, 3]] {
        assert!(MeshView::with_ids(mesh.clone(), ids).is_err());
    }
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let whole = grid(&[4, 8]);
    let texts = [
        whole.submesh(&[2, 0], None).expect_err("zero").to_string(),
        whole.submesh(&[2], None).expect_err("one axis").to_string(),
        whole.submesh(&[2, 2], Some(&[1])).expect_err("one offset").to_string(),
        whole.submesh(&[2, 4], Some(&[3, 0])).expect_err("outside").to_string(),
        whole
            .submesh(&[2, 4], Some(&[usize::MAX, 0]))
            .expect_err("outside")
            .to_string(),
        whole.submeshes(&[3, 4]).expect_err("a rest").to_string(),
        whole.reshape(&[4, 4]).expect_err("fewer").to_string(),
        whole
            .submesh(&[2, 2], None)
            .expect("inside")
            .reshape(&[4, 1])
            .map(|_| ())
            .map_or_else(|e| e.to_string(), |()| "fine".into()),
        whole
            .submesh(&[4, 2], None)
            .expect("inside")
            .reshape(&[2, 4])
            .expect_err("others")
            .to_string(),
        whole.pick(&[0, 0]).expect_err("twice").to_string(),
        whole.pick(&[32]).expect_err("outside").to_string(),
        whole.first(&[40]).expect_err("too many").to_string(),
    ];
    let expected = [
        "there is no submesh [2, 0] at offset [0, 0] in the mesh [4, 8]: axis 1 has size 0; every axis needs at least 1",
        "there is no submesh [2] at offset [0, 0] in the mesh [4, 8]: it has 1 sizes and 2 offsets; this mesh has 2 axes, give one of each for each",
        "there is no submesh [2, 2] at offset [1] in the mesh [4, 8]: it has 2 sizes and 1 offsets; this mesh has 2 axes, give one of each for each",
        "there is no submesh [2, 4] at offset [3, 0] in the mesh [4, 8]: axis 0 has 4 devices; 2 from 3 on are too many: a size of 2 allows offsets up to 2",
        "there is no submesh [2, 4] at offset [18446744073709551615, 0] in the mesh [4, 8]: axis 0 has 4 devices; 2 from 18446744073709551615 on are too many: a size of 2 allows offsets up to 2",
        "there is no submesh [3, 4] at offset [0, 0] in the mesh [4, 8]: axis 0 has 4 devices, which tiles of 3 do not fill; [1, 2, 4] do",
        "the mesh [4, 8] of 32 devices cannot be reshaped to [4, 4]: it has 16 places",
        "fine",
        "the mesh [4, 2] of 8 devices cannot be reshaped to [2, 4]: at offset [0, 0] of the system [4, 8] it would take device 2, which is not one of these",
        "the ids [0, 0] for the mesh [4, 8] do not name 2 devices once each; give 2 different ones",
        "device 32 is not in the mesh [4, 8], whose devices are 0 to 31",
        "the mesh [4, 8] of 32 devices cannot be reshaped to [40]: it needs 40 of them",
    ];
    assert_eq!(texts, expected);
}
