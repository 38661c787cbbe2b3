/* The library's own threads. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/base/thread.h"

#include <signal.h>

int tri_thread_start(pthread_t *out, void *(*function)(void *argument), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(out, NULL, function, argument); /* it inherits the mask */
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
