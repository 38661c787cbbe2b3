//! The library's own memory.

use tributary_sys as sys;

/// Bytes that the library has allocated for itself, from
/// [`Communicator::memory`](crate::Communicator::memory) and
/// [`Device::memory`](crate::Device::memory).
///
/// Not counted are buffers of yours, ordinary host memory, abort flags, and what NCCL and CUDA
/// allocate. Memory that is being freed in the background counts no longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Scratch of communicators, on the device.
    pub workspace: Use,
    /// Sparse states, on the device: residuals and scratch.
    pub sparse: Use,
    /// Pinned host memory of both.
    pub pinned: Use,
    /// Where ranks reach each other, on the device: from the creation of a communicator to its end
    /// (PEERS in the header); and [`Symmetric`](crate::Symmetric) memory.
    pub peer: Use,
}

/// Bytes held for one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Use {
    /// Now.
    pub bytes: u64,
    /// The most at one time.
    pub peak_bytes: u64,
}

impl From<sys::trib_memory> for Memory {
    fn from(raw: sys::trib_memory) -> Memory {
        Memory {
            workspace: Use { bytes: raw.workspace_bytes, peak_bytes: raw.workspace_peak_bytes },
            sparse: Use { bytes: raw.sparse_bytes, peak_bytes: raw.sparse_peak_bytes },
            pinned: Use { bytes: raw.pinned_bytes, peak_bytes: raw.pinned_peak_bytes },
            peer: Use { bytes: raw.peer_bytes, peak_bytes: raw.peer_peak_bytes },
        }
    }
}
