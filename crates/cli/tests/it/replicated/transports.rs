//! How leader and copies reach each other.

#[cfg(feature = "libfabric")]
use super::{cluster::Cluster, commands::feed};
use crate::{cairn, temp};

#[test]
fn what_is_no_transport_is_refused() {
    let dir = temp();
    let wrong = |fabric: &str, what: &str| {
        for command in ["log-replica copy --listen 127.0.0.1:0", "log append --replica 127.0.0.1:1"] {
            let run = cairn(dir.path(), &format!("{command} --fabric {fabric}"));
            assert!(run.code == 2 && run.err.contains(what), "{command} --fabric {fabric}: {run:?}");
        }
    };
    wrong("udp", "tcp, or libfabric:PROVIDER");
    wrong("libfabric:", if cfg!(feature = "libfabric") { "libfabric:PROVIDER" } else { "built without libfabric" });
    #[cfg(not(feature = "libfabric"))]
    wrong("libfabric:verbs", "make setup-fabric");
}

#[cfg(feature = "libfabric")]
#[test]
fn records_travel_by_libfabric() {
    let mut cluster = Cluster::new(3, None, 0, "--fabric libfabric:tcp");
    let copies = format!("{} --fabric libfabric:tcp", cluster.copies());
    cluster.done(0, &format!("log create --bytes 1M --segment 64K --write-quorum 2 {copies}"));
    assert_eq!(feed(&cluster, &format!("log append {copies}"), "one\n").0, 0);
    cluster.replica(1).kill();
    assert_eq!(feed(&cluster, &format!("log append {copies}"), "two\n").0, 0);
    assert_eq!(cluster.done(0, &format!("log cat {copies}")).out, "one\ntwo\n");
    let replicas = cluster.run(0, &format!("log replicas {copies}"));
    assert_eq!(replicas.out.matches("each record on 2 of 3 replicas").count(), 2, "{replicas:?}");

    // Both have to mean the same.
    let by_tcp = cluster.run(0, &format!("log cat {}", cluster.copies()));
    assert!(by_tcp.code == 2 && by_tcp.failure().0.contains("do not make a quorum"), "{by_tcp:?}");
    let none =
        cairn(cluster.dir.path(), "log-replica new --listen 127.0.0.1:0 --secret-file secret --fabric libfabric:none");
    assert!(none.code == 2 && none.failure().0.contains("libfabric's provider none"), "{none:?}");
}
