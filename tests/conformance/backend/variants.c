/* Calls by the name of each variant, in plain and in symmetric memory, of sizes next to those from which on
 * another kernel takes over (PEERS): who serves a call gives its result, and who does not refuses it, with
 * nothing queued. */
#include <string.h>

#include "tests/conformance/backend/trial.h"
#include "tests/conformance/reference.h"

enum { LARGE = 1100003, KIB = 1024, MIB = 1 << 20, MANY_RANKS = 8 };

struct round {
    struct suite *suite;
    enum trial_kind kind;
    trib_dtype dtype;
};

/* One rank: buffers of cudaMalloc or its like, and symmetric ones. */
struct buffers {
    struct guarded plain[2], symmetric[2];
    void *shared[2]; /* NULL: there is none */
};

static bool is_nccl(const struct suite *suite)
{
    return strcmp(suite->team.backend, "nccl") == 0;
}

/* ------------------------------------------------------------------------------------ who serves */

/* Bytes that push takes of a block, over NVLink, in one process. */
static size_t most_of_push(enum trial_kind kind, trib_dtype dtype, int size)
{
    const size_t wide = dtype > TRIB_F32 ? 2 : 1;
    if (kind == TRIAL_ALLREDUCE)
        return (size == 2 ? 4 * MIB : size == 3 ? 3 * MIB : 2796160) / wide;
    if (kind == TRIAL_REDUCE_SCATTER)
        return (size == 2 ? 4 * MIB : MIB / 2) / wide;
    if (size != 2)
        return MIB / 4;
    return kind == TRIAL_ALLTOALL ? MIB / 2 : MIB;
}

/* And from which on it takes two shots. */
static size_t most_of_one_shot(trib_dtype dtype, int size)
{
    const size_t kib = size == 2 ? 768 : size == 3 ? 384 : 256;
    return kib * KIB / (dtype > TRIB_F32 ? 2 : 1);
}

/* Of communicators without pull the sizes here are small enough for every machine. */
static bool push_serves(const struct round *round, const struct trial *t)
{
    const int size = t->suite->team.size;
    if (round->suite->reach != BACKEND_REACHES_ALL)
        return round->suite->reach == BACKEND_REACHES_SMALL;
    return t->count * trib_dtype_size(t->dtype) <= most_of_push(t->kind, t->dtype, size);
}

static bool serves(const struct round *round, const struct trial *t)
{
    const bool alone = is_nccl(t->suite) && t->suite->team.size == 1;
    const bool pulls = round->suite->reach == BACKEND_REACHES_ALL;
    switch (t->variant) {
    case TRIB_VARIANT_NCCL:
        return is_nccl(t->suite);
    case TRIB_VARIANT_PUSH:
        return alone || push_serves(round, t);
    case TRIB_VARIANT_ONE_SHOT:
        return alone || (pulls && (t->kind != TRIAL_ALLREDUCE || !t->in_place));
    case TRIB_VARIANT_TWO_SHOT:
        return t->kind == TRIAL_ALLREDUCE && (alone || pulls);
    default: /* WINDOW: there are none */
        return t->variant == TRIB_VARIANT_AUTO || t->variant == TRIB_VARIANT_SYMMETRIC;
    }
}

/* ----------------------------------------------------------------------------------------- calls */

static uint64_t queued(trib_comm *comm)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, comm));
    return counters.calls + counters.backend_calls;
}

static trib_status call_with(const struct trial *t, const void *send, void *recv,
                             const trib_call_options *options)
{
    trib_comm *comm = t->suite->team.comms[t->rank];
    trib_stream stream = t->suite->team.streams[t->rank];
    switch (t->kind) {
    case TRIAL_ALLREDUCE:
        return trib_allreduce_with(comm, send, recv, t->count, t->dtype, t->op, options, stream);
    case TRIAL_BROADCAST:
        return trib_broadcast_with(comm, send, recv, t->count, t->dtype, t->root, options, stream);
    case TRIAL_ALLGATHER:
        return trib_allgather_with(comm, send, recv, t->count, t->dtype, options, stream);
    case TRIAL_REDUCE_SCATTER:
        return trib_reduce_scatter_with(comm, send, recv, t->count, t->dtype, t->op, options,
                                        stream);
    default:
        return trib_alltoall_with(comm, send, recv, t->count, t->dtype, options, stream);
    }
}

static trib_status call(const struct trial *t, const void *send, void *recv)
{
    trib_comm *comm = t->suite->team.comms[t->rank];
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    const uint64_t before = queued(comm);
    options.variant = t->variant;
    const trib_status status = call_with(t, send, recv, &options);
    if (t->expected != TRIB_OK && status == t->expected) {
        CHECK_DETAIL(trib_variant_name(t->variant));
        CHECK_DETAIL("TRIB_VARIANT_AUTO serves every call");
        CHECK(queued(comm) == before);
    }
    return status;
}

static bool try_place(const struct round *round, struct trial *t, struct guarded *buffers,
                      bool in_place)
{
    t->in_place = in_place;
    t->expected = serves(round, t) ? TRIB_OK : TRIB_ERR_UNSUPPORTED;
    t->seed++;
    return in_place ? trial_in_place(t, &buffers[0])
                    : trial_out_of_place(t, &buffers[0], &buffers[1]);
}

/* In turn every reduction, or root. */
static bool try_count(const struct round *round, struct trial *t, int turn, struct guarded *buffers)
{
    t->op = trial_kinds[t->kind].reduces ? TRIB_SUM + turn % TRIB_AVG : REFERENCE_MOVED;
    t->root = trial_kinds[t->kind].rooted ? turn % t->suite->team.size : 0;
    return backend_go_on(t->suite, t->rank,
                         try_place(round, t, buffers, false) && try_place(round, t, buffers, true));
}

/* ------------------------------------------------------------------------------------------ walks */

static struct counts counts_of(const struct round *round)
{
    const int size = round->suite->team.size;
    const size_t width = trib_dtype_size(round->dtype);
    if (round->suite->reach != BACKEND_REACHES_ALL)
        return (struct counts){3, {1, 17, 131}};
    const size_t push = most_of_push(round->kind, round->dtype, size) / width;
    if (round->suite->depth != BACKEND_WHOLE)
        return (struct counts){4, {1, 17, push, push + 1}};
    const size_t shot = most_of_one_shot(round->dtype, size) / width;
    struct counts counts = {7, {1, 1023, shot, shot + 1, push, push + 1, MIB / width + 1}};
    if (round->dtype == TRIB_F32)
        counts.at[counts.n++] = LARGE;
    return counts;
}

static size_t capacity_of(const struct round *round)
{
    const struct counts counts = counts_of(round);
    size_t most = 0;
    for (size_t i = 0; i < counts.n; i++)
        most = counts.at[i] > most ? counts.at[i] : most;
    return most * trib_dtype_size(round->dtype) * (size_t)round->suite->team.size;
}

static bool open_buffers(struct buffers *b, const struct round *round, int rank)
{
    const struct team *team = &round->suite->team;
    trib_device *device = team->devices[rank];
    const size_t capacity = capacity_of(round);
    const bool reach =
        round->suite->reach != BACKEND_REACHES_NONE || !is_nccl(round->suite) || team->size == 1;
    *b = (struct buffers){.shared = {NULL, NULL}};
    bool good = guarded_create(&b->plain[0], device, capacity);
    good = guarded_create(&b->plain[1], device, capacity) && good;
    for (int i = 0; i < 2 && reach && good; i++) {
        good = CHECK_OK(
            trib_symmetric_alloc(&b->shared[i], team->comms[rank], guarded_room(capacity)));
        if (good)
            guarded_over(&b->symmetric[i], device, b->shared[i], capacity);
    }
    return backend_go_on(round->suite, rank, good);
}

/* After a failure, too, copies that are queued use them. */
static void close_buffers(struct buffers *b, const struct team *team, int rank)
{
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    for (int i = 0; i < 2; i++) {
        guarded_destroy(&b->plain[i]);
        if (b->shared[i] == NULL)
            continue;
        guarded_leave(&b->symmetric[i]);
        CHECK_OK(trib_symmetric_free(team->comms[rank], b->shared[i]));
    }
}

/* SYMMETRIC refuses plain buffers in another way (symmetric.c); of symmetric ones those that reach them
 * where they lie are tried once more. */
static bool is_tried(trib_variant variant, bool symmetric)
{
    const bool reaches = variant == TRIB_VARIANT_ONE_SHOT || variant == TRIB_VARIANT_TWO_SHOT;
    return symmetric ? reaches || variant == TRIB_VARIANT_SYMMETRIC
                     : variant != TRIB_VARIANT_SYMMETRIC;
}

/* In some place, if not of every size. */
static bool serves_some(const struct round *round, struct trial *t)
{
    t->count = 1;
    t->in_place = false; /* who serves a call in place serves it out of place */
    return serves(round, t);
}

static bool try_memory(const struct round *round, struct trial *t, bool symmetric,
                       struct guarded *buffers)
{
    const struct counts counts = counts_of(round);
    int turn = 0;
    for (t->variant = TRIB_VARIANT_AUTO; t->variant <= TRIB_VARIANT_WINDOW; t->variant++) {
        const bool kernels = t->variant >= TRIB_VARIANT_PUSH && t->variant <= TRIB_VARIANT_TWO_SHOT;
        t->in_order = kernels && t->suite->team.size > 1;
        const size_t n = !is_tried(t->variant, symmetric) ? 0
                         : serves_some(round, t)          ? counts.n
                                                          : 1;
        for (size_t i = 0; i < n; i++) {
            t->count = counts.at[i];
            if (!try_count(round, t, turn++, buffers))
                return false;
        }
    }
    return true;
}

static void round_of_rank(int rank, int size, void *argument)
{
    const struct round *round = argument;
    struct buffers buffers;
    struct trial t = {.suite = round->suite,
                      .call = call,
                      .kind = round->kind,
                      .dtype = round->dtype,
                      .rank = rank,
                      .seed = round->suite->seed};
    (void)size;
    if (open_buffers(&buffers, round, rank) && try_memory(round, &t, false, buffers.plain) &&
        buffers.shared[0] != NULL)
        (void)try_memory(round, &t, true, buffers.symmetric);
    close_buffers(&buffers, &round->suite->team, rank);
}

/* Copies move bytes, and two widths of them. */
static bool is_of(enum trial_kind kind, trib_dtype dtype, int size)
{
    const bool few = size > MANY_RANKS || !trial_kinds[kind].reduces;
    return dtype == TRIB_F64 || dtype == TRIB_I8 ||
           (!few && (dtype == TRIB_BF16 || dtype == TRIB_F32));
}

void backend_variants(struct suite *suite)
{
    static const enum trial_kind kinds[] = {TRIAL_ALLREDUCE, TRIAL_BROADCAST, TRIAL_ALLGATHER,
                                            TRIAL_REDUCE_SCATTER, TRIAL_ALLTOALL};
    struct round round = {.suite = suite};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (round.dtype = TRIB_F16; round.dtype <= TRIB_U64; round.dtype++) {
            round.kind = kinds[i];
            if (!is_of(round.kind, round.dtype, suite->team.size))
                continue;
            check_begin("%s, %d ranks by %s: %s of %s by name", suite->team.backend,
                        suite->team.size, suite->how, trial_kinds[round.kind].name,
                        trib_dtype_name(round.dtype));
            check_ranks(suite->team.size, round_of_rank, &round);
            suite->seed += 10000;
            check_end();
        }
}
