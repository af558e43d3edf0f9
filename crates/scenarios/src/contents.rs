//! Objects and what each of them holds, to the byte, for the engines that keep objects.

use std::collections::BTreeMap;

use crash::{History, Violation};

/// Begins the object in which the check itself counts, a word for each slot.
pub(crate) const PROBE: u64 = 0x50_726F_6265_2121;

/// What an object holds; nothing once it is freed.
pub(crate) type Contents = Option<Vec<u8>>;
pub(crate) type Objects = BTreeMap<u64, Vec<u8>>;

/// What a commit changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect(pub(crate) BTreeMap<u64, Contents>);

impl Effect {
    pub(crate) fn apply(&self, objects: &mut Objects) {
        for (&at, contents) in &self.0 {
            match contents {
                Some(bytes) => drop(objects.insert(at, bytes.clone())),
                None => drop(objects.remove(&at)),
            }
        }
    }
}

/// All that was acknowledged, from what was there at first on, and some of what is in doubt, each whole.
pub(crate) fn held(found: &Objects, mut sure: Objects, history: &History<Effect>) -> Result<(), Violation> {
    history.acknowledged.iter().for_each(|effect| effect.apply(&mut sure));
    let allowed = (0..1u32 << history.in_doubt.len().min(4)).map(|chosen| {
        let mut objects = sure.clone();
        let some = history.in_doubt.iter().enumerate().filter(|(n, _)| chosen >> n & 1 != 0);
        some.for_each(|(_, effect)| effect.apply(&mut objects));
        objects
    });
    let mut differences = Vec::new();
    for right in allowed {
        match difference(found, &right) {
            None => return Ok(()),
            Some(wrong) => differences.push(wrong),
        }
    }
    Err(Violation::new(differences.join(", or ")))
}

/// The first one, in words.
pub(crate) fn difference(found: &Objects, right: &Objects) -> Option<String> {
    for (at, bytes) in found {
        let Some(wanted) = right.get(at) else {
            return Some(format!("the object at {at}, of {} bytes, is nobody's", bytes.len()));
        };
        if let Some(n) = (0..bytes.len().max(wanted.len())).find(|n| bytes.get(*n) != wanted.get(*n)) {
            let (is, should) = (bytes.get(n), wanted.get(n));
            return Some(format!("byte {n} of the object at {at} is {is:?}, and should be {should:?}"));
        }
    }
    right.keys().find(|at| !found.contains_key(at)).map(|at| format!("the object at {at} is lost"))
}
