/* The peer on nccl: the plain NCCL call, on communicators of its own, the current device set once a
 * thread as a careful user would do it. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#include "benches/collective.h"
#include "benches/cuda_device.h"
#include "benches/peer.h"
#include "benches/processes.h"

#define NCCL_OK(call)                                                                              \
    do {                                                                                           \
        ncclResult_t result_ = (call);                                                             \
        if (result_ != ncclSuccess) {                                                              \
            fprintf(stderr, "%s: %s\n", #call, ncclGetErrorString(result_));                       \
            bench_fail();                                                                          \
        }                                                                                          \
    } while (0)

/* The communicator of a rank that has a process of its own: as by ncclCommInitRank, which the NCCL of the
 * tests lacks. */
static ncclComm_t join(const struct bench *bench)
{
    const int rank = bench->first;
    ncclComm_t comm = NULL;
    ncclUniqueId id = {{0}};
    if (rank == 0)
        NCCL_OK(ncclGetUniqueId(&id));
    bench_tell(bench, &id, sizeof id);
    bench_set_device(rank);
    NCCL_OK(ncclCommInitRankConfig(&comm, bench->ranks, id, rank, NULL));
    return comm;
}

static void *open_peer(const struct bench *bench)
{
    ncclComm_t *comms = bench_must(calloc(BENCH_MAX_RANKS, sizeof(ncclComm_t)));
    if (bench_processes() > 1)
        comms[bench->first] = join(bench);
    else
        NCCL_OK(ncclCommInitAll(comms, bench->ranks, NULL));
    return comms;
}

static void close_peer(void *state)
{
    ncclComm_t *comms = state;
    for (int rank = 0; rank < BENCH_MAX_RANKS; rank++) {
        if (comms[rank] == NULL)
            continue;
        bench_set_device(rank);
        NCCL_OK(ncclCommDestroy(comms[rank]));
    }
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

/* One rank's end of a call. */
struct end {
    ncclComm_t comm;
    cudaStream_t stream;
    int rank, ranks;
};

static struct end end_of(const struct bench *bench, int rank)
{
    return (struct end){.comm = ((ncclComm_t *)bench->peer_state)[rank],
                        .stream = bench->stream[rank],
                        .rank = rank,
                        .ranks = bench->ranks};
}

static char *block_of(void *buffer, const struct bench_call *call, int block)
{
    return (char *)buffer + (size_t)block * call->count * trib_dtype_size(call->dtype);
}

/* Block `block` of send goes to `peer`; a block is what one rank sends another. */
static void send_block(const struct end *end, const struct bench_call *call, int block, int peer)
{
    const char *at = block_of(call->send, call, block);
    NCCL_OK(ncclSend(at, call->count, type_of(call->dtype), peer, end->comm, end->stream));
}

static void recv_block(const struct end *end, const struct bench_call *call, int block, int peer)
{
    char *at = block_of(call->recv, call, block);
    NCCL_OK(ncclRecv(at, call->count, type_of(call->dtype), peer, end->comm, end->stream));
}

static void alltoall(const struct end *end, const struct bench_call *call)
{
    for (int peer = 0; peer < end->ranks; peer++) {
        send_block(end, call, peer, peer);
        recv_block(end, call, peer, peer);
    }
}

static void gather(const struct end *end, const struct bench_call *call)
{
    send_block(end, call, 0, call->root);
    for (int peer = 0; end->rank == call->root && peer < end->ranks; peer++)
        recv_block(end, call, peer, peer);
}

static void scatter(const struct end *end, const struct bench_call *call)
{
    for (int peer = 0; end->rank == call->root && peer < end->ranks; peer++)
        send_block(end, call, peer, peer);
    recv_block(end, call, 0, call->root);
}

static void sendrecv(const struct end *end, const struct bench_call *call)
{
    send_block(end, call, 0, bench_after(end->rank, end->ranks));
    recv_block(end, call, 0, bench_before(end->rank, end->ranks));
}

/* A collective that not every version of NCCL has: NCCL's sends and receives, in one group. */
static void in_group(void (*points)(const struct end *end, const struct bench_call *call),
                     const struct end *end, const struct bench_call *call)
{
    NCCL_OK(ncclGroupStart());
    points(end, call);
    NCCL_OK(ncclGroupEnd());
}

static void run_one(const struct end *end, const struct bench_call *call)
{
    const ncclDataType_t type = type_of(call->dtype);
    const ncclRedOp_t op = op_of(call->op);
    const size_t n = call->count;
    void *const send = call->send, *const recv = call->recv;
    switch (call->collective->kind) {
    case BENCH_ALLREDUCE:
        NCCL_OK(ncclAllReduce(send, recv, n, type, op, end->comm, end->stream));
        break;
    case BENCH_BROADCAST:
        NCCL_OK(ncclBroadcast(send, recv, n, type, call->root, end->comm, end->stream));
        break;
    case BENCH_REDUCE:
        NCCL_OK(ncclReduce(send, recv, n, type, op, call->root, end->comm, end->stream));
        break;
    case BENCH_ALLGATHER:
        NCCL_OK(ncclAllGather(send, recv, n, type, end->comm, end->stream));
        break;
    case BENCH_REDUCE_SCATTER:
        NCCL_OK(ncclReduceScatter(send, recv, n, type, op, end->comm, end->stream));
        break;
    case BENCH_ALLTOALL:
        in_group(alltoall, end, call);
        break;
    case BENCH_GATHER:
        in_group(gather, end, call);
        break;
    case BENCH_SCATTER:
        in_group(scatter, end, call);
        break;
    case BENCH_SENDRECV:
        in_group(sendrecv, end, call);
        break;
    case BENCH_BARRIER: /* as PyTorch has it */
        NCCL_OK(ncclAllReduce(send, send, 1, type, ncclSum, end->comm, end->stream));
        break;
    }
}

/* One thread for all ranks needs no device set: inside a group NCCL takes the communicator's. */
static void run_all(const struct bench *bench, const struct bench_call *calls)
{
    NCCL_OK(ncclGroupStart());
    for (int rank = 0; rank < bench->ranks; rank++) {
        const struct end end = end_of(bench, rank);
        run_one(&end, &calls[rank]);
    }
    NCCL_OK(ncclGroupEnd());
}

static void run(const struct bench *bench, int rank, const struct bench_call *calls)
{
    if (rank == BENCH_ALL) {
        run_all(bench, calls);
        return;
    }
    const struct end end = end_of(bench, rank);
    bench_set_device(rank);
    run_one(&end, &calls[rank]);
}

static void run_list(const struct bench *bench, int rank, const trib_tensor *tensors, size_t n,
                     bool grouped)
{
    const struct end end = end_of(bench, rank);
    bench_set_device(rank);
    if (grouped)
        NCCL_OK(ncclGroupStart());
    for (size_t i = 0; i < n; i++)
        NCCL_OK(ncclAllReduce(tensors[i].data, tensors[i].data, tensors[i].count, ncclFloat32,
                              ncclSum, end.comm, end.stream));
    if (grouped)
        NCCL_OK(ncclGroupEnd());
}

const struct bench_peer bench_peer_nccl = {"NCCL", open_peer, close_peer, run, run_list};
