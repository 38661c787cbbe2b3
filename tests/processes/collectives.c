/* The collectives: piece by piece, each rank puts its data and what call it makes on its seat,
 * waits until all have, and computes its own result from all seats, in rank order. */
#include <string.h>

#include "csrc/base/status.h"
#include "tests/processes/symmetric.h"
#include "tests/processes/transport.h"

/* A piece of every rank's data: `bytes` from `at` on. */
struct piece {
    const struct tri_call *call;
    const struct seat *seats;
    int which; /* 0 or 1, of what the seats have twice */
    size_t at, bytes;
};

static void describe(struct place_call *out, const struct tri_call *call, size_t bytes)
{
    const bool reduces = call->kind == TRI_ALLREDUCE || call->kind == TRI_REDUCE;
    const bool rooted = call->kind == TRI_BROADCAST || call->kind == TRI_REDUCE;
    *out = (struct place_call){.kind = call->kind,
                               .dtype = (int32_t)call->dtype,
                               .op = reduces ? (int32_t)call->op : 0,
                               .peer = rooted ? call->peer : 0,
                               .scaled = call->scaled,
                               .bytes = bytes};
    if (call->scaled)
        (void)tri_backend_host.kernels->scale(&out->factor, NULL, 1, call->dtype, &call->factor,
                                              NULL);
}

static bool same_call(const struct place_call *a, const struct place_call *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->peer == b->peer &&
           a->scaled == b->scaled && a->bytes == b->bytes;
}

/* Have all ranks posted the piece, in the same call? Ranks in different calls never see that. */
static bool all_posted(void *context)
{
    const struct tri_transport *self = context;
    const struct seat *seats = self->place->seats;
    const int which = (int)(self->pieces % 2);
    for (int32_t rank = 0; rank < self->size; rank++)
        if (atomic_load(&seats[rank].pieces) < self->pieces ||
            !same_call(&seats[rank].calls[which], &seats[self->rank].calls[which]))
            return false;
    return true;
}

/* ---------------------------------------------------------------------- the result of one piece */

static void *at(const struct piece *piece, size_t block)
{
    return (unsigned char *)piece->call->recv + block + piece->at;
}

static trib_status reduce(const struct piece *piece)
{
    const struct tri_call *call = piece->call;
    const size_t n = (size_t)call->transport->size, element = trib_dtype_size(call->dtype);
    const void *src[PLACE_RANKS];
    _Alignas(double) unsigned char factors[PLACE_RANKS * sizeof(double)];
    void *dst = at(piece, 0);
    for (size_t rank = 0; rank < n; rank++) {
        src[rank] = piece->seats[rank].data[piece->which];
        memcpy(factors + rank * element, &piece->seats[rank].calls[piece->which].factor, element);
    }
    const struct tri_reduction reduction = {.src = src,
                                            .n = n,
                                            .dtype = call->dtype,
                                            .op = call->op,
                                            .factors = call->scaled ? factors : NULL};
    return tri_backend_host.kernels->reduce(&dst, 1, &reduction, piece->bytes / element, NULL);
}

static void copy(const struct piece *piece, size_t block, int32_t rank)
{
    memcpy(at(piece, block), piece->seats[rank].data[piece->which], piece->bytes);
}

static trib_status take(const struct piece *piece, size_t all)
{
    const struct tri_call *call = piece->call;
    const struct tri_transport *self = call->transport;
    if (piece->bytes == 0)
        return TRIB_OK;
    if (call->kind == TRI_ALLREDUCE || (call->kind == TRI_REDUCE && call->peer == self->rank))
        return reduce(piece);
    if (call->kind == TRI_BROADCAST)
        copy(piece, 0, call->peer);
    for (int32_t rank = 0; call->kind == TRI_ALLGATHER && rank < self->size; rank++)
        copy(piece, (size_t)rank * all, rank);
    return TRIB_OK;
}

/* ------------------------------------------------------------------------------------- one call */

static trib_status share(struct piece *piece, size_t all)
{
    struct tri_transport *self = piece->call->transport;
    struct seat *seat = &self->place->seats[self->rank];
    const unsigned char *own = piece->call->send;
    const bool sends = piece->call->kind != TRI_BROADCAST || piece->call->peer == self->rank;
    self->pieces++;
    piece->which = (int)(self->pieces % 2);
    piece->bytes = all - piece->at < PLACE_PIECE ? all - piece->at : PLACE_PIECE;
    describe(&seat->calls[piece->which], piece->call, all);
    if (sends && piece->bytes != 0)
        memcpy(seat->data[piece->which], own + piece->at, piece->bytes);
    atomic_store(&seat->pieces, self->pieces);
    return processes_wait(self, all_posted, self);
}

/* A collective in which every rank sends `count` elements. */
static trib_status run_pieces(const struct tri_call *call)
{
    struct piece piece = {.call = call, .seats = call->transport->place->seats};
    const size_t all = call->kind == TRI_BARRIER ? 0 : call->count * trib_dtype_size(call->dtype);
    do {
        TRI_TRY(share(&piece, all));
        TRI_TRY(take(&piece, all));
        piece.at += piece.bytes;
    } while (piece.at < all);
    return TRIB_OK;
}

/* A reduce to each rank in turn. */
static trib_status reduce_scatter(const struct tri_call *call)
{
    struct tri_call block = *call;
    const size_t bytes = call->count * trib_dtype_size(call->dtype);
    block.kind = TRI_REDUCE;
    for (block.peer = 0; block.peer < call->transport->size; block.peer++) {
        block.send = (const unsigned char *)call->send + (size_t)block.peer * bytes;
        TRI_TRY(run_pieces(&block));
    }
    return TRIB_OK;
}

static trib_status run(const struct tri_call *call)
{
    if (call->kind == TRI_SEND || call->kind == TRI_RECV)
        return TRIB_OK;
    symmetric_note(call);
    return call->kind == TRI_REDUCE_SCATTER ? reduce_scatter(call) : run_pieces(call);
}

/* The calls of one transport. What fails but by an abort ends the communicator, here. */
trib_status processes_collective(const struct tri_call *calls, size_t n)
{
    if (n == 0)
        return TRIB_OK;
    const struct tri_transport *self = calls[0].transport;
    trib_status status = tri_abort_status(self->state);
    if (status == TRIB_OK)
        status = processes_p2p(calls, n);
    for (size_t i = 0; i < n && status == TRIB_OK; i++)
        status = run(&calls[i]);
    if (status != TRIB_OK)
        (void)tri_abort_raise(self->state, status, tri_detail());
    return status;
}
