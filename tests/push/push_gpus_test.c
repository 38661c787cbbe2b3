/* push between the GPUs of this process, a rank each: every type and reduction against arithmetic on the
 * host, long rows of calls, graphs, and what ends a call that waits in vain.
 *   push_gpus_test [CALLS]   of random sizes, 100,000 unless it is given */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/kernels/kernels.h"
#include "tests/push/gpus.h"
#include "tests/push/soak.h"

/* ---- every type and reduction */

struct buffers {
    unsigned char *parts[TRI_PUSH_RANKS], *found[TRI_PUSH_RANKS], *expected; /* on the host */
    unsigned char *send[TRI_PUSH_RANKS], *recv[TRI_PUSH_RANKS];
};

static void open_buffers(struct buffers *b, int size)
{
    b->expected = malloc(GPUS_BYTES);
    for (int r = 0; r < size; r++) {
        b->parts[r] = malloc(GPUS_BYTES);
        b->found[r] = malloc(GPUS_BYTES + 1);
        b->send[r] = gpus_alloc(r, GPUS_BYTES + 16);
        b->recv[r] = gpus_alloc(r, GPUS_BYTES + 16);
    }
}

static void close_buffers(struct buffers *b, int size)
{
    free(b->expected);
    for (int r = 0; r < size; r++) {
        free(b->parts[r]);
        free(b->found[r]);
        MUST(cudaFree(b->send[r]));
        MUST(cudaFree(b->recv[r]));
    }
}

/* Any bits, zeros of both signs and granules of all ones among the first of them, and the results. */
static void fill_buffers(struct buffers *b, int size, trib_dtype dtype, trib_op op)
{
    const size_t width = trib_dtype_size(dtype);
    for (int r = 0; r < size; r++) {
        kernels_fill(b->parts[r], dtype, GPUS_BYTES / width, KERNELS_WILD_NANS);
        memset(b->parts[r] + 16, 0xff, 16 + 8 * (size_t)r);
        memset(b->parts[r] + 64, 0, 32);
        for (size_t at = 64; at < 96; at += width)
            b->parts[r][at + width - 1] = (at / width + (size_t)r) % 2 ? 0x80 : 0;
    }
    for (size_t at = 0; at < GPUS_BYTES; at += width) {
        const void *elements[TRI_PUSH_RANKS];
        for (int r = 0; r < size; r++)
            elements[r] = b->parts[r] + at;
        kernels_fold(b->expected + at, elements, (size_t)size, dtype, op);
    }
}

static void size_case(const struct gpus *gpus, struct buffers *b, size_t bytes, trib_dtype dtype,
                      trib_op op, bool in_place)
{
    const size_t width = trib_dtype_size(dtype), count = bytes / width, used = count * width;
    const size_t shift = bytes % 3 * width % 16;
    for (int r = 0; r < gpus->size; r++) {
        unsigned char *send = b->send[r] + (r == 0 ? 0 : shift);
        MUST(cudaSetDevice(r));
        MUST(cudaMemcpyAsync(send, b->parts[r], used, cudaMemcpyHostToDevice, gpus->streams[r]));
        gpus_push(gpus, r, send, in_place ? send : b->recv[r] + shift, count, dtype, op);
    }
    for (int r = 0; r < gpus->size; r++) {
        const unsigned char *recv =
            in_place ? b->send[r] + (r == 0 ? 0 : shift) : b->recv[r] + shift;
        MUST(cudaSetDevice(r));
        MUST(cudaMemcpyAsync(b->found[r], recv, used, cudaMemcpyDeviceToHost, gpus->streams[r]));
        gpus_wait(gpus, r);
        for (size_t i = 0; i < count; i++)
            if (!gpus_same(b->found[r], b->expected, i, dtype)) {
                CHECK_MSG(false, "rank %d: element %zu of %zu is wrong", r, i, count);
                break;
            }
        CHECK_MSG(memcmp(b->found[0], b->found[r], used) == 0,
                  "ranks 0 and %d have other bits, of %zu elements", r, count);
    }
}

static void types_and_reductions(const struct gpus *gpus)
{
    static const size_t sizes[] = {8,    10,    24,    1024,   1030,       4096,
                                   8200, 16384, 65536, 100002, 262144 - 8, 262144};
    struct buffers b;
    open_buffers(&b, gpus->size);
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++)
        for (trib_op op = TRIB_SUM; op <= TRIB_AVG; op++) {
            check_begin("push on %d GPUs: %s, reduction %d", gpus->size, trib_dtype_name(dtype),
                        (int)op);
            fill_buffers(&b, gpus->size, dtype, op);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                size_case(gpus, &b, sizes[i], dtype, op, false);
                size_case(gpus, &b, sizes[i], dtype, op, true);
            }
            CHECK_MSG(*gpus->abort_flag == 0, "a call waited for too long");
            check_end();
        }
    close_buffers(&b, gpus->size);
}

/* ---- calls whose peers never come */

enum { QUEUED = 100 };

/* ms from when the flag is set, or from the first call, until the stream has ended them all. */
static double wait_in_vain(struct gpus *gpus, float *data, bool sets)
{
    uint64_t began = tri_now_ns();
    MUST(cudaSetDevice(0));
    for (int i = 0; i < QUEUED; i++)
        gpus_push(gpus, 0, data, data, 16384, TRIB_F32, TRIB_SUM);
    if (sets) {
        check_sleep_ms(50);
        CHECK(cudaStreamQuery(gpus->streams[0]) == cudaErrorNotReady);
        began = tri_now_ns();
        __atomic_store_n(gpus->abort_flag, TRI_PUSH_ABORTED, __ATOMIC_RELEASE);
    }
    gpus_wait(gpus, 0);
    return (double)(tri_now_ns() - began) / 1e6;
}

static void no_peer(struct gpus *gpus)
{
    float *data = gpus_alloc(0, 65536);
    check_begin("push on %d GPUs: aborted without its peers", gpus->size);
    gpus->patience_ns = 0;
    double took = wait_in_vain(gpus, data, true);
    printf("push: %d calls end %.3f ms after an abort\n", (int)QUEUED, took);
    CHECK_MSG(took < 5, "%g ms", took);
    gpus_renew(gpus);
    check_end();

    check_begin("push on %d GPUs: its patience ends", gpus->size);
    gpus->patience_ns = 30000000;
    took = wait_in_vain(gpus, data, false);
    printf("push: %d calls end %.3f ms after the first began, with 30 ms of patience\n",
           (int)QUEUED, took);
    CHECK_MSG(took >= 30 && took < 45, "%g ms", took);
    CHECK(*gpus->abort_flag == TRI_PUSH_LATE);
    gpus->patience_ns = GPUS_PATIENCE_MS * UINT64_C(1000000);
    gpus_renew(gpus);
    check_end();
    MUST(cudaFree(data));
}

/* A rank that comes seconds after its peers, who wait for it. */
static void late_peer(struct gpus *gpus)
{
    float *data[TRI_PUSH_RANKS], one = 1, sum = 0;
    check_begin("push on %d GPUs: a rank is late by a second", gpus->size);
    for (int r = 0; r < gpus->size; r++) {
        data[r] = gpus_alloc(r, sizeof one);
        MUST(cudaMemcpy(data[r], &one, sizeof one, cudaMemcpyHostToDevice));
    }
    for (int r = 0; r < gpus->size; r++) {
        MUST(cudaSetDevice(r));
        if (r == gpus->size - 1)
            check_sleep_ms(1000);
        gpus_push(gpus, r, data[r], data[r], 1, TRIB_F32, TRIB_SUM);
    }
    for (int r = 0; r < gpus->size; r++) {
        gpus_wait(gpus, r);
        MUST(cudaMemcpy(&sum, data[r], sizeof sum, cudaMemcpyDeviceToHost));
        CHECK_MSG(sum == (float)gpus->size, "rank %d has %g", r, (double)sum);
        MUST(cudaFree(data[r]));
    }
    check_end();
}

int main(int n, char **arguments)
{
    const int calls = n > 1 ? atoi(arguments[1]) : 100000;
    const char *why;
    struct gpus gpus;
    if (!gpus_open(&gpus, &why)) {
        check_skip("%s", why);
        return check_finish("push_gpus_test");
    }
    types_and_reductions(&gpus);
    late_peer(&gpus);
    no_peer(&gpus);
    soak_aborts(&gpus, 20);
    soak_graphs(&gpus, 1000);
    soak_random(&gpus, calls);
    gpus_close(&gpus);
    return check_finish("push_gpus_test");
}
