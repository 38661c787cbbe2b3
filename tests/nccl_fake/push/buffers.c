/* Where the buffers of a call may lie: every rule of every variant, of what a rank sends and of where it receives. A
 * refusal tells which buffer of which call, and what to do, and queues nothing. */
#include "tests/nccl_fake/fake_pull.h"
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum {
    RANKS = 2,
    ROOT = 1,
    SMALL = PUSH_N,
    LARGE = (1 << 19) + 4, /* elements: pull serves all kinds of it */
    BYTES = RANKS * 4 * LARGE,
    ABORTABLE = 22907, /* the first NCCL whose calls on windows an abort ends */
    NOBODY = -1
};

enum kind { ALLREDUCE, SCATTER, GATHER, ALLTOALL, BROADCAST, KINDS };
enum side { SENT, RECEIVED, SIDES };
/* Of cudaMalloc; of a pool that is its device's alone; and symmetric, which is a window as well with TRIB_WINDOWS. */
enum place { MAPPED, UNMAPPED, SYMMETRIC, PLACES };
enum server { BY_NCCL, BY_PUSH, BY_PULL };

/* Which buffers a call refuses that lie in `bad`; NEVER: the variant serves no such call. */
enum refused { NONE = 0, SEND = 1 << SENT, RECV = 1 << RECEIVED, BOTH = SEND | RECV, NEVER = 4 };

static const struct rule {
    const char *name;
    trib_variant variant;
    uint32_t flags;
    bool windows; /* the communicator has them */
    size_t count;
    enum server server;
    enum place good, bad;
    enum refused of_allreduces, of_others;
} rules[] = {
    /* Peers write the result of two shots, and read what is sent in all other calls. */
    {"unstaged calls", TRIB_VARIANT_AUTO, TRIB_CALL_UNSTAGED, false, LARGE, BY_PULL, MAPPED,
     UNMAPPED, RECV, SEND},
    {"unstaged calls beside symmetric memory", TRIB_VARIANT_AUTO, TRIB_CALL_UNSTAGED, false, LARGE,
     BY_PULL, SYMMETRIC, UNMAPPED, RECV, SEND},
    {"unstaged calls in one shot", TRIB_VARIANT_ONE_SHOT, TRIB_CALL_UNSTAGED, false, SMALL, BY_PULL,
     MAPPED, UNMAPPED, SEND, SEND},
    {"unstaged calls in two shots", TRIB_VARIANT_TWO_SHOT, TRIB_CALL_UNSTAGED, false, SMALL,
     BY_PULL, MAPPED, UNMAPPED, RECV, NEVER},
    /* Push and NCCL stage nothing. */
    {"unstaged small calls", TRIB_VARIANT_AUTO, TRIB_CALL_UNSTAGED, false, SMALL, BY_PUSH, MAPPED,
     UNMAPPED, NONE, NONE},
    {"unstaged calls of push", TRIB_VARIANT_PUSH, TRIB_CALL_UNSTAGED, false, SMALL, BY_PUSH, MAPPED,
     UNMAPPED, NONE, NONE},
    {"unstaged calls of NCCL", TRIB_VARIANT_NCCL, TRIB_CALL_UNSTAGED, false, SMALL, BY_NCCL, MAPPED,
     UNMAPPED, NONE, NONE},
    /* Peers write results of allreduces alone; NCCL's windows have both buffers or none. */
    {"symmetric calls", TRIB_VARIANT_SYMMETRIC, 0, false, SMALL, BY_PUSH, SYMMETRIC, MAPPED, BOTH,
     SEND},
    {"large symmetric calls", TRIB_VARIANT_SYMMETRIC, TRIB_CALL_UNSTAGED, false, LARGE, BY_PULL,
     SYMMETRIC, MAPPED, BOTH, SEND},
    {"symmetric calls beside windows", TRIB_VARIANT_SYMMETRIC, 0, true, SMALL, BY_PUSH, SYMMETRIC,
     MAPPED, BOTH, BOTH},
    {"calls on windows", TRIB_VARIANT_WINDOW, 0, true, SMALL, BY_NCCL, SYMMETRIC, MAPPED, BOTH,
     BOTH},
    {"unstaged calls on windows", TRIB_VARIANT_WINDOW, TRIB_CALL_UNSTAGED, true, SMALL, BY_NCCL,
     SYMMETRIC, MAPPED, BOTH, BOTH},
    {"calls on windows that there are not", TRIB_VARIANT_WINDOW, 0, false, SMALL, BY_NCCL,
     SYMMETRIC, MAPPED, NEVER, NEVER},
};

/* A call of every rank. All buffers are good but one of them, or all are. */
struct call {
    struct push_ranks *ranks;
    void *(*data)[SIDES][RANKS]; /* by place */
    const struct rule *rule;
    enum kind kind;
    uint32_t flags;
    int odd; /* the rank of the bad one, or NOBODY */
    enum side side;
    bool in_place;
};

static const char *const operations[KINDS] = {
    "trib_allreduce_with on rank", "trib_reduce_scatter on rank", "trib_allgather on rank",
    "trib_alltoall on rank", "trib_broadcast on rank"};

static bool scatters(const struct call *c)
{
    return c->kind == SCATTER || c->kind == ALLTOALL;
}

static bool gathers(const struct call *c)
{
    return c->kind == GATHER || c->kind == ALLTOALL;
}

static void *buffer_of(const struct call *c, int rank, enum side side)
{
    const bool is_bad = rank == c->odd && side == c->side;
    return c->data[is_bad ? c->rule->bad : c->rule->good][side][rank];
}

static void *result_of(const struct call *c, int rank)
{
    return buffer_of(c, rank, c->in_place ? SENT : RECEIVED);
}

static trib_status queue(const struct call *c, int rank)
{
    trib_comm *comm = c->ranks->comms[rank];
    const trib_stream stream = c->ranks->streams[rank];
    const void *send = buffer_of(c, rank, SENT);
    void *recv = result_of(c, rank);
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.variant = c->rule->variant;
    options.flags = c->flags;
    switch (c->kind) {
    case ALLREDUCE:
        return trib_allreduce_with(comm, send, recv, c->rule->count, TRIB_U32, TRIB_SUM, &options,
                                   stream);
    case SCATTER:
        return trib_reduce_scatter_with(comm, send, recv, c->rule->count, TRIB_U32, TRIB_SUM,
                                        &options, stream);
    case GATHER:
        return trib_allgather_with(comm, send, recv, c->rule->count, TRIB_U32, &options, stream);
    case ALLTOALL:
        return trib_alltoall_with(comm, send, recv, c->rule->count, TRIB_U32, &options, stream);
    default:
        return trib_broadcast_with(comm, send, recv, c->rule->count, TRIB_U32, ROOT, &options,
                                   stream);
    }
}

static void call_rank(int rank, int size, void *argument)
{
    (void)size;
    CHECK_OK(queue(argument, rank));
}

/* ------------------------------------------------------------------------------------ the results */

static uint32_t word(int rank, size_t i)
{
    return (uint32_t)(1000 * (rank + 1) + (int)(i % 997));
}

static void fill(const struct call *c)
{
    const size_t sent = c->rule->count * (scatters(c) ? RANKS : 1);
    const size_t received = c->rule->count * (gathers(c) ? RANKS : 1);
    for (int rank = 0; rank < RANKS; rank++) {
        uint32_t *send = buffer_of(c, rank, SENT), *recv = result_of(c, rank);
        for (size_t i = 0; i < received; i++)
            recv[i] = 0;
        for (size_t i = 0; i < sent; i++)
            send[i] = word(rank, i);
    }
}

static uint32_t expected(const struct call *c, int rank, size_t i)
{
    const size_t count = c->rule->count;
    const size_t at = (scatters(c) ? (size_t)rank * count : 0) + i % count;
    if (c->kind == ALLREDUCE || c->kind == SCATTER)
        return word(0, at) + word(1, at);
    return word(c->kind == BROADCAST ? ROOT : (int)(i / count), at);
}

static void check_rank(const struct call *c, int rank)
{
    const size_t received = c->rule->count * (gathers(c) ? RANKS : 1);
    const uint32_t *recv = result_of(c, rank);
    CHECK_OK(trib_comm_wait(c->ranks->comms[rank], c->ranks->streams[rank], PUSH_PLENTY_MS));
    for (size_t i = 0; i < received; i++)
        if (!CHECK_MSG(recv[i] == expected(c, rank, i), "%s %d, element %zu: %u",
                       operations[c->kind], rank, i, (unsigned)recv[i]))
            return;
}

/* All ranks make the call; `staged`: the odd rank's buffer goes through scratch. */
static void check_served(struct call *c, bool staged)
{
    const bool is_nccls = c->rule->server == BY_NCCL;
    const long messages = c->kind == ALLTOALL ? 2 * RANKS : 1; /* of a rank, if NCCL gets them */
    const uint64_t counted[RANKS] = {large_staged(c->ranks, 0), large_staged(c->ranks, 1)};
    fill(c);
    fake_move_data(is_nccls);
    check_ranks(RANKS, call_rank, c);
    fake_move_data(false);
    for (int rank = 0; rank < RANKS; rank++) {
        check_rank(c, rank);
        CHECK_MSG(large_staged(c->ranks, rank) == counted[rank] + (staged && rank == c->odd),
                  "%s %d: staged_calls", operations[c->kind], rank);
    }
    CHECK_MSG(large_counts(c->ranks, is_nccls ? RANKS * messages : 0, c->rule->server == BY_PUSH,
                           c->rule->server == BY_PULL, staged),
              "%s %d: who serves it", operations[c->kind], c->odd);
}

/* The rank alone makes the call, and nothing comes of it. */
static void check_refused(const struct call *c, int rank, trib_status status, const char *what,
                          const char *remedy)
{
    const long launches = fake_push_launches();
    const uint64_t counted = large_staged(c->ranks, rank);
    CHECK_STATUS(queue(c, rank), status);
    CHECK_DETAIL(operations[c->kind]);
    CHECK_DETAIL(what);
    CHECK_DETAIL(remedy);
    CHECK(large_counts(c->ranks, 0, 0, 0, 0) && fake_push_launches() == launches &&
          large_staged(c->ranks, rank) == counted);
    CHECK(push_is_done(c->ranks, rank));
}

/* ------------------------------------------------------------------------------------ the rules */

static enum refused refused_by(const struct call *c)
{
    return c->kind == ALLREDUCE ? c->rule->of_allreduces : c->rule->of_others;
}

/* Only the root sends in a broadcast. */
static bool is_refused(const struct call *c)
{
    const bool sends = c->kind != BROADCAST || c->odd == ROOT;
    return (refused_by(c) >> c->side & 1) != 0 && (c->side != SENT || sends);
}

/* One buffer is bad; the flag alone refuses what goes through scratch without it. */
static void check_odd(struct call *c)
{
    const char *const tensor = c->side == SENT ? "`send`" : "`recv`";
    if (!is_refused(c)) {
        check_served(c, false);
        return;
    }
    check_refused(c, c->odd, TRIB_ERR_INVALID_BUFFER, tensor, "trib_symmetric_alloc");
    if (c->rule->bad != UNMAPPED || check_failed())
        return;
    c->flags = 0;
    check_served(c, true);
    c->flags = c->rule->flags;
}

/* The call of good buffers is served behind every refusal. */
static void check_kind(struct call *c)
{
    const bool never = refused_by(c) == NEVER;
    const char *const name = trib_variant_name(c->rule->variant);
    if (!never)
        check_served(c, false); /* NCCL's first call would wait for that of the other rank */
    for (int i = 0; i < RANKS * SIDES && !check_failed(); i++) {
        c->odd = i / SIDES;
        c->side = (enum side)(i % SIDES);
        if (never)
            check_refused(c, c->odd, TRIB_ERR_UNSUPPORTED, name, "TRIB_VARIANT_AUTO serves");
        else
            check_odd(c);
        c->odd = NOBODY;
        if (!never && !check_failed())
            check_served(c, false);
    }
}

/* An alltoall in place sends from a copy, in memory that all devices map, wherever the buffer lies. */
static void check_copied(struct call *c)
{
    c->kind = ALLTOALL;
    c->in_place = true;
    for (int rank = 0; rank < RANKS && !check_failed(); rank++) {
        c->odd = rank;
        c->side = SENT;
        check_served(c, false);
    }
    c->odd = NOBODY;
    c->in_place = false;
}

static void allocate_rank(int rank, int size, void *argument)
{
    const struct call *c = argument;
    (void)size;
    for (int side = 0; side < SIDES; side++) {
        CHECK_OK(trib_device_alloc(&c->data[MAPPED][side][rank], c->ranks->devices[rank], BYTES));
        CHECK_OK(trib_device_alloc(&c->data[UNMAPPED][side][rank], c->ranks->devices[rank], BYTES));
        CHECK_OK(
            trib_symmetric_alloc(&c->data[SYMMETRIC][side][rank], c->ranks->comms[rank], BYTES));
        fake_pool(c->data[UNMAPPED][side][rank], false);
    }
}

/* Symmetric memory is left to the communicators. */
static void free_all(const struct call *c)
{
    for (int i = 0; i < SYMMETRIC * SIDES * RANKS; i++) {
        const int rank = i % RANKS;
        CHECK_OK(trib_device_free(c->ranks->devices[rank],
                                  c->data[i / RANKS / SIDES][i / RANKS % SIDES][rank]));
    }
}

static void check_rule(const struct rule *rule)
{
    static void *data[PLACES][SIDES][RANKS];
    struct push_ranks ranks;
    struct call c = {&ranks, data, rule, ALLREDUCE, rule->flags, NOBODY, SENT, false};
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = rule->windows ? TRIB_WINDOWS : 0;
    push_begin(rule->name);
    fake_version(ABORTABLE);
    if (push_open(&ranks, RANKS, 4, &options)) {
        check_ranks(RANKS, allocate_rank, &c);
        (void)large_counts(&ranks, -1, -1, -1, -1);
        for (int kind = 0; kind < KINDS; kind++) {
            c.kind = (enum kind)kind;
            check_kind(&c);
        }
        if (rule->server == BY_PULL && rule->bad == UNMAPPED && rule->variant == TRIB_VARIANT_AUTO)
            check_copied(&c);
        free_all(&c);
        push_close(&ranks);
    }
    CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
    fake_version(0);
    push_end();
}

void push_buffers(void)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        check_rule(&rules[i]);
}
