//! Tensors of one rank in the memory of its device, where Tributary works on them.

use std::ops::{Add, Sub};

use tributary::{Communicator, DeviceVec, Stream};

use super::Failure;

/// Bytes between one rank and the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    /// Bytes sent.
    pub sent: f64,
    /// Bytes received.
    pub received: f64,
}

impl Moved {
    /// What a dense allreduce of so many bytes sends and receives on each rank, as a ring does it;
    /// none does it with less.
    pub fn allreduce(bytes: f64, ranks: usize) -> Moved {
        let moved = 2.0 * bytes * (ranks as f64 - 1.0) / ranks as f64;
        Moved { sent: moved, received: moved }
    }

    /// The way on which more went.
    pub fn most(self) -> f64 {
        self.sent.max(self.received)
    }
}

impl Add for Moved {
    type Output = Moved;

    fn add(self, other: Moved) -> Moved {
        Moved { sent: self.sent + other.sent, received: self.received + other.received }
    }
}

impl Sub for Moved {
    type Output = Moved;

    fn sub(self, other: Moved) -> Moved {
        Moved { sent: self.sent - other.sent, received: self.received - other.received }
    }
}

/// A list of tensors that the ranks exchange, on a stream of the rank's own.
///
/// The network computes in ordinary memory, so the tensors are copied to the device and back; on
/// the host backend that is a plain copy. A framework whose tensors live on the device needs
/// neither.
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
