/* The collectives, done by all ranks together.
 *
 * Each rank posts its call and waits for the others; then everyone can see whether all made the
 * same call, and where all buffers are. Two ways from there:
 *  - staged: a call that sends little carries its data along with the post. Each rank then works
 *    from the posted copies into its own buffer, and is done: one barrier, and no rank ever touches
 *    another's buffers. Posts are two in turn: a rank can be one round ahead of another that still
 *    reads, and not more, because of the barrier in between.
 *  - direct: ranks share the work, reading and writing each other's buffers, and a second barrier
 *    says that all are done. A reduction is cut in as many chunks as there are ranks; each rank
 *    reduces one chunk of all sources, in rank order, into every rank's result. That takes no
 *    scratch memory, works in place, and gives the same bits everywhere. */
#include <string.h>

#include "csrc/base/status.h"
#include "csrc/base/types.h"
#include "csrc/host/describe.h"
#include "csrc/host/host.h"
#include "csrc/host/local.h"
#include "csrc/host/p2p.h"
#include "kernels/cpu/kernels_cpu.h"

/* One collective, as one rank sees it once all have posted. */
struct round {
    struct tri_transport *self;
    const struct tri_call *call;
    int buffer; /* of the double-buffered post */
    bool staged;
    size_t element;
    size_t bytes;                         /* of `count` elements */
    const void *src[TRI_HOST_MAX_RANKS]; /* every rank's data */
    /* If the call is scaled: every rank's factor, `element` bytes each. */
    _Alignas(double) unsigned char factors[TRI_HOST_MAX_RANKS * sizeof(double)];
};

static const struct tri_call *posted(const struct round *round, int32_t rank)
{
    return &round->self->local->ranks[rank].posted[round->buffer];
}

static void *at(void *data, size_t bytes)
{
    return (unsigned char *)data + bytes;
}

static const void *at_const(const void *data, size_t bytes)
{
    return (const unsigned char *)data + bytes;
}

/* ------------------------------------------------------------------------------ the same call? */

static bool reduces(enum tri_kind kind)
{
    return kind == TRI_ALLREDUCE || kind == TRI_REDUCE || kind == TRI_REDUCE_SCATTER;
}

static bool has_root(enum tri_kind kind)
{
    return kind == TRI_BROADCAST || kind == TRI_REDUCE;
}

static bool same_call(const struct tri_call *a, const struct tri_call *b)
{
    if (a->kind != b->kind)
        return false;
    return a->kind == TRI_BARRIER ||
           (a->count == b->count && a->dtype == b->dtype &&
            a->scaled == b->scaled && (!reduces(a->kind) || a->op == b->op) &&
            (!has_root(a->kind) || a->peer == b->peer));
}

static trib_status check_same(const struct round *round)
{
    for (int32_t rank = 1; rank < round->self->local->size; rank++) {
        if (same_call(posted(round, 0), posted(round, rank)))
            continue;
        return tri_fail(TRIB_ERR_MISMATCH,
                        "the ranks did not make the same call: rank 0 made %s, rank %d made %s",
                        tri_describe(posted(round, 0)).text, (int)rank,
                        tri_describe(posted(round, rank)).text);
    }
    return TRIB_OK;
}

/* ------------------------------------------------------------------------------------- the work */

/* Reduce `count` elements, from element `from` of every source on, into element `to` of every
 * `dst`. Looks at the abort word now and then. */
static trib_status reduce(const struct round *round, void *const *dst, int32_t ndst, size_t to,
                          size_t from, size_t count)
{
    const struct tri_host_local *local = round->self->local;
    const struct tri_call *call = round->call;
    const size_t step = TRI_PIECE_BYTES / round->element;
    void *piece_dst[TRI_HOST_MAX_RANKS];
    const void *piece_src[TRI_HOST_MAX_RANKS];
    trib_status status = TRIB_OK;
    for (size_t i = 0; i < count && status == TRIB_OK; i += step) {
        const size_t left = count - i;
        if (!tri_host_local_live(local))
            return TRIB_ERR_ABORTED;
        for (int32_t rank = 0; rank < ndst; rank++)
            piece_dst[rank] = at(dst[rank], (to + i) * round->element);
        for (int32_t rank = 0; rank < local->size; rank++)
            piece_src[rank] = at_const(round->src[rank], (from + i) * round->element);
        status = tri_kernels_cpu.reduce(piece_dst, (size_t)ndst, piece_src, (size_t)local->size,
                                        left < step ? left : step, call->dtype, call->op,
                                        call->scaled ? round->factors : NULL, NULL);
    }
    return status;
}

/* This rank's chunk of `count` elements; chunks begin at whole lines. */
static size_t chunk(const struct round *round, size_t *out_count)
{
    const size_t size = (size_t)round->self->local->size;
    const size_t line = TRI_CACHE_LINE / round->element;
    const size_t count = round->call->count;
    const size_t each = ((count + size - 1) / size + line - 1) / line * line;
    const size_t begin = (size_t)round->self->rank * each;
    *out_count = begin >= count ? 0 : count - begin < each ? count - begin : each;
    return begin >= count ? 0 : begin;
}

static trib_status do_allreduce(const struct round *round)
{
    const int32_t size = round->self->local->size;
    void *dst[TRI_HOST_MAX_RANKS];
    if (round->staged)
        return reduce(round, &round->call->recv, 1, 0, 0, round->call->count);
    for (int32_t rank = 0; rank < size; rank++)
        dst[rank] = posted(round, rank)->recv;
    size_t count;
    const size_t begin = chunk(round, &count);
    return reduce(round, dst, size, begin, begin, count);
}

static trib_status do_reduce(const struct round *round)
{
    const int32_t root = round->call->peer;
    void *dst = posted(round, root)->recv;
    if (round->staged)
        return root == round->self->rank ? reduce(round, &dst, 1, 0, 0, round->call->count)
                                         : TRIB_OK;
    size_t count;
    const size_t begin = chunk(round, &count);
    return reduce(round, &dst, 1, begin, begin, count);
}

static trib_status do_reduce_scatter(const struct round *round)
{
    const size_t count = round->call->count;
    return reduce(round, &round->call->recv, 1, 0, (size_t)round->self->rank * count, count);
}

static trib_status do_broadcast(const struct round *round)
{
    const struct tri_call *call = round->call;
    return tri_host_local_copy(round->self->local, call->recv, round->src[call->peer],
                               round->bytes)
               ? TRIB_OK
               : TRIB_ERR_ABORTED;
}

/* Each rank begins with its own block and goes round, so that they read from different ranks. */
static trib_status do_allgather(const struct round *round)
{
    const struct tri_host_local *local = round->self->local;
    for (int32_t i = 0; i < local->size; i++) {
        const int32_t rank = (round->self->rank + i) % local->size;
        if (!tri_host_local_copy(local, at(round->call->recv, (size_t)rank * round->bytes),
                                 round->src[rank], round->bytes))
            return TRIB_ERR_ABORTED;
    }
    return TRIB_OK;
}

static trib_status work(const struct round *round)
{
    switch (round->call->kind) {
    case TRI_ALLREDUCE:
        return do_allreduce(round);
    case TRI_BROADCAST:
        return do_broadcast(round);
    case TRI_REDUCE:
        return do_reduce(round);
    case TRI_ALLGATHER:
        return do_allgather(round);
    case TRI_REDUCE_SCATTER:
        return do_reduce_scatter(round);
    default: /* a barrier */
        return TRIB_OK;
    }
}

/* ------------------------------------------------------------------------------------ the round */

/* Bytes that this rank sends; at most a stage's worth is staged. The same on all ranks if the call
 * is. */
static size_t sent_bytes(const struct tri_call *call, size_t size)
{
    const size_t bytes = call->count * trib_dtype_size(call->dtype);
    if (call->kind == TRI_BARRIER)
        return 0;
    return call->kind == TRI_REDUCE_SCATTER ? bytes * size : bytes;
}

static void post(struct round *round)
{
    struct tri_transport *self = round->self;
    const struct tri_call *call = round->call;
    const size_t bytes = sent_bytes(call, (size_t)self->local->size);
    round->buffer = (int)(self->collectives++ % 2);
    round->staged = bytes <= TRI_STAGE_BYTES;
    self->posted[round->buffer] = *call;
    if (call->scaled) /* read now: this is when the stream has come to the call */
        (void)tri_kernels_cpu.scale(&self->factor[round->buffer], NULL, 1, call->dtype,
                                    &call->factor, NULL);
    if (round->staged && bytes != 0 && (call->kind != TRI_BROADCAST || call->peer == self->rank))
        memcpy(self->staged[round->buffer], call->send, bytes);
}

static void collect_sources(struct round *round)
{
    for (int32_t rank = 0; rank < round->self->local->size; rank++) {
        const struct tri_transport *other = &round->self->local->ranks[rank];
        round->src[rank] = round->staged ? other->staged[round->buffer] : posted(round, rank)->send;
        if (round->call->scaled)
            memcpy(round->factors + (size_t)rank * round->element, &other->factor[round->buffer],
                   round->element);
    }
}

/* Work on buffers of all ranks, and wait until all have. */
static trib_status work_directly(const struct round *round)
{
    struct tri_transport *self = round->self;
    if (!tri_host_local_access_begin(self))
        return tri_host_local_finish_abort(self);
    const trib_status status = work(round);
    tri_host_local_access_end(self);
    if (!tri_host_local_live(self->local))
        return tri_host_local_finish_abort(self);
    if (status != TRIB_OK)
        return tri_host_local_fail(self, status);
    return tri_host_local_barrier(self, round->call, TRI_AT_END)
               ? TRIB_OK
               : tri_host_local_finish_abort(self);
}

static trib_status meet(struct tri_transport *self, const struct tri_call *call)
{
    struct round round;
    round.self = self;
    round.call = call;
    round.element = trib_dtype_size(call->dtype);
    round.bytes = call->count * round.element;
    post(&round);
    if (!tri_host_local_barrier(self, call, TRI_AT_START))
        return tri_host_local_finish_abort(self);
    trib_status status = check_same(&round);
    if (status != TRIB_OK)
        return tri_host_local_fail(self, status);
    collect_sources(&round);
    if (!round.staged)
        return work_directly(&round);
    status = work(&round);
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
    trib_status status = tri_host_p2p(self, calls, n);
    for (size_t i = 0; i < n && status == TRIB_OK; i++)
        if (calls[i].kind != TRI_SEND && calls[i].kind != TRI_RECV)
            status = meet(self, &calls[i]);
    return status;
}
