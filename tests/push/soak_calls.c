#include "tests/push/soak_calls.h"

#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/kernels/kernels.h"

static const trib_dtype types[SOAK_TYPES] = {TRIB_F32, TRIB_F16, TRIB_I32, TRIB_F64};

trib_dtype soak_dtype(const struct soak_call *call)
{
    return types[call->type];
}

uint64_t soak_draw(uint64_t *row)
{
    *row ^= *row << 13;
    *row ^= *row >> 7;
    *row ^= *row << 17;
    return *row;
}

static void fold_all(unsigned char *out, unsigned char *const *parts, int size, trib_dtype dtype)
{
    const size_t width = trib_dtype_size(dtype);
    for (size_t at = 0; at < SOAK_BYTES; at += width) {
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
        parts[r] = s->parts[r][type][input] = malloc(SOAK_BYTES);
        kernels_fill(parts[r], types[type], SOAK_BYTES / trib_dtype_size(types[type]),
                     input == 0 ? KERNELS_WILD_NANS : KERNELS_TAME);
        memset(parts[r] + 256 * r, 0xff, input == 0 ? 512 : 0);
        s->inputs[r][type][input] = gpus_alloc(r, SOAK_BYTES);
        MUST(cudaMemcpy(s->inputs[r][type][input], parts[r], SOAK_BYTES, cudaMemcpyHostToDevice));
        MUST(cudaDeviceSynchronize()); /* of pageable memory the copy may still be on its way */
    }
    s->sums[type][input] = malloc(SOAK_BYTES);
    fold_all(s->sums[type][input], parts, s->gpus->size, types[type]);
}

static void open_thread(struct soak_thread *t, struct soak *s, int rank)
{
    const size_t bytes = (size_t)SOAK_BATCH * (SOAK_BYTES + 16);
    *t = (struct soak_thread){.soak = s,
                              .rank = rank,
                              .own = 0x9e3779b97f4a7c15u * (uint64_t)(rank + 1),
                              .out = gpus_alloc(rank, bytes)};
    MUST(cudaHostAlloc((void **)&t->found, bytes, cudaHostAllocDefault));
}

static void close_thread(struct soak_thread *t)
{
    MUST(cudaSetDevice(t->rank));
    MUST(cudaFree(t->out));
    MUST(cudaFreeHost(t->found));
}

void soak_open(struct soak *s, struct gpus *gpus, int calls)
{
    memset(s, 0, sizeof *s);
    s->gpus = gpus;
    s->calls = calls;
    for (int type = 0; type < SOAK_TYPES; type++)
        for (int input = 0; input < SOAK_INPUTS; input++)
            make_input(s, type, input);
    for (int r = 0; r < gpus->size; r++)
        open_thread(&s->threads[r], s, r);
}

struct soak_thread *soak_begin(struct soak *s, int rank)
{
    MUST(cudaSetDevice(rank));
    s->threads[rank].common = 88172645463325252u;
    return &s->threads[rank];
}

void soak_close(struct soak *s)
{
    for (int r = 0; r < s->gpus->size; r++)
        close_thread(&s->threads[r]);
    for (int type = 0; type < SOAK_TYPES; type++)
        for (int input = 0; input < SOAK_INPUTS; input++) {
            free(s->sums[type][input]);
            for (int r = 0; r < s->gpus->size; r++) {
                free(s->parts[r][type][input]);
                MUST(cudaFree(s->inputs[r][type][input]));
            }
        }
}

size_t soak_blocks(const struct soak_thread *t, const struct soak_call *call)
{
    const bool has_blocks = tri_push_scatters(call->kind) || tri_push_gathers(call->kind);
    return has_blocks ? (size_t)t->soak->gpus->size : 1;
}

size_t soak_block_bytes(const struct soak_call *call)
{
    return call->count * trib_dtype_size(types[call->type]);
}

size_t soak_end_of(const struct soak_thread *t, const struct soak_call *call)
{
    return call->at + soak_blocks(t, call) * soak_block_bytes(call);
}

struct soak_call soak_random_call(struct soak_thread *t, size_t at, bool in_place)
{
    struct soak_call call = {.type = (int)(soak_draw(&t->common) % SOAK_TYPES)};
    call.input = (int)(soak_draw(&t->common) % SOAK_INPUTS);
    call.kind = (enum tri_push_kind)(soak_draw(&t->common) %
                                     (in_place ? TRI_PUSH_ALLTOALL : TRI_PUSH_ALLTOALL + 1));
    call.root = (int)(soak_draw(&t->common) % (uint64_t)t->soak->gpus->size);
    const size_t width = trib_dtype_size(types[call.type]), all = SOAK_BYTES / width;
    const size_t most = soak_draw(&t->common) % 4 == 0 ? all : 600, blocks = soak_blocks(t, &call);
    call.count = 1 + soak_draw(&t->common) % most / blocks;
    call.count -= call.count * blocks > all;
    if (call.kind == TRI_PUSH_TWO_SHOT &&
        !tri_push_can_share(call.count, types[call.type], t->soak->gpus->size))
        call.kind = TRI_PUSH_ALLREDUCE;
    call.first = soak_draw(&t->common) % (all - call.count * blocks + 1);
    call.at = (at + width - 1) / width * width;
    return call;
}

struct soak_call soak_small_call(struct soak_thread *t, size_t at)
{
    struct soak_call call = {.type = (int)(soak_draw(&t->common) % SOAK_TYPES),
                             .input = (int)(soak_draw(&t->common) % SOAK_INPUTS),
                             .kind = TRI_PUSH_ALLREDUCE};
    const size_t width = trib_dtype_size(types[call.type]);
    call.count = 1 + soak_draw(&t->common) % (SOAK_SMALL / width);
    call.first = soak_draw(&t->common) % (SOAK_BYTES / width - call.count + 1);
    call.at = (at + width - 1) / width * width;
    return call;
}

void soak_queue(struct soak_thread *t, const struct soak_call *call, const void *send, void *recv)
{
    gpus_push_one(
        t->soak->gpus, t->rank, send, recv,
        (struct gpus_call){call->count, types[call->type], TRIB_SUM, call->kind, call->root},
        t->soak->gpus->streams[t->rank]);
}

void soak_queue_call(struct soak_thread *t, const struct soak_call *call)
{
    soak_queue(t, call,
               t->soak->inputs[t->rank][call->type][call->input] +
                   call->first * trib_dtype_size(types[call->type]),
               t->out + call->at);
}

/* Block b of what this rank is to have. */
static const unsigned char *expected_block(const struct soak_thread *t,
                                           const struct soak_call *call, size_t b)
{
    const struct soak *s = t->soak;
    const size_t first = call->first * trib_dtype_size(types[call->type]);
    const size_t own = (size_t)t->rank * soak_block_bytes(call);
    switch (call->kind) {
    case TRI_PUSH_ALLGATHER:
        return s->parts[b][call->type][call->input] + first;
    case TRI_PUSH_ALLTOALL:
        return s->parts[b][call->type][call->input] + first + own;
    case TRI_PUSH_BROADCAST:
        return s->parts[call->root][call->type][call->input] + first;
    default:
        return s->sums[call->type][call->input] + first +
               (call->kind == TRI_PUSH_REDUCE_SCATTER ? own : 0);
    }
}

static void check_block(struct soak_thread *t, const struct soak_call *call,
                        const unsigned char *found, const unsigned char *expected)
{
    const trib_dtype dtype = types[call->type];
    if (memcmp(found, expected, soak_block_bytes(call)) == 0)
        return;
    for (size_t i = 0; i < call->count; i++)
        if (tri_push_copies(call->kind) || !gpus_same(found, expected, i, dtype)) {
            CHECK_MSG(false, "rank %d, kind %d: element %zu of %zu of %s is wrong", t->rank,
                      (int)call->kind, i, call->count, trib_dtype_name(dtype));
            return;
        }
}

void soak_check(struct soak_thread *t, const struct soak_call *call, size_t at)
{
    const size_t n = tri_push_gathers(call->kind) ? soak_blocks(t, call) : 1;
    for (size_t b = 0; b < n; b++)
        check_block(t, call, t->found + at + b * soak_block_bytes(call),
                    expected_block(t, call, b));
}
