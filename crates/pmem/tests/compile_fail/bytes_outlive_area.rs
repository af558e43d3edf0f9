fn outlive(area: pmem::Area) -> pmem::Result<&'static [u8]> {
    area.bytes(0, 8)
}

fn main() {}
