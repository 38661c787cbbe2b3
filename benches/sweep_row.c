/* One row: its buffers and its times. */
#include <string.h>

#include "benches/processes.h"
#include "benches/sweep.h"

void sweep_ours(const struct bench *bench, int rank, void *argument)
{
    const struct bench_call *calls = ((struct sweep_buffers *)argument)->call;
    const struct bench_collective *c = calls[bench_first(rank)].collective;
    if (rank == BENCH_ALL)
        BENCH_OK(c->run_group(bench->group, calls, bench->stream));
    else
        BENCH_OK(c->run(bench->comm[rank], &calls[rank], bench->stream[rank]));
}

void sweep_peer(const struct bench *bench, int rank, void *argument)
{
    bench->peer->run(bench, rank, ((struct sweep_buffers *)argument)->call);
}

/* By rank. */
static void alloc_all(const struct bench *bench, void **out, size_t bytes, const struct row *row)
{
    if (row->variant->symmetric) {
        bench_alloc_symmetric(bench, out, bytes);
        return;
    }
    for (int rank = bench->first; rank < bench->end; rank++)
        out[rank] = bench_alloc(bench, rank, bytes);
}

static void free_all(const struct bench *bench, void **data, const struct row *row)
{
    if (row->variant->symmetric) {
        bench_free_symmetric(bench, data);
        return;
    }
    for (int rank = bench->first; rank < bench->end; rank++)
        bench_free(bench, rank, data[rank]);
}

static void make_buffers(const struct bench *bench, struct sweep_buffers *buffers,
                         const struct row *row, int root)
{
    const struct bench_collective *c = row->collective;
    const bool is_nccl = strcmp(bench->backend, "nccl") == 0;
    const size_t size = trib_dtype_size(row->dtype);
    const size_t send = c->send_elements(row->count, bench->ranks) * size;
    const size_t recv = c->recv_elements(row->count, bench->ranks) * size;
    alloc_all(bench, buffers->large, send > recv ? send : recv, row);
    if (!row->in_place)
        alloc_all(bench, buffers->small, send > recv ? recv : send, row);
    for (int rank = bench->first; rank < bench->end; rank++) {
        char *large = buffers->large[rank];
        char *small = row->in_place ? large + c->in_place_offset(row->count, rank) * size
                                    : buffers->small[rank];
        buffers->call[rank] =
            (struct bench_call){.collective = c,
                                .count = row->count,
                                .dtype = row->dtype,
                                .op = row->op,
                                .root = root,
                                .variant = is_nccl ? row->variant->variant : TRIB_VARIANT_AUTO,
                                .send = send > recv ? large : small,
                                .recv = send > recv ? small : large};
    }
}

static void drop_buffers(const struct bench *bench, struct sweep_buffers *buffers,
                         const struct row *row)
{
    free_all(bench, buffers->large, row);
    if (!row->in_place)
        free_all(bench, buffers->small, row);
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

struct trial {
    const struct sweep_buffers *buffers;
    bool refused[BENCH_MAX_RANKS];
};

static void try_call(const struct bench *bench, int rank, void *argument)
{
    struct trial *trial = argument;
    const struct bench_call *call = &trial->buffers->call[rank];
    const trib_status status = call->collective->run(bench->comm[rank], call, bench->stream[rank]);
    trial->refused[rank] = status == TRIB_ERR_UNSUPPORTED;
    if (!trial->refused[rank])
        BENCH_OK(status);
    bench_wait(bench, rank);
}

/* If a variant of any buffers does not serve a call, all ranks refuse it before anything is queued. */
static bool is_served(const struct bench *bench, const struct row *row,
                      const struct sweep_buffers *buffers)
{
    struct trial trial = {.buffers = buffers};
    if (row->variant->variant == TRIB_VARIANT_AUTO || row->variant->symmetric)
        return true;
    if (!row->collective->varies)
        return false;
    bench_on_threads(bench, try_call, &trial);
    return bench_sum(bench, trial.refused[bench->first]) == 0;
}

bool sweep_measure(const struct bench *bench, struct row *row, const struct options *options)
{
    struct sweep_buffers buffers;
    make_buffers(bench, &buffers, row, options->root);
    const bool served = is_served(bench, row, &buffers);
    if (served) {
        row->wrong = options->check ? sweep_check(bench, &buffers, row) : 0;
        time_row(bench, row, options, &buffers);
    }
    drop_buffers(bench, &buffers, row);
    return served;
}
