use pmem::*;
use std::time::Instant;
fn main() -> Result<()> {
    let p = "/dev/shm/pair.cairn";
    let _ = std::fs::remove_file(p);
    let pool = Options::new().size(1 << 30).create(p)?;
    let heap = Allocator::create(&pool, "heap", 256 << 20, HeapOptions::default())?;
    for threads in [1usize, 2, 4] {
        let mut rings: Vec<_> = (0..threads).map(|i| { let g = |n: &str| pool.add_region(&format!("{n}{threads}{i}"), 1 << 20).unwrap().into_area().unwrap(); (Ring::create(g("r")).unwrap(), g("d")) }).collect();
        let n = 100_000u32;
        let run = |(mut ring, mut data): (Ring, Area), mode: u32, seed: u32| {
            let mut set = FlushSet::default();
            let mut live: Vec<Block> = (0..1000).map(|_| { let b = heap.reserve(128, 8).unwrap(); heap.apply(&Intent::alloc(&b), &mut set).unwrap(); b }).collect();
            pool.flush_set(&mut set).unwrap();
            pool.drain().unwrap();
            let mut pending: Vec<Intent> = vec![]; let mut rel = vec![];
            let batch = mode as usize;
            let t = Instant::now();
            let mut x = seed;
            for k in 0..n {
                x = x.wrapping_mul(1664525).wrapping_add(1013904223);
                let at = (k as u64 % 8000) * 128;
                if mode == 0 {
                    data.bytes_mut(at, 128).unwrap().fill(k as u8); data.flush(at, 128).unwrap();
                    let a = ring.append(&[&[k as u8; 32]]).unwrap(); ring.force().unwrap(); ring.retire(a.end);
                    let a = ring.append(&[&[k as u8; 32]]).unwrap(); ring.force().unwrap(); ring.retire(a.end);
                } else {
                    let b = heap.reserve(128, 8).unwrap();
                    let i = Intent::alloc(&b);
                    data.bytes_mut(at, 128).unwrap().fill(k as u8); data.flush(at, 128).unwrap();
                    let mut a = ring.append(&[bytes_of(&i), &[0; 16]]).unwrap(); ring.force().unwrap();
                    pending.push(i);
                    let slot = x as usize % live.len();
                    let old = std::mem::replace(&mut live[slot], b);
                    heap.begin_free(&old).unwrap();
                    let i = Intent::free(&old);
                    if pending.len() >= batch { pool.flush_set(&mut set).unwrap(); }
                    a = ring.append(&[bytes_of(&i), &[0; 16]]).unwrap(); ring.force().unwrap();
                    pending.push(i); rel.push(old);
                    if pending.len() >= 2*batch {
                        for i in pending.drain(..) { heap.apply(&i, &mut set).unwrap(); }
                        pool.flush_set(&mut set).unwrap();
                        for r in rel.drain(..) { heap.release(r).unwrap(); }
                    }
                    ring.retire(a.end);
                }
            }
            let ns = t.elapsed().as_nanos() as f64 / n as f64;
            for r in rel.drain(..) { heap.release(r).unwrap(); }
            for b in live { heap.begin_free(&b).unwrap(); heap.apply(&Intent::free(&b), &mut set).unwrap(); heap.release(b).unwrap(); }
            (ns, (ring, data))
        };
        for round in 0..3 {
            let mut res = [0.0; 3];
            for (k, mode) in [0, 1, 16].into_iter().enumerate() {
                let rs = std::mem::take(&mut rings);
                let out: Vec<_> = std::thread::scope(|s| rs.into_iter().enumerate().map(|(i, r)| { let run = &run; s.spawn(move || run(r, mode, i as u32 + round)) }).collect::<Vec<_>>().into_iter().map(|h| h.join().unwrap()).collect());
                res[k] = out.iter().map(|o| o.0).sum::<f64>() / threads as f64;
                rings = out.into_iter().map(|o| o.1).collect();
            }
            println!("{threads} threads: base pair {:.0} ns, batch 1 extra {:.0}, batch 16 extra {:.0}", res[0], res[1] - res[0], res[2] - res[0]);
        }
    }
    Ok(())
}
