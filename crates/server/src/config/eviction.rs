//! Which keys go when there is no room.

/// Which keys go when there is no room (`maxmemory-policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// None: writes are refused.
    #[default]
    Never,
    /// Of all keys.
    All(By),
    /// Of those that expire.
    Volatile(By),
    /// Of those that expire the ones that do so first.
    VolatileTtl,
}

/// By what a key is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// That was used longest ago.
    Lru,
    /// That is used least often.
    Lfu,
    /// Any.
    Random,
}

impl Eviction {
    const NAMES: [(&str, Self); 8] = [
        ("volatile-lru", Self::Volatile(By::Lru)),
        ("volatile-lfu", Self::Volatile(By::Lfu)),
        ("volatile-random", Self::Volatile(By::Random)),
        ("volatile-ttl", Self::VolatileTtl),
        ("allkeys-lru", Self::All(By::Lru)),
        ("allkeys-lfu", Self::All(By::Lfu)),
        ("allkeys-random", Self::All(By::Random)),
        ("noeviction", Self::Never),
    ];

    /// By Redis' name of it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, policy)| *policy)
    }

    /// Redis' name of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, policy)| *policy == self).map_or("noeviction", |(name, _)| name)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(name, _)| *name)
    }

    pub(crate) fn by(self) -> Option<By> {
        match self {
            Self::All(by) | Self::Volatile(by) => Some(by),
            Self::VolatileTtl | Self::Never => None,
        }
    }

    pub(crate) fn is_volatile(self) -> bool {
        matches!(self, Self::Volatile(_) | Self::VolatileTtl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_redis_names() {
        for name in Eviction::names() {
            assert_eq!(Eviction::named(&name.to_uppercase()).map(Eviction::name), Some(name));
        }
        assert!(Eviction::named("allkeys").is_none());
        assert_eq!(Eviction::default().name(), "noeviction");
    }
}
