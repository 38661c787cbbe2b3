#include "tests/push/soak.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/kernels/kernels.h"
#include "tests/team.h"

enum {
    TYPES = 4,
    INPUTS = 4,       /* of each type */
    BYTES = 64 << 10, /* of the largest call */
    BATCH = 64,       /* calls between two looks at the results */
    GRAPH_CALLS = 5
};
static const trib_dtype types[TYPES] = {TRIB_F32, TRIB_F16, TRIB_I32, TRIB_F64};

struct soak;

/* One thread's. Memory is allocated before the first call of any rank: CUDA may wait, to allocate, for
 * a kernel that waits for this rank. */
struct thread {
    struct soak *soak;
    int rank;
    uint64_t common, own; /* two rows of random numbers: one that all ranks have */
    unsigned char *out, *found;
};

/* What all threads share: the inputs, and what they give. */
struct soak {
    struct gpus *gpus;
    int calls;
    struct thread threads[TRI_PUSH_RANKS];
    unsigned char *sums[TYPES][INPUTS], *parts[TRI_PUSH_RANKS][TYPES][INPUTS];
    unsigned char *inputs[TRI_PUSH_RANKS][TYPES][INPUTS]; /* the parts on the rank's device */
    _Atomic int ready;
    _Atomic bool stopped;
};

/* A call, as all ranks make it. */
struct call {
    int type, input;
    size_t first, count; /* elements of the input */
    size_t at;           /* byte of the batch's results */
    enum tri_push_kind kind;
    int root;
};

static uint64_t draw(uint64_t *row)
{
    *row ^= *row << 13;
    *row ^= *row >> 7;
    *row ^= *row << 17;
    return *row;
}

static void fold_all(unsigned char *out, unsigned char *const *parts, int size, trib_dtype dtype)
{
    const size_t width = trib_dtype_size(dtype);
    for (size_t at = 0; at < BYTES; at += width) {
        const void *elements[TRI_PUSH_RANKS];
        for (int r = 0; r < size; r++)
            elements[r] = parts[r] + at;
        kernels_fold(out + at, elements, (size_t)size, dtype, TRIB_SUM);
    }
}

static void make_input(struct soak *s, int type, int input)
{
    unsigned char *parts[TRI_PUSH_RANKS];
    for (int r = 0; r < s->gpus->size; r++) {
        parts[r] = s->parts[r][type][input] = malloc(BYTES);
        kernels_fill(parts[r], types[type], BYTES / trib_dtype_size(types[type]),
                     input == 0 ? KERNELS_WILD_NANS : KERNELS_TAME);
        memset(parts[r] + 256 * r, 0xff, input == 0 ? 512 : 0);
        s->inputs[r][type][input] = gpus_alloc(r, BYTES);
        MUST(cudaMemcpy(s->inputs[r][type][input], parts[r], BYTES, cudaMemcpyHostToDevice));
        MUST(cudaDeviceSynchronize()); /* of pageable memory the copy may still be on its way */
    }
    s->sums[type][input] = malloc(BYTES);
    fold_all(s->sums[type][input], parts, s->gpus->size, types[type]);
}

static void open_thread(struct thread *t, struct soak *s, int rank)
{
    const size_t bytes = (size_t)BATCH * (BYTES + 16);
    *t = (struct thread){.soak = s,
                         .rank = rank,
                         .own = 0x9e3779b97f4a7c15u * (uint64_t)(rank + 1),
                         .out = gpus_alloc(rank, bytes)};
    MUST(cudaHostAlloc((void **)&t->found, bytes, cudaHostAllocDefault));
}

static void close_thread(struct thread *t)
{
    MUST(cudaSetDevice(t->rank));
    MUST(cudaFree(t->out));
    MUST(cudaFreeHost(t->found));
}

static void open_soak(struct soak *s, struct gpus *gpus, int calls)
{
    memset(s, 0, sizeof *s);
    s->gpus = gpus;
    s->calls = calls;
    for (int type = 0; type < TYPES; type++)
        for (int input = 0; input < INPUTS; input++)
            make_input(s, type, input);
    for (int r = 0; r < gpus->size; r++)
        open_thread(&s->threads[r], s, r);
}

/* As threads begin: all ranks are to make the same calls. */
static struct thread *begin(struct soak *s, int rank)
{
    MUST(cudaSetDevice(rank));
    s->threads[rank].common = 88172645463325252u;
    return &s->threads[rank];
}

static void close_soak(struct soak *s)
{
    for (int r = 0; r < s->gpus->size; r++)
        close_thread(&s->threads[r]);
    for (int type = 0; type < TYPES; type++)
        for (int input = 0; input < INPUTS; input++) {
            free(s->sums[type][input]);
            for (int r = 0; r < s->gpus->size; r++) {
                free(s->parts[r][type][input]);
                MUST(cudaFree(s->inputs[r][type][input]));
            }
        }
}

/* Blocks of the larger buffer. */
static size_t blocks_of(const struct thread *t, const struct call *call)
{
    const bool has_blocks =
        call->kind == TRI_PUSH_REDUCE_SCATTER || call->kind == TRI_PUSH_ALLGATHER;
    return has_blocks ? (size_t)t->soak->gpus->size : 1;
}

static size_t block_bytes(const struct call *call)
{
    return call->count * trib_dtype_size(types[call->type]);
}

/* Behind it in a batch's results, whether it is in place or not. */
static size_t end_of(const struct thread *t, const struct call *call)
{
    return call->at + blocks_of(t, call) * block_bytes(call);
}

/* Mostly a few elements, sometimes many; any alignment that the type allows. */
static struct call random_call(struct thread *t, size_t at)
{
    struct call call = {.type = (int)(draw(&t->common) % TYPES)};
    call.input = (int)(draw(&t->common) % INPUTS);
    call.kind = (enum tri_push_kind)(draw(&t->common) % 4);
    call.root = (int)(draw(&t->common) % (uint64_t)t->soak->gpus->size);
    const size_t width = trib_dtype_size(types[call.type]), all = BYTES / width;
    const size_t most = draw(&t->common) % 4 == 0 ? all : 600, blocks = blocks_of(t, &call);
    call.count = 1 + draw(&t->common) % most / blocks;
    call.count -= call.count * blocks > all;
    call.first = draw(&t->common) % (all - call.count * blocks + 1);
    call.at = (at + width - 1) / width * width;
    return call;
}

/* From `send` to `recv`. */
static void queue_push(struct thread *t, const struct call *call, const void *send, void *recv)
{
    gpus_push_one(
        t->soak->gpus, t->rank, send, recv,
        (struct gpus_call){call->count, types[call->type], TRIB_SUM, call->kind, call->root},
        t->soak->gpus->streams[t->rank]);
}

static void queue_call(struct thread *t, const struct call *call)
{
    queue_push(t, call,
               t->soak->inputs[t->rank][call->type][call->input] +
                   call->first * trib_dtype_size(types[call->type]),
               t->out + call->at);
}

/* Block b of what this rank is to have. */
static const unsigned char *expected_block(const struct thread *t, const struct call *call,
                                           size_t b)
{
    const struct soak *s = t->soak;
    const size_t first = call->first * trib_dtype_size(types[call->type]);
    const size_t own = (size_t)t->rank * block_bytes(call);
    switch (call->kind) {
    case TRI_PUSH_ALLGATHER:
        return s->parts[b][call->type][call->input] + first;
    case TRI_PUSH_BROADCAST:
        return s->parts[call->root][call->type][call->input] + first;
    default:
        return s->sums[call->type][call->input] + first +
               (call->kind == TRI_PUSH_REDUCE_SCATTER ? own : 0);
    }
}

static void check_block(struct thread *t, const struct call *call, const unsigned char *found,
                        const unsigned char *expected)
{
    const trib_dtype dtype = types[call->type];
    if (memcmp(found, expected, block_bytes(call)) == 0)
        return;
    for (size_t i = 0; i < call->count; i++)
        if (tri_push_copies(call->kind) || !gpus_same(found, expected, i, dtype)) {
            CHECK_MSG(false, "rank %d, kind %d: element %zu of %zu of %s is wrong", t->rank,
                      (int)call->kind, i, call->count, trib_dtype_name(dtype));
            return;
        }
}

/* Its result is at byte `at` of the batch's. */
static void check_call(struct thread *t, const struct call *call, size_t at)
{
    const size_t n = call->kind == TRI_PUSH_ALLGATHER ? blocks_of(t, call) : 1;
    for (size_t b = 0; b < n; b++)
        check_block(t, call, t->found + at + b * block_bytes(call), expected_block(t, call, b));
}

static void CUDART_CB rest(void *us)
{
    const uint64_t until = tri_now_ns() + (uint64_t)(uintptr_t)us * 1000;
    while (tri_now_ns() < until)
        continue;
}

/* One launch in eight is late by up to 30 us, and the stream once in 200 times by up to 300 us. */
static void be_late(struct thread *t)
{
    const uint64_t chance = draw(&t->own);
    if (chance % 8 == 0)
        rest((void *)(uintptr_t)(chance / 8 % 30));
    if (chance % 200 == 1)
        MUST(cudaLaunchHostFunc(t->soak->gpus->streams[t->rank], rest,
                                (void *)(uintptr_t)(chance / 200 % 300)));
}

static void fetch(struct thread *t, size_t bytes)
{
    MUST(cudaMemcpyAsync(t->found, t->out, bytes, cudaMemcpyDeviceToHost,
                         t->soak->gpus->streams[t->rank]));
    gpus_wait(t->soak->gpus, t->rank);
}

static void random_rank(int rank, int size, void *argument)
{
    struct soak *s = argument;
    struct thread *t = begin(s, rank);
    struct call calls[BATCH];
    (void)size;
    for (int done = 0; done < s->calls && *(volatile uint32_t *)s->gpus->abort_flag == 0;) {
        size_t at = 0;
        int n = 0;
        for (; n < BATCH && done < s->calls; n++, done++) {
            calls[n] = random_call(t, at);
            be_late(t);
            queue_call(t, &calls[n]);
            at = end_of(t, &calls[n]);
        }
        fetch(t, at);
        for (int i = 0; i < n; i++)
            check_call(t, &calls[i], calls[i].at);
    }
}

void soak_random(struct gpus *gpus, int calls)
{
    struct soak s;
    check_begin("push on %d GPUs: %d calls of random sizes, late by chance", gpus->size, calls);
    open_soak(&s, gpus, calls);
    const double began = check_now_ms();
    check_ranks(gpus->size, random_rank, &s);
    CHECK_MSG(*gpus->abort_flag == 0, "a call waited for more than %d ms", GPUS_PATIENCE_MS);
    printf("push: %d random calls in %.1f s\n", calls, (check_now_ms() - began) / 1e3);
    close_soak(&s);
    check_end();
}

/* ---- graphs */

/* In place: where a call has its `send`, or its result, in the block for it. */
static size_t send_at(const struct thread *t, const struct call *call)
{
    return call->at + (call->kind == TRI_PUSH_ALLGATHER ? (size_t)t->rank * block_bytes(call) : 0);
}

static size_t recv_at(const struct thread *t, const struct call *call)
{
    return call->at +
           (call->kind == TRI_PUSH_REDUCE_SCATTER ? (size_t)t->rank * block_bytes(call) : 0);
}

/* `calls`, whose inputs are copies that the stream makes before the graph: in place. */
static cudaGraphExec_t capture(struct thread *t, const struct call *calls)
{
    const cudaStream_t stream = t->soak->gpus->streams[t->rank];
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < GRAPH_CALLS; i++)
        queue_push(t, &calls[i], t->out + send_at(t, &calls[i]), t->out + recv_at(t, &calls[i]));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    MUST(cudaGraphDestroy(graph));
    return executable;
}

/* What the next launch of the graph works on. */
static void set_inputs(struct thread *t, struct call *calls)
{
    for (int i = 0; i < GRAPH_CALLS; i++) {
        calls[i].input = (int)(draw(&t->common) % INPUTS);
        const size_t width = trib_dtype_size(types[calls[i].type]);
        const size_t blocks =
            calls[i].kind == TRI_PUSH_REDUCE_SCATTER ? blocks_of(t, &calls[i]) : 1;
        MUST(cudaMemcpyAsync(t->out + send_at(t, &calls[i]),
                             t->soak->inputs[t->rank][calls[i].type][calls[i].input] +
                                 calls[i].first * width,
                             blocks * block_bytes(&calls[i]), cudaMemcpyDeviceToDevice,
                             t->soak->gpus->streams[t->rank]));
    }
}

static void graph_rank(int rank, int size, void *argument)
{
    struct soak *s = argument;
    struct thread *t = begin(s, rank);
    struct call calls[GRAPH_CALLS + 1];
    size_t at = 0;
    for (int i = 0; i < GRAPH_CALLS; i++) {
        calls[i] = random_call(t, at);
        at = end_of(t, &calls[i]);
    }
    cudaGraphExec_t graph = capture(t, calls);
    team_barrier(&s->ready, size);
    for (int i = 0; i < s->calls && *(volatile uint32_t *)s->gpus->abort_flag == 0; i++) {
        const int n = GRAPH_CALLS + (int)(draw(&t->common) % 2);
        set_inputs(t, calls);
        be_late(t);
        MUST(cudaGraphLaunch(graph, s->gpus->streams[rank]));
        calls[GRAPH_CALLS] = random_call(t, at);
        if (n > GRAPH_CALLS)
            queue_call(t, &calls[GRAPH_CALLS]);
        fetch(t, at + BYTES + 16);
        for (int k = 0; k < n; k++)
            check_call(t, &calls[k], k < GRAPH_CALLS ? recv_at(t, &calls[k]) : calls[k].at);
    }
    MUST(cudaGraphExecDestroy(graph));
}

void soak_graphs(struct gpus *gpus, int launches)
{
    struct soak s;
    check_begin("push on %d GPUs: a graph %d times, and eager calls between", gpus->size, launches);
    open_soak(&s, gpus, launches);
    check_ranks(gpus->size, graph_rank, &s);
    CHECK_MSG(*gpus->abort_flag == 0, "a call waited for more than %d ms", GPUS_PATIENCE_MS);
    close_soak(&s);
    check_end();
}

/* ---- aborts */

static void traffic_rank(int rank, int size, void *argument)
{
    struct soak *s = argument;
    struct thread *t = begin(s, rank);
    (void)size;
    while (!atomic_load(&s->stopped)) {
        for (int i = 0; i < BATCH; i++) {
            const struct call call = random_call(t, 0);
            be_late(t);
            queue_call(t, &call);
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
    open_soak(&s, gpus, 0);
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
    close_soak(&s);
    check_end();
}
