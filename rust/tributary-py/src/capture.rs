//! Whether a CUDA graph captures a stream, which only CUDA knows.

use std::ffi::{c_char, c_int, c_void};
use std::mem;
use std::sync::OnceLock;

use crate::place::Place;
use crate::stream::Address;

type IsCapturing = unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int;

extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_LAZY: c_int = 1;
/// Only if the process has it.
const RTLD_NOLOAD: c_int = 4;

/// The driver's function. It is loaded as soon as there is a communicator on nccl.
fn function() -> Option<IsCapturing> {
    static FOUND: OnceLock<Option<IsCapturing>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: strings of C; NULL where there is none. The driver is never unloaded.
        let found = unsafe {
            let driver = dlopen(c"libcuda.so.1".as_ptr(), RTLD_LAZY | RTLD_NOLOAD);
            if driver.is_null() {
                driver
            } else {
                dlsym(driver, c"cuStreamIsCapturing".as_ptr())
            }
        };
        // SAFETY: the signature of cuStreamIsCapturing, whose enum is an int.
        (!found.is_null()).then(|| unsafe { mem::transmute::<*mut c_void, IsCapturing>(found) })
    })
}

/// Never waits, and leaves a capture alone. False of the legacy default stream, which cannot be
/// captured.
pub fn captures(place: Place, stream: Address) -> bool {
    if place.is_host() {
        return false;
    }
    let mut status = 0;
    // SAFETY: a stream of CUDA that lives; the place to write to, too.
    let asked = function().map(|function| unsafe { function(stream.get(), &mut status) });
    asked == Some(0) && status != 0
}
