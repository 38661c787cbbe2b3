/* Up to which size what serves a call, over NVLink. Made by benches/limits.py, never by hand, from
 * these of benches/results:
 *
 *     h200x2-push.txt, h100x2-push.txt, h200x4-push.txt, h200x2-pull.txt, h200x3-pull.txt,
 *     h200x4-pull.txt, h200x2-kinds.txt, h100x2-kinds.txt, h100x3-kinds.txt, h100x4-kinds.txt
 *
 * What is estimated lies beyond all sizes that were measured, or nobody has measured any. */
#ifndef TRI_NCCL_LIMITS_H
#define TRI_NCCL_LIMITS_H

#include "csrc/backend.h"
#include "csrc/nccl/push_inside.h"

/* KiB: one_shot, push, pull_above, pull, staged_above, staged */
static const struct tri_nccl_limits tri_nccl_limits[TRI_KINDS][TRI_PUSH_RANKS + 1] = {
    [TRI_ALLREDUCE][2] = {768, 8192, 1024, 1048576, 1024, 1048576},
    /* estimated: one_shot, push */
    [TRI_ALLREDUCE][3] = {384, 8192, 512, 262144, 1024, 16384},
    [TRI_ALLREDUCE][4] = {256, 4096, 512, 65536, 1024, 8192},
    [TRI_REDUCE_SCATTER][2] = {0, 8192, 0, 262144, 0, 0},
    /* estimated: push */
    [TRI_REDUCE_SCATTER][3] = {0, 1536, 0, 4096, 0, 0},
    [TRI_REDUCE_SCATTER][4] = {0, 2048, 0, 262144, 0, 0},
    [TRI_ALLGATHER][2] = {0, 2048, 0, 262144, 0, 0},
    /* estimated: push */
    [TRI_ALLGATHER][3] = {0, 768, 0, 262144, 0, 0},
    [TRI_ALLGATHER][4] = {0, 1024, 0, 262144, 0, 0},
    [TRI_ALLTOALL][2] = {0, 1024, 0, 262144, 0, 0},
    /* estimated: push */
    [TRI_ALLTOALL][3] = {0, 768, 0, 16384, 0, 0},
    /* estimated: push */
    [TRI_ALLTOALL][4] = {0, 1024, 0, 262144, 0, 0},
    [TRI_BROADCAST][2] = {0, 1024, 1024, 65536, 0, 0},
    /* estimated: push */
    [TRI_BROADCAST][3] = {0, 256, 0, 0, 0, 0},
    [TRI_BROADCAST][4] = {0, 256, 0, 0, 0, 0},
};

#endif
