//! The bootstrap token of a communicator.

use std::fmt;
use std::ptr;

use tributary_sys as sys;

use crate::error::{c_string, check, Result};

/// The bootstrap token of a new communicator. One rank creates it and distributes its bytes; every
/// rank passes it once to [`Communicator::new`](crate::Communicator::new). On nccl it holds exactly
/// an `ncclUniqueId`.
///
/// An id is enough to join, so `Debug` does not show it.
///
/// ```
/// use tributary::UniqueId;
/// let id = UniqueId::of("host")?;
/// let sent: [u8; 128] = *id.as_bytes();
/// assert!(UniqueId::from_bytes(sent) == id);
/// # Ok::<(), tributary::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueId(sys::trib_id);

impl UniqueId {
    /// The length of an id in bytes.
    pub const SIZE: usize = 128;

    /// Creates an id for the first backend that has a device.
    pub fn new() -> Result<UniqueId> {
        UniqueId::create(None)
    }

    /// Creates an id for `backend`: a [`Backend`](crate::Backend) or its name.
    pub fn of(backend: impl AsRef<str>) -> Result<UniqueId> {
        UniqueId::create(Some(backend.as_ref()))
    }

    fn create(backend: Option<&str>) -> Result<UniqueId> {
        let name = backend.map(|name| c_string("backend", name)).transpose()?;
        let name = name.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        let mut id = sys::trib_id { bytes: [0; 128] };
        // SAFETY: both pointers live through the call; a NULL name is "the first backend that has a
        // device".
        check(unsafe { sys::trib_id_create(&mut id, name) })?;
        Ok(UniqueId(id))
    }

    /// Restores an id from the bytes of another rank's.
    pub fn from_bytes(bytes: [u8; UniqueId::SIZE]) -> UniqueId {
        UniqueId(sys::trib_id { bytes })
    }

    /// Returns the bytes to send to the other ranks.
    pub fn as_bytes(&self) -> &[u8; UniqueId::SIZE] {
        &self.0.bytes
    }

    pub(crate) fn raw(&self) -> &sys::trib_id {
        &self.0
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId(..)")
    }
}
