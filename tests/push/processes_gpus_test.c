/* Push between processes, a rank and a GPU each: rows of calls of every kind that it serves, eager and
 * captured, beside larger ones of pull and NCCL; a rank that is late, one that ends early, and one that is killed.
 *   processes_gpus_test [ROUNDS]   of CALLS calls, 100 unless it is given */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/children.h"
#include "tests/conformance/cuda_must.h"
#include "tests/push/processes.h"

enum { DEATH_MS = 20000, LATE_MS = 2000 };

/* ---- calls */

struct call {
    int kind; /* allreduce, reduce_scatter, allgather, broadcast, alltoall */
    int root;
    size_t at, count;
};

static struct call draw_call(uint64_t *state, int size)
{
    struct call call = {.kind = (int)(draw(state) % 5),
                        .root = (int)(draw(state) % (uint32_t)size)};
    call.count = draw(state) % 4 == 0 ? 1 + draw(state) % MOST : 1 + draw(state) % 64;
    call.at = draw(state) % (MOST - call.count + 1);
    return call;
}

static trib_status make(const struct rank *r, const struct call *call, uint32_t *recv)
{
    const uint32_t *send = r->send + call->at;
    switch (call->kind) {
    case 0:
        return trib_allreduce(r->comm, send, recv, call->count, TRIB_U32, TRIB_SUM, r->stream);
    case 1:
        return trib_reduce_scatter(r->comm, send, recv, call->count, TRIB_U32, TRIB_SUM, r->stream);
    case 2:
        return trib_allgather(r->comm, send, recv, call->count, TRIB_U32, r->stream);
    case 4:
        return trib_alltoall(r->comm, send, recv, call->count, TRIB_U32, r->stream);
    default:
        return trib_broadcast(r->comm, send, recv, call->count, TRIB_U32, call->root, r->stream);
    }
}

/* Element `i` of the call's result on the rank. */
static uint32_t expected(const struct rank *r, const struct call *call, size_t i)
{
    switch (call->kind) {
    case 0:
        return sum_of(r->size, call->at + i);
    case 1:
        return sum_of(r->size, call->at + (size_t)r->rank * call->count + i);
    case 2:
        return input((int)(i / call->count), call->at + i % call->count);
    case 4:
        return input((int)(i / call->count),
                     call->at + (size_t)r->rank * call->count + i % call->count);
    default:
        return input(call->root, call->at + i);
    }
}

static bool is_right(const struct rank *r, const struct call *call, const uint32_t *found)
{
    const size_t n =
        call->kind == 2 || call->kind == 4 ? call->count * (size_t)r->size : call->count;
    for (size_t i = 0; i < n; i++)
        if (found[i] != expected(r, call, i))
            return CHECK_MSG(false,
                             "rank %d: kind %d of %zu elements: element %zu is %08x, not %08x",
                             r->rank, call->kind, call->count, i, found[i], expected(r, call, i));
    return true;
}

/* By the memory that it has for that. */
static bool is_served(const struct rank *r)
{
    return peer_bytes(r) > 0;
}

static void make_all(const struct rank *r, const void *argument)
{
    const struct call *calls = argument;
    for (size_t i = 0; i < CALLS; i++)
        CHECK_OK(make(r, &calls[i], r->recv + i * slot(r)));
}

/* One round; some ranks are late. */
static bool run_round(const struct rank *r, uint64_t *state, uint64_t *own)
{
    struct call calls[CALLS];
    const size_t bytes = CALLS * slot(r) * sizeof *r->recv;
    for (size_t i = 0; i < CALLS; i++)
        calls[i] = draw_call(state, r->size);
    MUST(cudaMemsetAsync(r->recv, 0xa5, bytes, r->stream));
    if (draw(own) % 4 == 0)
        (void)usleep(draw(own) % 3000);
    make_calls(r, 3, make_all, calls);
    MUST(cudaMemcpyAsync(r->image, r->recv, bytes, cudaMemcpyDeviceToHost, r->stream));
    bool good = CHECK_OK(trib_comm_wait(r->comm, r->stream, PLENTY_MS));
    for (size_t i = 0; i < CALLS && good; i++)
        good = is_right(r, &calls[i], r->image + i * slot(r));
    return good;
}

/* Pull's, or NCCL's, between those of push: their order holds. */
static void add_large(const struct rank *r, trib_variant variant)
{
    const uint64_t pulls = variant == TRIB_VARIANT_AUTO && has_pull(r), before = staged_calls(r);
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    uint32_t *data = NULL, found[2] = {0};
    options.variant = variant;
    MUST(cudaMalloc((void **)&data, (size_t)LARGE * sizeof *data));
    MUST(cudaMemsetAsync(data, 1, (size_t)LARGE * sizeof *data, r->stream));
    CHECK_OK(
        trib_allreduce_with(r->comm, data, data, LARGE, TRIB_U32, TRIB_SUM, &options, r->stream));
    CHECK_OK(trib_allreduce(r->comm, data, data, 1, TRIB_U32, TRIB_SUM, r->stream));
    MUST(cudaMemcpyAsync(found, data, sizeof found, cudaMemcpyDeviceToHost, r->stream));
    CHECK_OK(trib_comm_wait(r->comm, r->stream, PLENTY_MS));
    const uint32_t one = 0x01010101u * (uint32_t)r->size;
    CHECK_MSG(found[0] == one * (uint32_t)r->size && found[1] == one, "%08x %08x", found[0],
              found[1]);
    CHECK(staged_calls(r) - before == pulls);
    MUST(cudaFree(data));
}

/* A list whose bucket is large, which pull packs from the second call on. */
static void add_lists(const struct rank *r)
{
    enum { PIECES = 3, ROUNDS = 3, PIECE = LARGE / PIECES };
    const uint64_t before = staged_calls(r);
    uint32_t *data = NULL, *found = malloc(LARGE * sizeof *found);
    trib_tensor list[PIECES];
    MUST(cudaMalloc((void **)&data, LARGE * sizeof *data));
    for (int i = 0; i < PIECES; i++) /* there is padding between them */
        list[i] = (trib_tensor){data + (size_t)i * PIECE, PIECE - 1 - (size_t)i, TRIB_U32, 0};
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < LARGE; i++)
            found[i] = input(r->rank, i + (size_t)round);
        MUST(cudaMemcpyAsync(data, found, LARGE * sizeof *data, cudaMemcpyHostToDevice, r->stream));
        CHECK_OK(trib_allreduce_list(r->comm, list, PIECES, TRIB_SUM, r->stream));
        MUST(cudaMemcpyAsync(found, data, LARGE * sizeof *data, cudaMemcpyDeviceToHost, r->stream));
        bool good = CHECK_OK(trib_comm_wait(r->comm, r->stream, PLENTY_MS));
        for (size_t i = 0; i < LARGE && good; i++) {
            const bool inside = i % PIECE < list[i / PIECE].count;
            const uint32_t right =
                inside ? sum_of(r->size, i + (size_t)round) : input(r->rank, i + (size_t)round);
            good = CHECK_MSG(found[i] == right, "round %d, element %zu: %08x, not %08x", round, i,
                             found[i], right);
        }
    }
    CHECK(staged_calls(r) - before == (has_pull(r) ? ROUNDS : 0));
    MUST(cudaFree(data));
    free(found);
}

/* The rank makes its next calls seconds after its peers, who wait for it. */
static void be_late(const struct rank *r, int rank)
{
    if (r->rank == rank && r->shared->sight == SEES_ALL && !r->shared->captured)
        (void)usleep(LATE_MS * 1000);
}

static void run_rounds(int index, int n, void *argument)
{
    struct shared *shared = argument;
    struct rank r;
    uint64_t state = 1, own = (uint64_t)index + 1;
    if (!open_rank(&r, shared, index, n))
        return;
    CHECK_MSG(is_served(&r) == shared->reach, "rank %d: is there memory for peers: %d", index,
              !shared->reach);
    bool good = true;
    be_late(&r, n - 1);
    for (int i = 0; i < shared->rounds && good; i++)
        good = run_round(&r, &state, &own);
    be_late(&r, 0);
    add_large(&r, TRIB_VARIANT_AUTO);
    add_large(&r, TRIB_VARIANT_NCCL);
    add_lists(&r);
    if (index == 0)
        (void)usleep(200000); /* the others have closed, and their memory is still mapped here */
    close_rank(&r);
}

/* The last rank is killed while the others wait for it. */
static void run_killed(int index, int n, void *argument)
{
    struct shared *shared = argument;
    struct rank r;
    const struct call call = {.count = 16};
    if (!open_rank(&r, shared, index, n))
        return;
    CHECK_OK(make(&r, &call, r.recv));
    CHECK_OK(trib_comm_wait(r.comm, r.stream, PLENTY_MS));
    children_meet(&shared->met, n);
    if (index == n - 1)
        (void)raise(SIGKILL);
    CHECK_OK(make(&r, &call, r.recv));
    const double begun = check_now_ms();
    CHECK_STATUS(trib_comm_wait(r.comm, r.stream, PLENTY_MS), TRIB_ERR_CLOSED);
    CHECK_MSG(check_now_ms() - begun < DEATH_MS, "it took %.0f ms", check_now_ms() - begun);
    MUST(cudaStreamSynchronize(r.stream)); /* the kernel has ended, too */
    (void)trib_comm_destroy(r.comm);
}

/* ---- a reducer: views in memory that all ranks reach */

enum { GRADIENTS = 3, GRADIENT = LARGE, REDUCER_STEPS = 4 };

static float gradient(int rank, int step, int g)
{
    return (float)((rank + 1) * (step + 2 * g + 1));
}

static void fill(const struct rank *r, float *host, void *device, float value)
{
    for (size_t i = 0; i < GRADIENT; i++)
        host[i] = value;
    MUST(cudaMemcpyAsync(device, host, GRADIENT * sizeof *host, cudaMemcpyHostToDevice, r->stream));
    MUST(cudaStreamSynchronize(r->stream));
}

static bool is_filled(float *host, const void *device, float value)
{
    MUST(cudaMemcpy(host, device, GRADIENT * sizeof *host, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < GRADIENT; i++)
        if (host[i] != value)
            return CHECK_MSG(false, "element %zu is %g, not %g", i, (double)host[i], (double)value);
    return true;
}

static void reduce_steps(const struct rank *r, trib_reducer *reducer)
{
    const float ranks = (float)(r->size * (r->size + 1) / 2);
    float *host = malloc(GRADIENT * sizeof *host);
    void *views[GRADIENTS];
    for (size_t g = 0; g < GRADIENTS; g++)
        CHECK_OK(trib_reducer_view(&views[g], reducer, g));
    for (int step = 0; step < REDUCER_STEPS; step++) {
        for (int g = 0; g < GRADIENTS; g++) {
            fill(r, host, views[g], gradient(r->rank, step, g));
            CHECK_OK(trib_reducer_ready(reducer, (size_t)g, r->stream));
        }
        CHECK_OK(trib_reducer_finish(reducer, r->stream));
        CHECK_OK(trib_comm_wait(r->comm, r->stream, PLENTY_MS));
        for (int g = 0; g < GRADIENTS; g++)
            CHECK(is_filled(host, views[g], gradient(0, step, g) * ranks));
    }
    free(host);
}

static void run_reducer(int index, int n, void *argument)
{
    struct rank r;
    trib_reducer *reducer = NULL;
    trib_tensor tensors[GRADIENTS];
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    if (!open_rank(&r, argument, index, n))
        return;
    options.flags = TRIB_REDUCER_SUM | TRIB_REDUCER_VIEWS;
    options.bucket_bytes = GRADIENT * sizeof(float);
    for (int g = 0; g < GRADIENTS; g++)
        tensors[g] = (trib_tensor){.count = GRADIENT, .dtype = TRIB_F32};
    const uint64_t before = peer_bytes(&r), buckets = GRADIENTS * GRADIENT * sizeof(float);
    if (CHECK_OK(trib_reducer_create(&reducer, r.comm, tensors, GRADIENTS, &options))) {
        /* Over PCI Express, and of more than 4 ranks, NCCL serves them. */
        const uint64_t grown = peer_bytes(&r) - before;
        CHECK_MSG(grown == 0 || grown >= buckets, "%llu bytes", (unsigned long long)grown);
        CHECK(grown != 0 || n > MEASURED || !r.shared->nvlink);
        reduce_steps(&r, reducer);
        CHECK_OK(trib_reducer_destroy(reducer));
    }
    CHECK(staged_calls(&r) == 0);
    close_rank(&r);
}

static void run_killed_case(const struct machine *machine, int size)
{
    struct child_end ends[CHILDREN_MAX];
    struct shared *shared = children_share(sizeof *shared);
    shared->reach = machine->reach;
    check_begin("%d processes, one is killed", size);
    children_run(ends, size, DEADLINE_MS, run_killed, shared);
    children_check_killed(ends, size, size - 1);
    check_end();
    children_unshare(shared, sizeof *shared);
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 100;
    const struct machine machine = look_at_machine();
    if (machine.gpus < 2)
        check_skip("push between processes: there are %d GPUs", machine.gpus);
    for (int size = machine.fewest; size <= machine.gpus && size <= PROCESSES_MAX; size++) {
        run_case(&machine, "calls", run_rounds, size, rounds, SEES_ALL, false);
        run_case(&machine, "calls", run_rounds, size, rounds / 10 + 1, SEES_ALL, true);
        run_case(&machine, "calls", run_rounds, size, rounds / 10 + 1, SEES_OWN, false);
        run_case(&machine, "calls", run_rounds, size, rounds / 10 + 1, SEES_TURNED, false);
        run_case(&machine, "a reducer", run_reducer, size, 1, SEES_ALL, false);
        run_killed_case(&machine, size);
    }
    return check_finish("processes_gpus_test");
}
