#include "tests/pull/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/cuda_graph.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/kernels/kernels.h"

enum {
    TYPES = 4,
    INPUTS = 3,        /* of each type */
    BYTES = 256 << 10, /* of the largest call */
    SLOT = BYTES + 16,
    BATCH = 20, /* calls between two looks at the results */
    GRAPH_CALLS = 4
};
static const trib_dtype types[TYPES] = {TRIB_F32, TRIB_BF16, TRIB_I32, TRIB_U8};

/* The inputs, and what they give; BATCH slots for results on each rank. */
struct rows {
    struct ranks *ranks;
    unsigned char *expected[TYPES][INPUTS], *found;
    unsigned char *inputs[TRI_PULL_RANKS][TYPES][INPUTS];
    unsigned char *out[TRI_PULL_RANKS];
};

/* A call, as all ranks make it. */
struct row_call {
    int type, input;
    size_t first, shift; /* elements of the input; bytes of the slot */
    bool in_place;
    struct ranks_call call;
};

static size_t draw(size_t below)
{
    return (size_t)(kernels_random() >> 20) % below;
}

/* ---- data */

static void make_input(struct rows *s, int type, int input)
{
    const size_t width = trib_dtype_size(types[type]);
    unsigned char *parts[TRI_PULL_RANKS];
    for (int r = 0; r < s->ranks->size; r++) {
        parts[r] = malloc(BYTES);
        kernels_fill(parts[r], types[type], BYTES / width, KERNELS_TAME);
        s->inputs[r][type][input] = ranks_alloc(s->ranks, r, BYTES);
        ranks_copy(s->ranks, r, s->inputs[r][type][input], parts[r], BYTES);
    }
    ranks_wait(s->ranks);
    s->expected[type][input] = malloc(BYTES);
    for (size_t at = 0; at < BYTES; at += width) {
        const void *elements[TRI_PULL_RANKS];
        for (int r = 0; r < s->ranks->size; r++)
            elements[r] = parts[r] + at;
        kernels_fold(s->expected[type][input] + at, elements, (size_t)s->ranks->size, types[type],
                     TRIB_SUM);
    }
    for (int r = 0; r < s->ranks->size; r++)
        free(parts[r]);
}

static void open_rows(struct rows *s, struct ranks *ranks)
{
    memset(s, 0, sizeof *s);
    s->ranks = ranks;
    for (int type = 0; type < TYPES; type++)
        for (int input = 0; input < INPUTS; input++)
            make_input(s, type, input);
    for (int r = 0; r < ranks->size; r++) {
        s->out[r] = ranks_alloc(ranks, r, BATCH * SLOT);
        MUST(cudaMemset(s->out[r], 0xa5, BATCH * SLOT));
        MUST(cudaDeviceSynchronize());
    }
    s->found = malloc(BATCH * SLOT);
}

static void close_rows(struct rows *s)
{
    for (int type = 0; type < TYPES; type++)
        for (int input = 0; input < INPUTS; input++) {
            free(s->expected[type][input]);
            for (int r = 0; r < s->ranks->size; r++)
                MUST(cudaFree(s->inputs[r][type][input]));
        }
    for (int r = 0; r < s->ranks->size; r++)
        MUST(cudaFree(s->out[r]));
    free(s->found);
}

/* ---- calls */

static struct row_call random_call(const struct ranks *ranks, int i)
{
    struct row_call c = {.type = (int)draw(TYPES), .input = (int)draw(INPUTS)};
    const size_t width = trib_dtype_size(types[c.type]), all = BYTES / width;
    c.call = (struct ranks_call){.count = 1 + draw(draw(3) == 0 ? all : 3000),
                                 .dtype = types[c.type],
                                 .op = TRIB_SUM,
                                 .way = i % 2 ? TRI_PULL_TWO_SHOT : TRI_PULL_ONE_SHOT,
                                 .blocks = 1 + (int)draw(ranks->each > 2 ? 12 : 40),
                                 .unmapped = draw(7) == 0 ? (int)draw((size_t)ranks->size)
                                                          : RANKS_ALL_MAPPED};
    c.in_place = i % 2 && draw(2) == 0;
    c.first = draw(3) == 0 ? draw(all - c.call.count + 1) : 0;
    c.shift = draw(3) == 0 ? draw(16) / width * width : c.first * width % 16;
    return c;
}

static const void *input_of(const struct rows *s, int rank, const struct row_call *c)
{
    return s->inputs[rank][c->type][c->input] + c->first * trib_dtype_size(types[c->type]);
}

/* Queue the call of one device's ranks, with results in slot `slot`. */
static void queue_call(const struct rows *s, int device, const struct row_call *c, int slot)
{
    const struct ranks *ranks = s->ranks;
    const size_t bytes = c->call.count * trib_dtype_size(types[c->type]);
    const void *send[TRI_PULL_RANKS] = {NULL};
    void *recv[TRI_PULL_RANKS] = {NULL};
    for (int r = device * ranks->each; r < (device + 1) * ranks->each; r++) {
        recv[r] = s->out[r] + (size_t)slot * SLOT + c->shift;
        send[r] = c->in_place ? recv[r] : input_of(s, r, c);
        if (c->in_place)
            ranks_copy(ranks, r, recv[r], input_of(s, r, c), bytes);
    }
    ranks_pull(ranks, device, send, recv, &c->call);
}

static void queue_late(const struct rows *s, const struct row_call *c, int slot)
{
    const int first = (int)draw((size_t)s->ranks->devices);
    for (int i = 0; i < s->ranks->devices; i++) {
        if (draw(40) == 0)
            check_sleep_ms(1);
        queue_call(s, (first + i) % s->ranks->devices, c, slot);
    }
}

/* The results of `n` calls, on all ranks. */
static void look_at(const struct rows *s, const struct row_call *calls, int n)
{
    for (int r = 0; r < s->ranks->size; r++) {
        ranks_copy(s->ranks, r, s->found, s->out[r], BATCH * SLOT);
        ranks_wait(s->ranks);
        for (int i = 0; i < n; i++) {
            const struct row_call *c = &calls[i];
            const size_t width = trib_dtype_size(types[c->type]);
            CHECK_MSG(memcmp(s->found + (size_t)i * SLOT + c->shift,
                             s->expected[c->type][c->input] + c->first * width,
                             c->call.count * width) == 0,
                      "rank %d: call %d is wrong: %zu of %s, way %d, unmapped %d, %d blocks", r, i,
                      c->call.count, trib_dtype_name(types[c->type]), (int)c->call.way,
                      c->call.unmapped, c->call.blocks);
        }
    }
}

void rows_alternate(struct ranks *ranks, int calls)
{
    struct rows s;
    struct row_call batch[BATCH];
    check_begin("pull of %d ranks on %d GPUs: %d calls, one shot and two shot", ranks->size,
                ranks->devices, calls);
    open_rows(&s, ranks);
    for (int i = 0; i < calls && *(volatile uint32_t *)ranks->abort_flag == 0; i++) {
        batch[i % BATCH] = random_call(ranks, i);
        queue_late(&s, &batch[i % BATCH], i % BATCH);
        if (i % BATCH == BATCH - 1 || i == calls - 1)
            look_at(&s, batch, i % BATCH + 1);
    }
    CHECK_MSG(*ranks->abort_flag == 0, "a call waited for more than %d ms", RANKS_PATIENCE_MS);
    close_rows(&s);
    check_end();
}

/* ---- graphs */

/* The calls of the device's ranks, in the slots from 0 on. */
static cudaGraphExec_t capture(const struct rows *s, int device, const struct row_call *calls)
{
    const struct ranks *ranks = s->ranks;
    const cudaStream_t stream = ranks->streams[device];
    MUST(cudaSetDevice(device));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < GRAPH_CALLS; i++)
        queue_call(s, device, &calls[i], i);
    return cuda_end_capture(stream);
}

/* Every way, of integers; inputs are those of type 0 and input 0, which each launch finds changed. */
static void make_graph_calls(const struct ranks *ranks, struct row_call *calls)
{
    for (int i = 0; i < GRAPH_CALLS; i++) {
        calls[i] = random_call(ranks, i);
        calls[i].type = calls[i].input = 0;
        calls[i].first = calls[i].shift = 0;
        calls[i].call.dtype = TRIB_U32;
        calls[i].call.count = i == 0 ? BYTES / sizeof(float) : 10007;
        calls[i].call.way = i == 0 ? TRI_PULL_ONE_SHOT : TRI_PULL_TWO_SHOT;
        calls[i].in_place = i == 2;
        calls[i].call.unmapped = i == 3 ? ranks->size - 1 : RANKS_ALL_MAPPED;
    }
}

/* Other inputs for the graphs. 1 + 3 + 5 + ... of `size` odd numbers is size * size. */
static void turn_inputs(const struct rows *s, const uint32_t *base, int launch, uint32_t *host)
{
    const size_t n = BYTES / sizeof *host;
    for (int r = 0; r < s->ranks->size; r++) {
        for (size_t i = 0; i < n; i++)
            host[i] = base[i] * (uint32_t)(2 * r + 1) + (uint32_t)launch;
        ranks_copy(s->ranks, r, s->inputs[r][0][0], host, BYTES);
        ranks_wait(s->ranks);
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t size = (uint32_t)s->ranks->size;
        host[i] = base[i] * size * size + (uint32_t)launch * size;
    }
    memcpy(s->expected[0][0], host, BYTES);
}

void rows_graph(struct ranks *ranks, int launches)
{
    struct rows s;
    struct row_call calls[GRAPH_CALLS + 1];
    cudaGraphExec_t graphs[TRI_PULL_RANKS];
    uint32_t *base = malloc(BYTES), *host = malloc(BYTES);
    check_begin("pull of %d ranks on %d GPUs: a graph %d times, and eager calls between",
                ranks->size, ranks->devices, launches);
    open_rows(&s, ranks);
    make_graph_calls(ranks, calls);
    for (size_t i = 0; i < BYTES / sizeof *base; i++)
        base[i] = (uint32_t)kernels_random();
    for (int d = 0; d < ranks->devices; d++)
        graphs[d] = capture(&s, d, calls);
    for (int i = 0; i < launches && *(volatile uint32_t *)ranks->abort_flag == 0; i++) {
        turn_inputs(&s, base, i, host);
        for (int d = 0; d < ranks->devices; d++) {
            MUST(cudaSetDevice(d));
            MUST(cudaGraphLaunch(graphs[d], ranks->streams[d]));
        }
        do
            calls[GRAPH_CALLS] = random_call(ranks, i);
        while (calls[GRAPH_CALLS].type == 0 && calls[GRAPH_CALLS].input == 0);
        queue_late(&s, &calls[GRAPH_CALLS], GRAPH_CALLS);
        look_at(&s, calls, GRAPH_CALLS + 1);
    }
    CHECK_MSG(*ranks->abort_flag == 0, "a call waited for more than %d ms", RANKS_PATIENCE_MS);
    for (int d = 0; d < ranks->devices; d++)
        MUST(cudaGraphExecDestroy(graphs[d]));
    close_rows(&s);
    free(base);
    free(host);
    check_end();
}

/* ---- aborts */

/* The stream overwrites results as soon as its calls have ended, as a caller may who frees them. */
static void overwrite(const struct rows *s)
{
    const struct ranks *ranks = s->ranks;
    for (int r = 0; r < ranks->size; r++) {
        MUST(cudaSetDevice(r / ranks->each));
        MUST(cudaMemsetAsync(s->out[r], 0x5a, BATCH * SLOT, ranks->streams[r / ranks->each]));
    }
}

/* No peer has written there since. */
static void look_overwritten(const struct rows *s)
{
    for (int r = 0; r < s->ranks->size; r++) {
        size_t wrong = 0;
        ranks_copy(s->ranks, r, s->found, s->out[r], BATCH * SLOT);
        ranks_wait(s->ranks);
        for (size_t i = 0; i < BATCH * SLOT; i++)
            wrong += s->found[i] != 0x5a;
        CHECK_MSG(wrong == 0, "rank %d: %zu bytes were written after its calls had ended", r,
                  wrong);
    }
}

static void abort_round(const struct rows *s)
{
    const struct ranks *ranks = s->ranks;
    const int delay = (int)draw(4);
    for (int i = 0; i < 2 * BATCH; i++) {
        const struct row_call call = random_call(ranks, i);
        const bool last = i == 2 * BATCH - 1;
        for (int d = 0; d < ranks->devices - (last && ranks->devices > 1); d++)
            queue_call(s, d, &call, i % BATCH);
    }
    overwrite(s);
    check_sleep_ms(delay);
    const double began = check_now_ms();
    __atomic_store_n(ranks->abort_flag, TRI_PUSH_ABORTED, __ATOMIC_RELEASE);
    ranks_wait(ranks);
    const double took = check_now_ms() - began;
    CHECK_MSG(took < RANKS_PATIENCE_MS / 10.0, "%g ms", took);
    CHECK(*ranks->abort_flag == TRI_PUSH_ABORTED);
    look_overwritten(s);
}

void rows_abort(struct ranks *ranks, int rounds)
{
    struct rows s;
    check_begin("pull of %d ranks on %d GPUs: %d aborts amid calls", ranks->size, ranks->devices,
                rounds);
    open_rows(&s, ranks);
    for (int i = 0; i < rounds; i++) {
        abort_round(&s);
        ranks_renew(ranks);
    }
    close_rows(&s);
    check_end();
}
