fn main() -> pmem::Result<()> {
    for dir in ["/dev/shm", "/tmp"] {
        let p = format!("{dir}/smoke.cairn");
        let _ = std::fs::remove_file(&p);
        let t = std::time::Instant::now();
        let pool = pmem::Options::new().size(64 << 20).create(&p)?;
        println!("{} created {:?} {:?}", pool.domain(), t.elapsed(), pool.stats());
        let mut a = pool.add_region("a", 1 << 20)?.into_area()?;
        let data = [7u8; 1024];
        for (len, n) in [(64usize, 200_000), (256, 100_000), (1024, 100_000)] {
            let n = if pool.domain() == pmem::Domain::File { 200 } else { n };
            let t = std::time::Instant::now();
            for i in 0..n { let at = (i as u64 * 1024) % (1 << 20); a.copy_nt(at, &data[..len])?; a.drain()?; }
            let nt = t.elapsed() / n;
            let t = std::time::Instant::now();
            for i in 0..n { let at = (i as u64 * 1024) % (1 << 20); a.bytes_mut(at, len)?.copy_from_slice(&data[..len]); a.flush(at, len as u64)?; a.drain()?; }
            println!("{len}: nt {:?} flush {:?}", nt, t.elapsed() / n);
        }
        println!("{:?}", pool.info());
        drop(a);
        pool.close()?;
        pmem::Options::new().open_read_only(&p)?;
        let t = std::time::Instant::now();
        let pool = pmem::Options::new().open(&p)?;
        println!("open {:?} clean {} {:?}", t.elapsed(), pool.was_clean(), pmem::Options::new().open(&p).unwrap_err());
    }
    Ok(())
}
