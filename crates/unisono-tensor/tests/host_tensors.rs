//! Host arrays: kinds, files, text, and correlation.

use unisono_kernels::element::Bf16;

use unisono_tensor::{Dtype, HostTensor, assert_with_pcc, pcc};

fn bf16(values: &[f32]) -> Vec<Bf16> {
    values.iter().map(|x| Bf16::from_f32(*x)).collect()
}

/// One array of each kind, with values at the ends of its range.
fn one_of_each() -> Vec<HostTensor> {
    let nan = f32::from_bits(0x7fc1_2345);
    vec![
        HostTensor::new(
            &[0.0f32, -0.0, nan, f32::MIN_POSITIVE / 2.0, f32::INFINITY, -1.5],
            &[2, 3],
        ),
        HostTensor::new(&bf16(&[1.0, -2.5, f32::NAN, 1e-40, f32::NEG_INFINITY, 0.1]), &[3, 2]),
        HostTensor::new(&[0u32, 1, u32::MAX], &[3]),
        HostTensor::new(&[i32::MIN, -1, 0, i32::MAX], &[1, 4, 1]),
        HostTensor::new(&[0u8, 255], &[2, 1]),
    ]
    .into_iter()
    .collect::<Result<_, _>>()
    .expect("valid arrays")
}

fn text<T: std::fmt::Debug>(result: unisono_tensor::Result<T>) -> String {
    result.expect_err("it must be refused").to_string()
}

#[test]
fn values_come_back_as_they_are_and_never_as_another_kind() {
    for t in one_of_each() {
        let again = HostTensor::from_bytes(t.dtype(), t.shape(), t.bytes()).expect("the same bytes");
        assert_eq!(again, t);
        assert_eq!(t.len(), t.to_f64().len());
    }
    let all = one_of_each();
    assert_eq!(all[2].to_vec::<u32>().expect("u32"), [0, 1, u32::MAX]);
    assert_eq!(all[3].to_f64(), [-2147483648.0, -1.0, 0.0, 2147483647.0]);
    assert_eq!(
        text(all[2].to_vec::<f32>()),
        "to_vec: the array holds u32, but f32 was asked for; ask for what it holds, to_f64() converts"
    );
    assert_eq!(
        text(HostTensor::new(&[1.0f32; 5], &[2, 3])),
        "HostTensor: 5 values for shape [2, 3], which has 6 elements"
    );
    assert_eq!(
        text(HostTensor::from_bytes(Dtype::Bf16, &[3], vec![0; 5])),
        "HostTensor: 5 bytes for shape [3] of bf16, which takes 6"
    );
    assert!(text(HostTensor::new::<f32>(&[], &[usize::MAX, 2])).contains("more bytes than memory"));
    assert!(text(HostTensor::new::<f32>(&[], &[0, usize::MAX, 2])).contains("more bytes than memory"));
    assert!(HostTensor::new::<f32>(&[], &[0, 7]).expect("an empty array").is_empty());
    // To another kind only where that is asked for.
    let halves = all[0].to_dtype(Dtype::Bf16).expect("floats");
    assert_eq!(halves.to_vec::<Bf16>().expect("bf16")[5], Bf16::from_f32(-1.5));
    assert_eq!(
        all[1]
            .to_dtype(Dtype::F32)
            .expect("exact")
            .to_dtype(Dtype::Bf16)
            .expect("floats"),
        all[1]
    );
    assert_eq!(
        text(all[2].to_dtype(Dtype::F32)),
        "to_dtype: u32 to f32; f32 and bf16 can be cast to each other"
    );
    assert_eq!(all[0].reshape(&[6]).expect("six values").shape(), [6]);
    assert!(text(all[0].reshape(&[5])).contains("[2, 3] to [5]"));
}

/// A file as NumPy writes it (`numpy.lib.format.write_array(f, x, version=…)`).
fn file(version: [u8; 2], header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY".to_vec();
    file.extend(version);
    match version[0] {
        1 => file.extend((header.len() as u16).to_le_bytes()),
        _ => file.extend((header.len() as u32).to_le_bytes()),
    }
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

#[test]
fn npy_files_round_trip_and_are_byte_for_byte_what_numpy_writes() {
    for t in one_of_each() {
        let written = t.to_npy().expect("it can be written");
        assert_eq!(HostTensor::from_npy(&written).expect("it can be read"), t);
        assert_eq!((written.len() - t.bytes().len()) % 64, 0);
    }
    // What numpy.save(f, numpy.arange(3, dtype="int32")) of NumPy 2.4.6 writes.
    let header = format!(
        "{{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }}{}\n",
        " ".repeat(60)
    );
    let expected = file([1, 0], &header, &[0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
    let x = HostTensor::new(&[0i32, 1, 2], &[3]).expect("valid");
    assert_eq!(expected.len(), 140);
    assert_eq!(x.to_npy().expect("it can be written"), expected);
    let scalar = HostTensor::new(&[7u8], &[]).expect("valid");
    let written = scalar.to_npy().expect("it can be written");
    assert!(String::from_utf8_lossy(&written).contains("'shape': (), }"));
    assert_eq!(HostTensor::from_npy(&written).expect("it can be read"), scalar);
    let empty = HostTensor::new::<f32>(&[], &[0, 3]).expect("valid");
    assert_eq!(
        HostTensor::from_npy(&empty.to_npy().expect("written")).expect("read"),
        empty
    );
}

#[test]
fn every_version_and_spelling_of_a_header_is_read() {
    let x = HostTensor::new(&[1u8, 2, 3, 4], &[2, 2]).expect("valid");
    for version in [[1, 0], [2, 0], [3, 0]] {
        for header in [
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2), }\n",
            "{\"shape\":(2L,2L,),\"fortran_order\":False,\"descr\":\"<u1\"}",
            " { 'fortran_order' : False,\n'descr':'u1' , 'shape' : ( 2 , 2 ) }  ",
        ] {
            assert_eq!(
                HostTensor::from_npy(&file(version, header, &[1, 2, 3, 4])).expect(header),
                x
            );
        }
    }
    // One dim is the same in either order.
    let line = file(
        [1, 0],
        "{'descr': '|u1', 'fortran_order': True, 'shape': (2,)}",
        &[1, 2],
    );
    assert_eq!(HostTensor::from_npy(&line).expect("read").shape(), [2]);
}

#[test]
fn npy_files_that_cannot_be_read_are_refused_in_words() {
    let header = |descr: &str, order: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n")
    };
    let refused = |header: &str, data: &[u8]| text(HostTensor::from_npy(&file([1, 0], header, data)));
    let cases: &[(&str, String, &[u8])] = &[
        ("Fortran order", header("'<f4'", "True", "(2, 1)"), &[0; 8]),
        ("big-endian", header("'>f4'", "False", "(2,)"), &[0; 8]),
        ("'<f8' are not held here", header("'<f8'", "False", "(1,)"), &[0; 8]),
        (
            "records of several fields",
            header("[('a', '<f4')]", "False", "(1,)"),
            &[0; 4],
        ),
        ("takes 8 bytes, but 7 follow", header("'<f4'", "False", "(2,)"), &[0; 7]),
        ("takes 8 bytes, but 9 follow", header("'<f4'", "False", "(2,)"), &[0; 9]),
        (
            "more bytes than memory",
            header("'<f4'", "False", "(4294967296, 4294967296)"),
            &[],
        ),
        ("no size", header("'<f4'", "False", "(99999999999999999999999,)"), &[]),
        ("no size", header("'<f4'", "False", "(-1,)"), &[]),
        (
            "more than 64 dims",
            header("'<f4'", "False", &format!("({})", "1,".repeat(65))),
            &[0; 4],
        ),
        ("neither True nor False", header("'<f4'", "false", "(1,)"), &[0; 4]),
        (
            "lacks one of its keys",
            "{'descr': '<f4', 'shape': (1,)}".into(),
            &[0; 4],
        ),
        (
            "the key \"descr\" twice",
            "{'descr': '<f4', 'descr': '<f4'}".into(),
            &[],
        ),
        ("the key \"extra\"", "{'extra': 1}".into(), &[]),
        (
            "more after the dictionary's end",
            format!("{} x", header("'|u1'", "False", "(0,)")),
            &[],
        ),
        ("a string without an end", "{'descr".into(), &[]),
        ("no '{'", "".into(), &[]),
    ];
    for (expected, header, data) in cases {
        let said = refused(header, data);
        assert!(said.contains(expected), "{header}: {said}");
    }
    assert!(text(HostTensor::from_npy(b"PK\x03\x04")).contains("does not begin as a .npy file does"));
    assert!(text(HostTensor::from_npy(b"\x93NUMPY\x04\x00\x00\x00")).contains("format version 4"));
    let mut long = file([2, 0], "", &[]);
    long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(text(HostTensor::from_npy(&long)).contains("claims 4294967295 bytes"));
}

#[test]
fn a_file_cut_or_changed_anywhere_never_panics() {
    let whole = one_of_each()[1].to_npy().expect("written");
    for end in 0..whole.len() {
        assert!(HostTensor::from_npy(&whole[..end]).is_err(), "cut at {end}");
    }
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            // Values may change, and a shape to one of as many elements; nothing larger may come of it.
            if let Ok(t) = HostTensor::from_npy(&changed) {
                assert_eq!(t.bytes().len(), 12);
            }
        }
    }
}

#[test]
fn arrays_print_elided_aligned_and_with_kind_and_shape() {
    let x = HostTensor::new(&(0..100).map(|i| i as f32 / 8.0 - 1.0).collect::<Vec<f32>>(), &[10, 10]).expect("valid");
    assert_eq!(
        x.to_string(),
        "[[-1.0000, -0.8750, -0.7500, ..., -0.1250,  0.0000,  0.1250],
 [ 0.2500,  0.3750,  0.5000, ...,  1.1250,  1.2500,  1.3750],
 [ 1.5000,  1.6250,  1.7500, ...,  2.3750,  2.5000,  2.6250],
 ...,
 [ 7.7500,  7.8750,  8.0000, ...,  8.6250,  8.7500,  8.8750],
 [ 9.0000,  9.1250,  9.2500, ...,  9.8750, 10.0000, 10.1250],
 [10.2500, 10.3750, 10.5000, ..., 11.1250, 11.2500, 11.3750]]
shape [10, 10], f32"
    );
    let deep = HostTensor::new(&[1i32, -20, 3, 4], &[2, 1, 2]).expect("valid");
    assert_eq!(
        deep.to_string(),
        "[[[  1, -20]],\n\n [[  3,   4]]]\nshape [2, 1, 2], i32"
    );
    let odd = HostTensor::new(&[f32::NAN, f32::NEG_INFINITY, 1e-7, 3.0], &[4]).expect("valid");
    assert_eq!(
        odd.to_string(),
        "[      nan,      -inf, 1.0000e-7,  3.0000e0]\nshape [4], f32"
    );
    assert_eq!(
        HostTensor::new(&[7u8], &[]).expect("valid").to_string(),
        "7\nshape [], u8"
    );
    assert_eq!(
        HostTensor::new::<u8>(&[], &[0, 2]).expect("valid").to_string(),
        "[]\nshape [0, 2], u8"
    );
    // A large array costs no more than what is shown of it.
    let large = HostTensor::new(&vec![0u8; 1 << 22], &[1 << 11, 1 << 11])
        .expect("valid")
        .to_string();
    assert!(large.len() < 400, "{large}");
}

#[test]
fn correlation_follows_a_line_and_says_where_it_is_not_defined() {
    let x: Vec<f32> = (0..50).map(|i| (i as f32 * 0.7).sin()).collect();
    let line: Vec<f32> = x.iter().map(|x| 3.0 * x - 2.0).collect();
    let noisy: Vec<f32> = x.iter().enumerate().map(|(i, x)| x + (i % 5) as f32 * 0.3).collect();
    assert!(pcc(&x, &line).expect("a number") > 1.0 - 1e-12);
    let found = pcc(&x, &noisy).expect("a number");
    assert!(0.5 < found && found < 0.98, "{found}");
    assert_eq!(assert_with_pcc(&x, &x, 1.0), 1.0);
    // Of (1,2), (2,4), (3,5): covariance 3/3, variances 2/3 and 14/9.
    let by_hand = pcc(&[1i32, 2, 3], &[2u8, 4, 5]).expect("a number");
    assert!(
        (by_hand - 3.0 / (2.0f64 * 14.0 / 3.0).sqrt()).abs() < 1e-15,
        "{by_hand}"
    );

    assert_eq!(pcc(&[2.0f32; 4], &[2.0f32; 4]).expect("equal constants"), 1.0);
    let nan = f32::NAN;
    assert_eq!(
        pcc(&[1.0, nan, f32::INFINITY], &[1.0, nan, f32::INFINITY]).expect("equal"),
        1.0
    );
    assert_eq!(
        text(pcc(&[2.0f32; 4], &[1.0f32, 2.0, 3.0, 4.0])),
        "pcc: all 4 values of the first array are 2, and the correlation with a constant is not defined"
    );
    assert!(text(pcc(&[1.0f32, 2.0], &[5.0f32, 5.0])).contains("of the second array are 5"));
    assert_eq!(
        text(pcc(&[1.0, nan], &[1.0f32, 2.0])),
        "pcc: element 1 is NaN in one array and 2 in the other"
    );
    assert!(text(pcc(&[f32::INFINITY], &[f32::NEG_INFINITY])).contains("inf in one array and -inf"));
    assert!(text(pcc::<f32, f32>(&[], &[])).contains("no values to compare"));
    assert_eq!(
        text(pcc(&[1.0f32], &[1.0f32, 2.0])),
        "pcc: 1 values and 2; both arrays must be of one length"
    );
    let failed = std::panic::catch_unwind(|| assert_with_pcc(&[1.0f32, 2.0, 3.0], &[3.0f32, 2.0, 1.0], 0.98));
    assert!(failed.is_err(), "a falling line does not pass");
}
