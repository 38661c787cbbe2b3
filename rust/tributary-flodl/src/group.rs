//! All devices of a process, driven by one thread.

use std::cell::RefCell;
use std::fmt;

use tributary::{Device, DeviceBuffer, Group, Options, Stream};

use crate::error::{expect, root_in_range, Error};
use crate::framework::{list, stream, views, Framework};
use crate::kept::Kept;
use crate::op::ReduceOp;
use crate::rank::NcclRankComm;

/// A communicator over several devices of this process. One thread drives them all, or
/// [`split`](NcclComms::split) makes a communicator for each.
///
/// The calls check all tensors of all devices before they queue anything, and keep a clone of each
/// until the work has run. The calling thread's current device stays what it is.
pub struct NcclComms<F: Framework> {
    // Dropped in this order: at the end of the group the work has run.
    group: RefCell<Group>,
    kept: RefCell<Kept<F::Tensor>>,
    devices: Vec<F::Device>,
}

impl<F: Framework> NcclComms<F> {
    /// Creates a communicator with a rank on each of `devices`: two distinct GPUs or more.
    pub fn new(devices: &[F::Device]) -> Result<Self, F::Error> {
        NcclComms::with_options(devices, &Options::new())
    }

    /// Does what [`new`](NcclComms::new) does, with `options`, whose backend is the framework's.
    pub fn with_options(devices: &[F::Device], options: &Options) -> Result<Self, F::Error> {
        let ordinals = ordinals::<F>(devices)?;
        let options = options.clone().backend(F::backend());
        let group = Group::on_devices(&ordinals, &options).map_err(Error::from)?;
        Ok(NcclComms {
            group: RefCell::new(group),
            kept: RefCell::new(Kept::new()),
            devices: devices.to_vec(),
        })
    }

    /// Returns the number of devices.
    pub fn size(&self) -> usize {
        self.devices.len()
    }

    /// Returns the devices, rank 0 first.
    pub fn devices(&self) -> &[F::Device] {
        &self.devices
    }

    /// Replaces each tensor, one for each device, by the reduction of all, on the default streams.
    pub fn all_reduce(&self, tensors: &[&F::Tensor], op: ReduceOp) -> Result<(), F::Error> {
        Ok(self.reduce("all_reduce", tensors, op, None)?)
    }

    /// Does what [`all_reduce`](NcclComms::all_reduce) does, on `streams`, one for each device.
    pub fn all_reduce_on_streams(
        &self,
        tensors: &[&F::Tensor],
        op: ReduceOp,
        streams: &[&F::Stream],
    ) -> Result<(), F::Error> {
        Ok(self.reduce("all_reduce_on_streams", tensors, op, Some(streams))?)
    }

    /// Replaces each tensor, one for each device, by that of rank `root`, on the default streams.
    pub fn broadcast(&self, tensors: &[&F::Tensor], root: usize) -> Result<(), F::Error> {
        Ok(self.copy("broadcast", tensors, root, None)?)
    }

    /// Does what [`broadcast`](NcclComms::broadcast) does, on `streams`, one for each device.
    pub fn broadcast_on_streams(
        &self,
        tensors: &[&F::Tensor],
        root: usize,
        streams: &[&F::Stream],
    ) -> Result<(), F::Error> {
        Ok(self.copy("broadcast_on_streams", tensors, root, Some(streams))?)
    }

    /// Turns the group into a communicator for each device, rank 0 first, for one thread each.
    pub fn split(self) -> Result<Vec<NcclRankComm<F>>, F::Error> {
        let comms = self.group.into_inner().split().map_err(Error::from)?;
        let mut ranks: Vec<_> = comms.into_iter().map(NcclRankComm::of).collect();
        if let Some(first) = ranks.first_mut() {
            first.keep_too(self.kept.into_inner());
        }
        Ok(ranks)
    }

    fn reduce(
        &self,
        who: &str,
        tensors: &[&F::Tensor],
        op: ReduceOp,
        streams: Option<&[&F::Stream]>,
    ) -> Result<(), Error> {
        self.queue(who, tensors, streams, |group, list, streams| {
            // SAFETY: clones of the tensors are kept until the streams have passed this point, and
            // the framework promises the rest.
            unsafe { group.allreduce(list, list, op.into(), Some(streams)) }
        })
    }

    fn copy(
        &self,
        who: &str,
        tensors: &[&F::Tensor],
        root: usize,
        streams: Option<&[&F::Stream]>,
    ) -> Result<(), Error> {
        root_in_range(who, root, self.size())?;
        self.queue(who, tensors, streams, |group, list, streams| {
            // SAFETY: as in `reduce`.
            unsafe { group.broadcast(list, list, root, Some(streams)) }
        })
    }

    /// Calls `queue` with the tensors and a stream for each device, and keeps the tensors.
    fn queue(
        &self,
        who: &str,
        tensors: &[&F::Tensor],
        given: Option<&[&F::Stream]>,
        queue: impl FnOnce(&mut Group, &[&dyn DeviceBuffer], &[&Stream]) -> tributary::Result<()>,
    ) -> Result<(), Error> {
        expect(who, "tensors (one for each device)", tensors.len(), self.size())?;
        let streams = self.streams(who, given)?;
        let views = views::<F>(tensors)?;
        let lent: Vec<&Stream> = streams.iter().collect();
        let queued = queue(&mut self.group.borrow_mut(), &list(&views), &lent);
        let mut kept = self.kept.borrow_mut();
        for (stream, &tensor) in streams.iter().zip(tensors) {
            kept.add(stream, vec![tensor.clone()]);
        }
        Ok(queued?)
    }

    fn streams(&self, who: &str, given: Option<&[&F::Stream]>) -> Result<Vec<Stream>, Error> {
        let devices: Vec<Device> = self.group.borrow().devices().to_vec();
        let Some(given) = given else {
            return Ok(devices.into_iter().map(Stream::default_of).collect());
        };
        expect(who, "streams (one for each device)", given.len(), self.size())?;
        devices.into_iter().zip(given).map(|(device, &given)| stream(device, Some(given))).collect()
    }
}

impl<F: Framework> fmt::Debug for NcclComms<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NcclComms").field("size", &self.size()).finish()
    }
}

/// The numbers of two GPUs or more.
fn ordinals<F: Framework>(devices: &[F::Device]) -> Result<Vec<usize>, Error> {
    if devices.len() < 2 {
        return Err(Error::Argument(format!(
            "NcclComms requires at least 2 devices, got {}",
            devices.len()
        )));
    }
    let ordinal = |(rank, &device)| {
        F::device_index(device).ok_or_else(|| {
            Error::Argument(format!("NcclComms requires GPUs; device {rank} of the list is none"))
        })
    };
    devices.iter().enumerate().map(ordinal).collect()
}
