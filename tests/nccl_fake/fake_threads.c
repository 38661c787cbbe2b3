/* The fake's threads: the system's, which can run out. The program is linked with
 * --wrap=pthread_create, and with --wrap=pthread_mutex_timedlock, which waits by the wall clock: no
 * code may call it. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdatomic.h>

#include "tests/nccl_fake/fake.h"

static _Atomic bool forbidden;

void fake_allow_threads(bool allowed)
{
    atomic_store(&forbidden, !allowed);
}

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument);

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument)
{
    return atomic_load(&forbidden) ? EAGAIN
                                   : __real_pthread_create(out, attributes, function, argument);
}

int __wrap_pthread_mutex_timedlock(pthread_mutex_t *lock, const struct timespec *until);

int __wrap_pthread_mutex_timedlock(pthread_mutex_t *lock, const struct timespec *until)
{
    (void)lock;
    (void)until;
    fake_die("a lock is waited for by the wall clock");
}
