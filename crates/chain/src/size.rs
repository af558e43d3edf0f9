//! How long blocks are: in steps, so that the map has a byte for each.

/// Blocks begin at multiples of this.
pub(crate) const GRANULE: u64 = 32;

/// How a length stands in the map: granules, exact up to 16, then in steps of an eighth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeCode(u8);

impl SizeCode {
    /// The smallest that has room for so many bytes.
    pub(crate) fn of(len: u64) -> Option<Self> {
        let granules = len.max(1).div_ceil(GRANULE);
        let (mut low, mut high) = (1, u8::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            if Self(middle).granules() >= granules { high = middle } else { low = middle + 1 }
        }
        (Self(high).granules() >= granules).then_some(Self(high))
    }

    fn granules(self) -> u64 {
        let code = u64::from(self.0) - 1;
        if code < 8 { code + 1 } else { (8 + code % 8 + 1) << (code / 8 - 1) }
    }

    pub(crate) fn bytes(self) -> u64 {
        self.granules() * GRANULE
    }

    pub(crate) fn byte(self) -> u8 {
        self.0
    }

    /// As it stands there; 0 is none.
    pub(crate) fn from_byte(byte: u8) -> Self {
        Self(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_has_a_code_that_wastes_little() {
        let mut last = 0;
        for code in 1..=u8::MAX {
            assert!(SizeCode(code).granules() > last, "{code}");
            last = SizeCode(code).granules();
        }
        for len in (1..100_000u64).chain([1 << 30, (1 << 30) + 1]) {
            let room = SizeCode::of(len).unwrap().bytes();
            assert!(room >= len && room - len < GRANULE.max(len / 8 + GRANULE), "{len}: {room}");
        }
        assert!(SizeCode::of(u64::MAX).is_none());
    }
}
