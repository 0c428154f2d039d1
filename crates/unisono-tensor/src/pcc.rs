//! How alike two arrays are: Pearson's correlation, and an assertion with it.

use crate::Result;
use crate::host_tensor::{HostElement, refuse};

/// Pearson's correlation coefficient of two arrays of equal length, in f64: 1 where one is a rising straight line of the other.
///
/// Arrays that are equal in every value correlate to 1, constant ones too. Elements that are NaN, or the same infinity, in both
/// are left out. The sums run in the order of the elements.
///
/// # Errors
/// Different lengths, no values, a NaN or an infinity in one array only, or a constant array beside a different one, whose
/// correlation is not defined.
///
/// ```
/// use unisono_tensor::pcc;
/// assert_eq!(pcc(&[1.0f32, 2.0, 3.0], &[2.0f32, 4.0, 6.0])?, 1.0);
/// assert!(pcc(&[1.0f32, 2.0, 3.0], &[3.0f32, 2.0, 1.0])? < -0.999);
/// # Ok::<(), unisono_tensor::TensorError>(())
/// ```
pub fn pcc<A: HostElement, B: HostElement>(a: &[A], b: &[B]) -> Result<f64> {
    if a.len() != b.len() {
        return Err(refuse(
            "pcc",
            format!("{} values and {}; both arrays must be of one length", a.len(), b.len()),
        ));
    }
    let mut pairs: Vec<(f64, f64)> = Vec::with_capacity(a.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        let (x, y) = (a.to_f64(), b.to_f64());
        let same = x == y || (x.is_nan() && y.is_nan());
        match x.is_finite() && y.is_finite() {
            true => pairs.push((x, y)),
            false if same => {}
            false => {
                return Err(refuse(
                    "pcc",
                    format!("element {i} is {x} in one array and {y} in the other"),
                ));
            }
        }
    }
    if pairs.iter().all(|(x, y)| x == y) && !a.is_empty() {
        return Ok(1.0);
    }
    let n = pairs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / n;
    let (mean_a, mean_b) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let (mut both, mut square_a, mut square_b) = (0.0, 0.0, 0.0);
    for (x, y) in &pairs {
        let (x, y) = (x - mean_a, y - mean_b);
        both += x * y;
        square_a += x * x;
        square_b += y * y;
    }
    for (which, constant) in [("first", square_a == 0.0), ("second", square_b == 0.0)] {
        if constant {
            let what = match pairs.first() {
                None => "there are no values to compare".to_string(),
                Some((x, y)) => format!(
                    "all {} values of the {which} array are {}, and the correlation with a constant is not defined",
                    pairs.len(),
                    if which == "first" { x } else { y }
                ),
            };
            return Err(refuse("pcc", what));
        }
    }
    // Squares of f32 leave room for the product. Rounding may take the quotient past ±1 by a bit.
    Ok((both / (square_a * square_b).sqrt()).clamp(-1.0, 1.0))
}

/// Asserts that two arrays correlate to at least `least` ([`pcc`]), and gives the correlation.
///
/// # Panics
/// Where they do not, or where the correlation is not defined, in words.
///
/// ```
/// use unisono_tensor::assert_with_pcc;
/// assert_with_pcc(&[1.0f32, 2.0, 3.0], &[1.0f32, 2.0, 3.1], 0.98);
/// ```
#[track_caller]
pub fn assert_with_pcc<A: HostElement, B: HostElement>(a: &[A], b: &[B], least: f64) -> f64 {
    match pcc(a, b) {
        Ok(found) if found >= least => found,
        Ok(found) => panic!("the arrays correlate to {found}, less than {least}"),
        Err(error) => panic!("{error}"),
    }
}
