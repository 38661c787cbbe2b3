/* One row: its buffers, its check, its times.
 *
 * Every row is checked once, element by element, before it is timed. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "benches/element.h"
#include "benches/sweep.h"

/* Buffers of one row, per rank. */
struct buffers {
    struct bench_call call[BENCH_MAX_RANKS];
    void *large[BENCH_MAX_RANKS], *small[BENCH_MAX_RANKS];
};

static void run_ours(const struct bench *bench, int rank, void *argument)
{
    const struct bench_call *calls = ((struct buffers *)argument)->call;
    const struct bench_collective *c = calls[0].collective;
    if (rank == BENCH_ALL)
        BENCH_OK(c->run_group(bench->group, calls, bench->stream));
    else
        BENCH_OK(c->run(bench->comm[rank], &calls[rank], bench->stream[rank]));
}

static void run_peer(const struct bench *bench, int rank, void *argument)
{
    bench->peer->run(bench, rank, ((struct buffers *)argument)->call);
}

static void make_buffers(const struct bench *bench, struct buffers *buffers, const struct row *row,
                         int root)
{
    const struct bench_collective *c = row->collective;
    const size_t size = trib_dtype_size(row->dtype);
    for (int rank = 0; rank < bench->ranks; rank++) {
        const size_t send = c->send_elements(row->count, bench->ranks) * size;
        const size_t recv = c->recv_elements(row->count, bench->ranks) * size;
        char *large = bench_alloc(bench, rank, send > recv ? send : recv);
        char *small = row->in_place ? large + c->in_place_offset(row->count, rank) * size
                                    : bench_alloc(bench, rank, send > recv ? recv : send);
        buffers->large[rank] = large;
        buffers->small[rank] = row->in_place ? NULL : small;
        buffers->call[rank] = (struct bench_call){.collective = c,
                                                  .count = row->count,
                                                  .dtype = row->dtype,
                                                  .op = row->op,
                                                  .root = root,
                                                  .send = send > recv ? large : small,
                                                  .recv = send > recv ? small : large};
    }
}

static void drop_buffers(const struct bench *bench, struct buffers *buffers)
{
    for (int rank = 0; rank < bench->ranks; rank++) {
        bench_free(bench, rank, buffers->large[rank]);
        bench_free(bench, rank, buffers->small[rank]);
    }
}

/* Poison recv, fill send, in host memory first. */
static void fill(const struct bench *bench, struct buffers *buffers, int rank, void *host)
{
    const struct bench_call *call = &buffers->call[rank];
    const size_t size = trib_dtype_size(call->dtype);
    const size_t recv = call->collective->recv_elements(call->count, bench->ranks);
    const size_t send = call->collective->send_elements(call->count, bench->ranks);
    memset(host, 0x5a, recv * size);
    bench_copy(bench, rank, call->recv, host, recv * size);
    for (size_t i = 0; i < send; i++)
        bench_encode(host, i, bench_input(call, rank, i), call->dtype);
    bench_copy(bench, rank, call->send, host, send * size);
}

static size_t count_wrong(const struct bench *bench, const struct bench_call *call, int rank,
                          void *host)
{
    const size_t recv = call->collective->recv_elements(call->count, bench->ranks);
    const double slack = call->op == TRIB_AVG && call->dtype <= TRIB_F64 ? 1.0 / 64 : 0;
    size_t wrong = 0;
    bench_copy(bench, rank, host, call->recv, recv * trib_dtype_size(call->dtype));
    for (size_t i = 0; i < recv; i++) {
        double expected;
        uint64_t wrapped = 0;
        if (!call->collective->expected(&expected, call, rank, bench->ranks, i))
            return 0;
        if (slack == 0) { /* what the type makes of it */
            bench_encode(&wrapped, 0, expected, call->dtype);
            expected = bench_decode(&wrapped, 0, call->dtype);
        }
        wrong += !(fabs(bench_decode(host, i, call->dtype) - expected) <= slack);
    }
    return wrong;
}

static size_t check_row(const struct bench *bench, struct buffers *buffers, const struct row *row)
{
    size_t wrong = 0;
    void *host = bench_must(malloc(row->bytes));
    for (int rank = 0; rank < bench->ranks; rank++)
        fill(bench, buffers, rank, host);
    (void)bench_time(bench, run_ours, buffers, 0, 1);
    for (int rank = 0; rank < bench->ranks; rank++)
        wrong += count_wrong(bench, &buffers->call[rank], rank, host);
    free(host);
    return wrong;
}

/* The two take turns, so that neither has the warmer machine. */
void sweep_measure(const struct bench *bench, struct row *row, const struct options *options)
{
    struct buffers buffers;
    make_buffers(bench, &buffers, row, options->root);
    row->wrong = options->check ? check_row(bench, &buffers, row) : 0;
    (void)bench_time(bench, run_peer, &buffers, options->warmup, 1);
    row->ours = bench_time(bench, run_ours, &buffers, options->warmup, options->iterations);
    row->peer = bench_time(bench, run_peer, &buffers, options->warmup, options->iterations);
    drop_buffers(bench, &buffers);
}
