/* Is this still the process that made what the library holds?
 *
 * A child of fork has the memory of its parent, but only one of its threads, and whatever locks the
 * others held; CUDA does not work there at all. So once a process has used the library, its
 * children are refused: who calls is told, instead of waiting for threads that are not there. */
#ifndef TRI_BASE_PROCESS_H
#define TRI_BASE_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>

extern _Atomic bool tri_process_is_child;

/* This process makes something that a child could not use: from now on forks are noticed. */
void tri_process_use(void);

/* Was this process forked from one that had used the library? A load. */
static inline bool tri_process_forked(void)
{
    return atomic_load_explicit(&tri_process_is_child, memory_order_relaxed);
}

#endif
