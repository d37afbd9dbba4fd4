//! On a storage that several hosts share: the actor that asks for the database's time and streams'
//! heads, for all who wait by one statement.
//!
//! The statement begins after the last of them came; who comes meanwhile waits for the next. It knows
//! neither keys nor commands.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use actix_rt::ArbiterHandle;
use tokio::sync::oneshot;

use super::clock::{StoreTime, within};
use super::inbox::Inbox;
use super::unavailable;
use crate::base::{Error, Result, StreamName, Timestamp};
use crate::journal::{Expected, Storage};

/// How long the database's time is told from the last time that it said.
const MAX_ESTIMATE_AGE: Duration = Duration::from_secs(1);

/// The database's time, and the store's when its answer was there.
type Told = Arc<Mutex<Option<(Timestamp, Duration)>>>;

/// The time, and the head of one stream.
pub(super) type Sample = (Timestamp, Option<Expected>);

struct Question {
    stream: StreamName,
    asked_at: Duration,
    answer: oneshot::Sender<Result<Sample>>,
}

/// There are questions in the inbox of a sampler that was at rest.
#[derive(Message)]
#[rtype(result = "()")]
struct Wake;

/// Where the actors ask.
pub(crate) struct SamplerRef {
    inbox: Arc<Inbox<Question>>,
    time: StoreTime,
    told: Told,
    addr: Addr<Sampler>,
}

impl SamplerRef {
    /// Asks for the database's time and a stream's head, by a statement begun after this. The question
    /// is put at once, the answer is waited for.
    pub(super) fn sample(
        &self,
        stream: StreamName,
    ) -> impl Future<Output = Result<Sample>> + use<> {
        let (answer, answered) = oneshot::channel();
        if self.inbox.push(Question { stream, asked_at: self.time.elapsed(), answer }) {
            self.addr.do_send(Wake);
        }
        async move { answered.await.unwrap_or_else(|_| Err(no_answer())) }
    }

    /// The database's time as far as it is known without a question: behind it by what an answer took on
    /// its way, never ahead of it. None where nothing was asked of late.
    pub(super) fn estimate(&self) -> Option<Timestamp> {
        let (now, at) = (*lock(&self.told))?;
        let age = self.time.elapsed().saturating_sub(at);
        (age <= MAX_ESTIMATE_AGE).then(|| now.plus(age))
    }
}

pub(super) struct Sampler {
    storage: Arc<dyn Storage>,
    time: StoreTime,
    /// How long an answer may take.
    limit: Duration,
    inbox: Arc<Inbox<Question>>,
    told: Told,
    asking: bool,
}

impl Sampler {
    /// Starts a sampler on an arbiter.
    pub(super) fn start_on(
        arbiter: &ArbiterHandle,
        storage: Arc<dyn Storage>,
        time: StoreTime,
        limit: Duration,
    ) -> SamplerRef {
        let inbox = Arc::new(Inbox::new());
        let told = Told::default();
        let sampler = Self {
            storage,
            time: time.clone(),
            limit,
            inbox: Arc::clone(&inbox),
            told: Arc::clone(&told),
            asking: false,
        };
        let addr = Self::start_in_arbiter(arbiter, move |_| sampler);
        SamplerRef { inbox, time, told, addr }
    }

    fn proceed(&mut self, context: &mut Context<Self>) {
        if self.asking {
            return;
        }
        let mut questions = VecDeque::new();
        self.inbox.take(&mut questions);
        let Some(oldest) = questions.front() else { return };
        let left = (oldest.asked_at + self.limit).saturating_sub(self.time.elapsed());
        self.asking = true;
        let (storage, time) = (Arc::clone(&self.storage), self.time.clone());
        let told = Arc::clone(&self.told);
        let ask = async move {
            let streams: Vec<StreamName> =
                questions.iter().map(|question| Arc::clone(&question.stream)).collect();
            let heads = within(&time, left, storage.confirm_heads(&streams)).await;
            let heads = heads.unwrap_or_else(|| Err(no_answer()));
            if let Ok(heads) = &heads {
                *lock(&told) = Some((heads.now, time.elapsed()));
            }
            for (index, question) in questions.into_iter().enumerate() {
                let sample = match &heads {
                    Ok(heads) => Ok((heads.now, heads.heads.get(index).copied().flatten())),
                    Err(error) => Err(error.clone()),
                };
                let _ = question.answer.send(sample);
            }
        };
        // A task of its own, so that a panic in the storage ends the statement and not the sampler.
        context.spawn(actix_rt::spawn(ask).into_actor(self).map(|_, actor, context| {
            actor.asking = false;
            actor.proceed(context);
        }));
    }
}

fn lock(told: &Told) -> MutexGuard<'_, Option<(Timestamp, Duration)>> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_answer() -> Error {
    unavailable("the storage does not answer")
}

impl Actor for Sampler {
    type Context = Context<Self>;
}

impl Handler<Wake> for Sampler {
    type Result = ();

    fn handle(&mut self, _: Wake, context: &mut Context<Self>) {
        self.proceed(context);
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.inbox.close();
    }
}
