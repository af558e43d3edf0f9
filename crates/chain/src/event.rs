//! What goes into the state machine, and what comes out.

use crate::{Barrier, Entry, Message, Moment, Object, ReadId, Record, ReplicaId, TransactionId, View, ViewId};

/// What has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Some time has passed: what may have been lost is said again.
    Tick,
    /// From another replica.
    Message(Message),
    /// Whatever was written before the [`Command::Persist`] is persistent.
    Persisted(Barrier),
    /// A record's effects are in the heap, whole.
    Executed(u64),

    // ---- of the membership service ----------------------------------------------------------------------------
    /// This is the view, or was a moment ago. The first one after a start must have been read, linearizably, in a session that the process has opened since.
    View(View),
    /// The proposal is decided, or can never be carried out any more, and this is the view.
    Proposed {
        /// What was proposed.
        proposal: ViewId,
        /// What is.
        view: View,
    },
    /// The lease of a copy is held before this moment of its machine's own clock.
    Lease {
        /// Whose: it is no other replica's, not even one of the same machine.
        id: ReplicaId,
        /// Not from then on.
        until: Moment,
    },
    /// A member's lease has ended. Said again until a view without it is known: a replica that cannot propose now forgets it.
    Lapsed(ReplicaId),
    /// No lease of a replica that was a member before this view, and is none, is held any more.
    LeasesEnded(ViewId),

    // ---- at the head ------------------------------------------------------------------------------------------
    /// A transaction wants to read and write these objects.
    Lock {
        /// It may ask several times.
        transaction: TransactionId,
        /// The transaction slot of the heap that it runs in.
        slot: u32,
        /// Only read.
        reads: Vec<Object>,
        /// To be written.
        writes: Vec<Object>,
    },
    /// It is over, and has changed nothing.
    Abort(TransactionId),
    /// It is to be committed: the number is drawn now, while all its locks are held. [`Command::Commit`], or [`Command::Refused`] if it has no locks, since the copy was voided.
    Commit(TransactionId),
    /// The record, and what it is of, is persistent.
    Committed(u64),
    /// The record could not be written; what the transaction has changed is undone.
    CommitFailed(u64),

    // ---- reading ----------------------------------------------------------------------------------------------
    /// A reader wants to see these objects, as the last acknowledged transaction, or a later one, has left them.
    Read {
        /// Which.
        read: ReadId,
        /// All at once.
        objects: Vec<Object>,
    },
    /// They were copied out of the heap.
    HasRead(ReadId),
    /// After a start: the heap is what the records through the last one leave.
    Recovered,
}

/// What is to be done, in this order. None waits for the one before but where it says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Send it.
    Send(Message),
    /// Read these records from the queue, now, and send them.
    Ship {
        /// The receiver.
        to: ReplicaId,
        /// Of the message.
        view: ViewId,
        /// From this number.
        first: u64,
        /// ... through this one.
        last: u64,
    },
    /// Make a copy of a part of the heap as it is, now, and send it.
    ShipPart {
        /// The receiver.
        to: ReplicaId,
        /// Of the message.
        view: ViewId,
        /// Which, from 0.
        part: u32,
        /// What the heap is the effect of.
        through: u64,
    },
    /// Write it into the queue.
    Append(Record),
    /// Erase what stands in the queue behind this number.
    Truncate(u64),
    /// All that was written so far is to be persistent: [`Event::Persisted`].
    Persist(Barrier),
    /// Carry out a record in the heap: [`Event::Executed`].
    Execute(u64),
    /// At the head: what records through here have written goes to the backup.
    Apply(u64),
    /// Note that records through here count no more, and whose copy this is. Their space is free when that is persistent.
    Retire(u64),
    /// After a start: undo what the queue does not know of, and carry out these records, oldest first, if there are any. The backup
    /// stays as it is: what was found may yet be lost. Then [`Event::Recovered`].
    Recover {
        /// From here.
        first: u64,
        /// ... through here; less than `first` if there are none.
        last: u64,
    },
    /// Note that this copy is nothing any more, and has this id. What is under way for it ends here: no execution, commit or read of the copy before is an event from now on, since
    /// numbers begin again.
    Void(ReplicaId),
    /// Erase queue and heap.
    Erase,
    /// This is a part of the heap's image. An image is whole at [`Whole`](Self::Whole), and it is not looked at before.
    Restore(Vec<u8>),
    /// Note that the copy is whole, and that records through here are in its heap.
    Whole(u64),

    // ---- to the membership service ----------------------------------------------------------------------------
    /// Read the view: [`Event::View`].
    FetchView,
    /// Compare and swap: [`Event::Proposed`]. It must be impossible that this is carried out after the process has opened another session.
    Propose(View),
    /// Say [`Event::LeasesEnded`] when it is so.
    AwaitLeases(ViewId),

    // ---- at the head ------------------------------------------------------------------------------------------
    /// The transaction may read and write what it asked for.
    Locked(TransactionId),
    /// It may not; it keeps what it had, and is to be aborted, and tried again.
    Refused(TransactionId, Refusal),
    /// Write the record with this entry together with the transaction's commit: [`Event::Committed`] or [`Event::CommitFailed`].
    Commit(TransactionId, Entry),
    /// Transactions through this number are on every member: tell the threads that wait.
    Acknowledged(u64),

    // ---- reading ----------------------------------------------------------------------------------------------
    /// Copy the objects out of the heap: [`Event::HasRead`].
    Read(ReadId),
    /// What was read may be told.
    Answer(ReadId),
    /// The read is to be tried again, perhaps elsewhere.
    RefusedRead(ReadId, Refusal),
}

impl Command {
    /// True of what a [`Medium`](crate::Medium) carries out by itself.
    #[must_use]
    pub fn is_to_medium(&self) -> bool {
        match self {
            Self::Append(_)
            | Self::Truncate(_)
            | Self::Persist(_)
            | Self::Execute(_)
            | Self::Apply(_)
            | Self::Retire(_)
            | Self::Recover { .. }
            | Self::Void(_)
            | Self::Erase
            | Self::Restore(_)
            | Self::Whole(_) => true,
            Self::Send(_)
            | Self::Ship { .. }
            | Self::ShipPart { .. }
            | Self::FetchView
            | Self::Propose(_)
            | Self::AwaitLeases(_)
            | Self::Locked(_)
            | Self::Refused(..)
            | Self::Commit(..)
            | Self::Acknowledged(_)
            | Self::Read(_)
            | Self::Answer(_)
            | Self::RefusedRead(..) => false,
        }
    }
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another transaction has one of the objects, or one is in flight: later.
    Pending,
    /// This is not the replica to ask, or it does not serve now.
    NotHere,
    /// Too many transactions are in flight: later.
    Full,
}

/// What is found on the medium when a process starts.
#[derive(Clone, Debug)]
pub struct Found {
    /// Whose copy it is.
    pub id: ReplicaId,
    /// It has been whole, and was not voided since.
    pub whole: bool,
    /// Records through here count no more: their effects are persistent.
    pub retired: u64,
    /// Each record of the queue that is whole, whatever is missing between them.
    pub entries: Vec<Entry>,
}

impl Found {
    /// A new copy of a new chain: nothing, and that is whole.
    #[must_use]
    pub fn new(id: ReplicaId) -> Self {
        Self { id, whole: true, retired: 0, entries: Vec::new() }
    }
}
