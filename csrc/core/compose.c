/* Collectives composed of sends and receives, and a barrier composed of an allreduce; and an alltoall that a
 * backend has natively. */
#include "csrc/core/compose.h"

#include "csrc/base/types.h"
#include "csrc/core/batch.h"

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

trib_status tri_compose_alltoallv(struct trib_comm *comm, const struct tri_alltoallv *args)
{
    const size_t element = trib_dtype_size(args->dtype);
    /* Every rank begins with its next neighbour, so that not all of them send to rank 0 first. */
    for (int32_t step = args->self ? 0 : 1; step < comm->size; step++) {
        const int32_t to = (comm->rank + step) % comm->size;
        const int32_t from = (comm->rank - step + comm->size) % comm->size;
        const size_t sent = count_of(&args->sends, to), received = count_of(&args->recvs, from);
        /* The offset of an empty block means nothing, and no check has looked at it. */
        if (sent != 0)
            TRI_TRY(record_send(comm,
                                (const char *)args->send + offset_of(&args->sends, to) * element,
                                sent, args->dtype, to, args->stream));
        if (received != 0)
            TRI_TRY(record_recv(comm, (char *)args->recv + offset_of(&args->recvs, from) * element,
                                received, args->dtype, from, args->stream));
    }
    return TRIB_OK;
}

trib_status tri_compose_alltoall(struct trib_comm *comm, const struct tri_call *call)
{
    const bool in_place = call->send == call->recv;
    struct tri_call native = *call;
    if (in_place && comm->size > 1) /* what arrives overwrites what is still to be sent */
        TRI_TRY(tri_batch_stage(comm, &native.send, call->send,
                                (size_t)comm->size * call->count * trib_dtype_size(call->dtype)));
    native.kind = TRI_ALLTOALL;
    if ((comm->backend->native & 1u << TRI_ALLTOALL) != 0)
        return tri_batch_record(comm, &native);
    const struct tri_alltoallv args = {.send = native.send,
                                       .recv = call->recv,
                                       .sends = {.count = call->count},
                                       .recvs = {.count = call->count},
                                       .dtype = call->dtype,
                                       .stream = call->stream,
                                       .self = !in_place};
    return tri_compose_alltoallv(comm, &args);
}

trib_status tri_compose_gather(struct trib_comm *comm, const struct tri_call *call)
{
    const size_t block = call->count * trib_dtype_size(call->dtype);
    const bool is_root = comm->rank == call->peer;
    const bool in_place =
        is_root && (const char *)call->send == (char *)call->recv + (size_t)comm->rank * block;
    if (!in_place)
        TRI_TRY(record_send(comm, call->send, call->count, call->dtype, call->peer, call->stream));
    for (int32_t i = 0; is_root && i < comm->size; i++)
        if (i != comm->rank || !in_place)
            TRI_TRY(record_recv(comm, (char *)call->recv + (size_t)i * block, call->count,
                                call->dtype, i, call->stream));
    return TRIB_OK;
}

trib_status tri_compose_scatter(struct trib_comm *comm, const struct tri_call *call)
{
    const size_t block = call->count * trib_dtype_size(call->dtype);
    const bool is_root = comm->rank == call->peer;
    const bool in_place =
        is_root && (char *)call->recv == (const char *)call->send + (size_t)comm->rank * block;
    if (!in_place)
        TRI_TRY(record_recv(comm, call->recv, call->count, call->dtype, call->peer, call->stream));
    for (int32_t i = 0; is_root && i < comm->size; i++)
        if (i != comm->rank || !in_place)
            TRI_TRY(record_send(comm, (const char *)call->send + (size_t)i * block, call->count,
                                call->dtype, i, call->stream));
    return TRIB_OK;
}

trib_status tri_compose_barrier(struct trib_comm *comm, trib_stream stream)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    void *word = ops->word == NULL ? NULL : ops->word(comm->transport);
    if (word == NULL)
        TRI_TRY(tri_batch_scratch(comm, &word, sizeof(uint32_t)));
    const struct tri_call call = {.kind = TRI_ALLREDUCE,
                                  .send = word,
                                  .recv = word,
                                  .count = 1,
                                  .dtype = TRIB_U32,
                                  .op = TRIB_SUM,
                                  .stream = stream};
    return tri_batch_record(comm, &call);
}
