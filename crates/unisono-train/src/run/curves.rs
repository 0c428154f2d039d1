//! The curves of a run, as pictures: loss, validation loss, learning rate and gradient norm over the steps.

use super::bitmap::Bitmap;
use super::validations::Validated;
use crate::metrics::Record;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::io::Write;
use std::path::{Path, PathBuf};
use unisono_data::atomic_write;

/// Pixels.
const SIZE: (u32, u32) = (960, 960);
/// Points of a line at most; more would not be seen.
const MOST_POINTS: usize = 960;

/// The steps' line.
const LINE: RGBColor = RGBColor(31, 119, 180);
/// The validations' dots.
const DOTS: RGBColor = RGBColor(214, 39, 40);

/// A value over the steps.
type Curve = Vec<(f64, f64)>;

/// One diagram.
struct Panel {
    caption: &'static str,
    line: Curve,
    dots: Curve,
}

/// Writes `training_curves.png` and `training_curves.svg` into a run's folder, each at once or not at all. Equal records give
/// equal files.
///
/// # Errors
/// Whatever the disk says, in words.
pub(super) fn write(directory: &Path, records: &[Record], validations: &[Validated]) -> Result<Vec<PathBuf>, String> {
    let panels = panels(records, validations);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&root, &panels)?;
    }
    let mut bitmap = Bitmap::white(SIZE);
    {
        let root = (&mut bitmap).into_drawing_area();
        draw(&root, &panels)?;
    }
    let png = bitmap.png()?;
    let mut written = Vec::new();
    for (name, bytes) in [
        ("training_curves.png", png.as_slice()),
        ("training_curves.svg", svg.as_bytes()),
    ] {
        let path = directory.join(name);
        atomic_write(&path, |file| file.write_all(bytes)).map_err(|error| error.to_string())?;
        written.push(path);
    }
    Ok(written)
}

fn panels(records: &[Record], validations: &[Validated]) -> [Panel; 3] {
    let line = |value: &dyn Fn(&Record) -> Option<f64>| {
        let point = |r: &Record| Some((r.step as f64, value(r)?));
        let points: Curve = records.iter().filter_map(point).collect();
        thinned(&points)
    };
    [
        Panel {
            caption: "Loss: of each step's batch (line), of the validation data (dots)",
            line: line(&|r| r.loss.map(f64::from)),
            dots: validations.iter().map(|v| (v.step as f64, v.loss)).collect(),
        },
        Panel {
            caption: "Learning rate",
            line: line(&|r| Some(r.lr)),
            dots: Vec::new(),
        },
        Panel {
            caption: "Gradient norm before clipping",
            line: line(&|r| Some(f64::from(r.grad_norm))),
            dots: Vec::new(),
        },
    ]
}

/// At most so many points: each the mean of neighbours.
fn thinned(points: &[(f64, f64)]) -> Curve {
    let group = points.len().div_ceil(MOST_POINTS).max(1);
    let mean = |group: &[(f64, f64)]| {
        let n = group.len() as f64;
        let (x, y) = group.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0, sum.1 + p.1));
        (x / n, y / n)
    };
    points.chunks(group).map(mean).collect()
}

fn draw<B: DrawingBackend>(root: &DrawingArea<B, Shift>, panels: &[Panel]) -> Result<(), String> {
    let words = |error: DrawingAreaErrorKind<B::ErrorType>| error.to_string();
    root.fill(&WHITE).map_err(words)?;
    for (area, panel) in root.split_evenly((panels.len(), 1)).iter().zip(panels) {
        draw_panel(area, panel).map_err(words)?;
    }
    root.present().map_err(words)
}

fn draw_panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    panel: &Panel,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let all = || panel.line.iter().chain(&panel.dots);
    let steps = range(all().map(|point| point.0), 0.0);
    let values = range(all().map(|point| point.1), 0.05);
    let mut chart = ChartBuilder::on(area)
        .caption(panel.caption, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(28)
        .y_label_area_size(80)
        .build_cartesian_2d(steps, values)?;
    chart
        .configure_mesh()
        .x_labels(10)
        .y_labels(6)
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 14))
        .x_label_formatter(&|x| number(*x))
        .y_label_formatter(&|y| number(*y))
        .draw()?;
    chart.draw_series([PathElement::new(panel.line.clone(), LINE.stroke_width(2))])?;
    let dots = panel.dots.iter();
    chart.draw_series(dots.map(|point| Circle::new(*point, 4, DOTS.filled())))?;
    Ok(())
}

/// From the smallest to the largest finite value, wider by a share of that on both sides.
fn range(values: impl Iterator<Item = f64>, margin: f64) -> std::ops::Range<f64> {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    match high - low {
        width if width > 0.0 => low - margin * width..high + margin * width,
        // One value, or none: a diagram needs some width.
        _ if low.is_finite() => {
            let half = (low.abs() * 0.05).max(1e-9);
            low - half..low + half
        }
        _ => 0.0..1.0,
    }
}

/// A number for an axis, short.
fn number(x: f64) -> String {
    match x.abs() {
        // What rounding leaves of a zero between ticks.
        size if size < 1e-15 => "0".into(),
        size if !(1e-3..1e6).contains(&size) => format!("{x:.1e}"),
        size if size >= 1000.0 || x.fract() == 0.0 => format!("{x:.0}"),
        _ => {
            let text = format!("{x:.4}");
            text.trim_end_matches('0').trim_end_matches('.').into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_thinned_to_means() {
        let points: Curve = (0..2000).map(|i| (f64::from(i), f64::from(i % 3))).collect();
        let thin = thinned(&points);
        assert_eq!(thin.len(), 667);
        assert_eq!(thin[0], (1.0, 1.0));
        assert_eq!(thinned(&points[..5]), points[..5]);
    }

    #[test]
    fn ranges_have_some_width() {
        assert_eq!(range([1.0, f64::NAN, 3.0].into_iter(), 0.5), 0.0..4.0);
        assert_eq!(range(std::iter::empty(), 0.1), 0.0..1.0);
        let one = range([0.0].into_iter(), 0.1);
        assert!(one.start < 0.0 && one.end > 0.0);
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 3e-4, 0.25, 12.0, 1234.5, 5e7].map(number);
        assert_eq!(shown, ["0", "3.0e-4", "0.25", "12", "1234", "5.0e7"]);
    }
}
