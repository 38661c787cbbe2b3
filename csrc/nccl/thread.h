/* The threads of this backend: counted, and joined, so that who waits for their end knows that
 * nothing of them is left, not even what CUDA does when a thread goes. */
#ifndef TRI_NCCL_THREAD_H
#define TRI_NCCL_THREAD_H

#include <stdint.h>

enum tri_nccl_threads {
    TRI_NCCL_TASKS,   /* that do one thing and end */
    TRI_NCCL_REAPERS, /* that stay */
    TRI_NCCL_THREADS
};

/* tri_thread_start. `function` ends with `return tri_nccl_thread_end(kind);`. 0 or an errno. */
int tri_nccl_thread(enum tri_nccl_threads kind, void *(*function)(void *argument), void *argument);
void *tri_nccl_thread_end(enum tri_nccl_threads kind);

/* How many have not come to their end. */
uint32_t tri_nccl_threads(enum tri_nccl_threads kind);

/* Wait until those that have come to their end are gone, which takes microseconds. */
void tri_nccl_threads_join(void);

#endif
