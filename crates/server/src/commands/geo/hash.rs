//! Places on earth as numbers of 52 bits: bits of latitude and longitude in turn, longitude first, so that places that are near to each other have numbers that are, mostly.

/// Degrees within which places are; beyond, the projection has no room for them.
pub(super) const LATITUDE: f64 = 85.05112878;
pub(super) const LONGITUDE: f64 = 180.0;
/// Bits of each.
pub(super) const STEPS: u32 = 26;
/// Metres.
pub(super) const EARTH_RADIUS: f64 = 6372797.560856;

/// A place in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

/// A part of the earth: one of `1 << steps` columns, and of as many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) steps: u32,
    column: u32,
    row: u32,
}

/// Where a cell is, in degrees.
pub(super) struct Bounds {
    pub(super) west: f64,
    pub(super) east: f64,
    pub(super) south: f64,
    pub(super) north: f64,
}

impl Cell {
    /// The cell of a place, of the earth up to this latitude.
    fn within(point: Point, steps: u32, latitude: f64) -> Self {
        let part = |degrees: f64, most: f64| ((degrees + most) / (2.0 * most) * f64::from(1_u32 << steps)) as u32;
        Self { steps, column: part(point.longitude, LONGITUDE), row: part(point.latitude, latitude) }
    }

    pub(super) fn of(point: Point, steps: u32) -> Self {
        Self::within(point, steps, LATITUDE)
    }

    pub(super) fn bits(self) -> u64 {
        spread(self.row) | spread(self.column) << 1
    }

    pub(super) fn of_bits(bits: u64, steps: u32) -> Self {
        Self { steps, column: gather(bits >> 1), row: gather(bits) }
    }

    pub(super) fn bounds(self) -> Bounds {
        let at = |part: u32, most: f64| {
            let edge = |part: f64| -most + part / f64::from(1_u32 << self.steps) * (2.0 * most);
            (edge(f64::from(part)), edge(f64::from(part) + 1.0))
        };
        let ((west, east), (south, north)) = (at(self.column, LONGITUDE), at(self.row, LATITUDE));
        Bounds { west, east, south, north }
    }

    /// So many columns to the east and rows to the north; the earth is round in both. What does not move stays, also the place at the very edge, behind the last column.
    pub(super) fn moved(self, east: i32, north: i32) -> Self {
        let mask = u32::MAX >> (32 - self.steps);
        let by = |part: u32, steps: i32| if steps == 0 { part } else { part.wrapping_add_signed(steps) & mask };
        Self { column: by(self.column, east), row: by(self.row, north), ..self }
    }

    /// Scores of the places in it: from the first to below the second.
    pub(super) fn scores(self) -> (f64, f64) {
        let (bits, shift) = (self.bits(), 2 * (STEPS - self.steps));
        ((bits << shift) as f64, ((bits + 1) << shift) as f64)
    }
}

/// Each bit at twice its place.
fn spread(part: u32) -> u64 {
    let mut bits = u64::from(part);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555_u64),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

fn gather(bits: u64) -> u32 {
    let mut part = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333_u64),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        part = (part | part >> shift) & mask;
    }
    part as u32
}

impl Point {
    /// The score of a member of this place.
    pub(super) fn score(self) -> f64 {
        Cell::of(self, STEPS).bits() as f64
    }

    /// The place of a score: the middle of its cell.
    pub(super) fn of(score: f64) -> Self {
        // A score that is none is some place all the same: the one that Redis takes it for.
        let bits = if score < 0.0 { score as i64 as u64 } else { score as u64 };
        let Bounds { west, east, south, north } = Cell::of_bits(bits, STEPS).bounds();
        let middle = |low: f64, high: f64, most: f64| ((low + high) / 2.0).clamp(-most, most);
        Self { longitude: middle(west, east, LONGITUDE), latitude: middle(south, north, LATITUDE) }
    }

    /// Eleven letters, as others write such numbers: of the earth from pole to pole. There are bits for ten of them.
    pub(super) fn letters(self) -> [u8; 11] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Cell::within(self, STEPS, 90.0).bits();
        std::array::from_fn(|at| {
            let letter = if at < 10 { bits >> (52 - 5 * (at + 1)) & 31 } else { 0 };
            ALPHABET[letter as usize]
        })
    }

    /// Metres along the sphere, by haversines.
    pub(super) fn distance(self, other: Self) -> f64 {
        let half_sine = |from: f64, to: f64| ((to - from) / 2.0).sin();
        let v = half_sine(radians(self.longitude), radians(other.longitude));
        if v == 0.0 {
            return self.distance_north(other);
        }
        let (from, to) = (radians(self.latitude), radians(other.latitude));
        let u = half_sine(from, to);
        2.0 * EARTH_RADIUS * (u * u + from.cos() * to.cos() * v * v).sqrt().asin()
    }

    /// The same of places of the same longitude.
    pub(super) fn distance_north(self, other: Self) -> f64 {
        EARTH_RADIUS * (radians(other.latitude) - radians(self.latitude)).abs()
    }
}

pub(super) fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

pub(super) fn degrees(radians: f64) -> f64 {
    radians / (std::f64::consts::PI / 180.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_stand_in_turn() {
        assert_eq!((spread(0b101), gather(0b10001)), (0b10001, 0b101));
        for part in [0, 1, 0x2aa_aaaa, 0x3ff_ffff] {
            assert_eq!(gather(spread(part)), part);
            let cell = Cell { steps: STEPS, column: part, row: 0x3ff_ffff - part };
            assert_eq!(Cell::of_bits(cell.bits(), STEPS), cell);
        }
    }

    #[test]
    fn places_are_those_of_redis() {
        // Palermo, in the documentation of Redis.
        let palermo = Point { longitude: 13.361389, latitude: 38.115556 };
        let catania = Point { longitude: 15.087269, latitude: 37.502669 };
        assert_eq!(palermo.score(), 3479099956230698.0);
        assert_eq!(format!("{:.17}", Point::of(palermo.score()).longitude), "13.36138933897018433");
        assert_eq!(&Point::of(palermo.score()).letters(), b"sqc8b49rny0");
        let [one, other] = [palermo, catania].map(|point| Point::of(point.score()));
        assert_eq!(format!("{:.4}", one.distance(other)), "166274.1516");
    }

    #[test]
    fn the_earth_is_round() {
        let edge = Cell { steps: 3, column: 7, row: 0 };
        assert_eq!(edge.moved(1, -1), Cell { steps: 3, column: 0, row: 7 });
    }
}
