//! The bootstrap token of a communicator.

use std::fmt;
use std::marker::PhantomData;

use tributary::UniqueId;

use crate::error::Error;
use crate::framework::Framework;

/// The length of an id in bytes.
pub const NCCL_UNIQUE_ID_BYTES: usize = UniqueId::SIZE;

/// The token that the ranks of a new communicator share. One rank creates it and sends its bytes to
/// the others. An id is enough to join, so `Debug` does not show it.
pub struct NcclUniqueId<F> {
    id: UniqueId,
    framework: PhantomData<fn() -> F>,
}

impl<F: Framework> NcclUniqueId<F> {
    /// Creates an id.
    pub fn new() -> Result<Self, F::Error> {
        let id = UniqueId::of(F::backend()).map_err(Error::from)?;
        Ok(NcclUniqueId { id, framework: PhantomData })
    }

    /// Restores an id from the bytes of another rank's.
    pub fn from_bytes(bytes: [u8; NCCL_UNIQUE_ID_BYTES]) -> Self {
        NcclUniqueId { id: UniqueId::from_bytes(bytes), framework: PhantomData }
    }

    /// Returns the bytes to send to the other ranks.
    pub fn as_bytes(&self) -> &[u8; NCCL_UNIQUE_ID_BYTES] {
        self.id.as_bytes()
    }

    pub(crate) fn id(&self) -> &UniqueId {
        &self.id
    }
}

impl<F> Clone for NcclUniqueId<F> {
    fn clone(&self) -> Self {
        NcclUniqueId { id: self.id.clone(), framework: PhantomData }
    }
}

impl<F> fmt::Debug for NcclUniqueId<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NcclUniqueId(..)")
    }
}
