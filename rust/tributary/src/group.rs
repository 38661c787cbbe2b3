//! All ranks of a communicator in one process, driven by one thread.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::thread;
use std::time::Duration;

use tributary_sys as sys;

use crate::abort::AbortHandle;
use crate::buffer::{DeviceBuffer, DeviceSlice};
use crate::check::Check;
use crate::communicator::Communicator;
use crate::device::Device;
use crate::error::{check, number, text, Error, Result};
use crate::op::ReduceOp;
use crate::options::{milliseconds, Options};
use crate::scope::Target;
use crate::stream::Stream;
use crate::sync::SyncGuard;

/// All ranks of a communicator, in one process. One thread drives them all, or [`run`](Group::run)
/// starts a thread for each.
///
/// `Send`, not `Sync`. Dropping it is like dropping every rank's [`Communicator`].
///
/// ```
/// use tributary::{Group, Options, ReduceOp};
/// let mut group = Group::with_options(3, &Options::new().backend("host"))?;
/// let mut tensors = vec![vec![1_i32, 2], vec![10, 20], vec![100, 200]];
/// group.scope(None, |s| s.allreduce(&mut tensors, ReduceOp::Sum))?;
/// assert_eq!(tensors, vec![vec![111, 222]; 3]);
/// # Ok::<(), tributary::Error>(())
/// ```
pub struct Group {
    raw: NonNull<sys::trib_group>,
    devices: Vec<Device>,
    abort: AbortHandle,
    timeout: Duration,
    /// See `Options::assume_matching_calls`.
    assumed: bool,
    /// "use each [...] group [...] from one thread at a time": not Sync.
    one_thread: PhantomData<Cell<()>>,
}

// SAFETY: "use each [...] group [...] from one thread at a time", whichever thread that is.
unsafe impl Send for Group {}

impl Group {
    /// Creates a group of `size` ranks, with rank i on device i.
    pub fn new(size: usize) -> Result<Group> {
        Group::with_options(size, &Options::new())
    }

    /// Does what [`Group::new`] does, with `options`.
    pub fn with_options(size: usize, options: &Options) -> Result<Group> {
        Group::create(None, size, options)
    }

    /// Creates a group with a rank on each of `devices`, which are distinct.
    pub fn on_devices(devices: &[usize], options: &Options) -> Result<Group> {
        let ordinals: Result<Vec<i32>> =
            devices.iter().map(|&device| number("device", device)).collect();
        Group::create(Some(&ordinals?), devices.len(), options)
    }

    fn create(devices: Option<&[i32]>, size: usize, options: &Options) -> Result<Group> {
        let (options_raw, _strings) = options.raw()?;
        let ordinals = devices.map_or(ptr::null(), <[i32]>::as_ptr);
        let size = number("size", size)?;
        let mut raw = ptr::null_mut();
        // SAFETY: all pointers live through the call, `devices` has `size` entries or is NULL;
        // `*out` is ours to destroy.
        check(unsafe { sys::trib_group_create(&mut raw, ordinals, size, &options_raw) })?;
        let guard = DestroyOnDrop(raw);
        // SAFETY: the group is alive, and no other thread has it.
        let (abort, devices) = unsafe { (abort_handle(raw)?, devices_of(raw, size)?) };
        std::mem::forget(guard);
        // SAFETY: a call that succeeds has set `*out`.
        let raw = unsafe { NonNull::new_unchecked(raw) };
        let (timeout, assumed) = (options.close_timeout_or_default(), options.assumed());
        Ok(Group { raw, devices, abort, timeout, assumed, one_thread: PhantomData })
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.devices.len()
    }

    /// Returns the device of each rank.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Returns the name of the backend.
    pub fn backend(&self) -> &'static str {
        self.devices[0].backend()
    }

    /// Returns a handle that aborts all ranks from any thread.
    pub fn abort_handle(&self) -> AbortHandle {
        self.abort.clone()
    }

    /// Returns `Ok` while the group is usable, and otherwise the reason. Never waits.
    pub fn status(&mut self) -> Result<()> {
        // SAFETY: the group is alive and used by this thread alone.
        check(unsafe { sys::trib_group_status(self.raw.as_ptr()) })
    }

    /// Waits for one stream of each rank; `None` stands for the default streams. `Ok` means that
    /// the results are valid.
    pub fn wait(&mut self, streams: Option<&[&Stream]>) -> Result<()> {
        let streams = self.streams(streams)?;
        self.mark_end(&streams);
        for stream in streams.all() {
            stream.wait()?;
        }
        self.status()
    }

    /// As `Shared::mark_end`, for every rank.
    fn mark_end(&mut self, streams: &Streams) {
        let streams = streams.raw();
        // SAFETY: the group is alive and used by this thread alone; `streams` has an entry for each
        // rank, and is checked. A timeout of 0: never waits.
        let _ = unsafe { sys::trib_group_wait(self.raw.as_ptr(), streams.as_ptr(), 0) };
    }

    /// Waits for one stream of each rank, as [`wait`](Group::wait) does, but at most `timeout` in
    /// all. `Ok` means that the results are valid.
    ///
    /// After [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) the group is as before, if
    /// [`status`](Group::status) is `Ok`: wait again, or abort it. The error names the first rank
    /// whose stream is late, and its call. If the group ends, the wait ends at once, and the
    /// streams may still run.
    pub fn wait_for(&mut self, streams: Option<&[&Stream]>, timeout: Duration) -> Result<()> {
        let streams = self.streams(streams)?.raw();
        let timeout = milliseconds(timeout);
        // SAFETY: the group is alive and used by this thread alone; `streams` has an entry for each
        // rank, and is checked.
        check(unsafe { sys::trib_group_wait(self.raw.as_ptr(), streams.as_ptr(), timeout) })
    }

    /// Turns the group into its communicators, rank 0 first, for one thread each.
    /// [`run`](Group::run) starts the threads, too.
    pub fn split(self) -> Result<Vec<Communicator>> {
        let mut raws = vec![ptr::null_mut(); self.size()];
        // SAFETY: `out` has room for every rank.
        check(unsafe { sys::trib_group_split(raws.as_mut_ptr(), self.raw.as_ptr()) })?;
        // "Consumes the group on success": only the fields of Rust are dropped.
        let mut group = ManuallyDrop::new(self);
        let (timeout, assumed) = (group.timeout, group.assumed);
        // SAFETY: `group` is not used again, nor dropped: each field is taken once.
        unsafe {
            ptr::drop_in_place(&mut group.devices);
            ptr::drop_in_place(&mut group.abort);
        }
        // Collect all before looking at an error, so that an error destroys all.
        let ranks: Vec<Result<Communicator>> = raws
            .into_iter()
            // SAFETY: each is a communicator that is given away, made with what was assumed.
            .map(|raw| unsafe {
                Communicator::from_raw(NonNull::new_unchecked(raw), timeout, assumed)
            })
            .collect();
        ranks.into_iter().collect()
    }

    /// Queues collectives of all ranks with borrowed buffers, on one stream per rank, and waits for
    /// them, like [`Communicator::scope`]. `None` stands for the devices' default streams.
    pub fn scope<'env, T, F>(&mut self, streams: Option<&[&Stream]>, queue: F) -> Result<T>
    where
        F: for<'scope> FnOnce(&mut GroupScope<'scope, 'env>) -> Result<T>,
    {
        let streams = self.streams(streams)?;
        let all = streams.all();
        let guard = SyncGuard::new(&all, vec![self.abort_handle()], self.timeout);
        let mut scope = GroupScope { group: self, streams: &streams, brand: PhantomData };
        let (value, guard) = guard.watch(&"a group", || queue(&mut scope))?;
        self.mark_end(&streams);
        guard.finish()?;
        self.status()?;
        Ok(value)
    }

    /// A stream for each rank, checked.
    fn streams<'a>(&self, streams: Option<&'a [&'a Stream]>) -> Result<Streams<'a>> {
        let Some(given) = streams else {
            return Ok(Streams::Default(
                self.devices.iter().map(|&device| Stream::default_of(device)).collect(),
            ));
        };
        if given.len() != self.size() {
            return Err(Error::argument(format!(
                "{} streams for a group of {}; give one for each rank",
                given.len(),
                self.size()
            )));
        }
        for (rank, stream) in given.iter().enumerate() {
            self.check("a call of a group", rank).stream(stream)?;
        }
        Ok(Streams::Given(given))
    }

    fn check(&self, operation: &'static str, rank: usize) -> Check {
        Check::of_rank(operation, rank, self.size(), self.devices[rank])
    }
}

/// # Safety
/// `group` is alive, and no other thread uses it.
unsafe fn abort_handle(group: *mut sys::trib_group) -> Result<AbortHandle> {
    let mut handle = ptr::null_mut();
    // SAFETY: the caller's promise; the handle is ours to release.
    check(unsafe { sys::trib_group_abort_handle(&mut handle, group) })?;
    // SAFETY: a call that succeeds has set `*out`, and it is given away.
    Ok(unsafe { AbortHandle::from_raw(NonNull::new_unchecked(handle)) })
}

/// # Safety
/// `group` is alive and has `size` ranks, and no other thread uses it.
unsafe fn devices_of(group: *mut sys::trib_group, size: i32) -> Result<Vec<Device>> {
    // SAFETY: the caller's promise; the name of its backend lives for ever.
    let backend = unsafe { text(sys::trib_group_backend(group)) };
    (0..size)
        // SAFETY: the caller's promise; every rank below the size has a device.
        .map(|rank| unsafe { sys::trib_group_device(group, rank) })
        .map(|device| Device::get(backend, device as usize))
        .collect()
}

/// Destroys a new group that cannot be completed.
struct DestroyOnDrop(*mut sys::trib_group);

impl Drop for DestroyOnDrop {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nobody has seen it.
        unsafe { sys::trib_group_destroy(self.0) };
    }
}

/// A stream for each rank.
enum Streams<'a> {
    Default(Vec<Stream>),
    Given(&'a [&'a Stream]),
}

impl Streams<'_> {
    fn all(&self) -> Vec<&Stream> {
        match self {
            Streams::Default(streams) => streams.iter().collect(),
            Streams::Given(streams) => streams.to_vec(),
        }
    }

    fn raw(&self) -> Vec<sys::trib_stream> {
        self.all().into_iter().map(Stream::as_raw).collect()
    }
}

/// # Collectives
///
/// Each method queues a collective on every rank. The buffers and the stream of rank i are the i-th
/// of each slice; `None` for the streams stands for the devices' default streams. If the arguments
/// of any rank are invalid, nothing is queued on any rank. Pass the same buffers as `send` and
/// `recv` to run in place.
impl Group {
    /// Queues [`Communicator::allreduce`] on every rank.
    ///
    /// # Safety
    /// The buffers stay alive and untouched until the streams have passed this call, and those of
    /// `recv` may be written.
    pub unsafe fn allreduce(
        &mut self,
        send: &[&dyn DeviceBuffer],
        recv: &[&dyn DeviceBuffer],
        op: ReduceOp,
        streams: Option<&[&Stream]>,
    ) -> Result<()> {
        let pairs = self.pairs("allreduce", send, recv)?;
        let streams = self.streams(streams)?.raw();
        let (send, recv, raw) = (pairs.send.as_ptr(), pairs.recv.as_ptr(), self.raw.as_ptr());
        // SAFETY: "keep them alive and untouched until the stream has passed that point": the
        // caller's promise; every array has an entry for each rank, every buffer `count` elements.
        check(unsafe {
            let (count, dtype) = (pairs.first.len(), pairs.first.dtype().raw());
            sys::trib_group_allreduce(raw, send, recv, count, dtype, op.raw(), streams.as_ptr())
        })
    }

    /// Queues [`Communicator::broadcast`] on every rank. The call reads the root's `send` only.
    ///
    /// # Safety
    /// As for [`allreduce`](Group::allreduce).
    pub unsafe fn broadcast(
        &mut self,
        send: &[&dyn DeviceBuffer],
        recv: &[&dyn DeviceBuffer],
        root: usize,
        streams: Option<&[&Stream]>,
    ) -> Result<()> {
        let pairs = self.pairs("broadcast", send, recv)?;
        let streams = self.streams(streams)?.raw();
        let root = number("broadcast: `root`", root)?;
        let (send, recv, raw) = (pairs.send.as_ptr(), pairs.recv.as_ptr(), self.raw.as_ptr());
        // SAFETY: as in `allreduce`.
        check(unsafe {
            let (count, dtype) = (pairs.first.len(), pairs.first.dtype().raw());
            sys::trib_group_broadcast(raw, send, recv, count, dtype, root, streams.as_ptr())
        })
    }

    /// Queues [`Communicator::allreduce_list`] on every rank: `tensors[i]` is the list of rank i.
    ///
    /// # Safety
    /// As for [`allreduce`](Group::allreduce).
    pub unsafe fn allreduce_list(
        &mut self,
        tensors: &[&[&dyn DeviceBuffer]],
        op: ReduceOp,
        streams: Option<&[&Stream]>,
    ) -> Result<()> {
        let lists = self.lists("allreduce_list", tensors)?;
        let streams = self.streams(streams)?.raw();
        let raw = self.raw.as_ptr();
        // SAFETY: as in `allreduce`; every list has `n` tensors.
        check(unsafe {
            let (each, n) = (lists.each.as_ptr(), lists.n);
            sys::trib_group_allreduce_list(raw, each, n, op.raw(), streams.as_ptr())
        })
    }

    /// Queues [`Communicator::broadcast_list`] on every rank: `tensors[i]` is the list of rank i.
    ///
    /// # Safety
    /// As for [`allreduce`](Group::allreduce).
    pub unsafe fn broadcast_list(
        &mut self,
        tensors: &[&[&dyn DeviceBuffer]],
        root: usize,
        streams: Option<&[&Stream]>,
    ) -> Result<()> {
        let lists = self.lists("broadcast_list", tensors)?;
        let streams = self.streams(streams)?.raw();
        let root = number("broadcast_list: `root`", root)?;
        let raw = self.raw.as_ptr();
        // SAFETY: as in `allreduce`; every list has `n` tensors.
        check(unsafe {
            let (each, n) = (lists.each.as_ptr(), lists.n);
            sys::trib_group_broadcast_list(raw, each, n, root, streams.as_ptr())
        })
    }

    /// Buffers for every rank, all of one length and type.
    fn pairs(
        &self,
        operation: &'static str,
        send: &[&dyn DeviceBuffer],
        recv: &[&dyn DeviceBuffer],
    ) -> Result<Pairs> {
        self.one_each(operation, "send", send.len())?;
        self.one_each(operation, "recv", recv.len())?;
        let mut pairs = Pairs {
            send: Vec::with_capacity(send.len()),
            recv: Vec::with_capacity(recv.len()),
            first: self.check(operation, 0).buffer("recv", recv[0])?,
        };
        for (rank, (send, recv)) in send.iter().zip(recv).enumerate() {
            let check = self.check(operation, rank);
            for (name, buffer) in [("send", *send), ("recv", *recv)] {
                let view = check.buffer(name, buffer)?;
                if (view.len(), view.dtype()) != (pairs.first.len(), pairs.first.dtype()) {
                    return Err(Error::buffer(format!(
                        "{check}: `{name}` has {} elements of {}, but that of rank 0 has {} of {}; \
                         give all ranks the same",
                        view.len(),
                        view.dtype(),
                        pairs.first.len(),
                        pairs.first.dtype()
                    )));
                }
            }
            pairs.send.push(send.ptr());
            pairs.recv.push(recv.ptr());
        }
        Ok(pairs)
    }

    /// A list for every rank, all of one length.
    fn lists(&self, operation: &'static str, tensors: &[&[&dyn DeviceBuffer]]) -> Result<Lists> {
        self.one_each(operation, "tensors", tensors.len())?;
        let n = tensors[0].len();
        let mut lists = Vec::with_capacity(tensors.len());
        for (rank, list) in tensors.iter().enumerate() {
            let check = self.check(operation, rank);
            if list.len() != n {
                return Err(Error::argument(format!(
                    "{check}: {} tensors, but rank 0 has {n}; give all ranks as many",
                    list.len()
                )));
            }
            lists.push(check.list(list)?);
        }
        let each = lists.iter().map(|list| list.as_ptr()).collect();
        Ok(Lists { each, n, _lists: lists })
    }

    fn one_each(&self, operation: &str, name: &str, given: usize) -> Result<()> {
        if given == self.size() {
            return Ok(());
        }
        Err(Error::argument(format!(
            "{operation}: `{name}` has {given} entries for a group of {}; give one for each rank",
            self.size()
        )))
    }
}

struct Pairs {
    send: Vec<*const c_void>,
    recv: Vec<*mut c_void>,
    first: DeviceSlice,
}

struct Lists {
    each: Vec<*const sys::trib_tensor>,
    n: usize,
    /// The storage of `each`.
    _lists: Vec<Vec<sys::trib_tensor>>,
}

impl Drop for Group {
    fn drop(&mut self) {
        if thread::panicking() {
            self.abort.abort("the thread that drives the group panicked");
        }
        // SAFETY: it is ours, and this is the last use. "Never blocks for ever".
        unsafe { sys::trib_group_destroy(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({} ranks on {})", self.size(), self.backend())
    }
}

/// The collectives of a [`Group`] in a [scope](Group::scope), with buffers that live for `'scope`.
pub struct GroupScope<'scope, 'env: 'scope> {
    group: &'scope mut Group,
    streams: &'scope Streams<'scope>,
    /// Invariant: no lifetime may be taken for another.
    brand: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
}

/// Of one list of each rank.
fn views_of<'scope, O, I>(tensors: O) -> Result<Vec<Vec<DeviceSlice>>>
where
    O: IntoIterator<Item = I>,
    I: IntoIterator,
    I::Item: Target<'scope>,
{
    tensors.into_iter().map(|list| crate::scope::views(list, None)).collect()
}

impl<'scope> GroupScope<'scope, '_> {
    /// Queues [`Group::allreduce`] in place, on one buffer of each rank.
    pub fn allreduce<I>(&mut self, buffers: I, op: ReduceOp) -> Result<()>
    where
        I: IntoIterator,
        I::Item: Target<'scope>,
    {
        let views = crate::scope::views(buffers, None)?;
        let (list, streams) = (crate::scope::list(&views), self.streams.all());
        // SAFETY: what was lent as `&mut` lives, and is not touched otherwise, until the scope has
        // waited for the streams.
        unsafe { self.group.allreduce(&list, &list, op, Some(&streams)) }
    }

    /// Queues [`Group::broadcast`] in place, on one buffer of each rank.
    pub fn broadcast<I>(&mut self, buffers: I, root: usize) -> Result<()>
    where
        I: IntoIterator,
        I::Item: Target<'scope>,
    {
        let views = crate::scope::views(buffers, None)?;
        let (list, streams) = (crate::scope::list(&views), self.streams.all());
        // SAFETY: as in `allreduce`.
        unsafe { self.group.broadcast(&list, &list, root, Some(&streams)) }
    }

    /// Queues [`Group::allreduce_list`] on one list of each rank.
    pub fn allreduce_list<O, I>(&mut self, tensors: O, op: ReduceOp) -> Result<()>
    where
        O: IntoIterator<Item = I>,
        I: IntoIterator,
        I::Item: Target<'scope>,
    {
        let views = views_of(tensors)?;
        let lists: Vec<_> = views.iter().map(|views| crate::scope::list(views)).collect();
        let lists: Vec<&[&dyn DeviceBuffer]> = lists.iter().map(Vec::as_slice).collect();
        // SAFETY: as in `allreduce`.
        unsafe { self.group.allreduce_list(&lists, op, Some(&self.streams.all())) }
    }

    /// Queues [`Group::broadcast_list`] on one list of each rank.
    pub fn broadcast_list<O, I>(&mut self, tensors: O, root: usize) -> Result<()>
    where
        O: IntoIterator<Item = I>,
        I: IntoIterator,
        I::Item: Target<'scope>,
    {
        let views = views_of(tensors)?;
        let lists: Vec<_> = views.iter().map(|views| crate::scope::list(views)).collect();
        let lists: Vec<&[&dyn DeviceBuffer]> = lists.iter().map(Vec::as_slice).collect();
        // SAFETY: as in `allreduce`.
        unsafe { self.group.broadcast_list(&lists, root, Some(&self.streams.all())) }
    }
}
