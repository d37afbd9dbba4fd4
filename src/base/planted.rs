//! Mistakes that are made on purpose, so that the checks that must find them are checked themselves.
//!
//! Each stands for one rule, which is broken on the thread on which the mistake is planted. Without
//! the feature `testing` none can be planted, and every question for one is a constant. It knows no
//! rule: each place that holds one asks for its own mistake.

/// A mistake that can be planted: what goes wrong while it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PlantedBug {
    /// An append is answered before its transaction has ended.
    AnswersBeforeCommit,
    /// A commit whose outcome is unknown counts as failed, and is decided again.
    UnknownTakenForFailure,
    /// A commit whose outcome is unknown counts as done.
    UnknownTakenForSuccess,
    /// A read is answered from a state whose appends have failed.
    FailedStateAnswers,
    /// A key in memory is believed without asking whether another host has written it.
    HeadNotConfirmed,
    /// A unit of work writes only its first key.
    UnitWritesFirstKeyAlone,
    /// A copy is put whoever signed it.
    AnySignerBelieved,
    /// A copy is put however far its stamp is in the future.
    FutureStampTaken,
    /// A command under an id that is known is carried out once more.
    KnownCommandRunsAgain,
    /// An append is written although another host has written since it was decided.
    HeadNotCompared,
    /// An append is written although its lease is lost.
    FenceNotJudged,
    /// A sweep leaves the earlier events in the journal.
    ErasureLeavesEvents,
    /// The hash of an event leaves out when it was written.
    ChainSkipsTime,
    /// The hash of an event leaves out the command that wrote it.
    ChainSkipsCommand,
    /// The row of a trim stays when the trim is cleared.
    ClearedTrimKeepsRow,
    /// A write that was begun is handed out as one that was not.
    StartedSendHandedOut,
    /// A read that began too early proves that nothing was written.
    EarlyReadProves,
    /// A deferred operation waits for nothing.
    DeferredIsNeverDue,
    /// A lower decision takes the place of a higher one.
    LowerDecisionWins,
    /// A prune takes the last valid copy.
    PruneLosesDecision,
    /// A lease is taken while another holder's runs.
    LeaseTakenEarly,
    /// Progress is written over a sync state that was deleted and created anew.
    IncarnationIgnored,
    /// A page is taken although one before it is missing.
    PageGapTaken,
    /// An enumeration is complete although the provider counts more entities.
    ShortEnumerationCompletes,
    /// A commit makes any number of documents candidates.
    MassDeleteUnguarded,
    /// A candidate whose entity is there again stays.
    KeptAgainStaysCandidate,
    /// The checkpoint moves at the commit, whatever is left to sweep.
    CheckpointMovesAtCommit,
    /// An authorization can be consumed again.
    AuthorizationStays,
}

#[cfg(any(test, feature = "testing"))]
mod switch {
    use std::cell::Cell;
    use std::marker::PhantomData;

    use super::PlantedBug;

    thread_local! {
        static PLANTED: Cell<Option<PlantedBug>> = const { Cell::new(None) };
    }

    /// The mistake is made on this thread until this is dropped.
    #[derive(Debug)]
    #[must_use = "dropped, it ends what it planted"]
    pub struct Planted {
        before: Option<PlantedBug>,
        /// It must end on the thread on which it began.
        _stays: PhantomData<*const ()>,
    }

    impl PlantedBug {
        /// All of them.
        pub const ALL: [Self; 28] = [
            Self::AnswersBeforeCommit,
            Self::UnknownTakenForFailure,
            Self::UnknownTakenForSuccess,
            Self::FailedStateAnswers,
            Self::HeadNotConfirmed,
            Self::UnitWritesFirstKeyAlone,
            Self::AnySignerBelieved,
            Self::FutureStampTaken,
            Self::KnownCommandRunsAgain,
            Self::HeadNotCompared,
            Self::FenceNotJudged,
            Self::ErasureLeavesEvents,
            Self::ChainSkipsTime,
            Self::ChainSkipsCommand,
            Self::ClearedTrimKeepsRow,
            Self::StartedSendHandedOut,
            Self::EarlyReadProves,
            Self::DeferredIsNeverDue,
            Self::LowerDecisionWins,
            Self::PruneLosesDecision,
            Self::LeaseTakenEarly,
            Self::IncarnationIgnored,
            Self::PageGapTaken,
            Self::ShortEnumerationCompletes,
            Self::MassDeleteUnguarded,
            Self::KeptAgainStaysCandidate,
            Self::CheckpointMovesAtCommit,
            Self::AuthorizationStays,
        ];

        /// Makes this mistake on the calling thread, in the place of any other, for as long as the
        /// answer is kept. Of a store it reaches what runs on that thread: all of it, when it was
        /// opened with [`StoreBuilder::on_this_thread`](crate::StoreBuilder::on_this_thread).
        pub fn plant(self) -> Planted {
            Planted { before: PLANTED.replace(Some(self)), _stays: PhantomData }
        }
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.set(self.before);
        }
    }

    pub(crate) fn is_planted(bug: PlantedBug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(any(test, feature = "testing"))]
pub use switch::Planted;
#[cfg(any(test, feature = "testing"))]
pub(crate) use switch::is_planted;

/// No mistake can be planted.
#[cfg(not(any(test, feature = "testing")))]
pub(crate) const fn is_planted(_: PlantedBug) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_is_planted_alone_on_one_thread_and_until_its_guard_ends() {
        for bug in PlantedBug::ALL {
            let planted = bug.plant();
            for other in PlantedBug::ALL {
                assert_eq!(is_planted(other), other == bug, "{other:?} beside {bug:?}");
            }
            let elsewhere = std::thread::spawn(move || is_planted(bug));
            assert!(!elsewhere.join().unwrap());
            drop(planted);
            assert!(!is_planted(bug));
        }
    }
}
