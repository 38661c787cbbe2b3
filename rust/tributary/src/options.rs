//! How a communicator or group is made.

use std::ffi::CString;
use std::time::Duration;

use tributary_sys as sys;

use crate::error::{c_string, Result};

/// How long a communicator waits for queued work when it is dropped, unless its options say
/// otherwise: trib_options.close_timeout_ms, "0 is 5,000".
const CLOSE_TIMEOUT: Duration = Duration::from_millis(5_000);

/// How a communicator or group is made. Every rank passes the same.
///
/// ```
/// use std::time::Duration;
/// use tributary::{Group, Options};
/// let options = Options::new().backend("host").timeout(Duration::from_secs(10)).match_calls(true);
/// let group = Group::with_options(2, &options)?;
/// # Ok::<(), tributary::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    backend: Option<String>,
    timeout: Option<Duration>,
    close_timeout: Option<Duration>,
    flags: u32,
    assumed: bool,
}

impl Options {
    /// The default of everything.
    pub fn new() -> Options {
        Options::default()
    }

    /// The [`Backend`](crate::Backend) to use, or its name. Default: what the id says; for a group
    /// the first that has the devices.
    pub fn backend(mut self, name: impl AsRef<str>) -> Options {
        self.backend = Some(name.as_ref().to_owned());
        self
    }

    /// Deadline for meeting the other ranks. Default: five minutes.
    pub fn timeout(mut self, timeout: Duration) -> Options {
        self.timeout = Some(timeout);
        self
    }

    /// How long a drop waits for work that is still queued before it aborts. Default: 5 seconds.
    pub fn close_timeout(mut self, timeout: Duration) -> Options {
        self.close_timeout = Some(timeout);
        self
    }

    /// Promise that the ranks' calls match, so that nobody compares them.
    ///
    /// Without the promise safe code needs no faith in other ranks: calls that differ give
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch), and no memory is touched that is not
    /// theirs. Host does that at no cost. NCCL compares nothing, so on nccl the ranks compare before
    /// each collective, as with [`match_calls`](Options::match_calls): a small allgather and a wait
    /// of the calling thread, a few tens of microseconds a call, and no capture into a CUDA graph;
    /// and the safe [`send`](crate::Scope::send), [`recv`](crate::Scope::recv) and
    /// [`alltoallv`](crate::Scope::alltoallv), which cannot be compared beforehand, are refused
    /// there.
    ///
    /// A training loop makes the promise once, here, and then nothing is compared.
    ///
    /// ```
    /// use tributary::{Group, Options};
    /// // SAFETY: every rank runs the same program on tensors of the same shapes.
    /// let options = unsafe { Options::new().assume_matching_calls() };
    /// # let options = options.backend("host");
    /// let ranks = Group::with_options(2, &options)?.split()?;
    /// # Ok::<(), tributary::Error>(())
    /// ```
    ///
    /// # Safety
    /// All ranks of a communicator that is made with these options, and of those that are
    /// [split](crate::Communicator::split) from it, are made with this promise, and make the same
    /// calls in the same order with the same lengths, types, reductions and roots, the safe forms
    /// included; what one sends is what the other receives, in length and type.
    pub unsafe fn assume_matching_calls(mut self) -> Options {
        self.assumed = true;
        self
    }

    /// Debug mode: before each collective every rank compares operation, count, type, reduction and
    /// root with all others, and all of them get [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch)
    /// if one differs, instead of waiting for ever, or failing later. Calls then wait for each
    /// other, so give every rank a thread of its own.
    pub fn match_calls(mut self, on: bool) -> Options {
        self.flags = if on { self.flags | sys::TRIB_MATCH } else { self.flags & !sys::TRIB_MATCH };
        self
    }

    /// Skip the checks of buffers and streams: their memory, device and range. What the arguments
    /// say by themselves is still checked.
    ///
    /// # Safety
    /// Every buffer that is passed to this communicator, in the safe forms of its operations too,
    /// is memory that its device can use.
    pub unsafe fn unchecked(mut self) -> Options {
        self.flags |= sys::TRIB_UNCHECKED;
        self
    }

    pub(crate) fn assumed(&self) -> bool {
        self.assumed
    }

    pub(crate) fn patience(&self) -> Duration {
        self.close_timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(CLOSE_TIMEOUT)
    }

    /// For C; the string must outlive the options.
    pub(crate) fn raw(&self) -> Result<(sys::trib_options, Option<CString>)> {
        let name = self.backend.as_ref().map(|name| c_string("backend", name)).transpose()?;
        let mut raw = sys::TRIB_OPTIONS_INIT;
        raw.flags = self.flags | if self.assumed { 0 } else { sys::TRIB_COMPARED };
        raw.timeout_ms = self.timeout.map_or(0, milliseconds);
        raw.close_timeout_ms = self.close_timeout.map_or(0, milliseconds);
        if let Some(name) = &name {
            raw.backend = name.as_ptr();
        }
        Ok((raw, name))
    }
}

/// Rounded up, so that a short wait does not become the default, which is 0.
pub(crate) fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
