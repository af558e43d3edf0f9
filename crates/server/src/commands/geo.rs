//! Places on earth: members of sorted sets, whose scores are where they are.

mod area;
mod hash;

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};

use self::area::{Area, Shape};
use self::hash::{LATITUDE, LONGITUDE, Point};
use super::flag::{GEO, READ, WRITE};
use super::ranges::{score_keys, store};
use super::sorted::{Scored, add_scored, each, score_of};
use super::{Command, Context, KeysAt, ONE, Outcome, SYNTAX, Stop, data, float, int, is};
use crate::data::{Head, Kind};
use crate::request::Arguments;

/// The key, and what stands behind `STORE` or `STOREDIST`, from this argument on.
const fn stores(from: usize) -> KeysAt {
    KeysAt::Behind(from, &["STORE", "STOREDIST"])
}

pub(super) const COMMANDS: &[Command] = &[
    data("geoadd", -5, WRITE | GEO, ONE, geoadd),
    data("geodist", -4, READ | GEO, ONE, geodist),
    data("geohash", -2, READ | GEO, ONE, geohash),
    data("geopos", -2, READ | GEO, ONE, geopos),
    data("georadius", -6, WRITE | GEO, stores(6), |c, args| search(c, args, Form::AROUND_PLACE)),
    data("georadius_ro", -6, READ | GEO, ONE, |c, args| search(c, args, Form { reads: true, ..Form::AROUND_PLACE })),
    data("georadiusbymember", -5, WRITE | GEO, stores(5), |c, args| search(c, args, Form::AROUND_MEMBER)),
    data("georadiusbymember_ro", -5, READ | GEO, ONE, |c, args| {
        search(c, args, Form { reads: true, ..Form::AROUND_MEMBER })
    }),
    data("geosearch", -7, READ | GEO, ONE, |c, args| search(c, args, Form { reads: true, ..Form::SEARCH })),
    data("geosearchstore", -8, WRITE | GEO, KeysAt::Range(1, 2, 1), |c, args| search(c, args, Form::SEARCH)),
];

// ---- arguments ------------------------------------------------------------------------------------------------

fn point(longitude: &[u8], latitude: &[u8]) -> Outcome<Point> {
    let (longitude, latitude) = (float(longitude)?, float(latitude)?);
    if longitude.abs() > LONGITUDE || latitude.abs() > LATITUDE {
        return Err(Stop::Error(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")));
    }
    Ok(Point { longitude, latitude })
}

/// Metres of a unit.
fn unit(name: &[u8]) -> Outcome<f64> {
    let known = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let found = known.iter().find(|(known, _)| is(name, known)).map(|(_, metres)| *metres);
    found.ok_or_else(|| "ERR unsupported unit provided. please use M, KM, FT, MI".into())
}

fn length(text: &[u8], what: &str) -> Outcome<f64> {
    float(text).map_err(|_| Stop::Error(format!("ERR need numeric {what}")))
}

/// A circle, or a box, and metres of its unit.
fn circle(args: &Arguments<'_>, at: usize) -> Outcome<(Shape, f64)> {
    let radius = length(args.get(at), "radius")?;
    if radius < 0.0 {
        return Err("ERR radius cannot be negative".into());
    }
    let metres = unit(args.get(at + 1))?;
    Ok((Shape::Circle(radius * metres), metres))
}

fn rectangle(args: &Arguments<'_>, at: usize) -> Outcome<(Shape, f64)> {
    let (width, height) = (length(args.get(at), "width")?, length(args.get(at + 1), "height")?);
    if width < 0.0 || height < 0.0 {
        return Err("ERR height or width cannot be negative".into());
    }
    let metres = unit(args.get(at + 2))?;
    Ok((Shape::Box(width * metres, height * metres), metres))
}

/// Which form of the command it is.
#[derive(Clone, Copy)]
struct Form {
    /// Where its options begin; those of `GEOSEARCH` say the area.
    options: usize,
    searches: bool,
    by_member: bool,
    reads: bool,
}

impl Form {
    const AROUND_PLACE: Self = Self { options: 6, searches: false, by_member: false, reads: false };
    const AROUND_MEMBER: Self = Self { options: 5, searches: false, by_member: true, reads: false };
    const SEARCH: Self = Self { options: 2, searches: true, by_member: false, reads: false };
}

#[derive(Default)]
struct Asked<'b> {
    around: Option<Point>,
    shape: Option<(Shape, f64)>,
    with_distance: bool,
    with_hash: bool,
    with_place: bool,
    /// Towards the nearest, or the farthest.
    order: Option<Ordering>,
    count: usize,
    any: bool,
    store: Option<&'b [u8]>,
    store_distance: bool,
}

fn around_member(c: &Context<'_>, head: Option<&Head>, member: &[u8]) -> Outcome<Point> {
    let score = score_of(c, head, member)?;
    score.map(Point::of).ok_or_else(|| "ERR could not decode requested zset member".into())
}

fn asked<'b>(c: &Context<'_>, args: &Arguments<'b>, form: Form, head: Option<&Head>) -> Outcome<Asked<'b>> {
    let mut asked = Asked::default();
    let stores = form.searches && !form.reads;
    let mut at = form.options + usize::from(stores);
    if stores {
        asked.store = Some(args.get(1));
    } else if !form.searches && form.by_member && head.is_none() {
        // Nothing is found around it, however far that would be.
    } else if !form.searches && form.by_member {
        asked.around = Some(around_member(c, head, args.get(2))?);
        asked.shape = Some(circle(args, 3)?);
    } else if !form.searches {
        asked.around = Some(point(args.get(2), args.get(3))?);
        asked.shape = Some(circle(args, 4)?);
    }
    let (mut froms, mut bys) = (0, 0);
    while at < args.len() {
        let left = args.len() - at - 1;
        match args.get(at) {
            o if is(o, "WITHDIST") => asked.with_distance = true,
            o if is(o, "WITHHASH") => asked.with_hash = true,
            o if is(o, "WITHCOORD") => asked.with_place = true,
            o if is(o, "ANY") => asked.any = true,
            o if is(o, "ASC") => asked.order = Some(Ordering::Less),
            o if is(o, "DESC") => asked.order = Some(Ordering::Greater),
            o if is(o, "COUNT") && left > 0 => {
                let count = int(args.get(at + 1))?;
                if count <= 0 {
                    return Err("ERR COUNT must be > 0".into());
                }
                asked.count = usize::try_from(count).unwrap_or(usize::MAX);
                at += 1;
            }
            o if !form.searches && !form.reads && left > 0 && (is(o, "STORE") || is(o, "STOREDIST")) => {
                asked.store = Some(args.get(at + 1));
                asked.store_distance = is(o, "STOREDIST");
                at += 1;
            }
            o if stores && is(o, "STOREDIST") => asked.store_distance = true,
            o if form.searches && froms == 0 && left > 0 && is(o, "FROMMEMBER") => {
                // Of what is not there nothing is found, whichever member that is.
                if head.is_some() {
                    asked.around = Some(around_member(c, head, args.get(at + 1))?);
                }
                (froms, at) = (1, at + 1);
            }
            o if form.searches && froms == 0 && left > 1 && is(o, "FROMLONLAT") => {
                asked.around = Some(point(args.get(at + 1), args.get(at + 2))?);
                (froms, at) = (1, at + 2);
            }
            o if form.searches && bys == 0 && left > 1 && is(o, "BYRADIUS") => {
                asked.shape = Some(circle(args, at + 1)?);
                (bys, at) = (1, at + 2);
            }
            o if form.searches && bys == 0 && left > 2 && is(o, "BYBOX") => {
                asked.shape = Some(rectangle(args, at + 1)?);
                (bys, at) = (1, at + 3);
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    let tells = asked.with_distance || asked.with_hash || asked.with_place;
    if asked.store.is_some() && tells {
        let name = if form.searches { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
        return Err(Stop::Error(format!("ERR {name} is not compatible with WITHDIST, WITHHASH and WITHCOORD options")));
    }
    let name = String::from_utf8_lossy(args.get(0)).into_owned();
    if form.searches && froms == 0 {
        return Err(Stop::Error(format!("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}")));
    }
    if form.searches && bys == 0 {
        return Err(Stop::Error(format!("ERR exactly one of BYRADIUS and BYBOX can be specified for {name}")));
    }
    if asked.any && asked.count == 0 {
        return Err("ERR the ANY argument requires COUNT argument".into());
    }
    if asked.count > 0 && !asked.any && asked.order.is_none() {
        asked.order = Some(Ordering::Less);
    }
    Ok(asked)
}

// ---- searching ------------------------------------------------------------------------------------------------

struct Found {
    member: Vec<u8>,
    score: f64,
    distance: f64,
}

/// Members in an area, so many at most if it is not 0.
fn within(c: &Context<'_>, head: &Head, area: &Area, most: usize) -> Outcome<Vec<Found>> {
    let mut found = Vec::new();
    for cell in area.cells() {
        if most > 0 && found.len() >= most {
            break;
        }
        let (from, to) = cell.scores();
        each(c, score_keys(head, Bound::Included(from), Bound::Excluded(to)), &mut |member, score| {
            if let Some(distance) = area.distance(Point::of(score)) {
                found.push(Found { member: member.to_vec(), score, distance });
            }
            if most > 0 && found.len() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    Ok(found)
}

fn search(c: &mut Context<'_>, args: &Arguments<'_>, form: Form) -> Outcome {
    let source = if form.searches && !form.reads { 2 } else { 1 };
    let head = c.head(args.get(source), Kind::Sorted)?;
    let asked = asked(c, args, form, head.as_ref())?;
    let (Some(head), Some(around), Some((shape, metres))) = (head, asked.around, asked.shape) else {
        return answer_nothing(c, asked.store);
    };
    let area = Area { around, shape };
    let mut found = within(c, &head, &area, if asked.any { asked.count } else { 0 })?;
    if found.is_empty() {
        return answer_nothing(c, asked.store);
    }
    if let Some(order) = asked.order {
        found.sort_by(|a, b| {
            let by = a.distance.total_cmp(&b.distance);
            if order == Ordering::Less { by } else { by.reverse() }
        });
    }
    if asked.count > 0 {
        found.truncate(asked.count);
    }
    found.iter_mut().for_each(|one| one.distance /= metres);
    if let Some(to) = asked.store {
        let score = |one: &Found| if asked.store_distance { one.distance } else { one.score };
        let members: Vec<Scored> = found
            .into_iter()
            .map(|one| {
                let score = score(&one);
                (one.member, score)
            })
            .collect();
        store(c, to, &members, false)?;
        c.reply.int(members.len() as i64);
        return Ok(());
    }
    let more = usize::from(asked.with_distance) + usize::from(asked.with_hash) + usize::from(asked.with_place);
    c.reply.array(found.len());
    for one in &found {
        if more > 0 {
            c.reply.array(1 + more);
        }
        c.reply.bulk(&one.member);
        if asked.with_distance {
            c.reply.bulk(format!("{:.4}", one.distance).as_bytes());
        }
        if asked.with_hash {
            c.reply.int(one.score as i64);
        }
        if asked.with_place {
            tell(c, Point::of(one.score));
        }
    }
    Ok(())
}

fn answer_nothing(c: &mut Context<'_>, to: Option<&[u8]>) -> Outcome {
    match to {
        Some(to) => {
            store(c, to, &[], false)?;
            c.reply.int(0);
        }
        None => c.reply.array(0),
    }
    Ok(())
}

// ---- the others -----------------------------------------------------------------------------------------------

fn geoadd(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let (mut at, mut new, mut old, mut changed) = (2, false, false, false);
    while at < args.len() {
        match args.get(at) {
            o if is(o, "NX") => new = true,
            o if is(o, "XX") => old = true,
            o if is(o, "CH") => changed = true,
            _ => break,
        }
        at += 1;
    }
    if at == args.len() || !(args.len() - at).is_multiple_of(3) || new && old {
        return Err(SYNTAX.into());
    }
    let points = (at..args.len()).step_by(3).map(|at| Ok(point(args.get(at), args.get(at + 1))?.score()));
    let scores = points.collect::<Outcome<Vec<f64>>>()?;
    add_scored(c, args.get(1), &scores, args.from(at + 2).step_by(3).collect(), (new, old, changed))
}

fn points(c: &Context<'_>, args: &Arguments<'_>) -> Outcome<Vec<Option<Point>>> {
    let head = c.head(args.get(1), Kind::Sorted)?;
    args.from(2).map(|member| Ok(score_of(c, head.as_ref(), member)?.map(Point::of))).collect()
}

/// A number as Redis writes places: all digits, but for zeros at the end.
fn human(number: f64) -> String {
    let text = format!("{number:.17}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn tell(c: &mut Context<'_>, point: Point) {
    c.reply.array(2);
    for number in [point.longitude, point.latitude].map(human) {
        if c.reply.three {
            c.reply.raw(format!(",{number}\r\n").as_bytes());
        } else {
            c.reply.bulk(number.as_bytes());
        }
    }
}

fn geopos(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let points = points(c, args)?;
    c.reply.array(points.len());
    for point in points {
        match point {
            Some(point) => tell(c, point),
            None => c.reply.null_array(),
        }
    }
    Ok(())
}

fn geohash(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let points = points(c, args)?;
    c.reply.array(points.len());
    points.into_iter().for_each(|point| c.reply.maybe(point.map(Point::letters).as_ref().map(|text| &text[..])));
    Ok(())
}

fn geodist(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let metres = match args.len() {
        4 => 1.0,
        5 => unit(args.get(4))?,
        _ => return Err(SYNTAX.into()),
    };
    let head = c.head(args.get(1), Kind::Sorted)?;
    let [one, other] = [2, 3].map(|at| score_of(c, head.as_ref(), args.get(at)));
    match (one?, other?) {
        (Some(one), Some(other)) => {
            let distance = Point::of(one).distance(Point::of(other)) / metres;
            c.reply.bulk(format!("{distance:.4}").as_bytes());
        }
        _ => c.reply.null(),
    }
    Ok(())
}
