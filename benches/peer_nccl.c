/* The peer on nccl: the plain NCCL call, on communicators of its own, the current device set once a
 * thread as a careful user would do it. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#include "benches/collective.h"
#include "benches/peer.h"

#define NCCL_OK(call)                                                                              \
    do {                                                                                           \
        ncclResult_t result_ = (call);                                                             \
        if (result_ != ncclSuccess) {                                                              \
            fprintf(stderr, "%s: %s\n", #call, ncclGetErrorString(result_));                       \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

static void *open_peer(const struct bench *bench)
{
    ncclComm_t *comms = calloc(BENCH_MAX_RANKS, sizeof(ncclComm_t));
    if (comms != NULL)
        NCCL_OK(ncclCommInitAll(comms, bench->ranks, NULL));
    return comms;
}

static void close_peer(void *state)
{
    ncclComm_t *comms = state;
    for (int rank = 0; rank < BENCH_MAX_RANKS && comms[rank] != NULL; rank++)
        NCCL_OK(ncclCommDestroy(comms[rank]));
    free(comms);
}

static ncclDataType_t type_of(trib_dtype dtype)
{
    static const ncclDataType_t types[] = {
        [TRIB_F16] = ncclFloat16, [TRIB_BF16] = ncclBfloat16, [TRIB_F32] = ncclFloat32,
        [TRIB_F64] = ncclFloat64, [TRIB_I8] = ncclInt8,       [TRIB_U8] = ncclUint8,
        [TRIB_I32] = ncclInt32,   [TRIB_U32] = ncclUint32,    [TRIB_I64] = ncclInt64,
        [TRIB_U64] = ncclUint64,
    };
    return types[dtype];
}

static ncclRedOp_t op_of(trib_op op)
{
    static const ncclRedOp_t ops[] = {
        [TRIB_SUM] = ncclSum, [TRIB_PROD] = ncclProd, [TRIB_MIN] = ncclMin,
        [TRIB_MAX] = ncclMax, [TRIB_AVG] = ncclAvg,
    };
    return ops[op];
}

/* Each rank has a thread of its own, so this is set anew where a thread is new. */
static void set_device(int rank)
{
    static _Thread_local int current = -1;
    if (current != rank && cudaSetDevice(rank) != cudaSuccess)
        exit(EXIT_FAILURE);
    current = rank;
}

static void alltoall(ncclComm_t comm, int ranks, const struct bench_call *call, cudaStream_t stream)
{
    const size_t step = call->count * trib_dtype_size(call->dtype);
    NCCL_OK(ncclGroupStart());
    for (int peer = 0; peer < ranks; peer++) {
        const size_t at = (size_t)peer * step;
        NCCL_OK(ncclSend((char *)call->send + at, call->count, type_of(call->dtype), peer, comm,
                         stream));
        NCCL_OK(ncclRecv((char *)call->recv + at, call->count, type_of(call->dtype), peer, comm,
                         stream));
    }
    NCCL_OK(ncclGroupEnd());
}

static bool run(const struct bench *bench, int rank, const struct bench_call *call)
{
    ncclComm_t comm = ((ncclComm_t *)bench->peer_state)[rank];
    cudaStream_t stream = bench->stream[rank];
    const ncclDataType_t type = type_of(call->dtype);
    const size_t n = call->count;
    set_device(rank);
    switch (call->collective->kind) {
    case BENCH_ALLREDUCE:
        NCCL_OK(ncclAllReduce(call->send, call->recv, n, type, op_of(call->op), comm, stream));
        return true;
    case BENCH_BROADCAST:
        NCCL_OK(ncclBroadcast(call->send, call->recv, n, type, call->root, comm, stream));
        return true;
    case BENCH_REDUCE:
        NCCL_OK(ncclReduce(call->send, call->recv, n, type, op_of(call->op), call->root, comm,
                           stream));
        return true;
    case BENCH_ALLGATHER:
        NCCL_OK(ncclAllGather(call->send, call->recv, n, type, comm, stream));
        return true;
    case BENCH_REDUCE_SCATTER:
        NCCL_OK(ncclReduceScatter(call->send, call->recv, n, type, op_of(call->op), comm, stream));
        return true;
    case BENCH_ALLTOALL:
        alltoall(comm, bench->ranks, call, stream);
        return true;
    }
    return false;
}

static void run_list(const struct bench *bench, int rank, const trib_tensor *tensors, size_t n,
                     bool grouped)
{
    ncclComm_t comm = ((ncclComm_t *)bench->peer_state)[rank];
    set_device(rank);
    if (grouped)
        NCCL_OK(ncclGroupStart());
    for (size_t i = 0; i < n; i++)
        NCCL_OK(ncclAllReduce(tensors[i].data, tensors[i].data, tensors[i].count, ncclFloat32,
                              ncclSum, comm, bench->stream[rank]));
    if (grouped)
        NCCL_OK(ncclGroupEnd());
}

const struct bench_peer bench_peer_nccl = {"NCCL", open_peer, close_peer, run, run_list};
