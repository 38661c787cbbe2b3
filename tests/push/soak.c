#include "tests/push/soak.h"

#include <stdatomic.h>
#include <stdio.h>

#include "csrc/base/clock.h"
#include "tests/check.h"
#include "tests/conformance/cuda_graph.h"
#include "tests/conformance/cuda_must.h"
#include "tests/push/soak_calls.h"
#include "tests/team.h"

enum { GRAPH_CALLS = 5, SMALL_CALLS = 1000 };

static void CUDART_CB rest(void *us)
{
    const uint64_t until = tri_now_ns() + (uint64_t)(uintptr_t)us * 1000;
    while (tri_now_ns() < until)
        continue;
}

/* One launch in eight is late by up to 30 us, and the stream once in 200 times by up to 300 us. */
static void be_late(struct soak_thread *t)
{
    const uint64_t chance = soak_draw(&t->own);
    if (chance % 8 == 0)
        rest((void *)(uintptr_t)(chance / 8 % 30));
    if (chance % 200 == 1)
        MUST(cudaLaunchHostFunc(t->soak->gpus->streams[t->rank], rest,
                                (void *)(uintptr_t)(chance / 200 % 300)));
}

static void fetch(struct soak_thread *t, size_t bytes)
{
    MUST(cudaMemcpyAsync(t->found, t->out, bytes, cudaMemcpyDeviceToHost,
                         t->soak->gpus->streams[t->rank]));
    gpus_wait(t->soak->gpus, t->rank);
}

static void random_rank(int rank, int size, void *argument)
{
    struct soak *s = argument;
    struct soak_thread *t = soak_begin(s, rank);
    struct soak_call calls[SOAK_BATCH];
    (void)size;
    for (int done = 0; done < s->calls && *(volatile uint32_t *)s->gpus->abort_flag == 0;) {
        size_t at = 0;
        int n = 0;
        for (; n < SOAK_BATCH && done < s->calls; n++, done++) {
            calls[n] = soak_random_call(t, at, false);
            be_late(t);
            soak_queue_call(t, &calls[n]);
            at = soak_end_of(t, &calls[n]);
        }
        fetch(t, at);
        for (int i = 0; i < n; i++)
            soak_check(t, &calls[i], calls[i].at);
    }
}

void soak_random(struct gpus *gpus, int calls)
{
    struct soak s;
    check_begin("push on %d GPUs: %d calls of random sizes, late by chance", gpus->size, calls);
    soak_open(&s, gpus, calls);
    const double began = check_now_ms();
    check_ranks(gpus->size, random_rank, &s);
    CHECK_MSG(*gpus->abort_flag == 0, "a call waited for more than %d ms", GPUS_PATIENCE_MS);
    printf("push: %d random calls in %.1f s\n", calls, (check_now_ms() - began) / 1e3);
    soak_close(&s);
    check_end();
}

/* ---- graphs */

/* In place: where a call has its `send`, or its result, in the block for it. */
static size_t send_at(const struct soak_thread *t, const struct soak_call *call)
{
    return call->at +
           (call->kind == TRI_PUSH_ALLGATHER ? (size_t)t->rank * soak_block_bytes(call) : 0);
}

static size_t recv_at(const struct soak_thread *t, const struct soak_call *call)
{
    return call->at +
           (call->kind == TRI_PUSH_REDUCE_SCATTER ? (size_t)t->rank * soak_block_bytes(call) : 0);
}

static void begin_capture(struct soak_thread *t)
{
    MUST(cudaStreamBeginCapture(t->soak->gpus->streams[t->rank], cudaStreamCaptureModeThreadLocal));
}

/* `calls`, whose inputs are copies that the stream makes before the graph: in place. */
static cudaGraphExec_t capture(struct soak_thread *t, const struct soak_call *calls)
{
    begin_capture(t);
    for (int i = 0; i < GRAPH_CALLS; i++)
        soak_queue(t, &calls[i], t->out + send_at(t, &calls[i]), t->out + recv_at(t, &calls[i]));
    return cuda_end_capture(t->soak->gpus->streams[t->rank]);
}

/* What the next launch of the graph works on. */
static void set_inputs(struct soak_thread *t, struct soak_call *calls)
{
    for (int i = 0; i < GRAPH_CALLS; i++) {
        calls[i].input = (int)(soak_draw(&t->common) % SOAK_INPUTS);
        const size_t width = trib_dtype_size(soak_dtype(&calls[i]));
        const size_t blocks =
            calls[i].kind == TRI_PUSH_REDUCE_SCATTER ? soak_blocks(t, &calls[i]) : 1;
        MUST(cudaMemcpyAsync(t->out + send_at(t, &calls[i]),
                             t->soak->inputs[t->rank][calls[i].type][calls[i].input] +
                                 calls[i].first * width,
                             blocks * soak_block_bytes(&calls[i]), cudaMemcpyDeviceToDevice,
                             t->soak->gpus->streams[t->rank]));
    }
}

static void graph_rank(int rank, int size, void *argument)
{
    struct soak *s = argument;
    struct soak_thread *t = soak_begin(s, rank);
    struct soak_call calls[GRAPH_CALLS + 1];
    size_t at = 0;
    for (int i = 0; i < GRAPH_CALLS; i++) {
        calls[i] = soak_random_call(t, at, true);
        at = soak_end_of(t, &calls[i]);
    }
    cudaGraphExec_t graph = capture(t, calls);
    team_barrier(&s->ready, size);
    for (int i = 0; i < s->calls && *(volatile uint32_t *)s->gpus->abort_flag == 0; i++) {
        const int n = GRAPH_CALLS + (int)(soak_draw(&t->common) % 2);
        set_inputs(t, calls);
        be_late(t);
        MUST(cudaGraphLaunch(graph, s->gpus->streams[rank]));
        calls[GRAPH_CALLS] = soak_random_call(t, at, false);
        if (n > GRAPH_CALLS)
            soak_queue_call(t, &calls[GRAPH_CALLS]);
        fetch(t, at + SOAK_BYTES + 16);
        for (int k = 0; k < n; k++)
            soak_check(t, &calls[k], k < GRAPH_CALLS ? recv_at(t, &calls[k]) : calls[k].at);
    }
    MUST(cudaGraphExecDestroy(graph));
}

void soak_graphs(struct gpus *gpus, int launches)
{
    struct soak s;
    check_begin("push on %d GPUs: a graph %d times, and eager calls between", gpus->size, launches);
    soak_open(&s, gpus, launches);
    check_ranks(gpus->size, graph_rank, &s);
    CHECK_MSG(*gpus->abort_flag == 0, "a call waited for more than %d ms", GPUS_PATIENCE_MS);
    soak_close(&s);
    check_end();
}

/* ---- small calls back to back */

/* Into places of their own, which the graph first fills with bytes that no result is. */
static cudaGraphExec_t capture_small(struct soak_thread *t, struct soak_call *calls, size_t *bytes)
{
    *bytes = 0;
    for (int i = 0; i < SMALL_CALLS; i++) {
        calls[i] = soak_small_call(t, *bytes);
        *bytes = soak_end_of(t, &calls[i]);
    }
    begin_capture(t);
    MUST(cudaMemsetAsync(t->out, 0x5a, *bytes, t->soak->gpus->streams[t->rank]));
    for (int i = 0; i < SMALL_CALLS; i++)
        soak_queue_call(t, &calls[i]);
    return cuda_end_capture(t->soak->gpus->streams[t->rank]);
}

static void small_rank(int rank, int size, void *argument)
{
    struct soak *s = argument;
    struct soak_thread *t = soak_begin(s, rank);
    struct soak_call calls[SMALL_CALLS];
    size_t bytes;
    cudaGraphExec_t graph = capture_small(t, calls, &bytes);
    team_barrier(&s->ready, size);
    for (int done = 0; done < s->calls && *(volatile uint32_t *)s->gpus->abort_flag == 0;
         done += SMALL_CALLS) {
        MUST(cudaGraphLaunch(graph, s->gpus->streams[rank]));
        fetch(t, bytes);
        for (int i = 0; i < SMALL_CALLS; i++)
            soak_check(t, &calls[i], calls[i].at);
    }
    MUST(cudaGraphExecDestroy(graph));
}

void soak_small(struct gpus *gpus, int calls)
{
    struct soak s;
    check_begin("push on %d GPUs: %d small allreduces back to back", gpus->size, calls);
    soak_open(&s, gpus, calls);
    const double began = check_now_ms();
    check_ranks(gpus->size, small_rank, &s);
    CHECK_MSG(*gpus->abort_flag == 0, "a call waited for more than %d ms", GPUS_PATIENCE_MS);
    printf("push: %d small allreduces in %.1f s, looked at between\n", calls,
           (check_now_ms() - began) / 1e3);
    soak_close(&s);
    check_end();
}

/* ---- aborts */

static void traffic_rank(int rank, int size, void *argument)
{
    struct soak *s = argument;
    struct soak_thread *t = soak_begin(s, rank);
    (void)size;
    while (!atomic_load(&s->stopped)) {
        for (int i = 0; i < SOAK_BATCH; i++) {
            const struct soak_call call = soak_random_call(t, 0, false);
            be_late(t);
            soak_queue_call(t, &call);
        }
        gpus_wait(s->gpus, rank);
    }
}

/* The last of the threads is the one that sets the flag. */
static void abort_rank(int rank, int size, void *argument)
{
    struct soak *s = argument;
    if (rank < size - 1) {
        traffic_rank(rank, size, argument);
        return;
    }
    check_sleep_ms(20);
    __atomic_store_n(s->gpus->abort_flag, TRI_PUSH_ABORTED, __ATOMIC_RELEASE);
    atomic_store(&s->stopped, true);
}

void soak_aborts(struct gpus *gpus, int rounds)
{
    struct soak s;
    double longest = 0;
    check_begin("push on %d GPUs: %d aborts amid calls", gpus->size, rounds);
    soak_open(&s, gpus, 0);
    for (int i = 0; i < rounds; i++) {
        gpus_renew(gpus);
        atomic_store(&s.stopped, false);
        const double began = check_now_ms();
        check_ranks(gpus->size + 1, abort_rank, &s);
        const double took = check_now_ms() - began - 20;
        longest = took > longest ? took : longest;
        CHECK(*gpus->abort_flag == TRI_PUSH_ABORTED);
    }
    /* Without the flag a rank whose peer has stopped would wait for GPUS_PATIENCE_MS. */
    printf("push: after an abort amid calls all ranks are free after %.1f ms at most\n", longest);
    CHECK_MSG(longest < GPUS_PATIENCE_MS / 10, "%g ms", longest);
    gpus_renew(gpus);
    soak_close(&s);
    check_end();
}
