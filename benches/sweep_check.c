/* The check of a row, element by element, by the threads that drive the ranks. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "benches/element.h"
#include "benches/graph.h"
#include "benches/processes.h"
#include "benches/sweep.h"

struct checking {
    struct sweep_buffers *buffers;
    void *graph[BENCH_MAX_RANKS];  /* NULL: the call is queued */
    double came[BENCH_MAX_RANKS];  /* when the rank came to the barrier, */
    double left[BENCH_MAX_RANKS];  /* and when it left, by the clock that all processes have */
    size_t wrong[BENCH_MAX_RANKS]; /* of each rank */
};

/* Host memory for either buffer of a call. */
static void *host_buffer(const struct bench_call *call, int ranks)
{
    const size_t send = call->collective->send_elements(call->count, ranks);
    const size_t recv = call->collective->recv_elements(call->count, ranks);
    return bench_must(malloc((send > recv ? send : recv) * trib_dtype_size(call->dtype)));
}

/* Poison recv, fill send. */
static void fill(const struct bench *bench, const struct bench_call *call, int rank)
{
    const size_t size = trib_dtype_size(call->dtype);
    const size_t recv = call->collective->recv_elements(call->count, bench->ranks);
    const size_t send = call->collective->send_elements(call->count, bench->ranks);
    void *host = host_buffer(call, bench->ranks);
    memset(host, 0x5a, recv * size);
    bench_copy(bench, rank, call->recv, host, recv * size);
    for (size_t i = 0; i < send; i++)
        bench_encode(host, i, bench_input(call, rank, i), call->dtype);
    bench_copy(bench, rank, call->send, host, send * size);
    free(host);
}

static size_t count_wrong(const struct bench *bench, const struct bench_call *call, int rank)
{
    const size_t recv = call->collective->recv_elements(call->count, bench->ranks);
    const double slack = call->op == TRIB_AVG && call->dtype <= TRIB_F64 ? 1.0 / 64 : 0;
    size_t wrong = 0;
    void *host = host_buffer(call, bench->ranks);
    bench_copy(bench, rank, host, call->recv, recv * trib_dtype_size(call->dtype));
    for (size_t i = 0; i < recv; i++) {
        double expected;
        uint64_t wrapped = 0;
        if (!call->collective->expected(&expected, call, rank, bench->ranks, i))
            break;        /* of no element */
        if (slack == 0) { /* what the type makes of it */
            bench_encode(&wrapped, 0, expected, call->dtype);
            expected = bench_decode(&wrapped, 0, call->dtype);
        }
        wrong += !(fabs(bench_decode(host, i, call->dtype) - expected) <= slack);
    }
    free(host);
    return wrong;
}

/* Ranks come to a barrier one by one, and the first leave it at once if it does not hold them. */
static void come_late(struct checking *c, int rank)
{
    const struct timespec late = {.tv_nsec = rank * 2000000L};
    (void)nanosleep(&late, NULL);
    c->came[rank] = bench_now_us();
}

static void prepare(const struct bench *bench, int driven, struct checking *c)
{
    const struct bench_call *calls = c->buffers->call;
    for (int rank = bench_first(driven); rank < bench_end(bench, driven); rank++)
        if (calls[rank].collective->kind == BENCH_BARRIER)
            come_late(c, rank);
        else
            fill(bench, &calls[rank], rank);
}

static void look(const struct bench *bench, int driven, struct checking *c)
{
    const struct bench_call *calls = c->buffers->call;
    for (int rank = bench_first(driven); rank < bench_end(bench, driven); rank++)
        if (calls[rank].collective->kind == BENCH_BARRIER)
            c->left[rank] = bench_now_us();
        else
            c->wrong[rank] = count_wrong(bench, &calls[rank], rank);
}

/* No rank may leave the barrier before the last has come. */
static void judge_barrier(const struct bench *bench, struct checking *c)
{
    double last = 0;
    for (int rank = bench->first; rank < bench->end; rank++)
        last = fmax(last, c->came[rank]);
    bench_most(bench, &last, 1);
    for (int rank = bench->first; rank < bench->end; rank++)
        c->wrong[rank] = c->left[rank] < last;
}

/* A graph of one call. */
static void capture(const struct bench *bench, int rank, void *argument)
{
    struct checking *c = argument;
    sweep_ours(bench, rank, c->buffers);
    bench_wait(bench, rank);
    c->graph[rank] = bench->graphs->capture(bench, rank, sweep_ours, c->buffers, 1);
}

static void check(const struct bench *bench, int rank, void *argument)
{
    struct checking *c = argument;
    prepare(bench, rank, c);
    if (c->graph[bench_first(rank)] != NULL)
        bench->graphs->launch(bench, rank, c->graph[rank]);
    else
        sweep_ours(bench, rank, c->buffers);
    bench_wait(bench, rank);
    look(bench, rank, c);
}

size_t sweep_check(const struct bench *bench, struct sweep_buffers *buffers, const struct row *row)
{
    struct checking c = {.buffers = buffers};
    size_t wrong = 0;
    if (row->way == BENCH_GRAPH)
        bench_on_threads(bench, capture, &c);
    bench_on_threads(bench, check, &c);
    if (row->collective->kind == BENCH_BARRIER)
        judge_barrier(bench, &c);
    for (int rank = bench->first; rank < bench->end; rank++) {
        wrong += c.wrong[rank];
        if (c.graph[rank] != NULL)
            bench->graphs->drop(c.graph[rank]);
    }
    return bench_sum(bench, wrong);
}
