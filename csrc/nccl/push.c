/* Small calls by the push kernels: which ones. */
#include "csrc/nccl/push.h"

#include "csrc/nccl/convert.h"
#include "csrc/nccl/push_inside.h"
#include "kernels/cuda/kernels_cuda.h"

static size_t chunks_of(const struct tri_push *job)
{
    return tri_push_chunks(job->count, job->dtype);
}

enum tri_push_kind tri_nccl_push_kind(enum tri_kind kind)
{
    static const enum tri_push_kind kinds[TRI_KINDS] = {
        [TRI_ALLREDUCE] = TRI_PUSH_ALLREDUCE, [TRI_REDUCE_SCATTER] = TRI_PUSH_REDUCE_SCATTER,
        [TRI_ALLGATHER] = TRI_PUSH_ALLGATHER, [TRI_BROADCAST] = TRI_PUSH_BROADCAST,
        [TRI_ALLTOALL] = TRI_PUSH_ALLTOALL,
    };
    return kinds[kind];
}

/* Only for kinds that push has a kernel for. A copy is of bytes. */
static struct tri_push job_of(const struct tri_nccl_push *push, const struct tri_call *call)
{
    const enum tri_push_kind kind = tri_nccl_push_kind(call->kind);
    const bool copies = tri_push_copies(kind);
    struct tri_push job = {.count = call->count * (copies ? trib_dtype_size(call->dtype) : 1),
                           .dtype = copies ? TRIB_U8 : call->dtype,
                           .op = call->op,
                           .kind = kind,
                           .root = call->peer,
                           .size = push->size,
                           .capacity = push->capacity};
    if (kind == TRI_PUSH_ALLREDUCE && chunks_of(&job) > push->most.one_shot &&
        tri_push_can_share(job.count, job.dtype, job.size))
        job.kind = TRI_PUSH_TWO_SHOT;
    return job;
}

bool tri_nccl_push_has_kernel(const struct tri_call *call)
{
    enum {
        KINDS = 1 << TRI_ALLREDUCE | 1 << TRI_REDUCE_SCATTER | 1 << TRI_ALLGATHER |
        1 << TRI_BROADCAST | 1 << TRI_ALLTOALL
    };
    return (KINDS >> call->kind & 1) != 0 && !call->scaled;
}

bool tri_nccl_push_serves(const struct tri_call *call)
{
    const struct tri_nccl_push *push = call->transport->push;
    if (push == NULL || !tri_nccl_push_has_kernel(call) || call->count == 0 ||
        call->count > push->capacity * TRI_PUSH_CHUNK * TRI_PUSH_RANKS)
        return false; /* no product below overflows */
    const struct tri_push job = job_of(push, call);
    return chunks_of(&job) <= push->most.of[call->kind] &&
           tri_push_slot_chunks(&job) <= push->capacity;
}

void *tri_nccl_push_scratch(const struct tri_nccl_push *push, int32_t rank, enum tri_nccl_lane lane)
{
    const size_t bytes = tri_push_scratch_bytes(push->size, push->capacity);
    return (char *)(uintptr_t)push->scratch[rank].address + (size_t)lane * bytes; /* NOLINT */
}

trib_status tri_nccl_push_launch(const void *of, int32_t rank, enum tri_nccl_lane lane,
                                 const struct tri_call *call, uint32_t *abort_flag,
                                 uint64_t patience_ns)
{
    const struct tri_nccl_push *push = of;
    const struct tri_push_rank here = {call->send, call->recv, &push->own[rank][lane].control,
                                       rank};
    struct tri_push job = job_of(push, call);
    job.here = &here;
    job.n = 1;
    job.abort_flag = abort_flag;
    job.patience_ns = patience_ns;
    for (int32_t i = 0; i < push->size; i++)
        job.scratch[i] = tri_nccl_push_scratch(push, i, lane);
    return tri_kernels_cuda.push(&job, call->stream);
}

/* Without patience: deadlines are the watchdog's, as for NCCL's kernels. */
trib_status tri_nccl_push_call(const struct tri_call *call)
{
    const struct tri_transport *transport = call->transport;
    const enum tri_nccl_lane lane =
        transport->order.begun.capture == 0 ? TRI_NCCL_RUNS : TRI_NCCL_CAPTURED;
    if (tri_nccl_push_launch(transport->push, transport->rank, lane, call,
                             transport->local->abort_flag, 0) == TRIB_OK)
        return TRIB_OK;
    return tri_nccl_cuda_fail(cudaErrorLaunchFailure, tri_nccl_kind_name(call->kind),
                              transport->device);
}
