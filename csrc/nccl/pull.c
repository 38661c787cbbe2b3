/* Large calls by the pull kernels: which ones. */
#include "csrc/nccl/pull.h"

#include "csrc/nccl/capture.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/limits.h"
#include "csrc/nccl/pull_inside.h"
#include "kernels/cuda/kernels_cuda.h"

/* Only of kinds that pull has a kernel for. */
static enum tri_pull_kind kind_of(const struct tri_call *call)
{
    static const enum tri_pull_kind kinds[TRI_KINDS] = {
        [TRI_ALLREDUCE] = TRI_PULL_ALLREDUCE, [TRI_REDUCE_SCATTER] = TRI_PULL_REDUCE_SCATTER,
        [TRI_ALLGATHER] = TRI_PULL_ALLGATHER, [TRI_BROADCAST] = TRI_PULL_BROADCAST,
        [TRI_ALLTOALL] = TRI_PULL_ALLTOALL,
    };
    return kinds[call->kind];
}

bool tri_nccl_pull_can(const struct tri_call *call)
{
    const struct tri_nccl_push *push = call->transport->push;
    return push != NULL && push->pull != NULL && tri_nccl_push_has_kernel(call) && call->count > 0;
}

/* Is pull ahead of NCCL? `staged`: of buffers that peers do not map, where such a call goes through scratch. */
static bool is_in_table(const struct tri_call *call, bool staged)
{
    const enum tri_pull_kind kind = kind_of(call);
    const bool blocks = tri_pull_scatters(kind) || tri_pull_gathers(kind);
    const size_t size = (size_t)call->transport->size;
    const size_t width = trib_dtype_size(call->dtype) * (blocks ? size : 1);
    const struct tri_nccl_limits *limits = &tri_nccl_limits[call->kind][size];
    const size_t above = staged ? limits->staged_above : limits->pull_above;
    const size_t most = staged ? limits->staged : limits->pull;
    return call->count > above * 1024 / width && call->count <= most * 1024 / width;
}

/* Between processes peers map symmetric memory alone. All ranks know that the caller has passed it by its variant. */
bool tri_nccl_pull_serves(const struct tri_call *call)
{
    return tri_nccl_pull_can(call) &&
           is_in_table(call,
                       call->transport->push->apart && call->variant != TRIB_VARIANT_SYMMETRIC);
}

bool tri_nccl_pull_prefers_mapped(const struct tri_call *call)
{
    return tri_nccl_pull_can(call) && call->transport->push->apart && is_in_table(call, false);
}

/* To where each rank has what is here; they are 0 already. */
static void set_shifts(ptrdiff_t *shifts, const struct tri_symmetric *memory)
{
    if (memory == NULL)
        return;
    const uint64_t here = (uint64_t)(uintptr_t)memory->of[memory->rank].here;
    for (int32_t i = 0; i < memory->size; i++)
        shifts[i] = (ptrdiff_t)(memory->of[i].there - here);
}

/* A root's send alone is read; that of other ranks may be anything. A copy is of bytes. */
static struct tri_pull job_of(const struct tri_nccl_pull *pull, const struct tri_call *call)
{
    const enum tri_pull_kind kind = kind_of(call);
    const bool copies = tri_pull_copies(kind);
    return (struct tri_pull){.n = 1,
                             .size = pull->size,
                             .blocks = pull->blocks,
                             .kind = kind,
                             .root = call->peer,
                             .count = call->count * (copies ? trib_dtype_size(call->dtype) : 1),
                             .dtype = copies ? TRIB_U8 : call->dtype,
                             .op = call->op,
                             .way = call->variant == TRIB_VARIANT_ONE_SHOT ? TRI_PULL_ONE_SHOT
                                                                           : TRI_PULL_TWO_SHOT};
}

static bool sends(const struct tri_call *call, int32_t rank)
{
    return call->kind != TRI_BROADCAST || call->peer == rank;
}

trib_status tri_nccl_pull_launch(const struct tri_nccl_pull *pull, int32_t rank,
                                 enum tri_nccl_lane lane, const struct tri_call *call,
                                 const struct tri_nccl_pull_reached *reached, uint32_t *abort_flag,
                                 uint64_t patience_ns)
{
    const struct tri_pull_rank here = {.send = sends(call, rank) ? call->send : call->recv,
                                       .recv = call->recv,
                                       .mapped = reached->unmapped == NULL,
                                       .rank = rank,
                                       .list = call->packing};
    const size_t lane_bytes =
        (pull->memory[0].bytes - (size_t)TRI_NCCL_LANES * TRI_NCCL_PULL_CONTROL) / TRI_NCCL_LANES;
    struct tri_pull job = job_of(pull, call);
    job.here = &here;
    job.scratch_bytes = lane_bytes;
    job.abort_flag = abort_flag;
    job.patience_ns = patience_ns;
    set_shifts(tri_pull_is_two_shot(&job) ? job.recv_shift : job.send_shift, reached->memory);
    for (int32_t i = 0; i < pull->size; i++) {
        char *memory =
            (char *)(uintptr_t)pull->memory[i].address; /* NOLINT: as the driver has it */
        job.control[i] =
            (struct tri_pull_control *)(void *)(memory + (size_t)lane * TRI_NCCL_PULL_CONTROL);
        job.scratch[i] =
            memory + (size_t)TRI_NCCL_LANES * TRI_NCCL_PULL_CONTROL + (size_t)lane * lane_bytes;
    }
    return tri_kernels_cuda.pull(&job, call->stream);
}

/* Do the devices of all ranks map it? */
static bool is_mapped(const struct tri_nccl_pull *pull, const struct tri_symmetric *memory,
                      const void *data, size_t bytes)
{
    return memory != NULL ||
           (pull->here == pull->size && tri_nccl_peers_map(data, bytes, pull->devices, pull->size));
}

/* Of two shots peers write recv, of other calls they read send. */
static struct tri_nccl_pull_reached reached_of(const struct tri_nccl_pull *pull,
                                               const struct tri_call *call)
{
    const struct tri_pull job = job_of(pull, call);
    const bool writes = tri_pull_is_two_shot(&job);
    const void *const data = writes ? call->recv : call->send;
    const size_t bytes = tri_pull_sent(&job) * trib_dtype_size(job.dtype);
    struct tri_nccl_pull_reached found = {.unmapped = NULL};
    if (!sends(call, call->transport->rank))
        return found;
    found.memory = tri_symmetric_find(call->transport->symmetric, data, bytes);
    if (!is_mapped(pull, found.memory, data, bytes))
        found.unmapped = writes ? "recv" : "send";
    return found;
}

/* An alltoall in place sends from core's copy, which only the devices of this process map. */
const char *tri_nccl_pull_stages(const struct tri_call *call)
{
    const struct tri_nccl_pull *pull = call->transport->push->pull;
    if (call->kind == TRI_ALLTOALL && call->send == call->recv)
        return pull->here == pull->size ? NULL : "send";
    return reached_of(pull, call).unmapped;
}

/* Without patience, as push. */
trib_status tri_nccl_pull_call(const struct tri_call *call)
{
    struct tri_transport *transport = call->transport;
    const enum tri_nccl_lane lane =
        transport->order.begun.capture == 0 ? TRI_NCCL_RUNS : TRI_NCCL_CAPTURED;
    const struct tri_nccl_pull *pull = transport->push->pull;
    const struct tri_nccl_pull_reached reached = reached_of(pull, call);
    transport->staged += reached.unmapped != NULL;
    if (tri_nccl_pull_launch(pull, transport->rank, lane, call, &reached,
                             transport->local->abort_flag, 0) == TRIB_OK)
        return TRIB_OK;
    return tri_nccl_cuda_fail(cudaErrorLaunchFailure, tri_nccl_kind_name(call->kind),
                              transport->device);
}

uint64_t tri_nccl_pull_staged(const struct tri_transport *transport)
{
    return transport->staged;
}
