use pmem::{Layout, Persist};

#[derive(Clone, Copy)]
struct Flag(bool);

impl Persist for Flag {
    const LAYOUT: Layout = Layout::primitive::<bool>("bool");
}

fn main() {}
