#include "tests/pull/gpus_kinds.h"

#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/kernels/kernels.h"

enum { BYTES = 512 << 10, EDGE = 256, ROOM = BYTES + 2 * EDGE };

static const char *const names[] = {"allreduce", "reduce_scatter", "allgather", "broadcast",
                                    "alltoall"};

/* Of each rank: what it sends, two buffers, and what these are to hold. */
struct kinds {
    struct ranks *ranks;
    unsigned char *parts[TRI_PULL_RANKS], *found;
    unsigned char *device[TRI_PULL_RANKS][2], *image[TRI_PULL_RANKS][2];
};

/* A call, and where its buffers begin: of which of the two, and at which byte. */
struct kind_call {
    struct ranks_call call; /* of `dtype`, also if it copies */
    bool in_place;
    size_t shift[TRI_PULL_RANKS][2];
};

struct at {
    int buffer;
    size_t byte;
};

static void open_kinds(struct kinds *k, struct ranks *ranks)
{
    k->ranks = ranks;
    k->found = malloc(ROOM);
    for (int r = 0; r < ranks->size; r++) {
        k->parts[r] = malloc(BYTES);
        for (int i = 0; i < 2; i++) {
            k->image[r][i] = malloc(ROOM);
            k->device[r][i] = ranks_alloc(ranks, r, ROOM);
        }
    }
}

static void close_kinds(struct kinds *k)
{
    free(k->found);
    for (int r = 0; r < k->ranks->size; r++) {
        free(k->parts[r]);
        for (int i = 0; i < 2; i++) {
            free(k->image[r][i]);
            MUST(cudaFree(k->device[r][i]));
        }
    }
}

/* ---- where things are */

static size_t bytes_of(const struct kind_call *c)
{
    return c->call.count * trib_dtype_size(c->call.dtype);
}

static size_t sent(const struct kinds *k, const struct kind_call *c)
{
    return bytes_of(c) * (tri_pull_scatters(c->call.kind) ? (size_t)k->ranks->size : 1);
}

static struct at send_at(const struct kind_call *c, int rank)
{
    if (c->in_place && c->call.kind == TRI_PULL_ALLGATHER)
        return (struct at){1, EDGE + c->shift[rank][1] + (size_t)rank * bytes_of(c)};
    return (struct at){0, EDGE + c->shift[rank][0]};
}

static struct at recv_at(const struct kind_call *c, int rank)
{
    const bool scatters = c->call.kind == TRI_PULL_REDUCE_SCATTER;
    if (c->in_place && c->call.kind != TRI_PULL_ALLGATHER)
        return (struct at){0,
                           EDGE + c->shift[rank][0] + (scatters ? (size_t)rank * bytes_of(c) : 0)};
    return (struct at){1, EDGE + c->shift[rank][1]};
}

/* ---- a call */

static void fill(struct kinds *k, const struct kind_call *c)
{
    const size_t width = trib_dtype_size(c->call.dtype);
    for (int r = 0; r < k->ranks->size; r++) {
        const struct at at = send_at(c, r);
        kernels_fill(k->parts[r], c->call.dtype, sent(k, c) / width, KERNELS_TAME);
        for (int i = 0; i < 2; i++)
            memset(k->image[r][i], 0xa5, ROOM);
        memcpy(k->image[r][at.buffer] + at.byte, k->parts[r], sent(k, c));
        for (int i = 0; i < 2; i++)
            ranks_copy(k->ranks, r, k->device[r][i], k->image[r][i], ROOM);
    }
    ranks_wait(k->ranks);
}

static void expect_rank(struct kinds *k, const struct kind_call *c, int rank)
{
    const struct at at = recv_at(c, rank);
    const size_t bytes = bytes_of(c), width = trib_dtype_size(c->call.dtype);
    unsigned char *const recv = k->image[rank][at.buffer] + at.byte;
    if (c->call.kind == TRI_PULL_BROADCAST)
        memcpy(recv, k->parts[c->call.root], bytes);
    for (int r = 0; r < k->ranks->size && tri_pull_gathers(c->call.kind); r++)
        memcpy(recv + (size_t)r * bytes,
               k->parts[r] + (tri_pull_scatters(c->call.kind) ? (size_t)rank * bytes : 0), bytes);
    for (size_t i = 0; i < bytes && c->call.kind == TRI_PULL_REDUCE_SCATTER; i += width) {
        const void *elements[TRI_PULL_RANKS];
        for (int r = 0; r < k->ranks->size; r++)
            elements[r] = k->parts[r] + (size_t)rank * bytes + i;
        kernels_fold(recv + i, elements, (size_t)k->ranks->size, c->call.dtype, c->call.op);
    }
}

static void check_rank(struct kinds *k, const struct kind_call *c, int rank)
{
    expect_rank(k, c, rank);
    for (int i = 0; i < 2; i++) {
        ranks_copy(k->ranks, rank, k->found, k->device[rank][i], ROOM);
        ranks_wait(k->ranks);
        CHECK_MSG(memcmp(k->found, k->image[rank][i], ROOM) == 0,
                  "rank %d: buffer %d is wrong: %zu of %s, root %d, %d blocks, %s, %s", rank, i,
                  c->call.count, trib_dtype_name(c->call.dtype), c->call.root, c->call.blocks,
                  c->in_place ? "in place" : "apart",
                  c->call.unmapped == RANKS_ALL_MAPPED ? "mapped" : "staged");
    }
}

/* Rank by rank as its call says, in whatever order its device comes. */
static void one_call(struct kinds *k, const struct kind_call *c)
{
    const void *send[TRI_PULL_RANKS];
    void *recv[TRI_PULL_RANKS];
    struct ranks_call call = c->call;
    if (tri_pull_copies(call.kind)) {
        call.count = bytes_of(c);
        call.dtype = TRIB_U8;
    }
    fill(k, c);
    for (int r = 0; r < k->ranks->size; r++) {
        send[r] = k->device[r][send_at(c, r).buffer] + send_at(c, r).byte;
        recv[r] = k->device[r][recv_at(c, r).buffer] + recv_at(c, r).byte;
    }
    ranks_pull_all(k->ranks, send, recv, &call);
    for (int r = 0; r < k->ranks->size; r++)
        check_rank(k, c, r);
}

/* ---- all calls */

/* All ranks alike and aligned, or alike, or no two of them. */
static void place(struct kind_call *c, int size, size_t turn)
{
    const size_t width = trib_dtype_size(c->call.dtype);
    for (int r = 0; r < size; r++)
        for (size_t i = 0; i < 2; i++)
            c->shift[r][i] = turn % 3 == 0   ? 0
                             : turn % 3 == 1 ? turn * width % 16
                                             : ((size_t)r + turn + 3 * i) * width % 16;
}

static void size_cases(struct kinds *k, size_t bytes, size_t turn, struct ranks_call call)
{
    static const int blocks[] = {0, 1, 2, 5, 16};
    struct ranks *ranks = k->ranks;
    const size_t all = call.kind == TRI_PULL_BROADCAST ? 1 : (size_t)ranks->size;
    struct kind_call c = {.call = call};
    c.call.count = bytes / trib_dtype_size(call.dtype) / all;
    c.call.count -= c.call.count > 1 && turn % 5 < 2;
    c.call.blocks = ranks->each > 2 ? 8 : blocks[turn % 5];
    c.call.root = (int)turn % ranks->size;
    place(&c, ranks->size, turn);
    for (int i = 0; i < 4; i++) {
        c.in_place = i % 2 != 0 && call.kind != TRI_PULL_ALLTOALL;
        c.call.unmapped = i < 2 ? RANKS_ALL_MAPPED : (int)(turn / 2) % ranks->size;
        ranks->scratch_bytes = (turn % 2 ? 1 : 32) * tri_pull_scratch_least(call.kind, ranks->size);
        one_call(k, &c);
    }
}

void gpus_kinds(struct ranks *ranks)
{
    static const trib_dtype types[] = {TRIB_F32, TRIB_BF16, TRIB_I64, TRIB_U8};
    static const size_t sizes[] = {64, 1024, 1048, 40000, 131072, 262000, BYTES - EDGE};
    struct kinds k;
    open_kinds(&k, ranks);
    for (enum tri_pull_kind kind = TRI_PULL_REDUCE_SCATTER; kind <= TRI_PULL_ALLTOALL; kind++)
        for (size_t type = 0; type < sizeof types / sizeof *types; type++) {
            check_begin("pull of %d ranks on %d GPUs: %s of %s", ranks->size, ranks->devices,
                        names[kind], trib_dtype_name(types[type]));
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                size_cases(&k, sizes[i], i + type,
                           (struct ranks_call){.dtype = types[type],
                                               .op = i % 2 ? TRIB_MAX : TRIB_SUM,
                                               .kind = kind});
            CHECK_MSG(*ranks->abort_flag == 0, "a call waited for too long");
            check_end();
        }
    close_kinds(&k);
}
