//! Opens what libFuzzer makes of the reference pools, and raw bytes, under the judge of the test suite.
//!
//! The first byte chooses: a whole file of raw bytes, or mutations of one of the reference pools, with checksums recomputed or not.

#![no_main]

use std::cell::RefCell;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use scenarios::damage::{Claim, Judge, Mutation, Reference, Variant};

static REFERENCES: LazyLock<Vec<Reference>> =
    LazyLock::new(|| Variant::ALL.iter().map(|&v| Reference::new(v).expect("the reference pool is built")).collect());

thread_local! {
    static JUDGE: RefCell<Judge> = RefCell::new(Judge::new());
}

fuzz_target!(|input: &[u8]| {
    let Some((&choice, mut script)) = input.split_first() else { return };
    let reference = &REFERENCES[usize::from(choice) % REFERENCES.len()];
    let (bytes, claim) = if choice >= 240 {
        // Behind a header that is whole, so that something gets past it.
        let mut bytes = reference.bytes().to_vec();
        let from = if choice >= 248 { 0 } else { 8192 };
        bytes.truncate(from);
        bytes.extend(script.iter().take(Mutation::LEN_MAX - from));
        (bytes, Claim::Sane)
    } else {
        let mut bytes = reference.bytes().to_vec();
        let mut left = 8;
        while left > 0
            && let Some(mutation) = Mutation::parse(&mut script, reference)
        {
            mutation.apply(&mut bytes);
            left -= 1;
        }
        if choice % 2 == 1 {
            reference.rechecksum(&mut bytes);
        }
        (bytes, if choice % 2 == 1 { Claim::Sane } else { Claim::Detected })
    };
    let verdict = JUDGE.with_borrow_mut(|judge| {
        let outcome = judge.judge(reference, &bytes, claim)?;
        judge.go_on(&outcome)
    });
    if let Err(failure) = verdict {
        panic!("{:?} {claim:?}: {failure}", reference.variant());
    }
});
