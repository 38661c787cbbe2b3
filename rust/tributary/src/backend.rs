//! How ranks talk, and where their memory lives.

use std::fmt;
use std::time::Duration;

use tributary_sys as sys;

use crate::error::{c_string, check, text, Result};
use crate::options::milliseconds;

/// A backend of the library that is loaded: `nccl`, whose ranks are GPUs, or `host`, whose ranks are
/// threads of this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backend(&'static str);

impl Backend {
    /// The backends in this build, best first.
    pub fn all() -> Vec<Backend> {
        // SAFETY: takes no object, so it "may be called from anywhere".
        let count = unsafe { sys::trib_backend_count() };
        // SAFETY: every index below the count has a name, and "The names live for ever".
        (0..count).map(|index| Backend(unsafe { text(sys::trib_backend_name(index)) })).collect()
    }

    /// The backend of this name, if the build has it.
    pub fn find(name: impl AsRef<str>) -> Option<Backend> {
        Backend::all().into_iter().find(|backend| backend.0 == name.as_ref())
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Version of the engine below it: of the NCCL that is loaded, of Tributary for `host`. Makes no
    /// CUDA context.
    pub fn version(self) -> Result<Version> {
        let name = c_string("backend", self.0)?;
        let mut number = 0;
        // SAFETY: both pointers live through the call; "Makes no CUDA context".
        check(unsafe { sys::trib_backend_version(&mut number, name.as_ptr()) })?;
        Ok(Version::from_number(number))
    }

    /// Number of devices that it can use now: GPUs for `nccl` (0 without a driver), 64 for `host`.
    /// Makes no CUDA context.
    pub fn devices(self) -> Result<usize> {
        let name = c_string("backend", self.0)?;
        let mut count = 0;
        // SAFETY: both pointers live through the call; "Makes no CUDA context".
        check(unsafe { sys::trib_backend_devices(&mut count, name.as_ptr()) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

/// Wherever a backend's name is asked for.
impl AsRef<str> for Backend {
    fn as_ref(&self) -> &str {
        self.0
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backend({})", self.0)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A version number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Changes that break.
    pub major: u32,
    /// Changes that add.
    pub minor: u32,
    /// Changes that mend.
    pub patch: u32,
}

impl Version {
    fn from_number(number: u32) -> Version {
        Version { major: number / 10_000, minor: number / 100 % 100, patch: number % 100 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Wait until all background work of the library has ended: everything that communicators which were
/// aborted, closed or dropped have held is given back. An error that
/// [is a timeout](crate::Error::is_timeout) counts what is left. For who is about to reset a device or
/// to leave the process, which would take CUDA away under that work.
///
/// ```
/// use std::time::Duration;
/// use tributary::{Group, Options};
/// drop(Group::with_options(2, &Options::new().backend("host"))?);
/// tributary::quiesce(Duration::from_secs(30))?;
/// # Ok::<(), tributary::Error>(())
/// ```
pub fn quiesce(timeout: Duration) -> Result<()> {
    // SAFETY: takes no object. "Any thread."
    check(unsafe { sys::trib_quiesce(milliseconds(timeout)) })
}

/// The version of the Tributary library that is loaded.
pub fn version() -> Version {
    // SAFETY: takes no object, so it "may be called from anywhere".
    Version::from_number(unsafe { sys::trib_version() })
}
