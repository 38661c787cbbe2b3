/* Sparse calls between processes, a rank and a GPU each, whose packets stay where they were made: right results,
 * eager and replayed, of ranks that are late; their memory; and with an abort.
 *   near_gpus_test [ROUNDS]   40 unless it is given */
#define _DEFAULT_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/children.h"
#include "tests/conformance/cuda_must.h"
#include "tests/push/processes.h"

enum { COUNT = 200003, K = 140000, SMALL_K = 100, ROW = 6 /* calls in a row */ };

struct sparse {
    trib_sparse *state;
    float *gradients, *results; /* of each call of a row */
    float *image, *found;       /* the same on the host */
};

/* A larger k than the first one's takes memory that the others read, where they can. */
static bool create(const struct rank *r, struct sparse *s)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.algorithm = "topka";
    options.flags = TRIB_SPARSE_USE_K;
    options.k = SMALL_K;
    const uint64_t before = peer_bytes(r);
    s->image = calloc((size_t)ROW * COUNT, sizeof *s->image);
    s->found = calloc((size_t)ROW * COUNT, sizeof *s->found);
    MUST(cudaMalloc((void **)&s->gradients, (size_t)ROW * COUNT * sizeof *s->gradients));
    MUST(cudaMalloc((void **)&s->results, (size_t)ROW * COUNT * sizeof *s->results));
    if (!CHECK_OK(trib_sparse_create(&s->state, r->comm, COUNT, TRIB_F32, &options)) ||
        !CHECK(peer_bytes(r) == before) || !CHECK_OK(trib_sparse_set_k(s->state, K)))
        return false;
    const bool stays = r->shared->reach && r->shared->sight != SEES_OWN && r->size <= MEASURED;
    return CHECK_MSG((peer_bytes(r) > before) == stays, "%llu bytes, before %llu",
                     (unsigned long long)peer_bytes(r), (unsigned long long)before);
}

static void destroy(const struct rank *r, struct sparse *s)
{
    const uint64_t before = peer_bytes(r);
    CHECK_OK(trib_sparse_destroy(s->state));
    CHECK(peer_bytes(r) == before); /* for the next state */
    MUST(cudaFree(s->gradients));
    MUST(cudaFree(s->results));
    free(s->image);
    free(s->found);
}

/* Two of three elements, others in each step: at most K. */
static float value(int rank, uint32_t step, size_t i)
{
    return (i + step + (size_t)rank) % 3 == 0 ? 0
                                              : (float)(1 + (i * 7 + step) % 1000 + (size_t)rank);
}

static void queue(const struct rank *r, const void *sparse)
{
    const struct sparse *s = sparse;
    for (size_t c = 0; c < ROW; c++)
        CHECK_OK(trib_sparse_allreduce(s->state, s->gradients + c * COUNT, s->results + c * COUNT,
                                       r->stream));
}

static bool is_right(const struct rank *r, uint32_t step, const float *found)
{
    for (size_t i = 0; i < COUNT; i++) {
        float right = 0;
        for (int rank = 0; rank < r->size; rank++)
            right += value(rank, step, i);
        if (!CHECK_MSG(found[i] == right, "rank %d, step %u: element %zu is %g, not %g", r->rank,
                       step, i, (double)found[i], (double)right))
            return false;
    }
    return true;
}

/* Nobody waits for one call before the next. */
static bool sum(const struct rank *r, const struct sparse *s, uint32_t step, bool late)
{
    const size_t bytes = (size_t)ROW * COUNT * sizeof *s->image;
    for (size_t i = 0; i < (size_t)ROW * COUNT; i++)
        s->image[i] = value(r->rank, step + (uint32_t)(i / COUNT), i % COUNT);
    MUST(cudaMemcpyAsync(s->gradients, s->image, bytes, cudaMemcpyHostToDevice, r->stream));
    MUST(cudaMemsetAsync(s->results, 0xa5, bytes, r->stream));
    if (late)
        (void)usleep(2000);
    make_calls(r, 3, queue, s);
    MUST(cudaMemcpyAsync(s->found, s->results, bytes, cudaMemcpyDeviceToHost, r->stream));
    bool good = CHECK_OK(trib_comm_wait(r->comm, r->stream, PLENTY_MS));
    for (size_t c = 0; c < ROW && good; c++)
        good = is_right(r, step + (uint32_t)c, s->found + c * COUNT);
    return good;
}

static void run_sums(int index, int n, void *argument)
{
    struct shared *shared = argument;
    struct rank r;
    struct sparse s = {NULL, NULL, NULL, NULL, NULL};
    uint64_t own = (uint64_t)index + 1;
    if (!open_rank(&r, shared, index, n))
        return;
    bool good = create(&r, &s);
    for (int i = 0; i < shared->rounds && good; i++)
        good = sum(&r, &s, (uint32_t)i, draw(&own) % 4 == 0);
    if (good)
        destroy(&r, &s);
    close_rank(&r);
}

/* Rank 0 aborts while calls run, and destroys its state at once; what the others read of it is still there. */
static void run_aborted(int index, int n, void *argument)
{
    struct shared *shared = argument;
    struct rank r;
    struct sparse s = {NULL, NULL, NULL, NULL, NULL};
    trib_abort *handle = NULL;
    if (!open_rank(&r, shared, index, n) || !create(&r, &s) || !sum(&r, &s, 1, false))
        return;
    CHECK_OK(trib_comm_abort_handle(&handle, r.comm));
    children_meet(&shared->met, n);
    for (int i = 0; i < 20; i++)
        (void)trib_sparse_allreduce(s.state, s.gradients, s.results, r.stream);
    if (index == 0)
        CHECK_OK(trib_abort_raise(handle, "a test"));
    while (trib_comm_status(r.comm) == TRIB_OK)
        (void)usleep(100);
    MUST(cudaStreamSynchronize(r.stream));
    CHECK_OK(trib_sparse_destroy(s.state));
    trib_abort_release(handle);
    (void)trib_comm_destroy(r.comm);
    MUST(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
    static const char what[] = "sums of sparse states";
    const int rounds = argc > 1 ? atoi(argv[1]) : 40;
    const struct machine machine = look_at_machine();
    if (machine.gpus < 2)
        check_skip("sparse calls between processes: there are %d GPUs", machine.gpus);
    for (int size = machine.fewest; size <= machine.gpus && size <= PROCESSES_MAX; size++) {
        run_case(&machine, what, run_sums, size, rounds, SEES_ALL, false);
        run_case(&machine, what, run_sums, size, rounds / 4 + 1, SEES_ALL, true);
        run_case(&machine, what, run_sums, size, 2, SEES_OWN, false);
        for (int round = 0; round < 3; round++)
            run_case(&machine, "an abort amid sums", run_aborted, size, 1, SEES_ALL, false);
    }
    return check_finish("near_gpus_test");
}
