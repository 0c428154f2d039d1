//! The cut between training and validation data.

use crate::{DataError, Tokens};

/// Cuts tokens into a training part, which comes first, and a validation part of `validation_fraction` of them (rounded to the
/// nearest token). A fraction of 0 gives an empty validation part.
///
/// # Errors
/// [`DataError::Argument`] unless the fraction is at least 0 and below 1; [`DataError::Split`] when it is above 0 and leaves fewer than
/// 2 tokens to either side (a single token has nothing to predict).
pub fn split(tokens: &Tokens, validation_fraction: f64) -> Result<(Tokens, Tokens), DataError> {
    if !(0.0..1.0).contains(&validation_fraction) {
        return Err(DataError::Argument {
            what: "the validation fraction",
            given: validation_fraction.to_string(),
            rule: "it must be at least 0 and below 1, for example 0.1",
        });
    }
    let total = tokens.len();
    // Exact below 2⁵³ tokens, and never above the total, since the fraction is below 1.
    let validation = ((total as f64 * validation_fraction).round() as usize).min(total);
    let train = total - validation;
    if validation_fraction > 0.0 && (validation < 2 || train < 2) {
        let rule = if total < 4 {
            "each part needs 2 or more; use more text, or a fraction of 0 to train without validation".to_string()
        } else {
            format!(
                "each part needs 2 or more; use a fraction of {} to {}, or 0",
                fraction(2, total),
                fraction(total - 2, total)
            )
        };
        return Err(DataError::Split {
            fraction: validation_fraction,
            total,
            train,
            validation,
            rule,
        });
    }
    Ok((tokens.slice(0..train), tokens.slice(train..total)))
}

/// A fraction that leaves `part` of `total` tokens, in the fewest digits that do.
fn fraction(part: usize, total: usize) -> f64 {
    let exact = part as f64 / total as f64;
    let mut scale = 10.0;
    while scale < 1e15 {
        let rounded = (exact * scale).round() / scale;
        if rounded < 1.0 && (rounded * total as f64).round() as usize == part {
            return rounded;
        }
        scale *= 10.0;
    }
    exact
}
