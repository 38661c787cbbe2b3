/* Large allreduces through the library, on 2 to 4 GPUs of this process, as push in two shots and pull serve
 * them: by name, next to the limits, from every kind of memory, on two streams, captured, in lists, and while
 * they are aborted. */
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/pull/busy.h"
#include "tests/pull/by_name.h"
#include "tests/pull/crossing.h"
#include "tests/pull/large_kinds.h"
#include "tests/pull/mapped.h"
#include "tests/pull/reuse.h"
#include "tests/team.h"

enum {
    RANKS_MAX = 4,
    PLENTY_MS = 20000,
    MIB = 1 << 20,
    MOST = 40 * MIB,         /* bytes of a buffer */
    MOST_OF_MANY = 16 * MIB, /* of a call of more than 2 ranks */
    PIECES = 3,
    REPLAYS = 100
};
/* What both kernels have on a device at least; push alone takes half. */
#define BOTH_BYTES ((uint64_t)14 * MIB)

/* The last three: mapped by cuMemMap for all devices, the first half of it, and for its own alone. */
enum memory { PLAIN, POOL, PINNED, MAPPED, HALF, APART };

/* One team for all cases but those that abort. */
struct large {
    struct team team;
    void *send[RANKS_MAX], *recv[RANKS_MAX]; /* of cudaMalloc */
    struct mapped mapped[RANKS_MAX];         /* what a rank has of these */
    unsigned char *image;
};

static size_t placed; /* bytes on each device, by the log */

static void take_line(void *context, int32_t level, const char *line)
{
    const char *const at = strstr(line, "allocated ");
    (void)context;
    (void)level;
    if (at != NULL && strstr(line, "by which they reach each other") != NULL)
        placed = strtoull(at + strlen("allocated "), NULL, 10);
}

static bool open_team(struct team *team, int ranks)
{
    return team_create(team, "nccl", ranks, NULL);
}

static void current(int rank)
{
    MUST(cudaSetDevice(rank));
}

/* Element `e` of rank `r`: small, so that sums are exact in every type. */
static float input(int rank, size_t e)
{
    return (float)((e * 7 + (size_t)rank * 3) % 11);
}

static float sum_of(int ranks, size_t e)
{
    float sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += input(r, e);
    return sum;
}

static void fill(struct large *l, int rank, void *data, size_t count)
{
    float *image = (float *)(void *)l->image;
    for (size_t e = 0; e < count; e++)
        image[e] = input(rank, e);
    current(rank);
    MUST(cudaMemcpyAsync(data, image, count * sizeof *image, cudaMemcpyDefault,
                         l->team.streams[rank]));
    MUST(cudaStreamSynchronize(l->team.streams[rank]));
}

/* The sums, `times` over, and the guard behind them. */
static void expect(struct large *l, int rank, const void *data, size_t count, float times)
{
    const float *found = (const float *)(const void *)l->image;
    CHECK(team_wait(&l->team, rank, PLENTY_MS));
    current(rank);
    MUST(cudaMemcpy(l->image, data, (count + 1) * sizeof *found, cudaMemcpyDefault));
    for (size_t e = 0; e < count; e++)
        if (found[e] != times * sum_of(l->team.size, e)) {
            CHECK_MSG(false, "rank %d: element %zu of %zu is %g, expected %g", rank, e, count,
                      (double)found[e], (double)(times * sum_of(l->team.size, e)));
            return;
        }
    uint32_t behind;
    memcpy(&behind, &found[count], sizeof behind);
    CHECK_MSG(behind == UINT32_MAX, "rank %d: what is behind %zu elements is %08x", rank, count,
              behind);
}

static void *allocate(struct large *l, int rank, enum memory memory, size_t bytes)
{
    void *data = NULL;
    current(rank);
    if (memory == PLAIN)
        MUST(cudaMalloc(&data, bytes));
    else if (memory == POOL)
        MUST(cudaMallocAsync(&data, bytes, l->team.streams[rank]));
    else if (memory == PINNED)
        MUST(cudaHostAlloc(&data, bytes, cudaHostAllocPortable));
    else
        data = mapped_make(&l->mapped[rank], rank, l->team.size, bytes, (int)(APART - memory));
    return data;
}

static void release(struct large *l, int rank, enum memory memory, void *data)
{
    current(rank);
    if (memory >= MAPPED)
        mapped_free(&l->mapped[rank]);
    else if (memory == PINNED)
        MUST(cudaFreeHost(data));
    else
        MUST(cudaFree(data));
}

/* All ranks by this thread, as a group would. */
static bool sum(const struct large *l, const void *const *send, void *const *recv, size_t count)
{
    bool good = true;
    for (int r = 0; r < l->team.size; r++)
        good = CHECK_OK(trib_allreduce(l->team.comms[r], send[r], recv[r], count, TRIB_F32,
                                       TRIB_SUM, l->team.streams[r])) &&
               good;
    return good;
}

/* `shift` elements from where the allocation begins, on rank 1. */
static void one_size(struct large *l, size_t count, size_t shift, bool in_place)
{
    const void *send[RANKS_MAX];
    void *recv[RANKS_MAX];
    check_begin("%d ranks: %zu elements, %zu from the beginning, %s", l->team.size, count, shift,
                in_place ? "in place" : "out of place");
    for (int r = 0; r < l->team.size; r++) {
        recv[r] = (float *)(in_place ? l->send[r] : l->recv[r]) + (r == 1 ? shift : 0);
        send[r] = (float *)l->send[r] + (r == 1 ? shift : 0);
        current(r);
        MUST(cudaMemset(recv[r], 0xff, (count + 1) * sizeof(float)));
        MUST(cudaDeviceSynchronize());
        fill(l, r, (float *)l->send[r] + (r == 1 ? shift : 0), count);
    }
    if (sum(l, send, recv, count))
        for (int r = 0; r < l->team.size; r++)
            expect(l, r, recv[r], count, 1);
    check_end();
}

static void sizes(struct large *l)
{
    /* Push in one shot, in two from 256, 384 or 768 KiB on, and pull. */
    static const size_t counts[] = {MIB / 16,    MIB / 16 + 1, 3 * MIB / 32 + 1, MIB / 8 - 1,
                                    MIB / 8,     MIB / 8 + 1,  200003,           MIB / 4 - 4,
                                    MIB / 4 - 1, MIB / 4,      MIB / 4 + 1,      MIB / 2 + 1,
                                    1000003,     4 * MIB - 1,  4 * MIB,          MOST / 4 - 16};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (l->team.size > 2 && counts[i] > MOST_OF_MANY / sizeof(float))
            continue; /* NCCL's, which would want a thread for each rank */
        for (size_t shift = 0; shift < 4; shift += 3)
            for (int in_place = 0; in_place < 2; in_place++)
                one_size(l, counts[i], shift, in_place != 0);
    }
}

static bool is_reached(enum memory memory)
{
    return memory == PLAIN || memory == POOL || memory == MAPPED;
}

static uint64_t staged_of(const struct large *l, int rank)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, l->team.comms[rank]));
    return counters.staged_calls;
}

static void memories(struct large *l)
{
    static const enum memory kinds[][2] = {{PLAIN, POOL},    {POOL, PLAIN},   {POOL, POOL},
                                           {PINNED, PLAIN},  {PLAIN, PINNED}, {PINNED, POOL},
                                           {MAPPED, MAPPED}, {PLAIN, MAPPED}, {MAPPED, PINNED},
                                           {APART, MAPPED},  {HALF, PLAIN},   {APART, HALF}};
    static const char *const names[] = {"cudaMalloc",           "a pool",
                                        "pinned memory",        "cuMemMap",
                                        "cuMemMap, half apart", "cuMemMap, apart"};
    enum { COUNT = 1000003 };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const void *send[RANKS_MAX];
        void *recv[RANKS_MAX];
        uint64_t before[RANKS_MAX];
        check_begin("%d ranks: buffers of %s and of %s", l->team.size, names[kinds[i][0]],
                    names[kinds[i][1]]);
        for (int r = 0; r < l->team.size; r++) {
            send[r] = recv[r] = allocate(l, r, kinds[i][r % 2], (COUNT + 1) * sizeof(float));
            before[r] = staged_of(l, r);
            current(r);
            MUST(cudaMemsetAsync(recv[r], 0xff, (COUNT + 1) * sizeof(float), l->team.streams[r]));
            fill(l, r, recv[r], COUNT);
        }
        if (sum(l, send, recv, COUNT))
            for (int r = 0; r < l->team.size; r++)
                expect(l, r, recv[r], COUNT, 1);
        for (int r = 0; r < l->team.size; r++) {
            CHECK(staged_of(l, r) == before[r] + !is_reached(kinds[i][r % 2]));
            release(l, r, kinds[i][r % 2], recv[r]);
        }
        check_end();
    }
}

/* Small and large ones, on two streams by turns: each rank's calls stay in order. */
static void streams(struct large *l)
{
    enum { CALLS = 200, COUNT = 1000003 };
    cudaStream_t second[RANKS_MAX];
    check_begin("%d ranks: calls on two streams by turns", l->team.size);
    for (int r = 0; r < l->team.size; r++) {
        current(r);
        MUST(cudaStreamCreateWithFlags(&second[r], cudaStreamNonBlocking));
        MUST(cudaMemset(l->recv[r], 0xff, (COUNT + 1) * sizeof(float)));
        MUST(cudaDeviceSynchronize());
        fill(l, r, l->send[r], COUNT);
    }
    for (int i = 0; i < CALLS; i++)
        for (int r = 0; r < l->team.size; r++) {
            const trib_stream stream = i % 2 != 0 ? (trib_stream)second[r] : l->team.streams[r];
            CHECK_OK(trib_allreduce(l->team.comms[r], l->send[r], l->recv[r],
                                    i % 5 == 0 && i + 2 < CALLS ? 1000 : COUNT, TRIB_F32, TRIB_SUM,
                                    stream));
        }
    for (int r = 0; r < l->team.size; r++) {
        current(r);
        MUST(cudaStreamSynchronize(second[r]));
        expect(l, r, l->recv[r], COUNT, 1);
        MUST(cudaStreamDestroy(second[r]));
    }
    check_end();
}

/* What a graph does on each rank: r = sum of s; and then once more, the sum of that. */
struct captured {
    struct large *large;
    cudaGraphExec_t replays[RANKS_MAX];
};

static void capture(int rank, int size, void *argument)
{
    struct captured *c = argument;
    struct large *l = c->large;
    enum { COUNT = 1000003 };
    const cudaStream_t stream = l->team.streams[rank];
    cudaGraph_t graph;
    (void)size;
    current(rank);
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_OK(trib_allreduce(l->team.comms[rank], l->send[rank], l->recv[rank], COUNT, TRIB_F32,
                            TRIB_SUM, stream));
    CHECK_OK(trib_allreduce(l->team.comms[rank], l->recv[rank], l->recv[rank], COUNT, TRIB_F32,
                            TRIB_MAX, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&c->replays[rank], graph, 0));
    MUST(cudaGraphDestroy(graph));
    for (int i = 0; i < REPLAYS; i++) {
        MUST(cudaGraphLaunch(c->replays[rank], stream));
        if (i % 10 == 0)
            CHECK_OK(trib_allreduce(l->team.comms[rank], l->send[rank], l->recv[rank], COUNT,
                                    TRIB_F32, TRIB_SUM, stream));
    }
    CHECK(team_wait(&l->team, rank, PLENTY_MS));
    MUST(cudaGraphExecDestroy(c->replays[rank]));
}

static void graphs(struct large *l)
{
    enum { COUNT = 1000003 };
    struct captured c = {.large = l};
    check_begin("%d ranks: a graph %d times, and calls between", l->team.size, REPLAYS);
    for (int r = 0; r < l->team.size; r++) {
        current(r);
        MUST(cudaMemset(l->recv[r], 0xff, (COUNT + 1) * sizeof(float)));
        MUST(cudaDeviceSynchronize());
        fill(l, r, l->send[r], COUNT);
    }
    check_ranks(l->team.size, capture, &c);
    for (int r = 0; r < l->team.size; r++)
        expect(l, r, l->recv[r], COUNT, 1);
    check_end();
}

/* A list whose bucket is large. */
static void lists(struct large *l)
{
    enum { COUNT = 700001 };
    check_begin("%d ranks: a list of %d tensors", l->team.size, (int)PIECES);
    for (int r = 0; r < l->team.size; r++) {
        float *tensors[PIECES] = {l->send[r], l->recv[r], (float *)l->recv[r] + COUNT + 1};
        trib_tensor list[PIECES];
        current(r);
        for (int i = 0; i < PIECES; i++) {
            MUST(cudaMemset(tensors[i], 0xff, (COUNT + 1) * sizeof(float)));
            MUST(cudaDeviceSynchronize());
            fill(l, r, tensors[i], COUNT);
            list[i] = (trib_tensor){tensors[i], COUNT, TRIB_F32, 0};
        }
        CHECK_OK(trib_allreduce_list(l->team.comms[r], list, PIECES, TRIB_SUM, l->team.streams[r]));
    }
    for (int r = 0; r < l->team.size; r++) {
        expect(l, r, l->send[r], COUNT, 1);
        expect(l, r, l->recv[r], COUNT, 1);
        expect(l, r, (float *)l->recv[r] + COUNT + 1, COUNT, 1);
    }
    check_end();
}

/* Only rank 0 makes the last call; an abort ends it, and all buffers can then be freed. */
static void aborts(int ranks)
{
    enum { COUNT = 4 * MIB, ROUNDS = 5 };
    for (int round = 0; round < ROUNDS; round++) {
        struct team team;
        trib_abort *handle = NULL;
        void *data[RANKS_MAX];
        check_begin("%d ranks: an abort while one waits, round %d", ranks, round);
        if (!open_team(&team, ranks))
            break;
        for (int r = 0; r < ranks; r++) {
            current(r);
            MUST(cudaMalloc(&data[r], COUNT * sizeof(float)));
            MUST(cudaMemset(data[r], 0, COUNT * sizeof(float)));
            MUST(cudaDeviceSynchronize());
            for (int i = 0; i < 3 + (r == 0); i++)
                CHECK_OK(trib_allreduce(team.comms[r], data[r], data[r], COUNT, TRIB_F32, TRIB_SUM,
                                        team.streams[r]));
        }
        check_sleep_ms(round % 2 != 0 ? 50 : 0);
        CHECK_OK(trib_comm_abort_handle(&handle, team.comms[1]));
        CHECK_OK(trib_abort_raise(handle, "enough"));
        trib_abort_release(handle);
        for (int r = 0; r < ranks; r++) {
            CHECK(team_wait(&team, r, PLENTY_MS));
            CHECK_STATUS(trib_comm_status(team.comms[r]), TRIB_ERR_ABORTED);
            current(r);
            MUST(cudaFree(data[r]));
        }
        team_close(&team);
        team_destroy(&team);
        check_end();
    }
    CHECK_OK(trib_quiesce(PLENTY_MS));
}

static void run(struct large *l)
{
    for (int r = 0; r < l->team.size; r++) {
        l->send[r] = allocate(l, r, PLAIN, MOST + 64);
        l->recv[r] = allocate(l, r, PLAIN, MOST + 64);
    }
    l->image = malloc(MOST + 64);
    sizes(l);
    memories(l);
    streams(l);
    graphs(l);
    lists(l);
    free(l->image);
    for (int r = 0; r < l->team.size; r++) {
        release(l, r, PLAIN, l->send[r]);
        release(l, r, PLAIN, l->recv[r]);
    }
}

static void on(int ranks)
{
    static struct large l;
    placed = 0;
    check_begin("%d ranks: creation", ranks);
    const bool ready = open_team(&l.team, ranks);
    const bool pulls = placed >= BOTH_BYTES;
    CHECK_MSG(pulls, "%zu bytes: pull has no memory, and NCCL serves all", placed);
    check_end();
    if (!ready)
        return;
    if (pulls) {
        by_name(&l.team);
        run(&l);
        reuse(&l.team);
        busy(&l.team);
        crossing(&l.team);
    }
    if (pulls && ranks == 2)
        large_kinds(&l.team);
    team_close(&l.team);
    team_destroy(&l.team);
    if (pulls)
        aborts(ranks);
}

int main(void)
{
    const int limit = team_limit("nccl");
    if (limit < 2)
        check_skip("there are not two GPUs");
    else {
        CHECK_OK(trib_log_set(take_line, NULL, TRIB_LOG_INFO));
        CHECK_OK(trib_debug_set(1));
    }
    for (int ranks = 2; ranks <= limit && ranks <= RANKS_MAX; ranks++)
        on(ranks);
    return check_finish("large_gpus_test");
}
