//! Which versions there are of what leaders and replicas say to one another, and how the two ends of a connection agree on one.
//!
//! | version | what it has |
//! |---|---|
//! | 4 | all that [`message`](super::message) does not say to be of a later one; `Look` has this number |
//! | 5 | the answer to `Look` says which versions the replica speaks |
//!
//! A build speaks all versions from [`OLDEST`] to [`NEWEST`], the one before included. A leader's first question, `Look`, has the oldest version that the leader speaks, and the number of
//! that call says the newest: version 4 takes any number, and sends it back. A replica answers in the newest version that both speak ([`Versions::common`]), or with `Failed`; the leader knows by the answer
//! which versions the replica speaks, and keeps that with the way to it ([`Link`](super::candidate::Link)).
//!
//! So a further version is added: its messages behind the others in [`message`](super::message), with the version in `since`; none of them is sent to an end that does not speak it.
//! `Look`, and `Failed` as the answer to it, never change. What a leader would write into the *log* that an earlier build cannot
//! read needs more than the version of a connection: docs/replication.md, "Upgrading".

/// The oldest version that this build speaks: the last one of the builds before it.
pub(crate) const OLDEST: u32 = 4;
/// The newest version of what leaders and replicas say to one another that this build speaks; it speaks the one before, too. Raised when messages change.
pub const NEWEST: u32 = 5;
/// From this one on a leader says which versions it speaks, and a replica does.
const TOLD_SINCE: u32 = 5;
/// Bits of the number of a leader's first call below those that say its newest version: a leader of version 4 begins with 1.
const CALL_BITS: u32 = 16;

/// All versions from one to another, as one end speaks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) oldest: u32,
    pub(crate) newest: u32,
}

/// What this build speaks.
impl Default for Versions {
    fn default() -> Self {
        Self { oldest: OLDEST, newest: NEWEST }
    }
}

impl Versions {
    /// Those of the build before.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) const BEFORE: Self = Self { oldest: 4, newest: 4 };

    /// Of a peer that has said nothing but the version that it uses.
    pub(crate) const fn only(version: u32) -> Self {
        Self { oldest: version, newest: version }
    }

    /// Of a leader, by its `Look`: the oldest one, and the number of that call.
    pub(crate) fn of_look(oldest: u32, call: u32) -> Self {
        let told = call >> CALL_BITS;
        Self { oldest, newest: if told >= TOLD_SINCE { told.max(oldest) } else { oldest } }
    }

    /// The number of the first call of a leader that speaks these.
    pub(crate) const fn first_call(self) -> u32 {
        if self.newest >= TOLD_SINCE { self.newest << CALL_BITS } else { 1 }
    }

    /// Whether this end says which versions it speaks, and understands it.
    pub(crate) const fn tells(version: u32) -> bool {
        version >= TOLD_SINCE
    }

    /// The newest version that both speak.
    pub(crate) fn common(self, other: Self) -> Option<u32> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }

    /// What a replica that speaks these says to a program that speaks `asking`, none of which is among them.
    pub(crate) fn refusal(self, asking: Self) -> String {
        let which = if asking.oldest > self.newest { "it" } else { "the program that asks it" };
        let plural = if self.oldest == self.newest { "" } else { "s" };
        format!("it speaks wire version{plural} {self}, not {asking}: upgrade {which}")
    }
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self { oldest, newest } if oldest == newest => write!(f, "{oldest}"),
            Self { oldest, newest } => write!(f, "{oldest} to {newest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(oldest: u32, newest: u32) -> Versions {
        Versions { oldest, newest }
    }

    /// Each end is of any build there may be: both come to the same version, or to none.
    #[test]
    fn both_ends_agree_on_the_newest_that_both_speak() {
        let all = || (1..9).flat_map(|oldest| (oldest..9).map(move |newest| versions(oldest, newest)));
        for (one, other) in all().flat_map(|one| all().map(move |other| (one, other))) {
            let both =
                (1..9).filter(|v| (one.oldest..=one.newest).contains(v) && (other.oldest..=other.newest).contains(v));
            assert_eq!(one.common(other), both.max(), "{one:?} {other:?}");
            assert_eq!(one.common(other), other.common(one), "{one:?} {other:?}");
        }
    }

    #[test]
    fn a_leaders_first_question_says_what_it_speaks() {
        for leader in [versions(4, 5), versions(5, 5), versions(5, 6), versions(4, 4), versions(3, 3)] {
            assert_eq!(Versions::of_look(leader.oldest, leader.first_call()), leader);
        }
        assert_eq!(Versions::BEFORE.first_call(), 1, "as version 4 begins");
        // Whatever a peer sends is something.
        for (oldest, call) in [(0, 0), (u32::MAX, 0), (9, u32::MAX), (u32::MAX, u32::MAX), (7, 5 << CALL_BITS)] {
            let found = Versions::of_look(oldest, call);
            assert!(found.oldest <= found.newest, "{found:?}");
        }
    }

    #[test]
    fn a_build_speaks_the_version_of_the_one_before() {
        assert_eq!(Versions::default(), versions(NEWEST - 1, NEWEST));
        assert_eq!(Versions::default().common(Versions::BEFORE), Some(4));
    }

    #[test]
    fn a_refusal_says_which_program_is_to_be_upgraded() {
        let said = |replica: Versions, leader| replica.refusal(leader);
        assert_eq!(said(versions(4, 4), versions(5, 6)), "it speaks wire version 4, not 5 to 6: upgrade it");
        assert_eq!(said(versions(4, 5), versions(6, 7)), "it speaks wire versions 4 to 5, not 6 to 7: upgrade it");
        assert_eq!(
            said(versions(4, 5), versions(3, 3)),
            "it speaks wire versions 4 to 5, not 3: upgrade the program that asks it"
        );
    }
}
