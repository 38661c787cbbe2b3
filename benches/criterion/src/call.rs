//! The measured calls: Tributary's, and those of the peers.

use std::ptr;

use tributary::{DeviceBuffer, ReduceOp, Weight};

use crate::rank::Rank;
use crate::Result;

/// Queues one call of a rank.
pub type Queue = fn(&mut Rank) -> Result<()>;

/// A call that can be measured. From the rank's `send` to its `recv`, or on its list in place.
#[derive(Clone, Copy)]
pub struct Call {
    /// Its name in figures.
    pub name: &'static str,
    /// Queue it.
    pub queue: Queue,
    /// Look at the results of the first one.
    pub verify: Queue,
}

/// `Communicator::allreduce`, sum, of one buffer.
pub const ALLREDUCE: Call = Call {
    name: "allreduce",
    queue: |rank| {
        // SAFETY: the buffers live until the rank waits for the stream, and are used by nobody
        // else.
        Ok(unsafe { rank.comm.allreduce(&rank.send, &rank.recv, ReduceOp::Sum, &rank.stream) }?)
    },
    verify: sums,
};

/// `Communicator::allreduce_list`, average.
pub const LIST: Call = Call {
    name: "allreduce_list",
    queue: |rank| {
        let list: Vec<&dyn DeviceBuffer> = rank.tensors.iter().map(|tensor| tensor as _).collect();
        // SAFETY: as above.
        Ok(unsafe { rank.comm.allreduce_list(&list, ReduceOp::Avg, &rank.stream) }?)
    },
    verify: |rank| {
        let mean = (rank.comm.size() - 1) as f32 / 2.0;
        rank.verify(true, 1.0, mean)
    },
};

/// `Communicator::weighted_average`; the weight of rank r is r + 1.
pub const AVERAGE: Call = Call {
    name: "weighted_average",
    queue: |rank| {
        let list: Vec<&dyn DeviceBuffer> = rank.tensors.iter().map(|tensor| tensor as _).collect();
        let weight = Weight::Host((rank.comm.rank() + 1) as f32);
        // SAFETY: as above.
        Ok(unsafe { rank.comm.weighted_average(&list, weight, None, &rank.stream) }?)
    },
    verify: |rank| {
        let ranks = 0..rank.comm.size();
        let total: usize = ranks.clone().map(|rank| rank + 1).sum();
        let weighted: usize = ranks.map(|rank| (rank + 1) * rank).sum();
        rank.verify(true, 1.0, weighted as f32 / total as f32)
    },
};

/// The list again, with one `Communicator::allreduce` in place per tensor.
pub const EACH: Call = Call {
    name: "allreduce_each",
    queue: |rank| {
        for tensor in &rank.tensors {
            // SAFETY: as above.
            unsafe { rank.comm.allreduce(tensor, tensor, ReduceOp::Avg, &rank.stream) }?;
        }
        Ok(())
    },
    verify: LIST.verify,
};

/// The peer on host: memcpy of as many bytes, run by the stream.
pub const MEMCPY: Call = Call {
    name: "memcpy",
    queue: |rank| {
        struct Copy(*const u8, *mut u8, usize);
        // SAFETY: until the rank has waited for the stream, only the stream uses the buffers.
        unsafe impl Send for Copy {}
        impl Copy {
            fn run(self) {
                // SAFETY: both buffers have this many bytes, and they are not the same.
                unsafe { ptr::copy_nonoverlapping(self.0, self.1, self.2) }
            }
        }
        let bytes = rank.send.len() * size_of::<f32>();
        let copy = Copy(rank.send.ptr().cast_const().cast(), rank.recv.ptr().cast(), bytes);
        Ok(rank.stream.submit(move || copy.run())?)
    },
    verify: |rank| {
        let own = rank.comm.rank() as f32;
        rank.verify(false, 1.0, own)
    },
};

/// The peer on nccl: `ncclAllReduce`, sum, of one buffer.
pub const NCCL: Call = Call {
    name: "nccl",
    queue: |rank| rank.nccl()?.allreduce(&rank.send, &rank.recv, ReduceOp::Sum, &rank.stream),
    verify: sums,
};

/// The peer for lists: one `ncclAllReduce` per tensor, in a group.
pub const NCCL_GROUP: Call = Call {
    name: "nccl_group",
    queue: |rank| {
        let nccl = rank.nccl()?;
        nccl.group(|| {
            rank.tensors
                .iter()
                .try_for_each(|tensor| nccl.allreduce(tensor, tensor, ReduceOp::Avg, &rank.stream))
        })
    },
    verify: LIST.verify,
};

/// Checks that `recv` is the sum of all ranks' `send`.
fn sums(rank: &mut Rank) -> Result<()> {
    let size = rank.comm.size();
    rank.verify(false, size as f32, (size * (size - 1) / 2) as f32)
}
