fn copy(area: &pmem::Area) -> pmem::Area {
    area.clone()
}

fn main() {}
