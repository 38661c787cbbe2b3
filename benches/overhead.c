/* Overhead: microseconds of host time to queue one small allreduce, ours beside the peer's plain
 * call, in and out of place, with the checks on and off. The two take turns, a batch each, on the
 * same threads, and take turns in being first; a batch is small enough that no queue fills up, and
 * the stream is drained after it, outside the timing. Then ours beside ours without recorder and
 * watchdog (TRIB_UNRECORDED). */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/arguments.h"
#include "benches/bench.h"
#include "benches/collective.h"

enum { COUNT = 256, BATCH = 64, ROUNDS_MIN = 16, ROUNDS = 1000, WARMUP = 10 };

enum { OURS, OTHER, SIDES };

struct overhead {
    const struct bench *bench, *unrecorded; /* NULL: the other side is the peer */
    pthread_barrier_t barrier;
    struct bench_call call[BENCH_MAX_RANKS];
    double us[SIDES][BENCH_MAX_RANKS][ROUNDS]; /* a call, each the mean of a batch */
};

static int rounds = ROUNDS; /* ROUNDS_MIN to ROUNDS */

struct start {
    pthread_t thread;
    struct overhead *overhead;
    int rank;
};

static void queue_one(const struct overhead *o, int rank, int side)
{
    const struct bench *bench = side == OURS ? o->bench : o->unrecorded;
    if (bench == NULL)
        o->bench->peer->run(o->bench, rank, o->call);
    else
        BENCH_OK(trib_allreduce(bench->comm[rank], o->call[rank].send, o->call[rank].recv, COUNT,
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
    for (int round = -WARMUP; round < rounds; round++)
        for (int turn = 0; turn < SIDES; turn++) {
            const int side = round % 2 == 0 ? turn : SIDES - 1 - turn;
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

/* The slowest rank of each round. */
static void slowest_of(const struct overhead *o, int side, double *out)
{
    for (int round = 0; round < rounds; round++) {
        out[round] = 0;
        for (int rank = 0; rank < o->bench->ranks; rank++)
            if (o->us[side][rank][round] > out[round])
                out[round] = o->us[side][rank][round];
    }
}

/* The difference of the sides in the same round: its median, and half the width of the interval that
 * contains the true one with a probability of 95 % (the order statistics at n / 2 +- sqrt(n), from
 * the binomial distribution). */
struct extra {
    double median, within;
};

static struct extra extra_of(double *difference)
{
    const struct bench_stats stats = bench_stats(difference, rounds); /* they are sorted now */
    const int middle = rounds / 2, reach = (int)ceil(sqrt(rounds));
    return (struct extra){stats.median,
                          (difference[middle + reach] - difference[middle - reach]) / 2};
}

/* Over the rounds. */
static struct extra stats_of(const struct overhead *o, struct bench_stats *ours,
                             struct bench_stats *other)
{
    double us[SIDES][ROUNDS], difference[ROUNDS];
    slowest_of(o, OURS, us[OURS]);
    slowest_of(o, OTHER, us[OTHER]);
    for (int round = 0; round < rounds; round++)
        difference[round] = us[OURS][round] - us[OTHER][round];
    *ours = bench_stats(us[OURS], rounds);
    *other = bench_stats(us[OTHER], rounds);
    return extra_of(difference);
}

static void report(struct overhead *o, const char *what, bool in_place)
{
    for (int rank = 0; rank < o->bench->ranks; rank++)
        o->call[rank].recv = (char *)o->call[rank].send + (in_place ? 0 : COUNT * sizeof(float));
    measure(o);
    struct bench_stats ours, other;
    const struct extra extra = stats_of(o, &ours, &other);
    printf("%-10s %-12s %8.3f %8.3f %8.3f | %8.3f %8.3f %8.3f | %+8.3f +- %5.3f %+7.1f %%\n", what,
           in_place ? "in place" : "out of place", ours.median, ours.min, ours.p99, other.median,
           other.min, other.p99, extra.median, extra.within, 100 * extra.median / other.median);
}

static void heading(const char *other)
{
    printf("%-10s %-12s %8s %8s %8s | %8s %8s %8s | %8s\n", "ours", "", "median", "min", "p99",
           other, "min", "p99", "extra");
}

static void open_overhead(struct overhead *o, const struct bench *bench)
{
    memset(o, 0, sizeof *o);
    o->bench = bench;
    for (int rank = 0; rank < bench->ranks; rank++)
        o->call[rank] =
            (struct bench_call){.collective = bench_collective_find("allreduce"),
                                .count = COUNT,
                                .dtype = TRIB_F32,
                                .op = TRIB_SUM,
                                .send = bench_alloc(bench, rank, 2 * COUNT * sizeof(float))};
}

static void close_overhead(struct overhead *o)
{
    for (int rank = 0; rank < o->bench->ranks; rank++)
        bench_free(o->bench, rank, o->call[rank].send);
}

static void beside_the_peer(const char *backend, int ranks, const char *what, uint32_t flags,
                            bool first)
{
    static struct overhead o;
    struct bench bench;
    bench_open(&bench, backend, ranks, 0, flags);
    open_overhead(&o, &bench);
    if (first) {
        bench_print_setting(&bench);
        heading(bench.peer->name);
    }
    report(&o, what, true);
    report(&o, what, false);
    close_overhead(&o);
    bench_close(&bench);
}

static void beside_unrecorded(const char *backend, int ranks, const char *what, uint32_t flags)
{
    static struct overhead o;
    struct bench bench, unrecorded;
    bench_open(&bench, backend, ranks, 0, flags);
    bench_open(&unrecorded, backend, ranks, 0, TRIB_UNRECORDED);
    open_overhead(&o, &bench);
    o.unrecorded = &unrecorded;
    report(&o, what, true);
    report(&o, what, false);
    close_overhead(&o);
    bench_close(&unrecorded);
    bench_close(&bench);
}

int main(int argc, char **argv)
{
    bench_unnamed(argc, argv, 3, "[backend [ranks [rounds]]]");
    const char *backend = argc > 1 ? argv[1] : NULL;
    const int ranks = argc > 2 ? bench_integer("ranks", argv[2], 1, BENCH_MAX_RANKS) : 0;
    rounds = argc > 3 ? bench_integer("rounds", argv[3], ROUNDS_MIN, ROUNDS) : ROUNDS;
    beside_the_peer(backend, ranks, "checked", 0, true);
    beside_the_peer(backend, ranks, "unchecked", TRIB_UNCHECKED, false);
    heading("unrecord");
    beside_unrecorded(backend, ranks, "recorded", 0);
    beside_unrecorded(backend, ranks, "timed", TRIB_TIMED);
    return EXIT_SUCCESS;
}
