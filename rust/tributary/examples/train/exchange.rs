//! Tensors of one rank in the memory of its device, where Tributary works on them.

use tributary::{Communicator, DeviceVec, ReduceOp, Stream};

use super::Failure;

/// A list of tensors that the ranks exchange, on a stream of the rank's own.
///
/// The network computes in ordinary memory, so the tensors are copied to the device and back; on the
/// host backend that is a plain copy. A framework whose tensors live on the device needs neither.
pub struct Exchange<'a> {
    communicator: &'a mut Communicator,
    stream: Stream,
    tensors: Vec<DeviceVec<f32>>,
}

impl Exchange<'_> {
    /// For tensors of the lengths of `like`.
    pub fn new<'a>(
        communicator: &'a mut Communicator,
        like: &[Vec<f32>],
    ) -> Result<Exchange<'a>, Failure> {
        let device = communicator.device();
        let stream = Stream::new(device)?;
        let tensors = like.iter().map(|tensor| DeviceVec::zeros(device, tensor.len()));
        let tensors = tensors.collect::<Result<_, _>>()?;
        Ok(Exchange { communicator, stream, tensors })
    }

    /// Every rank's `tensors` become those of rank `root`.
    pub fn broadcast(&mut self, tensors: &mut [Vec<f32>], root: usize) -> Result<(), Failure> {
        self.upload(tensors)?;
        self.communicator
            .scope(&self.stream, |scope| scope.broadcast_list(&mut self.tensors, root))?;
        self.download(tensors)
    }

    /// Every rank's `tensors` become the average over the ranks.
    pub fn average(&mut self, tensors: &mut [Vec<f32>]) -> Result<(), Failure> {
        self.upload(tensors)?;
        self.communicator
            .scope(&self.stream, |scope| scope.allreduce_list(&mut self.tensors, ReduceOp::Avg))?;
        self.download(tensors)
    }

    /// Bytes that this rank has handed to Tributary so far.
    pub fn bytes(&mut self) -> Result<u64, Failure> {
        Ok(self.communicator.counters()?.bytes)
    }

    fn upload(&mut self, tensors: &[Vec<f32>]) -> Result<(), Failure> {
        for (device, host) in self.tensors.iter_mut().zip(tensors) {
            device.upload(host, &self.stream)?;
        }
        Ok(())
    }

    fn download(&self, tensors: &mut [Vec<f32>]) -> Result<(), Failure> {
        for (device, host) in self.tensors.iter().zip(tensors) {
            device.download_into(host, &self.stream)?;
        }
        Ok(())
    }
}
