//! Counters of a rank.

use tributary_sys as sys;

/// Counts of what a rank has done, from [`Communicator::counters`](crate::Communicator::counters).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Collectives queued; each list and each call of a batch counts once.
    pub calls: u64,
    /// Bytes of this rank's send buffers in those calls.
    pub bytes: u64,
    /// Calls made to the backend for them.
    pub backend_calls: u64,
    /// Scratch memory held, in bytes.
    pub workspace_bytes: u64,
    /// List and weighted-average calls queued.
    pub lists_queued: u64,
    /// Of those, calls that have written their tensors on this rank. The count is exact once the
    /// stream was waited for; after an abort it tells whether the last list was written.
    pub lists_committed: u64,
    /// Of those, weighted averages that have written nothing because a rank's weight was not valid.
    /// The count is the same on every rank.
    pub lists_refused: u64,
    /// Calls in which the peers could not reach a buffer of this rank's where it lies, so it went
    /// through memory of the library; replays of graphs do not count.
    pub staged_calls: u64,
}

impl From<sys::trib_counters> for Counters {
    fn from(raw: sys::trib_counters) -> Counters {
        Counters {
            calls: raw.calls,
            bytes: raw.bytes,
            backend_calls: raw.backend_calls,
            workspace_bytes: raw.workspace_bytes,
            lists_queued: raw.lists_queued,
            lists_committed: raw.lists_committed,
            lists_refused: raw.lists_refused,
            staged_calls: raw.staged_calls,
        }
    }
}
