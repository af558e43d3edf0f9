//! A log that was taken over, and has other replicas.

use std::time::Duration;

use super::Core;
use crate::Lsn;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::options::Options;
use crate::recovery::{Reader, Recovered, Tail};
use crate::replicate::candidate::Elected;
use crate::replicate::leading::{Lead, LeadOptions};
use crate::replicate::members::Layout;
use crate::replicate::takeover::Taken;
use crate::replicate::{Joining, Leading, Link};
use crate::space::{NO_MARKER, Space};

/// A thread that changes the replicas looks so often at the clock, and whether they answered what others hear.
const MOMENT: Duration = Duration::from_millis(1);

impl Core {
    /// The log that was taken over, by its new leader.
    pub(crate) fn lead(elected: Elected, lead_options: LeadOptions, options: &Options) -> Result<(Self, Recovered)> {
        let Elected { taken: Taken { config, end, in_doubt, .. }, epoch, owner, own, speaks, image, links } = elected;
        let (pool, failpoints) = (image.pool().clone(), options.failpoints());
        let none = || Error::QuorumUnavailable {
            why: "the leader has no image of the log",
            found: 0,
            missing: Vec::new(),
            away: Vec::new(),
        };
        let (region, geometry, cell, promise, key) = image.into_log().ok_or_else(none)?.into_parts();
        let superline = cell.get();
        let walk = Reader::new(&pool, &region, &geometry, &key, superline, failpoints).walk()?;
        if (walk.lsn, walk.position) != (end.lsn, end.position) {
            return Err(Error::Lost {
                lsn: Lsn(walk.lsn),
                offset: geometry.locate(walk.position),
                through: Lsn(end.lsn - 1),
            });
        }
        let recovered = Recovered {
            records: walk.records,
            bytes: walk.bytes,
            head: Lsn(superline.head_lsn),
            next: Lsn(walk.lsn),
            tail: in_doubt.map_or(Tail::Clean, |lsn| Tail::InDoubt { lsn, offset: 0 }),
            was_closed: false,
            superline_repaired: false,
        };
        let links = links.into_iter().map(|(_, link)| link).collect();
        let lead = Lead { links, config, own, epoch, owner, speaks, lead_options };
        let leading = Leading::new(lead, end, superline.head(), promise, &geometry, failpoints);
        let mut space = Space::new(&pool, region, geometry, cell, walk.lsn, walk.position, walk.opened, failpoints);
        space.known_head = Some(superline.head_position);
        space.marker = NO_MARKER;
        // No watermark: its replicas say what the log has.
        let image = Image::new(&pool, key, None, space, options.waits_for_room());
        let core = Self { leading: Some(leading), streams_from: u64::MAX, ..Self::of(image, options) };
        Ok((core, recovered))
    }

    /// Lets a moment pass, in which the replicas are heard, by this thread or by another.
    pub(crate) fn listen(&self) {
        if let Some(leading) = &self.leading
            && !leading.listen(&self.image, MOMENT)
        {
            leading.pause(MOMENT);
        }
    }

    /// A replica joins, over this connection; a new one if there is an id for it.
    pub(crate) fn join(
        &self,
        link: Link,
        receiver: Box<dyn fabric::Receiver>,
        new_id: Option<u64>,
        pump: &mut dyn FnMut(),
        timeout: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(usize, Box<dyn fabric::Receiver>)> {
        let Some(leading) = &self.leading else {
            let next = "make a replicated one, and append its records there";
            return Err(Error::NotReplicated { what: "take a replica in", next });
        };
        let (log, segment_bytes, segments) = {
            let space = self.image.space();
            (space.superline.id, space.geometry.segment_bytes, space.geometry.circle.segments())
        };
        let (key, checksums) = leading.secret();
        let layout = Layout { log, key, segment_bytes, segments, checksums };
        let mark = &|| Ok(self.put_watermark()?.0);
        Joining { image: &self.image, leading, link, receiver, mark, pump, timeout, is_over }.join(layout, new_id)
    }
}
