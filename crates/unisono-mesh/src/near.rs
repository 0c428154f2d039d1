//! Which known name a wrong one was meant to be.

/// The longest name that is compared: a long text is no slip of the pen, and its distance would only cost time.
const LONGEST: usize = 100;

/// The nearest of some names, if one is near enough to be meant: at most a third of its letters inserted, left out, replaced or
/// exchanged with their neighbour (one in a short name), or its first four letters and more. Case does not count.
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    let letters = given.chars().count();
    if letters == 0 || letters > LONGEST {
        return None;
    }
    let distance = |name: &str| {
        let name = name.to_lowercase();
        let far = strsim::osa_distance(&given, &name);
        let most = name.chars().count();
        // Nothing is near a name of which nothing stays.
        let near = far <= (most.max(letters) / 3).max(1) && far < most;
        // `batch` for `batch_size`: the beginning of a name, if it is long enough to mean something.
        let begins = letters >= 4 && name.starts_with(&given);
        (near || begins).then_some(if begins { 0 } else { far })
    };
    let near = names.into_iter().filter_map(|name| Some((distance(name)?, name)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// A clause with the nearest name, or nothing.
pub(crate) fn hint<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(given, names).map_or_else(String::new, |name| format!("; did you mean {name:?}?"))
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_smallest_slip_counts_and_far_names_do_not() {
        for (given, names, expected) in [
            ("ddp", ["tp", "dp"], Some("dp")),
            ("TP", ["dp", "tp"], Some("tp")),
            ("batch_szie", ["batch_size", "seed"], Some("batch_size")),
            ("batch", ["batch_size", "bath"], Some("batch_size")),
            ("kitten", ["sitting", "mitten"], Some("mitten")),
            ("expert", ["dp", "tp"], None),
            ("x", ["dp", "t"], None),
            ("", ["dp", "tp"], None),
            ("größe", ["Größen", "b"], Some("Größen")),
        ] {
            assert_eq!(nearest(given, names), expected, "{given}");
        }
        assert_eq!(nearest(&"d".repeat(101), [&*"d".repeat(101)]), None);
    }
}
