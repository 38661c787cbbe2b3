//! Errors.

use std::fmt;

/// Why a call failed. A framework turns it into an error of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// flodl's contract refuses an argument. Nothing was queued.
    Argument(String),
    /// The pseudo-gradients of these parameters were infinite or NaN on some rank, and count as 0
    /// on all ranks; see [`OuterAverage`](crate::OuterAverage).
    NonFinite(Vec<usize>),
    /// Tributary refused a call, or failed.
    Tributary(tributary::Error),
}

impl Error {
    /// Returns whether the communicator was aborted; a failure of NCCL is not an abort.
    pub fn is_aborted(&self) -> bool {
        matches!(self, Error::Tributary(error) if error.is_aborted())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Argument(what) => f.write_str(what),
            Error::NonFinite(which) => write!(
                f,
                "the pseudo-gradients of parameters {which:?} are infinite or NaN on some rank; on \
                 all ranks they count as 0, and the other parameters are averaged"
            ),
            Error::Tributary(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Tributary(error) => Some(error),
            _ => None,
        }
    }
}

impl From<tributary::Error> for Error {
    fn from(error: tributary::Error) -> Error {
        Error::Tributary(error)
    }
}

/// `Ok` if `found` is what `who` expects.
pub(crate) fn expect(who: &str, what: &str, found: usize, expected: usize) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Argument(format!("{who}: expected {expected} {what}, got {found}")))
}

/// `Ok` if `root` is a rank.
pub(crate) fn root_in_range(who: &str, root: usize, size: usize) -> Result<(), Error> {
    if root < size {
        return Ok(());
    }
    Err(Error::Argument(format!("{who}: root {root} is out of range; give a rank below {size}")))
}
