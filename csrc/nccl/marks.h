/* How far the calls of a rank have got on its streams, by CUDA events: marks. */
#ifndef TRI_NCCL_MARKS_H
#define TRI_NCCL_MARKS_H

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "csrc/backend.h"

enum { TRI_NCCL_MARKS = 32 };

/* Events around the calls (previous mark's number, number], or only behind them. */
struct tri_nccl_mark {
    _Atomic uint64_t number;
    _Atomic bool begun;        /* `before` was recorded right before call `number` */
    cudaEvent_t before, after; /* NULL before the first use */
};

/* The marks of one rank: a ring that its owner fills and the prober empties. */
struct tri_nccl_marks {
    struct tri_nccl_mark ring[TRI_NCCL_MARKS];
    _Atomic uint64_t made;   /* by the owner */
    _Atomic uint64_t passed; /* of those, how many the prober has seen completed */
    /* As of the prober's last look. */
    _Atomic uint64_t ended, started, pending; /* the last: of the first mark that was pending */

    /* Only the owner uses it. */
    struct tri_nccl_mark *open; /* whose `before` was recorded last */

    int32_t device;
    struct tri_nccl_marks *next; /* guarded by the prober's lock */
};

/* There is no mark yet. */
void tri_nccl_marks_init(struct tri_nccl_marks *marks, int32_t device);

/* The owner: tri_transport_ops.mark. */
bool tri_nccl_marks_record(struct tri_nccl_marks *marks, uint64_t number, trib_stream stream,
                           enum tri_mark when);
/* The prober: query the events. May wait for the device, which is current. */
void tri_nccl_marks_probe(struct tri_nccl_marks *marks);
/* As of the last probe; returns true if another one could tell no more. Any thread. */
bool tri_nccl_marks_read(struct tri_nccl_marks *marks, struct tri_progress *out);

/* Destroy the events, which nobody uses any more. Their device is current. */
void tri_nccl_marks_free(struct tri_nccl_marks *marks);

#endif
