/* Bursts of calls, eager or as graphs, of several sides in turn. */
#define _POSIX_C_SOURCE 200809L
#include "benches/burst.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "benches/graph.h"
#include "benches/processes.h"

/* One timing. What is of a rank belongs to the thread that drives it. */
struct bursts {
    const struct bench *bench;
    const struct bench_burst *burst;
    const bench_body *bodies;
    int sides;
    void *argument;
    trib_event begin[BENCH_MAX_RANKS], end[BENCH_MAX_RANKS];
    void *graphs[BENCH_SIDES][BENCH_MAX_RANKS];
    double *us[BENCH_SIDES][BENCH_MAX_RANKS];  /* a call, of each burst */
    double host[BENCH_SIDES][BENCH_MAX_RANKS]; /* a call, mean; at the first rank of a thread */
};

const char *bench_way_name(enum bench_way way)
{
    static const char *const names[] = {"each", "eager", "graph"};
    return names[way];
}

void bench_need_graphs(const struct bench *bench)
{
    if (bench->graphs != NULL)
        return;
    bench_refuse("--graph: no graph captures streams of %s; those of nccl CUDA graphs do",
                 bench->backend);
}

static void open_bursts(struct bursts *b)
{
    for (int rank = b->bench->first; rank < b->bench->end; rank++) {
        BENCH_OK(trib_event_create(&b->begin[rank], b->bench->device[rank]));
        BENCH_OK(trib_event_create(&b->end[rank], b->bench->device[rank]));
        for (int side = 0; side < b->sides; side++)
            b->us[side][rank] = bench_must(calloc((size_t)b->burst->iterations, sizeof(double)));
    }
}

static void close_bursts(struct bursts *b)
{
    for (int rank = b->bench->first; rank < b->bench->end; rank++) {
        BENCH_OK(trib_event_destroy(b->bench->device[rank], b->begin[rank]));
        BENCH_OK(trib_event_destroy(b->bench->device[rank], b->end[rank]));
        for (int side = 0; side < b->sides; side++)
            free(b->us[side][rank]);
    }
}

/* ---- one thread, which drives `rank`, or all */

static void record(const struct bursts *b, int driven, const trib_event *events)
{
    for (int rank = bench_first(driven); rank < bench_end(b->bench, driven); rank++)
        BENCH_OK(trib_event_record(b->bench->device[rank], events[rank], b->bench->stream[rank]));
}

static void queue_burst(const struct bursts *b, int rank, int side)
{
    if (b->burst->way == BENCH_GRAPH)
        b->bench->graphs->launch(b->bench, rank, b->graphs[side][rank]);
    for (int i = 0; b->burst->way != BENCH_GRAPH && i < b->burst->calls; i++)
        b->bodies[side](b->bench, rank, b->argument);
}

/* Burst `i`, below 0 one of the warm-up. */
static void time_burst(struct bursts *b, int driven, int side, int i)
{
    bench_meet(b->bench);
    record(b, driven, b->begin);
    const double start = bench_now_us();
    queue_burst(b, driven, side);
    const double host = (bench_now_us() - start) / b->burst->calls;
    record(b, driven, b->end);
    bench_wait(b->bench, driven);
    if (i < 0)
        return;
    b->host[side][bench_first(driven)] += host / b->burst->iterations;
    for (int rank = bench_first(driven); rank < bench_end(b->bench, driven); rank++) {
        float ms = 0;
        BENCH_OK(trib_event_elapsed(&ms, b->bench->device[rank], b->begin[rank], b->end[rank]));
        b->us[side][rank][i] = (double)ms * 1e3 / b->burst->calls;
    }
}

/* No rank goes on before all have captured: instantiating may load kernels, for which CUDA may wait
 * until a device is idle. */
static void capture(struct bursts *b, int rank, int side)
{
    b->bodies[side](b->bench, rank, b->argument);
    bench_wait(b->bench, rank);
    b->graphs[side][rank] =
        b->bench->graphs->capture(b->bench, rank, b->bodies[side], b->argument, b->burst->calls);
    bench_meet(b->bench);
}

static void drive(const struct bench *bench, int rank, void *argument)
{
    struct bursts *b = argument;
    for (int side = 0; b->burst->way == BENCH_GRAPH && side < b->sides; side++)
        capture(b, rank, side);
    for (int i = -b->burst->warmup; i < b->burst->iterations; i++)
        for (int turn = 0; turn < b->sides; turn++)
            time_burst(b, rank, i % 2 == 0 ? turn : b->sides - 1 - turn, i);
    for (int side = 0; b->burst->way == BENCH_GRAPH && side < b->sides; side++)
        bench->graphs->drop(b->graphs[side][rank]);
}

/* ---- all */

static struct bench_result result_of(struct bursts *b, int side)
{
    const struct bench *bench = b->bench;
    const size_t n = (size_t)b->burst->iterations;
    struct bench_result result = {.host = 0};
    double *slowest = b->us[side][bench->first];
    for (int rank = bench->first; rank < bench->end; rank++) {
        result.host = fmax(result.host, b->host[side][rank]);
        for (size_t i = 0; i < n; i++)
            slowest[i] = fmax(slowest[i], b->us[side][rank][i]);
    }
    bench_most(bench, &result.host, 1);
    bench_most(bench, slowest, n);
    result.device = bench_stats(slowest, n);
    return result;
}

void bench_time_bursts(const struct bench *bench, const struct bench_burst *burst,
                       const bench_body *bodies, int n, void *argument,
                       struct bench_result *results)
{
    struct bursts b = {
        .bench = bench, .burst = burst, .bodies = bodies, .sides = n, .argument = argument};
    open_bursts(&b);
    bench_on_threads(bench, drive, &b);
    for (int side = 0; side < n; side++)
        results[side] = result_of(&b, side);
    close_bursts(&b);
}
