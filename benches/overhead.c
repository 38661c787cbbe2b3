/* Overhead: microseconds of host time to queue one small allreduce, ours beside the peer's plain
 * call, in and out of place, with the checks on and off. The two take turns, a batch each, on the
 * same threads, and take turns in being first; a batch is small enough that no queue fills up, and
 * the stream is drained after it, outside the timing. On nccl the same with TRIB_NO_PEERS, where NCCL
 * serves what push would. Then ours beside ours without recorder and watchdog (TRIB_UNRECORDED).
 *
 * Where threads run and where memory lies makes some 100 ns, one way or the other, for as long as
 * they live: so all of it is set up several times, with communicators and threads of its own. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/arguments.h"
#include "benches/bench.h"
#include "benches/collective.h"

enum { COUNT = 256, BATCH = 64, SETUPS = 8, ROUNDS_MIN = 2, ROUNDS = 150, WARMUP = 10 };

enum { OURS, OTHER, SIDES };
enum { IN_PLACE, OUT_OF_PLACE, PLACES };

struct overhead {
    const struct bench *bench, *unrecorded; /* NULL: the other side is the peer */
    pthread_barrier_t barrier;
    struct bench_call call[BENCH_MAX_RANKS];
    double us[SIDES][BENCH_MAX_RANKS][ROUNDS]; /* a call, each the mean of a batch */
};

/* What is measured of one row: a call of the slowest rank in every round, and of each set-up the
 * median of the differences between the sides in the same round. */
struct row {
    double us[SIDES][SETUPS * ROUNDS], extra[SETUPS];
};

static int rounds = ROUNDS; /* of each set-up; ROUNDS_MIN to ROUNDS */

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

static void add_setup(struct row *row, int setup, const struct overhead *o)
{
    double us[SIDES][ROUNDS], difference[ROUNDS];
    for (int side = 0; side < SIDES; side++) {
        slowest_of(o, side, us[side]);
        memcpy(&row->us[side][setup * rounds], us[side], (size_t)rounds * sizeof us[side][0]);
    }
    for (int round = 0; round < rounds; round++)
        difference[round] = us[OURS][round] - us[OTHER][round];
    row->extra[setup] = bench_stats(difference, (size_t)rounds).median;
}

/* The mean over the set-ups, and half the width of its 95 % confidence interval (Student's t). */
struct extra {
    double mean, within;
};

static struct extra extra_of(const struct row *row)
{
    const double t = 2.365; /* of 7 degrees of freedom */
    double mean = 0, squares = 0;
    _Static_assert(SETUPS == 8, "t is that of 8 set-ups");
    for (int i = 0; i < SETUPS; i++)
        mean += row->extra[i] / SETUPS;
    for (int i = 0; i < SETUPS; i++)
        squares += (row->extra[i] - mean) * (row->extra[i] - mean);
    return (struct extra){mean, t * sqrt(squares / (SETUPS - 1) / SETUPS)};
}

static void report(struct row *row, const char *what, int place)
{
    const struct extra extra = extra_of(row);
    const size_t n = (size_t)(SETUPS * rounds);
    const struct bench_stats ours = bench_stats(row->us[OURS], n),
                             other = bench_stats(row->us[OTHER], n);
    printf("%-10s %-12s %8.3f %8.3f %8.3f | %8.3f %8.3f %8.3f | %+8.3f +- %5.3f %+7.1f %%\n", what,
           place == IN_PLACE ? "in place" : "out of place", ours.median, ours.min, ours.p99,
           other.median, other.min, other.p99, extra.mean, extra.within,
           100 * extra.mean / other.median);
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

static void measure_places(struct overhead *o, struct row *rows, int setup)
{
    for (int place = 0; place < PLACES; place++) {
        for (int rank = 0; rank < o->bench->ranks; rank++)
            o->call[rank].recv =
                (char *)o->call[rank].send + (place == IN_PLACE ? 0 : COUNT * sizeof(float));
        measure(o);
        add_setup(&rows[place], setup, o);
    }
}

/* One set-up. The two that are compared take turns in being created first. */
static void set_up(struct row *rows, int setup, const char *backend, int ranks,
                   const trib_options *options, bool beside_unrecorded)
{
    static struct overhead o;
    struct bench bench, unrecorded;
    if (beside_unrecorded && setup % 2 == 1)
        bench_open(&unrecorded, backend, ranks, 0, TRIB_UNRECORDED);
    bench_open_with(&bench, backend, ranks, 0, options);
    if (beside_unrecorded && setup % 2 == 0)
        bench_open(&unrecorded, backend, ranks, 0, TRIB_UNRECORDED);
    open_overhead(&o, &bench);
    o.unrecorded = beside_unrecorded ? &unrecorded : NULL;
    measure_places(&o, rows, setup);
    close_overhead(&o);
    if (beside_unrecorded)
        bench_close(&unrecorded);
    bench_close(&bench);
}

/* peer_bytes: of the options; TRIB_NO_PEERS has NCCL serve the calls that push would. */
static void compare(const char *backend, int ranks, const char *what, uint32_t flags,
                    uint64_t peer_bytes, bool beside_unrecorded)
{
    static struct row rows[PLACES];
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = flags;
    options.peer_bytes = peer_bytes;
    for (int setup = 0; setup < SETUPS; setup++)
        set_up(rows, setup, backend, ranks, &options, beside_unrecorded);
    for (int place = 0; place < PLACES; place++)
        report(&rows[place], what, place);
}

/* Returns whether the backend is nccl. */
static bool print_headings(const char *backend, int ranks)
{
    struct bench bench;
    bench_open(&bench, backend, ranks, 0, 0);
    bench_print_setting(&bench);
    heading(bench.peer->name);
    const bool nccl = strcmp(bench.backend, "nccl") == 0;
    bench_close(&bench);
    return nccl;
}

int main(int argc, char **argv)
{
    bench_unnamed(argc, argv, 3, "[backend [ranks [rounds]]]");
    const char *backend = argc > 1 ? argv[1] : NULL;
    const int ranks = argc > 2 ? bench_integer("ranks", argv[2], 1, BENCH_MAX_RANKS) : 0;
    rounds = argc > 3 ? bench_integer("rounds", argv[3], ROUNDS_MIN, ROUNDS) : ROUNDS;
    const bool nccl = print_headings(backend, ranks);
    compare(backend, ranks, "checked", 0, 0, false);
    compare(backend, ranks, "unchecked", TRIB_UNCHECKED, 0, false);
    if (nccl) {
        printf("with TRIB_NO_PEERS, NCCL serves both:\n");
        compare(backend, ranks, "checked", 0, TRIB_NO_PEERS, false);
        compare(backend, ranks, "unchecked", TRIB_UNCHECKED, TRIB_NO_PEERS, false);
    }
    heading("unrecord");
    compare(backend, ranks, "recorded", 0, 0, true);
    compare(backend, ranks, "timed", TRIB_TIMED, 0, true);
    return EXIT_SUCCESS;
}
