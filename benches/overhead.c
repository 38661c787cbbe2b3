/* Overhead: microseconds of host time to queue one small allreduce, ours beside the peer's plain
 * call, in and out of place, with the checks on and off. The two take turns, a batch each, on the
 * same threads; a batch is small enough that no queue fills up, and the stream is drained after it,
 * outside the timing. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/arguments.h"
#include "benches/bench.h"
#include "benches/collective.h"

enum { COUNT = 256, BATCH = 64, ROUNDS = 200, WARMUP = 10 };

enum { OURS, PEER, SIDES };

struct overhead {
    const struct bench *bench;
    pthread_barrier_t barrier;
    struct bench_call call[BENCH_MAX_RANKS];
    double us[SIDES][BENCH_MAX_RANKS][ROUNDS]; /* a call, each the mean of a batch */
};

struct start {
    pthread_t thread;
    struct overhead *overhead;
    int rank;
};

static void queue_one(const struct overhead *o, int rank, int side)
{
    if (side == PEER)
        o->bench->peer->run(o->bench, rank, o->call);
    else
        BENCH_OK(trib_allreduce(o->bench->comm[rank], o->call[rank].send, o->call[rank].recv, COUNT,
                                TRIB_F32, TRIB_SUM, o->bench->stream[rank]));
}

/* Microseconds per call. */
static double time_batch(struct overhead *o, int rank, int side)
{
    pthread_barrier_wait(&o->barrier);
    const double begin = bench_now_us();
    for (int i = 0; i < BATCH; i++)
        queue_one(o, rank, side);
    const double us = (bench_now_us() - begin) / BATCH;
    BENCH_OK(trib_stream_wait(o->bench->device[rank], o->bench->stream[rank]));
    return us;
}

static void *rank_main(void *argument)
{
    const struct start *start = argument;
    for (int round = -WARMUP; round < ROUNDS; round++)
        for (int side = OURS; side < SIDES; side++) {
            const double us = time_batch(start->overhead, start->rank, side);
            if (round >= 0)
                start->overhead->us[side][start->rank][round] = us;
        }
    return NULL;
}

static void measure(struct overhead *o)
{
    struct start starts[BENCH_MAX_RANKS];
    const int ranks = o->bench->ranks;
    pthread_barrier_init(&o->barrier, NULL, (unsigned)ranks);
    for (int rank = 0; rank < ranks; rank++) {
        starts[rank] = (struct start){.overhead = o, .rank = rank};
        if (pthread_create(&starts[rank].thread, NULL, rank_main, &starts[rank]) != 0)
            exit(EXIT_FAILURE);
    }
    for (int rank = 0; rank < ranks; rank++)
        pthread_join(starts[rank].thread, NULL);
    pthread_barrier_destroy(&o->barrier);
}

/* Over the rounds, the slowest rank of each. */
static struct bench_stats stats_of(const struct overhead *o, int side)
{
    double slowest[ROUNDS] = {0};
    for (int rank = 0; rank < o->bench->ranks; rank++)
        for (int round = 0; round < ROUNDS; round++)
            if (o->us[side][rank][round] > slowest[round])
                slowest[round] = o->us[side][rank][round];
    return bench_stats(slowest, ROUNDS);
}

static void report(struct overhead *o, const char *what, bool in_place)
{
    for (int rank = 0; rank < o->bench->ranks; rank++)
        o->call[rank].recv = (char *)o->call[rank].send + (in_place ? 0 : COUNT * sizeof(float));
    measure(o);
    const struct bench_stats ours = stats_of(o, OURS), peer = stats_of(o, PEER);
    printf("%-10s %-12s %8.3f %8.3f %8.3f | %8.3f %8.3f %8.3f | %+8.3f %+7.1f %%\n", what,
           in_place ? "in place" : "out of place", ours.median, ours.min, ours.p99, peer.median,
           peer.min, peer.p99, ours.median - peer.median, 100 * (ours.median / peer.median - 1));
}

static void run(const char *backend, int ranks, const char *what, uint32_t flags, bool heading)
{
    static struct overhead o;
    struct bench bench;
    bench_open(&bench, backend, ranks, 0, flags);
    memset(&o, 0, sizeof o);
    o.bench = &bench;
    for (int rank = 0; rank < bench.ranks; rank++)
        o.call[rank] =
            (struct bench_call){.collective = bench_collective_find("allreduce"),
                                .count = COUNT,
                                .dtype = TRIB_F32,
                                .op = TRIB_SUM,
                                .send = bench_alloc(&bench, rank, 2 * COUNT * sizeof(float))};
    if (heading) {
        bench_print_setting(&bench);
        printf("%-10s %-12s %8s %8s %8s | %8s %8s %8s | %8s\n", "checks", "", "median", "min",
               "p99", bench.peer->name, "min", "p99", "extra");
    }
    report(&o, what, true);
    report(&o, what, false);
    for (int rank = 0; rank < bench.ranks; rank++)
        bench_free(&bench, rank, o.call[rank].send);
    bench_close(&bench);
}

int main(int argc, char **argv)
{
    bench_unnamed(argc, argv, 2, "[backend [ranks]]");
    const char *backend = argc > 1 ? argv[1] : NULL;
    const int ranks = argc > 2 ? bench_integer("ranks", argv[2], 1, BENCH_MAX_RANKS) : 0;
    run(backend, ranks, "on", 0, true);
    run(backend, ranks, "off", TRIB_UNCHECKED, false);
    return EXIT_SUCCESS;
}
