//! The catalogue of faults, and when each strikes: as it was planned, or by chance from the seed.
//!
//! It knows when a fault may strike, not what comes of it.

use std::mem::discriminant;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::testing::chance::draw;

/// A fault that real providers have shown. Each tells what happens in the field, what becomes of it
/// with a naive client, and what in this crate stands against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProviderFault {
    /// A scope was lost or an error swallowed: the listing answers 200 with nothing in it, and says
    /// that this was all.
    ///
    /// *Naive:* everything is deleted. *Against it:* the mass-delete guard of
    /// [`ConnectorRef::commit_receipt`](crate::ConnectorRef::commit_receipt), and behind it the candidate that
    /// is only deleted once the provider was asked about it.
    EmptyPage,
    /// A page that others should follow says that it is the last. The answer has no total.
    ///
    /// *Naive:* what was on the other pages is deleted. *Against it:* what a receipt lacks is a
    /// candidate, and asked about by [`SweepOutcome`](crate::SweepOutcome) before anything is deleted.
    TruncatedListing,
    /// The cursor of the next page leads to the same page once more.
    ///
    /// *Naive:* each entity of the page is mirrored twice. *Against it:* a receipt counts distinct ids, so
    /// the total agrees; documents are named after their entities.
    PageRepeated,
    /// Others write while the listing goes on, which shifts what is numbered by place, and a later page is
    /// passed over.
    ///
    /// *Naive:* the entities of the page are deleted. *Against it:* the total of the last page: a receipt that saw less
    /// is never complete.
    PageSkipped,
    /// The cursor is answered 410, in the middle of a listing or at the changes. So are all that were
    /// given before.
    ///
    /// *Naive:* it lists everything anew, where no tombstones are, so that what was deleted in between stays for ever.
    /// *Against it:* [`ConnectorRef::cursor_lost`](crate::ConnectorRef::cursor_lost): the partition owes a
    /// sweep until a receipt that began later is committed.
    CursorExpired,
    /// The credential leads to another account, as after somebody has signed in anew in the same browser.
    /// Strikes at [`account`](super::Provider::account), a listing or the changes, and holds for all
    /// calls while it lasts.
    ///
    /// *Naive:* all of the one account is deleted, and all of the other mirrored in its place.
    /// *Against it:* the fingerprint of a receipt, compared at each page, and its provenance: candidates of
    /// one account are not asked about in another one.
    AccountSwapped {
        /// How long, on the clock's monotonic time.
        lasts: Duration,
    },
    /// The content of an entity becomes such that no client can take it ([`POISON`]), until somebody
    /// writes it anew. Its version stays the same.
    ///
    /// *Naive:* each round fails at that item, so nothing behind it is ever mirrored; or it is left out and so
    /// deleted. *Against it:* a receipt says what is there, not what could be mirrored.
    ItemPoisoned,
    /// A write is done, and no answer comes.
    ///
    /// *Naive:* it is sent again, and done twice. *Against it:* whoever claims an operation that was marked as sent is
    /// told to ask first ([`Claim::Reconcile`](crate::Claim::Reconcile)).
    WriteTimedOut,
    /// A write is lost on its way, and no answer comes: to the client the same as
    /// [`WriteTimedOut`](Self::WriteTimedOut).
    ///
    /// *Naive:* a client that has learnt not to send again loses the write. *Against it:*
    /// [`ClaimedOperation::record_not_written`](crate::ClaimedOperation::record_not_written), after which it may
    /// be sent again.
    WriteLost,
    /// A write is done and answered 503, by a gateway that had waited long enough.
    ///
    /// *Naive:* "not available" is taken for "not done", and sent again. *Against it:* as with
    /// [`WriteTimedOut`](Self::WriteTimedOut); only a definite refusal clears the mark.
    UnavailableButDone,
    /// A write is done, and reads show the state before it for a while.
    ///
    /// *Naive:* it reads back, does not find its write, and writes again; or what it has just made is missing from a
    /// listing, and deleted. *Against it:* the visibility delay of an operation
    /// ([`Error::ReconcileTooEarly`](crate::Error::ReconcileTooEarly)), and the watch, before whose
    /// deadline another value or an absence is only a mismatch.
    WriteVisibleLater {
        /// How long, on the clock's monotonic time.
        after: Duration,
    },
    /// The provider keeps something else than what was sent: its own spelling, with a member of its own
    /// (`"normalised": true`).
    ///
    /// *Naive:* what it reads is not what it wrote, so it writes again, each round. *Against it:* the operation is finished
    /// and never sent again; the watch counts the difference, and its version tells the provider's form from
    /// somebody else's edit.
    WriteNormalised,
    /// Every listing, look and write is answered 429 while it lasts.
    ///
    /// *Naive:* it tries a few times at once, gives up, and the write is lost. *Against it:*
    /// [`ClaimedOperation::defer`](crate::ClaimedOperation::defer), which waits over restarts.
    RateLimitStorm {
        /// How long, on the clock's monotonic time.
        lasts: Duration,
    },
    /// One of the provider's servers has a wrong clock: [`now`](super::Provider::now) is off, once.
    ///
    /// *Naive:* what it fetched seems newer than a later local edit, and takes its place. *Against it:* stamps are those
    /// of the host's own clock ([`HlcClock`](crate::HlcClock)), which takes none from the future, and
    /// [`ReadWinner`](crate::ReadWinner) goes by what is unfinished.
    ClockWrong {
        /// How far ahead; behind where it is negative.
        by_millis: i64,
    },
    /// A delete is done and answered "not there", as where a proxy has sent it twice.
    ///
    /// *Naive:* the delete has failed, so it is tried for ever, or what was deleted is put back. *Against it:* an
    /// operation ends as committed also where it was so at the provider already.
    GoneAlready,
    /// A listing shows two entities with one id, and counts both.
    ///
    /// *Naive:* two documents, or one that is overwritten by the other. *Against it:* a
    /// receipt counts distinct ids, so it is not complete and nothing is deleted by it.
    TwoWithOneId,
    /// A rename is shown as a tombstone and a new entity, with nothing between them. Strikes at
    /// [`rename`](super::Provider::rename).
    ///
    /// *Naive:* the document is deleted, and a local edit that was not yet written with it. *Against it:* no document
    /// is swept while an operation on it is unfinished.
    RenameAsDeleteCreate,
}

/// The content of an entity that was poisoned: text that PostgreSQL and many parsers refuse.
pub const POISON: &str = r#""\u0000""#;

impl ProviderFault {
    /// All, with data that a test would choose.
    pub const ALL: [Self; 17] = [
        Self::EmptyPage,
        Self::TruncatedListing,
        Self::PageRepeated,
        Self::PageSkipped,
        Self::CursorExpired,
        Self::AccountSwapped { lasts: Duration::from_secs(30) },
        Self::ItemPoisoned,
        Self::WriteTimedOut,
        Self::WriteLost,
        Self::UnavailableButDone,
        Self::WriteVisibleLater { after: Duration::from_secs(2) },
        Self::WriteNormalised,
        Self::RateLimitStorm { lasts: Duration::from_secs(5) },
        Self::ClockWrong { by_millis: 3_600_000 },
        Self::GoneAlready,
        Self::TwoWithOneId,
        Self::RenameAsDeleteCreate,
    ];

    /// Its name, for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EmptyPage => "empty_page",
            Self::TruncatedListing => "truncated_listing",
            Self::PageRepeated => "page_repeated",
            Self::PageSkipped => "page_skipped",
            Self::CursorExpired => "cursor_expired",
            Self::AccountSwapped { .. } => "account_swapped",
            Self::ItemPoisoned => "item_poisoned",
            Self::WriteTimedOut => "write_timed_out",
            Self::WriteLost => "write_lost",
            Self::UnavailableButDone => "unavailable_but_done",
            Self::WriteVisibleLater { .. } => "write_visible_later",
            Self::WriteNormalised => "write_normalised",
            Self::RateLimitStorm { .. } => "rate_limit_storm",
            Self::ClockWrong { .. } => "clock_wrong",
            Self::GoneAlready => "gone_already",
            Self::TwoWithOneId => "two_with_one_id",
            Self::RenameAsDeleteCreate => "rename_as_delete_create",
        }
    }

    fn is_like(self, other: Self) -> bool {
        discriminant(&self) == discriminant(&other)
    }
}

/// Which faults are still to strike, and how often each has.
#[derive(Debug)]
pub(super) struct Script {
    planned: Vec<ProviderFault>,
    chances: Vec<(ProviderFault, u32)>,
    struck: Vec<(ProviderFault, u64)>,
    seed: AtomicU64,
}

impl Script {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            planned: Vec::new(),
            chances: Vec::new(),
            struck: Vec::new(),
            seed: AtomicU64::new(seed),
        }
    }

    pub(super) fn plan(&mut self, fault: ProviderFault) {
        self.planned.push(fault);
    }

    pub(super) fn set_chances(&mut self, chances: &[(ProviderFault, u32)]) {
        self.chances = chances.to_vec();
    }

    pub(super) fn struck(&self, fault: ProviderFault) -> u64 {
        self.struck.iter().find(|(known, _)| known.is_like(fault)).map_or(0, |(_, count)| *count)
    }

    /// The fault of this kind that strikes here, where it can; with its data.
    pub(super) fn strike(&mut self, kind: ProviderFault) -> Option<ProviderFault> {
        let planned = self.planned.iter().position(|fault| fault.is_like(kind));
        let fault = match planned {
            Some(at) => Some(self.planned.remove(at)),
            None => self.by_chance(kind),
        };
        if let Some(fault) = fault {
            match self.struck.iter_mut().find(|(known, _)| known.is_like(fault)) {
                Some((_, count)) => *count += 1,
                None => self.struck.push((fault, 1)),
            }
        }
        fault
    }

    /// Whether a fault without data strikes here.
    pub(super) fn strikes(&mut self, kind: ProviderFault) -> bool {
        self.strike(kind).is_some()
    }

    fn by_chance(&self, kind: ProviderFault) -> Option<ProviderFault> {
        let (fault, per_mille) = self.chances.iter().find(|(fault, _)| fault.is_like(kind))?;
        (draw(&self.seed) % 1_000 < u64::from(*per_mille)).then_some(*fault)
    }

    /// One of `count`, which is at least one.
    pub(super) fn pick(&self, count: usize) -> usize {
        let count = u64::try_from(count.max(1)).unwrap_or(1);
        usize::try_from(draw(&self.seed) % count).unwrap_or(0)
    }
}
