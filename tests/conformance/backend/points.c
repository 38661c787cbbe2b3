/* Sends and receives, what is made of them (allgatherv, alltoallv), barriers and batches. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/conformance/backend/backend.h"
#include "tests/conformance/reference.h"

/* One rank in one call. */
struct point {
    struct suite *suite;
    trib_dtype dtype;
    size_t count, element;
    int rank, size;
    uint64_t seed;
    trib_comm *comm;
    trib_stream stream;
    struct guarded *send, *recv;
};

static struct reference inputs_of(const struct point *p, trib_op op)
{
    return (struct reference){.dtype = p->dtype, .op = op, .size = p->size, .seed = p->seed};
}

/* Elements [first, first + count) of rank `rank`'s input, to the element `at` of `buffer`'s
 * image. */
static void put(const struct point *p, struct guarded *buffer, size_t at, int rank, size_t first,
                size_t count)
{
    const struct reference inputs = inputs_of(p, REFERENCE_MOVED);
    reference_input(guarded_image(buffer, at * p->element), &inputs, rank, first, count);
}

static void *at(const struct point *p, struct guarded *buffer, size_t element)
{
    return guarded_data(buffer, element * p->element);
}

static void prepare(const struct point *p, size_t send_count, size_t recv_count)
{
    guarded_reset(p->send, send_count * p->element, p->element);
    guarded_reset(p->recv, recv_count * p->element, 0);
    put(p, p->send, 0, p->rank, 0, send_count);
}

static bool push(const struct point *p)
{
    return guarded_push(p->send, p->stream) && guarded_push(p->recv, p->stream);
}

static bool begin(const struct point *p, size_t send_count, size_t recv_count)
{
    prepare(p, send_count, recv_count);
    return push(p);
}

static bool fetch(const struct point *p)
{
    return guarded_pull(p->send, p->stream) && guarded_pull(p->recv, p->stream) &&
           CHECK_OK(trib_stream_wait(p->suite->team.devices[p->rank], p->stream));
}

static bool compare(const struct point *p, const char *what)
{
    char text[128];
    (void)snprintf(text, sizeof text, "%s of %zu %s, rank %d", what, p->count,
                   trib_dtype_name(p->dtype), p->rank);
    return backend_compare(p->suite, p->rank, p->send, p->recv, text);
}

/* Everyone sends to the rank `distance` further on; with distance 0 to itself. */
static bool ring(const struct point *p, int distance)
{
    const int to = (p->rank + distance) % p->size;
    const int from = (p->rank - distance + p->size) % p->size;
    if (!begin(p, p->count, p->count) || !CHECK_OK(trib_batch_begin(p->comm)) ||
        !CHECK_OK(trib_send(p->comm, at(p, p->send, 0), p->count, p->dtype, to, p->stream)) ||
        !CHECK_OK(trib_recv(p->comm, at(p, p->recv, 0), p->count, p->dtype, from, p->stream)) ||
        !CHECK_OK(trib_batch_end(p->comm)) || !fetch(p))
        return false;
    put(p, p->recv, 0, from, 0, p->count);
    return compare(p, "ring");
}

/* Without a batch: what rank 0 has goes from rank to rank, each waiting for the one before. */
static bool chain(const struct point *p)
{
    if (!begin(p, p->count, p->count))
        return false;
    if (p->rank > 0 && !CHECK_OK(trib_recv(p->comm, at(p, p->recv, 0), p->count, p->dtype,
                                           p->rank - 1, p->stream)))
        return false;
    struct guarded *source = p->rank == 0 ? p->send : p->recv;
    if (p->rank + 1 < p->size &&
        !CHECK_OK(trib_send(p->comm, at(p, source, 0), p->count, p->dtype, p->rank + 1, p->stream)))
        return false;
    if (!fetch(p))
        return false;
    if (p->rank > 0)
        put(p, p->recv, 0, 0, 0, p->count);
    return compare(p, "chain");
}

/* Several messages between the same two ranks in one batch arrive in the order of the calls. */
static bool ordered_pair(const struct point *p)
{
    const size_t first = p->count / 3, second = p->count - first;
    const int to = (p->rank + 1) % p->size, from = (p->rank + p->size - 1) % p->size;
    if (!begin(p, p->count, p->count) || !CHECK_OK(trib_batch_begin(p->comm)) ||
        !CHECK_OK(trib_recv(p->comm, at(p, p->recv, second), first, p->dtype, from, p->stream)) ||
        !CHECK_OK(trib_recv(p->comm, at(p, p->recv, 0), second, p->dtype, from, p->stream)) ||
        !CHECK_OK(trib_send(p->comm, at(p, p->send, 0), first, p->dtype, to, p->stream)) ||
        !CHECK_OK(trib_send(p->comm, at(p, p->send, first), second, p->dtype, to, p->stream)) ||
        !CHECK_OK(trib_batch_end(p->comm)) || !fetch(p))
        return false;
    put(p, p->recv, second, from, 0, first);
    put(p, p->recv, 0, from, first, second);
    return compare(p, "ordered pair");
}

/* --------------------------------------------------------------------------- with many counts */

/* Blocks of different sizes, some empty, with gaps between them and not in the order of ranks. */
static size_t block_of(const struct point *p, int rank)
{
    return p->count == 0 ? 0 : ((size_t)rank * 7 + 3) % (p->count + 1) * (rank % 3 != 1);
}

static size_t offset_of(const struct point *p, int rank)
{
    return (size_t)(p->size - 1 - rank) * (p->count + 2) + 1;
}

static size_t room(const struct point *p)
{
    return (size_t)p->size * (p->count + 2) + 1;
}

static bool allgatherv(const struct point *p, bool in_place)
{
    size_t counts[TEAM_MAX], offsets[TEAM_MAX];
    for (int rank = 0; rank < p->size; rank++) {
        counts[rank] = block_of(p, rank);
        offsets[rank] = offset_of(p, rank);
    }
    prepare(p, in_place ? 0 : counts[p->rank], room(p));
    if (in_place)
        put(p, p->recv, offsets[p->rank], p->rank, 0, counts[p->rank]);
    void *mine = at(p, in_place ? p->recv : p->send, in_place ? offsets[p->rank] : 0);
    const bool called = push(p) && CHECK_OK(trib_allgatherv(p->comm, mine, at(p, p->recv, 0),
                                                            counts, offsets, p->dtype, p->stream));
    for (int rank = 0; rank < p->size; rank++) /* they were read during the call */
        counts[rank] = offsets[rank] = SIZE_MAX;
    if (!called || !fetch(p))
        return false;
    for (int rank = 0; rank < p->size; rank++)
        put(p, p->recv, offset_of(p, rank), rank, 0, block_of(p, rank));
    return compare(p, in_place ? "allgatherv in place" : "allgatherv");
}

/* How many elements `from` sends to `to`. */
static size_t message_count(const struct point *p, int from, int to)
{
    return p->count == 0 ? 0 : ((size_t)from * 5 + (size_t)to * 3) % (p->count + 1);
}

static bool alltoallv(const struct point *p)
{
    size_t counts[2][TEAM_MAX], offsets[2][TEAM_MAX];
    for (int peer = 0; peer < p->size; peer++) {
        counts[0][peer] = message_count(p, p->rank, peer);
        counts[1][peer] = message_count(p, peer, p->rank);
        offsets[0][peer] = (size_t)peer * p->count;
        offsets[1][peer] = offset_of(p, peer);
    }
    if (!begin(p, (size_t)p->size * p->count, room(p)) ||
        !CHECK_OK(trib_alltoallv(p->comm, at(p, p->send, 0), counts[0], offsets[0],
                                 at(p, p->recv, 0), counts[1], offsets[1], p->dtype, p->stream)))
        return false;
    for (int peer = 0; peer < p->size; peer++)
        counts[0][peer] = counts[1][peer] = offsets[0][peer] = offsets[1][peer] = SIZE_MAX;
    if (!fetch(p))
        return false;
    for (int peer = 0; peer < p->size; peer++)
        put(p, p->recv, offset_of(p, peer), peer, (size_t)p->rank * p->count,
            message_count(p, peer, p->rank));
    return compare(p, "alltoallv");
}

/* ------------------------------------------------------------------------------------ batches */

/* An allreduce, a broadcast, an allgather and a round of sends to everyone as one call. */
static bool mixed_batch(const struct point *p)
{
    const size_t n = p->count, everyone = (size_t)p->size * n;
    const int root = p->size - 1;
    const struct reference inputs = inputs_of(p, TRIB_MAX);
    prepare(p, n + everyone, 2 * n + 2 * everyone);
    reference_input(guarded_image(p->send, 0), &inputs, p->rank, 0, n);
    if (!push(p) || !CHECK_OK(trib_batch_begin(p->comm)))
        return false;
    bool good = CHECK_OK(trib_allreduce(p->comm, at(p, p->send, 0), at(p, p->recv, 0), n, p->dtype,
                                        TRIB_MAX, p->stream)) &&
                CHECK_OK(trib_broadcast(p->comm, at(p, p->send, n), at(p, p->recv, n), n, p->dtype,
                                        root, p->stream)) &&
                CHECK_OK(trib_allgather(p->comm, at(p, p->send, n), at(p, p->recv, 2 * n), n,
                                        p->dtype, p->stream));
    for (int peer = 0; peer < p->size && good; peer++)
        good = CHECK_OK(trib_send(p->comm, at(p, p->send, n + (size_t)peer * n), n, p->dtype, peer,
                                  p->stream)) &&
               CHECK_OK(trib_recv(p->comm, at(p, p->recv, 2 * n + everyone + (size_t)peer * n), n,
                                  p->dtype, peer, p->stream));
    if (!CHECK_OK(trib_batch_end(p->comm)) || !good || !fetch(p))
        return false;
    reference_reduced(guarded_image(p->recv, 0), &inputs, 0, n);
    put(p, p->recv, n, root, n, n);
    for (int peer = 0; peer < p->size; peer++) {
        put(p, p->recv, 2 * n + (size_t)peer * n, peer, n, n);
        put(p, p->recv, 2 * n + everyone + (size_t)peer * n, peer, n + (size_t)p->rank * n, n);
    }
    return compare(p, "batch");
}

/* Two alltoalls in one batch: the first in place on every other rank, the second on all. */
static bool alltoall_batch(const struct point *p)
{
    const size_t n = p->count, everyone = (size_t)p->size * n;
    const bool in_place = p->rank % 2 == 0;
    prepare(p, everyone, 2 * everyone);
    if (in_place)
        put(p, p->recv, 0, p->rank, 0, everyone);
    put(p, p->recv, everyone, p->rank, everyone, everyone);
    void *first = at(p, p->recv, 0), *second = at(p, p->recv, everyone);
    if (!push(p) || !CHECK_OK(trib_batch_begin(p->comm)) ||
        !CHECK_OK(trib_alltoall(p->comm, in_place ? first : at(p, p->send, 0), first, n, p->dtype,
                                p->stream)) ||
        !CHECK_OK(trib_alltoall(p->comm, second, second, n, p->dtype, p->stream)) ||
        !CHECK_OK(trib_batch_end(p->comm)) || !fetch(p))
        return false;
    for (int peer = 0; peer < p->size; peer++) {
        const size_t block = (size_t)peer * n, mine = (size_t)p->rank * n;
        put(p, p->recv, block, peer, mine, n);
        put(p, p->recv, everyone + block, peer, everyone + mine, n);
    }
    return compare(p, "alltoalls in a batch");
}

static bool empty_batch(const struct point *p)
{
    return CHECK_OK(trib_batch_begin(p->comm)) && CHECK_OK(trib_batch_end(p->comm));
}

/* ------------------------------------------------------------------------------------ barrier */

static void arrive(void *argument)
{
    atomic_fetch_add((_Atomic int *)argument, 1);
}

struct look {
    _Atomic int *arrived;
    int seen;
};

static void look(void *argument)
{
    struct look *at_door = argument;
    at_door->seen = atomic_load(at_door->arrived);
}

struct barrier_case {
    struct suite *suite;
    _Atomic int arrived[4];
};

static void barrier_rank(int rank, int size, void *argument)
{
    struct barrier_case *barrier = argument;
    const struct team *team = &barrier->suite->team;
    trib_stream stream = team->streams[rank];
    struct look looks[4];
    for (int i = 0; i < 4; i++) {
        looks[i] = (struct look){&barrier->arrived[i], -1};
        if (rank == i % size)
            check_sleep_ms(2); /* someone is late */
        CHECK_OK(trib_stream_submit(team->devices[rank], arrive, &barrier->arrived[i], stream));
        if (!backend_go_on(barrier->suite, rank, CHECK_OK(trib_barrier(team->comms[rank], stream))))
            return;
        CHECK_OK(trib_stream_submit(team->devices[rank], look, &looks[i], stream));
    }
    CHECK_OK(trib_stream_wait(team->devices[rank], stream));
    CHECK_OK(trib_comm_status(team->comms[rank]));
    for (int i = 0; i < 4; i++)
        CHECK_MSG(looks[i].seen == size, "barrier %d let rank %d through after %d of %d", i, rank,
                  looks[i].seen, size);
}

/* --------------------------------------------------------------------------------------- walk */

struct round {
    struct suite *suite;
    trib_dtype dtype;
};

static bool try_count(struct point *p)
{
    bool good = true;
    for (int distance = 0; distance < p->size && good; distance++)
        if (backend_root(p->suite, distance, 0) || distance == 1)
            good = ring(p, distance);
    good = good && chain(p) && ordered_pair(p) && allgatherv(p, false) && allgatherv(p, true) &&
           alltoallv(p) && mixed_batch(p) && alltoall_batch(p) && empty_batch(p);
    return backend_go_on(p->suite, p->rank, good);
}

static void point_rank(int rank, int size, void *argument)
{
    const struct round *round = argument;
    const struct counts counts = backend_counts(round->suite, round->dtype);
    const size_t element = trib_dtype_size(round->dtype);
    const size_t capacity = (2 * (size_t)size + 2) * (counts.at[counts.n - 1] + 2) * element;
    struct guarded send, recv;
    bool good = guarded_create(&send, round->suite->team.devices[rank], capacity);
    good = guarded_create(&recv, round->suite->team.devices[rank], capacity) && good;
    struct point point = {.suite = round->suite,
                          .dtype = round->dtype,
                          .element = element,
                          .rank = rank,
                          .size = size,
                          .comm = round->suite->team.comms[rank],
                          .stream = round->suite->team.streams[rank],
                          .send = &send,
                          .recv = &recv};
    for (size_t i = 0; i < counts.n && good; i++) {
        point.count = counts.at[i];
        point.seed = round->suite->seed + i;
        good = try_count(&point);
    }
    guarded_destroy(&send);
    guarded_destroy(&recv);
}

void backend_points(struct suite *suite)
{
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++) {
        if (!backend_dtype(suite, dtype))
            continue;
        struct round round = {suite, dtype};
        check_begin("%s, %d ranks by %s: send, recv, allgatherv, alltoallv, batch of %s",
                    suite->team.backend, suite->team.size, suite->how, trib_dtype_name(dtype));
        check_ranks(suite->team.size, point_rank, &round);
        suite->seed += 10000;
        check_end();
    }
    struct barrier_case barrier = {.suite = suite};
    check_begin("%s, %d ranks by %s: barrier", suite->team.backend, suite->team.size, suite->how);
    check_ranks(suite->team.size, barrier_rank, &barrier);
    check_end();
}
