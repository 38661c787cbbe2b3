//! Options of a reducer.

use tributary_sys as sys;

use crate::error::{Error, Result};
use crate::sparse_options::above_0;

/// Options of a [`Reducer`](crate::Reducer). Every rank passes the same.
///
/// ```
/// use tributary::ReducerOptions;
/// let options = ReducerOptions::new().bucket_bytes(64 << 20).sum(true);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReducerOptions {
    flags: u32,
    bucket_bytes: Option<u64>,
    first_bytes: Option<u64>,
}

impl ReducerOptions {
    /// Creates options with every default: averages, buckets of 25 MiB, the first of 1 MiB.
    pub fn new() -> ReducerOptions {
        ReducerOptions::default()
    }

    /// Makes sums instead of averages.
    pub fn sum(self, on: bool) -> ReducerOptions {
        self.flag(sys::TRIB_REDUCER_SUM, on)
    }

    /// Keeps a second set of buckets for the results, so that a step that is not applied leaves the
    /// gradients as they were. Only for [`Reducer::views`](crate::Reducer::views): other gradients
    /// stay as they were without it.
    pub fn twins(self, on: bool) -> ReducerOptions {
        self.flag(sys::TRIB_REDUCER_TWINS, on)
    }

    /// Fills the buckets anew at the end of the first step, in the order in which rank 0's gradients
    /// got ready; those that were not come last. That [`finish`](crate::Step::finish) waits for all
    /// ranks and for the step. [Views](crate::Reducer::views) move, and need as much device memory
    /// again meanwhile; if a rank has none, the order stays.
    pub fn learn_order(self, on: bool) -> ReducerOptions {
        self.flag(sys::TRIB_REDUCER_LEARN_ORDER, on)
    }

    /// Sets how many bytes a bucket holds at most. A larger gradient has a bucket of its own.
    /// Default: 25 MiB.
    pub fn bucket_bytes(mut self, bytes: u64) -> ReducerOptions {
        self.bucket_bytes = Some(bytes);
        self
    }

    /// Sets the same for the first bucket of each type, which should be small: until it is queued
    /// nothing is sent. Default: 1 MiB.
    pub fn first_bytes(mut self, bytes: u64) -> ReducerOptions {
        self.first_bytes = Some(bytes);
        self
    }

    fn flag(mut self, flag: u32, on: bool) -> ReducerOptions {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
        self
    }

    /// Fails for a 0 that the caller wrote: to C it would be the default, which the caller cannot
    /// have meant.
    pub(crate) fn check(&self) -> Result<()> {
        let zero =
            |name, value| if value == Some(0) { Err::<(), Error>(above_0(name)) } else { Ok(()) };
        zero("bucket_bytes", self.bucket_bytes)?;
        zero("first_bytes", self.first_bytes)
    }

    pub(crate) fn learns(&self) -> bool {
        self.flags & sys::TRIB_REDUCER_LEARN_ORDER != 0
    }

    /// The options for C, with `more` flags.
    pub(crate) fn raw(&self, more: u32) -> sys::trib_reducer_options {
        sys::trib_reducer_options {
            flags: self.flags | more,
            bucket_bytes: self.bucket_bytes.unwrap_or(0),
            first_bytes: self.first_bytes.unwrap_or(0),
            ..sys::TRIB_REDUCER_OPTIONS_INIT
        }
    }
}
