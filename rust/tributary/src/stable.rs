//! Values that the device uses while their owner moves.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// A value at a fixed address on the heap, which the device may use while its owner moves.
///
/// Not a `Box`: moving a `Box` asserts that nothing else uses its content.
pub(crate) struct StableBox<B>(NonNull<B>);

// SAFETY: it owns a B.
unsafe impl<B: Send> Send for StableBox<B> {}

impl<B> StableBox<B> {
    pub(crate) fn new(value: B) -> StableBox<B> {
        // SAFETY: a box is not NULL.
        StableBox(unsafe { NonNull::new_unchecked(Box::into_raw(Box::new(value))) })
    }

    /// A borrow of any length, for calls that a guard waits for before `self` is taken or dropped.
    pub(crate) fn lend<'any>(&mut self) -> &'any mut B {
        // SAFETY: alive until `take` or drop, before which the guard waits; lent once.
        unsafe { self.0.as_mut() }
    }

    pub(crate) fn take(self) -> B {
        let stable = ManuallyDrop::new(self);
        // SAFETY: made by `new`, and not used again.
        *unsafe { Box::from_raw(stable.0.as_ptr()) }
    }
}

impl<B> Drop for StableBox<B> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and not used again.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
