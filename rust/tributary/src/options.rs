//! Options of communicators and groups.

use std::ffi::CString;
use std::time::Duration;

use tributary_sys as sys;

use crate::error::{c_string, Result};

/// The default of [`Options::close_timeout`]: trib_options.close_timeout_ms, "0 is 5,000".
const CLOSE_TIMEOUT: Duration = Duration::from_millis(5_000);

/// What a zero duration stands for. In C, 0 ms would be the default.
const SHORTEST: Duration = Duration::from_millis(1);

/// Options of a communicator or group. Every rank passes the same.
///
/// A deadline has its default if its option was not set. A zero duration is the shortest deadline,
/// 1 ms.
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
    call_timeout: Option<Duration>,
    flags: u32,
    assumed: bool,
}

impl Options {
    /// Creates options with every default.
    pub fn new() -> Options {
        Options::default()
    }

    /// Selects the [`Backend`](crate::Backend), by itself or by name. Default: the backend of the
    /// id; for a group, the first backend that has the devices.
    pub fn backend(mut self, name: impl AsRef<str>) -> Options {
        self.backend = Some(name.as_ref().to_owned());
        self
    }

    /// Sets the deadline of calls in which the ranks wait for each other, such as creating a
    /// communicator. Default: five minutes. Zero: 1 ms.
    pub fn timeout(mut self, timeout: Duration) -> Options {
        self.timeout = Some(timeout.max(SHORTEST));
        self
    }

    /// Sets how long a drop waits for queued work before it aborts. Default: 5 seconds. Zero:
    /// 1 ms.
    pub fn close_timeout(mut self, timeout: Duration) -> Options {
        self.close_timeout = Some(timeout.max(SHORTEST));
        self
    }

    /// Sets the deadline of every queued call, counted from its start on its stream. If a call is
    /// late, the watchdog ends the communicator: calls and waits return
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout), and the error says which rank has not
    /// made the call. Default: ten minutes. Zero: 1 ms. [`Duration::MAX`]: none. Ranks may differ.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tributary::{ErrorKind, Group, InPlace, Options, ReduceOp, Stream};
    /// let options = Options::new().backend("host").call_timeout(Duration::from_millis(50));
    /// let mut ranks = Group::with_options(2, &options)?.split()?;
    /// let stream = Stream::new(ranks[0].device())?;
    /// // Rank 1 does not make this call.
    /// let work = ranks[0].start(vec![1.0_f32; 8], &stream, |s, data| {
    ///     s.allreduce(InPlace, data, ReduceOp::Sum)
    /// })?;
    /// let late = work.wait().unwrap_err();
    /// assert_eq!(late.error.kind(), ErrorKind::Timeout);
    /// assert!(late.error.detail().contains("rank 1 has made no call"));
    /// # Ok::<(), tributary::Error>(())
    /// ```
    pub fn call_timeout(mut self, timeout: Duration) -> Options {
        self.call_timeout = Some(timeout.max(SHORTEST));
        self
    }

    /// Counts the deadline of every call on nccl from its exact start, which costs two events per
    /// call, about 1 us. Host always does. Without it, calls that follow each other within some
    /// 50 us share their events, and so may a few calls after a burst.
    pub fn timed(self, on: bool) -> Options {
        self.flag(sys::TRIB_TIMED, on)
    }

    /// Switches the flight recorder and the watchdog off for this communicator: calls have no
    /// deadlines, and reports do not mention it. Saves some 50 ns per call.
    pub fn unrecorded(self, on: bool) -> Options {
        self.flag(sys::TRIB_UNRECORDED, on)
    }

    /// Switches the side channel off or on (the default): connections between the processes of a
    /// communicator, over which they hear of deaths and aborts, ask who is missing, and
    /// [shrink](crate::Communicator::shrink). If one rank switches it off, no rank has one.
    pub fn side_channel(self, on: bool) -> Options {
        self.flag(sys::TRIB_NO_SIDE_CHANNEL, !on)
    }

    /// Promises that the ranks' calls match, which makes comparing them needless.
    ///
    /// Without the promise safe code does not trust other ranks: calls that differ return
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) and touch no foreign memory. Host
    /// compares at no cost. NCCL compares nothing, so on nccl the ranks compare before each
    /// collective, as with [`match_calls`](Options::match_calls). That costs a small allgather and
    /// a wait of the calling thread, a few tens of microseconds per call, and rules out CUDA graphs. Nothing can
    /// compare the safe [`send`](crate::Scope::send), [`recv`](crate::Scope::recv) and
    /// [`alltoallv`](crate::Scope::alltoallv) beforehand, so they fail on nccl.
    ///
    /// A training loop makes the promise once, here, and pays for no comparison.
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
    /// All ranks of a communicator with these options make this promise. They make the same calls
    /// in the same order, with the same lengths, types, reductions and roots, in the safe forms
    /// too; and each rank receives with the length and type that its peer sends. The same holds for
    /// communicators that are [split](crate::Communicator::split) from it.
    pub unsafe fn assume_matching_calls(mut self) -> Options {
        self.assumed = true;
        self
    }

    /// Switches debug mode on: before each collective the ranks compare operation, count, type,
    /// reduction and root. If one differs, all return
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) instead of waiting for ever or failing
    /// later. Calls then wait for each other, so give every rank its own thread.
    pub fn match_calls(self, on: bool) -> Options {
        self.flag(sys::TRIB_MATCH, on)
    }

    fn flag(mut self, flag: u32, on: bool) -> Options {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
        self
    }

    /// Skips the checks that look up the memory, device and range of buffers and streams. Checks of
    /// the arguments themselves stay.
    ///
    /// # Safety
    /// Every buffer passed to this communicator, in the safe forms too, is memory that its device
    /// can use.
    pub unsafe fn unchecked(mut self) -> Options {
        self.flags |= sys::TRIB_UNCHECKED;
        self
    }

    pub(crate) fn assumed(&self) -> bool {
        self.assumed
    }

    pub(crate) fn close_timeout_or_default(&self) -> Duration {
        self.close_timeout.unwrap_or(CLOSE_TIMEOUT)
    }

    /// For C; the string must outlive the options.
    pub(crate) fn raw(&self) -> Result<(sys::trib_options, Option<CString>)> {
        let name = self.backend.as_ref().map(|name| c_string("backend", name)).transpose()?;
        let mut raw = sys::TRIB_OPTIONS_INIT;
        raw.flags = self.flags | if self.assumed { 0 } else { sys::TRIB_COMPARED };
        raw.timeout_ms = self.timeout.map_or(0, milliseconds);
        raw.close_timeout_ms = self.close_timeout.map_or(0, milliseconds);
        raw.call_timeout_ms = self.call_timeout.map_or(0, milliseconds);
        if let Some(name) = &name {
            raw.backend = name.as_ptr();
        }
        Ok((raw, name))
    }
}

/// Rounded up, so that a short wait does not become 0, which C may take for the default. What C
/// cannot express becomes `TRIB_NO_TIMEOUT`.
pub(crate) fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(sys::TRIB_NO_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadlines(options: &Options) -> [u32; 3] {
        let (raw, _) = options.raw().unwrap();
        [raw.timeout_ms, raw.close_timeout_ms, raw.call_timeout_ms]
    }

    #[test]
    fn only_a_deadline_that_was_not_set_is_the_default() {
        let all = |time| Options::new().timeout(time).close_timeout(time).call_timeout(time);
        assert_eq!(deadlines(&Options::new()), [0; 3]);
        assert_eq!(Options::new().close_timeout_or_default(), CLOSE_TIMEOUT);
        for short in [Duration::ZERO, Duration::from_nanos(1), SHORTEST] {
            assert_eq!(deadlines(&all(short)), [1; 3]);
            assert_eq!(all(short).close_timeout_or_default(), SHORTEST);
        }
        assert_eq!(deadlines(&all(Duration::from_micros(2001))), [3; 3]);
        assert_eq!(deadlines(&all(Duration::MAX)), [sys::TRIB_NO_TIMEOUT; 3]);
    }
}
