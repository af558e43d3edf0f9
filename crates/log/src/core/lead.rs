//! A log that was taken over.

use pmem::Pool;

use super::{Core, failpoints};
use crate::Lsn;
use crate::at::At;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::recovery::{Reader, Recovered, Tail};
use crate::replicate::{Lead, Leading, Log as CopyOfLog};
use crate::space::{NO_MARKER, Space};

impl Core {
    /// The log that was taken over, by its new leader.
    pub(crate) fn lead(
        pool: &Pool,
        image: CopyOfLog,
        end: At,
        lead: Lead,
        options: &Options,
    ) -> Result<(Self, Recovered)> {
        let failpoints = failpoints(options);
        let (region, geometry, cell, promise, key) = image.into_parts();
        let superline = cell.get();
        let offset = geometry.offset(0);
        let walk = Reader::new(pool, &region, &geometry, &key, superline, failpoints).walk()?;
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
            tail: Tail::Clean,
            was_closed: false,
            superline_repaired: false,
        };
        let leading = Leading::new(lead, end, superline.head(), promise, &geometry, failpoints);
        let mut space = Space::new(pool, region, geometry, cell, walk.lsn, walk.position, walk.opened, failpoints);
        space.known_head = Some(superline.head_position);
        let mut core = Self::assemble(pool, offset, options, space);
        (core.key, core.leading) = (key, Some(leading));
        core.streams_from = u64::MAX;
        core.watermark = None; // its copies say what the log has
        core.space().marker = NO_MARKER;
        Ok((core, recovered))
    }
}
