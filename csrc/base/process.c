/* Detects a forked child. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/base/process.h"

#include <pthread.h>

_Atomic bool tri_process_is_child;

static void in_child(void)
{
    atomic_store_explicit(&tri_process_is_child, true, memory_order_relaxed);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, in_child); /* if it fails, forks go undetected */
}

void tri_process_use(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
}
