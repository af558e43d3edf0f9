//! Pictures for the report.

use plotters::prelude::*;

/// Colours that colour-blind readers can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 4] =
    [RGBColor(230, 159, 0), RGBColor(0, 114, 178), RGBColor(0, 158, 115), RGBColor(90, 90, 90)];
const SIZE: (u32, u32) = (640, 320);

/// Why a picture could not be drawn.
pub(crate) type Failed = Box<dyn std::error::Error>;

/// A name, and a number for each place on the x axis.
pub(crate) type Line = (String, Vec<f64>);

/// Says which colour is whose.
macro_rules! names {
    ($chart:expr) => {
        $chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?
    };
}

/// Bars in groups, one group per label, one bar of each line in it.
pub(crate) fn bars(title: &str, labels: &[&str], lines: &[Line]) -> Result<String, Failed> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let step = lines.len() + 1;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 17))
            .margin(10)
            .x_label_area_size(28)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..(labels.len() * step) as f64, 0.0..top(lines))?;
        chart.configure_mesh().disable_x_mesh().disable_x_axis().light_line_style(TRANSPARENT).y_labels(6).draw()?;
        for (number, (name, values)) in lines.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let bar = |(group, value): (usize, &f64)| {
                let left = (group * step + number) as f64 + 0.5;
                Rectangle::new([(left + 0.05, 0.0), (left + 0.95, *value)], colour.filled())
            };
            chart
                .draw_series(values.iter().enumerate().map(bar))?
                .label(name.as_str())
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
        }
        names!(chart);
        let width = f64::from(SIZE.0) - 80.0;
        for (group, label) in labels.iter().enumerate() {
            let x = 70.0 + width * (group as f64 + 0.5) / labels.len() as f64 - 3.0 * label.len() as f64;
            root.draw(&Text::new((*label).to_owned(), (x as i32, SIZE.1 as i32 - 30), ("sans-serif", 12).into_font()))?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// Points joined by lines, the first at 1, on a logarithmic scale.
pub(crate) fn points(title: &str, axis: &str, lines: &[Line]) -> Result<String, Failed> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (least, most) = decades(lines);
        let longest = lines.iter().map(|(_, values)| values.len()).max().unwrap_or(0).max(1);
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 17))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(60)
            .build_cartesian_2d(0.5..longest as f64 + 0.5, (least..most).log_scale())?;
        let whole = |x: &f64| format!("{x:.0}");
        chart
            .configure_mesh()
            .x_desc(axis)
            .x_labels(longest.min(12))
            .x_label_formatter(&whole)
            .light_line_style(TRANSPARENT)
            .y_labels(6)
            .draw()?;
        for (number, (name, values)) in lines.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let path: Vec<(f64, f64)> = (1..).map(f64::from).zip(values.iter().map(|value| value.max(least))).collect();
            chart.draw_series(path.iter().map(|at| Circle::new(*at, 3, colour.filled())))?;
            chart
                .draw_series([PathElement::new(path, colour.stroke_width(2))])?
                .label(name.as_str())
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
        }
        names!(chart);
        root.present()?;
    }
    Ok(svg)
}

/// Powers of ten that all values lie between, with room for the names of the lines.
fn decades(lines: &[Line]) -> (f64, f64) {
    let values = || lines.iter().flat_map(|(_, values)| values).copied().filter(|value| *value > 0.0);
    let least = values().fold(f64::INFINITY, f64::min);
    if !least.is_finite() {
        return (0.1, 10.0);
    }
    let most = values().fold(least, f64::max);
    (10_f64.powf(least.log10().floor()), 10_f64.powf(most.log10().floor() + 2.0))
}

/// Upper end of the y axis.
fn top(lines: &[Line]) -> f64 {
    let most = lines.iter().flat_map(|(_, values)| values).copied().fold(0.0, f64::max);
    if most > 0.0 { most * 1.3 } else { 1.0 } // the names of the lines need some
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_name_their_lines() {
        let lines = [("undo".to_owned(), vec![1.0, 2.0]), ("inplace".to_owned(), vec![3.0])];
        for svg in [bars("rates", &["1", "2"], &lines).unwrap(), points("times", "kill", &lines).unwrap()] {
            assert!(svg.starts_with("<svg") && svg.contains("undo") && svg.contains("inplace"), "{svg}");
        }
        assert!(bars("none", &[], &[]).is_ok() && points("none", "", &[]).is_ok());
    }
}
