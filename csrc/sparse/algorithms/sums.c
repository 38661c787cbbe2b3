/* The sum of a host's acc, each rank's on its shard. */
#include "csrc/sparse/algorithms/sums.h"

#include "csrc/sparse/link.h"

enum { SHARD_ALIGN = 4 };

/* -------------------------------------------------------------------------------- shards, memory */

static size_t shard_begin(const struct tri_sparse_params *params, int32_t ranks, int32_t index)
{
    const size_t part = params->count / (size_t)ranks;
    return index == ranks ? params->count : (size_t)index * (part - part % SHARD_ALIGN);
}

struct tri_shard tri_shard_of(const struct tri_sparse_params *params, int32_t ranks, int32_t index)
{
    const size_t first = shard_begin(params, ranks, index);
    return (struct tri_shard){first, shard_begin(params, ranks, index + 1) - first};
}

/* What of mate i's shard comes to it by messages: what a reduce_scatter of equal shards leaves, or all. */
static struct tri_shard brought(const struct tri_sparse_params *params, int32_t ranks,
                                int32_t index)
{
    const struct tri_shard shard = tri_shard_of(params, ranks, index);
    const size_t scattered = params->inside ? shard_begin(params, ranks, 1) : 0;
    return (struct tri_shard){shard.first + scattered, shard.length - scattered};
}

static bool adds_up(const struct tri_sums *sums)
{
    return sums->routes->mates > 1;
}

void tri_sums_lay_out(struct tri_sums *sums, struct tri_arena *arena,
                      const struct tri_sparse_params *params, const struct tri_routes *routes)
{
    const size_t element = trib_dtype_size(params->acc), ranks = (size_t)routes->mates;
    const int32_t own = routes->index[params->rank];
    *sums = (struct tri_sums){.routes = routes,
                              .shard = tri_shard_of(params, routes->mates, own),
                              .brought = brought(params, routes->mates, own)};
    if (!adds_up(sums))
        return;
    if (sums->brought.length > 0)
        sums->parts = tri_arena_take(arena, (ranks + 1) * sums->brought.length * element);
    if (params->inside) {
        sums->whole = tri_arena_take(arena, sizeof *sums->whole);
        sums->outcome = tri_arena_take(arena, sizeof *sums->outcome);
    }
    if (params->inside && params->in_place)
        sums->scattered = tri_arena_take(arena, (sums->shard.first + sums->shard.length) * element);
}

/* ------------------------------------------------------------------------------------ the sums */

static size_t element(const struct tri_run *run)
{
    return trib_dtype_size(run->params->acc);
}

/* acc, whose place is known: undo_swap, or in place. */
static char *acc_at(const struct tri_run *run, size_t first)
{
    char *acc = run->acc.buffer[run->params->in_place ? 0 : 1];
    return acc + first * element(run);
}

/* Mate i's part of what messages bring, and the spare one; NULL: none come. */
static char *slot_at(const struct tri_run *run, const struct tri_sums *sums, int32_t i)
{
    const size_t bytes = sums->brought.length * element(run);
    return bytes == 0 ? NULL : sums->parts + (size_t)i * bytes;
}

static int32_t own_index(const struct tri_run *run, const struct tri_sums *sums)
{
    return sums->routes->index[run->params->rank];
}

/* Where the sums of the whole tensor would be. Of parts the own one has at least as much memory before
 * it, because no shard before it is longer. */
static char *whole(const struct tri_run *run, const struct tri_sums *sums)
{
    if (run->params->inside)
        return run->params->in_place ? sums->scattered : acc_at(run, 0);
    if (sums->parts == NULL) /* the shard is empty */
        return NULL;
    return slot_at(run, sums, own_index(run, sums)) - sums->shard.first * element(run);
}

static char *sums_at(const struct tri_run *run, const struct tri_sums *sums, size_t first)
{
    return first == 0 ? whole(run, sums) : whole(run, sums) + first * element(run);
}

static trib_status exchange_parts(struct tri_run *run, const struct tri_sums *sums)
{
    const struct tri_routes *routes = sums->routes;
    struct tri_message sends[TRI_MAX_LISTS], receives[TRI_MAX_LISTS];
    size_t n = 0;
    for (int32_t i = 0; i < routes->mates; i++) {
        const int32_t mate = routes->mate[i];
        if (mate == run->params->rank)
            continue;
        const struct tri_shard to = brought(run->params, routes->mates, i);
        const size_t sent = to.length * element(run);
        const size_t received = sums->brought.length * element(run);
        sends[n] = (struct tri_message){mate, acc_at(run, to.first), sent, sent};
        receives[n++] = (struct tri_message){mate, slot_at(run, sums, i), received, received};
    }
    return tri_link_exchange(run, sends, n, receives, n);
}

/* Mate i's part of what messages bring. */
static char *part(const struct tri_run *run, const struct tri_sums *sums, int32_t i)
{
    return i == own_index(run, sums) ? acc_at(run, sums->brought.first) : slot_at(run, sums, i);
}

/* `to` = the sum so far + mate i's part. */
static trib_status add_part(struct tri_run *run, const struct tri_sums *sums, char *sum, int32_t i,
                            char *to)
{
    const struct tri_accumulator next = {.buffer = {sum, to},
                                         .current = run->scalars.zero,
                                         .gradient = part(run, sums, i),
                                         .gradient_dtype = run->params->acc,
                                         .dtype = run->params->acc,
                                         .decay = 1,
                                         .count = sums->brought.length};
    return run->kernels->accumulate(&next, (struct tri_signing){0}, run->stream);
}

/* In rank order, from the spare part to the own one and back, so that the last is the own one. */
static trib_status add_up(struct tri_run *run, const struct tri_sums *sums)
{
    const int32_t mates = sums->routes->mates, own = own_index(run, sums);
    char *sum = part(run, sums, 0);
    for (int32_t i = 1; i < mates; i++) {
        char *to = slot_at(run, sums, (mates - 1 - i) % 2 == 0 ? own : mates);
        TRI_TRY(add_part(run, sums, sum, i, to));
        sum = to;
    }
    return TRIB_OK;
}

/* All shards are equal but for what messages have brought to the last one. */
static trib_status scatter_sums(struct tri_run *run, const struct tri_sums *sums)
{
    const size_t each = sums->shard.length - sums->brought.length;
    TRI_TRY(tri_link_reduce_scatter_inside(
        run, acc_at(run, 0), sums_at(run, sums, sums->shard.first), each, run->params->acc));
    if (sums->brought.length == 0)
        return TRIB_OK;
    return tri_run_put(run, sums_at(run, sums, sums->brought.first),
                       slot_at(run, sums, own_index(run, sums)),
                       sums->brought.length * element(run));
}

trib_status tri_sums_make(struct tri_run *run, const struct tri_sums *sums,
                          struct tri_header *header)
{
    if (!adds_up(sums))
        return tri_run_accumulate(run, header);
    if (!run->params->in_place)
        TRI_TRY(tri_run_undo_swap(run));
    TRI_TRY(tri_run_accumulate(run, header));
    TRI_TRY(exchange_parts(run, sums));
    if (sums->brought.length > 0)
        TRI_TRY(add_up(run, sums));
    return run->params->inside ? scatter_sums(run, sums) : TRIB_OK;
}

/* Its abort flag was set before anything ended it, so whatever follows on the stream finds it set. */
trib_status tri_sums_vouch(struct tri_run *run, const struct tri_sums *sums,
                           struct tri_header *header)
{
    if (!adds_up(sums) || !run->params->inside)
        return TRIB_OK;
    const struct tri_decide ended = {.abort_flag = run->backend->transport->abort_flag(run->inside),
                                     .decision = sums->whole,
                                     .outcome = sums->outcome};
    const struct tri_clearing signature = {.dense = &header->signature,
                                           .bytes = sizeof header->signature};
    TRI_TRY(run->kernels->decide(&ended, run->stream));
    return run->kernels->clear_result(&signature, sums->whole, run->stream);
}

struct tri_accumulator tri_sums_acc(const struct tri_run *run, const struct tri_sums *sums)
{
    if (!adds_up(sums))
        return run->acc;
    return (struct tri_accumulator){.buffer = {sums_at(run, sums, 0)},
                                    .dtype = run->params->acc,
                                    .decay = 1,
                                    .count = run->params->count};
}

/* ------------------------------------------------------------------------------- the residual */

static trib_status clear_acc(struct tri_run *run, size_t first, size_t end)
{
    const struct tri_clearing range = {.dense = acc_at(run, first),
                                       .bytes = (end - first) * element(run)};
    return first == end ? TRIB_OK
                        : run->kernels->clear_result(&range, run->scalars.zero, run->stream);
}

trib_status tri_sums_keep(struct tri_run *run, const struct tri_sums *sums)
{
    const struct tri_shard own = sums->shard;
    if (!adds_up(sums) || run->params->in_place)
        return TRIB_OK;
    TRI_TRY(clear_acc(run, 0, own.first));
    TRI_TRY(clear_acc(run, own.first + own.length, run->params->count));
    if (run->params->inside) /* they are there */
        return TRIB_OK;
    return tri_run_put(run, acc_at(run, own.first), sums_at(run, sums, own.first),
                       own.length * element(run));
}

trib_status tri_sums_move(struct tri_run *run, const struct tri_sums *sums)
{
    const struct tri_shard own = sums->shard;
    if (!adds_up(sums) || !run->params->in_place)
        return TRIB_OK;
    const struct tri_accumulator shard_of_acc = {
        .buffer = {acc_at(run, own.first), sums_at(run, sums, own.first)},
        .current = run->scalars.decision,
        .dtype = run->params->acc,
        .count = own.length};
    TRI_TRY(run->kernels->decay(&run->acc, 0, run->scalars.decision, run->stream));
    return run->kernels->residual(&shard_of_acc, shard_of_acc.buffer[0], run->stream);
}
