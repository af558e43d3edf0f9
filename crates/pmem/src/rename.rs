//! Regions get other names, and the pool another layout, in one update of the header: what belongs to which name changes at once, or not at all.

use crate::error::{Error, Result};
use crate::header::{NAME_MAX, name_bytes};
use crate::pool::Pool;

impl Pool {
    /// Gives each region that is named first the name that is named second, and the pool another layout if one is told. A crash leaves all of it, or nothing. What the regions hold
    /// stays where it is. Two barriers.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).layout("draft").create(dir.path().join("p"))?;
    /// drop(pool.add_region("new", 4096)?);
    /// pool.rename(&[("new", "journal")], Some("shop-1"))?;
    /// assert_eq!((pool.info().layout.as_str(), pool.region("journal")?.len()), ("shop-1", 4096));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoRegion`]; [`Error::InUse`] while one of the regions is claimed; [`Error::RegionExists`] if there is one of the new name; [`Error::BadName`]; those of a drain.
    pub fn rename(&self, names: &[(&str, &str)], layout: Option<&str>) -> Result<()> {
        self.inner.mapping.check_usable()?;
        // No thread claims one of them before all is done: a claim looks for its entry first.
        let mut state = self.inner.state.lock();
        let mut header = state.header;
        for &(from, to) in names {
            if to.is_empty() {
                return Err(Error::BadName { name: to.to_owned(), max: NAME_MAX });
            }
            if self.inner.claims.lock().contains(from) {
                return Err(Error::InUse { what: format!("region {from:?}") });
            }
            if header.entries().any(|entry| entry.name_str() == Some(to)) {
                return Err(Error::RegionExists { name: to.to_owned() });
            }
            let bytes = name_bytes(to)?;
            let mut found = false;
            for entry in header.regions.iter_mut().filter(|entry| entry.is_used() && entry.name_str() == Some(from)) {
                (entry.name, found) = (bytes, true);
            }
            if !found {
                return Err(Error::NoRegion { name: from.to_owned() });
            }
        }
        if let Some(layout) = layout {
            header.layout = name_bytes(layout)?;
        }
        self.inner.write_header(&mut state, header)?;
        let mut visited = self.inner.visited.lock();
        for &(from, to) in names {
            if visited.remove(from) {
                visited.insert(to.to_owned());
            }
        }
        Ok(())
    }
}
