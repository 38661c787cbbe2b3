/* Threads of the library's own. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/host/thread.h"

#include <signal.h>

int tri_thread_start(pthread_t *out, void *(*function)(void *), void *argument)
{
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int failed = pthread_create(out, NULL, function, argument);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed;
}
