//! One thread at a time, or an error.
//!
//! "Threads may share a `const T *`, but not a `T *`". Python's threads share every object, so each
//! one that the header does not open to "Any thread" has a turn: a call takes it, and a call of
//! another thread meanwhile fails. That is decided before the GIL is released. What asks for a
//! status on its own account, as the wait of a work does, must not make such a call fail: it queues
//! for the short lock inside.

use std::fmt::Display;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use crate::failure::{usage, Failure, Outcome};

#[derive(Default)]
pub struct Turn {
    /// -1: one call; above 0: so many that may run beside each other.
    users: AtomicIsize,
    /// Held around C alone, and never while a thread waits for the GIL.
    inside: RwLock<()>,
}

impl Turn {
    /// For a call that nothing may run beside.
    pub fn take(&self, operation: &str, whose: &dyn Display) -> Outcome<Taken<'_>> {
        let free = self.users.compare_exchange(0, -1, Ordering::AcqRel, Ordering::Relaxed);
        free.map(|_| Taken(self)).map_err(|_| busy(operation, whose))
    }

    /// For a call that may run beside others of its kind.
    pub fn share(&self, operation: &str, whose: &dyn Display) -> Outcome<Shared<'_>> {
        let more = |users| (users >= 0).then_some(users + 1);
        let joined = self.users.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        joined.map(|_| Shared(self)).map_err(|_| busy(operation, whose))
    }

    /// The lock inside, for an end that no call can come beside. Not while waiting for the GIL.
    pub fn inside(&self) -> RwLockWriteGuard<'_, ()> {
        self.inside.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock inside, for a look from any thread; `None` while a call has it.
    pub fn peek(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        match self.inside.try_write() {
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Ok(guard) => Some(guard),
        }
    }
}

fn busy(operation: &str, whose: &dyn Display) -> Failure {
    usage(format!(
        "{operation}: {whose} is in use by another thread (or by a call that a signal \
         interrupted); one thread at a time may use it, with all that was made from it. Abort \
         handles, and waits of works, streams and events, are for any thread"
    ))
}

pub struct Taken<'a>(&'a Turn);

impl Taken<'_> {
    pub fn lock(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.inside()
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.users.store(0, Ordering::Release);
    }
}

pub struct Shared<'a>(&'a Turn);

impl Shared<'_> {
    pub fn lock(&self) -> RwLockReadGuard<'_, ()> {
        self.0.inside.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::Release);
    }
}
