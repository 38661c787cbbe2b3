//! The processes that a launcher has started, and where they meet.

use std::ffi::CStr;
use std::fmt;
use std::time::Duration;

use tributary_sys as sys;

use crate::error::{c_string, check, text, Result};
use crate::id::UniqueId;
use crate::options::milliseconds;

/// The place of this process in the job that torchrun, mpirun or srun has started, and where the
/// ranks of the job meet. [`Communicator::from_env`](crate::Communicator::from_env) does it all;
/// with a job, a program learns its rank before it chooses anything else.
///
/// ```no_run
/// use std::time::Duration;
/// use tributary::{Communicator, Job};
/// let job = Job::from_env()?;
/// println!("rank {} of {} on {}", job.rank(), job.size(), job.launcher());
/// let id = job.meet(None, Duration::from_secs(60))?;
/// let communicator = Communicator::new(&id, job.rank(), job.size(), job.local_rank())?;
/// # Ok::<(), tributary::Error>(())
/// ```
///
/// # The variables
///
/// The launchers' own, and of this library: `TRIBUTARY_ADDRESS` (`host:port`) says where the ranks
/// meet, `TRIBUTARY_SECRET` is known to those who may take part, and `TRIBUTARY_LAUNCHER` names the
/// launcher whose variables count. `trib_job_read` in the header of the C library has the details.
#[derive(Clone)]
pub struct Job(sys::trib_job);

// SAFETY: `launcher` is a string that is "valid for ever".
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    /// Reads the launcher's variables. The error names one that is missing
    /// ([`ErrorKind::InvalidUsage`](crate::ErrorKind::InvalidUsage)) or has a value that it cannot
    /// have ([`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument)).
    pub fn from_env() -> Result<Job> {
        let mut job = sys::TRIB_JOB_INIT;
        // SAFETY: `job` lives through the call, with its size set. "While none changes the
        // environment": std::env::set_var leaves it to its caller that no thread reads it meanwhile.
        check(unsafe { sys::trib_job_read(&mut job) })?;
        Ok(Job(job))
    }

    /// The rank of this process.
    pub fn rank(&self) -> usize {
        self.0.rank as usize
    }

    /// The number of processes of the job, a rank each.
    pub fn size(&self) -> usize {
        self.0.n_ranks as usize
    }

    /// The number of this process among those of the job on its host: its GPU, where it sees all.
    pub fn local_rank(&self) -> usize {
        self.0.local_rank as usize
    }

    /// `"torchrun"`, `"openmpi"`, `"mpich"` or `"slurm"`.
    pub fn launcher(&self) -> &'static str {
        // SAFETY: trib_job_read has set it.
        unsafe { text(self.0.launcher) }
    }

    /// Where rank 0 is; empty for a job of one rank.
    pub fn host(&self) -> &str {
        // SAFETY: trib_job_read ends it with a 0.
        unsafe { CStr::from_ptr(self.0.host.as_ptr()) }.to_str().unwrap_or("?")
    }

    /// Waits for all ranks of the job, and returns the id of their communicator, the same on all of
    /// them. Rank 0 creates it for `backend` (`None`: the first that has a device).
    ///
    /// The error after `timeout` names the ranks that did not come, on all that did.
    pub fn meet(&self, backend: Option<&str>, timeout: Duration) -> Result<UniqueId> {
        let name = backend.map(|name| c_string("backend", name)).transpose()?;
        let name = name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        let mut id = sys::trib_id { bytes: [0; UniqueId::SIZE] };
        // SAFETY: all pointers live through the call; a NULL name is "the first backend that has a
        // device".
        check(unsafe { sys::trib_job_meet(&mut id, &self.0, name, milliseconds(timeout).max(1)) })?;
        Ok(UniqueId::from_bytes(id.bytes))
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("launcher", &self.launcher())
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("local_rank", &self.local_rank())
            .field("host", &self.host())
            .field("port", &self.0.port)
            .finish()
    }
}
