/* Reduce_scatters, allgathers, broadcasts and alltoalls: push serves small ones, pull larger ones of two ranks, and NCCL
 * the rest. */
#include <inttypes.h>
#include <string.h>

#include "tests/nccl_fake/fake_pull.h"
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/fixture.h"

enum { KIB = 1024, MIB = 1024 * KIB };

/* A call of every rank. */
struct call {
    struct push_ranks *ranks;
    enum kind { SCATTER, GATHER, BROADCAST, ALLTOALL, KINDS } kind;
    size_t count;
    trib_dtype dtype;
    int32_t root;
    bool in_place;
    trib_call_options options;
};

static const char *const names[KINDS] = {"reduce_scatters", "allgathers", "broadcasts",
                                         "alltoalls"};

static size_t bytes_of(const struct call *c)
{
    return c->count * trib_dtype_size(c->dtype);
}

static bool scatters(const struct call *c)
{
    return c->kind == SCATTER || c->kind == ALLTOALL;
}

static bool gathers(const struct call *c)
{
    return c->kind == GATHER || c->kind == ALLTOALL;
}

/* Where `recv` begins in the rank's buffer, whose first half is `send` unless the call is in place. */
static size_t recv_at(const struct call *c, int rank)
{
    if (c->in_place)
        return c->kind == SCATTER ? (size_t)rank * bytes_of(c) : 0;
    return (size_t)c->ranks->size * bytes_of(c);
}

static size_t send_at(const struct call *c, int rank)
{
    return c->in_place && c->kind == GATHER ? (size_t)rank * bytes_of(c) : 0;
}

static trib_status queue(const struct call *c, int rank)
{
    trib_comm *comm = c->ranks->comms[rank];
    const trib_stream stream = c->ranks->streams[rank];
    char *const data = c->ranks->data[rank];
    const void *send = data + send_at(c, rank);
    void *recv = data + recv_at(c, rank);
    switch (c->kind) {
    case SCATTER:
        return trib_reduce_scatter_with(comm, send, recv, c->count, c->dtype, TRIB_SUM, &c->options,
                                        stream);
    case ALLTOALL:
        return trib_alltoall_with(comm, send, recv, c->count, c->dtype, &c->options, stream);
    case GATHER:
        return trib_allgather_with(comm, send, recv, c->count, c->dtype, &c->options, stream);
    default:
        return trib_broadcast_with(comm, rank == c->root || c->in_place ? send : NULL, recv,
                                   c->count, c->dtype, c->root, &c->options, stream);
    }
}

static void call_rank(int rank, int size, void *argument)
{
    (void)size;
    CHECK_OK(queue(argument, rank));
}

/* ------------------------------------------------------------------------------------ the results */

/* 32-bit integers, or bits that are any type's, all ones among them. */
static uint32_t word(int rank, size_t i)
{
    return i % 7 == 3 ? UINT32_MAX : (uint32_t)(1000 * rank + (int)i);
}

static void fill(const struct call *c)
{
    const size_t words = bytes_of(c) / 4 * (scatters(c) ? (size_t)c->ranks->size : 1);
    for (int rank = 0; rank < c->ranks->size; rank++) {
        char *const data = c->ranks->data[rank];
        memset(data, 0x5a, 2 * (size_t)c->ranks->size * bytes_of(c));
        for (size_t i = 0; i < words; i++) {
            const uint32_t value = word(rank, i);
            memcpy(data + send_at(c, rank) + 4 * i, &value, sizeof value);
        }
    }
}

static uint32_t expected(const struct call *c, int rank, size_t i)
{
    const size_t words = bytes_of(c) / 4;
    uint32_t sum = 0;
    if (c->kind == BROADCAST)
        return word(c->root, i);
    const size_t own = scatters(c) ? (size_t)rank * words : 0;
    if (gathers(c))
        return word((int)(i / words), own + i % words);
    for (int other = 0; other < c->ranks->size; other++)
        sum += word(other, own + i);
    return sum;
}

static void check_rank(const struct call *c, int rank)
{
    const size_t words = bytes_of(c) / 4 * (gathers(c) ? (size_t)c->ranks->size : 1);
    const char *recv = (const char *)c->ranks->data[rank] + recv_at(c, rank);
    CHECK_OK(trib_comm_wait(c->ranks->comms[rank], c->ranks->streams[rank], PUSH_PLENTY_MS));
    for (size_t i = 0; i < words; i++) {
        uint32_t found;
        memcpy(&found, recv + 4 * i, sizeof found);
        if (!CHECK_MSG(found == expected(c, rank, i), "%s of %zu: rank %d, word %zu",
                       names[c->kind], c->count, rank, i))
            return;
    }
}

/* Of one rank after another, by one thread: no call waits for a peer. */
static void one_call(struct call *c)
{
    fill(c);
    for (int rank = 0; rank < c->ranks->size; rank++)
        call_rank(rank, c->ranks->size, c);
    for (int rank = 0; rank < c->ranks->size; rank++)
        check_rank(c, rank);
}

static void barrier(void)
{
    struct push_ranks ranks;
    push_begin("a barrier is one launch of each rank, and takes no workspace");
    if (push_open(&ranks, 3, 4, NULL)) {
        const long launches = fake_push_launches();
        for (int rank = 0; rank < 3; rank++)
            CHECK_OK(trib_barrier(ranks.comms[rank], ranks.streams[rank]));
        for (int rank = 0; rank < 3; rank++)
            CHECK_OK(trib_comm_wait(ranks.comms[rank], ranks.streams[rank], PUSH_PLENTY_MS));
        CHECK(push_counts(&ranks, 0, 1) && fake_push_launches() - launches == 3);
        trib_counters counters = TRIB_COUNTERS_INIT;
        CHECK_OK(trib_comm_counters(&counters, ranks.comms[0]));
        CHECK_MSG(counters.workspace_bytes == 0, "%" PRIu64 " bytes", counters.workspace_bytes);
        push_close(&ranks);
    }
    push_end();
}

/* Sums are of integers, copies of whatever. */
static void results(int size)
{
    static const trib_dtype copied[] = {TRIB_F32, TRIB_I8, TRIB_F16, TRIB_F64};
    struct push_ranks ranks;
    push_begin("reduce_scatters, allgathers, alltoalls and broadcasts");
    if (push_open(&ranks, size, (size_t)2 * 8 * 8 * PUSH_N, NULL)) {
        int calls = 0;
        for (int i = 0; i < 4 * KINDS * 2; i++, calls++) {
            const int turn = i / KINDS;
            struct call c = {&ranks,   (enum kind)(i % KINDS), PUSH_N, TRIB_I32, (i + turn) % size,
                             turn % 2, TRIB_CALL_OPTIONS_INIT};
            if (c.kind != SCATTER)
                c.dtype = copied[i / KINDS % 4];
            one_call(&c);
            CHECK(push_works(&ranks));
        }
        CHECK(push_counts(&ranks, 0, 2 * calls));
        push_close(&ranks);
    }
    push_end();
}

/* --------------------------------------------------------------------------------------- the limits */

/* What a rank sends to each peer counts, with more than 4 ranks all that it sends; a copy's chunks have 8
 * bytes of it. */
static size_t most_of(const struct call *c, size_t limit)
{
    const size_t chunks =
        limit / TRI_PUSH_CHUNK / (size_t)(c->ranks->size <= 4 ? 1 : c->ranks->size - 1);
    const bool wide = c->kind != SCATTER || tri_push_is_wide(c->dtype);
    return chunks * TRI_PUSH_CHUNK / (wide ? 2 : 1) / trib_dtype_size(c->dtype);
}

static bool is_pulled(const struct call *c)
{
    return c->kind == BROADCAST ? c->ranks->size == 2 && bytes_of(c) > MIB : c->ranks->size <= 4;
}

/* A call that is too large for push has been made since `before`: pull has served it, through scratch or not,
 * or NCCL. */
static void check_server(const struct call *c, struct fake_pulls before, bool pulled, bool staged)
{
    const int size = c->ranks->size;
    const long messages = c->kind == ALLTOALL ? 2 * size : 1; /* of a rank, if NCCL gets them */
    for (int rank = 0; rank < size; rank++)
        CHECK_OK(trib_comm_wait(c->ranks->comms[rank], c->ranks->streams[rank], PUSH_PLENTY_MS));
    CHECK_MSG(push_counts(c->ranks, pulled ? 0 : size * messages, 0) &&
                  fake_pulls().done - before.done == pulled &&
                  fake_pulls().staged - before.staged == staged,
              "%s of %zu %s", names[c->kind], c->count, trib_dtype_name(c->dtype));
}

static void check_larger(struct call *c)
{
    const struct fake_pulls before = fake_pulls();
    const bool pulled = is_pulled(c);
    if (pulled && c->dtype == TRIB_I32)
        one_call(c);
    else
        check_ranks(c->ranks->size, call_rank, c);
    check_server(c, before, pulled, false);
}

static void check_limit(struct push_ranks *ranks, enum kind kind, trib_dtype dtype, size_t limit)
{
    struct call c = {ranks, kind, 0, dtype, ranks->size - 1, false, TRIB_CALL_OPTIONS_INIT};
    c.count = most_of(&c, limit);
    (void)push_counts(ranks, -1, -1);
    if (dtype == TRIB_I32)
        one_call(&c);
    else
        check_ranks(ranks->size, call_rank, &c);
    CHECK_MSG(push_counts(ranks, 0, 1), "%s of %zu %s", names[kind], c.count,
              trib_dtype_name(dtype));
    c.count++;
    check_larger(&c);
}

/* Bytes of a rank's chunks: `limit` of reduce_scatters, `copies` of the others; of alltoalls of 2 ranks half of it. */
static size_t limit_of(enum kind kind, int size, size_t limit, size_t copies)
{
    return kind == SCATTER ? limit : kind == ALLTOALL && size == 2 ? copies / 2 : copies;
}

static void limits(int size, uint64_t peer_bytes, size_t limit, size_t copies)
{
    static const trib_dtype dtypes[] = {TRIB_I32, TRIB_F16, TRIB_F64};
    struct push_ranks ranks;
    trib_options options = TRIB_OPTIONS_INIT;
    options.peer_bytes = peer_bytes;
    push_begin("limits of reduce_scatters, allgathers, alltoalls and broadcasts");
    if (push_open(&ranks, size, (size_t)size * 2 * (limit + 64), &options)) {
        for (int kind = 0; kind < KINDS; kind++)
            for (size_t i = 0; i < 3; i++)
                check_limit(&ranks, (enum kind)kind, dtypes[i],
                            limit_of((enum kind)kind, size, limit, copies));
        push_close(&ranks);
    }
    push_end();
}

/* --------------------------------------------------------------------------------------------- pull */

/* In place and not, from every root, all mapped or one rank's memory of a pool of its own; more than takes
 * single steps, and less. */
static void pulled(size_t count)
{
    struct push_ranks ranks;
    push_begin("larger reduce_scatters, allgathers, alltoalls and broadcasts");
    trib_options options = TRIB_OPTIONS_INIT;
    options.peer_bytes = (uint64_t)40960 * KIB;
    if (push_open(&ranks, 2, 2 * 2 * 4 * count, &options)) {
        for (int i = 0; i < KINDS * 4 * 3; i++) {
            const int staged = i / KINDS / 4;
            const struct fake_pulls before = fake_pulls();
            const int turn = i / KINDS;
            struct call c = {&ranks,   (enum kind)(i % KINDS), count, TRIB_I32, (i + turn / 2) % 2,
                             turn % 2, TRIB_CALL_OPTIONS_INIT};
            if (!is_pulled(&c))
                continue;
            if (staged != 0)
                fake_pool(ranks.data[staged - 1], false);
            one_call(&c);
            if (staged != 0)
                fake_pool(ranks.data[staged - 1], true);
            /* of a broadcast only the root's memory counts, and an alltoall in place sends a copy */
            const bool goes = staged != 0 && (c.kind != BROADCAST || c.root == staged - 1) &&
                              (c.kind != ALLTOALL || !c.in_place);
            check_server(&c, before, true, goes);
        }
        push_close(&ranks);
    }
    push_end();
}

/* Up to `bytes` of the longer buffer, of any type; then NCCL is the faster one. */
static void most(int size, enum kind kind, size_t bytes, trib_dtype dtype)
{
    const size_t blocks = kind == BROADCAST ? 1 : (size_t)size;
    struct push_ranks ranks;
    const trib_options options = TRIB_OPTIONS_INIT;
    push_begin("up to where pull goes with reduce_scatters, allgathers, alltoalls and broadcasts");
    if (push_open(&ranks, size, bytes + 8 * blocks, &options)) {
        struct call c = {&ranks,
                         kind,
                         bytes / trib_dtype_size(dtype) / blocks,
                         dtype,
                         0,
                         true,
                         TRIB_CALL_OPTIONS_INIT};
        for (int over = 0; over < 2; over++, c.count++) {
            const struct fake_pulls before = fake_pulls();
            check_ranks(size, call_rank, &c);
            check_server(&c, before, over == 0, false);
        }
        push_close(&ranks);
    }
    push_end();
}

static void limits_of_pull(void)
{
#ifdef __SANITIZE_THREAD__
    return; /* hundreds of MiB, and no other threads than elsewhere here */
#endif
    most(2, SCATTER, (size_t)256 * MIB, TRIB_F32);
    most(2, GATHER, (size_t)256 * MIB, TRIB_F64);
    most(2, ALLTOALL, (size_t)256 * MIB, TRIB_F16);
    most(2, BROADCAST, (size_t)64 * MIB, TRIB_F16);
    most(3, SCATTER, (size_t)4 * MIB, TRIB_F64);
    most(3, GATHER, (size_t)256 * MIB, TRIB_F16);
    most(3, ALLTOALL, (size_t)16 * MIB, TRIB_F32);
    most(4, SCATTER, (size_t)256 * MIB, TRIB_F16);
    most(4, GATHER, (size_t)256 * MIB, TRIB_F32);
    most(4, ALLTOALL, (size_t)256 * MIB, TRIB_F64);
}

static void refused(const struct call *c, const char *why)
{
    for (int rank = 0; rank < c->ranks->size; rank++) {
        CHECK_STATUS(queue(c, rank), TRIB_ERR_UNSUPPORTED);
        CHECK_DETAIL(why);
    }
}

/* A small call by push, by pull, and by NCCL; and what serves none. */
static void named(struct push_ranks *ranks, enum kind kind, bool in_place)
{
    struct call c = {ranks, kind, PUSH_N, TRIB_I32, 1, in_place, TRIB_CALL_OPTIONS_INIT};
    const struct fake_pulls before = fake_pulls();
    (void)push_counts(ranks, -1, -1);
    c.options.variant = TRIB_VARIANT_PUSH;
    one_call(&c);
    CHECK(push_counts(ranks, 0, 1));
    c.options.variant = TRIB_VARIANT_ONE_SHOT;
    one_call(&c);
    check_server(&c, before, true, false);
    c.options.variant = TRIB_VARIANT_NCCL;
    const struct fake_pulls pulled = fake_pulls();
    check_ranks(ranks->size, call_rank, &c);
    check_server(&c, pulled, false, false);
    c.options.variant = TRIB_VARIANT_TWO_SHOT;
    refused(&c, "allreduces alone");
    c.options.variant = TRIB_VARIANT_WINDOW;
    refused(&c, "TRIB_WINDOWS");
    c.options.variant = TRIB_VARIANT_PUSH;
    c.count = (size_t)1024 * KIB;
    refused(&c, "small enough");
    c.options.flags = TRIB_CALL_FACTOR;
    refused(&c, "a factor");
}

static void by_name(void)
{
    struct push_ranks ranks;
    const trib_options options = TRIB_OPTIONS_INIT;
    push_begin("variants of reduce_scatters, allgathers, alltoalls and broadcasts");
    if (push_open(&ranks, 3, (size_t)2 * 3 * 4 * 1024 * KIB, &options)) {
        for (int kind = 0; kind < KINDS; kind++)
            for (int in_place = 0; in_place < 2; in_place++)
                named(&ranks, (enum kind)kind, in_place);
        CHECK(push_works(&ranks));
        push_close(&ranks);
    }
    push_end();
}

/* Without peers NCCL moves the data, an alltoall's as messages. */
static void moved(void)
{
    struct push_ranks ranks;
    trib_options options = TRIB_OPTIONS_INIT;
    options.peer_bytes = TRIB_NO_PEERS;
    push_begin("kinds that NCCL serves");
    if (push_open(&ranks, 3, (size_t)2 * 3 * 4 * PUSH_N, &options)) {
        fake_move_data(true);
        for (int kind = 0; kind < KINDS; kind++) {
            struct call c = {&ranks, (enum kind)kind,       PUSH_N, TRIB_U32, 1,
                             false,  TRIB_CALL_OPTIONS_INIT};
            fill(&c);
            check_ranks(3, call_rank, &c);
            for (int rank = 0; rank < 3; rank++)
                check_rank(&c, rank);
        }
        fake_move_data(false);
        push_close(&ranks);
    }
    push_end();
}

void push_kinds(void)
{
    moved();
    by_name();
    for (int size = 2; size <= 8; size += 3)
        results(size);
    barrier();
    limits(2, 0, (size_t)4096 * KIB, (size_t)2048 * KIB);
    limits(2, (uint64_t)40960 * KIB, (size_t)2048 * KIB, (size_t)2048 * KIB);
    limits(2, (uint64_t)65536 * KIB, (size_t)4096 * KIB, (size_t)2048 * KIB);
    limits(4, 0, (size_t)512 * KIB, (size_t)512 * KIB);
    limits(3, (uint64_t)57344 * KIB, (size_t)512 * KIB, (size_t)512 * KIB);
    limits(8, 0, (size_t)256 * KIB, (size_t)256 * KIB);
    pulled((size_t)257 * KIB + 3);
    pulled((size_t)512 * KIB + 1);
    limits_of_pull();
}
