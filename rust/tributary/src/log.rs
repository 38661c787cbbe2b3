//! The library's log.

use std::ffi::{c_char, c_void, CStr};
use std::ptr;
use std::sync::{PoisonError, RwLock};

use tributary_sys as sys;

use crate::error::{check, Result};
use crate::stream::swallow;

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// A failure, such as a call that was late or differed, which ended a communicator.
    Error,
    /// A condition that should not last, or the end of a communicator by an abort or because a rank
    /// had left.
    Warn,
    /// Information: the path of a [dump](crate::dump) that was not asked for, or why NCCL did not
    /// say which ranks it misses. Communicators, sparse states and memory only while the [debug
    /// switch](crate::debug) is on.
    Info,
    /// All details; at present there are no messages of this level.
    Debug,
}

type Function = Box<dyn Fn(Level, &str) + Send + Sync>;

/// Guards the function: callers share it, `set` and `off` replace it.
static FUNCTION: RwLock<Option<Function>> = RwLock::new(None);

/// Sends messages of `level` and more severe ones to `function`, and replaces an earlier function.
/// Any thread may call `function`, which must not call anything of this crate. At the start the log
/// is off.
///
/// ```
/// use tributary::log::{self, Level};
/// log::set(Level::Info, |level, line| eprintln!("{level:?}: {line}"))?;
/// log::off()?;
/// # Ok::<(), tributary::Error>(())
/// ```
pub fn set(level: Level, function: impl Fn(Level, &str) + Send + Sync + 'static) -> Result<()> {
    let function: Function = Box::new(function);
    let old = FUNCTION.write().unwrap_or_else(PoisonError::into_inner).replace(function);
    drop(old);
    let level = match level {
        Level::Error => sys::TRIB_LOG_ERROR,
        Level::Warn => sys::TRIB_LOG_WARN,
        Level::Info => sys::TRIB_LOG_INFO,
        Level::Debug => sys::TRIB_LOG_DEBUG,
    };
    // SAFETY: `forward` may be called from any thread, at any time, and does not unwind.
    check(unsafe { sys::trib_log_set(Some(forward), ptr::null_mut(), level) })
}

/// Switches the log off.
pub fn off() -> Result<()> {
    // SAFETY: "NULL, the initial state, disables the log".
    check(unsafe { sys::trib_log_set(None, ptr::null_mut(), 0) })?;
    let old = FUNCTION.write().unwrap_or_else(PoisonError::into_inner).take();
    drop(old);
    Ok(())
}

unsafe extern "C" fn forward(_context: *mut c_void, level: i32, line: *const c_char) {
    let function = FUNCTION.read().unwrap_or_else(PoisonError::into_inner);
    let Some(function) = &*function else { return };
    // SAFETY: "one line, without a newline", alive through the call.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
    let level = match level {
        sys::TRIB_LOG_ERROR => Level::Error,
        sys::TRIB_LOG_WARN => Level::Warn,
        sys::TRIB_LOG_INFO => Level::Info,
        _ => Level::Debug,
    };
    swallow(|| function(level, &line));
}
