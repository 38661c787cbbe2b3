#include "tests/pull/memories.h"

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/cuda_graph.h"
#include "tests/conformance/cuda_must.h"
#include "tests/pull/mapped.h"
#include "tests/pull/numbers.h"

enum {
    RANKS_MAX = 4,
    COUNT = NUMBERS_PULLED,
    BYTES = (COUNT + 1) * sizeof(float), /* of a buffer and its guard */
    REPLAYS = 3,
    PLENTY_MS = 20000
};

/* Pools: the default one, which the library opens, and others, opened to all devices by their owner, and not. The
 * last three: mapped by cuMemMap for all devices, the first half of it, and for its own alone. */
enum memory { PLAIN, POOL, OPEN_POOL, OWN_POOL, PINNED, MANAGED, MAPPED, HALF, APART };

static const char *const names[] = {[PLAIN] = "cudaMalloc",       [POOL] = "the default pool",
                                    [OPEN_POOL] = "an open pool", [OWN_POOL] = "a pool of its own",
                                    [PINNED] = "pinned memory",   [MANAGED] = "managed memory",
                                    [MAPPED] = "cuMemMap",        [HALF] = "cuMemMap, half apart",
                                    [APART] = "cuMemMap, apart"};

/* In place the buffers of even ranks are of the first kind, and those of odd ranks of the second; otherwise all
 * ranks send from the first kind, and receive in the second. */
struct row {
    enum memory kinds[2];
    bool out_of_place;
};

static const struct row rows[] = {{.kinds = {PLAIN, POOL}},
                                  {.kinds = {POOL, PLAIN}},
                                  {.kinds = {POOL, POOL}},
                                  {.kinds = {OPEN_POOL, OPEN_POOL}},
                                  {.kinds = {OPEN_POOL, OWN_POOL}},
                                  {.kinds = {OWN_POOL, PLAIN}},
                                  {.kinds = {PINNED, PLAIN}},
                                  {.kinds = {PLAIN, PINNED}},
                                  {.kinds = {PINNED, POOL}},
                                  {.kinds = {MAPPED, MAPPED}},
                                  {.kinds = {PLAIN, MAPPED}},
                                  {.kinds = {MAPPED, PINNED}},
                                  {.kinds = {APART, MAPPED}},
                                  {.kinds = {HALF, PLAIN}},
                                  {.kinds = {APART, HALF}},
                                  {.kinds = {MANAGED, PLAIN}},
                                  {.kinds = {POOL, MANAGED}},
                                  {.kinds = {PLAIN, HALF}, .out_of_place = true},
                                  {.kinds = {HALF, PLAIN}, .out_of_place = true},
                                  {.kinds = {POOL, MAPPED}, .out_of_place = true}};

/* A call, one that refuses to be staged, or a graph of a call, captured in one of CUDA's modes. */
enum how { CALLED, UNSTAGED, THREAD_LOCAL, GLOBAL, HOWS };

static const char *const ways[HOWS] = {"a call", "an unstaged call", "a graph, captured locally",
                                       "a graph, captured globally"};

struct buffer {
    enum memory kind;
    float *data;
    cudaMemPool_t pool;   /* OPEN_POOL, OWN_POOL */
    struct mapped mapped; /* of the last three kinds */
};

/* The buffers of a row; in place there are no `recv`. */
struct trial {
    const struct team *team;
    const struct row *row;
    enum how how;
    struct buffer send[RANKS_MAX], recv[RANKS_MAX];
    uint64_t staged[RANKS_MAX]; /* before the case */
    float *image;
};

/* ----------------------------------------------------------------------------------------- memory */

static cudaMemPool_t make_pool(const struct team *team, int rank, bool open)
{
    struct cudaMemPoolProps wanted = {.allocType = cudaMemAllocationTypePinned};
    struct cudaMemAccessDesc access = {.flags = cudaMemAccessFlagsProtReadWrite};
    cudaMemPool_t pool;
    wanted.location.type = access.location.type = cudaMemLocationTypeDevice;
    wanted.location.id = rank;
    MUST(cudaMemPoolCreate(&pool, &wanted));
    for (int r = 0; r < team->size && open; r++) {
        access.location.id = r;
        MUST(cudaMemPoolSetAccess(pool, &access, 1));
    }
    return pool;
}

static struct buffer allocate(const struct team *team, int rank, enum memory kind)
{
    struct buffer b = {.kind = kind};
    void *data = NULL;
    MUST(cudaSetDevice(rank));
    if (kind == PLAIN)
        MUST(cudaMalloc(&data, BYTES));
    else if (kind == POOL)
        MUST(cudaMallocAsync(&data, BYTES, team->streams[rank]));
    else if (kind == OPEN_POOL || kind == OWN_POOL) {
        b.pool = make_pool(team, rank, kind == OPEN_POOL);
        MUST(cudaMallocFromPoolAsync(&data, BYTES, b.pool, team->streams[rank]));
    } else if (kind == PINNED)
        MUST(cudaHostAlloc(&data, BYTES, cudaHostAllocPortable));
    else if (kind == MANAGED)
        MUST(cudaMallocManaged(&data, BYTES, cudaMemAttachGlobal));
    else
        data = mapped_make(&b.mapped, rank, team->size, BYTES, (int)(APART - kind));
    b.data = data;
    return b;
}

static void release(struct buffer *b, int rank)
{
    MUST(cudaSetDevice(rank));
    if (b->kind >= MAPPED)
        mapped_free(&b->mapped);
    else if (b->kind == PINNED)
        MUST(cudaFreeHost(b->data));
    else
        MUST(cudaFree(b->data));
    if (b->pool != NULL)
        MUST(cudaMemPoolDestroy(b->pool));
}

static void open_row(struct trial *t)
{
    const struct row *row = t->row;
    for (int r = 0; r < t->team->size; r++) {
        t->send[r] = allocate(t->team, r, row->kinds[row->out_of_place ? 0 : r % 2]);
        if (row->out_of_place)
            t->recv[r] = allocate(t->team, r, row->kinds[1]);
    }
}

static void close_row(struct trial *t)
{
    for (int r = 0; r < t->team->size; r++) {
        release(&t->send[r], r);
        if (t->row->out_of_place)
            release(&t->recv[r], r);
    }
}

/* Do all devices reach it where it lies? */
static bool is_reached(const struct buffer *b)
{
    return b->kind == PLAIN || b->kind == POOL || b->kind == OPEN_POOL || b->kind == MAPPED;
}

/* Two shots reach into recv alone. */
static bool rank_is_reached(const struct trial *t, int rank)
{
    return is_reached(t->row->out_of_place ? &t->recv[rank] : &t->send[rank]);
}

static bool all_are_reached(const struct trial *t)
{
    bool reached = true;
    for (int r = 0; r < t->team->size; r++)
        reached = reached && rank_is_reached(t, r);
    return reached;
}

static float *recv_of(const struct trial *t, int rank)
{
    return t->row->out_of_place ? t->recv[rank].data : t->send[rank].data;
}

static uint64_t staged_of(const struct team *team, int rank)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, team->comms[rank]));
    return counters.staged_calls;
}

/* --------------------------------------------------------------------------------------- elements */

/* After all calls: in place each sums what the one before has made equal. */
static float sum_of(const struct trial *t, size_t e)
{
    const bool again = t->how >= THREAD_LOCAL && !t->row->out_of_place;
    float sum = numbers_sum(t->team->size, e);
    for (int i = 1; i < REPLAYS && again; i++)
        sum *= (float)t->team->size;
    return sum;
}

/* No number in recv, and behind what either has. */
static void fill(struct trial *t, int rank)
{
    const cudaStream_t stream = t->team->streams[rank];
    for (size_t e = 0; e < COUNT; e++)
        t->image[e] = numbers_of(rank, e);
    memset(&t->image[COUNT], 0xff, sizeof *t->image);
    MUST(cudaSetDevice(rank));
    MUST(cudaMemsetAsync(recv_of(t, rank), 0xff, BYTES, stream));
    MUST(cudaMemcpyAsync(t->send[rank].data, t->image, BYTES, cudaMemcpyDefault, stream));
    MUST(cudaStreamSynchronize(stream));
    t->staged[rank] = staged_of(t->team, rank);
}

/* The input, or the sums; and the guard behind them. */
static void check_elements(const struct trial *t, int rank, const char *what, const float *data,
                           bool sums)
{
    float *const found = t->image;
    uint32_t behind;
    MUST(cudaSetDevice(rank));
    MUST(cudaMemcpy(found, data, BYTES, cudaMemcpyDefault));
    memcpy(&behind, &found[COUNT], sizeof behind);
    CHECK_MSG(behind == UINT32_MAX, "rank %d: what is behind %s is %08x", rank, what,
              (unsigned)behind);
    for (size_t e = 0; e < COUNT; e++) {
        const float right = sums ? sum_of(t, e) : numbers_of(rank, e);
        if (!CHECK_MSG(found[e] == right, "rank %d: element %zu of %s is %g, expected %g", rank, e,
                       what, (double)found[e], (double)right))
            return;
    }
}

/* After a call that was refused. */
static void check_untouched(const struct trial *t, int rank)
{
    size_t wrong = 0;
    check_elements(t, rank, "send", t->send[rank].data, false);
    if (!t->row->out_of_place)
        return;
    MUST(cudaMemcpy(t->image, t->recv[rank].data, BYTES, cudaMemcpyDefault));
    for (size_t i = 0; i < BYTES; i++)
        wrong += ((const unsigned char *)t->image)[i] != 0xff;
    CHECK_MSG(wrong == 0, "rank %d: %zu bytes of recv have changed", rank, wrong);
}

/* ------------------------------------------------------------------------------------------ calls */

/* If it is not what is expected, no rank waits in vain. */
static void queue(const struct trial *t, int rank, uint32_t flags, trib_status expected)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.flags = flags;
    const trib_status found =
        trib_allreduce_with(t->team->comms[rank], t->send[rank].data, recv_of(t, rank), COUNT,
                            TRIB_F32, TRIB_SUM, &options, t->team->streams[rank]);
    team_go_on(t->team, rank, CHECK_STATUS(found, expected));
}

/* Where it is refused on some rank, those make it that expect this, and no other would ever end. */
static void queue_unstaged(const struct trial *t)
{
    const bool all = all_are_reached(t);
    for (int r = 0; r < t->team->size; r++) {
        if (!all && rank_is_reached(t, r))
            continue;
        queue(t, r, TRIB_CALL_UNSTAGED, all ? TRIB_OK : TRIB_ERR_INVALID_BUFFER);
        if (!all)
            CHECK_DETAIL("`recv`");
    }
}

static cudaGraphExec_t capture(const struct trial *t, int rank)
{
    const cudaStream_t stream = t->team->streams[rank];
    MUST(cudaSetDevice(rank));
    MUST(cudaStreamBeginCapture(stream, t->how == GLOBAL ? cudaStreamCaptureModeGlobal
                                                         : cudaStreamCaptureModeThreadLocal));
    queue(t, rank, 0, TRIB_OK);
    return cuda_end_capture(stream);
}

static bool finish(const struct trial *t)
{
    bool good = true;
    for (int r = 0; r < t->team->size; r++)
        good = team_finish(t->team, r, PLENTY_MS) && good;
    return good;
}

/* All graphs are there before the first one runs, and until the last one has run: CUDA may wait for devices when
 * it makes or destroys one. By one thread, for a global capture forbids all others much of CUDA. */
static bool replay(const struct trial *t)
{
    cudaGraphExec_t graphs[RANKS_MAX];
    for (int r = 0; r < t->team->size; r++)
        graphs[r] = capture(t, r);
    for (int i = 0; i < REPLAYS * t->team->size; i++) {
        const int rank = i % t->team->size;
        MUST(cudaSetDevice(rank));
        MUST(cudaGraphLaunch(graphs[rank], t->team->streams[rank]));
    }
    const bool good = finish(t);
    for (int r = 0; r < t->team->size; r++)
        MUST(cudaGraphExecDestroy(graphs[r]));
    return good;
}

static bool run(const struct trial *t)
{
    if (t->how >= THREAD_LOCAL)
        return replay(t);
    if (t->how == UNSTAGED)
        queue_unstaged(t);
    for (int r = 0; r < t->team->size && t->how == CALLED; r++)
        queue(t, r, 0, TRIB_OK);
    return finish(t);
}

/* ------------------------------------------------------------------------------------------ cases */

/* A graph's call counts once, when it is captured. */
static void check_rank(const struct trial *t, int rank)
{
    const bool refused = t->how == UNSTAGED && !all_are_reached(t);
    const bool staged = t->how != UNSTAGED && !rank_is_reached(t, rank);
    CHECK_MSG(staged_of(t->team, rank) == t->staged[rank] + staged,
              "rank %d: %llu calls were staged, expected %d", rank,
              (unsigned long long)(staged_of(t->team, rank) - t->staged[rank]), (int)staged);
    if (refused) {
        check_untouched(t, rank);
        return;
    }
    check_elements(t, rank, "recv", recv_of(t, rank), true);
    if (t->row->out_of_place)
        check_elements(t, rank, "send", t->send[rank].data, false);
}

static void run_case(struct trial *t)
{
    check_begin("%d ranks: buffers of %s %s %s: %s", t->team->size, names[t->row->kinds[0]],
                t->row->out_of_place ? "into" : "and of", names[t->row->kinds[1]], ways[t->how]);
    for (int r = 0; r < t->team->size; r++)
        fill(t, r);
    if (run(t))
        for (int r = 0; r < t->team->size; r++)
            check_rank(t, r);
    check_end();
}

void memories(const struct team *team)
{
    struct trial t = {.team = team, .image = malloc(BYTES)};
    for (size_t i = 0; i < sizeof rows / sizeof *rows && team_usable(team); i++) {
        t.row = &rows[i];
        open_row(&t);
        for (int how = 0; how < HOWS && team_usable(team); how++) {
            t.how = (enum how)how;
            run_case(&t);
        }
        close_row(&t);
    }
    free(t.image);
}
