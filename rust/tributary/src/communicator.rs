//! One rank of a communicator, from creation to destruction.

use std::cell::Cell;
use std::ffi::{c_void, CStr};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::Duration;

use tributary_sys as sys;

use crate::abort::AbortHandle;
use crate::call_counters::CallCounters;
use crate::capabilities::Capabilities;
use crate::check;
use crate::counters::Counters;
use crate::deadline::Deadline;
use crate::device::Device;
use crate::error::{check as checked, number, text, Error, Result};
use crate::event::Event;
use crate::id::UniqueId;
use crate::memory::Memory;
use crate::options::{milliseconds, Options};
use crate::reducer_handle::ReducerHandle;
use crate::stream::Stream;
use crate::work::Queued;

/// One rank of a communicator.
///
/// A communicator may move to another thread, but one thread at a time uses it: it is `Send`, not
/// `Sync`, and its methods take `&mut self`. Its [`AbortHandle`] works from any thread at any time.
///
/// ```compile_fail
/// fn shared<T: Sync>() {}
/// shared::<tributary::Communicator>();
/// ```
///
/// # Three ways to queue a collective
///
/// A queued collective returns at once. Its buffers must live, untouched, until the stream has
/// passed it.
///
/// * [`scope`](Communicator::scope) borrows the buffers and waits for the stream at its end.
/// * [`start`](Communicator::start) takes the buffers and returns them when they are ready.
/// * The `unsafe` methods of this type rely on the caller, also for clones of a tensor that share
///   their storage. They take any [`DeviceBuffer`](crate::DeviceBuffer).
///
/// # Dropping
///
/// Dropping a communicator waits for queued work up to [`Options::close_timeout`], then aborts it, and
/// as long for the buffers of [works](crate::Work) that were dropped before they had run.
/// A drop never panics and never blocks for ever. During a panic it aborts at once, so that no
/// other rank waits for this one; [`Group::run`](crate::Group::run) then passes on the panic's
/// message. [`close`](Communicator::close) does the same and returns the result.
pub struct Communicator {
    shared: Arc<Shared>,
    rank: usize,
    size: usize,
    device: Device,
    name: Box<str>,
    abort: AbortHandle,
    timeout: Duration,
    /// See `Options::assume_matching_calls`.
    assumed: bool,
    /// "use each communicator [...] from one thread at a time": not Sync.
    one_thread: PhantomData<Cell<()>>,
}

/// The C communicator, until it is destroyed.
///
/// The lock guards the pointer and every call with it: a [`Work`](crate::Work) asks for the status
/// on the thread that waits for it. Scopes, [`Communicator::wait`] and [`Communicator::wait_for`]
/// wait for their stream without it; `wait_for` holds it for a millisecond at its beginning and its
/// end, and for up to 50 ms more when it is late, while other processes answer. The calls that wait
/// under it (close, split, shrink, collectives that match calls, sparse states that are made, set,
/// exported, imported or destroyed, sparse calls that fetch counts, reducers that are made or
/// destroyed, and their buckets where calls are compared, symmetric memory that is made or freed) have
/// deadlines or can be aborted.
pub(crate) struct Shared {
    live: Mutex<Option<Live>>,
    /// 0, or one more than the stream handle of the open batch, which queues later calls. The
    /// thread that has the communicator writes it.
    batch: AtomicUsize,
    /// How long a drop waits for queued work.
    timeout: Duration,
    /// Works whose outcome this communicator knows, also after its end.
    works: Mutex<Vec<Weak<Queued>>>,
    /// The counters before the communicator was destroyed.
    last: Mutex<Option<Counters>>,
    /// Works that were dropped before they had run, and whose buffers are still there.
    retired: AtomicUsize,
}

/// A C communicator, its sparse states and its reducers. "`comm` must outlive the state", and the
/// reducer, so they are destroyed first, wherever their owners are.
pub(crate) struct Live {
    comm: NonNull<sys::trib_comm>,
    sparse: Vec<Arc<CallCounters>>,
    reducers: Vec<Arc<ReducerHandle>>,
}

// SAFETY: "use each communicator [...] from one thread at a time": the lock sees to it.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(comm: NonNull<sys::trib_comm>, timeout: Duration) -> Shared {
        Shared {
            live: Mutex::new(Some(Live { comm, sparse: Vec::new(), reducers: Vec::new() })),
            batch: AtomicUsize::new(0),
            timeout,
            works: Mutex::default(),
            last: Mutex::default(),
            retired: AtomicUsize::new(0),
        }
    }

    /// Calls C. `None` if the communicator has been destroyed.
    pub(crate) fn call(
        &self,
        function: impl FnOnce(*mut sys::trib_comm) -> sys::trib_status,
    ) -> Option<Result<()>> {
        let live = self.lock();
        live.as_ref().map(|live| checked(function(live.comm.as_ptr())))
    }

    /// Calls C for several communicators, under the locks of all. `None` if one of them has been
    /// destroyed.
    ///
    /// Every other caller takes one lock at a time, and the caller has each of `all` for itself, so
    /// no two threads wait for each other.
    pub(crate) fn call_all(
        all: &[&Shared],
        function: impl FnOnce(&[*mut sys::trib_comm]) -> sys::trib_status,
    ) -> Option<Result<()>> {
        let locked: Vec<_> = all.iter().map(|shared| shared.lock()).collect();
        let comms: Option<Vec<_>> =
            locked.iter().map(|live| live.as_ref().map(|live| live.comm.as_ptr())).collect();
        comms.map(|comms| checked(function(&comms)))
    }

    /// Calls `make` for a sparse state, which belongs to the communicator until `destroy_sparse` or
    /// the communicator's end.
    pub(crate) fn adopt(
        &self,
        make: impl FnOnce(*mut sys::trib_comm) -> Result<NonNull<sys::trib_sparse>>,
    ) -> Option<Result<Arc<CallCounters>>> {
        let mut live = self.lock();
        live.as_mut().map(|live| {
            let sparse = Arc::new(CallCounters::new(make(live.comm.as_ptr())?));
            live.sparse.push(Arc::clone(&sparse));
            Ok(sparse)
        })
    }

    /// Does what `adopt` does, for a reducer, until `destroy_reducer`.
    pub(crate) fn adopt_reducer(
        &self,
        abort: AbortHandle,
        make: impl FnOnce(*mut sys::trib_comm) -> Result<NonNull<sys::trib_reducer>>,
    ) -> Option<Result<Arc<ReducerHandle>>> {
        let mut live = self.lock();
        live.as_mut().map(|live| {
            let reducer = Arc::new(ReducerHandle::new(make(live.comm.as_ptr())?, abort));
            live.reducers.push(Arc::clone(&reducer));
            Ok(reducer)
        })
    }

    /// Destroys a reducer for its owner, unless this or the communicator's end has before.
    pub(crate) fn destroy_reducer(&self, reducer: &Arc<ReducerHandle>) {
        let mut live = self.lock();
        let Some(reducers) = live.as_mut().map(|live| &mut live.reducers) else { return };
        if let Some(i) = reducers.iter().position(|other| Arc::ptr_eq(other, reducer)) {
            // SAFETY: it is no longer adopted, so this is the only call; the lock keeps others out.
            unsafe { reducers.swap_remove(i).destroy() };
        }
    }

    /// Lets the watchdog notice the end of what this communicator has queued on `stream`: on nccl the
    /// last calls of a burst would otherwise have no deadline. Only the thread that has the
    /// communicator calls it. A failure is for the wait that follows to find.
    pub(crate) fn mark_end(&self, stream: &Stream) {
        if let Some(live) = self.lock().as_ref() {
            // SAFETY: the lock keeps other threads out; the stream is of the communicator's device
            // (else the call fails) and lives. "With 0 it asks once".
            let _ = unsafe { sys::trib_comm_wait(live.comm.as_ptr(), stream.as_raw(), 0) };
        }
    }

    /// `None` if the communicator has been destroyed.
    pub(crate) fn counters(&self) -> Option<Result<Counters>> {
        let mut raw = sys::TRIB_COUNTERS_INIT;
        // SAFETY: `raw` lives through the call, with its size set; the lock keeps others out.
        let read = self.call(|comm| unsafe { sys::trib_comm_counters(&mut raw, comm) });
        read.map(|read| read.map(|()| raw.into()))
    }

    /// Calls `function` under the lock, so that adopted states and reducers are alive in it. `None`
    /// if the communicator has been destroyed, and they with it.
    pub(crate) fn with_states<T>(&self, function: impl FnOnce() -> T) -> Option<T> {
        let live = self.lock();
        live.as_ref().map(|_| function())
    }

    /// Destroys a sparse state for its owner, unless the communicator's end has.
    pub(crate) fn destroy_sparse(&self, sparse: &Arc<CallCounters>) {
        self.wait_for_works(|work| work.uses(sparse));
        sparse.wait_idle(self, self.timeout());
        let mut live = self.lock();
        if let Some(live) = live.as_mut() {
            live.sparse.retain(|other| !Arc::ptr_eq(other, sparse));
            sparse.close();
            // SAFETY: it was adopted, and nobody else has it now. "Waits for queued
            // calls, at most as long as trib_comm_destroy".
            unsafe { sys::trib_sparse_destroy(sparse.state().as_ptr()) };
        }
    }

    /// Registers a work whose outcome will be asked for, possibly after the communicator's end.
    pub(crate) fn register(&self, work: &Arc<Queued>) {
        let mut works = self.works();
        works.retain(|work| work.strong_count() > 0);
        works.push(Arc::downgrade(work));
    }

    /// Waits up to the timeout until the registered works have run: the outcome of those that have
    /// not is lost at the end.
    fn wait_for_works(&self, which: impl Fn(&Queued) -> bool) {
        let works: Vec<_> = self.works().iter().filter_map(Weak::upgrade).collect();
        let works: Vec<_> = works.into_iter().filter(|work| which(work)).collect();
        let passed = || works.iter().all(|work| work.is_passed());
        Deadline::after(self.timeout()).poll(|| passed() || !self.is_good());
        works.iter().for_each(|work| work.mark_ended());
    }

    pub(crate) fn count_retired(&self) {
        self.retired.fetch_add(1, Ordering::Relaxed);
    }

    /// What the drop of the buffers did, comes before what follows a `wait_for_retired`.
    pub(crate) fn uncount_retired(&self) {
        self.retired.fetch_sub(1, Ordering::Release);
    }

    /// Waits up to the timeout until the buffers of dropped works are gone.
    fn wait_for_retired(&self) {
        Deadline::after(self.timeout()).poll(|| self.retired.load(Ordering::Acquire) == 0);
    }

    /// Whether a thread is in a call with the communicator, which may wait for other ranks.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.live.try_lock(), Err(TryLockError::WouldBlock))
    }

    fn timeout(&self) -> Duration {
        if thread::panicking() {
            return Duration::ZERO;
        }
        self.timeout
    }

    /// Whether the communicator is neither aborted nor failed nor destroyed.
    pub(crate) fn is_good(&self) -> bool {
        // SAFETY: the lock keeps other threads out. "Never waits."
        matches!(self.call(|comm| unsafe { sys::trib_comm_status(comm) }), Some(Ok(())))
    }

    /// The counters before the communicator was destroyed.
    pub(crate) fn last_counters(&self) -> Option<Counters> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn works(&self) -> MutexGuard<'_, Vec<Weak<Queued>>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_batch(&self, stream: Option<*mut c_void>) {
        let mark = stream.map_or(0, |stream| (stream as usize).wrapping_add(1));
        self.batch.store(mark, Ordering::Relaxed);
    }

    /// The stream of the open batch.
    fn batch(&self) -> Option<*mut c_void> {
        let mark = self.batch.load(Ordering::Relaxed);
        (mark != 0).then(|| ptr::null_mut::<u8>().wrapping_add(mark - 1).cast())
    }

    /// Whether a call may name `stream`. In a batch, only the batch's stream is allowed.
    #[inline]
    pub(crate) fn batch_takes(&self, stream: &Stream) -> Result<(), *mut c_void> {
        match self.batch() {
            Some(begun) if begun != stream.as_raw() => Err(begun),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Live> {
        self.lock().take()
    }
}

/// How long `wait_for` holds the lock at a time.
const MOMENT: Duration = Duration::from_millis(1);

/// More than ranks of a process that can be lost.
const LOST_MAX: usize = 64;

impl Communicator {
    /// Creates rank `rank` of `size`, on device `device`, of the communicator that `id` names.
    /// Returns when all ranks have joined, or with
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout). On host all ranks are threads of this
    /// process.
    ///
    /// ```
    /// use tributary::{Communicator, UniqueId};
    /// let id = UniqueId::of("host")?;
    /// std::thread::scope(|threads| {
    ///     for rank in 0..2 {
    ///         let id = id.clone();
    ///         threads.spawn(move || {
    ///             let comm = Communicator::new(&id, rank, 2, rank).unwrap();
    ///             assert_eq!(comm.size(), 2);
    ///         });
    ///     }
    /// });
    /// # Ok::<(), tributary::Error>(())
    /// ```
    pub fn new(id: &UniqueId, rank: usize, size: usize, device: usize) -> Result<Communicator> {
        Communicator::with_options(id, rank, size, device, &Options::new())
    }

    /// Does what [`Communicator::new`] does, with `options`.
    pub fn with_options(
        id: &UniqueId,
        rank: usize,
        size: usize,
        device: usize,
        options: &Options,
    ) -> Result<Communicator> {
        let (rank, size) = (number("rank", rank)?, number("size", size)?);
        let device = number("device", device)?;
        let (raw, _strings) = options.raw()?;
        let mut comm = ptr::null_mut();
        // SAFETY: all pointers live through the call; `*out` is ours to destroy.
        checked(unsafe { sys::trib_comm_create(&mut comm, id.raw(), rank, size, device, &raw) })?;
        // SAFETY: a call that succeeds has set `*out`, and it is given away.
        unsafe {
            let comm = NonNull::new_unchecked(comm);
            Communicator::from_raw(comm, options.close_timeout_or_default(), options.assumed())
        }
    }

    /// Creates the communicator of all processes that torchrun, mpirun or srun has started, a rank
    /// each, with the options' defaults. The rank, the number of ranks, the device and where to meet
    /// come from the launcher's variables: see [`Job`](crate::Job).
    ///
    /// ```no_run
    /// use tributary::Communicator;
    /// let communicator = Communicator::from_env()?; // in each process
    /// println!("rank {} of {}", communicator.rank(), communicator.size());
    /// # Ok::<(), tributary::Error>(())
    /// ```
    pub fn from_env() -> Result<Communicator> {
        Communicator::from_env_with(&Options::new())
    }

    /// Does what [`Communicator::from_env`] does, with `options`. All ranks have to meet within
    /// [`Options::timeout`], and to create the communicator within as much again.
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for several ranks on `host`, where
    /// ranks are threads of one process. [`ErrorKind::NoDevice`](crate::ErrorKind::NoDevice), before
    /// the ranks meet, where this process does not see the device of its number on the host.
    pub fn from_env_with(options: &Options) -> Result<Communicator> {
        let (raw, _strings) = options.raw()?;
        let mut comm = ptr::null_mut();
        // SAFETY: both pointers live through the call; `*out` is ours to destroy. The environment:
        // see Job::from_env.
        checked(unsafe { sys::trib_comm_from_env(&mut comm, &raw) })?;
        // SAFETY: a call that succeeds has set `*out`, and it is given away.
        unsafe {
            let comm = NonNull::new_unchecked(comm);
            Communicator::from_raw(comm, options.close_timeout_or_default(), options.assumed())
        }
    }

    /// Creates a communicator over an `ncclComm_t` that stays yours. Rank, size and device are those
    /// of `nccl_comm`. All its ranks call this, each on its own thread, within the deadline of the
    /// options. [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) without the backend
    /// `nccl`, and where `nccl_comm` is non-blocking.
    ///
    /// It is never finalized, aborted or destroyed here. So an abort, or a deadline that passes, ends
    /// this communicator, but streams that wait inside a collective go on waiting, and so do waits
    /// for them ([`scope`](Communicator::scope), [`Work::wait`](crate::Work::wait)), until you call
    /// `ncclCommAbort`. Drops and [`close`](Communicator::close) do not wait for queued work,
    /// but for the buffers of dropped works. Communicators that are [split](Communicator::split) or
    /// [shrunk](Communicator::shrink) from this one are ordinary ones. `trib_comm_adopt` in the
    /// header says more.
    ///
    /// ```
    /// use tributary::{Communicator, ErrorKind, Options};
    /// let mut nothing = 0_u8;
    /// let options = Options::new().backend("host");
    /// // SAFETY: the backend is none that could use it.
    /// let refused = unsafe { Communicator::adopt((&mut nothing as *mut u8).cast(), &options) };
    /// assert_eq!(refused.err().unwrap().kind(), ErrorKind::Unsupported);
    /// ```
    ///
    /// # Safety
    /// `nccl_comm` is a blocking `ncclComm_t` of the NCCL that this library uses, or NULL. It lives
    /// until the communicator has been dropped, or aborted with no call in flight. Meanwhile other
    /// calls use it neither at the same time as this communicator's nor, over the ranks, in different
    /// orders.
    pub unsafe fn adopt(nccl_comm: *mut c_void, options: &Options) -> Result<Communicator> {
        let (raw, _strings) = options.raw()?;
        let mut comm = ptr::null_mut();
        // SAFETY: the caller's promise; the other pointers live through the call, and `*out` is ours
        // to destroy.
        checked(unsafe { sys::trib_comm_adopt(&mut comm, nccl_comm, &raw) })?;
        // SAFETY: a call that succeeds has set `*out`, and it is given away.
        unsafe {
            let comm = NonNull::new_unchecked(comm);
            Communicator::from_raw(comm, options.close_timeout_or_default(), options.assumed())
        }
    }

    /// # Safety
    /// The caller owns `comm` and gives it away. It was made with TRIB_COMPARED, unless its maker
    /// promised `assumed`.
    pub(crate) unsafe fn from_raw(
        comm: NonNull<sys::trib_comm>,
        timeout: Duration,
        assumed: bool,
    ) -> Result<Communicator> {
        let shared = Arc::new(Shared::new(comm, timeout));
        let guard = DestroyOnDrop(&shared);
        // SAFETY: `comm` is alive and nobody else has it yet.
        let (abort, (rank, size, device)) = unsafe { (abort_handle(comm)?, place(comm)?) };
        // SAFETY: "valid as long as `comm`"; it is copied.
        let name = unsafe { CStr::from_ptr(sys::trib_comm_name(comm.as_ptr())) };
        let name = name.to_string_lossy().into();
        std::mem::forget(guard);
        Ok(Communicator {
            shared,
            rank,
            size,
            device,
            name,
            abort,
            timeout,
            assumed,
            one_thread: PhantomData,
        })
    }

    /// Returns this rank's number, below [`size`](Communicator::size).
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns this rank's device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the name of the backend.
    pub fn backend(&self) -> &'static str {
        self.device.backend()
    }

    /// Returns the [name](Options::name) that the options gave it, `""` if there was none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what it can do: what its backend can, as far as its options and its side channel
    /// allow.
    pub fn capabilities(&mut self) -> Result<Capabilities> {
        let mut raw = sys::TRIB_CAPABILITIES_INIT;
        // SAFETY: `raw` lives through the call, with its size set; the lock keeps others out.
        self.call(|comm| unsafe { sys::trib_comm_capabilities(&mut raw, comm) })?;
        Ok(raw.into())
    }

    /// Creates new communicators: the ranks of one `color` form one, ordered by `key`, then by
    /// rank. All ranks make this call, within the deadline of the options. The new communicators do
    /// not depend on the old one. A rank without a color takes part and joins none.
    pub fn split(&mut self, color: Option<u32>, key: i32) -> Result<Option<Communicator>> {
        let color = match color {
            None => sys::TRIB_NO_COLOR,
            Some(color) => number("color", color as usize)?,
        };
        let mut out = ptr::null_mut();
        // SAFETY: the lock keeps other threads out; `*out` is ours to destroy.
        self.call(|comm| unsafe { sys::trib_comm_split(&mut out, comm, color, key) })?;
        // SAFETY: `*out` is NULL or a communicator that is given away.
        NonNull::new(out)
            .map(|comm| unsafe { Communicator::from_raw(comm, self.timeout, self.assumed) })
            .transpose()
    }

    /// Returns the ranks that were found missing when the communicator ended, in ascending order:
    /// those that had not made the call for which the watchdog ended it, those that had closed or
    /// whose process had died, or those that a [`shrink`](Communicator::shrink) excluded; and those
    /// whose process has died since. Empty while the communicator is usable, and where nobody knows
    /// (an [`AbortHandle`], an error of NCCL). A slow rank may be among them. The same on all ranks
    /// of this process, and of all others that have heard of the same deaths. The ranks of a process
    /// that died may be known some milliseconds after the communicator has ended.
    pub fn lost(&self) -> Vec<usize> {
        let (mut ranks, mut n) = ([0_i32; LOST_MAX], 0);
        let (place, capacity) = (ranks.as_mut_ptr(), LOST_MAX as i32);
        // SAFETY: the lock keeps other threads out; `ranks` has room for `capacity` of them.
        self.shared.call(|comm| unsafe { sys::trib_comm_lost(&mut n, comm, place, capacity) });
        ranks[..n.clamp(0, capacity) as usize].iter().map(|&rank| rank as usize).collect()
    }

    /// Creates a communicator of the ranks that are not `excluded`, on the same devices and with
    /// the same options. It is made anew, so it does not matter what has become of the excluded
    /// ones. The others keep their order and become ranks 0 and up.
    ///
    /// Every rank that is not excluded makes this call, with the same set, within `timeout` (zero:
    /// 1 ms). If the communicator has not ended, this aborts it. Drop it when you have taken from its
    /// [sparse states](crate::SparseAllReduce) what you want to keep: their end comes with it.
    ///
    /// An attempt that fails does so on all ranks that take part, and can be repeated, with other
    /// ranks excluded: with [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if two ranks
    /// exclude different ones, or the others have gone on without this one; with
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) if a rank does not call; with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if one in another process has died. The error
    /// names the ranks. [`recover`](crate::recover) is a loop around this.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tributary::{Group, InPlace, Options, ReduceOp, Result, Stream};
    /// let group = Group::with_options(3, &Options::new().backend("host"))?;
    /// group.run(|comm| -> Result<()> {
    ///     if comm.rank() == 1 {
    ///         return Ok(()); // the others go on without it
    ///     }
    ///     let mut rest = comm.shrink(&[1], Duration::from_secs(10))?;
    ///     assert_eq!((rest.rank(), rest.size()), (comm.rank() / 2, 2));
    ///     let stream = Stream::new(rest.device())?;
    ///     let mut ones = vec![1.0_f32; 10];
    ///     rest.scope(&stream, |s| s.allreduce(InPlace, &mut ones, ReduceOp::Sum))?;
    ///     assert_eq!(ones, [2.0; 10]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), tributary::Error>(())
    /// ```
    pub fn shrink(&mut self, excluded: &[usize], timeout: Duration) -> Result<Communicator> {
        let ranks: Result<Vec<i32>> = excluded.iter().map(|&rank| number("rank", rank)).collect();
        let (ranks, mut out) = (ranks?, ptr::null_mut());
        let (n, timeout) = (number("excluded.len()", ranks.len())?, milliseconds(timeout).max(1));
        // SAFETY: the lock keeps other threads out; `ranks` has `n` entries; `*out` is ours to
        // destroy. "Blocking, at most `timeout_ms`".
        self.call(|comm| unsafe {
            sys::trib_comm_shrink(&mut out, comm, ranks.as_ptr(), n, timeout)
        })?;
        // SAFETY: a call that succeeds has set `*out`, and it is given away. It has the flags of
        // this one.
        unsafe {
            let comm = NonNull::new_unchecked(out);
            Communicator::from_raw(comm, self.timeout, self.assumed)
        }
    }

    /// Returns a handle that aborts this communicator from any thread.
    pub fn abort_handle(&self) -> AbortHandle {
        self.abort.clone()
    }

    /// Returns `Ok` while the communicator is usable, and otherwise the reason: an abort, or a
    /// failure on a stream. After you wait for a stream, its results are valid if and only if this
    /// is `Ok`. Never waits.
    pub fn status(&mut self) -> Result<()> {
        // SAFETY: the lock keeps other threads out. "Never waits."
        self.call(|comm| unsafe { sys::trib_comm_status(comm) })
    }

    /// Waits for `stream`, which belongs to this rank's device. `Ok` means that the results are
    /// valid; an error is that of [`status`](Communicator::status), or of the stream. All calls of
    /// this communicator on it have their deadline here, on nccl also the last ones of a burst;
    /// [`wait_for`](Communicator::wait_for) has a deadline for the wait itself.
    pub fn wait(&mut self, stream: &Stream) -> Result<()> {
        check::stream_of(
            &format_args!("Communicator::wait on rank {}", self.rank),
            stream,
            self.device,
        )?;
        self.shared.mark_end(stream);
        stream.wait()?;
        self.status()
    }

    /// Waits for `stream`, at most `timeout`. `Ok` means that the results are valid.
    ///
    /// After [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) the communicator is as before, if
    /// [`status`](Communicator::status) is `Ok`: wait again, or abort it. The error says which call
    /// is late, and which rank has not made it. If the communicator ends, or had ended before, the
    /// wait ends at once, with the error of [`status`](Communicator::status), and the stream may
    /// still run.
    pub fn wait_for(&mut self, stream: &Stream, timeout: Duration) -> Result<()> {
        check::stream_of(
            &format_args!("Communicator::wait_for on rank {}", self.rank),
            stream,
            self.device,
        )?;
        let first = self.wait_in_c(stream, timeout.min(MOMENT));
        if timeout <= MOMENT || first.as_ref().map_or_else(|e| !e.is_timeout(), |()| true) {
            return first;
        }
        if self.status().is_ok() && self.passes(stream, timeout.saturating_sub(2 * MOMENT))? {
            return self.status();
        }
        self.wait_in_c(stream, MOMENT) // the error tells the time since `first`
    }

    fn wait_in_c(&mut self, stream: &Stream, timeout: Duration) -> Result<()> {
        let (stream, timeout) = (stream.as_raw(), milliseconds(timeout));
        // SAFETY: the lock keeps other threads out; the wait has a deadline, and an abort ends it.
        let waited = self.call(|comm| unsafe { sys::trib_comm_wait(comm, stream, timeout) });
        match waited {
            // "only here", from the status, comes a mistake that ended the communicator.
            Err(error) if error.is_aborted() => self.status().and(Err(error)),
            waited => waited,
        }
    }

    /// Whether `stream` passes this point before `timeout` and before the communicator ends. Does
    /// not hold the lock.
    fn passes(&self, stream: &Stream, timeout: Duration) -> Result<bool> {
        let mut event = Event::new(self.device)?;
        event.record(stream)?;
        let mut passed = Ok(false);
        Deadline::after(timeout).poll(|| {
            passed = event.is_done();
            !matches!(passed, Ok(false)) || self.abort.is_aborted()
        });
        passed
    }

    /// Sets the deadline of calls made from now on, as
    /// [`Options::call_timeout`](crate::Options::call_timeout) does, zero and [`Duration::MAX`]
    /// included, and whether they are [`timed`](crate::Options::timed). Set it around a call to give
    /// that call a deadline of its own.
    pub fn set_call_timeout(&mut self, timeout: Duration, timed: bool) -> Result<()> {
        let timeout = milliseconds(timeout).max(1);
        // SAFETY: the lock keeps other threads out.
        self.call(|comm| unsafe {
            sys::trib_comm_set_call_timeout(comm, timeout, i32::from(timed))
        })
    }

    /// Returns the counters of this rank, also after an abort.
    pub fn counters(&mut self) -> Result<Counters> {
        self.shared.counters().unwrap_or_else(|| Err(gone()))
    }

    /// Returns what this rank's communicator holds, its sparse states included.
    ///
    /// ```
    /// use tributary::{Group, Options};
    /// let mut ranks = Group::with_options(2, &Options::new().backend("host"))?.split()?;
    /// assert_eq!(ranks[0].memory()?.workspace.bytes, 0); // nothing before the first use
    /// # Ok::<(), tributary::Error>(())
    /// ```
    pub fn memory(&mut self) -> Result<Memory> {
        let mut raw = sys::TRIB_MEMORY_INIT;
        // SAFETY: `raw` lives through the call, with its size set; the lock keeps others out.
        self.call(|comm| unsafe { sys::trib_comm_memory(&mut raw, comm) })?;
        Ok(raw.into())
    }

    /// Ends this rank's part in good order. Ranks of one process may close one after the other; the
    /// last one waits until everything queued on all of them has run. On nccl it also waits for
    /// other processes, as far as NCCL needs them to finish and close, and for the end of every
    /// CUDA graph that captured a call. If `timeout` passes first, aborts the communicator and
    /// returns [`ErrorKind::Timeout`](crate::ErrorKind::Timeout). The resources are released in the
    /// background: [`quiesce`](crate::quiesce) waits for that.
    ///
    /// If a remaining rank has made more calls than one that has closed, the communicator ends for
    /// all that remain, with [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    pub fn close(mut self, timeout: Duration) -> Result<()> {
        // SAFETY: the lock keeps other threads out; the drop that follows destroys.
        self.call(|comm| unsafe { sys::trib_comm_close(comm, milliseconds(timeout)) })
    }

    /// Calls C with the communicator.
    #[inline]
    pub(crate) fn call(
        &mut self,
        function: impl FnOnce(*mut sys::trib_comm) -> sys::trib_status,
    ) -> Result<()> {
        self.shared.call(function).unwrap_or_else(|| Err(gone()))
    }

    /// Fails inside a batch: a wait there would end before the calls are queued.
    pub(crate) fn not_batching(&self, operation: &str) -> Result<()> {
        if self.shared.batch().is_none() {
            return Ok(());
        }
        Err(Error::new(
            sys::TRIB_ERR_INVALID_USAGE,
            format!(
                "{operation} on rank {} ({}): not inside a batch, whose calls are queued at its end; \
                 begin the batch inside",
                self.rank, self.device
            ),
        ))
    }

    /// Fails on nccl without the promise that calls match: only the two ends could compare such a
    /// call. Host compares it on the stream.
    pub(crate) fn compares_pairs(&self, operation: &str) -> Result<()> {
        if self.assumed || self.backend() == "host" {
            return Ok(());
        }
        Err(Error::new(
            sys::TRIB_ERR_INVALID_USAGE,
            format!(
                "{operation} on rank {} ({}): nothing compares what one rank sends with what the \
                 other receives here; promise that they match with Options::assume_matching_calls, \
                 or use the unsafe form",
                self.rank, self.device
            ),
        ))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// How long to wait for work that may never end before aborting it.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }
}

#[cold]
pub(crate) fn gone() -> Error {
    Error::new(sys::TRIB_ERR_CLOSED, "this communicator has been destroyed")
}

/// # Safety
/// `comm` is alive, and no other thread uses it.
unsafe fn abort_handle(comm: NonNull<sys::trib_comm>) -> Result<AbortHandle> {
    let mut handle = ptr::null_mut();
    // SAFETY: the caller's promise; the handle is ours to release.
    checked(unsafe { sys::trib_comm_abort_handle(&mut handle, comm.as_ptr()) })?;
    // SAFETY: a call that succeeds has set `*out`, and it is given away.
    Ok(unsafe { AbortHandle::from_raw(NonNull::new_unchecked(handle)) })
}

/// The rank, the number of ranks, and the rank's device.
///
/// # Safety
/// `comm` is alive, and no other thread uses it.
unsafe fn place(comm: NonNull<sys::trib_comm>) -> Result<(usize, usize, Device)> {
    let comm = comm.as_ptr();
    // SAFETY: the caller's promise; the numbers are not negative, and the name lives for ever.
    unsafe {
        let (rank, size) = (sys::trib_comm_rank(comm), sys::trib_comm_size(comm));
        let (backend, ordinal) = (text(sys::trib_comm_backend(comm)), sys::trib_comm_device(comm));
        Ok((rank as usize, size as usize, Device::get(backend, ordinal as usize)?))
    }
}

/// Destroys a new communicator that cannot be completed.
struct DestroyOnDrop<'a>(&'a Shared);

impl Drop for DestroyOnDrop<'_> {
    fn drop(&mut self) {
        destroy(self.0);
    }
}

fn destroy(shared: &Shared) {
    shared.wait_for_works(|_| true);
    let counters = shared.counters().and_then(Result::ok);
    *shared.last.lock().unwrap_or_else(PoisonError::into_inner) = counters;
    if let Some(live) = shared.take() {
        for reducer in live.reducers {
            // SAFETY: it is ours, and nobody else can reach it: `with_states` finds no `Live`.
            unsafe { reducer.destroy() };
        }
        for sparse in live.sparse {
            sparse.close();
            // SAFETY: as above.
            unsafe { sys::trib_sparse_destroy(sparse.state().as_ptr()) };
        }
        // SAFETY: as above. "Never blocks for ever".
        unsafe { sys::trib_comm_destroy(live.comm.as_ptr()) };
    }
    shared.wait_for_retired();
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if thread::panicking() {
            self.abort.abort(&format!("rank {} panicked", self.rank));
        }
        destroy(&self.shared);
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {} on {})", self.rank, self.size, self.device)
    }
}
