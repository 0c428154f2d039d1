//! Which devices a process may see: `TT_VISIBLE_DEVICES` and `UNISONO_VISIBLE_DEVICES`.
//!
//! The rules are those of the newest driver layer of tt-metal. A variable that is not set shows every board, one that is set but
//! empty none. Else it lists boards, by their index in the order of bus addresses or by a whole or partial bus address. The list is
//! a set: its order means nothing, and what it selects is renumbered from 0 in the order of bus addresses. A board brings all its
//! devices, also those that are reached through another.

use crate::MeshError;

/// The name that counts where both are set.
pub const UNISONO: &str = "UNISONO_VISIBLE_DEVICES";
/// The name of the original.
pub const TT: &str = "TT_VISIBLE_DEVICES";
/// The original's old name, which is not read.
pub const TT_OLD: &str = "TT_METAL_VISIBLE_DEVICES";

/// The values of the variables; `None` for one that is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Variables<'a> {
    /// `UNISONO_VISIBLE_DEVICES`.
    pub unisono: Option<&'a str>,
    /// `TT_VISIBLE_DEVICES`.
    pub tt: Option<&'a str>,
    /// `TT_METAL_VISIBLE_DEVICES`: not read, but set for a reason.
    pub tt_old: Option<&'a str>,
}

/// What may be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visible {
    /// The visible boards by their index, ascending.
    pub boards: Vec<usize>,
    /// Their devices by their numbers in the whole system, board after board. The place in this list is a device's new number.
    pub devices: Vec<usize>,
    /// What the user should be told.
    pub notes: Vec<String>,
}

/// The devices that the variables select.
///
/// `boards` are the devices of each board in the order of bus addresses: on a CPU one device a board. `addresses` are the boards' bus
/// addresses, such as `0000:02:00.0`; on a CPU there are none, and the list is empty.
///
/// # Errors
/// [`MeshError::Visible`]: an entry that is empty, no index in range, or an address that no board has.
pub fn visible(variables: Variables, boards: &[Vec<usize>], addresses: &[String]) -> Result<Visible, MeshError> {
    let mut notes = Vec::new();
    let (name, value) = match (variables.unisono, variables.tt) {
        (Some(value), other) => {
            if let Some(other) = other.filter(|other| *other != value) {
                notes.push(format!(
                    "{UNISONO}={value:?} counts, {TT}={other:?} does not: both are set"
                ));
            }
            (UNISONO, Some(value))
        }
        (None, value) => (TT, value),
    };
    if value.is_none() && variables.tt_old.is_some() {
        notes.push(format!(
            "{TT_OLD} is an old name that is not read: set {TT} or {UNISONO}"
        ));
    }
    let mut chosen: Vec<usize> = match value {
        None => (0..boards.len()).collect(),
        Some(value) if value.trim().is_empty() => Vec::new(),
        Some(value) => {
            let wrong = |problem| MeshError::Visible {
                variable: name,
                value: value.to_string(),
                problem,
            };
            let mut chosen = Vec::new();
            for token in value.split(',') {
                chosen.extend(select(token.trim(), boards.len(), addresses).map_err(wrong)?);
            }
            chosen
        }
    };
    chosen.sort_unstable();
    chosen.dedup();
    Ok(Visible {
        devices: chosen.iter().flat_map(|board| boards[*board].iter().copied()).collect(),
        boards: chosen,
        notes,
    })
}

/// The boards that one entry of the list means.
fn select(token: &str, boards: usize, addresses: &[String]) -> Result<Vec<usize>, String> {
    let range = match boards {
        0 => "there are no devices".to_string(),
        1 => "the only one is 0".to_string(),
        boards => format!("they go from 0 to {}", boards - 1),
    };
    if token.is_empty() {
        return Err(format!(
            "an entry is empty; separate indices by one comma each ({range})"
        ));
    }
    let digits = token.strip_prefix(['-', '+']).unwrap_or(token);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let index = token.parse::<usize>().ok().filter(|index| *index < boards);
        return match index {
            Some(index) => Ok(vec![index]),
            None => Err(format!("{token} is not the index of a device; {range}")),
        };
    }
    let is_address = token.contains([':', '.'])
        && token
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.');
    if !is_address {
        return Err(format!(
            "{token:?} is neither the index of a device ({range}) nor a bus address such as 0000:02:00.0"
        ));
    }
    let lower = token.to_ascii_lowercase();
    let found = addresses.iter().take(boards).enumerate();
    let found = found.filter(|(_, address)| address.to_ascii_lowercase().contains(&lower));
    let found: Vec<usize> = found.map(|(board, _)| board).collect();
    match (found.is_empty(), addresses.is_empty()) {
        (false, _) => Ok(found),
        (true, true) => Err(format!(
            "the bus address {token} matches no device: the devices of this machine have none; use indices ({range})"
        )),
        (true, false) => {
            let mut known = addresses.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
            if addresses.len() > 8 {
                known += ", …";
            }
            Err(format!("the bus address {token} matches no device; there are {known}"))
        }
    }
}

/// The processors that the devices of a CPU have to themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreShares {
    /// For each visible device, in their order, its processors.
    pub cores: Vec<Vec<usize>>,
    /// Set where there are more devices than processors, and so several share one: that in words.
    pub shared: Option<String>,
}

/// Divides the processors `cores` of this machine over its `num_devices` logical devices, as evenly as it goes and in their order,
/// and gives the shares of the `visible` ones. Of `n` processors device `i` of `d` has those from `⌊i·n/d⌋` to before
/// `⌊(i+1)·n/d⌋`: the share of an id does not depend on what else is visible, so two jobs with other ids share no processor.
///
/// With more devices than processors each has one, which several then share; the answer says so in words. It is no error: the
/// results are the same, only not faster. Where no processors are known, no device has any.
///
/// # Panics
/// Where a visible device is not below `num_devices`.
pub fn core_shares(cores: &[usize], num_devices: usize, visible: &[usize]) -> CoreShares {
    assert!(
        visible.iter().all(|device| *device < num_devices),
        "bug in unisono: a visible device is not among the {num_devices}"
    );
    let count = cores.len();
    let share = |device: &usize| {
        let start = device * count / num_devices;
        let end = ((device + 1) * count / num_devices).max(start + 1).min(count);
        cores[start..end].to_vec()
    };
    let shared = (num_devices > count && count > 0).then(|| {
        format!(
            "{num_devices} devices share {}: ids of their own keep two jobs apart only where there is a core for each",
            crate::draw::counted(count, "core")
        )
    });
    CoreShares {
        cores: visible.iter().map(share).collect(),
        shared,
    }
}
