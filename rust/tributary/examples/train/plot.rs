//! The curves of a training as an SVG file: loss on the left, accuracy on the right.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::report::{self, Epoch};
use super::Failure;

const SIZE: (u32, u32) = (1000, 420);
const TITLE: (&str, u32) = ("sans-serif", 22);
const TEXT: (&str, u32) = ("sans-serif", 16);

/// Draws the epochs of `ranks` ranks as lines, and those of the reference as circles upon them.
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
            line: curve(epochs),
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

/// Draws the test accuracy of several trainings, each with its name.
pub fn compare(file: &Path, runs: &[(&str, &[Epoch])]) -> Result<(), Failure> {
    let canvas = SVGBackend::new(file, SIZE).into_drawing_area();
    canvas.fill(&WHITE)?;
    let epochs = runs.iter().map(|(_, epochs)| epochs.len()).max().unwrap_or(0);
    let mut chart = ChartBuilder::on(&canvas)
        .caption("test accuracy", TITLE)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..1.3 * epochs as f64, 0.0..100.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(TEXT)
        .x_desc("epoch")
        .y_label_formatter(&|height| format!("{height:.0} %"))
        .draw()?;
    for (index, (name, epochs)) in runs.iter().enumerate() {
        let color = Palette99::pick(index).stroke_width(2);
        let line = epochs.iter().map(|epoch| (epoch.number as f64, 100.0 * epoch.accuracy));
        chart
            .draw_series(LineSeries::new(line, color))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .label_font(TEXT)
        .background_style(WHITE)
        .border_style(BLACK.mix(0.3))
        .draw()?;
    canvas.present()?;
    Ok(())
}

/// What one panel shows: epochs and heights.
struct Curves {
    name: String,
    line: Vec<(f64, f64)>,
    circles: Vec<(f64, f64)>,
}

fn panel(
    area: &DrawingArea<SVGBackend, Shift>,
    title: &str,
    Curves { name, line, circles }: Curves,
    label: fn(&f64) -> String,
) -> Result<(), Failure> {
    let heights = || line.iter().chain(&circles).map(|point| point.1).filter(|y| y.is_finite());
    let low = heights().fold(f64::INFINITY, f64::min);
    let high = heights().fold(low, f64::max);
    let margin = 0.05 * (high - low).max(0.01);
    let mut chart = ChartBuilder::on(area)
        .caption(title, TITLE)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..line.len() as f64 + 1.0, low - margin..high + margin)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(TEXT)
        .x_desc("epoch")
        .x_label_formatter(&|epoch| format!("{epoch:.0}"))
        .y_label_formatter(&label)
        .draw()?;
    chart
        .draw_series(LineSeries::new(line, BLUE.stroke_width(2)))?
        .label(name)
        .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], BLUE.stroke_width(2)));
    if !circles.is_empty() {
        chart
            .draw_series(circles.into_iter().map(|point| Circle::new(point, 4, RED)))?
            .label("one rank")
            .legend(|(x, y)| Circle::new((x + 8, y), 4, RED));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .label_font(TEXT)
        .background_style(WHITE)
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}
