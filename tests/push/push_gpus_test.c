/* push between the GPUs of this process, a rank each: every type and reduction against arithmetic on the
 * host, long rows of calls, graphs, and what ends a call that waits in vain.
 *   push_gpus_test [RANDOM [SMALL]]
 * RANDOM calls of random sizes, late by chance, 100,000 unless it is given; then SMALL allreduces back to back,
 * 10,000,000 unless it is given */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/kernels/kernels.h"
#include "tests/push/gpus.h"
#include "tests/push/gpus_kinds.h"
#include "tests/push/settings.h"
#include "tests/push/soak.h"

/* ---- every type and reduction */

enum { LATE_MS = 3000 }; /* GPUS_PATIENCE_MS is longer */

struct buffers {
    unsigned char *parts[TRI_PUSH_RANKS], *found[TRI_PUSH_RANKS], *expected; /* on the host */
    unsigned char *send[TRI_PUSH_RANKS], *recv[TRI_PUSH_RANKS];
};

static void open_buffers(struct buffers *b, const struct gpus *gpus)
{
    b->expected = malloc(GPUS_BYTES);
    for (int r = 0; r < gpus->size; r++) {
        b->parts[r] = malloc(GPUS_BYTES);
        b->found[r] = malloc(GPUS_BYTES);
        b->send[r] = gpus_alloc(r / gpus->each, GPUS_BYTES + 16);
        b->recv[r] = gpus_alloc(r / gpus->each, GPUS_BYTES + 16);
    }
}

static void close_buffers(struct buffers *b, const struct gpus *gpus)
{
    free(b->expected);
    for (int r = 0; r < gpus->size; r++) {
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
        memset(b->parts[r] + 16, 0xff, 16 + 4 * (size_t)r);
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

/* Wait for the rank's result, and compare it. */
static void check_result(const struct gpus *gpus, struct buffers *b, int rank, const void *recv,
                         struct gpus_call call)
{
    const int device = rank / gpus->each;
    const size_t bytes = call.count * trib_dtype_size(call.dtype);
    MUST(cudaSetDevice(device));
    MUST(cudaMemcpyAsync(b->found[rank], recv, bytes, cudaMemcpyDeviceToHost,
                         gpus->streams[device]));
    gpus_wait(gpus, device);
    for (size_t i = 0; i < call.count; i++)
        if (!gpus_same(b->found[rank], b->expected, i, call.dtype)) {
            CHECK_MSG(false, "rank %d: element %zu of %zu is wrong", rank, i, call.count);
            break;
        }
    CHECK_MSG(memcmp(b->found[0], b->found[rank], bytes) == 0,
              "ranks 0 and %d have other bits, of %zu elements", rank, call.count);
}

/* Buffers of rank 0 are aligned to 256 bytes, those of the others to an element. */
static void size_case(const struct gpus *gpus, struct buffers *b, size_t bytes,
                      struct gpus_call call, bool in_place)
{
    const size_t width = trib_dtype_size(call.dtype), shift = bytes % 3 * width % 16;
    const void *send[TRI_PUSH_RANKS];
    void *recv[TRI_PUSH_RANKS];
    call.count = bytes / width;
    for (int r = 0; r < gpus->size; r++) {
        unsigned char *const from = b->send[r] + (r == 0 ? 0 : shift);
        send[r] = from;
        recv[r] = in_place ? from : b->recv[r] + (r == 0 ? 0 : shift);
        const int device = r / gpus->each;
        MUST(cudaSetDevice(device));
        /* On the call's stream: of pageable memory cudaMemcpy may return before it has arrived. */
        MUST(cudaMemcpyAsync(from, b->parts[r], call.count * width, cudaMemcpyHostToDevice,
                             gpus->streams[device]));
    }
    for (int d = 0; d < gpus->devices; d++) {
        MUST(cudaSetDevice(d));
        gpus_push(gpus, d, send, recv, call);
    }
    for (int r = 0; r < gpus->size; r++)
        check_result(gpus, b, r, recv[r], call);
}

static void types_and_reductions(const struct gpus *gpus)
{
    static const size_t sizes[] = {8,    10,    24,    1024,   1030,       4096,
                                   8200, 16384, 65536, 100002, 262144 - 8, 262144};
    struct buffers b;
    open_buffers(&b, gpus);
    for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++)
        for (trib_op op = TRIB_SUM; op <= TRIB_AVG; op++) {
            check_begin("push of %d ranks on %d GPUs: %s, reduction %d", gpus->size, gpus->devices,
                        trib_dtype_name(dtype), (int)op);
            fill_buffers(&b, gpus->size, dtype, op);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                size_case(gpus, &b, sizes[i], (struct gpus_call){.dtype = dtype, .op = op}, false);
                size_case(gpus, &b, sizes[i], (struct gpus_call){.dtype = dtype, .op = op}, true);
            }
            CHECK_MSG(*gpus->abort_flag == 0, "a call waited for too long");
            check_end();
        }
    close_buffers(&b, gpus);
}

/* Several ranks on each GPU, which are blocks of one launch: up to 8 in all. */
static void more_ranks(int each)
{
    const char *why;
    struct gpus gpus;
    if (!gpus_open(&gpus, each, &why))
        return;
    types_and_reductions(&gpus);
    gpus_kinds(&gpus);
    gpus_close(&gpus);
}

/* ---- streams, and two communicators */

enum { TURNS = 2000 };

/* What a rank of one of two communicators does; every call is on the other stream of two. */
struct crossing {
    struct gpus *gpus[2];
    cudaStream_t streams[TRI_PUSH_RANKS][2];
    cudaEvent_t events[TRI_PUSH_RANKS];
    float *data[2][TRI_PUSH_RANKS];
};

static void open_crossing(struct crossing *c, struct gpus *first, struct gpus *second)
{
    c->gpus[0] = first;
    c->gpus[1] = second;
    for (int r = 0; r < first->size; r++) {
        for (int i = 0; i < 2; i++) {
            c->data[i][r] = gpus_alloc(r, 4096);
            MUST(cudaMemset(c->data[i][r], 0, 4096));
            MUST(cudaStreamCreateWithFlags(&c->streams[r][i], cudaStreamNonBlocking));
        }
        MUST(cudaEventCreateWithFlags(&c->events[r], cudaEventDisableTiming));
        MUST(cudaDeviceSynchronize());
    }
}

static void close_crossing(struct crossing *c)
{
    for (int r = 0; r < c->gpus[0]->size; r++) {
        for (int i = 0; i < 2; i++) {
            MUST(cudaFree(c->data[i][r]));
            MUST(cudaStreamDestroy(c->streams[r][i]));
        }
        MUST(cudaEventDestroy(c->events[r]));
    }
}

/* Threads 0 and 1 are rank 0 and 1 of the first communicator, then come those of the second. Of a
 * call on another stream than the one before, the stream waits for an event. */
static void cross(int thread, int threads, void *argument)
{
    struct crossing *c = argument;
    const int size = c->gpus[0]->size, which = thread / size, r = thread % size;
    const struct gpus *gpus = c->gpus[which];
    float *const data = c->data[which][r];
    (void)threads;
    MUST(cudaSetDevice(r));
    for (int i = 0; i < TURNS; i++) {
        const cudaStream_t stream = which == 0 ? c->streams[r][i % 2] : gpus->streams[r];
        if (which == 0 && i > 0)
            MUST(cudaStreamWaitEvent(stream, c->events[r], 0));
        gpus_push_one(gpus, r, data, data,
                      (struct gpus_call){.count = 1024, .dtype = TRIB_F32, .op = TRIB_MAX}, stream);
        if (which == 0)
            MUST(cudaEventRecord(c->events[r], stream));
    }
    MUST(cudaStreamSynchronize(which == 0 ? c->streams[r][(TURNS - 1) % 2] : gpus->streams[r]));
}

/* Both communicators on the same GPUs at once, each with calls on two streams in turn or on one. The
 * epochs say that every call has been made. */
static void streams_and_communicators(struct gpus *gpus)
{
    struct gpus second;
    struct crossing c;
    const char *why;
    struct tri_push_control control;
    check_begin("push on %d GPUs: two communicators at once, one on two streams", gpus->devices);
    if (CHECK(gpus_open(&second, 1, &why))) {
        gpus_renew(gpus);
        open_crossing(&c, gpus, &second);
        check_ranks(2 * gpus->size, cross, &c);
        for (int i = 0; i < 2; i++)
            for (int r = 0; r < gpus->size; r++) {
                MUST(cudaMemcpy(&control, c.gpus[i]->control[r], sizeof control,
                                cudaMemcpyDeviceToHost));
                CHECK_MSG(control.turn == (uint32_t)TURNS * TRI_PUSH_EPOCH && control.over == 0,
                          "rank %d of communicator %d: %#x", r, i, (unsigned)control.turn);
            }
        CHECK(*gpus->abort_flag == 0 && *second.abort_flag == 0);
        close_crossing(&c);
        gpus_close(&second);
    }
    check_end();
}

/* ---- calls whose peers never come */

enum { QUEUED = 100, STUCK = 33 };

static void queue_in_vain(struct gpus *gpus, float *data, int calls)
{
    MUST(cudaSetDevice(0));
    for (int i = 0; i < calls; i++)
        gpus_push_one(gpus, 0, data, data,
                      (struct gpus_call){.count = 16384, .dtype = TRIB_F32, .op = TRIB_SUM},
                      gpus->streams[0]);
}

/* ms from then until the stream has ended them all. */
static double wait_since(struct gpus *gpus, uint64_t began_ns)
{
    gpus_wait(gpus, 0);
    return (double)(tri_now_ns() - began_ns) / 1e6;
}

static void aborted(struct gpus *gpus, float *data)
{
    for (enum setting setting = ALL_STOP; setting <= OTHERS_NEVER_STOP; setting++) {
        queue_in_vain(gpus, data, QUEUED);
        const double took =
            wait_since(gpus, settings_make(gpus->abort_flag, setting, gpus->streams[0]));
        printf("push: %d calls end %.3f ms after an abort\n", (int)QUEUED, took);
        settings_check(setting, took);
        gpus_renew(gpus);
    }
}

/* A call looks at the flag every 10 us: half of them end soon after it is set, the host's own wait included. */
static void one_by_one(struct gpus *gpus, float *data)
{
    double took[STUCK];
    for (int i = 0; i < STUCK; i++) {
        queue_in_vain(gpus, data, 1);
        took[i] = wait_since(gpus, settings_make(gpus->abort_flag, ALL_STOP, gpus->streams[0]));
        gpus_renew(gpus);
    }
    check_sort(took, STUCK);
    printf("push: a call ends %.3f ms after an abort, at most %.3f\n", took[STUCK / 2],
           took[STUCK - 1]);
    CHECK_MSG(took[STUCK / 2] < 0.05, "median %g ms", took[STUCK / 2]);
}

static void no_peer(struct gpus *gpus)
{
    float *data = gpus_alloc(0, 65536);
    check_begin("push on %d GPUs: aborted without its peers", gpus->size);
    gpus->patience_ns = 0;
    aborted(gpus, data);
    one_by_one(gpus, data);
    check_end();

    check_begin("push on %d GPUs: its patience ends", gpus->size);
    gpus->patience_ns = 30000000;
    const uint64_t began = tri_now_ns();
    queue_in_vain(gpus, data, QUEUED);
    const double took = wait_since(gpus, began);
    printf("push: %d calls end %.3f ms after the first began, with 30 ms of patience\n",
           (int)QUEUED, took);
    CHECK_MSG(took >= 30 && took < 60, "%g ms", took);
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
    check_begin("push on %d GPUs: a rank is late by %d ms", gpus->size, (int)LATE_MS);
    for (int r = 0; r < gpus->size; r++) {
        data[r] = gpus_alloc(r, sizeof one);
        MUST(cudaMemcpyAsync(data[r], &one, sizeof one, cudaMemcpyHostToDevice, gpus->streams[r]));
    }
    for (int r = 0; r < gpus->size; r++) {
        MUST(cudaSetDevice(r));
        if (r == gpus->size - 1)
            check_sleep_ms(LATE_MS);
        gpus_push_one(gpus, r, data[r], data[r],
                      (struct gpus_call){.count = 1, .dtype = TRIB_F32, .op = TRIB_SUM},
                      gpus->streams[r]);
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
    const int random = n > 1 ? atoi(arguments[1]) : 100000;
    const int small = n > 2 ? atoi(arguments[2]) : 10000000;
    const char *why;
    struct gpus gpus;
    if (!gpus_open(&gpus, 1, &why)) {
        check_skip("%s", why);
        return check_finish("push_gpus_test");
    }
    types_and_reductions(&gpus);
    gpus_kinds(&gpus);
    more_ranks(2);
    more_ranks(4);
    streams_and_communicators(&gpus);
    late_peer(&gpus);
    no_peer(&gpus);
    soak_aborts(&gpus, 20);
    soak_graphs(&gpus, 1000);
    soak_random(&gpus, random);
    soak_small(&gpus, small);
    gpus_close(&gpus);
    return check_finish("push_gpus_test");
}
