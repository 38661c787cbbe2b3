/* One row: its buffers and its times. */
#include "benches/sweep.h"

void sweep_ours(const struct bench *bench, int rank, void *argument)
{
    const struct bench_call *calls = ((struct sweep_buffers *)argument)->call;
    const struct bench_collective *c = calls[0].collective;
    if (rank == BENCH_ALL)
        BENCH_OK(c->run_group(bench->group, calls, bench->stream));
    else
        BENCH_OK(c->run(bench->comm[rank], &calls[rank], bench->stream[rank]));
}

void sweep_peer(const struct bench *bench, int rank, void *argument)
{
    bench->peer->run(bench, rank, ((struct sweep_buffers *)argument)->call);
}

static void make_buffers(const struct bench *bench, struct sweep_buffers *buffers,
                         const struct row *row, int root)
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

static void drop_buffers(const struct bench *bench, struct sweep_buffers *buffers)
{
    for (int rank = 0; rank < bench->ranks; rank++) {
        bench_free(bench, rank, buffers->large[rank]);
        bench_free(bench, rank, buffers->small[rank]);
    }
}

/* The two take turns, so that neither has the warmer machine. */
static void time_row(const struct bench *bench, struct row *row, const struct options *options,
                     struct sweep_buffers *buffers)
{
    const bench_body bodies[] = {sweep_ours, sweep_peer};
    const struct bench_burst burst = {row->way, row->calls, options->warmup, options->iterations};
    struct bench_result results[2];
    (void)bench_time(bench, sweep_peer, buffers, options->warmup, 1);
    if (row->way == BENCH_EACH) {
        row->ours = bench_time(bench, sweep_ours, buffers, options->warmup, options->iterations);
        row->peer = bench_time(bench, sweep_peer, buffers, options->warmup, options->iterations);
        return;
    }
    bench_time_bursts(bench, &burst, bodies, 2, buffers, results);
    row->ours = results[0];
    row->peer = results[1];
}

void sweep_measure(const struct bench *bench, struct row *row, const struct options *options)
{
    struct sweep_buffers buffers;
    make_buffers(bench, &buffers, row, options->root);
    row->wrong = options->check ? sweep_check(bench, &buffers, row) : 0;
    time_row(bench, row, options, &buffers);
    drop_buffers(bench, &buffers);
}
