/* pull between the GPUs of this process, and between ranks of one GPU: every type, reduction and way
 * against arithmetic on the host, long rows of calls, graphs, and what ends a call that waits in vain.
 * With TRIB_TEST_LARGE in the environment, also more than 2^31 elements. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/kernels/kernels.h"
#include "tests/pull/gpus_kinds.h"
#include "tests/pull/gpus_lists.h"
#include "tests/pull/ranks.h"
#include "tests/pull/rows.h"
#include "tests/push/settings.h"

enum { BYTES = 256 << 10, EDGE = 256, ROOM = BYTES + 2 * EDGE };

/* ---- every type, reduction and way */

struct buffers {
    unsigned char *parts[TRI_PULL_RANKS], *found[TRI_PULL_RANKS], *expected; /* on the host */
    unsigned char *image;
    unsigned char *send[TRI_PULL_RANKS], *recv[TRI_PULL_RANKS];
};

static void open_buffers(struct buffers *b, const struct ranks *ranks)
{
    b->expected = malloc(BYTES);
    b->image = malloc(ROOM);
    for (int r = 0; r < ranks->size; r++) {
        b->parts[r] = malloc(BYTES);
        b->found[r] = malloc(ROOM);
        b->send[r] = ranks_alloc(ranks, r, ROOM);
        b->recv[r] = ranks_alloc(ranks, r, ROOM);
    }
}

static void close_buffers(struct buffers *b, const struct ranks *ranks)
{
    free(b->expected);
    free(b->image);
    for (int r = 0; r < ranks->size; r++) {
        free(b->parts[r]);
        free(b->found[r]);
        MUST(cudaFree(b->send[r]));
        MUST(cudaFree(b->recv[r]));
    }
}

/* Any bits, and the results. */
static void fill_buffers(struct buffers *b, int size, trib_dtype dtype, trib_op op)
{
    const size_t width = trib_dtype_size(dtype);
    for (int r = 0; r < size; r++)
        kernels_fill(b->parts[r], dtype, BYTES / width, KERNELS_WILD_NANS);
    for (size_t at = 0; at < BYTES; at += width) {
        const void *elements[TRI_PULL_RANKS];
        for (int r = 0; r < size; r++)
            elements[r] = b->parts[r] + at;
        kernels_fold(b->expected + at, elements, (size_t)size, dtype, op);
    }
}

/* Where the elements of a rank begin in its buffers. */
struct place {
    size_t send, recv;
    bool in_place;
};

/* All ranks alike and aligned, or alike, or no two of them. */
static struct place place_of(int rank, size_t turn, size_t width, bool in_place)
{
    const size_t alike = EDGE + turn % 3 * width % 16,
                 apart = EDGE + ((size_t)rank + turn) * width % 16;
    const struct place places[] = {{EDGE, EDGE, in_place},
                                   {alike, alike, in_place},
                                   {apart, in_place ? apart : EDGE + turn * width % 16, in_place}};
    return places[turn % 3];
}

/* `found` is that image, but for what NaNs look like among the elements. */
static bool is_image(const unsigned char *found, const unsigned char *image, size_t at,
                     size_t count, trib_dtype dtype)
{
    const size_t width = trib_dtype_size(dtype);
    if (memcmp(found, image, ROOM) == 0)
        return true;
    if (dtype > TRIB_F64 || memcmp(found, image, at) != 0 ||
        memcmp(found + at + count * width, image + at + count * width, ROOM - at - count * width) !=
            0)
        return false;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *x = found + at + i * width, *y = image + at + i * width;
        const double a = kernels_get(x, dtype), b = kernels_get(y, dtype);
        if (memcmp(x, y, width) != 0 && !(a != a && b != b))
            return false;
    }
    return true;
}

static void upload(const struct ranks *ranks, struct buffers *b, int r, struct place at,
                   size_t bytes)
{
    memset(b->image, 0xa5, ROOM);
    ranks_copy(ranks, r, b->recv[r], b->image, ROOM);
    memcpy(b->image + at.send, b->parts[r], bytes);
    ranks_copy(ranks, r, b->send[r], b->image, ROOM);
    ranks_wait(ranks);
}

/* Both buffers of the rank, all bytes. */
static void check_rank(const struct ranks *ranks, struct buffers *b, int r, struct place at,
                       const struct ranks_call *call)
{
    const size_t bytes = call->count * trib_dtype_size(call->dtype);
    memset(b->image, 0xa5, ROOM);
    memcpy(b->image + at.send, at.in_place ? b->expected : b->parts[r], bytes);
    ranks_copy(ranks, r, b->found[r], b->send[r], ROOM);
    ranks_wait(ranks);
    CHECK_MSG(is_image(b->found[r], b->image, at.send, call->count, call->dtype),
              "rank %d: send is wrong, %zu elements, way %d, %d blocks", r, call->count,
              (int)call->way, call->blocks);
    memset(b->image, 0xa5, ROOM);
    if (!at.in_place) {
        memcpy(b->image + at.recv, b->expected, bytes);
        ranks_copy(ranks, r, b->found[r], b->recv[r], ROOM);
        ranks_wait(ranks);
        CHECK_MSG(is_image(b->found[r], b->image, at.recv, call->count, call->dtype),
                  "rank %d: recv is wrong, %zu elements, way %d, %d blocks", r, call->count,
                  (int)call->way, call->blocks);
    }
}

static void one_case(const struct ranks *ranks, struct buffers *b, size_t turn, bool in_place,
                     struct ranks_call call)
{
    const size_t width = trib_dtype_size(call.dtype), bytes = call.count * width;
    const void *send[TRI_PULL_RANKS];
    void *recv[TRI_PULL_RANKS];
    struct place at[TRI_PULL_RANKS];
    for (int r = 0; r < ranks->size; r++) {
        at[r] = place_of(r, turn, width, in_place);
        send[r] = b->send[r] + at[r].send;
        recv[r] = (in_place ? b->send[r] : b->recv[r]) + at[r].recv;
        upload(ranks, b, r, at[r], bytes);
    }
    ranks_pull_all(ranks, send, recv, &call);
    for (int r = 0; r < ranks->size; r++)
        check_rank(ranks, b, r, at[r], &call);
    for (int r = 1; r < ranks->size; r++)
        CHECK_MSG(memcmp(b->found[0] + at[0].recv, b->found[r] + at[r].recv, bytes) == 0,
                  "ranks 0 and %d have other bits, of %zu elements", r, call.count);
}

/* Every way, in place where it may be, of `bytes` bytes. */
static void size_case(struct ranks *ranks, struct buffers *b, size_t bytes, size_t turn,
                      struct ranks_call call)
{
    static const int blocks[] = {0, 1, 3, 16};
    call.count = bytes / trib_dtype_size(call.dtype);
    call.count -= call.count > 1 && turn % 5 < 2;
    call.blocks = ranks->each > 2 && turn % 4 == 0 ? 8 : blocks[turn % 4];
    call.unmapped = RANKS_ALL_MAPPED;
    call.way = TRI_PULL_ONE_SHOT;
    one_case(ranks, b, turn, false, call);
    call.way = TRI_PULL_TWO_SHOT;
    one_case(ranks, b, turn, false, call);
    one_case(ranks, b, turn, true, call);
    ranks->scratch_bytes = (turn % 2 ? 1 : 32) * tri_pull_scratch_least(call.kind, ranks->size);
    call.unmapped = (int)turn % ranks->size;
    one_case(ranks, b, turn, turn % 4 < 2, call);
}

static void types_and_reductions(struct ranks *ranks)
{
    static const size_t sizes[] = {8,     16,    24,     40,     1024,   1032,   4096,
                                   16376, 32768, 100008, 131080, 200000, 261000, BYTES - EDGE};
    struct buffers b;
    open_buffers(&b, ranks);
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++)
        for (trib_op op = TRIB_SUM; op <= TRIB_AVG; op++) {
            check_begin("pull of %d ranks on %d GPUs: %s, reduction %d", ranks->size,
                        ranks->devices, trib_dtype_name(dtype), (int)op);
            fill_buffers(&b, ranks->size, dtype, op);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                size_case(ranks, &b, sizes[i], i + (size_t)op + dtype,
                          (struct ranks_call){.dtype = dtype, .op = op});
            CHECK_MSG(*ranks->abort_flag == 0, "a call waited for too long");
            check_end();
        }
    close_buffers(&b, ranks);
}

/* ---- calls whose peers never come, or late */

enum { QUEUED = 100, FEW = 16384, LATE_MS = 1200 };

static void queue_in_vain(struct ranks *ranks, void *const *data)
{
    const struct ranks_call call = {.count = FEW,
                                    .dtype = TRIB_F32,
                                    .op = TRIB_SUM,
                                    .way = TRI_PULL_TWO_SHOT,
                                    .blocks = 8,
                                    .unmapped = RANKS_ALL_MAPPED};
    for (int i = 0; i < QUEUED; i++)
        ranks_pull(ranks, 0, (const void *const *)data, data, &call);
}

/* ms from then until the stream has ended them all. */
static double wait_since(struct ranks *ranks, uint64_t began_ns)
{
    ranks_wait(ranks);
    return (double)(tri_now_ns() - began_ns) / 1e6;
}

static void aborted(struct ranks *ranks, void *const *data, int without)
{
    const int each = ranks->each;
    for (enum setting setting = ALL_STOP; setting <= OTHERS_NEVER_STOP; setting++) {
        ranks->each = without;
        queue_in_vain(ranks, data);
        const double took =
            wait_since(ranks, settings_make(ranks->abort_flag, setting, ranks->streams[0]));
        printf("pull: %d calls end %.3f ms after an abort\n", (int)QUEUED, took);
        settings_check(setting, took);
        ranks->each = each;
        ranks_renew(ranks);
    }
}

/* With one GPU: of a communicator of which it has not all ranks. */
static void no_peer(struct ranks *ranks)
{
    const int each = ranks->each;
    void *data[TRI_PULL_RANKS];
    for (int r = 0; r < ranks->size; r++)
        data[r] = ranks_alloc(ranks, r, FEW * sizeof(float));
    const int without = ranks->devices == 1 ? ranks->size - 1 : each;
    check_begin("pull of %d ranks on %d GPUs: aborted without all peers", ranks->size,
                ranks->devices);
    ranks->patience_ns = 0;
    aborted(ranks, data, without);
    check_end();

    check_begin("pull of %d ranks on %d GPUs: its patience ends", ranks->size, ranks->devices);
    ranks->patience_ns = 30000000;
    ranks->each = without;
    const uint64_t began = tri_now_ns();
    queue_in_vain(ranks, data);
    const double took = wait_since(ranks, began);
    printf("pull: %d calls end %.3f ms after the first began, with 30 ms of patience\n",
           (int)QUEUED, took);
    CHECK_MSG(took >= 30 && took < 60, "%g ms", took);
    CHECK(*ranks->abort_flag == TRI_PUSH_LATE);
    ranks->patience_ns = RANKS_PATIENCE_MS * UINT64_C(1000000);
    ranks->each = each;
    ranks_renew(ranks);
    check_end();
    for (int r = 0; r < ranks->size; r++)
        MUST(cudaFree(data[r]));
}

/* The ranks of one GPU, each in turn, come LATE_MS after their peers, who wait for them: longer than who gives up
 * waits for a twin. */
static void late_peer(struct ranks *ranks)
{
    uint32_t *data[TRI_PULL_RANKS], found[2];
    check_begin("pull on %d GPUs: a rank is late by %d ms", ranks->devices, (int)LATE_MS);
    for (int r = 0; r < ranks->size; r++)
        data[r] = ranks_alloc(ranks, r, sizeof found);
    for (int late = 0; late < ranks->devices; late++) {
        const struct ranks_call call = {.count = 2,
                                        .dtype = TRIB_U32,
                                        .op = TRIB_SUM,
                                        .way = TRI_PULL_TWO_SHOT,
                                        .unmapped = RANKS_ALL_MAPPED};
        for (int r = 0; r < ranks->size; r++) {
            const uint32_t parts[] = {1, 100 + (uint32_t)r};
            ranks_copy(ranks, r, data[r], parts, sizeof parts);
        }
        ranks_wait(ranks);
        for (int i = 1; i <= ranks->devices; i++) {
            if (i == ranks->devices)
                check_sleep_ms(LATE_MS);
            ranks_pull(ranks, (late + i) % ranks->devices, (const void *const *)data,
                       (void *const *)data, &call);
        }
        for (int r = 0; r < ranks->size; r++) {
            const uint32_t n = (uint32_t)ranks->size;
            ranks_copy(ranks, r, found, data[r], sizeof found);
            ranks_wait(ranks);
            CHECK_MSG(found[0] == n && found[1] == 100 * n + n * (n - 1) / 2, "rank %d: %u %u", r,
                      (unsigned)found[0], (unsigned)found[1]);
        }
    }
    check_end();
    for (int r = 0; r < ranks->size; r++)
        MUST(cudaFree(data[r]));
}

/* ---- more than 2^31 elements */

#define LARGE (((size_t)1 << 31) + 4099)

static unsigned char large_input(size_t i, int rank)
{
    return (unsigned char)(i * 7 + (i >> 16) * 3 + (i >> 31) + (size_t)rank * 29);
}

/* Sums, or what the last rank has sent. */
static void check_large(const struct ranks *ranks, unsigned char *host, unsigned char *const *recv,
                        bool copied)
{
    for (int r = 0; r < ranks->size; r++) {
        ranks_copy(ranks, r, host, recv[r], LARGE);
        ranks_wait(ranks);
        size_t wrong = 0;
        for (size_t i = 0; i < LARGE; i++) {
            unsigned sum = 0;
            for (int p = copied ? ranks->size - 1 : 0; p < ranks->size; p++)
                sum += large_input(i, p);
            wrong += host[i] != (unsigned char)sum;
        }
        CHECK_MSG(wrong == 0, "rank %d: %zu elements are wrong", r, wrong);
    }
}

static void large(const struct ranks *ranks)
{
    unsigned char *host = malloc(LARGE), *send[TRI_PULL_RANKS], *recv[TRI_PULL_RANKS];
    struct ranks_call call = {
        .count = LARGE, .dtype = TRIB_U8, .op = TRIB_SUM, .unmapped = RANKS_ALL_MAPPED};
    for (int r = 0; r < ranks->size; r++) {
        for (size_t i = 0; i < LARGE; i++)
            host[i] = large_input(i, r);
        send[r] = ranks_alloc(ranks, r, LARGE);
        recv[r] = ranks_alloc(ranks, r, LARGE + 1);
        ranks_copy(ranks, r, send[r], host, LARGE);
        ranks_wait(ranks);
    }
    for (int i = 0; i < 4; i++) {
        static const char *const ways[] = {"one shot", "two shot", "staged", "broadcast"};
        check_begin("pull of %zu elements, %d ranks, %s", LARGE, ranks->size, ways[i]);
        call.way = i == 0 ? TRI_PULL_ONE_SHOT : TRI_PULL_TWO_SHOT;
        call.kind = i == 3 ? TRI_PULL_BROADCAST : TRI_PULL_ALLREDUCE;
        call.root = ranks->size - 1;
        call.unmapped = i == 2 ? 0 : RANKS_ALL_MAPPED;
        for (int r = 0; r < ranks->size; r++) {
            recv[r] += i == 3; /* a copy of single bytes */
            MUST(cudaSetDevice(r / ranks->each));
            MUST(cudaMemset(recv[r], 0xa5, LARGE));
            MUST(cudaDeviceSynchronize());
        }
        ranks_pull_all(ranks, (const void *const *)send, (void *const *)recv, &call);
        check_large(ranks, host, recv, i == 3);
        check_end();
    }
    for (int r = 0; r < ranks->size; r++) {
        MUST(cudaFree(send[r]));
        MUST(cudaFree(recv[r] - 1));
    }
    free(host);
}

/* ---- all */

/* One communicator: `each` ranks on each of up to `devices` GPUs. */
static void test_ranks(int devices, int each)
{
    const char *why;
    struct ranks ranks;
    if (!ranks_open(&ranks, devices, each, &why)) {
        check_skip("%s", why);
        return;
    }
    types_and_reductions(&ranks);
    gpus_kinds(&ranks);
    gpus_lists(&ranks);
    rows_alternate(&ranks, ranks.devices > 1 && each == 1 ? 100000 : 1000);
    rows_graph(&ranks, 100);
    rows_abort(&ranks, 10);
    no_peer(&ranks);
    if (ranks.devices > 1)
        late_peer(&ranks);
    if (getenv("TRIB_TEST_LARGE") != NULL && each == (ranks.devices > 1 ? 1 : 2))
        large(&ranks);
    ranks_close(&ranks);
}

int main(void)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        check_skip("there is no GPU");
        return check_finish("pull_gpus_test");
    }
    test_ranks(1, 2);
    test_ranks(1, 3);
    test_ranks(1, 8);
    if (devices == 1)
        check_skip("there is one GPU");
    for (int each = 1; each <= 4 && devices > 1; each *= 2)
        test_ranks(TRI_PULL_RANKS, each);
    return check_finish("pull_gpus_test");
}
