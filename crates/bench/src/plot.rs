//! Rows as pictures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::table::{OF_CONTESTANT, contestant, group};
use crate::{Error, Result, Row};

/// Bars of one picture; more are spread over several.
const BARS_MAX: usize = 48;
/// Colours that colour-blind readers can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(204, 121, 167),
    RGBColor(90, 90, 90),
];

/// Bars that belong together: operations per second of each engine, with the extremes of its rounds.
struct Group<'a> {
    label: String,
    rows: Vec<&'a Row>,
}

/// Writes `EXPERIMENT-STRUCTURE-THREADS[-N].svg` files into `dir`, which is made if it is not there, and returns their paths. Rows
/// without numbers are left out.
///
/// # Errors
/// The directory or a file cannot be written.
pub fn plot(rows: &[Row], dir: &Path) -> Result<Vec<PathBuf>> {
    let failed = |source| Error::Io { op: "make the directory", path: dir.to_owned(), source };
    std::fs::create_dir_all(dir).map_err(failed)?;
    let mut pictures: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.ns_per_op.is_some()) {
        let words = [Some(row.experiment.clone()), row.structure.clone(), Some(format!("t{}", row.threads))];
        pictures.entry(words.into_iter().flatten().collect::<Vec<_>>().join("-")).or_default().push(row);
    }
    let mut paths = Vec::new();
    for (name, rows) in pictures {
        let engines = engines(&rows);
        let groups = groups(&rows);
        let per_picture = (BARS_MAX / engines.len().max(1)).max(1);
        for (number, part) in groups.chunks(per_picture).enumerate() {
            let suffix = if groups.len() > per_picture { format!("-{}", number + 1) } else { String::new() };
            let path = dir.join(format!("{name}{suffix}.svg"));
            draw(&path, &name, part, &engines)
                .map_err(|error| Error::Plot { path: path.clone(), why: error.to_string() })?;
            paths.push(path);
        }
    }
    Ok(paths)
}

fn engines(rows: &[&Row]) -> Vec<String> {
    let mut engines: Vec<String> = Vec::new();
    for row in rows {
        let engine = contestant(row);
        if !engines.contains(&engine) {
            engines.push(engine);
        }
    }
    engines
}

/// In the order of the rows; parameters that are the same everywhere are not repeated in the labels.
fn groups<'a>(rows: &[&'a Row]) -> Vec<Group<'a>> {
    let varies = |name: &String| {
        let differs = rows.iter().any(|row| row.params.get(name) != rows[0].params.get(name));
        differs && !OF_CONTESTANT.contains(&name.as_str())
    };
    let mut groups: Vec<(String, Group<'a>)> = Vec::new();
    for row in rows {
        let key = group(row);
        if groups.last().is_none_or(|(last, _)| *last != key) {
            let word = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            let words = row.params.iter().filter(|(name, _)| varies(name)).map(|(_, value)| word(value));
            let label = words.collect::<Vec<_>>().join(" ");
            groups.push((key, Group { label, rows: Vec::new() }));
        }
        if let Some((_, group)) = groups.last_mut() {
            group.rows.push(row);
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Values over something, of several.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// Above the picture.
    pub title: String,
    /// What is along it.
    pub across: String,
    /// From left to right.
    pub lines: Vec<Line>,
}

/// Those of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Whose they are.
    pub name: String,
    /// Where, and how much.
    pub points: Vec<(f64, f64)>,
}

/// Writes a picture into the file, whose directory is made if it is not there.
///
/// # Errors
/// The directory or the file cannot be written.
pub fn plot_lines(lines: &Lines, path: &Path) -> Result<()> {
    if let Some(dir) = path.parent() {
        let failed = |source| Error::Io { op: "make the directory", path: dir.to_owned(), source };
        std::fs::create_dir_all(dir).map_err(failed)?;
    }
    draw_lines(path, lines).map_err(|error| Error::Plot { path: path.to_owned(), why: error.to_string() })
}

fn draw_lines(path: &Path, all: &Lines) -> Result<(), Failed> {
    let root = SVGBackend::new(path, (640, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let points = || all.lines.iter().flat_map(|line| &line.points);
    let right = points().map(|point| point.0).fold(1.0, f64::max);
    let top = points().map(|point| point.1).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .caption(&all.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..right * 1.05, 0.0..(top * 1.05).max(1e-6))?;
    chart.configure_mesh().x_desc(&all.across).x_labels(right as usize + 1).y_labels(8).draw()?;
    for (number, line) in all.lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        // Beyond the colours there are, circles are hollow.
        let mark = if number < COLOURS.len() { colour.filled() } else { colour.stroke_width(1) };
        chart
            .draw_series([PathElement::new(line.points.clone(), colour.stroke_width(2))])?
            .label(line.name.as_str())
            .legend(move |(x, y)| Circle::new((x + 5, y), 4, mark));
        chart.draw_series(line.points.iter().map(|point| Circle::new(*point, 4, mark)))?;
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    root.present()?;
    Ok(())
}

type Failed = Box<dyn std::error::Error>;

fn draw(path: &Path, title: &str, groups: &[Group<'_>], engines: &[String]) -> Result<(), Failed> {
    let width = (140 + groups.len() * (engines.len() * 18 + 24)).max(480) as u32;
    let root = SVGBackend::new(path, (width, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let top = groups.iter().flat_map(|group| &group.rows).map(|row| fastest(row)).fold(0.0, f64::max);
    let slots = groups.len() * (engines.len() + 1);
    let mut chart = ChartBuilder::on(&root)
        .caption(format!("{title}: million operations per second"), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(56)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..slots as f64, 0.0..(top * 1.05).max(1e-6))?;
    chart.configure_mesh().disable_x_mesh().disable_x_axis().y_labels(8).draw()?;

    for (number, engine) in engines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let bars = groups.iter().enumerate().filter_map(|(at, group)| {
            let row = group.rows.iter().find(|row| contestant(row) == *engine)?;
            let left = (at * (engines.len() + 1) + number) as f64 + 0.5;
            Some((left, *row))
        });
        let bars: Vec<_> = bars.collect();
        let body = |(left, row): &(f64, &Row)| {
            Rectangle::new([(left + 0.05, 0.0), (left + 0.95, row.ops_per_s / 1e6)], colour.filled())
        };
        chart
            .draw_series(bars.iter().map(body))?
            .label(engine.as_str())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
        let whisker = |(left, row): &(f64, &Row)| {
            PathElement::new(vec![(left + 0.5, slowest(row)), (left + 0.5, fastest(row))], BLACK.stroke_width(1))
        };
        chart.draw_series(bars.iter().map(whisker))?;
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    labels(&root, groups, engines.len(), width)?;
    root.present()?;
    Ok(())
}

/// Below each group, its parameters, one under the other.
fn labels(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    groups: &[Group<'_>],
    engines: usize,
    width: u32,
) -> Result<(), Failed> {
    const LEFT: f64 = 12.0 + 56.0;
    const RIGHT: f64 = 12.0;
    const LINE_PX: i32 = 13;
    let style = ("sans-serif", 11).into_font();
    let step = (f64::from(width) - LEFT - RIGHT) / groups.len() as f64;
    let middle = step * (engines as f64 / 2.0 + 0.5) / (engines + 1) as f64;
    for (at, group) in groups.iter().enumerate() {
        let x = LEFT + step * at as f64 + middle;
        for (line, word) in group.label.split(' ').enumerate() {
            let x = x - word.len() as f64 * 3.0;
            root.draw(&Text::new(word.to_owned(), (x as i32, 356 + LINE_PX * line as i32), style.clone()))?;
        }
    }
    Ok(())
}

/// Million operations per second in the best round.
fn fastest(row: &Row) -> f64 {
    row.ns_per_op.map_or(0.0, |ns| 1e3 / ns.min.max(1e-3))
}

fn slowest(row: &Row) -> f64 {
    row.ns_per_op.map_or(0.0, |ns| 1e3 / ns.max.max(1e-3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spread;

    fn row(engine: &str, workload: &str, ns: f64) -> Row {
        let mut row = Row::new("ycsb", engine).structure("btree").param("workload", workload).param("keys", 7);
        row.ns_per_op = Some(Spread { median: ns, min: ns * 0.9, max: ns * 1.2 });
        row.ops_per_s = 1e9 / ns;
        row
    }

    #[test]
    fn bars_have_names_and_proportions() {
        let dir = tempfile::tempdir().unwrap();
        let missing = Row::new("ycsb", "pmemobj").structure("btree").missing("not here");
        let rows = [row("undo", "A", 500.0), row("inplace", "A", 250.0), missing, row("undo", "B", 100.0)];
        let paths = plot(&rows, &dir.path().join("plots")).unwrap();
        assert_eq!(paths, [dir.path().join("plots/ycsb-btree-t1.svg")]);
        let svg = std::fs::read_to_string(&paths[0]).unwrap();
        for word in ["undo", "inplace", "ycsb-btree-t1", ">\nA\n<", ">\nB\n<"] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        assert!(!svg.contains("pmemobj") && !svg.contains(">\n7\n<"), "what is the same everywhere is not repeated");
    }

    #[test]
    fn lines_have_names_and_points() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plots/one.svg");
        let line = |name: &str, points: &[(f64, f64)]| Line { name: name.into(), points: points.to_vec() };
        let lines = vec![line("kv", &[(1.0, 10.0), (2.0, 19.0)]), line("lmdb", &[(1.0, 5.0), (2.0, 5.0)])];
        plot_lines(&Lines { title: "S1: transactions/s".into(), across: "threads".into(), lines }, &path).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(["S1: transactions/s", "threads", "kv", "lmdb"].iter().all(|word| svg.contains(word)), "{svg}");
        assert_eq!((svg.matches("<circle").count(), svg.matches("<polyline").count() >= 2), (6, true), "{svg}");
    }

    #[test]
    fn many_bars_are_spread_over_several_pictures() {
        let dir = tempfile::tempdir().unwrap();
        let rows: Vec<Row> = (0..60).map(|at| row("undo", &format!("w{at}"), 100.0)).collect();
        let paths = plot(&rows, dir.path()).unwrap();
        assert_eq!(paths.len(), 2);
        assert!(paths.iter().all(|path| path.exists()));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let error = plot(&[], Path::new("/proc/no/such")).unwrap_err().to_string();
        assert!(error.contains("/proc/no/such"), "{error}");
    }
}
