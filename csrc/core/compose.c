/* Collectives made of sends and receives, and a barrier made of an allreduce. */
#include "csrc/core/compose.h"

#include "csrc/base/types.h"
#include "csrc/core/batch.h"
#include "csrc/core/validate.h"

static trib_status record_send(struct trib_comm *comm, const void *data, size_t count,
                               trib_dtype dtype, int32_t peer, trib_stream stream)
{
    const struct tri_call call = {.kind = TRI_SEND,
                                  .send = data,
                                  .count = count,
                                  .dtype = dtype,
                                  .peer = peer,
                                  .stream = stream};
    return tri_batch_record(comm, &call);
}

static trib_status record_recv(struct trib_comm *comm, void *data, size_t count, trib_dtype dtype,
                               int32_t peer, trib_stream stream)
{
    const struct tri_call call = {.kind = TRI_RECV,
                                  .recv = data,
                                  .count = count,
                                  .dtype = dtype,
                                  .peer = peer,
                                  .stream = stream};
    return tri_batch_record(comm, &call);
}

static size_t count_of(const struct tri_blocks *blocks, int32_t i)
{
    return blocks->counts == NULL ? blocks->count : blocks->counts[i];
}

static size_t offset_of(const struct tri_blocks *blocks, int32_t i)
{
    return blocks->offsets == NULL ? blocks->count * (size_t)i : blocks->offsets[i];
}

trib_status tri_compose_exchange(struct trib_comm *comm, const void *send,
                                 const struct tri_blocks *sends, void *recv,
                                 const struct tri_blocks *recvs, trib_dtype dtype,
                                 trib_stream stream, bool self)
{
    const size_t element = trib_dtype_size(dtype);
    trib_status status = TRIB_OK;
    /* Every rank begins with its next neighbour, so that not all of them ask rank 0 first. */
    for (int32_t step = self ? 0 : 1; step < comm->size && status == TRIB_OK; step++) {
        const int32_t to = (comm->rank + step) % comm->size;
        const int32_t from = (comm->rank - step + comm->size) % comm->size;
        const size_t leaving = count_of(sends, to), coming = count_of(recvs, from);
        /* Of an empty block nothing else is looked at, nor was it checked. */
        if (leaving != 0)
            status = record_send(comm, (const char *)send + offset_of(sends, to) * element, leaving,
                                 dtype, to, stream);
        if (coming != 0 && status == TRIB_OK)
            status = record_recv(comm, (char *)recv + offset_of(recvs, from) * element, coming,
                                 dtype, from, stream);
    }
    return status;
}

trib_status tri_compose_alltoall(struct trib_comm *comm, const struct tri_call *call)
{
    const struct tri_blocks blocks = {.count = call->count};
    const bool in_place = call->send == call->recv;
    const void *send = call->send;
    trib_status status = TRIB_OK;
    if (in_place && comm->size > 1) /* what arrives lands on what has still to leave */
        status = tri_batch_stage(comm, &send, call->send,
                                 (size_t)comm->size * call->count * trib_dtype_size(call->dtype));
    return status != TRIB_OK ? status
                             : tri_compose_exchange(comm, send, &blocks, call->recv, &blocks,
                                                    call->dtype, call->stream, !in_place);
}

trib_status tri_compose_gather(struct trib_comm *comm, const struct tri_call *call)
{
    const size_t block = call->count * trib_dtype_size(call->dtype);
    const bool is_root = comm->rank == call->peer;
    const bool in_place =
        is_root && (const char *)call->send == (char *)call->recv + (size_t)comm->rank * block;
    trib_status status = TRIB_OK;
    if (!in_place)
        status = record_send(comm, call->send, call->count, call->dtype, call->peer, call->stream);
    for (int32_t i = 0; is_root && i < comm->size && status == TRIB_OK; i++)
        if (i != comm->rank || !in_place)
            status = record_recv(comm, (char *)call->recv + (size_t)i * block, call->count,
                                 call->dtype, i, call->stream);
    return status;
}

trib_status tri_compose_scatter(struct trib_comm *comm, const struct tri_call *call)
{
    const size_t block = call->count * trib_dtype_size(call->dtype);
    const bool is_root = comm->rank == call->peer;
    const bool in_place =
        is_root && (char *)call->recv == (const char *)call->send + (size_t)comm->rank * block;
    trib_status status = TRIB_OK;
    if (!in_place)
        status = record_recv(comm, call->recv, call->count, call->dtype, call->peer, call->stream);
    for (int32_t i = 0; is_root && i < comm->size && status == TRIB_OK; i++)
        if (i != comm->rank || !in_place)
            status = record_send(comm, (const char *)call->send + (size_t)i * block, call->count,
                                 call->dtype, i, call->stream);
    return status;
}

trib_status tri_compose_barrier(struct trib_comm *comm, trib_stream stream)
{
    trib_status status = tri_check_not_captured(comm, TRI_BARRIER, stream);
    if (status == TRIB_OK)
        status = tri_workspace_reserve(&comm->workspace, comm->backend->device, comm->device, 0);
    if (status != TRIB_OK)
        return status;
    uint32_t *word = &tri_workspace_words(&comm->workspace)->barrier;
    const struct tri_call call = {.kind = TRI_ALLREDUCE,
                                  .send = word,
                                  .recv = word,
                                  .count = 1,
                                  .dtype = TRIB_U32,
                                  .op = TRIB_SUM,
                                  .stream = stream};
    comm->batch.uses_workspace = true;
    return tri_batch_record(comm, &call);
}
