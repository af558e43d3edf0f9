//! Where a copy is: a key with a lease, put again if an outage of etcd has cost the lease.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::etcd::{Claim, Etcd, Failure};
use crate::holding::Holding;
use crate::inner::Inner;
use crate::keeper::{Lease, give_back, keep};
use crate::member::value_of;
use crate::tenure::Tenure;
use crate::{Error, Member, Result, Why};

/// Says where a copy is, until it is dropped.
#[derive(Debug)]
pub struct Announcement {
    member: Member,
    ttl: Duration,
    status: Arc<Mutex<Status>>,
    /// What is to stand in etcd.
    value: Arc<Mutex<Vec<u8>>>,
    /// Dropped before what waits for the keeper.
    _stop: oneshot::Sender<()>,
    inner: Arc<Inner>,
}

#[derive(Debug)]
enum Status {
    Announced(Tenure, i64),
    Lapsed(String),
    Replaced,
}

impl Announcement {
    /// The member that is announced.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Before this moment of the machine's clock that goes on while it sleeps (`CLOCK_BOOTTIME`), in nanoseconds, the key is in etcd, unless it is deleted, or
    /// another process announces the same name; 0 if it may be gone.
    #[must_use]
    pub fn held_until_ns(&self) -> u64 {
        match &*self.status.lock() {
            Status::Announced(tenure, _) => tenure.held_until_ns(),
            Status::Lapsed(_) | Status::Replaced => 0,
        }
    }

    /// Says from now on what keeps this member from doing its part, or that nothing does. If etcd has lost the announcement, it says so when it is made again.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses: then it may stand there all the same.
    pub fn tell(&self, trouble: Option<&str>) -> Result<()> {
        let value = value_of(&self.member.clone().in_trouble(trouble))?;
        // Before it is looked which lease there is: one that comes later looks at what is to stand there then.
        self.value.lock().clone_from(&value);
        let Status::Announced(_, lease) = *self.status.lock() else { return Ok(()) };
        let (etcd, timeout, key) =
            (self.inner.etcd.clone(), self.inner.timeout, self.inner.copy_key(&self.member.name));
        self.inner.runtime.wait(move || async move {
            let replace = async |within| etcd.replace(&key, &value, lease, within).await;
            etcd.retrying("announce", timeout, replace).await
        })
    }

    /// Nothing if others can see it, as far as is known without asking.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: etcd has not answered for so long that the announcement has expired; it is made again as soon as etcd does.
    /// [`Error::Replaced`]: another process has announced the same name; this announcement is over.
    pub fn check(&self) -> Result<()> {
        let why = match &*self.status.lock() {
            Status::Announced(tenure, _) if tenure.is_held() => return Ok(()),
            Status::Announced(tenure, _) => tenure.reason().unwrap_or_else(|| Why::Expired.to_string()),
            Status::Lapsed(why) => why.clone(),
            Status::Replaced => return Err(Error::Replaced { name: self.member.name.clone() }),
        };
        let endpoints = self.inner.etcd.endpoints().join(", ");
        Err(Error::Unreachable { doing: "announce", endpoints, waited: self.ttl, why })
    }
}

/// What the task needs.
struct Announcer {
    etcd: Arc<Etcd>,
    timeout: Duration,
    key: String,
    value: Arc<Mutex<Vec<u8>>>,
    ttl: Duration,
}

pub(crate) fn announce(inner: Arc<Inner>, member: &Member, ttl: Duration) -> Result<Announcement> {
    let value = Arc::new(Mutex::new(value_of(member)?));
    let announcer = Announcer {
        etcd: inner.etcd.clone(),
        timeout: inner.timeout,
        key: inner.copy_key(&member.name),
        value: value.clone(),
        ttl,
    };
    let (announcer, lease, told) = inner.runtime.wait(move || async move {
        let lease = announcer.lease().await?;
        let (key, value, id) = (&announcer.key, announcer.value.lock().clone(), lease.id);
        let put = async |within| announcer.etcd.put(key, &value, id, within).await;
        announcer.etcd.retrying("announce", announcer.timeout, put).await?;
        Ok((announcer, lease, value))
    })?;
    let tenure = Tenure::new(0, lease.holding.held_until());
    let status = Arc::new(Mutex::new(Status::Announced(tenure.clone(), lease.id)));
    let (_stop, stopped) = oneshot::channel();
    let shown = status.clone();
    inner.runtime.spawn_to_finish(move || announcer.run(lease, told, tenure, shown, stopped));
    Ok(Announcement { member: member.clone(), ttl, status, value, _stop, inner })
}

impl Announcer {
    async fn lease(&self) -> Result<Lease> {
        let asked = Moment::now();
        let (etcd, ttl) = (&self.etcd, self.ttl);
        let (id, ttl) = etcd.retrying("lease", self.timeout, async |within| etcd.grant(ttl, within).await).await?;
        Ok(Lease { id, key: self.key.clone(), holding: Holding::new(asked, ttl) })
    }

    async fn run(
        self,
        mut lease: Lease,
        mut told: Vec<u8>,
        mut tenure: Tenure,
        status: Arc<Mutex<Status>>,
        mut stop: oneshot::Receiver<()>,
    ) {
        while self.keep_telling(&mut lease, told, &tenure, &mut stop).await != Why::Resigned {
            let again = tokio::select! {
                biased;
                _ = &mut stop => return drop(give_back(&self.etcd, lease.id, self.timeout).await),
                again = self.again(lease.id, &status) => again,
            };
            let Some((found, put)) = again else {
                *status.lock() = Status::Replaced;
                return;
            };
            (lease, told) = (found, put);
            tenure = Tenure::new(0, lease.holding.held_until());
            *status.lock() = Status::Announced(tenure.clone(), lease.id);
        }
        if let Err(error) = give_back(&self.etcd, lease.id, self.timeout).await {
            tracing::info!(%error, "an announcement was not taken back; it expires");
        }
    }

    /// Keeps the lease. The value `told` was put with it; what was to be told before the status showed the lease is put meanwhile.
    async fn keep_telling(
        &self,
        lease: &mut Lease,
        told: Vec<u8>,
        tenure: &Tenure,
        stop: &mut oneshot::Receiver<()>,
    ) -> Why {
        let id = lease.id;
        let put = async |value: Vec<u8>| {
            let replace = async |within| self.etcd.replace(&self.key, &value, id, within).await;
            self.etcd.retrying("announce", self.timeout, replace).await
        };
        let nap = self.etcd.share(self.timeout);
        let mut telling = pin!(put_last(&self.value, told, put, nap));
        let mut keeping = pin!(keep(&self.etcd, lease, tenure, stop));
        tokio::select! {
            biased;
            why = &mut keeping => return why,
            () = &mut telling => {}
        }
        keeping.await
    }

    /// A new lease with the key, and the value that was put; none if the key is another's by now.
    async fn again(&self, mut old: i64, status: &Mutex<Status>) -> Option<(Lease, Vec<u8>)> {
        loop {
            match self.try_again(&mut old).await {
                Ok(lease) => return lease,
                Err(error) => *status.lock() = Status::Lapsed(error.to_string()),
            }
            tokio::time::sleep(self.etcd.share(self.timeout)).await;
        }
    }

    /// `old` is a lease that may still hold the key: only when it is gone does a key that is there belong to another.
    async fn try_again(&self, old: &mut i64) -> Result<Option<(Lease, Vec<u8>)>> {
        give_back(&self.etcd, *old, self.timeout).await?;
        let lease = self.lease().await?;
        *old = lease.id;
        let value = self.value.lock().clone();
        match self.etcd.claim(&self.key, &value, lease.id, self.etcd.share(self.timeout)).await {
            Ok(Claim::Won { .. }) => Ok(Some((lease, value))),
            Ok(Claim::NotWon) => give_back(&self.etcd, lease.id, self.timeout).await.map(|()| None),
            Err(Failure::Final(error)) => Err(error),
            Err(Failure::Gone) => Err(self.unreachable("the lease has expired")),
            Err(Failure::NoAnswer(why)) => Err(self.unreachable(&why)),
        }
    }

    fn unreachable(&self, why: &str) -> Error {
        let endpoints = self.etcd.endpoints().join(", ");
        Error::Unreachable { doing: "announce", endpoints, waited: self.timeout, why: why.to_owned() }
    }
}

/// Puts the value until what was put last is what is to stand there: it may change while an earlier one is put, and [`Announcement::tell`] does not wait for that.
async fn put_last(value: &Mutex<Vec<u8>>, mut told: Vec<u8>, put: impl AsyncFn(Vec<u8>) -> Result<()>, nap: Duration) {
    loop {
        let next = value.lock().clone();
        if next == told {
            return;
        }
        match put(next.clone()).await {
            Ok(()) => told = next,
            Err(error) => {
                tracing::info!(%error, "an announcement says what was true before; it is put again");
                tokio::time::sleep(nap).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands there in the end, if the value becomes `next` while the first is put, and the first `failures` of the puts fail.
    fn stands_in_the_end(next: &[u8], failures: usize) -> (Vec<u8>, usize) {
        let value = Mutex::new(b"full".to_vec());
        let there = Mutex::new((b"nothing".to_vec(), 0));
        let put = async |put: Vec<u8>| {
            // The caller of `tell` puts its own at once, and this one comes behind it.
            let told_meanwhile = std::mem::replace(&mut *value.lock(), next.to_vec()) != next;
            let mut there = there.lock();
            there.1 += 1;
            if there.1 <= failures {
                return Err(Error::Unreachable {
                    doing: "announce",
                    endpoints: "x".to_owned(),
                    waited: Duration::ZERO,
                    why: "x".to_owned(),
                });
            }
            assert!(told_meanwhile || put == next, "an older value is put again");
            there.0 = put;
            Ok(())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(put_last(&value, b"nothing".to_vec(), put, Duration::ZERO));
        there.into_inner()
    }

    #[test]
    fn what_is_told_while_an_earlier_value_is_put_stays() {
        assert_eq!(stands_in_the_end(b"full", 0), (b"full".to_vec(), 1));
        assert_eq!(stands_in_the_end(b"better", 0), (b"better".to_vec(), 2));
    }

    #[test]
    fn a_value_that_could_not_be_put_is_put_again() {
        assert_eq!(stands_in_the_end(b"full", 3), (b"full".to_vec(), 4));
        assert_eq!(stands_in_the_end(b"better", 1), (b"better".to_vec(), 2));
    }
}
