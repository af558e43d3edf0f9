//! Bytes of an object in DRAM, aligned as they would be in a mapped pool.

/// As good as a mapping's alignment for every type but a few.
const ALIGN_MIN: u64 = 64;

/// `len` bytes whose address and offset in the pool are the same modulo the alignment: every pointer into the object is as aligned
/// as its offset says.
#[derive(Debug)]
pub struct Buffer {
    memory: Box<[u8]>,
    from: usize,
    len: usize,
    offset: u64,
    align: u64,
}

impl Buffer {
    /// All zero, for an object at `offset`.
    pub fn zeroed(offset: u64, len: u64, align: u64) -> Self {
        let align = align.max(ALIGN_MIN);
        let memory = vec![0; (len + align) as usize].into_boxed_slice();
        let from = (offset.wrapping_sub(memory.as_ptr().addr() as u64) % align) as usize;
        Self { memory, from, len: len as usize, offset, align }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.from..][..self.len]
    }

    /// Its bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..][..self.len]
    }
}

impl Clone for Buffer {
    /// At another address, so the bytes begin elsewhere in the memory.
    fn clone(&self) -> Self {
        let mut copy = Self::zeroed(self.offset, self.len as u64, self.align);
        copy.bytes_mut().copy_from_slice(self.bytes());
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_as_aligned_as_the_offset() {
        for (offset, align) in [(4096, 4096), (8192 + 16, 16), (64, 64), (12_288 + 48, 8)] {
            let mut buffer = Buffer::zeroed(offset, 100, align);
            buffer.bytes_mut()[99] = 7;
            let copies: Vec<Buffer> = (0..20).map(|_| buffer.clone()).collect();
            for copy in &copies {
                assert_eq!(copy.bytes().as_ptr().addr() as u64 % align.max(64), offset % align.max(64));
                assert_eq!((copy.bytes().len(), copy.bytes()[99]), (100, 7));
            }
        }
    }
}
