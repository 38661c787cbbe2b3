/* Detects a forked child.
 *
 * A child of fork has its parent's memory, but only one of its threads, and any locks that the
 * other threads held; CUDA does not work there at all. So once a process has used the library,
 * calls in its children fail, instead of waiting for threads that do not exist. */
#ifndef TRI_BASE_PROCESS_H
#define TRI_BASE_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>

extern _Atomic bool tri_process_is_child;

/* Detect forks from now on, because this process creates what a child could not use. */
void tri_process_use(void);

/* Was this process forked from one that had used the library? One load. */
static inline bool tri_process_forked(void)
{
    return atomic_load_explicit(&tri_process_is_child, memory_order_relaxed);
}

#endif
