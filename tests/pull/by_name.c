#include "tests/pull/by_name.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/core/communicator.h"
#include "csrc/nccl/push_inside.h"
#include "tests/check.h"
#include "tests/conformance/cuda_graph.h"
#include "tests/conformance/cuda_must.h"
#include "tests/pull/numbers.h"

enum {
    RANKS_MAX = 4,
    FEW = 699040, /* elements: the most that push takes of 4 ranks */
    MANY = NUMBERS_PULLED,
    TIMES = 4,
    PLENTY_MS = 20000
};

static const trib_variant variants[] = {TRIB_VARIANT_AUTO, TRIB_VARIANT_NCCL, TRIB_VARIANT_PUSH,
                                        TRIB_VARIANT_ONE_SHOT, TRIB_VARIANT_TWO_SHOT};

/* Of each rank two buffers of MANY elements and a guard; and of rank 0 one that its peers do not map. */
struct memory {
    float *send[RANKS_MAX], *recv[RANKS_MAX], *pinned, *image;
};

/* The same call of all ranks, TIMES over, in a graph or not. */
struct named {
    const struct team *team;
    const struct memory *memory;
    trib_variant variant;
    size_t count;
    bool in_place, captured, pinned;
    _Atomic int ready, done; /* ranks that have their graph; whose graph has run */
};

/* Calls so far: that push served on a rank, replays too; and whose buffer of this rank went through memory
 * of the library. */
struct served {
    uint32_t pushed;
    uint64_t staged;
};

/* ----------------------------------------------------------------------------------------- memory */

static void open_memory(struct memory *m, int size)
{
    const size_t bytes = (MANY + 1) * sizeof(float);
    for (int r = 0; r < size; r++) {
        MUST(cudaSetDevice(r));
        MUST(cudaMalloc((void **)&m->send[r], bytes));
        MUST(cudaMalloc((void **)&m->recv[r], bytes));
    }
    MUST(cudaHostAlloc((void **)&m->pinned, bytes, cudaHostAllocPortable));
    m->image = malloc(bytes);
}

static void close_memory(struct memory *m, int size)
{
    for (int r = 0; r < size; r++) {
        MUST(cudaSetDevice(r));
        MUST(cudaFree(m->send[r]));
        MUST(cudaFree(m->recv[r]));
    }
    MUST(cudaFreeHost(m->pinned));
    free(m->image);
}

/* Of pinned memory it is the buffer into which peers reach: in one shot send, else recv. */
static float *send_of(const struct named *n, int rank)
{
    const bool reached = n->in_place || n->variant == TRIB_VARIANT_ONE_SHOT;
    return n->pinned && rank == 0 && reached ? n->memory->pinned : n->memory->send[rank];
}

static float *recv_of(const struct named *n, int rank)
{
    const bool reached = n->variant != TRIB_VARIANT_ONE_SHOT;
    if (n->in_place)
        return send_of(n, rank);
    return n->pinned && rank == 0 && reached ? n->memory->pinned : n->memory->recv[rank];
}

/* No number in recv, and behind what either has. */
static void fill(const struct named *n, int rank)
{
    const size_t bytes = (MANY + 1) * sizeof(float);
    float *const image = n->memory->image;
    memset(image, 0xff, bytes);
    MUST(cudaSetDevice(rank));
    MUST(cudaMemcpy(recv_of(n, rank), image, bytes, cudaMemcpyDefault));
    for (size_t e = 0; e < n->count; e++)
        image[e] = numbers_of(rank, e);
    MUST(cudaMemcpy(send_of(n, rank), image, bytes, cudaMemcpyDefault));
    MUST(cudaDeviceSynchronize());
}

/* ------------------------------------------------------------------------------------------ calls */

static void queue(const struct named *n, int rank)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.variant = n->variant;
    team_go_on(n->team, rank,
               CHECK_OK(trib_allreduce_with(n->team->comms[rank], send_of(n, rank),
                                            recv_of(n, rank), n->count, TRIB_F32, TRIB_SUM,
                                            &options, n->team->streams[rank])));
}

static cudaGraphExec_t capture(const struct named *n, int rank)
{
    const cudaStream_t stream = n->team->streams[rank];
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    queue(n, rank);
    return cuda_end_capture(stream);
}

/* CUDA may wait for devices when it makes an executable graph and when it destroys one, so none runs then. */
static void replay(struct named *n, int rank)
{
    const cudaGraphExec_t graph = capture(n, rank);
    team_barrier(&n->ready, n->team->size);
    for (int i = 0; i < TIMES; i++)
        MUST(cudaGraphLaunch(graph, n->team->streams[rank]));
    team_finish(n->team, rank, PLENTY_MS);
    team_barrier(&n->done, n->team->size);
    MUST(cudaGraphExecDestroy(graph));
}

static void run_rank(int rank, int size, void *argument)
{
    struct named *n = argument;
    (void)size;
    MUST(cudaSetDevice(rank));
    if (n->captured) {
        replay(n, rank);
        return;
    }
    for (int i = 0; i < TIMES; i++)
        queue(n, rank);
    team_finish(n->team, rank, PLENTY_MS);
}

/* ---------------------------------------------------------------------------------- what came of it */

static bool check_elements(const struct named *n, int rank, const char *what, const float *data,
                           bool sums)
{
    const int size = n->team->size;
    float *const found = n->memory->image, times = 1;
    uint32_t behind;
    for (int i = 1; i < TIMES && n->in_place; i++)
        times *= (float)size; /* each call sums what the one before has made equal */
    MUST(cudaMemcpy(found, data, (n->count + 1) * sizeof *found, cudaMemcpyDefault));
    for (size_t e = 0; e < n->count; e++) {
        const float right = sums ? times * numbers_sum(size, e) : numbers_of(rank, e);
        if (found[e] != right)
            return CHECK_MSG(false, "rank %d: element %zu of %s is %g, expected %g", rank, e, what,
                             (double)found[e], (double)right);
    }
    memcpy(&behind, &found[n->count], sizeof behind);
    return CHECK_MSG(behind == UINT32_MAX, "rank %d: what is behind %s is %08x", rank, what,
                     (unsigned)behind);
}

static struct served served_of(const struct team *team, int rank)
{
    const struct tri_nccl_push *push = team->comms[rank]->transport->push;
    struct tri_nccl_push_own own[TRI_NCCL_LANES];
    trib_counters counters = TRIB_COUNTERS_INIT;
    struct served served = {0, 0};
    MUST(cudaMemcpy(own, push->own[rank], sizeof own, cudaMemcpyDefault));
    for (int lane = 0; lane < TRI_NCCL_LANES; lane++)
        served.pushed += own[lane].control.turn / TRI_PUSH_EPOCH;
    CHECK_OK(trib_comm_counters(&counters, team->comms[rank]));
    served.staged = counters.staged_calls;
    return served;
}

/* Who has served? Push counts its calls, replays too, so all cases show whether it has. Pull shows only where it
 * cannot reach a buffer, on rank 0 of the cases with pinned memory, and there NCCL shows by being neither; of a
 * graph that is what its capture has chosen, for a replay counts for none. The cases without pinned memory do
 * not tell pull from NCCL: of calls that push does not serve they prove the result alone. */
static void check_served(const struct named *n, int rank, const struct served *before)
{
    const struct served now = served_of(n->team, rank);
    const bool few = n->count == FEW;
    const bool pushes = n->variant == TRIB_VARIANT_PUSH || (n->variant == TRIB_VARIANT_AUTO && few);
    const bool pulls = !pushes && n->variant != TRIB_VARIANT_NCCL;
    const uint64_t staged = !pulls || !n->pinned || rank != 0 ? 0 : n->captured ? 1 : TIMES;
    const uint32_t pushed = pushes ? TIMES : 0;
    CHECK_MSG(now.pushed - before->pushed == pushed, "rank %d: push has served %u, expected %u",
              rank, (unsigned)(now.pushed - before->pushed), (unsigned)pushed);
    CHECK_MSG(now.staged - before->staged == staged, "rank %d: %llu were staged, expected %llu",
              rank, (unsigned long long)(now.staged - before->staged), (unsigned long long)staged);
}

/* ------------------------------------------------------------------------------------------ cases */

static void run_case(struct named *n)
{
    struct served before[RANKS_MAX];
    check_begin("%d ranks: %s of %zu, %s%s%s", n->team->size, trib_variant_name(n->variant),
                n->count, n->in_place ? "in place" : "out of place",
                n->captured ? ", replayed" : "", n->pinned ? ", pinned memory on rank 0" : "");
    for (int r = 0; r < n->team->size; r++) {
        fill(n, r);
        before[r] = served_of(n->team, r);
    }
    atomic_store(&n->ready, 0);
    atomic_store(&n->done, 0);
    check_ranks(n->team->size, run_rank, n);
    for (int r = 0; r < n->team->size && team_usable(n->team); r++) {
        check_served(n, r, &before[r]);
        if (check_elements(n, r, "recv", recv_of(n, r), true) && !n->in_place)
            check_elements(n, r, "send", send_of(n, r), false);
    }
    check_end();
}

/* The call that no kernel of that name can make: nothing is queued. */
static bool is_refused(const struct named *n)
{
    return (n->variant == TRIB_VARIANT_ONE_SHOT && n->in_place) ||
           (n->variant == TRIB_VARIANT_PUSH && n->count > FEW);
}

/* Not even the guard pattern in recv has changed. */
static void check_untouched(const struct named *n, int rank)
{
    const unsigned char *const found = (const unsigned char *)n->memory->image;
    const size_t bytes = (MANY + 1) * sizeof(float);
    size_t wrong = 0;
    MUST(cudaMemcpy(n->memory->image, recv_of(n, rank), bytes, cudaMemcpyDefault));
    for (size_t i = 0; i < bytes; i++)
        wrong += found[i] != 0xff;
    CHECK_MSG(wrong == 0, "rank %d: %zu bytes of recv have changed", rank, wrong);
}

/* If it is queued after all, this rank waits for the others in vain. */
static void refuse_rank(const struct named *n, int rank)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.variant = n->variant;
    fill(n, rank);
    const struct served before = served_of(n->team, rank);
    team_go_on(n->team, rank,
               CHECK_STATUS(trib_allreduce_with(n->team->comms[rank], send_of(n, rank),
                                                recv_of(n, rank), n->count, TRIB_F32, TRIB_SUM,
                                                &options, n->team->streams[rank]),
                            TRIB_ERR_UNSUPPORTED));
    if (!team_finish(n->team, rank, PLENTY_MS))
        return;
    check_elements(n, rank, "send", send_of(n, rank), false);
    if (!n->in_place)
        check_untouched(n, rank);
    const struct served after = served_of(n->team, rank);
    CHECK(after.pushed == before.pushed && after.staged == before.staged);
}

static void refuse(const struct named *n)
{
    check_begin("%d ranks: %s of %zu, %s, is refused", n->team->size, trib_variant_name(n->variant),
                n->count, n->in_place ? "in place" : "out of place");
    for (int r = 0; r < n->team->size && team_usable(n->team); r++)
        refuse_rank(n, r);
    check_end();
}

/* Both sizes. */
static void run_sizes(struct named *n)
{
    for (int large = 0; large < 2 && team_usable(n->team); large++) {
        n->count = large ? MANY : FEW;
        if (!is_refused(n))
            run_case(n);
        else if (!n->captured && !n->pinned)
            refuse(n);
    }
}

void by_name(const struct team *team)
{
    struct memory memory;
    struct named n = {.team = team, .memory = &memory};
    open_memory(&memory, team->size);
    for (size_t i = 0; i < 8 * sizeof variants / sizeof *variants; i++) {
        n.variant = variants[i / 8];
        n.captured = i % 2 != 0;
        n.in_place = i / 2 % 2 != 0;
        n.pinned = i / 4 % 2 != 0;
        run_sizes(&n);
    }
    close_memory(&memory, team->size);
}
