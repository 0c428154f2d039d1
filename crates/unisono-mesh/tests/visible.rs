//! `TT_VISIBLE_DEVICES` and `UNISONO_VISIBLE_DEVICES`, with the text of every error.

use unisono_mesh::visible::{Variables, core_shares, visible};

/// Four boards of two devices, the remote ones numbered after all others, as on a T3000.
fn boards() -> (Vec<Vec<usize>>, Vec<String>) {
    let addresses = ["0000:01:00.0", "0000:02:00.0", "0000:41:00.0", "0000:C1:00.0"];
    (
        (0..4).map(|board| vec![board, board + 4]).collect(),
        addresses.map(String::from).to_vec(),
    )
}

fn tt(value: &str) -> Variables<'_> {
    Variables {
        tt: Some(value),
        ..Variables::default()
    }
}

/// The boards that a value selects.
#[track_caller]
fn chosen(value: &str) -> Vec<usize> {
    let (boards, addresses) = boards();
    visible(tt(value), &boards, &addresses).expect("a valid value").boards
}

fn error(value: &str) -> String {
    let (boards, addresses) = boards();
    visible(tt(value), &boards, &addresses)
        .expect_err("must be refused")
        .to_string()
}

#[test]
fn unset_is_all_and_empty_is_none() {
    let (boards, addresses) = boards();
    let all = visible(Variables::default(), &boards, &addresses).expect("valid");
    assert_eq!(all.boards, [0, 1, 2, 3]);
    assert_eq!(all.devices, [0, 4, 1, 5, 2, 6, 3, 7]);
    assert_eq!(all.notes, [""; 0]);
    assert_eq!(chosen(""), [0; 0]);
    assert_eq!(chosen(" "), [0; 0]);
}

#[test]
fn a_list_is_a_set_in_the_order_of_bus_addresses() {
    assert_eq!(chosen("3,2"), [2, 3]);
    assert_eq!(chosen(" 1 ,1,0,1"), [0, 1]);
    let (boards, addresses) = boards();
    let two = visible(tt("3,2"), &boards, &addresses).expect("valid");
    // A board brings its remote device; the place in the list is the new number.
    assert_eq!(two.devices, [2, 6, 3, 7]);
    let galaxy: Vec<Vec<usize>> = (0..16).map(|device| vec![device]).collect();
    let set = visible(tt("0,1,2,3,11,10,9,8"), &galaxy, &[]).expect("valid");
    assert_eq!(set.devices, [0, 1, 2, 3, 8, 9, 10, 11]);
}

#[test]
fn bus_addresses_are_whole_or_partial() {
    assert_eq!(chosen("0000:02:00.0"), [1]);
    assert_eq!(chosen("c1:00"), [3]);
    assert_eq!(chosen("01:"), [0]);
    // A part may pick several, and beside it an index one that is picked already.
    assert_eq!(chosen("1:00,0"), [0, 2, 3]);
}

#[test]
fn wrong_values_are_sentences() {
    assert_eq!(
        error("0,4"),
        "TT_VISIBLE_DEVICES=\"0,4\": 4 is not the index of a device; they go from 0 to 3"
    );
    assert_eq!(
        error("-1"),
        "TT_VISIBLE_DEVICES=\"-1\": -1 is not the index of a device; they go from 0 to 3"
    );
    assert_eq!(
        error("99999999999999999999999"),
        "TT_VISIBLE_DEVICES=\"99999999999999999999999\": 99999999999999999999999 is not the index of a device; they go from 0 to 3"
    );
    assert_eq!(
        error("0,,1"),
        "TT_VISIBLE_DEVICES=\"0,,1\": an entry is empty; separate indices by one comma each (they go from 0 to 3)"
    );
    assert_eq!(
        error("all"),
        "TT_VISIBLE_DEVICES=\"all\": \"all\" is neither the index of a device (they go from 0 to 3) nor a bus address such as 0000:02:00.0"
    );
    assert_eq!(
        error("0000:03:00.0"),
        "TT_VISIBLE_DEVICES=\"0000:03:00.0\": the bus address 0000:03:00.0 matches no device; there are 0000:01:00.0, 0000:02:00.0, 0000:41:00.0, 0000:C1:00.0"
    );
    let cpu: Vec<Vec<usize>> = vec![vec![0]];
    let variables = Variables {
        unisono: Some("0000:01:00.0"),
        ..Variables::default()
    };
    assert_eq!(
        visible(variables, &cpu, &[]).expect_err("must be refused").to_string(),
        "UNISONO_VISIBLE_DEVICES=\"0000:01:00.0\": the bus address 0000:01:00.0 matches no device: the devices of this machine have none; use indices (the only one is 0)"
    );
    assert!(visible(tt("0"), &[], &[]).is_err_and(|e| e.to_string().ends_with("there are no devices")));
    for value in ["1.5", "0x1", "1 2", "\u{1b}[2J", "+", "-", ":", "0;1"] {
        assert!(value == ":" || !error(value).contains('\u{1b}'), "{value:?}");
    }
}

#[test]
fn our_own_variable_wins_and_the_old_name_is_told_of() {
    let (boards, addresses) = boards();
    let look = |variables| visible(variables, &boards, &addresses).expect("valid");
    let both = Variables {
        unisono: Some("1"),
        tt: Some("2"),
        tt_old: Some("3"),
    };
    let seen = look(both);
    assert_eq!(seen.boards, [1]);
    assert_eq!(
        seen.notes,
        ["UNISONO_VISIBLE_DEVICES=\"1\" counts, TT_VISIBLE_DEVICES=\"2\" does not: both are set"]
    );
    let equal = Variables { tt: Some("1"), ..both };
    assert_eq!(look(equal).notes, [""; 0]);
    let old = Variables {
        tt_old: Some("3"),
        ..Variables::default()
    };
    assert_eq!(look(old).boards, [0, 1, 2, 3]);
    assert_eq!(
        look(old).notes,
        ["TT_METAL_VISIBLE_DEVICES is an old name that is not read: set TT_VISIBLE_DEVICES or UNISONO_VISIBLE_DEVICES"]
    );
}

#[test]
fn devices_have_cores_of_their_own() {
    let cores = [0, 1, 2, 3, 8, 9, 10, 11, 12, 13];
    for devices in 1..=cores.len() {
        let ids: Vec<usize> = (0..devices).collect();
        let all = core_shares(&cores, devices, &ids);
        assert_eq!(all.cores.concat(), cores, "each core belongs to one device");
        assert_eq!(all.shared, None);
        let sizes: Vec<usize> = all.cores.iter().map(Vec::len).collect();
        let (least, most) = (sizes.iter().min(), sizes.iter().max());
        assert!(
            most.zip(least)
                .is_some_and(|(most, least)| most - least <= 1 && *least >= 1),
            "{sizes:?}"
        );
        // A device's share does not depend on what else is seen.
        for id in 0..devices {
            assert_eq!(core_shares(&cores, devices, &[id]).cores, [all.cores[id].clone()]);
        }
    }
}

#[test]
fn more_devices_than_cores_share_and_say_so() {
    let shares = core_shares(&[4, 5], 4, &[0, 1, 2, 3]);
    assert_eq!(shares.cores, [[4], [4], [5], [5]]);
    assert_eq!(
        shares.shared.expect("they share"),
        "4 devices share 2 cores: ids of their own keep two jobs apart only where there is a core for each"
    );
    let none = core_shares(&[], 2, &[1]);
    assert_eq!((none.cores, none.shared), (vec![vec![]], None));
}
