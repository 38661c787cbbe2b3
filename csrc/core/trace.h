/* Names of communicators, and of calls while a thread issues them, for a profiler: asked for with
 * TRIBUTARY_NVTX in the environment. */
#ifndef TRI_CORE_TRACE_H
#define TRI_CORE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "csrc/core/communicator.h"

/* The communicator is open: name it. The first one decides whether anything is told, for good. */
void tri_trace_begin(const struct trib_comm *comm);

/* Somebody has asked, and a profiler listens. It never changes once a communicator is open, so each
 * push has its pop. */
extern _Atomic bool tri_trace_on;

void tri_trace_open(const struct trib_comm *comm, const struct tri_recorded *call);
void tri_trace_close(void);

/* Around issuing a call of `comm`, on one thread. Hot: one load. */
static inline void tri_trace_push(const struct trib_comm *comm, const struct tri_recorded *call)
{
    if (atomic_load_explicit(&tri_trace_on, memory_order_relaxed))
        tri_trace_open(comm, call);
}

static inline void tri_trace_pop(void)
{
    if (atomic_load_explicit(&tri_trace_on, memory_order_relaxed))
        tri_trace_close();
}

#endif
