//! Options of a sparse allreduce.

use std::ffi::CString;

use tributary_sys as sys;

use crate::communicator::Communicator;
use crate::dtype::DType;
use crate::error::{c_string, Error, ErrorKind, Result};

/// Options of a [`SparseAllReduce`](crate::SparseAllReduce). Every rank passes the same.
///
/// ```
/// use tributary::{DType, SparseOptions};
/// let options = SparseOptions::new().algorithm("topka").density(0.01).average(true);
/// let lean = options.clone().wire(DType::BF16);
/// # let _ = lean;
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SparseOptions {
    algorithm: Option<String>,
    constants: Option<String>,
    flags: u32,
    density: Option<f64>,
    k: u64,
    decay: Option<f64>,
    wire: Option<DType>,
    chunk: Option<u32>,
    norm_every: u32,
    momentum: f64,
    clip_norm: f64,
    hosts: Option<Vec<i32>>,
}

impl SparseOptions {
    /// Creates options with every default: `auto`, one element of a hundred, the sum, a dense
    /// result.
    pub fn new() -> SparseOptions {
        SparseOptions::default()
    }

    /// Selects the algorithm; the page [`guide`](crate::guide) compares them. Default: `auto`.
    pub fn algorithm(mut self, name: &str) -> SparseOptions {
        self.algorithm = Some(name.to_owned());
        self
    }

    /// Sets the fraction of the elements that each rank chooses in a call: above 0, at most 1. A
    /// rank chooses one element at least. Default: 0.01.
    pub fn density(mut self, density: f64) -> SparseOptions {
        self.density = Some(density);
        self.flag(sys::TRIB_SPARSE_USE_K, false)
    }

    /// Sets the number of elements that each rank chooses in a call. May be 0.
    pub fn k(mut self, k: u64) -> SparseOptions {
        self.k = k;
        self.flag(sys::TRIB_SPARSE_USE_K, true)
    }

    /// Divides the sum by the number of ranks. Default: the sum itself.
    pub fn average(self, on: bool) -> SparseOptions {
        self.flag(sys::TRIB_SPARSE_AVERAGE, on)
    }

    /// Returns a list of indices and values as the result. Default: a dense tensor.
    pub fn entries(self, on: bool) -> SparseOptions {
        self.flag(sys::TRIB_SPARSE_ENTRIES, on)
    }

    /// Makes the gradient buffer the accumulator: the caller adds gradients into it, and each call
    /// leaves the residual there. It reduces memory traffic to a third. Types f32 and f64.
    pub fn in_place(self, on: bool) -> SparseOptions {
        self.flag(sys::TRIB_SPARSE_IN_PLACE, on)
    }

    /// Returns results and values in f32 for gradients of f16 and bf16. The sums are then neither
    /// rounded nor too large for the type. Not for f64. Default: the gradient's type.
    pub fn f32_result(self, on: bool) -> SparseOptions {
        self.flag(sys::TRIB_SPARSE_F32_RESULT, on)
    }

    /// Multiplies the residual by `decay` between calls: above 0, at most 1. Default: 1.
    pub fn decay(mut self, decay: f64) -> SparseOptions {
        self.decay = Some(decay);
        self
    }

    /// Sends chosen values as `dtype`: [`DType::BF16`], or the type of the sums, which is the
    /// default. The residual keeps the rounding error. With BF16 `dense` adds up in bf16 (not in
    /// place), and `auto` counts a plain bf16 allreduce among its rivals.
    pub fn wire(mut self, dtype: DType) -> SparseOptions {
        self.wire = Some(dtype);
        self
    }

    /// Sets the elements of a chunk for `chunked`: a power of two up to 65,536. Default: 4,096.
    pub fn chunk(mut self, elements: u32) -> SparseOptions {
        self.chunk = Some(elements);
        self
    }

    /// Selects the constants of the published code, `vgg`, `lstm` or `bert`, for the algorithms
    /// that have them. Default: none (the exact mode) for `oktopk`, `vgg` for the others.
    pub fn constants(mut self, name: &str) -> SparseOptions {
        self.constants = Some(name.to_owned());
        self
    }

    /// Computes the residual norm every `calls` calls, with one extra pass over the residual.
    /// Default: never.
    pub fn norm_every(mut self, calls: u32) -> SparseOptions {
        self.norm_every = calls;
        self
    }

    /// Corrects for momentum as Deep Gradient Compression does: each call adds the gradient to
    /// `momentum` times a velocity, and selects from what velocities have added up to. The update
    /// is then the plain one, without a momentum of its own. At least 0, below 1. In place the
    /// gradient buffer is the velocity: the caller adds gradients into it, and each call multiplies
    /// it by `momentum`. Default: 0, none.
    pub fn momentum(mut self, momentum: f64) -> SparseOptions {
        self.momentum = momentum;
        self
    }

    /// Clears the velocity, too, where an element was sent, so that old momentum does not go on
    /// pushing what has waited. Not in `dense`, where nothing waits. Default: yes, with
    /// [`momentum`](SparseOptions::momentum).
    pub fn masking(self, on: bool) -> SparseOptions {
        self.flag(sys::TRIB_SPARSE_NO_MASKING, !on)
    }

    /// Clips each rank's gradient of this tensor to the norm `norm / sqrt(ranks)`. With
    /// [`momentum`](SparseOptions::momentum), not in place. Default: 0, no clipping.
    pub fn clip_norm(mut self, norm: f64) -> SparseOptions {
        self.clip_norm = norm;
        self
    }

    /// Says on which host each rank is, for `hier`: a number, at least 0, for every rank of the
    /// communicator. Default: where `NCCL_HOSTID` says, or the machines that they run on.
    pub fn hosts(mut self, hosts: &[i32]) -> SparseOptions {
        self.hosts = Some(hosts.to_owned());
        self
    }

    /// Returns the bytes of device memory that a state for `len` elements of `dtype` would hold.
    pub fn device_bytes(&self, comm: &mut Communicator, len: usize, dtype: DType) -> Result<u64> {
        let raw = self.raw();
        let mut bytes = 0;
        // SAFETY: all pointers live through the call; the lock keeps other threads out.
        let result = comm.call(|comm| unsafe {
            sys::trib_sparse_bytes(&mut bytes, comm, len, dtype.raw(), raw.as_ptr())
        });
        raw.explain(result)?;
        Ok(bytes)
    }

    fn flag(mut self, flag: u32, on: bool) -> SparseOptions {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
        self
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The error for a 0 that the caller wrote: to C it would be the default, which the caller
    /// cannot have meant.
    fn refusal(&self) -> Option<Error> {
        let zero = |name, is_zero: bool| is_zero.then(|| above_0(name));
        zero("density", self.density == Some(0.0))
            .or_else(|| zero("decay", self.decay == Some(0.0)))
            .or_else(|| zero("chunk", self.chunk == Some(0)))
    }

    pub(crate) fn raw(&self) -> RawOptions {
        let mut refusal = self.refusal();
        let mut name = |what, name: &Option<String>| {
            let name = c_string(what, name.as_ref()?);
            name.map_err(|error| refusal = Some(error)).ok()
        };
        let algorithm = name("algorithm", &self.algorithm);
        let constants = name("constants", &self.constants);
        let mut raw = sys::TRIB_SPARSE_OPTIONS_INIT;
        raw.flags = self.flags;
        raw.density = self.density.unwrap_or(0.0);
        raw.k = self.k;
        raw.decay = if refusal.is_some() { f64::NAN } else { self.decay.unwrap_or(0.0) };
        raw.chunk = self.chunk.unwrap_or(0);
        raw.norm_every = self.norm_every;
        raw.momentum = self.momentum;
        raw.clip_norm = self.clip_norm;
        raw.wire = self.wire.map_or(raw.wire, DType::raw);
        if let Some(name) = &algorithm {
            raw.algorithm = name.as_ptr();
        }
        if let Some(name) = &constants {
            raw.constants = name.as_ptr();
        }
        let hosts = self.hosts.clone().map(padded);
        if let Some(hosts) = &hosts {
            raw.hosts = hosts.as_ptr();
        }
        RawOptions { raw, refusal, _names: [algorithm, constants], _hosts: hosts }
    }
}

/// C reads one of each rank, of at most 64: those that are missing are numbers that it refuses.
fn padded(mut hosts: Vec<i32>) -> Vec<i32> {
    const MOST: usize = 64;
    hosts.resize(hosts.len().max(MOST), -1);
    hosts
}

#[cold]
pub(crate) fn above_0(name: &str) -> Error {
    Error::argument(format!("`{name}` is 0; expected something above 0"))
}

/// The options for C, with what they point to. Options that this crate refuses hold a
/// value that C refuses as well: the call is made all the same, so that the other ranks fail
/// instead of waiting.
pub(crate) struct RawOptions {
    raw: sys::trib_sparse_options,
    refusal: Option<Error>,
    _names: [Option<CString>; 2],
    _hosts: Option<Vec<i32>>,
}

impl RawOptions {
    pub(crate) fn as_ptr(&self) -> *const sys::trib_sparse_options {
        &self.raw
    }

    /// The result of a call with them, with this crate's error in place of C's.
    pub(crate) fn explain<T>(self, result: Result<T>) -> Result<T> {
        match (result, self.refusal) {
            (Err(error), Some(refusal)) if error.kind() == ErrorKind::InvalidArgument => {
                Err(refusal)
            }
            (result, _) => result,
        }
    }
}
