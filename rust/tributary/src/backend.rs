//! Backends, which connect ranks and hold their memory.

use std::fmt;
use std::time::Duration;

use tributary_sys as sys;

use crate::capabilities::Capabilities;
use crate::error::{c_string, check, text, Result};
use crate::options::milliseconds;

/// A backend of the loaded library: `nccl`, whose ranks are GPUs, or `host`, whose ranks are
/// threads of this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backend(&'static str);

impl Backend {
    /// Returns the backends in this build, best first.
    pub fn all() -> Vec<Backend> {
        // SAFETY: takes no object, so it "may be called from any thread".
        let count = unsafe { sys::trib_backend_count() };
        // SAFETY: every index below the count has a name, and "Valid for ever".
        (0..count).map(|index| Backend(unsafe { text(sys::trib_backend_name(index)) })).collect()
    }

    /// Returns the backend called `name`, if this build has it.
    pub fn find(name: impl AsRef<str>) -> Option<Backend> {
        Backend::all().into_iter().find(|backend| backend.0 == name.as_ref())
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Returns the version of the loaded NCCL; for `host`, of Tributary. Creates no CUDA context.
    pub fn version(self) -> Result<Version> {
        let name = c_string("backend", self.0)?;
        let mut number = 0;
        // SAFETY: both pointers live through the call; "Creates no CUDA context".
        check(unsafe { sys::trib_backend_version(&mut number, name.as_ptr()) })?;
        Ok(Version::from_number(number))
    }

    /// Returns what it can do in this process. Creates no CUDA context.
    pub fn capabilities(self) -> Result<Capabilities> {
        let name = c_string("backend", self.0)?;
        let mut raw = sys::TRIB_CAPABILITIES_INIT;
        // SAFETY: both pointers live through the call, and `size` is set.
        check(unsafe { sys::trib_backend_capabilities(&mut raw, name.as_ptr()) })?;
        Ok(raw.into())
    }

    /// Returns how many devices it can use: GPUs for `nccl` (0 without a driver), 64 for `host`.
    /// Creates no CUDA context.
    pub fn devices(self) -> Result<usize> {
        let name = c_string("backend", self.0)?;
        let mut count = 0;
        // SAFETY: both pointers live through the call; "Creates no CUDA context".
        check(unsafe { sys::trib_backend_devices(&mut count, name.as_ptr()) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

/// A backend serves wherever a function takes a backend's name.
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
    /// Incremented by incompatible changes.
    pub major: u32,
    /// Incremented by additions.
    pub minor: u32,
    /// Incremented by fixes.
    pub patch: u32,
}

impl Version {
    pub(crate) fn from_number(number: u32) -> Version {
        Version { major: number / 10_000, minor: number / 100 % 100, patch: number % 100 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Waits until the library's background work has ended, which frees what aborted, closed and
/// dropped communicators held. An error that [is a timeout](crate::Error::is_timeout) counts what
/// is left. Call it before you reset a device or leave the process: both take CUDA away under that
/// work.
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

/// Returns the version of the loaded Tributary library.
pub fn version() -> Version {
    // SAFETY: takes no object, so it "may be called from any thread".
    Version::from_number(unsafe { sys::trib_version() })
}
