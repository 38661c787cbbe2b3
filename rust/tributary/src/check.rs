//! Checks before a call of C: handles passed together belong to one device, and buffers fit the
//! operation.
//!
//! A handle is a pointer that its backend follows. C cannot always detect a host stream passed to
//! CUDA, or an event of one GPU recorded on another. A [`Device`] is a backend and an ordinal, so
//! this module compares the devices wherever a call takes several handles.

use std::ffi::c_void;
use std::fmt;
use std::ptr;

use tributary_sys as sys;

use crate::buffer::{DeviceBuffer, DeviceSlice};
use crate::communicator::Communicator;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::stream::Stream;

/// Fails unless `stream` belongs to `expected`.
#[inline]
pub(crate) fn stream_of(who: &dyn fmt::Display, stream: &Stream, expected: Device) -> Result<()> {
    if stream.device() == expected {
        return Ok(());
    }
    Err(foreign(sys::TRIB_ERR_INVALID_STREAM, who, "`stream`", stream.device(), expected))
}

/// Fails unless `event` belongs to `expected`.
pub(crate) fn event_of(who: &dyn fmt::Display, event: &Event, expected: Device) -> Result<()> {
    if event.device() == expected {
        return Ok(());
    }
    Err(foreign(sys::TRIB_ERR_INVALID_ARGUMENT, who, "the event", event.device(), expected))
}

/// Fails unless both belong to one backend: a stream may wait for events of other devices.
pub(crate) fn same_backend(who: &dyn fmt::Display, event: &Event, stream: &Stream) -> Result<()> {
    let (found, expected) = (event.device(), stream.device());
    if found == expected || found.backend() == expected.backend() {
        return Ok(());
    }
    Err(foreign(sys::TRIB_ERR_INVALID_ARGUMENT, who, "the event", found, expected))
}

#[cold]
fn foreign(
    status: sys::trib_status,
    who: &dyn fmt::Display,
    what: &str,
    found: Device,
    expected: Device,
) -> Error {
    Error::new(status, format!("{who}: {what} is of {found}; give one of {expected}"))
}

/// The checks of one call on one rank, with the names for their errors.
#[derive(Clone, Copy)]
pub(crate) struct Check {
    operation: &'static str,
    rank: usize,
    size: usize,
    device: Device,
}

impl Check {
    #[inline]
    pub(crate) fn new(
        operation: &'static str,
        comm: &Communicator,
        stream: &Stream,
    ) -> Result<Check> {
        let check =
            Check { operation, rank: comm.rank(), size: comm.size(), device: comm.device() };
        check.stream(stream)?;
        comm.shared().batch_takes(stream).map_err(|other| check.other_stream(stream, other))?;
        Ok(check)
    }

    /// The checks of one rank of a group.
    pub(crate) fn of_rank(
        operation: &'static str,
        rank: usize,
        size: usize,
        device: Device,
    ) -> Check {
        Check { operation, rank, size, device }
    }

    #[inline]
    pub(crate) fn stream(&self, stream: &Stream) -> Result<()> {
        stream_of(self, stream, self.device)
    }

    /// Fails if `buffer` says that it is on another device or not contiguous.
    #[inline]
    pub(crate) fn buffer(&self, name: &str, buffer: &dyn DeviceBuffer) -> Result<DeviceSlice> {
        let view = DeviceSlice::of(buffer);
        let elsewhere = view.device().is_some_and(|device| device != self.device);
        if elsewhere || !view.is_contiguous() {
            return Err(self.unfit(name, &view));
        }
        Ok(view)
    }

    #[inline]
    pub(crate) fn same_type(
        &self,
        send: &dyn DeviceBuffer,
        recv: &dyn DeviceBuffer,
    ) -> Result<(DeviceSlice, DeviceSlice)> {
        let (send, recv) = (self.buffer("send", send)?, self.buffer("recv", recv)?);
        if send.dtype() != recv.dtype() {
            return Err(self.mixed(&send, &recv));
        }
        Ok((send, recv))
    }

    /// Two buffers of one type and length.
    #[inline]
    pub(crate) fn pair(
        &self,
        send: &dyn DeviceBuffer,
        recv: &dyn DeviceBuffer,
    ) -> Result<(DeviceSlice, DeviceSlice)> {
        let (send, recv) = self.same_type(send, recv)?;
        self.lengths(&send, &recv, 1, 1)?;
        Ok((send, recv))
    }

    /// `send` must hold `sends` blocks and `recv` `recvs` blocks of the same length.
    #[inline]
    pub(crate) fn lengths(
        &self,
        send: &DeviceSlice,
        recv: &DeviceSlice,
        sends: usize,
        recvs: usize,
    ) -> Result<()> {
        if send.len().checked_mul(recvs) == recv.len().checked_mul(sends) {
            return Ok(());
        }
        Err(if sends > recvs {
            self.wrong("send", send, recv.len().saturating_mul(sends))
        } else {
            self.wrong("recv", recv, send.len().saturating_mul(recvs) / sends)
        })
    }

    /// The pointer to a buffer that only the root needs, `blocks` times as long as `other`. NULL on
    /// the other ranks.
    pub(crate) fn on_root(
        &self,
        name: &str,
        buffer: Option<&dyn DeviceBuffer>,
        root: usize,
        other: &DeviceSlice,
        blocks: usize,
    ) -> Result<*mut c_void> {
        let Some(buffer) = buffer.filter(|_| root == self.rank) else {
            if root == self.rank {
                return Err(Error::buffer(format!(
                    "{self}: `{name}` is None, but this rank is the root; give it"
                )));
            }
            return Ok(ptr::null_mut());
        };
        let view = self.buffer(name, buffer)?;
        if view.dtype() != other.dtype() {
            return Err(self.mixed(&view, other));
        }
        if Some(view.len()) != other.len().checked_mul(blocks) {
            return Err(self.wrong(name, &view, other.len().saturating_mul(blocks)));
        }
        Ok(view.ptr())
    }

    /// This rank's block of a buffer of `size` blocks.
    pub(crate) fn own_block(&self, whole: &DeviceSlice) -> Result<DeviceSlice> {
        if whole.len() % self.size != 0 {
            return Err(Error::buffer(format!(
                "{self}: a buffer of {} elements does not divide into {} blocks; make it a multiple",
                whole.len(),
                self.size
            )));
        }
        let block = whole.len() / self.size;
        Ok(whole.slice(self.rank * block..(self.rank + 1) * block))
    }

    /// Fails unless each of `size` pieces lies inside `buffer`.
    pub(crate) fn layout(
        &self,
        name: &str,
        buffer: &DeviceSlice,
        counts: &[usize],
        offsets: &[usize],
    ) -> Result<()> {
        if counts.len() != self.size || offsets.len() != self.size {
            return Err(Error::argument(format!(
                "{self}: {} counts and {} offsets for `{name}`; give {} of each",
                counts.len(),
                offsets.len(),
                self.size
            )));
        }
        for (peer, (&count, &offset)) in counts.iter().zip(offsets).enumerate() {
            if offset.checked_add(count).map_or(true, |end| end > buffer.len()) {
                return Err(Error::buffer(format!(
                    "{self}: the piece for rank {peer}, {count} elements at {offset}, is not inside \
                     `{name}`, which has {}",
                    buffer.len()
                )));
            }
        }
        Ok(())
    }

    #[cold]
    fn other_stream(&self, stream: &Stream, batch: *mut c_void) -> Error {
        Error::new(
            sys::TRIB_ERR_INVALID_USAGE,
            format!(
                "{self}: `stream` ({:p}) is not the one that this batch began with ({batch:p}): all \
                 calls of a batch use the same stream",
                stream.as_raw()
            ),
        )
    }

    #[cold]
    fn unfit(&self, name: &str, buffer: &DeviceSlice) -> Error {
        match buffer.device() {
            Some(device) if device != self.device => Error::buffer(format!(
                "{self}: `{name}` is on {device}; move it to {}",
                self.device
            )),
            _ => {
                Error::buffer(format!("{self}: `{name}` is not contiguous; pass a contiguous copy"))
            }
        }
    }

    #[cold]
    fn mixed(&self, send: &DeviceSlice, recv: &DeviceSlice) -> Error {
        Error::buffer(format!(
            "{self}: one buffer holds {}, the other {}; give two of one type",
            send.dtype(),
            recv.dtype()
        ))
    }

    #[cold]
    pub(crate) fn wrong(&self, name: &str, buffer: &DeviceSlice, expected: usize) -> Error {
        Error::buffer(format!(
            "{self}: `{name}` has {} elements where {expected} are expected",
            buffer.len()
        ))
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on rank {} ({})", self.operation, self.rank, self.device)
    }
}
