//! Areas that are searched, and the nine cells of the earth that cover one.

use super::hash::{Bounds, Cell, EARTH_RADIUS, Point, STEPS, degrees, radians};

/// What is searched, around a place, in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    Circle(f64),
    /// Width and height.
    Box(f64, f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub(super) around: Point,
    pub(super) shape: Shape,
}

/// Half of the way around the earth, in the projection.
const HALF_AROUND: f64 = 20037726.37;

impl Area {
    /// How far from the middle a place is that is in it.
    pub(super) fn distance(&self, point: Point) -> Option<f64> {
        match self.shape {
            Shape::Circle(radius) => Some(self.around.distance(point)).filter(|distance| *distance <= radius),
            Shape::Box(width, height) => {
                let beside = Point { longitude: self.around.longitude, ..point };
                let is_in = point.distance_north(self.around) <= height / 2.0 && point.distance(beside) <= width / 2.0;
                is_in.then(|| self.around.distance(point))
            }
        }
    }

    /// A box of degrees around it.
    fn bounds(&self) -> Bounds {
        let (width, height) = match self.shape {
            Shape::Circle(radius) => (radius, radius),
            Shape::Box(width, height) => (width / 2.0, height / 2.0),
        };
        let Point { longitude, latitude } = self.around;
        let up = degrees(height / EARTH_RADIUS);
        // Circles of latitude are shorter towards the poles.
        let nearest = if latitude < 0.0 { latitude - up } else { latitude + up };
        let aside = degrees(width / EARTH_RADIUS / radians(nearest).cos());
        Bounds { west: longitude - aside, east: longitude + aside, south: latitude - up, north: latitude + up }
    }

    /// How small cells may be of which nine cover a circle.
    fn steps(&self) -> u32 {
        let mut radius = match self.shape {
            Shape::Circle(radius) => radius,
            Shape::Box(width, height) => ((width / 2.0).powi(2) + (height / 2.0).powi(2)).sqrt(),
        };
        if radius == 0.0 {
            return STEPS;
        }
        let mut steps = 1;
        while radius < HALF_AROUND {
            radius *= 2.0;
            steps += 1;
        }
        // Two less, so that the cell and its neighbours have it all; towards the poles cells are narrow.
        let latitude = self.around.latitude.abs();
        let narrow = i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        (steps - 2 - narrow).clamp(1, STEPS as i32) as u32
    }

    /// The cells in which its places are, in the order in which they are searched.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let (bounds, mut steps) = (self.bounds(), self.steps());
        let cell = Cell::of(self.around, steps);
        let too_small = cell.moved(0, 1).bounds().north < bounds.north
            || cell.moved(0, -1).bounds().south > bounds.south
            || cell.moved(1, 0).bounds().east < bounds.east
            || cell.moved(-1, 0).bounds().west > bounds.west;
        if steps > 1 && too_small {
            steps -= 1;
        }
        let middle = Cell::of(self.around, steps);
        let own = middle.bounds();
        // Neighbours that nothing of it reaches.
        let is_needed = |east: i32, north: i32| {
            steps < 2
                || !(north < 0 && own.south < bounds.south
                    || north > 0 && own.north > bounds.north
                    || east < 0 && own.west < bounds.west
                    || east > 0 && own.east > bounds.east)
        };
        let around = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let mut cells: Vec<Cell> = Vec::new();
        for (east, north) in around.into_iter().filter(|(east, north)| is_needed(*east, *north)) {
            let cell = middle.moved(east, north);
            // Of very large areas some are the same.
            if cells.last() != Some(&cell) {
                cells.push(cell);
            }
        }
        cells
    }
}
