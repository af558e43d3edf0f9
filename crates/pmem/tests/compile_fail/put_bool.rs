#[derive(Clone, Copy)]
struct Flag {
    set: bool,
}

fn put(area: &mut pmem::Area) -> pmem::Result<()> {
    area.put(0, &Flag { set: true })?;
    area.put(8, &true)
}

fn main() {}
