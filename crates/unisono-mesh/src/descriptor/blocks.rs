//! Reading the extension blocks `[unisono.link]` and `[unisono.device]`.

use super::extension::{DeviceBlock, LinkBlock, LinkKind};
use super::read::Reader;
use super::text::{Item, Value};
use crate::near::hint;

/// `[unisono.link] { … }`; `of_mesh` where it may speak of one dimension or of a switch.
pub(crate) fn link(r: &mut Reader, item: &Item<'_>, of_mesh: bool) -> Option<LinkBlock> {
    r.block(item, "[unisono.link]", None, |r, fields| {
        let (mut dim, mut kind, mut bandwidth, mut latency) = (None, None, None, None);
        let (mut channels, mut switched) = (None, None);
        for field in fields {
            match &*field.name {
                "dim" if of_mesh => r.set(&mut dim, field, Reader::uint32),
                "kind" => r.set(&mut kind, field, link_kind),
                "bandwidth_gbps" => r.set(&mut bandwidth, field, Reader::positive),
                "latency_us" => r.set(&mut latency, field, Reader::positive),
                "channels" if of_mesh => r.set(&mut channels, field, channel_count),
                "switched" if of_mesh => r.set(&mut switched, field, Reader::boolean),
                _ if of_mesh => r.unknown(
                    field,
                    &["dim", "kind", "bandwidth_gbps", "latency_us", "channels", "switched"],
                    &[],
                ),
                _ => r.unknown(field, &["kind", "bandwidth_gbps", "latency_us"], &[]),
            }
        }
        LinkBlock {
            at: item.at,
            dim: dim.map(|dim| dim.value),
            kind,
            bandwidth_gbps: bandwidth,
            latency_us: latency,
            channels,
            switched: switched.is_some_and(|switched| switched.value),
        }
    })
}

/// A number of channels, at least 1.
fn channel_count(r: &mut Reader, item: &Item<'_>, field: &str) -> Option<u32> {
    let count = r.uint32(item, field)?.value;
    if count == 0 {
        r.problem(item.at, field, || "0 channels; a link needs at least 1".to_owned());
        return None;
    }
    Some(count)
}

/// A kind of link, as a bare word or in quotes.
fn link_kind(r: &mut Reader, item: &Item<'_>, field: &str) -> Option<LinkKind> {
    let word = match &item.value {
        Value::Word(word) => (*word).to_owned(),
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    let found = LinkKind::ALL.into_iter().find(|kind| kind.name() == word);
    if found.is_none() {
        let names = LinkKind::ALL.map(LinkKind::name);
        let near = hint(&word, names);
        r.problem(item.at, field, || {
            let word = super::lex::shortened(&word);
            format!("{word:?} is no kind of link; the kinds are {}{near}", names.join(", "))
        });
    }
    found
}

/// `[unisono.device] { … }`.
pub(crate) fn device(r: &mut Reader, item: &Item<'_>, _: &str) -> Option<DeviceBlock> {
    r.block(item, "[unisono.device]", None, |r, fields| {
        let (mut memory, mut peak) = (None, None);
        for field in fields {
            match &*field.name {
                "memory_gib" => r.set(&mut memory, field, Reader::positive),
                "peak_tflops" => r.set(&mut peak, field, Reader::positive),
                _ => r.unknown(field, &["memory_gib", "peak_tflops"], &[]),
            }
        }
        DeviceBlock {
            memory_gib: memory,
            peak_tflops: peak,
        }
    })
}
