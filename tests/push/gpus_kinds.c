#include "tests/push/gpus_kinds.h"

#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/kernels/kernels.h"

enum { ROOM = TRI_PUSH_RANKS * GPUS_BYTES + 64, CANARY = 0x5a };

/* A rank's buffer on its device, and what it held before the call and after it. */
struct world {
    const struct gpus *gpus;
    unsigned char *before[TRI_PUSH_RANKS], *found, *expected;
    unsigned char *send[TRI_PUSH_RANKS], *recv[TRI_PUSH_RANKS];
};

static const char *const names[] = {"allreduce", "reduce_scatter", "two shot",
                                    "allgather", "broadcast",      "alltoall"};

static void open_world(struct world *w, const struct gpus *gpus)
{
    memset(w, 0, sizeof *w);
    w->gpus = gpus;
    w->found = malloc(ROOM);
    w->expected = malloc(ROOM);
    for (int r = 0; r < gpus->size; r++) {
        w->before[r] = malloc(ROOM);
        w->send[r] = gpus_alloc(r / gpus->each, ROOM);
        w->recv[r] = gpus_alloc(r / gpus->each, ROOM);
    }
}

static void close_world(struct world *w)
{
    for (int r = 0; r < w->gpus->size; r++) {
        free(w->before[r]);
        MUST(cudaFree(w->send[r]));
        MUST(cudaFree(w->recv[r]));
    }
    free(w->found);
    free(w->expected);
}

/* Bytes of what one rank sends to another, of `send` and of `recv`. */
static size_t part(const struct gpus_call *call)
{
    return call->count * trib_dtype_size(call->dtype);
}

static size_t sent(const struct world *w, const struct gpus_call *call)
{
    return part(call) * (tri_push_scatters(call->kind) ? (size_t)w->gpus->size : 1);
}

static size_t received(const struct world *w, const struct gpus_call *call)
{
    return part(call) * (tri_push_gathers(call->kind) ? (size_t)w->gpus->size : 1);
}

/* What rank `r` is to receive, into w->expected. */
static void expect(struct world *w, const struct gpus_call *call, int r)
{
    const size_t width = trib_dtype_size(call->dtype);
    const void *elements[TRI_PUSH_RANKS];
    if (call->kind == TRI_PUSH_BROADCAST)
        memcpy(w->expected, w->before[call->root], part(call));
    const size_t own = tri_push_scatters(call->kind) ? (size_t)r * part(call) : 0;
    for (int p = 0; p < w->gpus->size && tri_push_gathers(call->kind); p++)
        memcpy(w->expected + (size_t)p * part(call), w->before[p] + own, part(call));
    for (size_t i = 0; i < call->count && !tri_push_copies(call->kind); i++) {
        for (int p = 0; p < w->gpus->size; p++)
            elements[p] = w->before[p] + own + i * width;
        kernels_fold(w->expected + i * width, elements, (size_t)w->gpus->size, call->dtype,
                     call->op);
    }
}

static void check_rank(struct world *w, const struct gpus_call *call, int r, const void *recv)
{
    const size_t bytes = received(w, call), width = trib_dtype_size(call->dtype);
    gpus_wait(w->gpus, r / w->gpus->each);
    MUST(cudaSetDevice(r / w->gpus->each));
    MUST(cudaMemcpy(w->found, recv, bytes, cudaMemcpyDeviceToHost));
    expect(w, call, r);
    if (tri_push_copies(call->kind)) {
        CHECK_MSG(memcmp(w->found, w->expected, bytes) == 0, "rank %d of %d, %zu bytes", r,
                  w->gpus->size, bytes);
        return;
    }
    for (size_t i = 0; i < bytes / width; i++)
        if (!gpus_same(w->found, w->expected, i, call->dtype)) {
            CHECK_MSG(false, "rank %d: element %zu of %zu is wrong", r, i, call->count);
            return;
        }
}

/* Nothing behind the result is written. */
static void check_behind(struct world *w, const struct gpus_call *call, int r, const void *recv)
{
    unsigned char behind[32];
    MUST(cudaSetDevice(r / w->gpus->each));
    MUST(cudaMemcpy(behind, (const unsigned char *)recv + received(w, call), sizeof behind,
                    cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < sizeof behind; i++)
        CHECK_MSG(behind[i] == CANARY, "rank %d: byte %zu behind the result", r, i);
}

/* Rank 0's buffers are aligned, those of the others to an element. */
static void one_call(struct world *w, const struct gpus_call *call, bool in_place)
{
    const size_t width = trib_dtype_size(call->dtype);
    const void *send[TRI_PUSH_RANKS];
    void *recv[TRI_PUSH_RANKS];
    for (int r = 0; r < w->gpus->size; r++) {
        const size_t shift = (size_t)r % 3 * width, block = (size_t)r * part(call);
        unsigned char *const from = w->send[r] + shift;
        unsigned char *const to = w->recv[r] + shift;
        send[r] = in_place && call->kind == TRI_PUSH_ALLGATHER        ? to + block
                  : in_place && call->kind != TRI_PUSH_REDUCE_SCATTER ? to
                                                                      : from;
        recv[r] = in_place && call->kind == TRI_PUSH_REDUCE_SCATTER ? from + block : to;
        MUST(cudaSetDevice(r / w->gpus->each));
        MUST(cudaMemset(w->recv[r], CANARY, ROOM));
        MUST(cudaMemset(w->send[r], CANARY, ROOM));
        MUST(cudaMemcpy((void *)(uintptr_t)send[r], w->before[r], sent(w, call),
                        cudaMemcpyHostToDevice));
        MUST(cudaDeviceSynchronize());
        if (!in_place && call->kind == TRI_PUSH_BROADCAST && r != call->root)
            send[r] = NULL;
    }
    for (int d = 0; d < w->gpus->devices; d++) {
        MUST(cudaSetDevice(d));
        gpus_push(w->gpus, d, send, recv, *call);
    }
    for (int r = 0; r < w->gpus->size; r++) {
        check_rank(w, call, r, recv[r]);
        if (!in_place || call->kind != TRI_PUSH_REDUCE_SCATTER)
            check_behind(w, call, r, recv[r]);
    }
}

static void kind_of(struct world *w, enum tri_push_kind kind, trib_dtype dtype)
{
    static const size_t sizes[] = {8, 10, 24, 1030, 8200, 65536, 100002, GPUS_BYTES / 2};
    check_begin("push of %d ranks on %d GPUs: %s of %s", w->gpus->size, w->gpus->devices,
                names[kind], trib_dtype_name(dtype));
    for (int r = 0; r < w->gpus->size; r++) {
        kernels_fill(w->before[r], dtype, ROOM / trib_dtype_size(dtype), KERNELS_WILD_NANS);
        memset(w->before[r] + 16, 0xff, 16 + 4 * (size_t)r);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int in_place = 0; in_place < (kind == TRI_PUSH_ALLTOALL ? 1 : 2); in_place++) {
            const struct gpus_call call = {.count = sizes[i] / trib_dtype_size(dtype),
                                           .dtype = dtype,
                                           .op = (trib_op)(TRIB_SUM + i % 5),
                                           .kind = kind,
                                           .root = (int)i % w->gpus->size};
            if (kind == TRI_PUSH_TWO_SHOT && !tri_push_can_share(call.count, dtype, w->gpus->size))
                continue;
            one_call(w, &call, in_place != 0);
        }
    CHECK_MSG(*w->gpus->abort_flag == 0, "a call waited for too long");
    check_end();
}

void gpus_kinds(const struct gpus *gpus)
{
    struct world w;
    open_world(&w, gpus);
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++)
        for (int kind = TRI_PUSH_REDUCE_SCATTER; kind <= TRI_PUSH_TWO_SHOT; kind++)
            kind_of(&w, (enum tri_push_kind)kind, dtype);
    for (enum tri_push_kind kind = TRI_PUSH_ALLGATHER; kind <= TRI_PUSH_ALLTOALL; kind++) {
        kind_of(&w, kind, TRIB_F32);
        kind_of(&w, kind, TRIB_BF16);
        kind_of(&w, kind, TRIB_U8);
        kind_of(&w, kind, TRIB_I64);
    }
    close_world(&w);
}
