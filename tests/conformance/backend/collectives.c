/* The collectives of one count: allreduce, broadcast, reduce, allgather, reduce_scatter, alltoall,
 * gather, scatter. */
#include "tests/conformance/backend/trial.h"
#include "tests/conformance/reference.h"

static trib_status call(const struct trial *t, const void *send, void *recv)
{
    trib_comm *comm = t->suite->team.comms[t->rank];
    trib_stream stream = t->suite->team.streams[t->rank];
    switch (t->kind) {
    case TRIAL_ALLREDUCE:
        return trib_allreduce(comm, send, recv, t->count, t->dtype, t->op, stream);
    case TRIAL_BROADCAST:
        return trib_broadcast(comm, send, recv, t->count, t->dtype, t->root, stream);
    case TRIAL_REDUCE:
        return trib_reduce(comm, send, recv, t->count, t->dtype, t->op, t->root, stream);
    case TRIAL_ALLGATHER:
        return trib_allgather(comm, send, recv, t->count, t->dtype, stream);
    case TRIAL_REDUCE_SCATTER:
        return trib_reduce_scatter(comm, send, recv, t->count, t->dtype, t->op, stream);
    case TRIAL_ALLTOALL:
        return trib_alltoall(comm, send, recv, t->count, t->dtype, stream);
    case TRIAL_GATHER:
        return trib_gather(comm, send, recv, t->count, t->dtype, t->root, stream);
    default:
        return trib_scatter(comm, send, recv, t->count, t->dtype, t->root, stream);
    }
}

struct round {
    struct suite *suite;
    enum trial_kind kind;
    trib_dtype dtype;
};

static bool try_trial(struct trial *t, struct guarded *send, struct guarded *recv)
{
    t->in_place = false;
    bool good = trial_out_of_place(t, send, recv);
    if (good) {
        t->in_place = true;
        t->seed++;
        good = trial_in_place(t, send);
        t->seed--;
    }
    return backend_go_on(t->suite, t->rank, good);
}

static bool try_roots(struct trial *t, int turn, struct guarded *send, struct guarded *recv)
{
    const int roots = trial_kinds[t->kind].rooted ? t->suite->team.size : 1;
    bool good = true;
    for (t->root = 0; t->root < roots && good; t->root++, t->seed += 2)
        if (backend_root(t->suite, t->root, turn))
            good = try_trial(t, send, recv);
    return good;
}

static void round_of_rank(int rank, int size, void *argument)
{
    const struct round *round = argument;
    const struct counts counts = backend_counts(round->suite, round->dtype);
    const size_t capacity = counts.at[counts.n - 1] * (size_t)size * trib_dtype_size(round->dtype);
    const trib_op first = trial_kinds[round->kind].reduces ? TRIB_SUM : REFERENCE_MOVED;
    const trib_op last = trial_kinds[round->kind].reduces ? TRIB_AVG : REFERENCE_MOVED;
    struct trial trial = {.suite = round->suite,
                          .call = call,
                          .kind = round->kind,
                          .dtype = round->dtype,
                          .rank = rank,
                          .seed = round->suite->seed};
    struct guarded send, recv;
    bool good = guarded_create(&send, round->suite->team.devices[rank], capacity);
    good = guarded_create(&recv, round->suite->team.devices[rank], capacity) && good;
    int turn = 0;
    for (trial.op = first; trial.op <= last; trial.op++)
        for (size_t i = 0; i < counts.n && good; i++) {
            trial.count = counts.at[i];
            good = try_roots(&trial, turn++, &send, &recv);
        }
    guarded_destroy(&send);
    guarded_destroy(&recv);
}

void backend_collectives(struct suite *suite)
{
    for (int kind = 0; kind < TRIAL_KINDS; kind++)
        for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++) {
            if (!backend_dtype(suite, dtype))
                continue;
            struct round round = {suite, (enum trial_kind)kind, dtype};
            check_begin("%s, %d ranks by %s: %s of %s", suite->team.backend, suite->team.size,
                        suite->how, trial_kinds[kind].name, trib_dtype_name(dtype));
            check_ranks(suite->team.size, round_of_rank, &round);
            suite->seed += 10000;
            check_end();
        }
}
