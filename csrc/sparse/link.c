/* The exchange of entries between the ranks of a sparse allreduce.
 *
 * All of this happens inside a run: on a stream-ordered backend while the call is in flight, on a
 * host-executed backend on the stream. So calls go straight to the backend.
 *
 * Volume. A collective counts as its plainest bandwidth-optimal algorithm: an allgather and an
 * allreduce as rings, a broadcast as a chain from the root on. So all ranks together send as much
 * as they receive, and the figures do not depend on the backend. */
#include "csrc/sparse/link.h"

#include "csrc/base/types.h"

/* Rounded only here, message by message, so that sender and receiver count the same. */
static uint64_t words_of(uint64_t payload)
{
    enum { WORD = 4 };
    return (payload + WORD - 1) / WORD;
}

/* `n` messages of `bytes` bytes each, of which `payload` are entries. */
static void count_sent(struct tri_run *run, uint64_t n, uint64_t bytes, uint64_t payload)
{
    run->volume.bytes_sent += n * bytes;
    run->volume.words_sent += n * words_of(payload);
}

static void count_received(struct tri_run *run, uint64_t n, uint64_t bytes, uint64_t payload)
{
    run->volume.bytes_received += n * bytes;
    run->volume.words_received += n * words_of(payload);
}

static bool alone(const struct tri_run *run)
{
    return run->params->size == 1;
}

static struct tri_call call_of(const struct tri_run *run, enum tri_kind kind, const void *send,
                               void *recv, size_t count, trib_dtype dtype)
{
    return (struct tri_call){.kind = kind,
                             .transport = run->transport,
                             .send = send,
                             .recv = recv,
                             .count = count,
                             .dtype = dtype,
                             .op = TRIB_SUM,
                             .stream = run->stream};
}

static trib_status call_backend(struct tri_run *run, const struct tri_call *call)
{
    if (!run->group.open)
        return run->backend->transport->collective(call, 1);
    if (run->group.n == TRI_RUN_GROUP)
        return tri_fail(TRIB_ERR_INTERNAL,
                        "more than %d collectives in one group of a sparse allreduce",
                        (int)TRI_RUN_GROUP);
    run->group.calls[run->group.n++] = *call;
    return TRIB_OK;
}

void tri_link_begin(struct tri_run *run)
{
    run->group.open = true;
    run->group.n = 0;
}

trib_status tri_link_end(struct tri_run *run)
{
    run->group.open = false;
    return run->group.n == 0 ? TRIB_OK
                             : run->backend->transport->collective(run->group.calls, run->group.n);
}

/* A message of each rank to all others. */
static void count_all(struct tri_run *run, uint64_t bytes, uint64_t payload)
{
    const uint64_t others = (uint64_t)run->params->size - 1;
    count_sent(run, others, bytes, payload);
    count_received(run, others, bytes, payload);
}

static trib_status allgather(struct tri_run *run, const void *send, void *recv, size_t bytes)
{
    if (alone(run))
        return tri_run_put(run, recv, send, bytes);
    const struct tri_call call = call_of(run, TRI_ALLGATHER, send, recv, bytes, TRIB_U8);
    return call_backend(run, &call);
}

trib_status tri_link_allgather(struct tri_run *run, const void *send, void *recv, size_t bytes,
                               size_t payload)
{
    if (bytes == 0)
        return TRIB_OK;
    count_all(run, bytes, payload);
    return allgather(run, send, recv, bytes);
}

trib_status tri_link_packet_headers(struct tri_run *run, const void *packet,
                                    struct tri_header *headers, size_t bytes, size_t payload)
{
    count_all(run, bytes, payload);
    return allgather(run, packet, headers, sizeof *headers);
}

trib_status tri_link_broadcast(struct tri_run *run, void *data, size_t bytes, size_t payload,
                               int32_t root)
{
    const int32_t size = run->params->size, last = (root + size - 1) % size;
    if (bytes == 0 || alone(run))
        return TRIB_OK;
    if (run->params->rank != last)
        count_sent(run, 1, bytes, payload);
    if (run->params->rank != root)
        count_received(run, 1, bytes, payload);
    struct tri_call call = call_of(run, TRI_BROADCAST, data, data, bytes, TRIB_U8);
    call.peer = root;
    return call_backend(run, &call);
}

/* Elements that this rank sends in a ring: all but its own part, twice. */
static uint64_t ring(const struct tri_sparse_params *params, uint64_t count)
{
    const uint64_t rank = (uint64_t)params->rank, size = (uint64_t)params->size;
    return 2 * (count - (count * (rank + 1) / size - count * rank / size));
}

trib_status tri_link_allreduce_to(struct tri_run *run, const void *send, void *recv, size_t count,
                                  trib_dtype dtype, bool payload)
{
    const size_t element = trib_dtype_size(dtype);
    if (count == 0)
        return TRIB_OK;
    if (alone(run))
        return tri_run_put(run, recv, send, count * element);
    const uint64_t bytes = ring(run->params, count) * element;
    count_sent(run, 1, bytes, payload ? bytes : 0);
    count_received(run, 1, bytes, payload ? bytes : 0);
    const struct tri_call call = call_of(run, TRI_ALLREDUCE, send, recv, count, dtype);
    return call_backend(run, &call);
}

trib_status tri_link_allreduce(struct tri_run *run, void *data, size_t count, trib_dtype dtype,
                               bool payload)
{
    return tri_link_allreduce_to(run, data, data, count, dtype, payload);
}

/* The ranks of a host may have a communicator of their own, with its own in-flight count. */
trib_status tri_link_reduce_scatter_inside(struct tri_run *run, const void *send, void *recv,
                                           size_t count, trib_dtype dtype)
{
    const struct tri_transport_ops *ops = run->backend->transport;
    struct tri_call call = call_of(run, TRI_REDUCE_SCATTER, send, recv, count, dtype);
    struct trib_abort *state = ops->abort_state(run->inside);
    if (count == 0)
        return TRIB_OK;
    const uint64_t others = (uint64_t)ops->size(run->inside) - 1;
    const uint64_t bytes = count * trib_dtype_size(dtype);
    count_sent(run, others, bytes, bytes);
    count_received(run, others, bytes, bytes);
    call.transport = run->inside;
    if (!tri_abort_register(state)) {
        tri_abort_await_told(state); /* the whole has stopped by then, and names who is lost */
        return tri_abort_status(state);
    }
    const trib_status status = ops->collective(&call, 1);
    tri_abort_unregister(state);
    return status;
}

trib_status tri_link_headers(struct tri_run *run, struct tri_header *headers)
{
    return tri_link_allgather(run, run->scalars.header, headers, sizeof *headers, 0);
}

/* ------------------------------------------------------------------------------------ messages */

static bool empty(const struct tri_message *message)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.*): set above, a message per rank */
    return message->peer < 0 || message->bytes == 0;
}

/* The next message from messages[i] on with this rank itself; n: none. */
static size_t to_self(const struct tri_run *run, const struct tri_message *messages, size_t n,
                      size_t i)
{
    while (i < n && (empty(&messages[i]) || messages[i].peer != run->params->rank))
        i++;
    return i;
}

static trib_status copy_to_self(struct tri_run *run, const struct tri_message *sends, size_t nsends,
                                const struct tri_message *receives, size_t nreceives)
{
    size_t send = to_self(run, sends, nsends, 0);
    size_t receive = to_self(run, receives, nreceives, 0);
    trib_status status = TRIB_OK;
    while (send < nsends && receive < nreceives && status == TRIB_OK) {
        status = tri_run_put(run, receives[receive].data, sends[send].data, sends[send].bytes);
        send = to_self(run, sends, nsends, send + 1);
        receive = to_self(run, receives, nreceives, receive + 1);
    }
    return status;
}

/* Append the messages to other ranks, or from them. False: too many. */
static bool append(struct tri_run *run, enum tri_kind kind, const struct tri_message *messages,
                   size_t n, struct tri_call *calls, size_t *used)
{
    for (size_t i = 0; i < n; i++) {
        const struct tri_message *message = &messages[i];
        if (empty(message) || message->peer == run->params->rank)
            continue;
        if (*used == TRI_LINK_CALLS)
            return false;
        if (kind == TRI_SEND)
            count_sent(run, 1, message->bytes, message->payload);
        else
            count_received(run, 1, message->bytes, message->payload);
        calls[*used] = call_of(run, kind, message->data, message->data, message->bytes, TRIB_U8);
        calls[(*used)++].peer = message->peer;
    }
    return true;
}

trib_status tri_link_exchange(struct tri_run *run, const struct tri_message *sends, size_t nsends,
                              const struct tri_message *receives, size_t nreceives)
{
    struct tri_call calls[TRI_LINK_CALLS];
    size_t used = 0;
    TRI_TRY(copy_to_self(run, sends, nsends, receives, nreceives));
    if (!append(run, TRI_SEND, sends, nsends, calls, &used) ||
        !append(run, TRI_RECV, receives, nreceives, calls, &used))
        return tri_fail(TRIB_ERR_INTERNAL,
                        "more than %d messages in one exchange of a sparse allreduce",
                        (int)TRI_LINK_CALLS);
    return used == 0 ? TRIB_OK : run->backend->transport->collective(calls, used);
}

/* Indices and values of one part, to or from `peer`. */
static void add_part(struct tri_message *messages, int32_t peer, const struct tri_entries *part)
{
    const size_t index = part->capacity * sizeof *part->index;
    const size_t value = part->capacity * trib_dtype_size(part->dtype);
    messages[0] =
        (struct tri_message){.peer = peer, .data = part->index, .bytes = index, .payload = index};
    messages[1] =
        (struct tri_message){.peer = peer, .data = part->value, .bytes = value, .payload = value};
}

trib_status tri_link_allgather_entries(struct tri_run *run, const struct tri_entries *send,
                                       const uint32_t *counts, const struct tri_entries *out)
{
    struct tri_message sends[2 * TRI_MAX_LISTS], receives[2 * TRI_MAX_LISTS];
    const int32_t size = run->params->size;
    const struct tri_entries own = tri_entries_part(send, 0, counts[run->params->rank]);
    uint64_t total = 0;
    for (int32_t rank = 0; rank < size; rank++) {
        const struct tri_entries part = tri_entries_part(out, total, counts[rank]);
        add_part(&sends[2 * rank], rank, &own);
        add_part(&receives[2 * rank], rank, &part);
        total += counts[rank];
    }
    if (total > out->capacity && out->capacity != UINT32_MAX)
        return tri_fail(TRIB_ERR_INTERNAL, "%llu entries exceed the capacity of %u",
                        (unsigned long long)total, out->capacity);
    const uint32_t count = (uint32_t)total; /* nothing reads it where it is too large */
    TRI_TRY(tri_link_exchange(run, sends, 2 * (size_t)size, receives, 2 * (size_t)size));
    return out->count == NULL ? TRIB_OK : tri_run_put(run, out->count, &count, sizeof count);
}
