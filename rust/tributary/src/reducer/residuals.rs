//! Residuals of a reducer of sparse gradients.

use tributary_sys as sys;

use super::Reducer;
use crate::error::{check, Error, ErrorKind, Result};
use crate::sparse::SparseStatistics;
use crate::sparse_options::above_0;

/// # Sparse gradients
///
/// For reducers with [`ReducerOptions::sparse`](crate::ReducerOptions::sparse).
impl<B: 'static> Reducer<B> {
    /// Sets the fraction of each bucket's elements that a rank chooses, from the next step on. All
    /// ranks make this call, which waits for them. Residuals stay; after an error the old density
    /// stays, too.
    pub fn set_density(&mut self, density: f64) -> Result<()> {
        self.not_in_a_step("Reducer::set_density")?;
        // 0 is an error. C fails too, so that the other ranks learn of it.
        let zero = density == 0.0;
        let density = if zero { f64::NAN } else { density };
        // SAFETY: alive under the lock.
        match self.call(|raw| unsafe { sys::trib_reducer_set_density(raw, density) }) {
            Err(error) if zero && error.kind() == ErrorKind::InvalidArgument => {
                Err(above_0("density"))
            }
            result => result,
        }
    }

    /// Returns the sums of the statistics of all buckets, from the steps that have ended. Never waits
    /// for a stream.
    pub fn statistics(&mut self) -> Result<SparseStatistics> {
        let mut raw = sys::TRIB_SPARSE_STATISTICS_INIT;
        // SAFETY: alive under the lock, as its strings are, which are copied there; `raw` lives
        // through the call, with its size set.
        self.look(|reducer| unsafe {
            check(sys::trib_reducer_statistics(&mut raw, reducer))?;
            Ok(SparseStatistics::new(&raw))
        })?
    }

    /// Returns the residuals of all gradients, and with momentum their velocities, for a later
    /// [`import`](Reducer::import): in the order of the gradients, whatever buckets they lie in.
    /// Waits for the last step. Thresholds and schedules of algorithms are not part of it.
    pub fn export(&mut self) -> Result<Vec<u8>> {
        self.not_in_a_step("Reducer::export")?;
        // SAFETY: alive under the lock.
        let bytes = self.look(|raw| unsafe { sys::trib_reducer_export_bytes(raw) })?;
        let bytes = usize::try_from(bytes)
            .map_err(|_| Error::argument("the export is larger than the address space"))?;
        let mut data = vec![0_u8; bytes];
        // SAFETY: alive under the lock; `data` has room for `bytes` bytes. "blocks".
        self.call(|raw| unsafe { sys::trib_reducer_export(raw, data.as_mut_ptr().cast(), bytes) })?;
        Ok(data)
    }

    /// Takes over an [`export`](Reducer::export) of a reducer of gradients of the same lengths and
    /// types. Buckets, algorithm, density and number of ranks may differ. All ranks make this call,
    /// which waits for them.
    pub fn import(&mut self, data: &[u8]) -> Result<()> {
        self.take("Reducer::import", data, 0)
    }

    /// Adds residuals and velocities of an export to these, for example of a rank that has left to
    /// one that stays. A call of this rank alone.
    pub fn import_added(&mut self, data: &[u8]) -> Result<()> {
        self.take("Reducer::import_added", data, 1)
    }

    fn take(&mut self, operation: &str, data: &[u8], add: i32) -> Result<()> {
        self.not_in_a_step(operation)?;
        let (from, bytes) = (data.as_ptr().cast(), data.len());
        // SAFETY: alive under the lock; `data` lives through the call, which waits.
        self.call(|raw| unsafe { sys::trib_reducer_import(raw, from, bytes, add) })
    }
}
