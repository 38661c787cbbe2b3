//! Options of communicators and groups.

use std::ffi::CString;
use std::ops::RangeInclusive;
use std::ptr;
use std::time::Duration;

use tributary_sys as sys;

use crate::cta_policy::CtaPolicy;
use crate::error::{c_string, Result};
use crate::windows::Windows;

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
    ctas: [u32; 2],
    cta_policy: CtaPolicy,
    peer_bytes: Option<u64>,
    windows: Windows,
    network: Option<String>,
    name: Option<String>,
    flags: u32,
    assumed: bool,
}

/// The strings of raw options, which must outlive them.
pub(crate) type Strings = [Option<CString>; 3];

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

    /// Names the communicator for people: in the log, in dumps and profiles, and with NCCL 2.27 and
    /// later in NCCL's log. 1 to 63 bytes. See
    /// [`Communicator::name`](crate::Communicator::name).
    ///
    /// ```
    /// use tributary::{Group, Options};
    /// let options = Options::new().backend("host").name("data parallel");
    /// let ranks = Group::with_options(2, &options)?.split()?;
    /// assert_eq!(ranks[1].name(), "data parallel");
    /// # Ok::<(), tributary::Error>(())
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Options {
        self.name = Some(name.into());
        self
    }

    /// Sets how many CTAs a collective's kernel has on each GPU, 1 to 64: fewer leave more of the
    /// GPU to your own kernels. Default: NCCL's choice. The variables `NCCL_MIN_CTAS` and
    /// `NCCL_MAX_CTAS` come before this. No effect on host.
    pub fn ctas(mut self, range: RangeInclusive<u32>) -> Options {
        self.ctas = [*range.start(), *range.end()];
        self
    }

    /// Sets how much device memory the kernels between GPUs may take on each rank, which serve small
    /// allreduces, reduce_scatters, allgathers, alltoalls and broadcasts instead of NCCL, and with
    /// 40 MiB or more larger ones of 2 to 4 (PEERS in the header), with 64 MiB those of 5 to 8 that name
    /// a variant; 0: none, NCCL serves all calls. The smallest of all ranks counts. Default: 48 MiB.
    /// No effect on host.
    pub fn peer_bytes(mut self, bytes: u64) -> Options {
        self.peer_bytes = Some(bytes);
        self
    }

    /// Sets how NCCL chooses between its kernels and copy engines. With a policy that the loaded
    /// NCCL does not have, creating fails with
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported). No effect on host.
    pub fn cta_policy(mut self, policy: CtaPolicy) -> Options {
        self.cta_policy = policy;
        self
    }

    /// Registers [`Symmetric`](crate::Symmetric) memory with NCCL, as windows. No effect on host.
    ///
    /// # Safety
    /// A buffer of a call lies in the same [`Symmetric`](crate::Symmetric) memory, at the same place in
    /// it, on all ranks, or in none on any: NCCL writes the other ranks' where this rank has its own.
    pub unsafe fn windows(mut self, windows: Windows) -> Options {
        self.windows = windows;
        self
    }

    /// Selects NCCL's network between hosts: `"Socket"`, `"IB"`, or the name of a plugin. Default:
    /// NCCL's choice; `NCCL_NET` comes before this. No effect on host.
    pub fn network(mut self, name: impl Into<String>) -> Options {
        self.network = Some(name.into());
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

    /// For C; the strings must outlive the options.
    pub(crate) fn raw(&self) -> Result<(sys::trib_options, Strings)> {
        let string = |what, text: &Option<String>| {
            text.as_ref().map(|text| c_string(what, text)).transpose()
        };
        let strings = [
            string("backend", &self.backend)?,
            string("network", &self.network)?,
            string("name", &self.name)?,
        ];
        let mut raw = sys::TRIB_OPTIONS_INIT;
        raw.flags = self.flags | self.windows.flags();
        raw.flags |= if self.assumed { 0 } else { sys::TRIB_COMPARED };
        raw.timeout_ms = self.timeout.map_or(0, milliseconds);
        raw.close_timeout_ms = self.close_timeout.map_or(0, milliseconds);
        raw.call_timeout_ms = self.call_timeout.map_or(0, milliseconds);
        [raw.min_ctas, raw.max_ctas] = self.ctas;
        raw.cta_policy = self.cta_policy.raw();
        raw.peer_bytes = self.peer_bytes.map_or(0, peer_bytes);
        [raw.backend, raw.network, raw.name] =
            strings.each_ref().map(|text| text.as_ref().map_or(ptr::null(), |text| text.as_ptr()));
        Ok((raw, strings))
    }
}

/// In C, 0 bytes would be the default.
fn peer_bytes(bytes: u64) -> u64 {
    if bytes == 0 {
        sys::TRIB_NO_PEERS.into()
    } else {
        bytes
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
    fn the_configuration_arrives() {
        let options = Options::new().backend("host").name("n").network("Socket").ctas(2..=8);
        let (raw, strings) = options.cta_policy(CtaPolicy::Zero).raw().unwrap();
        assert_eq!([raw.min_ctas, raw.max_ctas], [2, 8]);
        assert_eq!(raw.cta_policy, sys::TRIB_CTA_ZERO);
        let texts = strings.each_ref().map(|text| text.as_deref().and_then(|t| t.to_str().ok()));
        assert_eq!(texts, [Some("host"), Some("Socket"), Some("n")]);
        assert_eq!(
            [raw.backend, raw.network, raw.name],
            strings.each_ref().map(|text| text.as_ref().unwrap().as_ptr())
        );
        let (raw, _strings) = Options::new().raw().unwrap();
        assert!(raw.backend.is_null() && raw.network.is_null() && raw.name.is_null());
        assert_eq!([raw.min_ctas, raw.max_ctas], [0, 0]);
    }

    #[test]
    fn windows_are_abortable_unless_they_are_said_not_to_be() {
        let read = |options: Options| options.raw().unwrap().0.flags & !sys::TRIB_COMPARED;
        let unabortable = sys::TRIB_WINDOWS | sys::TRIB_WINDOWS_UNABORTABLE;
        assert_eq!(read(Options::new()), 0);
        // SAFETY: no call is made.
        let with = |options: Options, windows| unsafe { options.windows(windows) };
        let options = with(Options::new(), Windows::Unabortable);
        assert_eq!(read(options.clone()), unabortable);
        assert_eq!(read(with(options, Windows::Off)), 0);
        assert_eq!(read(with(Options::new(), Windows::Abortable)), sys::TRIB_WINDOWS);
    }

    #[test]
    fn no_memory_of_peers_is_not_the_default() {
        let read = |options: Options| options.raw().unwrap().0.peer_bytes;
        assert_eq!(read(Options::new()), 0);
        assert_eq!(read(Options::new().peer_bytes(0)), u64::from(sys::TRIB_NO_PEERS));
        assert_eq!(read(Options::new().peer_bytes(4096)), 4096);
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
