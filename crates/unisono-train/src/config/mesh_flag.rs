//! `--mesh dp=2,tp=2`: the device section in one word.

use unisono_mesh::MAX_DEVICES;

fn too_many(text: &str) -> String {
    format!("--mesh {text}: more than {MAX_DEVICES} devices, the most that unisono drives")
}

/// The overrides that a `--mesh` flag stands for. They replace the shape and the strategies of `device_config`.
///
/// # Errors
/// A sentence on what is wrong with the text.
pub fn mesh_overrides(text: &str) -> Result<Vec<String>, String> {
    const FORM: &str = "write it as dp=2, tp=2 or dp=2,tp=2";
    if text.trim().is_empty() {
        return Err(format!("--mesh is empty: {FORM}"));
    }
    let (mut dp, mut tp) = (None, None);
    for part in text.split(',') {
        let Some((axis, extent)) = part.split_once('=') else {
            return Err(format!(
                "--mesh {text}: \"{part}\" is not an axis with its extent: {FORM}"
            ));
        };
        let digits = !extent.trim().is_empty() && extent.trim().bytes().all(|b| b.is_ascii_digit());
        let extent = match extent.trim().parse::<usize>() {
            Ok(extent) if extent > MAX_DEVICES => return Err(too_many(text)),
            Ok(extent) if extent > 0 => extent,
            Err(_) if digits => return Err(too_many(text)),
            _ => {
                return Err(format!(
                    "--mesh {text}: \"{extent}\" is not a whole number of at least 1"
                ));
            }
        };
        let slot = match axis.trim() {
            "dp" => &mut dp,
            "tp" => &mut tp,
            "pp" | "cp" | "fsdp" => return Err(format!("--mesh {text}: {} is not built yet: {FORM}", axis.trim())),
            other => return Err(format!("--mesh {text}: there is no axis {other}: {FORM}")),
        };
        if slot.replace(extent).is_some() {
            return Err(format!("--mesh {text}: {} is given twice", axis.trim()));
        }
    }
    let extents: Vec<usize> = [dp, tp].into_iter().flatten().collect();
    // Each is at most MAX_DEVICES, so the product fits.
    if extents.iter().product::<usize>() > MAX_DEVICES {
        return Err(too_many(text));
    }
    let shape: Vec<String> = extents.iter().map(usize::to_string).collect();
    Ok(vec![
        format!("device_config.mesh_shape=[{}]", shape.join(", ")),
        format!("device_config.enable_ddp={}", dp.is_some()),
        format!("device_config.enable_tp={}", tp.is_some()),
    ])
}
