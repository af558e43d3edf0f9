//! An array that an earlier build left on files, without closing it, is used as it is.

use eaw::array::Options;
use pmem::DomainChoice;

use crate::left::left;

#[test]
fn an_array_of_an_earlier_build_is_recovered_read_and_written() {
    for domain in [DomainChoice::File, DomainChoice::Emulated] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let member = |name, text| {
            let folder = dir.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            left(&folder, text)
        };
        let members =
            [member("one", include_str!("version_1/one.txt")), member("other", include_str!("version_1/other.txt"))];
        let options = Options::new().pool(pmem::Options::new().domain(domain));
        let mut expected: Vec<u8> = (1..=20).flat_map(|byte| [byte; 64]).collect();
        for round in 0..4 {
            let array = options.open(&members).unwrap();
            let recovered = array.recovered();
            assert!(recovered.lost.is_empty() && recovered.in_doubt == 0, "round {round}: {recovered:?}");
            assert_eq!(recovered.applied > 0, round == 0 || round == 2, "round {round}: {recovered:?}");
            let file = array.file("pages").unwrap();
            for at in [0, 4096] {
                let mut bytes = vec![0; expected.len()];
                array.read(&file, at, &mut bytes).unwrap();
                assert!(bytes == expected, "round {round}, at {at}");
            }
            for at in [0, 4096] {
                array.atomic_write(&file, at + 64 * round, &[100 + round as u8; 64]).unwrap();
            }
            expected[64 * round as usize..][..64].fill(100 + round as u8);
            if round % 2 == 0 { array.close().unwrap() } else { array.abandon() }
        }
    }
}
