//! Options of a single call.

use std::fmt;

use tributary_sys as sys;

use crate::buffer::DeviceBuffer;
use crate::check::Check;
use crate::error::Result;
use crate::variant::Variant;

/// Options of one call on one rank: a factor, and the variant that serves it.
///
/// [`Communicator::allreduce_with`](crate::Communicator::allreduce_with), its list form and their
/// safe forms take them; those of broadcasts, allgathers, reduce_scatters and alltoalls take the
/// variant alone. With factors the result is the sum over the ranks of `factor * send`.
/// Either all ranks pass a factor or none does; the values may differ. Factors work with
/// [`ReduceOp::Sum`](crate::ReduceOp::Sum) and f16, bf16, f32 and f64.
///
/// ```
/// use tributary::{CallOptions, Error, Group, Options, ReduceOp, Stream};
/// let group = Group::with_options(2, &Options::new().backend("host"))?;
/// group.run(|comm| {
///     let stream = Stream::new(comm.device())?;
///     let options = CallOptions::new().factor(if comm.rank() == 0 { 0.25 } else { 0.75 });
///     let (mine, mut sum) = (vec![4.0_f32; 10], vec![0.0_f32; 10]);
///     comm.scope(&stream, |s| s.allreduce_with(&mine, &mut sum, ReduceOp::Sum, options))?;
///     assert_eq!(sum, [4.0; 10]);
///     Ok::<(), Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub struct CallOptions<'a, B: ?Sized = dyn DeviceBuffer + 'a> {
    pub(crate) factor: f64,
    pub(crate) has_factor: bool,
    pub(crate) device_factor: Option<&'a B>,
    pub(crate) variant: Variant,
    pub(crate) unstaged: bool,
}

impl<'a, B: ?Sized> CallOptions<'a, B> {
    /// Creates options with every default.
    pub fn new() -> Self {
        CallOptions {
            factor: 0.0,
            has_factor: false,
            device_factor: None,
            variant: Variant::default(),
            unstaged: false,
        }
    }

    /// Sets this rank's factor to any number.
    pub fn factor(self, factor: f64) -> Self {
        CallOptions { factor, has_factor: true, device_factor: None, ..self }
    }

    /// Takes this rank's factor from one `f32` in device memory, which the stream reads when it
    /// runs the call.
    pub fn device_factor(self, factor: &'a B) -> Self {
        CallOptions { factor: 0.0, has_factor: true, device_factor: Some(factor), ..self }
    }

    /// Chooses the code that serves the call, the same on all ranks. One that cannot is
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), before anything is queued; so is every one
    /// but `Auto` in a batch and for a list. With [`Variant::Symmetric`] a buffer that is not
    /// [`Symmetric`](crate::Symmetric) memory is
    /// [`ErrorKind::InvalidBuffer`](crate::ErrorKind::InvalidBuffer), on its rank alone; of calls other
    /// than allreduces that is `send`, without [`Options::windows`](crate::Options::windows).
    pub fn variant(self, variant: Variant) -> Self {
        CallOptions { variant, ..self }
    }

    /// Refuses a buffer of this rank's that other ranks access and whose devices cannot, so that all of it
    /// would go through memory of the library (the header's PEERS; [`Counters::staged_calls`](crate::Counters)
    /// counts such calls): [`ErrorKind::InvalidBuffer`](crate::ErrorKind::InvalidBuffer), on its rank
    /// alone. In a batch and for a list that is [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    pub fn unstaged(self, unstaged: bool) -> Self {
        CallOptions { unstaged, ..self }
    }
}

impl CallOptions<'_> {
    /// For C, which reads it during the call.
    pub(crate) fn raw(&self, check: &Check) -> Result<sys::trib_call_options> {
        let mut raw = sys::TRIB_CALL_OPTIONS_INIT;
        raw.factor = self.factor;
        raw.variant = self.variant.raw();
        raw.flags = if self.has_factor { sys::TRIB_CALL_FACTOR } else { 0 };
        raw.flags |= if self.unstaged { sys::TRIB_CALL_UNSTAGED } else { 0 };
        if let Some(factor) = self.device_factor {
            raw.device_factor = check.one_f32("factor", factor)?;
        }
        Ok(raw)
    }
}

impl<B: ?Sized> Default for CallOptions<'_, B> {
    fn default() -> Self {
        CallOptions::new()
    }
}

impl<B: ?Sized> Clone for CallOptions<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: ?Sized> Copy for CallOptions<'_, B> {}

impl<B: ?Sized> fmt::Debug for CallOptions<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on_host = (self.has_factor && self.device_factor.is_none()).then_some(self.factor);
        f.debug_struct("CallOptions")
            .field("factor", &on_host)
            .field("device_factor", &self.device_factor.is_some())
            .field("variant", &self.variant)
            .field("unstaged", &self.unstaged)
            .finish()
    }
}
