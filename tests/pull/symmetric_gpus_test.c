/* Pull between processes, a rank and a GPU each: allreduces of symmetric memory, apart and in place, of any
 * size, eager and replayed, and the other calls that have variants; of one rank's buffer of another kind; and
 * with an abort.
 *   symmetric_gpus_test [ROUNDS]   40 unless it is given */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/children.h"
#include "tests/conformance/cuda_must.h"
#include "tests/push/one_gpu.h"
#include "tests/push/processes.h"

/* Elements of a call. */
struct range {
    size_t at, count;
};

/* Of LARGE + MOST elements each; `served`: by pull, which takes every count by name. */
struct symmetric {
    uint32_t *send, *recv;
    bool served;
};

static bool allocate(const struct rank *r, struct symmetric *s)
{
    const size_t bytes = ((size_t)LARGE + MOST) * sizeof(uint32_t);
    void *send = NULL, *recv = NULL;
    if (!r->shared->reach)
        return CHECK_STATUS(trib_symmetric_alloc(&send, r->comm, bytes), TRIB_ERR_UNSUPPORTED) &&
               false;
    if (!CHECK_OK(trib_symmetric_alloc(&send, r->comm, bytes)) ||
        !CHECK_OK(trib_symmetric_alloc(&recv, r->comm, bytes)))
        return false;
    *s = (struct symmetric){send, recv, r->shared->sight != SEES_OWN};
    MUST(cudaMemcpyAsync(send, r->send, MOST * sizeof *r->send, cudaMemcpyDeviceToDevice,
                         r->stream));
    for (size_t at = MOST; at < LARGE + MOST; at += MOST)
        MUST(cudaMemcpyAsync(s->send + at, send, MOST * sizeof *r->send, cudaMemcpyDeviceToDevice,
                             r->stream));
    return true;
}

/* Elements from `range.at` on, apart, and half as many in place. */
struct sums {
    const struct symmetric *s;
    struct range range;
    trib_call_options options;
};

static void queue_sums(const struct rank *r, const void *calls)
{
    const struct sums *sums = calls;
    const size_t at = sums->range.at, count = sums->range.count;
    const uint32_t *send = sums->s->send + at;
    uint32_t *recv = sums->s->recv + at;
    CHECK_OK(trib_allreduce_with(r->comm, send, recv, count, TRIB_U32, TRIB_SUM, &sums->options,
                                 r->stream));
    CHECK_OK(trib_allreduce_with(r->comm, recv, recv, count / 2, TRIB_U32, TRIB_SUM, &sums->options,
                                 r->stream));
}

/* Eager, or replayed twice; all of recv is looked at. */
static bool sum_symmetric(const struct rank *r, const struct symmetric *s, const struct range *call,
                          trib_variant variant)
{
    const size_t n = (size_t)LARGE + MOST;
    struct sums sums = {s, *call, TRIB_CALL_OPTIONS_INIT};
    uint32_t *found = malloc(n * sizeof *found);
    sums.options.variant = variant;
    MUST(cudaMemsetAsync(s->recv, 0xa5, n * sizeof *found, r->stream));
    make_calls(r, 2, queue_sums, &sums);
    MUST(cudaMemcpyAsync(found, s->recv, n * sizeof *found, cudaMemcpyDeviceToHost, r->stream));
    bool good = CHECK_OK(trib_comm_wait(r->comm, r->stream, PLENTY_MS));
    for (size_t i = 0; i < n && good; i++) {
        const bool inside = i >= call->at && i < call->at + call->count;
        const uint32_t twice = i < call->at + call->count / 2 ? (uint32_t)r->size : 1;
        const uint32_t right = inside ? twice * sum_of(r->size, i % MOST) : 0xa5a5a5a5u;
        good = CHECK_MSG(found[i] == right, "rank %d: %zu from %zu: element %zu is %08x, not %08x",
                         r->rank, call->count, call->at, i, found[i], right);
    }
    free(found);
    return good;
}

/* Reduce_scatters, allgathers, alltoalls, broadcasts of `count` elements a block, from symmetric memory to
 * any, one after the other in `recv`. */
enum kind { SCATTER, GATHER, ALLTOALL, BROADCAST, KINDS };

struct others {
    const uint32_t *send;
    uint32_t *recv;
    size_t count;
    trib_call_options options;
};

/* Elements of the result of a kind. */
static size_t length_of(const struct rank *r, enum kind kind, size_t count)
{
    return kind == GATHER || kind == ALLTOALL ? (size_t)r->size * count : count;
}

static void queue_one(const struct rank *r, const struct others *o, enum kind kind, uint32_t *recv)
{
    const int root = r->size - 1;
    switch (kind) {
    case SCATTER:
        CHECK_OK(trib_reduce_scatter_with(r->comm, o->send, recv, o->count, TRIB_U32, TRIB_SUM,
                                          &o->options, r->stream));
        return;
    case GATHER:
        CHECK_OK(trib_allgather_with(r->comm, o->send, recv, o->count, TRIB_U32, &o->options,
                                     r->stream));
        return;
    case ALLTOALL:
        CHECK_OK(
            trib_alltoall_with(r->comm, o->send, recv, o->count, TRIB_U32, &o->options, r->stream));
        return;
    default:
        CHECK_OK(trib_broadcast_with(r->comm, r->rank == root ? o->send : NULL, recv, o->count,
                                     TRIB_U32, root, &o->options, r->stream));
    }
}

static void queue_others(const struct rank *r, const void *calls)
{
    const struct others *o = calls;
    uint32_t *recv = o->recv;
    for (int kind = SCATTER; kind < KINDS; kind++) {
        queue_one(r, o, (enum kind)kind, recv);
        recv += length_of(r, (enum kind)kind, o->count);
    }
}

static uint32_t right_of(const struct rank *r, enum kind kind, size_t count, size_t i)
{
    const size_t own = (size_t)r->rank * count;
    switch (kind) {
    case SCATTER:
        return sum_of(r->size, (own + i) % MOST);
    case GATHER:
        return input((int)(i / count), i % count % MOST);
    case ALLTOALL:
        return input((int)(i / count), (own + i % count) % MOST);
    default:
        return input(r->size - 1, i % MOST);
    }
}

static bool others_are_right(const struct rank *r, const uint32_t *found, size_t count)
{
    for (int kind = SCATTER; kind < KINDS; kind++) {
        const size_t length = length_of(r, (enum kind)kind, count);
        for (size_t i = 0; i < length; i++) {
            const uint32_t right = right_of(r, (enum kind)kind, count, i);
            if (!CHECK_MSG(found[i] == right,
                           "rank %d: kind %d of %zu: element %zu is %08x, not %08x", r->rank, kind,
                           count, i, found[i], right))
                return false;
        }
        found += length;
    }
    return true;
}

/* By `variant`; no buffer goes through scratch where pull serves a call. */
static bool other_calls(const struct rank *r, const struct symmetric *s, size_t count,
                        trib_variant variant)
{
    const size_t bytes = (2 * (size_t)r->size + 2) * count * sizeof(uint32_t);
    const uint64_t before = staged_calls(r);
    struct others o = {.send = s->send, .count = count, .options = TRIB_CALL_OPTIONS_INIT};
    uint32_t *found = malloc(bytes);
    o.options.variant = variant;
    MUST(cudaMalloc((void **)&o.recv, bytes));
    make_calls(r, 2, queue_others, &o);
    MUST(cudaMemcpyAsync(found, o.recv, bytes, cudaMemcpyDeviceToHost, r->stream));
    const bool good = CHECK_OK(trib_comm_wait(r->comm, r->stream, PLENTY_MS)) &&
                      CHECK(staged_calls(r) == before) && others_are_right(r, found, count);
    MUST(cudaFree(o.recv));
    free(found);
    return good;
}

/* Buffers of another kind, on one rank or on all, send all of them through scratch. Of 2 to 4 ranks that is ahead of
 * NCCL at this size: so calls without a variant do. */
static bool sum_plain(const struct rank *r, const struct symmetric *s, bool all,
                      trib_variant variant)
{
    const size_t n = (size_t)LARGE + MOST;
    const struct range call = {.at = 3, .count = variant == TRIB_VARIANT_AUTO ? LARGE : 100001};
    const uint64_t before = staged_calls(r);
    struct symmetric plain = *s;
    const bool mine = all || r->rank == 0;
    if (mine) {
        MUST(cudaMalloc((void **)&plain.send, n * sizeof *plain.send));
        MUST(cudaMalloc((void **)&plain.recv, n * sizeof *plain.recv));
        MUST(cudaMemcpyAsync(plain.send, s->send, n * sizeof *plain.send, cudaMemcpyDeviceToDevice,
                             r->stream));
    }
    const bool good = sum_symmetric(r, &plain, &call, variant);
    const uint64_t staged = staged_calls(r) - before;
    CHECK_MSG((staged > 0) == mine, "rank %d: %llu calls are staged", r->rank,
              (unsigned long long)staged);
    if (mine) {
        MUST(cudaFree(plain.send));
        MUST(cudaFree(plain.recv));
    }
    return good;
}

/* For people. */
static void print_times(const struct rank *r, const struct symmetric *s)
{
    void *plain = NULL;
    MUST(cudaMalloc(&plain, LARGE * sizeof *s->recv));
    MUST(cudaMemsetAsync(plain, 0, LARGE * sizeof *s->recv, r->stream));
    MUST(cudaMemsetAsync(s->recv, 0, LARGE * sizeof *s->recv, r->stream));
    const double symmetric = time_sum(r->comm, r->stream, s->recv, TRIB_VARIANT_SYMMETRIC);
    const double nccl = time_sum(r->comm, r->stream, s->recv, TRIB_VARIANT_NCCL);
    const double staged = time_sum(r->comm, r->stream, plain, TRIB_VARIANT_AUTO);
    MUST(cudaFree(plain));
    if (r->rank != 0)
        return;
    printf("  %d processes, %zu bytes in place: symmetric %.1f us, plain %.1f us, NCCL %.1f us\n",
           r->size, (size_t)LARGE * sizeof *s->recv, symmetric, staged, nccl);
    fflush(stdout);
}

struct timed {
    const struct rank *r;
    const struct others *o;
    enum kind kind;
};

static void queue_timed(const void *call)
{
    const struct timed *timed = call;
    queue_one(timed->r, timed->o, timed->kind, timed->o->recv);
}

static double time_one(const struct rank *r, struct others *o, enum kind kind, trib_variant variant)
{
    const struct timed timed = {r, o, kind};
    o->options.variant = variant;
    return time_calls(r->comm, r->stream, queue_timed, &timed);
}

/* For people. */
static void print_others(const struct rank *r, const struct symmetric *s)
{
    static const char *const names[KINDS] = {"reduce_scatter", "allgather", "alltoall",
                                             "broadcast"};
    struct others o = {s->send, s->recv, LARGE / (size_t)r->size, TRIB_CALL_OPTIONS_INIT};
    for (int kind = SCATTER; kind < KINDS; kind++) {
        const double symmetric = time_one(r, &o, (enum kind)kind, TRIB_VARIANT_SYMMETRIC);
        const double nccl = time_one(r, &o, (enum kind)kind, TRIB_VARIANT_NCCL);
        if (r->rank == 0)
            printf("  %d processes, %s of %zu bytes a block: symmetric %.1f us, NCCL %.1f us\n",
                   r->size, names[kind], o.count * sizeof *s->send, symmetric, nccl);
    }
    fflush(stdout);
}

static void run_symmetric(int index, int n, void *argument)
{
    struct shared *shared = argument;
    struct rank r;
    struct symmetric s;
    uint64_t state = 7, own = (uint64_t)index + 1;
    if (!open_rank(&r, shared, index, n))
        return;
    bool good = allocate(&r, &s);
    for (int i = 0; i < shared->rounds && good; i++) {
        struct range call = {.at = draw(&state) % MOST};
        call.count = draw(&state) % 2 == 0 ? 1 + draw(&state) % MOST : 1 + draw(&state) % LARGE;
        if (draw(&own) % 4 == 0)
            (void)usleep(draw(&own) % 3000);
        good = sum_symmetric(&r, &s, &call, TRIB_VARIANT_SYMMETRIC) &&
               (!s.served || sum_symmetric(&r, &s, &call, TRIB_VARIANT_TWO_SHOT));
    }
    for (size_t count = 5; count * (size_t)n <= LARGE && good; count = count * 13 + 1)
        good = other_calls(&r, &s, count, TRIB_VARIANT_SYMMETRIC) &&
               (!s.served || other_calls(&r, &s, count, TRIB_VARIANT_ONE_SHOT));
    good = good && other_calls(&r, &s, LARGE / (size_t)n, TRIB_VARIANT_SYMMETRIC);
    if (good && s.served)
        good = sum_plain(&r, &s, false, TRIB_VARIANT_TWO_SHOT) &&
               sum_plain(&r, &s, true, TRIB_VARIANT_TWO_SHOT) &&
               (n > MEASURED || sum_plain(&r, &s, true, TRIB_VARIANT_AUTO));
    if (good && s.served && !shared->captured && one_gpu_ranks() == 0)
        print_times(&r, &s), print_others(&r, &s);
    if (good)
        CHECK_OK(trib_symmetric_free(r.comm, s.send)); /* recv is left to the communicator */
    close_rank(&r);
}

/* Rank 0 gives up its call by an abort. Of the others' calls, which meet what it has left, none ends before
 * its communicator does, whenever that hears of the abort. */
static void run_forsaken(int index, int n, void *argument)
{
    struct shared *shared = argument;
    struct rank r;
    struct symmetric s;
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    trib_abort *handle = NULL;
    options.variant = TRIB_VARIANT_TWO_SHOT;
    if (!open_rank(&r, shared, index, n) || !allocate(&r, &s) || !s.served)
        return;
    CHECK_OK(trib_comm_wait(r.comm, r.stream, PLENTY_MS));
    CHECK_OK(trib_comm_abort_handle(&handle, r.comm));
    children_meet(&shared->met, n); /* nobody waits for an earlier call any more */
    if (index != 0)
        children_meet(&shared->met, 2 * n);
    (void)trib_allreduce_with(r.comm, s.send, s.recv, LARGE, TRIB_U32, TRIB_SUM, &options,
                              r.stream);
    if (index == 0) {
        CHECK_OK(trib_abort_raise(handle, "a test"));
        MUST(cudaStreamSynchronize(r.stream));
        children_meet(&shared->met, 2 * n);
    }
    while (cudaStreamQuery(r.stream) == cudaErrorNotReady)
        continue;
    CHECK(trib_comm_status(r.comm) != TRIB_OK);
    trib_abort_release(handle);
    (void)trib_comm_destroy(r.comm);
}

int main(int argc, char **argv)
{
    static const char what[] = "sums of symmetric memory";
    const int rounds = argc > 1 ? atoi(argv[1]) : 40;
    const struct machine machine = look_at_machine();
    if (machine.gpus < 2)
        check_skip("pull between processes: there are %d GPUs", machine.gpus);
    for (int size = machine.fewest; size <= machine.gpus && size <= PROCESSES_MAX; size++) {
        run_case(&machine, what, run_symmetric, size, rounds, SEES_ALL, false);
        run_case(&machine, what, run_symmetric, size, rounds / 4 + 1, SEES_ALL, true);
        run_case(&machine, what, run_symmetric, size, 2, SEES_OWN, false);
        run_case(&machine, what, run_symmetric, size, rounds / 4 + 1, SEES_TURNED, false);
        for (int round = 0; round < 5; round++)
            run_case(&machine, "an abort amid a sum", run_forsaken, size, 1, SEES_ALL, false);
    }
    return check_finish("symmetric_gpus_test");
}
