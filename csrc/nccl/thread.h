/* The threads of this backend, counted and joined: after a join nothing of a thread is left, not
 * even CUDA's cleanup at its end. */
#ifndef TRI_NCCL_THREAD_H
#define TRI_NCCL_THREAD_H

#include <stdint.h>

enum tri_nccl_threads {
    TRI_NCCL_TASKS,      /* each makes one call and ends */
    TRI_NCCL_BACKGROUND, /* run jobs until stopped */
    TRI_NCCL_PROBER,     /* queries events (prober.c), ends with the last communicator */
    TRI_NCCL_THREADS
};

/* tri_thread_start. `function` ends with `return tri_nccl_thread_end(kind);`. Returns 0 or an
 * errno. */
int tri_nccl_thread(enum tri_nccl_threads kind, void *(*function)(void *argument), void *argument);
void *tri_nccl_thread_end(enum tri_nccl_threads kind);

/* The number of threads that have not reached their end. */
uint32_t tri_nccl_threads(enum tri_nccl_threads kind);

/* Wait until every thread that has reached its end is gone, which takes microseconds. */
void tri_nccl_threads_join(void);

#endif
