/* Bad arguments of collectives, vectors and lists. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/api/bad_input.h"

/* A call accepted by mistake waits for ranks for ever: abort it, so that the test ends. */
static void give_up(const struct bad *bad)
{
    trib_abort *handle = NULL;
    if (trib_comm_abort_handle(&handle, bad->comm) == TRIB_OK)
        (void)trib_abort_raise(handle, "a bad call was accepted");
    trib_abort_release(handle);
}

bool bad_refused(const struct bad *bad, trib_status found, trib_status expected,
                 const char *operation, const char *argument, const char *file, int line)
{
    char rank[32];
    (void)snprintf(rank, sizeof rank, "rank %d", bad->rank);
    if (!check_that(found == expected, file, line,
                    "%s with a bad %s is %s, expected %s; detail: %s", operation, argument,
                    trib_status_name(found), trib_status_name(expected), trib_last_detail())) {
        if (found == TRIB_OK)
            give_up(bad);
        return false;
    }
    const bool named = check_detail(operation, file, line);
    const bool explained = check_detail(argument, file, line);
    return check_detail(rank, file, line) && named && explained;
}

/* ---------------------------------------------------------------- collectives of one count */

/* Any collective on bad->stream, with all else as an argument; root or peer is `peer`. */
typedef trib_status any_call(const struct bad *bad, const void *send, void *recv, size_t count,
                             trib_dtype dtype, trib_op op, int32_t peer);

static const trib_call_options no_more = TRIB_CALL_OPTIONS_INIT;

#define ANY(name, ...)                                                                             \
    static trib_status any_##name(const struct bad *bad, const void *send, void *recv,             \
                                  size_t count, trib_dtype dtype, trib_op op, int32_t peer)        \
    {                                                                                              \
        (void)send, (void)recv, (void)op, (void)peer;                                              \
        return trib_##name(bad->comm, __VA_ARGS__, bad->stream);                                   \
    }
ANY(allreduce, send, recv, count, dtype, op)
ANY(allreduce_with, send, recv, count, dtype, op, &no_more)
ANY(broadcast, send, recv, count, dtype, peer)
ANY(reduce, send, recv, count, dtype, op, peer)
ANY(allgather, send, recv, count, dtype)
ANY(reduce_scatter, send, recv, count, dtype, op)
ANY(alltoall, send, recv, count, dtype)
ANY(gather, send, recv, count, dtype, peer)
ANY(scatter, send, recv, count, dtype, peer)
ANY(send, send, count, dtype, peer)
ANY(recv, recv, count, dtype, peer)
#undef ANY

static const struct collective {
    const char *name, *peer;
    any_call *call;
    bool reduces, sends, receives, send_blocks, recv_blocks;
} collectives[] = {
    {"trib_allreduce", NULL, any_allreduce, true, true, true, false, false},
    {"trib_allreduce_with", NULL, any_allreduce_with, true, true, true, false, false},
    {"trib_broadcast", "root", any_broadcast, false, true, true, false, false},
    {"trib_reduce", "root", any_reduce, true, true, true, false, false},
    {"trib_allgather", NULL, any_allgather, false, true, true, false, true},
    {"trib_reduce_scatter", NULL, any_reduce_scatter, true, true, true, true, false},
    {"trib_alltoall", NULL, any_alltoall, false, true, true, true, true},
    {"trib_gather", "root", any_gather, false, true, true, false, true},
    {"trib_scatter", "root", any_scatter, false, true, true, true, false},
    {"trib_send", "peer", any_send, false, true, false, false, false},
    {"trib_recv", "peer", any_recv, false, false, true, false, false},
};
enum { COLLECTIVES = sizeof collectives / sizeof *collectives };

/* The rank that errs is the root, so that both sides are looked at; messages go to another rank. */
static int32_t good_peer(const struct bad *bad, const struct collective *c)
{
    return c->peer != NULL && strcmp(c->peer, "peer") == 0 ? (bad->rank + 1) % bad->team.size
                                                           : bad->rank;
}

/* Bytes by which a side of blocks, or of one block, of `n` floats ends one float too far. */
static size_t one_too_far(const struct bad *bad, bool blocks, size_t n)
{
    return (BAD_FLOATS - (blocks ? (size_t)bad->team.size : 1) * n + 1) * 4;
}

static void bad_send(const struct bad *bad, const struct collective *c, size_t fits)
{
    const int32_t peer = good_peer(bad, c);
    const size_t shift = one_too_far(bad, c->send_blocks, fits);
    char *a = (char *)bad->a, *b = (char *)bad->b;
    REFUSED(c->call(bad, NULL, b, 4, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER, c->name,
            "`send`");
    REFUSED(c->call(bad, a + 1, b, 4, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER, c->name,
            "`send`");
    REFUSED(c->call(bad, a + 4, b, 4, TRIB_I64, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER, c->name,
            "`send`");
    REFUSED(c->call(bad, a + shift, b, fits, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER,
            c->name, "`send`");
    if (bad->foreign != NULL)
        REFUSED(c->call(bad, bad->foreign, b, 4, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER,
                c->name, "`send`");
}

static void bad_recv(const struct bad *bad, const struct collective *c, size_t fits)
{
    const int32_t peer = good_peer(bad, c);
    const size_t shift = one_too_far(bad, c->recv_blocks, fits);
    char *a = (char *)bad->a, *b = (char *)bad->b;
    REFUSED(c->call(bad, a, NULL, 4, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER, c->name,
            "`recv`");
    REFUSED(c->call(bad, a, b + 2, 4, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER, c->name,
            "`recv`");
    REFUSED(c->call(bad, a, b + shift, fits, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER,
            c->name, "`recv`");
    if (bad->foreign != NULL)
        REFUSED(c->call(bad, a, bad->foreign, 4, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER,
                c->name, "`recv`");
}

/* The program's memory: on host any memory is the device's. */
static void bad_memory(const struct bad *bad, const struct collective *c)
{
    const int32_t peer = good_peer(bad, c);
    float here[64] = {0};
    if (strcmp(bad->team.backend, "host") == 0)
        return;
    if (c->sends)
        REFUSED(c->call(bad, here, bad->b, 4, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER,
                c->name, "`send`");
    if (c->receives)
        REFUSED(c->call(bad, bad->a, here, 4, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER,
                c->name, "`recv`");
}

static void bad_sides(const struct bad *bad, const struct collective *c)
{
    const size_t size = (size_t)bad->team.size;
    /* So many that the last element of a side of blocks, or of one block, is one beyond the end. */
    const size_t sent = c->send_blocks ? BAD_FLOATS / size : BAD_FLOATS;
    const size_t received = c->recv_blocks ? BAD_FLOATS / size : BAD_FLOATS;
    const size_t fits = (sent < received ? sent : received) / 2;
    if (c->sends)
        bad_send(bad, c, fits);
    if (c->receives)
        bad_recv(bad, c, fits);
    bad_memory(bad, c);
}

/* Overlaps that are not "in place": a shift of one element, and the wrong block. */
static void bad_places(const struct bad *bad, const struct collective *c)
{
    const int32_t peer = good_peer(bad, c);
    float *a = bad->a;
    if (!c->sends || !c->receives)
        return;
    REFUSED(c->call(bad, a + 1, a, 8, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER, c->name,
            "overlap");
    REFUSED(c->call(bad, a, a + 7, 8, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER, c->name,
            "overlap");
    if (c->send_blocks != c->recv_blocks &&
        bad->rank > 0) /* in place is block `rank`, not block 0 */
        REFUSED(c->call(bad, a, a, 8, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_BUFFER, c->name,
                "overlap");
}

static void bad_numbers(const struct bad *bad, const struct collective *c)
{
    static const int32_t dtypes[] = {0, 11, -1}, ops[] = {0, 6, -1};
    const int32_t peer = good_peer(bad, c), peers[] = {-1, bad->team.size, INT32_MAX};
    static const size_t counts[] = {SIZE_MAX, SIZE_MAX / 4 + 1, PTRDIFF_MAX / 4 + 1};
    for (int i = 0; i < 3; i++) {
        REFUSED(c->call(bad, bad->a, bad->b, 4, dtypes[i], TRIB_SUM, peer),
                TRIB_ERR_INVALID_ARGUMENT, c->name, "`dtype`");
        /* Also where there is nothing to do. */
        REFUSED(c->call(bad, bad->a, bad->b, 0, dtypes[i], TRIB_SUM, peer),
                TRIB_ERR_INVALID_ARGUMENT, c->name, "`dtype`");
        REFUSED(c->call(bad, bad->a, bad->b, counts[i], TRIB_F32, TRIB_SUM, peer),
                TRIB_ERR_INVALID_ARGUMENT, c->name, "`count`");
        if (c->reduces)
            REFUSED(c->call(bad, bad->a, bad->b, 4, TRIB_F32, ops[i], peer),
                    TRIB_ERR_INVALID_ARGUMENT, c->name, "`op`");
        if (c->peer != NULL)
            REFUSED(c->call(bad, bad->a, bad->b, 4, TRIB_F32, TRIB_SUM, peers[i]),
                    TRIB_ERR_INVALID_ARGUMENT, c->name, c->peer);
    }
    if (c->reduces) /* the two in the wrong order */
        REFUSED(c->call(bad, bad->a, bad->b, 4, TRIB_SUM, TRIB_I32, peer),
                TRIB_ERR_INVALID_ARGUMENT, c->name, "`op` is 7, the type i32; expected one of");
    if (bad->team.size > 1 && (c->send_blocks || c->recv_blocks)) /* one block fits, two do not */
        REFUSED(c->call(bad, bad->a, bad->b, PTRDIFF_MAX / 4 - 8, TRIB_F32, TRIB_SUM, peer),
                TRIB_ERR_INVALID_ARGUMENT, c->name, "`count`");
}

static void bad_streams(const struct bad *bad, const struct collective *c)
{
    const int32_t peer = good_peer(bad, c);
    struct bad other = *bad; /* with another stream */
    other.stream = (trib_stream)(uintptr_t)2;
    REFUSED(c->call(&other, bad->a, bad->b, 4, TRIB_F32, TRIB_SUM, peer), TRIB_ERR_INVALID_STREAM,
            c->name, "per-thread");
    other.stream = bad->team.streams[0];
    if (bad->team.size > 1)
        REFUSED(c->call(&other, bad->a, bad->b, 4, TRIB_F32, TRIB_SUM, peer),
                TRIB_ERR_INVALID_STREAM, c->name, "`stream`");
    if (strcmp(bad->team.backend, "host") == 0) {
        int no_stream[64] = {0};
        other.stream = no_stream;
        REFUSED(c->call(&other, bad->a, bad->b, 4, TRIB_F32, TRIB_SUM, peer),
                TRIB_ERR_INVALID_STREAM, c->name, "`stream`");
    }
}

void bad_collectives(const struct bad *bad)
{
    trib_stream per_thread = (trib_stream)(uintptr_t)2;
    for (int i = 0; i < COLLECTIVES; i++) {
        bad_sides(bad, &collectives[i]);
        bad_places(bad, &collectives[i]);
        bad_numbers(bad, &collectives[i]);
        bad_streams(bad, &collectives[i]);
    }
    REFUSED(trib_barrier(bad->comm, per_thread), TRIB_ERR_INVALID_STREAM, "trib_barrier",
            "per-thread");
    CHECK_STATUS(trib_allreduce(NULL, bad->a, bad->b, 4, TRIB_F32, TRIB_SUM, bad->stream),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("trib_allreduce");
    CHECK_DETAIL("`comm`");
}

/* ------------------------------------------------------------------------ vectors and messages */

/* Every rank's block is 4 floats, one after the other. */
struct vector {
    size_t counts[TEAM_MAX], offsets[TEAM_MAX];
};

static struct vector good_vector(const struct bad *bad)
{
    struct vector vector;
    for (int rank = 0; rank < bad->team.size; rank++) {
        vector.counts[rank] = 4;
        vector.offsets[rank] = 4 * (size_t)rank;
    }
    return vector;
}

static trib_status gatherv(const struct bad *bad, const void *send, void *recv,
                           const struct vector *vector, trib_dtype dtype)
{
    return trib_allgatherv(bad->comm, send, recv, vector->counts, vector->offsets, dtype,
                           bad->stream);
}

static void bad_gatherv(const struct bad *bad)
{
    static const char name[] = "trib_allgatherv";
    const struct vector good = good_vector(bad);
    struct vector vector = good;
    REFUSED(gatherv(bad, NULL, bad->b, &good, TRIB_F32), TRIB_ERR_INVALID_BUFFER, name, "`send`");
    REFUSED(gatherv(bad, bad->a, NULL, &good, TRIB_F32), TRIB_ERR_INVALID_BUFFER, name, "`recv`");
    REFUSED(gatherv(bad, bad->a, bad->b, &good, 0), TRIB_ERR_INVALID_ARGUMENT, name, "`dtype`");
    REFUSED(gatherv(bad, (char *)bad->a + 1, bad->b, &good, TRIB_F32), TRIB_ERR_INVALID_BUFFER,
            name, "`send`");
    REFUSED(trib_allgatherv(bad->comm, bad->a, bad->b, NULL, good.offsets, TRIB_F32, bad->stream),
            TRIB_ERR_INVALID_ARGUMENT, name, "`counts`");
    REFUSED(trib_allgatherv(bad->comm, bad->a, bad->b, good.counts, NULL, TRIB_F32, bad->stream),
            TRIB_ERR_INVALID_ARGUMENT, name, "`offsets`");
    vector.offsets[0] = BAD_FLOATS - 3; /* one element beyond the end */
    REFUSED(gatherv(bad, bad->a, bad->b, &vector, TRIB_F32), TRIB_ERR_INVALID_BUFFER, name, "recv");
    vector.offsets[0] = SIZE_MAX / 2;
    CHECK(gatherv(bad, bad->a, bad->b, &vector, TRIB_F32) != TRIB_OK);
    CHECK_DETAIL(name);
    vector = good;
    vector.counts[0] = SIZE_MAX / 8;
    CHECK(gatherv(bad, bad->a, bad->b, &vector, TRIB_F32) != TRIB_OK);
    CHECK_DETAIL(name);
    REFUSED(gatherv(bad, bad->b + good.offsets[bad->rank] + 1, bad->b, &good, TRIB_F32),
            TRIB_ERR_INVALID_BUFFER, name, "overlap");
    if (bad->foreign == NULL)
        return;
    vector = good;
    vector.offsets[1] = 3; /* blocks 0 and 1 share an element */
    REFUSED(gatherv(bad, bad->a, bad->b, &vector, TRIB_F32), TRIB_ERR_INVALID_BUFFER, name,
            "overlap");
    REFUSED(gatherv(bad, bad->foreign, bad->b, &good, TRIB_F32), TRIB_ERR_INVALID_BUFFER, name,
            "`send`");
    REFUSED(gatherv(bad, bad->a, bad->foreign, &good, TRIB_F32), TRIB_ERR_INVALID_BUFFER, name,
            "recv");
}

/* Of empty blocks nothing is looked at, whatever their offsets and the buffers are. The batch fails
 * at its end, so nothing is counted. */
static void empty_blocks(const struct bad *bad)
{
    struct vector vector = {{0}, {0}};
    for (int rank = 0; rank < bad->team.size; rank++)
        vector.offsets[rank] = SIZE_MAX / 8;
    CHECK_OK(trib_batch_begin(bad->comm));
    CHECK_OK(gatherv(bad, NULL, NULL, &vector, TRIB_F32));
    CHECK_OK(trib_alltoallv(bad->comm, NULL, vector.counts, vector.offsets, NULL, vector.counts,
                            vector.offsets, TRIB_F32, bad->stream));
    CHECK_STATUS(gatherv(bad, NULL, NULL, &vector, 0), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_batch_end(bad->comm), TRIB_ERR_INVALID_ARGUMENT);
}

/* Blocks may lie in two allocations: each is looked at by itself. The batch fails at its end, so
 * nothing is queued. */
static void apart(const struct bad *bad)
{
    struct vector vector = {{0}, {0}};
    float *low = bad->a < bad->b ? bad->a : bad->b, *high = bad->a < bad->b ? bad->b : bad->a;
    vector.counts[0] = vector.counts[1] = 4;
    vector.offsets[1] = ((uintptr_t)high - (uintptr_t)low) / sizeof(float);
    CHECK_OK(trib_batch_begin(bad->comm));
    CHECK_OK(gatherv(bad, low + 512, low, &vector, TRIB_F32));
    vector.offsets[1] += BAD_FLOATS - 3;
    REFUSED(gatherv(bad, low + 512, low, &vector, TRIB_F32), TRIB_ERR_INVALID_BUFFER,
            "trib_allgatherv", "recv");
    CHECK_STATUS(trib_batch_end(bad->comm), TRIB_ERR_INVALID_BUFFER);
}

static trib_status allv(const struct bad *bad, const void *send, void *recv,
                        const struct vector *sent, const struct vector *received)
{
    return trib_alltoallv(bad->comm, send, sent->counts, sent->offsets, recv, received->counts,
                          received->offsets, TRIB_F32, bad->stream);
}

/* A block far beyond the allocation of its buffer, where no other is. The batch fails at its
 * end. */
static void beyond(const struct bad *bad)
{
    const struct vector good = good_vector(bad);
    for (int block = 0; block < bad->team.size; block++) {
        struct vector vector = good;
        vector.offsets[block] = (size_t)1 << 42;
        CHECK_OK(trib_batch_begin(bad->comm));
        REFUSED(gatherv(bad, bad->a, bad->b, &vector, TRIB_F32), TRIB_ERR_INVALID_BUFFER,
                "trib_allgatherv", "recv");
        REFUSED(allv(bad, bad->a, bad->b, &vector, &good), TRIB_ERR_INVALID_BUFFER,
                "trib_alltoallv", "send");
        REFUSED(allv(bad, bad->a, bad->b, &good, &vector), TRIB_ERR_INVALID_BUFFER,
                "trib_alltoallv", "recv");
        CHECK_STATUS(trib_batch_end(bad->comm), TRIB_ERR_INVALID_BUFFER);
    }
}

static void bad_allv(const struct bad *bad)
{
    static const char name[] = "trib_alltoallv";
    const struct vector good = good_vector(bad);
    struct vector vector = good;
    REFUSED(allv(bad, NULL, bad->b, &good, &good), TRIB_ERR_INVALID_BUFFER, name, "send");
    REFUSED(allv(bad, bad->a, NULL, &good, &good), TRIB_ERR_INVALID_BUFFER, name, "recv");
    REFUSED(allv(bad, bad->a, bad->a, &good, &good), TRIB_ERR_INVALID_BUFFER, name, "overlap");
    REFUSED(trib_alltoallv(bad->comm, bad->a, NULL, good.offsets, bad->b, good.counts, good.offsets,
                           TRIB_F32, bad->stream),
            TRIB_ERR_INVALID_ARGUMENT, name, "`send_counts`");
    REFUSED(trib_alltoallv(bad->comm, bad->a, good.counts, good.offsets, bad->b, good.counts, NULL,
                           TRIB_F32, bad->stream),
            TRIB_ERR_INVALID_ARGUMENT, name, "`recv_offsets`");
    vector.offsets[0] = BAD_FLOATS - 3;
    REFUSED(allv(bad, bad->a, bad->b, &vector, &good), TRIB_ERR_INVALID_BUFFER, name, "send");
    REFUSED(allv(bad, bad->a, bad->b, &good, &vector), TRIB_ERR_INVALID_BUFFER, name, "recv");
    if (bad->foreign == NULL)
        return;
    vector = good;
    vector.offsets[1] = 3;
    REFUSED(allv(bad, bad->a, bad->b, &good, &vector), TRIB_ERR_INVALID_BUFFER, name, "overlap");
}

void bad_vectors(const struct bad *bad)
{
    bad_gatherv(bad);
    empty_blocks(bad);
    if (bad->foreign != NULL)
        apart(bad);
    beyond(bad);
    bad_allv(bad);
    REFUSED(trib_send(bad->comm, bad->a, 4, TRIB_F32, bad->rank, bad->stream),
            TRIB_ERR_INVALID_USAGE, "trib_send", "batch");
    REFUSED(trib_recv(bad->comm, bad->a, 4, TRIB_F32, bad->rank, bad->stream),
            TRIB_ERR_INVALID_USAGE, "trib_recv", "batch");
}

/* -------------------------------------------------------------------------------------- lists */

static trib_status lists(const struct bad *bad, int which, const trib_tensor *tensors, size_t n)
{
    if (which == 0)
        return trib_allreduce_list(bad->comm, tensors, n, TRIB_SUM, bad->stream);
    if (which == 1)
        return trib_broadcast_list(bad->comm, tensors, n, 0, bad->stream);
    if (which == 3)
        return trib_allreduce_list_with(bad->comm, tensors, n, TRIB_SUM, &no_more, bad->stream);
    return trib_weighted_average(bad->comm, tensors, n, 1.0f, NULL, NULL, bad->stream);
}

static void bad_tensors(const struct bad *bad, int which, const char *name)
{
    const trib_tensor good = {bad->a, 8, TRIB_F32, 0};
    const struct {
        trib_tensor tensor;
        trib_status status;
        const char *says;
    } wrong[] = {
        {{NULL, 8, TRIB_F32, 0}, TRIB_ERR_INVALID_BUFFER, "tensors[1]"},
        {{(char *)bad->b + 1, 8, TRIB_F32, 0}, TRIB_ERR_INVALID_BUFFER, "tensors[1]"},
        {{bad->b, BAD_FLOATS + 1, TRIB_F32, 0}, TRIB_ERR_INVALID_BUFFER, "tensors[1]"},
        {{bad->b, SIZE_MAX / 2, TRIB_F32, 0}, TRIB_ERR_INVALID_ARGUMENT, "tensors[1]"},
        {{bad->b, 8, 0, 0}, TRIB_ERR_INVALID_ARGUMENT, "tensors[1]"},
        {{bad->b, 0, 11, 0}, TRIB_ERR_INVALID_ARGUMENT, "tensors[1]"},
        {{bad->b, 8, TRIB_F32, 1}, TRIB_ERR_INVALID_ARGUMENT, "tensors[1].reserved"},
        {{bad->a, 8, TRIB_F32, 0}, TRIB_ERR_INVALID_BUFFER, "overlap"},
        {{bad->a + 7, 8, TRIB_F32, 0}, TRIB_ERR_INVALID_BUFFER, "overlap"},
        {{bad->a + 2, 1, TRIB_F32, 0}, TRIB_ERR_INVALID_BUFFER, "overlap"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const trib_tensor tensors[] = {good, wrong[i].tensor, {bad->b + 100, 4, TRIB_F32, 0}};
        REFUSED(lists(bad, which, tensors, 3), wrong[i].status, name, wrong[i].says);
    }
    REFUSED(lists(bad, which, NULL, 1), TRIB_ERR_INVALID_ARGUMENT, name, "`tensors`");
    if (bad->foreign != NULL) {
        const trib_tensor tensors[] = {good, {bad->foreign, 8, TRIB_F32, 0}};
        REFUSED(lists(bad, which, tensors, 2), TRIB_ERR_INVALID_BUFFER, name, "tensors[1]");
    }
}

static void bad_weights(const struct bad *bad)
{
    static const char name[] = "trib_weighted_average";
    const trib_tensor good = {bad->a, 8, TRIB_F32, 0}, integers = {bad->a, 8, TRIB_I32, 0};
    const trib_status status =
        trib_weighted_average(bad->comm, &integers, 1, 1.0f, NULL, NULL, bad->stream);
    CHECK_MSG(status == TRIB_ERR_INVALID_ARGUMENT || status == TRIB_ERR_UNSUPPORTED,
              "an average of integers is %s", trib_status_name(status));
    CHECK_DETAIL("tensors[0]");
    REFUSED(trib_weighted_average(bad->comm, &good, 1, 1.0f, (float *)((char *)bad->b + 2), NULL,
                                  bad->stream),
            TRIB_ERR_INVALID_BUFFER, name, "`device_weight`");
    REFUSED(trib_weighted_average(bad->comm, &good, 1, 1.0f, NULL, (float *)((char *)bad->b + 2),
                                  bad->stream),
            TRIB_ERR_INVALID_BUFFER, name, "`device_total`");
    REFUSED(trib_weighted_average(bad->comm, &good, 1, 1.0f, NULL, bad->a + 3, bad->stream),
            TRIB_ERR_INVALID_BUFFER, name, "`device_total`");
    REFUSED(trib_weighted_average(bad->comm, &good, 1, 1.0f, bad->a + 3, NULL, bad->stream),
            TRIB_ERR_INVALID_BUFFER, name, "`device_weight`");
    if (bad->foreign != NULL)
        REFUSED(trib_weighted_average(bad->comm, &good, 1, 1.0f, bad->foreign, NULL, bad->stream),
                TRIB_ERR_INVALID_BUFFER, name, "`device_weight`");
}

void bad_lists(const struct bad *bad)
{
    static const char *const names[] = {"trib_allreduce_list", "trib_broadcast_list",
                                        "trib_weighted_average", "trib_allreduce_list_with"};
    const trib_tensor good = {bad->a, 8, TRIB_F32, 0};
    trib_stream per_thread = (trib_stream)(uintptr_t)2;
    for (int which = 0; which < 4; which++)
        bad_tensors(bad, which, names[which]);
    REFUSED(trib_allreduce_list(bad->comm, &good, 1, 0, bad->stream), TRIB_ERR_INVALID_ARGUMENT,
            names[0], "`op`");
    REFUSED(trib_broadcast_list(bad->comm, &good, 1, bad->team.size, bad->stream),
            TRIB_ERR_INVALID_ARGUMENT, names[1], "`root`");
    REFUSED(trib_allreduce_list(bad->comm, &good, 1, TRIB_SUM, per_thread), TRIB_ERR_INVALID_STREAM,
            names[0], "per-thread");
    bad_weights(bad);
}
