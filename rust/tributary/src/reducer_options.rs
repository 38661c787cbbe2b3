//! Options of a reducer.

use std::ptr;

use tributary_sys as sys;

use crate::error::{Error, Result};
use crate::sparse_options::{above_0, RawOptions, SparseOptions};

/// Options of a [`Reducer`](crate::Reducer). Every rank passes the same.
///
/// ```
/// use tributary::ReducerOptions;
/// let options = ReducerOptions::new().bucket_bytes(64 << 20).sum(true);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReducerOptions {
    flags: u32,
    sparse: Option<SparseOptions>,
    bucket_bytes: Option<u64>,
    first_bytes: Option<u64>,
    order: Option<Vec<u64>>,
    buckets: Option<Vec<u64>>,
}

impl ReducerOptions {
    /// Creates options with every default: averages, buckets of 50 MiB, the first of 256 KiB.
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

    /// Fills the buckets in this order: a permutation of the gradients' numbers, as the backward pass
    /// makes them. Not together with [`learn_order`](ReducerOptions::learn_order).
    ///
    /// ```
    /// let options = tributary::ReducerOptions::new().order((0..161).rev());
    /// # let _ = options;
    /// ```
    pub fn order(mut self, gradients: impl IntoIterator<Item = usize>) -> ReducerOptions {
        self.order = Some(gradients.into_iter().map(|i| i as u64).collect());
        self
    }

    /// Reduces the gradients where they are, for they lie in buckets already: in the
    /// [order](ReducerOptions::order), so many gradients in each of `buckets`. Those of a bucket have one
    /// type, and lie one right behind the other in memory. Nothing is copied. After a step that is not
    /// applied they are 0, or, if the communicator has ended, undefined. Not for
    /// [views](crate::Reducer::views), [weighted averages](crate::Reducer::weighted) or
    /// [`learn_order`](ReducerOptions::learn_order).
    pub fn in_place(mut self, buckets: impl IntoIterator<Item = usize>) -> ReducerOptions {
        self.buckets = Some(buckets.into_iter().map(|n| n as u64).collect());
        self
    }

    /// Reduces each bucket by a sparse allreduce with a residual of its own: see
    /// [`SparseAllReduce`](crate::SparseAllReduce). Of `options`, [`average`](SparseOptions::average),
    /// `entries`, `in_place`, `k` and `f32_result` are not allowed: results are averages, or with
    /// [`sum`](ReducerOptions::sum) sums, of the gradients' types. Not for
    /// [weighted averages](crate::Reducer::weighted).
    ///
    /// If a value in one bucket is not finite on a rank, no rank applies the step: no gradient, no
    /// residual and no velocity changes, [`wait`](crate::Reducer::wait) returns
    /// [`ErrorKind::NonFinite`](crate::ErrorKind::NonFinite), and the next step may well succeed.
    /// Residuals move with their gradients if the [order is learnt](ReducerOptions::learn_order).
    ///
    /// ```
    /// use tributary::{ReducerOptions, SparseOptions};
    /// let sparse = SparseOptions::new().algorithm("topka").density(0.01).momentum(0.9);
    /// let options = ReducerOptions::new().sparse(sparse);
    /// # let _ = options;
    /// ```
    pub fn sparse(mut self, options: SparseOptions) -> ReducerOptions {
        self.sparse = Some(options);
        self
    }

    /// Sets how many bytes a bucket holds at most. A larger gradient has a bucket of its own.
    /// Default: 50 MiB. Not used [in place](ReducerOptions::in_place), nor is `first_bytes`.
    pub fn bucket_bytes(mut self, bytes: u64) -> ReducerOptions {
        self.bucket_bytes = Some(bytes);
        self
    }

    /// Sets the same for the first bucket of each type and for its last one, which should be small:
    /// until the first is queued nothing is sent, and nothing hides the last, as it is ready when
    /// the backward pass has ended. Default: 256 KiB, or `bucket_bytes` if that is less.
    pub fn first_bytes(mut self, bytes: u64) -> ReducerOptions {
        self.first_bytes = Some(bytes);
        self
    }

    fn flag(mut self, flag: u32, on: bool) -> ReducerOptions {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
        self
    }

    /// Fails for an order of another number of gradients than `n`, which C reads, and for a 0 that the
    /// caller wrote: to C it would be the default, which the caller cannot have meant.
    pub(crate) fn check(&self, n: usize) -> Result<()> {
        if let Some(order) = self.order.as_ref().filter(|order| order.len() != n) {
            let why = format!("`order` has {} numbers; expected {n}, one a gradient", order.len());
            return Err(Error::new(sys::TRIB_ERR_INVALID_ARGUMENT, why));
        }
        let zero =
            |name, value| if value == Some(0) { Err::<(), Error>(above_0(name)) } else { Ok(()) };
        zero("bucket_bytes", self.bucket_bytes)?;
        zero("first_bytes", self.first_bytes)
    }

    pub(crate) fn learns(&self) -> bool {
        self.flags & sys::TRIB_REDUCER_LEARN_ORDER != 0
    }

    /// The options for C, with `more` flags. `sparse` is what [`raw_sparse`](Self::raw_sparse)
    /// returned, and outlives the result, as `self` does. For as many gradients as were checked.
    pub(crate) fn raw(&self, more: u32, sparse: Option<&RawOptions>) -> sys::trib_reducer_options {
        sys::trib_reducer_options {
            flags: self.flags | more,
            bucket_bytes: self.bucket_bytes.unwrap_or(0),
            first_bytes: self.first_bytes.unwrap_or(0),
            sparse: sparse.map_or(ptr::null(), RawOptions::as_ptr),
            order: self.order.as_ref().map_or(ptr::null(), Vec::as_ptr),
            buckets: self.buckets.as_ref().map_or(ptr::null(), Vec::as_ptr),
            nbuckets: self.buckets.as_ref().map_or(0, |buckets| buckets.len() as u64),
            ..sys::TRIB_REDUCER_OPTIONS_INIT
        }
    }

    pub(crate) fn raw_sparse(&self) -> Option<RawOptions> {
        self.sparse.as_ref().map(SparseOptions::raw)
    }
}
