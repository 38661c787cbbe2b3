/* Large allreduces through the library, on 2 to 4 GPUs of this process, as push in two shots and pull serve
 * them: by name, next to the limits, from every kind of memory, on two streams, captured, in lists, and while
 * they are aborted. */
#define _POSIX_C_SOURCE 200809L
#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/cuda_graph.h"
#include "tests/conformance/cuda_must.h"
#include "tests/pull/aborts.h"
#include "tests/pull/busy.h"
#include "tests/pull/by_name.h"
#include "tests/pull/crossing.h"
#include "tests/pull/large_kinds.h"
#include "tests/pull/memories.h"
#include "tests/pull/numbers.h"
#include "tests/pull/reuse.h"
#include "tests/team.h"

enum {
    RANKS_MAX = 4,
    PLENTY_MS = 20000,
    MIB = 1 << 20,
    MOST = 40 * MIB,         /* bytes of a buffer */
    MOST_OF_MANY = 16 * MIB, /* of a call of more than 2 ranks */
    PIECES = 3,              /* of a list, of LIST_COUNT elements each */
    LIST_COUNT = 700001,
    REPLAYS = 100,
    GRAPH_COUNT = NUMBERS_PULLED
};
/* What both kernels have on a device at least; push alone takes less than half. */
#define BOTH_BYTES ((uint64_t)40 * MIB)

/* One team for all cases but those that abort. */
struct large {
    struct team team;
    void *send[RANKS_MAX], *recv[RANKS_MAX];
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

static void current(int rank)
{
    MUST(cudaSetDevice(rank));
}

static void fill(struct large *l, int rank, void *data, size_t count)
{
    float *image = (float *)(void *)l->image;
    for (size_t e = 0; e < count; e++)
        image[e] = numbers_of(rank, e);
    current(rank);
    MUST(cudaMemcpyAsync(data, image, count * sizeof *image, cudaMemcpyDefault,
                         l->team.streams[rank]));
    MUST(cudaStreamSynchronize(l->team.streams[rank]));
}

/* The sums, `times` over, and the guard behind them. */
static void expect(struct large *l, int rank, const void *data, size_t count, float times)
{
    const float *found = (const float *)(const void *)l->image;
    if (!team_finish(&l->team, rank, PLENTY_MS))
        return;
    current(rank);
    MUST(cudaMemcpy(l->image, data, (count + 1) * sizeof *found, cudaMemcpyDefault));
    for (size_t e = 0; e < count; e++)
        if (found[e] != times * numbers_sum(l->team.size, e)) {
            CHECK_MSG(false, "rank %d: element %zu of %zu is %g, expected %g", rank, e, count,
                      (double)found[e], (double)(times * numbers_sum(l->team.size, e)));
            return;
        }
    uint32_t behind;
    memcpy(&behind, &found[count], sizeof behind);
    CHECK_MSG(behind == UINT32_MAX, "rank %d: what is behind %zu elements is %08x", rank, count,
              behind);
}

/* A call of one rank; if it fails, those of the others end. */
static bool sum_of_rank(const struct large *l, int rank, const void *send, void *recv, size_t count,
                        trib_op op, trib_stream stream)
{
    return team_go_on(
        &l->team, rank,
        CHECK_OK(trib_allreduce(l->team.comms[rank], send, recv, count, TRIB_F32, op, stream)));
}

/* All ranks by this thread, as a group would. */
static bool sum(const struct large *l, const void *const *send, void *const *recv, size_t count)
{
    bool good = true;
    for (int r = 0; r < l->team.size && good; r++)
        good = sum_of_rank(l, r, send[r], recv[r], count, TRIB_SUM, l->team.streams[r]);
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
    static const size_t counts[] = {
        MIB / 16, MIB / 16 + 1, 3 * MIB / 32 + 1, MIB / 8 - 1, MIB / 8,      MIB / 8 + 1,
        200003,   MIB / 4 - 4,  MIB / 4 - 1,      MIB / 4,     MIB / 4 + 1,  MIB / 2 + 1,
        MIB,      MIB + 1,      4 * MIB - 1,      4 * MIB,     MOST / 4 - 16};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && team_usable(&l->team); i++) {
        if (l->team.size > 2 && counts[i] > MOST_OF_MANY / sizeof(float))
            continue; /* NCCL's, which would want a thread for each rank */
        for (size_t shift = 0; shift < 4; shift += 3)
            for (int in_place = 0; in_place < 2; in_place++)
                one_size(l, counts[i], shift, in_place != 0);
    }
}

/* Small and large ones, on two streams by turns: each rank's calls stay in order. */
static void streams(struct large *l)
{
    enum { CALLS = 200, COUNT = NUMBERS_PULLED };
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
            sum_of_rank(l, r, l->send[r], l->recv[r], i % 5 == 0 && i + 2 < CALLS ? 1000 : COUNT,
                        TRIB_SUM, stream);
        }
    for (int r = 0; r < l->team.size; r++) {
        if (team_go_on(&l->team, r,
                       CHECK_OK(trib_comm_wait(l->team.comms[r], second[r], PLENTY_MS))))
            expect(l, r, l->recv[r], COUNT, 1);
        current(r);
        MUST(cudaStreamDestroy(second[r]));
    }
    check_end();
}

/* What a graph does on each rank: r = sum of s; and then once more, the sum of that. */
struct captured {
    struct large *large;
    _Atomic int ready, done; /* ranks that have their graph; that have replayed it */
};

static cudaGraphExec_t capture(const struct large *l, int rank)
{
    const cudaStream_t stream = l->team.streams[rank];
    current(rank);
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    sum_of_rank(l, rank, l->send[rank], l->recv[rank], GRAPH_COUNT, TRIB_SUM, stream);
    sum_of_rank(l, rank, l->recv[rank], l->recv[rank], GRAPH_COUNT, TRIB_MAX, stream);
    return cuda_end_capture(stream);
}

/* CUDA may wait for devices when it makes an executable graph and when it destroys one, so none runs then. */
static void replay(int rank, int size, void *argument)
{
    struct captured *c = argument;
    const struct large *l = c->large;
    const cudaStream_t stream = l->team.streams[rank];
    const cudaGraphExec_t graph = capture(l, rank);
    team_barrier(&c->ready, size);
    for (int i = 0; i < REPLAYS; i++) {
        MUST(cudaGraphLaunch(graph, stream));
        if (i % 10 == 0)
            sum_of_rank(l, rank, l->send[rank], l->recv[rank], GRAPH_COUNT, TRIB_SUM, stream);
    }
    team_finish(&l->team, rank, PLENTY_MS);
    team_barrier(&c->done, size);
    MUST(cudaGraphExecDestroy(graph));
}

static void graphs(struct large *l)
{
    struct captured c = {.large = l};
    check_begin("%d ranks: a graph %d times, and calls between", l->team.size, REPLAYS);
    for (int r = 0; r < l->team.size; r++) {
        current(r);
        MUST(cudaMemset(l->recv[r], 0xff, (GRAPH_COUNT + 1) * sizeof(float)));
        MUST(cudaDeviceSynchronize());
        fill(l, r, l->send[r], GRAPH_COUNT);
    }
    check_ranks(l->team.size, replay, &c);
    for (int r = 0; r < l->team.size; r++)
        expect(l, r, l->recv[r], GRAPH_COUNT, 1);
    check_end();
}

/* The rank's list, and its tensors filled. With `swapped` they come in another order: it is another list. */
static void fill_list(struct large *l, int r, bool swapped, trib_tensor *list)
{
    float *const tensors[PIECES] = {l->send[r], l->recv[r], (float *)l->recv[r] + LIST_COUNT + 1};
    current(r);
    for (int i = 0; i < PIECES; i++) {
        float *const data = tensors[swapped ? PIECES - 1 - i : i];
        MUST(cudaMemset(data, 0xff, (LIST_COUNT + 1) * sizeof *data));
        MUST(cudaDeviceSynchronize());
        fill(l, r, data, LIST_COUNT);
        list[i] = (trib_tensor){data, LIST_COUNT, TRIB_F32, 0};
    }
}

static bool list_of_rank(const struct large *l, int r, const trib_tensor *list, bool averages)
{
    trib_comm *const comm = l->team.comms[r];
    const trib_stream stream = l->team.streams[r];
    return team_go_on(
        &l->team, r,
        averages ? CHECK_OK(trib_weighted_average(comm, list, PIECES, 1, NULL, NULL, stream))
                 : CHECK_OK(trib_allreduce_list(comm, list, PIECES, TRIB_SUM, stream)));
}

/* A list whose bucket is large, again and again: from the second call on the collective packs it, on all ranks but
 * the first, which has another list in each. */
static void list_again(struct large *l, bool averages)
{
    const float times = averages ? 1 / (float)l->team.size : 1;
    check_begin("%d ranks: a list of %d tensors, %s", l->team.size, (int)PIECES,
                averages ? "averages" : "sums");
    for (int round = 0; round < 4; round++) {
        for (int r = 0; r < l->team.size; r++) {
            trib_tensor list[PIECES];
            fill_list(l, r, r == 0 && round % 2 == 1, list);
            list_of_rank(l, r, list, averages);
        }
        for (int r = 0; r < l->team.size; r++) {
            expect(l, r, l->send[r], LIST_COUNT, times);
            expect(l, r, l->recv[r], LIST_COUNT, times);
            expect(l, r, (float *)l->recv[r] + LIST_COUNT + 1, LIST_COUNT, times);
        }
    }
    check_end();
}

/* Averages of 3 are not exact. */
static void lists(struct large *l)
{
    list_again(l, false);
    if (l->team.size != 3)
        list_again(l, true);
}

static void own_cases(struct large *l)
{
    static void (*const cases[])(struct large *l) = {sizes, streams, graphs, lists};
    for (int r = 0; r < l->team.size; r++) {
        current(r);
        MUST(cudaMalloc(&l->send[r], MOST + 64));
        MUST(cudaMalloc(&l->recv[r], MOST + 64));
    }
    l->image = malloc(MOST + 64);
    for (size_t i = 0; i < sizeof cases / sizeof *cases && team_usable(&l->team); i++)
        cases[i](l);
    free(l->image);
    for (int r = 0; r < l->team.size; r++) {
        current(r);
        MUST(cudaFree(l->send[r]));
        MUST(cudaFree(l->recv[r]));
    }
}

/* A case that fails may end the communicator. Those behind it could then only fail, and are left out. */
static void all_cases(struct large *l)
{
    static void (*const cases[])(const struct team *team) = {by_name, memories, reuse, busy,
                                                             crossing};
    own_cases(l);
    for (size_t i = 0; i < sizeof cases / sizeof *cases && team_usable(&l->team); i++)
        cases[i](&l->team);
    if (l->team.size == 2 && team_usable(&l->team))
        large_kinds(&l->team);
    check_begin("%d ranks: the communicator has lasted", l->team.size);
    CHECK(team_usable(&l->team));
    check_end();
}

/* False: devices are not free. */
static bool on(int ranks)
{
    static struct large l;
    placed = 0;
    check_begin("%d ranks: creation", ranks);
    const bool ready = team_create(&l.team, "nccl", ranks, NULL);
    const bool pulls = placed >= BOTH_BYTES;
    CHECK_MSG(pulls, "%zu bytes: pull has no memory, and NCCL serves all", placed);
    check_end();
    if (!ready)
        return true;
    if (pulls)
        all_cases(&l);
    team_close(&l.team);
    team_destroy(&l.team);
    return !pulls || aborts(ranks);
}

/* By default the streams of a device share 8 hardware queues, in which what one stream has queued may stand behind
 * what waits on another. The ranks of `crossing` have several streams on each device: where a call stands behind
 * one that waits for a peer, and there it is the other way round, nothing ever ends. CUDA reads it when it
 * begins. */
static void give_queues(void)
{
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

int main(void)
{
    give_queues();
    const int limit = team_limit("nccl");
    if (limit < 2)
        check_skip("there are not two GPUs");
    else {
        CHECK_OK(trib_log_set(take_line, NULL, TRIB_LOG_INFO));
        CHECK_OK(trib_debug_set(1));
    }
    for (int ranks = 2; ranks <= limit && ranks <= RANKS_MAX; ranks++)
        if (!on(ranks))
            break;
    return check_finish("large_gpus_test");
}
