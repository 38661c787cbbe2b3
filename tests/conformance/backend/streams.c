/* Collectives and streams: the order of calls, events between streams, the default stream, that
 * a call is queued and returns, and two communicators at once. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/backend/backend.h"

enum { ELEMENTS = 257, ROUNDS = 20, QUEUED = 300 };

struct streams_case {
    struct suite *suite;
    _Atomic int late;
};

/* One rank's four blocks of i64, guarded as one. */
struct blocks {
    struct guarded memory;
    const struct team *team;
    int rank, size;
};

static bool blocks_create(struct blocks *blocks, const struct team *team, int rank)
{
    blocks->team = team;
    blocks->rank = rank;
    blocks->size = team->size;
    if (!guarded_create(&blocks->memory, team->devices[rank], 4 * ELEMENTS * sizeof(int64_t)))
        return false;
    guarded_reset(&blocks->memory, 4 * ELEMENTS * sizeof(int64_t), 0);
    return true;
}

static int64_t *image(const struct blocks *blocks, int block)
{
    return guarded_image(&blocks->memory, (size_t)block * ELEMENTS * sizeof(int64_t));
}

static void *data(const struct blocks *blocks, int block)
{
    return guarded_data(&blocks->memory, (size_t)block * ELEMENTS * sizeof(int64_t));
}

/* Element i is (base + step * i) * factor; wraps. */
static void set_block(const struct blocks *blocks, int block, int base, int step, uint64_t factor)
{
    for (int i = 0; i < ELEMENTS; i++)
        image(blocks, block)[i] = (int64_t)((uint64_t)((int64_t)base + step * i) * factor);
}

static bool sum(const struct blocks *blocks, int from, int to, trib_stream stream)
{
    return CHECK_OK(trib_allreduce(blocks->team->comms[blocks->rank], data(blocks, from),
                                   data(blocks, to), ELEMENTS, TRIB_I64, TRIB_SUM, stream));
}

static bool fetch(struct blocks *blocks, trib_stream stream)
{
    return guarded_pull(&blocks->memory, stream) &&
           CHECK_OK(trib_stream_wait(blocks->team->devices[blocks->rank], stream));
}

static bool compare(struct suite *suite, struct blocks *blocks, const char *what)
{
    return backend_compare(suite, blocks->rank, &blocks->memory, NULL, what);
}

static uint64_t power(int base, int exponent)
{
    uint64_t result = 1;
    for (int i = 0; i < exponent; i++)
        result *= (uint64_t)base;
    return result;
}

/* Two streams hand the data back and forth through events: every round multiplies it by size. */
static bool ping_pong(struct suite *suite, struct blocks *blocks, trib_stream first,
                      trib_stream second)
{
    trib_device *device = blocks->team->devices[blocks->rank];
    trib_event there = NULL, back = NULL;
    set_block(blocks, 0, 3, 1, 1);
    set_block(blocks, 1, -1, 0, 1);
    bool good = CHECK_OK(trib_event_create(&there, device)) &&
                CHECK_OK(trib_event_create(&back, device)) && guarded_push(&blocks->memory, first);
    for (int round = 0; round < ROUNDS && good; round++)
        good = sum(blocks, 0, 1, first) && CHECK_OK(trib_event_record(device, there, first)) &&
               CHECK_OK(trib_stream_wait_event(device, there, second)) &&
               sum(blocks, 1, 0, second) && CHECK_OK(trib_event_record(device, back, second)) &&
               CHECK_OK(trib_stream_wait_event(device, back, first));
    good = good && fetch(blocks, first);
    set_block(blocks, 0, 3, 1, power(blocks->size, 2 * ROUNDS));
    set_block(blocks, 1, 3, 1, power(blocks->size, 2 * ROUNDS - 1));
    CHECK_OK(trib_event_destroy(device, there));
    CHECK_OK(trib_event_destroy(device, back));
    return good && compare(suite, blocks, "ping pong");
}

/* Calls alternate between two streams, other ones on every rank, without events: the communicator's
 * order is that of the calls. Blocks 0 and 2 have nothing to do with each other. */
static bool alternating(struct suite *suite, struct blocks *blocks, trib_stream first,
                        trib_stream second)
{
    const bool swapped = blocks->rank % 2 == 1;
    trib_stream even = swapped ? second : first, odd = swapped ? first : second;
    trib_device *device = blocks->team->devices[blocks->rank];
    bool good = true;
    for (int block = 0; block < 4; block++)
        set_block(blocks, block, block + 1, 0, 1);
    good = guarded_push(&blocks->memory, even) && CHECK_OK(trib_stream_wait(device, even));
    for (int round = 0; round < ROUNDS && good; round++)
        good = sum(blocks, 0, 0, even) && sum(blocks, 2, 2, odd);
    good = good && CHECK_OK(trib_stream_wait(device, odd)) && fetch(blocks, even);
    set_block(blocks, 0, 1, 0, power(blocks->size, ROUNDS));
    set_block(blocks, 2, 3, 0, power(blocks->size, ROUNDS));
    return good && compare(suite, blocks, "alternating streams");
}

static bool default_stream(struct suite *suite, struct blocks *blocks)
{
    set_block(blocks, 0, blocks->rank, 2, 1);
    const bool good = guarded_push(&blocks->memory, NULL) && sum(blocks, 0, 3, NULL) &&
                      sum(blocks, 3, 1, NULL) && fetch(blocks, NULL);
    const int ranks = blocks->size * (blocks->size - 1) / 2;
    set_block(blocks, 3, ranks, 2 * blocks->size, 1);
    set_block(blocks, 1, ranks, 2 * blocks->size, (uint64_t)blocks->size);
    return good && compare(suite, blocks, "default stream");
}

/* More calls than any queue holds without growing; nobody waits until the end. */
static bool many_queued(struct suite *suite, struct blocks *blocks, trib_stream stream)
{
    set_block(blocks, 0, 1, 0, 1);
    bool good = guarded_push(&blocks->memory, stream);
    for (int i = 0; i < QUEUED && good; i++)
        good = sum(blocks, 0, 0, stream);
    good = good && fetch(blocks, stream);
    set_block(blocks, 0, 1, 0, power(blocks->size, QUEUED));
    return good && compare(suite, blocks, "many queued");
}

/* Rank 0's call returns, and its stream is not done, while no other rank has made the call. */
static bool queued_and_returns(struct streams_case *streams, struct blocks *blocks,
                               trib_stream stream)
{
    int32_t done = 0;
    trib_device *device = blocks->team->devices[blocks->rank];
    set_block(blocks, 0, 5, 0, 1);
    bool good = guarded_push(&blocks->memory, stream) && CHECK_OK(trib_stream_wait(device, stream));
    while (blocks->rank != 0 && !atomic_load(&streams->late))
        check_sleep_ms(1);
    good = good && sum(blocks, 0, 2, stream);
    if (blocks->rank == 0) {
        CHECK_OK(trib_stream_query(&done, device, stream));
        CHECK_MSG(done == (blocks->size == 1 ? done : 0), "done without the others");
        atomic_store(&streams->late, 1);
    }
    good = good && fetch(blocks, stream);
    CHECK_OK(trib_stream_query(&done, device, stream));
    CHECK_MSG(done == 1, "a stream that was waited for is not done");
    set_block(blocks, 2, 5, 0, (uint64_t)blocks->size);
    return good && compare(streams->suite, blocks, "queued and returned");
}

static void streams_rank(int rank, int size, void *argument)
{
    struct streams_case *streams = argument;
    struct suite *suite = streams->suite;
    struct blocks blocks;
    trib_stream first = suite->team.streams[rank], second = NULL;
    (void)size;
    bool good = CHECK_OK(trib_stream_create(&second, suite->team.devices[rank])) &&
                blocks_create(&blocks, &suite->team, rank);
    good = good && ping_pong(suite, &blocks, first, second) &&
           alternating(suite, &blocks, first, second) && default_stream(suite, &blocks) &&
           many_queued(suite, &blocks, first) && queued_and_returns(streams, &blocks, first);
    backend_go_on(suite, rank, good);
    CHECK_OK(trib_stream_destroy(suite->team.devices[rank], second));
    guarded_destroy(&blocks.memory);
}

/* ---------------------------------------------------------- two communicators at the same time */

struct parallel {
    struct suite suites[2]; /* each with its own communicators and streams, on the same devices */
};

static void parallel_rank(int rank, int size, void *argument)
{
    struct parallel *parallel = argument;
    struct blocks blocks[2];
    trib_stream streams[2];
    bool good = true;
    for (int i = 0; i < 2; i++) {
        struct suite *suite = &parallel->suites[i];
        streams[i] = suite->team.streams[rank];
        if (!blocks_create(&blocks[i], &suite->team, rank))
            return;
        set_block(&blocks[i], 0, i + 1, 3, 1);
        good = good && guarded_push(&blocks[i].memory, streams[i]);
    }
    for (int round = 0; round < ROUNDS && good; round++)
        good = sum(&blocks[0], 0, 0, streams[0]) && sum(&blocks[1], 0, 0, streams[1]);
    for (int i = 0; i < 2; i++) {
        good = good && fetch(&blocks[i], streams[i]);
        set_block(&blocks[i], 0, i + 1, 3, power(size, ROUNDS));
        backend_go_on(&parallel->suites[i], rank,
                      good && compare(&parallel->suites[i], &blocks[i], "two communicators"));
        guarded_destroy(&blocks[i].memory);
    }
}

static void two_communicators(struct suite *suite)
{
    struct parallel parallel = {{*suite, *suite}};
    struct team *second = &parallel.suites[1].team;
    check_begin("%s, %d ranks: two communicators at once", suite->team.backend, suite->team.size);
    if (team_create(second, suite->team.backend, suite->team.size, NULL))
        check_ranks(suite->team.size, parallel_rank, &parallel);
    team_destroy(second);
    check_end();
}

void backend_streams(struct suite *suite)
{
    struct streams_case streams = {.suite = suite};
    check_begin("%s, %d ranks: streams", suite->team.backend, suite->team.size);
    check_ranks(suite->team.size, streams_rank, &streams);
    check_end();
    two_communicators(suite);
}
