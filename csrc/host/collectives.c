/* The collectives.
 *
 * Each rank posts its call and waits at a barrier. Then every rank can check that all ranks made
 * the same call, and knows all buffers. It continues in one of two ways:
 *  - staged: the post of a small call contains its data. Each rank computes from the posted copies
 *    into its own buffer: one barrier, and no rank accesses another rank's buffers. Posts are
 *    double-buffered: a rank can be one collective ahead of another that still reads, and the
 *    barrier keeps it from being two ahead.
 *  - direct: ranks divide the work, read and write each other's buffers, and end with a second
 *    barrier. A reduction has one chunk for each rank, which reduces that chunk of all sources, in
 *    rank order, into every rank's result. It takes no scratch memory, works in place, and gives
 *    all ranks the same bits. */
#include <string.h>

#include "csrc/base/status.h"
#include "csrc/base/types.h"
#include "csrc/host/barrier.h"
#include "csrc/host/collectives.h"
#include "csrc/host/describe.h"
#include "csrc/host/local.h"
#include "csrc/host/ops.h"
#include "csrc/host/p2p.h"
#include "kernels/cpu/kernels_cpu.h"

/* One rank's view of one collective. */
struct collective {
    struct tri_transport *self;
    const struct tri_call *call;
    int buffer; /* 0 or 1: of the double-buffered posts */
    bool staged;
    size_t element;                      /* bytes of one element */
    size_t bytes;                        /* of `count` elements */
    const void *src[TRI_HOST_MAX_RANKS]; /* each rank's data */
    /* If the call is scaled: each rank's factor, `element` bytes each. */
    _Alignas(double) unsigned char factors[TRI_HOST_MAX_RANKS * sizeof(double)];
};

static const struct tri_call *posted(const struct collective *coll, int32_t rank)
{
    return &coll->self->local->ranks[rank].posted[coll->buffer];
}

static void *at(void *data, size_t bytes)
{
    return (unsigned char *)data + bytes;
}

static const void *at_const(const void *data, size_t bytes)
{
    return (const unsigned char *)data + bytes;
}

/* ------------------------------------------------------------------------------------ matching */

static bool reduces(enum tri_kind kind)
{
    return kind == TRI_ALLREDUCE || kind == TRI_REDUCE || kind == TRI_REDUCE_SCATTER;
}

static bool has_root(enum tri_kind kind)
{
    return kind == TRI_BROADCAST || kind == TRI_REDUCE;
}

bool tri_host_same_call(const struct tri_call *a, const struct tri_call *b)
{
    if (a->kind != b->kind)
        return false;
    return a->kind == TRI_BARRIER ||
           (a->count == b->count && a->dtype == b->dtype && a->scaled == b->scaled &&
            (!reduces(a->kind) || a->op == b->op) && (!has_root(a->kind) || a->peer == b->peer));
}

trib_status tri_host_check_match(const struct tri_transport *self, int buffer)
{
    const struct tri_transport *first = &self->local->ranks[0];
    for (int32_t rank = 1; rank < self->local->size; rank++) {
        const struct tri_transport *other = &self->local->ranks[rank];
        const bool lists[] = {first->list[buffer] != NULL, other->list[buffer] != NULL};
        if (tri_host_same_call(&first->posted[buffer], &other->posted[buffer]) &&
            lists[0] == lists[1])
            continue;
        return tri_fail(TRIB_ERR_MISMATCH,
                        "the ranks did not make the same call: rank 0 made %s%s, rank %d made %s%s",
                        lists[0] ? "a list, " : "", tri_describe(&first->posted[buffer]).text,
                        (int)rank, lists[1] ? "a list, " : "",
                        tri_describe(&other->posted[buffer]).text);
    }
    return TRIB_OK;
}

/* The bytes that every rank receives; 0 where only one does. */
static size_t received_bytes(const struct collective *coll)
{
    switch (coll->call->kind) {
    case TRI_ALLREDUCE:
    case TRI_BROADCAST:
    case TRI_REDUCE_SCATTER:
        return coll->bytes;
    case TRI_ALLGATHER:
        return coll->bytes * (size_t)coll->self->local->size;
    default:
        return 0;
    }
}

/* No other rank receives where this one does. The calls match. */
static trib_status check_apart(const struct collective *coll)
{
    const size_t bytes = received_bytes(coll);
    const int32_t self = coll->self->rank;
    const uintptr_t mine = (uintptr_t)coll->call->recv;
    for (int32_t rank = 0; rank < coll->self->local->size; rank++) {
        const uintptr_t other = (uintptr_t)posted(coll, rank)->recv;
        if (rank == self || (mine < other ? other - mine : mine - other) >= bytes)
            continue;
        return tri_fail(TRIB_ERR_INVALID_BUFFER,
                        "%s: ranks %d and %d receive into the same memory, at %p and %p; give each "
                        "rank a buffer of its own",
                        tri_describe(coll->call).text, (int)(self < rank ? self : rank),
                        (int)(self < rank ? rank : self), (void *)(self < rank ? mine : other),
                        (void *)(self < rank ? other : mine));
    }
    return TRIB_OK;
}

/* ----------------------------------------------------------------------------------- execution */

/* Reduce `count` elements, from element `from` of each source on, into each `dst` from element `to`
 * on. Loads the abort flag once per piece. */
static trib_status reduce(const struct collective *coll, void *const *dst, int32_t ndst, size_t to,
                          size_t from, size_t count)
{
    const struct tri_host_local *local = coll->self->local;
    const struct tri_call *call = coll->call;
    const size_t step = TRI_PIECE_BYTES / coll->element;
    void *piece_dst[TRI_HOST_MAX_RANKS];
    const void *piece_src[TRI_HOST_MAX_RANKS];
    const struct tri_reduction reduction = {.src = piece_src,
                                            .n = (size_t)local->size,
                                            .dtype = call->dtype,
                                            .op = call->op,
                                            .factors = call->scaled ? coll->factors : NULL};
    trib_status status = TRIB_OK;
    for (size_t i = 0; i < count && status == TRIB_OK; i += step) {
        const size_t left = count - i;
        if (!tri_host_local_live(local))
            return TRIB_ERR_ABORTED;
        for (int32_t rank = 0; rank < ndst; rank++)
            piece_dst[rank] = at(dst[rank], (to + i) * coll->element);
        for (int32_t rank = 0; rank < local->size; rank++)
            /* NOLINTNEXTLINE(clang-analyzer-core.*): set above, a source per rank */
            piece_src[rank] = at_const(coll->src[rank], (from + i) * coll->element);
        status = tri_kernels_cpu.reduce(piece_dst, (size_t)ndst, &reduction,
                                        left < step ? left : step, NULL);
    }
    return status;
}

size_t tri_host_chunk(const struct tri_transport *self, size_t count, size_t element,
                      size_t *out_count)
{
    const size_t size = (size_t)self->local->size;
    const size_t line = TRI_CACHE_LINE / element;
    const size_t each = ((count + size - 1) / size + line - 1) / line * line;
    const size_t begin = (size_t)self->rank * each;
    *out_count = begin >= count ? 0 : count - begin < each ? count - begin : each;
    return begin >= count ? 0 : begin;
}

static size_t my_chunk(const struct collective *coll, size_t *out_count)
{
    return tri_host_chunk(coll->self, coll->call->count, coll->element, out_count);
}

static trib_status do_allreduce(const struct collective *coll)
{
    const int32_t size = coll->self->local->size;
    void *dst[TRI_HOST_MAX_RANKS];
    if (coll->staged)
        return reduce(coll, &coll->call->recv, 1, 0, 0, coll->call->count);
    for (int32_t rank = 0; rank < size; rank++)
        dst[rank] = posted(coll, rank)->recv;
    size_t count;
    const size_t begin = my_chunk(coll, &count);
    return reduce(coll, dst, size, begin, begin, count);
}

static trib_status do_reduce(const struct collective *coll)
{
    const int32_t root = coll->call->peer;
    void *dst = posted(coll, root)->recv;
    if (coll->staged)
        return root == coll->self->rank ? reduce(coll, &dst, 1, 0, 0, coll->call->count) : TRIB_OK;
    size_t count;
    const size_t begin = my_chunk(coll, &count);
    return reduce(coll, &dst, 1, begin, begin, count);
}

static trib_status do_reduce_scatter(const struct collective *coll)
{
    const size_t count = coll->call->count;
    return reduce(coll, &coll->call->recv, 1, 0, (size_t)coll->self->rank * count, count);
}

static trib_status do_broadcast(const struct collective *coll)
{
    const struct tri_call *call = coll->call;
    return tri_host_local_copy(coll->self->local, call->recv, coll->src[call->peer], coll->bytes)
               ? TRIB_OK
               : TRIB_ERR_ABORTED;
}

/* Each rank starts with its own block, so that the ranks read from different ranks at a time. */
static trib_status do_allgather(const struct collective *coll)
{
    const struct tri_host_local *local = coll->self->local;
    for (int32_t i = 0; i < local->size; i++) {
        const int32_t rank = (coll->self->rank + i) % local->size;
        if (!tri_host_local_copy(local, at(coll->call->recv, (size_t)rank * coll->bytes),
                                 coll->src[rank], coll->bytes))
            return TRIB_ERR_ABORTED;
    }
    return TRIB_OK;
}

static trib_status do_collective(const struct collective *coll)
{
    switch (coll->call->kind) {
    case TRI_ALLREDUCE:
        return do_allreduce(coll);
    case TRI_BROADCAST:
        return do_broadcast(coll);
    case TRI_REDUCE:
        return do_reduce(coll);
    case TRI_ALLGATHER:
        return do_allgather(coll);
    case TRI_REDUCE_SCATTER:
        return do_reduce_scatter(coll);
    default: /* TRI_BARRIER */
        return TRIB_OK;
    }
}

/* ------------------------------------------------------------------------------------- protocol */

/* The bytes that this rank sends; equal on all ranks if their calls match. */
static size_t sent_bytes(const struct tri_call *call, size_t size)
{
    const size_t bytes = call->count * trib_dtype_size(call->dtype);
    if (call->kind == TRI_BARRIER)
        return 0;
    return call->kind == TRI_REDUCE_SCATTER ? bytes * size : bytes;
}

int tri_host_post(struct tri_transport *self, const struct tri_call *call,
                  const struct tri_host_list *list)
{
    const int buffer = (int)(self->collectives++ % 2);
    self->posted[buffer] = *call;
    self->list[buffer] = list;
    return buffer;
}

static void post(struct collective *coll)
{
    struct tri_transport *self = coll->self;
    const struct tri_call *call = coll->call;
    const size_t bytes = sent_bytes(call, (size_t)self->local->size);
    coll->buffer = tri_host_post(self, call, NULL);
    coll->staged = bytes <= TRI_STAGE_BYTES;
    if (call->scaled) /* read the factor now that the stream has reached the call */
        (void)tri_kernels_cpu.scale(&self->factor[coll->buffer], NULL, 1, call->dtype,
                                    &call->factor, NULL);
    if (coll->staged && bytes != 0 && (call->kind != TRI_BROADCAST || call->peer == self->rank))
        memcpy(self->staged[coll->buffer], call->send, bytes);
}

static void collect_sources(struct collective *coll)
{
    for (int32_t rank = 0; rank < coll->self->local->size; rank++) {
        const struct tri_transport *other = &coll->self->local->ranks[rank];
        coll->src[rank] = coll->staged ? other->staged[coll->buffer] : posted(coll, rank)->send;
        if (coll->call->scaled)
            memcpy(coll->factors + (size_t)rank * coll->element, &other->factor[coll->buffer],
                   coll->element);
    }
}

/* Execute on the buffers of all ranks, and wait for all ranks. */
static trib_status execute_direct(const struct collective *coll)
{
    struct tri_transport *self = coll->self;
    if (!tri_host_local_access_begin(self))
        return tri_host_local_finish_abort(self);
    const trib_status status = do_collective(coll);
    tri_host_local_access_end(self);
    if (!tri_host_local_live(self->local))
        return tri_host_local_finish_abort(self);
    if (status != TRIB_OK)
        return tri_host_local_fail(self, status);
    return tri_host_barrier(self, coll->call, TRI_AT_END) ? TRIB_OK
                                                          : tri_host_local_finish_abort(self);
}

static trib_status run_collective(struct tri_transport *self, const struct tri_call *call)
{
    struct collective coll;
    coll.self = self;
    coll.call = call;
    coll.element = trib_dtype_size(call->dtype);
    coll.bytes = call->count * coll.element;
    post(&coll);
    if (!tri_host_barrier(self, call, TRI_AT_START))
        return tri_host_local_finish_abort(self);
    trib_status status = tri_host_check_match(self, coll.buffer);
    if (status == TRIB_OK)
        status = check_apart(&coll);
    if (status != TRIB_OK)
        return tri_host_local_fail(self, status);
    collect_sources(&coll);
    if (!coll.staged)
        return execute_direct(&coll);
    status = do_collective(&coll);
    return status == TRIB_OK ? TRIB_OK : tri_host_local_fail(self, status);
}

trib_status tri_host_collective(const struct tri_call *calls, size_t n)
{
    if (n == 0)
        return TRIB_OK;
    struct tri_transport *self = calls[0].transport;
    if (!tri_host_local_live(self->local))
        return tri_abort_status(self->local->abort);
    self->last = calls[n - 1];
    TRI_TRY(tri_host_p2p(self, calls, n));
    for (size_t i = 0; i < n; i++)
        if (calls[i].kind != TRI_SEND && calls[i].kind != TRI_RECV)
            TRI_TRY(run_collective(self, &calls[i]));
    return TRIB_OK;
}
