//! Draws the curves of trainings as SVG files.

use std::ops::Range;
use std::path::Path;

use plotters::coord::types::RangedCoordf64;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::report::{self, Epoch};
use super::Failure;

const SIZE: (u32, u32) = (1000, 420);
/// With a legend of all algorithms.
const WIDE: (u32, u32) = (1300, 520);
/// Colors that stand out from white and from each other.
const COLORS: [RGBColor; 10] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(127, 127, 127),
    RGBColor(188, 189, 34),
    RGBColor(23, 190, 207),
];
const TITLE: (&str, u32) = ("sans-serif", 22);
const TEXT: (&str, u32) = ("sans-serif", 16);

/// Draws one training of `ranks` ranks as lines, loss on the left and accuracy on the right, and
/// the reference as circles on them.
pub fn draw(
    file: &Path,
    ranks: usize,
    epochs: &[Epoch],
    reference: Option<&[Epoch]>,
) -> Result<(), Failure> {
    let canvas = SVGBackend::new(file, SIZE).into_drawing_area();
    canvas.fill(&WHITE)?;
    let (left, right) = canvas.split_horizontally(SIZE.0 / 2);
    let curves = |height: fn(&Epoch) -> f64| {
        let curve =
            |epochs: &[Epoch]| epochs.iter().map(|e| (e.number as f64, height(e))).collect();
        Curves {
            name: report::ranks(ranks),
            points: curve(epochs),
            circles: reference.map_or_else(Vec::new, curve),
        }
    };
    // The loss falls by orders of magnitude, so its logarithm is drawn.
    let loss = curves(|epoch| f64::from(epoch.loss).log10());
    panel(&left, "training loss", loss, |height| format!("{:.3}", 10f64.powf(*height)))?;
    let accuracy = curves(|epoch| 100.0 * epoch.accuracy);
    panel(&right, "test accuracy", accuracy, |height| format!("{height:.1} %"))?;
    canvas.present()?;
    Ok(())
}

/// Draws the training loss of several trainings: on the left the loss itself, on the right its
/// ratio to that of the first. Both axes are logarithmic, so that curves can be told apart.
pub fn compare(file: &Path, runs: &[(&str, &[Epoch])]) -> Result<(), Failure> {
    let canvas = SVGBackend::new(file, WIDE).into_drawing_area();
    canvas.fill(&WHITE)?;
    let (left, right) = canvas.split_horizontally(2 * WIDE.0 / 5);
    let Some((first, reference)) = runs.first() else { return Ok(()) };
    let loss = |epoch: &Epoch| f64::from(epoch.loss);
    family(&left, "training loss", 0.0, curves(runs, |epoch| loss(epoch).log10()), |height| {
        format!("{:.4}", 10f64.powf(*height))
    })?;
    let title = format!("training loss relative to {first}");
    let ratio = |epoch: &Epoch| (loss(epoch) / loss(&reference[epoch.number - 1])).log10();
    family(&right, &title, 0.6, curves(runs, ratio), |height| {
        format!("{:.2}", 10f64.powf(*height))
    })?;
    canvas.present()?;
    Ok(())
}

/// A name, a color and points.
type Curve = (String, RGBColor, Vec<(f64, f64)>);

/// The curves of all runs, the one that ends highest first, like their lines at the right edge.
/// Runs whose lines would hide each other share a curve and are named together.
fn curves(runs: &[(&str, &[Epoch])], height: impl Fn(&Epoch) -> f64) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::with_capacity(runs.len());
    for (name, epochs) in runs {
        let points = epochs.iter().map(|epoch| (epoch.number as f64, height(epoch)));
        let points: Vec<_> = points.filter(|point| point.1.is_finite()).collect();
        if let Some(curve) = curves.iter_mut().find(|curve| coincide(&curve.2, &points)) {
            curve.0 += &format!(", {name}");
        } else {
            let color = COLORS[curves.len() % COLORS.len()];
            curves.push(((*name).to_owned(), color, points));
        }
    }
    let end = |curve: &Curve| curve.2.last().map_or(f64::NAN, |point| point.1);
    curves.sort_by(|a, b| end(b).total_cmp(&end(a)));
    curves
}

/// Whether two lines differ by less than their width.
fn coincide(a: &[(f64, f64)], b: &[(f64, f64)]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-3)
}

/// Draws `curves` in one panel, with a legend if `room`, a part of the width, is left for it.
fn family(
    area: &DrawingArea<SVGBackend, Shift>,
    title: &str,
    room: f64,
    curves: Vec<Curve>,
    label: fn(&f64) -> String,
) -> Result<(), Failure> {
    let points = || curves.iter().flat_map(|curve| &curve.2);
    let epochs = points().map(|point| point.0).fold(1.0, f64::max);
    let heights = range(points().map(|point| point.1));
    let mut chart = axes(area, title, 0.0..epochs * (1.0 + room), heights, label)?;
    for curve in curves {
        line(&mut chart, curve)?;
    }
    if room > 0.0 {
        legend(&mut chart)?;
    }
    Ok(())
}

/// The content of one panel: epochs and heights.
struct Curves {
    name: String,
    points: Vec<(f64, f64)>,
    circles: Vec<(f64, f64)>,
}

fn panel(
    area: &DrawingArea<SVGBackend, Shift>,
    title: &str,
    Curves { name, points, circles }: Curves,
    label: fn(&f64) -> String,
) -> Result<(), Failure> {
    let heights = range(points.iter().chain(&circles).map(|point| point.1));
    let mut chart = axes(area, title, 0.0..points.len() as f64 + 1.0, heights, label)?;
    line(&mut chart, (name, BLUE, points))?;
    if !circles.is_empty() {
        chart
            .draw_series(circles.into_iter().map(|point| Circle::new(point, 4, RED)))?
            .label("one rank")
            .legend(|(x, y)| Circle::new((x + 8, y), 4, RED));
    }
    legend(&mut chart)
}

type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Axes for epochs and heights, with a grid and a title.
fn axes<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    title: &str,
    epochs: Range<f64>,
    heights: Range<f64>,
    label: fn(&f64) -> String,
) -> Result<Chart<'a>, Failure> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, TITLE)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(epochs, heights)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(TEXT)
        .x_desc("epoch")
        .x_label_formatter(&|epoch| format!("{epoch:.0}"))
        .y_label_formatter(&label)
        .draw()?;
    Ok(chart)
}

/// Draws a curve and its entry of the legend.
fn line(chart: &mut Chart<'_>, (name, color, points): Curve) -> Result<(), Failure> {
    let style = color.stroke_width(2);
    chart
        .draw_series(LineSeries::new(points, style))?
        .label(name)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
    Ok(())
}

fn legend(chart: &mut Chart<'_>) -> Result<(), Failure> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .label_font(TEXT)
        .background_style(WHITE)
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

/// From the lowest to the highest finite number, and a margin.
fn range(heights: impl Iterator<Item = f64>) -> Range<f64> {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for height in heights.filter(|height| height.is_finite()) {
        (low, high) = (low.min(height), high.max(height));
    }
    if low > high {
        return 0.0..1.0;
    }
    let margin = 0.05 * (high - low).max(0.01);
    low - margin..high + margin
}
