/* The lifecycle of the nccl backend over the fake: open, split, abort, deadlines, close, and races
 * between them. Needs no GPU; meant to run under the thread and address sanitizers. */
#define _POSIX_C_SOURCE 200809L
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/base/process.h"
#include "csrc/base/status.h"
#include "csrc/base/stopped.h"
#include "csrc/core/communicator.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/pinned.h"
#include "csrc/nccl/quiesce.h"
#include "csrc/nccl/thread.h"
#include "kernels/cuda/kernels_cuda.h"
#include "tests/check.h"
#include "tests/nccl_fake/batches.h"
#include "tests/nccl_fake/config.h"
#include "tests/nccl_fake/diagnosis.h"
#include "tests/nccl_fake/errors.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fixture.h"
#include "tests/nccl_fake/marks.h"
#include "tests/nccl_fake/states.h"
#include "tests/process.h"

/* Stubs for what is not linked here: kernels, of which only scaling f32 and f64 runs, and the
 * public functions. */
static trib_status scale(void *dst, const void *src, size_t count, trib_dtype dtype,
                         const struct tri_factor *factor, trib_stream stream)
{
    const double by = factor->device != NULL ? (double)*factor->device : factor->value;
    (void)stream;
    CHECK(dtype == TRIB_F32 || dtype == TRIB_F64);
    for (size_t i = 0; i < count; i++)
        if (dtype == TRIB_F32)
            ((float *)dst)[i] = (float)by * (src == NULL ? 1 : ((const float *)src)[i]);
        else
            ((double *)dst)[i] = by * (src == NULL ? 1 : ((const double *)src)[i]);
    return TRIB_OK;
}

static atomic_int preloads[FAKE_DEVICES];

static void preload(void)
{
    const int device = fake_current();
    if (CHECK(device >= 0 && device < FAKE_DEVICES))
        preloads[device]++;
}

const struct tri_kernels tri_kernels_cuda = {.name = "some", .scale = scale, .preload = preload};
const char *trib_last_detail(void)
{
    return tri_detail();
}

static uint32_t quiesce(uint32_t timeout_ms)
{
    uint32_t graphs = 0;
    const uint32_t left = tri_nccl_quiesce(tri_deadline_ns(timeout_ms), &graphs);
    CHECK(graphs == 0);
    return left;
}

enum { DEADLINE_MS = 200, SLACK_MS = 1000, PLENTY_MS = 20000 };

/* -------------------------------------------------------------------------------------- fixture */

struct stage {
    trib_id id;
    int round;
};

static void begin(struct stage *stage, const char *name)
{
    check_begin("nccl over a fake: %s", name);
    CHECK_OK(transports()->id_create(&stage->id));
}

/* Everything is freed within a while: background jobs do it. */
static void end(void)
{
    for (int i = 0; i < SLACK_MS && fake_communicators() != 0; i++)
        check_sleep_ms(1);
    CHECK_MSG(fake_communicators() == 0, "%d communicators are not freed", fake_communicators());
    CHECK_MSG(fake_freed_early() == 0, "%d times, proxy threads still ran", fake_freed_early());
    check_end();
}

static struct tri_transport *open_rank(const struct stage *stage, int rank, int size)
{
    struct tri_transport *transport = NULL;
    CHECK_OK(transports()->open(&transport, &stage->id, rank, size, rank, NULL, PLENTY_MS));
    return transport;
}

static struct trib_abort *state_of(struct tri_transport *transport)
{
    return transports()->abort_state(transport);
}

static trib_status finish(struct tri_transport *transport, uint32_t timeout_ms)
{
    const trib_status status = transports()->close(transport, timeout_ms);
    transports()->destroy(transport);
    return status;
}

static void stop(struct tri_transport *transport, const char *reason)
{
    (void)tri_abort_raise(state_of(transport), TRIB_ERR_ABORTED, reason);
}

static trib_stream new_stream(int device)
{
    trib_stream stream = NULL;
    CHECK_OK(devices()->stream_create(device, &stream));
    return stream;
}

/* An aborted stream completes; waiting for it must not take long. */
static void end_stream(int device, trib_stream stream)
{
    CHECK_OK(devices()->stream_wait(device, stream));
    CHECK_OK(devices()->stream_destroy(device, stream));
}

/* A group of two ranks, on devices 0 and 1. */
static bool open_two(struct tri_transport **ranks)
{
    const int32_t order[2] = {0, 1};
    return CHECK_OK(transports()->open_group(ranks, order, 2, NULL, PLENTY_MS));
}

static void close_two(struct tri_transport **ranks)
{
    for (int i = 0; i < 2; i++)
        CHECK_OK(finish(ranks[i], PLENTY_MS));
}

/* -------------------------------------------------------------------------------- in good order */

/* One thread drives all ranks, and its current device stays the same. */
static void group(void)
{
    const int32_t order[4] = {3, 1, 0, 2};
    struct tri_transport *ranks[4];
    struct tri_call calls[4];
    trib_stream streams[4];
    struct stage stage;
    begin(&stage, "a group");
    fake_make_current(5);
    if (CHECK_OK(transports()->open_group(ranks, order, 4, NULL, PLENTY_MS))) {
        for (int i = 0; i < 4; i++) {
            streams[i] = new_stream(order[i]);
            calls[i] = (struct tri_call){.kind = TRI_ALLREDUCE,
                                         .transport = ranks[i],
                                         .count = 1,
                                         .dtype = TRIB_F32,
                                         .op = TRIB_SUM,
                                         .stream = streams[i]};
            CHECK(transports()->rank(ranks[i]) == i && transports()->size(ranks[i]) == 4);
            CHECK(state_of(ranks[i]) == state_of(ranks[0]));
        }
        CHECK_OK(transports()->collective(calls, 4));
        for (int i = 0; i < 4; i++) {
            transports()->poll(ranks[i]);
            end_stream(order[i], streams[i]);
        }
        CHECK_OK(tri_abort_status(state_of(ranks[0])));
        for (int i = 0; i < 4; i++)
            CHECK_OK(finish(ranks[i], PLENTY_MS));
    }
    CHECK(fake_current() == 5);
    fake_make_current(-1);
    end();
}

static void healthy_rank(int rank, int size, void *argument)
{
    struct tri_transport *transport = open_rank(argument, rank, size);
    trib_stream stream = new_stream(rank);
    for (int i = 0; i < 10 && transport != NULL; i++) {
        CHECK_OK(allreduce(transport, stream));
        transports()->poll(transport);
    }
    CHECK(fake_current() == -1);
    if (transport != NULL)
        CHECK_OK(finish(transport, PLENTY_MS));
    end_stream(rank, stream);
}

static void threads(void)
{
    struct stage stage;
    begin(&stage, "one thread per rank");
    check_ranks(4, healthy_rank, &stage);
    end();
}

static void one_rank(void)
{
    struct stage stage;
    struct tri_transport *transport = NULL;
    void *memory = NULL;
    begin(&stage, "one rank");
    CHECK_OK(devices()->alloc(2, &memory, 64));
    float *data = memory;
    for (int i = 0; i < 16; i++)
        data[i] = (float)i;
    if (CHECK_OK(transports()->open(&transport, &stage.id, 0, 1, 2, NULL, PLENTY_MS))) {
        struct tri_call calls[4];
        for (int i = 0; i < 4; i++)
            calls[i] = (struct tri_call){.kind = i < 2 ? TRI_SEND : TRI_RECV,
                                         .transport = transport,
                                         .send = data + 2 * i,
                                         .recv = data + 4 + 2 * i,
                                         .count = 2,
                                         .dtype = TRIB_F32};
        CHECK_OK(transports()->collective(calls, 4));
        CHECK(data[8] == 0 && data[9] == 1 && data[10] == 2 && data[11] == 3);
        CHECK_STATUS(transports()->collective(calls, 1), TRIB_ERR_INVALID_USAGE);
        calls[3].count = 1;
        CHECK_STATUS(transports()->collective(calls, 4), TRIB_ERR_MISMATCH);
        CHECK(fake_communicators() == 0); /* NCCL takes no part */
        CHECK_OK(finish(transport, PLENTY_MS));
    }
    CHECK_OK(devices()->free(2, memory));
    end();
}

/* The first communicator on a device loads the kernels there, whether NCCL takes part or not. */
static void kernels_loaded_once(void)
{
    struct stage stage;
    struct tri_transport *transport = NULL, *ranks[2];
    begin(&stage, "kernels are loaded once on a device");
    CHECK(preloads[5] == 0 && preloads[6] == 0);
    for (int time = 0; time < 2; time++) {
        if (CHECK_OK(transports()->open(&transport, &stage.id, 0, 1, 6, NULL, PLENTY_MS)))
            CHECK_OK(finish(transport, PLENTY_MS));
        CHECK(preloads[5] == 0 && preloads[6] == 1);
    }
    const int32_t order[2] = {6, 5};
    if (CHECK_OK(transports()->open_group(ranks, order, 2, NULL, PLENTY_MS)))
        close_two(ranks);
    CHECK(preloads[5] == 1 && preloads[6] == 1);
    end();
}

/* A kernel multiplies the data of a single rank, in place too. */
static void one_rank_scaled(void)
{
    struct stage stage;
    struct tri_transport *transport = NULL;
    float x[4] = {1, 2, 3, 4}, y[4] = {0}, word = -3;
    begin(&stage, "one rank, with a factor");
    const trib_stream stream = new_stream(2);
    if (CHECK_OK(transports()->open(&transport, &stage.id, 0, 1, 2, NULL, PLENTY_MS))) {
        struct tri_call call = one_call(transport, TRI_ALLREDUCE, x, y, stream);
        call.scaled = true;
        call.factor.value = 2;
        CHECK_OK(transports()->collective(&call, 1));
        call.recv = x;
        call.factor.device = &word;
        CHECK_OK(transports()->collective(&call, 1));
        CHECK_OK(finish(transport, PLENTY_MS));
    }
    CHECK(y[0] == 2 && y[3] == 8 && x[0] == -3 && x[3] == -12);
    end_stream(2, stream);
    end();
}

/* One thread drives two ranks; checks the factor that NCCL got from the second: an element of the
 * call's type, and its address. */
static void check_given(struct tri_call *calls, trib_dtype dtype, ncclDataType_t type,
                        const void *element, const void *on_device)
{
    calls[0].dtype = calls[1].dtype = dtype;
    CHECK_OK(transports()->collective(calls, 2));
    const struct fake_factor last = fake_last_factor();
    CHECK_MSG(last.type == (int)type && last.on_device == on_device &&
                  memcmp(last.element, element, trib_dtype_size(dtype)) == 0,
              "%s: type %d, first byte %d, at %p", trib_dtype_name(dtype), last.type,
              last.element[0], last.on_device);
}

static void scaled(void)
{
    static const float word = 0.75f, f32 = 2.5f;
    static const double f64 = 2.5, wide_word = 0.75;
    static const uint16_t f16 = 0x4100, bf16 = 0x4020;
    static float memory[2][8];
    double rooms[2] = {0, 0};
    struct tri_transport *ranks[2];
    struct tri_call calls[6];
    struct stage stage;
    begin(&stage, "factors");
    if (open_two(ranks)) {
        const trib_stream streams[2] = {new_stream(0), new_stream(1)};
        for (int i = 0; i < 6; i++) {
            calls[i] = one_call(ranks[i % 2], TRI_ALLREDUCE, memory[0], memory[1], streams[i % 2]);
            calls[i].scaled = true;
            calls[i].factor.value = i % 2 == 0 ? -1 : 2.5;
        }
        check_given(calls, TRIB_F32, ncclFloat32, &f32, NULL);
        check_given(calls, TRIB_F64, ncclFloat64, &f64, NULL);
        check_given(calls, TRIB_F16, ncclFloat16, &f16, NULL);
        check_given(calls, TRIB_BF16, ncclBfloat16, &bf16, NULL);
        for (int i = 0; i < 6; i++)
            calls[i].factor.device = &word;
        check_given(calls, TRIB_F32, ncclFloat32, &word, &word);
        for (int i = 0; i < 2; i++)
            calls[i].room = &rooms[i];
        check_given(calls, TRIB_F64, ncclFloat64, &wide_word, &rooms[1]);
        CHECK(rooms[0] == 0.75);
        calls[2].scaled = calls[3].scaled = false;
        CHECK_OK(transports()->collective(calls, 6));
        for (int i = 0; i < 2; i++)
            end_stream(i, streams[i]);
        close_two(ranks);
    }
    end();
}

/* A call in place copies nothing, but the earlier work of its stream precedes the next call. */
static void one_rank_order(void)
{
    struct stage stage;
    struct tri_transport *transport = NULL;
    static float x[4], y[4];
    begin(&stage, "one rank, in place, then on another stream");
    const trib_stream first = new_stream(2), second = new_stream(2);
    if (CHECK_OK(transports()->open(&transport, &stage.id, 0, 1, 2, NULL, PLENTY_MS))) {
        struct tri_call call = one_call(transport, TRI_ALLREDUCE, x, x, first);
        CHECK_OK(transports()->collective(&call, 1));
        CHECK(fake_after(first) == NULL);
        call = one_call(transport, TRI_BROADCAST, x, y, second);
        CHECK_OK(transports()->collective(&call, 1));
        CHECK(fake_after(second) == first);
        call = one_call(transport, TRI_ALLREDUCE, y, y, first);
        CHECK_OK(transports()->collective(&call, 1));
        CHECK(fake_after(first) == second);
        const long waits = fake_event_waits();
        CHECK_OK(transports()->collective(&call, 1)); /* the same stream: its number says so */
        CHECK(fake_after(first) == second && fake_event_waits() == waits);
        /* An equal handle alone does not prove that it is the same stream. */
        const struct tri_nccl_driver driver = tri_nccl_driver;
        tri_nccl_driver.stream_id = NULL;
        CHECK_OK(transports()->collective(&call, 1));
        CHECK(fake_after(first) == first);
        tri_nccl_driver = driver;
        CHECK_OK(finish(transport, PLENTY_MS));
    }
    end_stream(2, first);
    end_stream(2, second);
    end();
}

/* The host backend's answers to the same mistakes. */
static void mistakes(void)
{
    int local = 0;
    float ms = 0;
    trib_event start = NULL, stop_event = NULL;
    struct stage stage;
    begin(&stage, "mistakes with memory and events");
    CHECK_STATUS(devices()->free(2, &local), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_OK(devices()->event_create(2, &start));
    CHECK_OK(devices()->event_create(2, &stop_event));
    CHECK_STATUS(devices()->event_elapsed(2, start, stop_event, &ms), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("never recorded");
    CHECK_OK(devices()->event_record(2, start, NULL));
    CHECK_OK(devices()->event_record(2, stop_event, NULL));
    fake_hold(FAKE_EVENT, true);
    CHECK_STATUS(devices()->event_elapsed(2, start, stop_event, &ms), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("has not completed");
    fake_hold(FAKE_EVENT, false);
    CHECK_OK(devices()->event_elapsed(2, start, stop_event, &ms));
    CHECK_OK(devices()->event_destroy(2, start));
    CHECK_OK(devices()->event_destroy(2, stop_event));
    end();
}

static void buffers(void)
{
    void *memory = NULL, *pinned = NULL, *too_large = NULL;
    size_t found = 0;
    int local = 0;
    struct stage stage;
    begin(&stage, "buffers and streams");
    CHECK_OK(devices()->alloc(2, &memory, 64));
    CHECK_OK(devices()->alloc_pinned(&pinned, TRI_NCCL_CELL));
    CHECK_STATUS(devices()->alloc_pinned(&too_large, TRI_NCCL_CELL + 1), TRIB_ERR_INVALID_ARGUMENT);
    CHECK(too_large == NULL);
    trib_stream stream = new_stream(3);
    CHECK(devices()->check_buffer(2, memory, 64, &found) == TRI_FAULT_NONE);
    CHECK(devices()->check_buffer(2, (char *)memory + 4, 64, &found) == TRI_FAULT_TOO_SHORT);
    CHECK(found == 60);
    CHECK(devices()->check_buffer(1, memory, 64, &found) == TRI_FAULT_OTHER_DEVICE);
    CHECK(found == 2);
    CHECK(devices()->check_buffer(2, &local, 4, &found) == TRI_FAULT_NOT_DEVICE_MEMORY);
    CHECK(devices()->check_buffer(2, pinned, TRI_NCCL_CELL, &found) == TRI_FAULT_NONE);
    CHECK(devices()->check_stream(3, stream, &found) == TRI_FAULT_NONE);
    CHECK(devices()->check_stream(3, NULL, &found) == TRI_FAULT_NONE);
    CHECK(devices()->check_stream(2, stream, &found) == TRI_FAULT_OTHER_DEVICE);
    CHECK(found == 3);
    end_stream(3, stream);
    devices()->free_pinned(pinned);
    CHECK_OK(devices()->free(2, memory));
    end();
}

/* Odd and even ranks apart, in reverse order; the last rank has no color. Then the parent is
 * aborted, and the children go on. */
static void split_rank(int rank, int size, void *argument)
{
    struct tri_transport *parent = open_rank(argument, rank, size), *child = NULL;
    trib_stream stream = new_stream(rank);
    const int color = rank == size - 1 ? TRIB_NO_COLOR : rank % 2;
    if (parent == NULL)
        return;
    CHECK_OK(transports()->split(&child, parent, color, -rank, NULL, PLENTY_MS));
    CHECK((child == NULL) == (color == TRIB_NO_COLOR));
    if (child != NULL) {
        int before = 0;
        for (int other = rank + 2; other < size - 1; other += 2)
            before++;
        CHECK(transports()->rank(child) == before);
    }
    stop(parent, "the parent only");
    (void)finish(parent, PLENTY_MS);
    if (child != NULL) {
        CHECK_OK(allreduce(child, stream));
        CHECK_OK(finish(child, PLENTY_MS));
    }
    end_stream(rank, stream);
}

static void splits(void)
{
    struct stage stage;
    begin(&stage, "split, then abort of the parent");
    check_ranks(6, split_rank, &stage);
    end();
}

/* ---------------------------------------------------------------------- a rank that never joins */

static void lonely_rank(int rank, int size, void *argument)
{
    const struct stage *stage = argument;
    struct tri_transport *transport = NULL;
    const double start = check_now_ms();
    CHECK_STATUS(
        transports()->open(&transport, &stage->id, rank, size + 1, rank, NULL, DEADLINE_MS),
        TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("waited 200 ms");
    CHECK(transport == NULL);
    CHECK(check_now_ms() - start < DEADLINE_MS + SLACK_MS);
}

static void never_opens(void)
{
    struct stage stage;
    begin(&stage, "a rank never opens");
    check_ranks(3, lonely_rank, &stage);
    end();
}

/* All but the last rank wait inside their first call when the last one aborts. */
static void first_call_rank(int rank, int size, void *argument)
{
    struct tri_transport *transport = open_rank(argument, rank, size);
    trib_stream stream = new_stream(rank);
    if (transport == NULL)
        return;
    if (rank == size - 1) {
        check_sleep_ms(50);
        stop(transport, "a rank never joined");
    } else {
        CHECK_STATUS(allreduce(transport, stream), TRIB_ERR_ABORTED);
        CHECK_DETAIL("a rank never joined");
    }
    CHECK_STATUS(allreduce(transport, stream), TRIB_ERR_ABORTED);
    transports()->poll(transport);
    CHECK(load_flag(transports()->abort_flag(transport)) == TRI_STOPPED);
    CHECK_OK(finish(transport, PLENTY_MS));
    end_stream(rank, stream);
}

static void never_calls(void)
{
    struct stage stage;
    begin(&stage, "a rank never makes the first call");
    check_ranks(4, first_call_rank, &stage);
    end();
}

/* Every rank but the first makes one more call. */
static void uneven_rank(int rank, int size, void *argument)
{
    struct tri_transport *transport = open_rank(argument, rank, size);
    trib_stream stream = new_stream(rank);
    if (transport == NULL)
        return;
    for (int i = 0; i < 1 + (rank != 0); i++) {
        const trib_status called = allreduce(transport, stream);
        CHECK(called == TRIB_OK || called == TRIB_ERR_CLOSED); /* once rank 0 has left */
    }
    const double start = check_now_ms();
    const trib_status status = finish(transport, DEADLINE_MS);
    CHECK(status == TRIB_OK || status == TRIB_ERR_CLOSED);
    CHECK(check_now_ms() - start < DEADLINE_MS + SLACK_MS);
    end_stream(rank, stream);
}

static void never_ends(void)
{
    struct stage stage;
    begin(&stage, "closing while a rank made a call less");
    check_ranks(3, uneven_rank, &stage);
    end();
}

static void split_late_rank(int rank, int size, void *argument)
{
    struct tri_transport *parent = open_rank(argument, rank, size), *child = NULL;
    if (parent == NULL)
        return;
    if (rank == 0) {
        while (tri_abort_live(state_of(parent)))
            check_sleep_ms(1);
    } else {
        CHECK_STATUS(transports()->split(&child, parent, 0, rank, NULL, DEADLINE_MS),
                     TRIB_ERR_TIMEOUT);
        CHECK(child == NULL);
    }
    CHECK_STATUS(tri_abort_status(state_of(parent)), TRIB_ERR_TIMEOUT);
    CHECK_OK(finish(parent, PLENTY_MS));
}

static void never_splits(void)
{
    struct stage stage;
    begin(&stage, "a rank never splits");
    check_ranks(3, split_late_rank, &stage);
    end();
}

static void same_device_rank(int rank, int size, void *argument)
{
    const struct stage *stage = argument;
    struct tri_transport *transport = NULL;
    CHECK(transports()->open(&transport, &stage->id, rank, size, 0, NULL, DEADLINE_MS) != TRIB_OK);
    CHECK(transport == NULL);
}

static void same_device(void)
{
    struct stage stage;
    begin(&stage, "two ranks on one device");
    check_ranks(2, same_device_rank, &stage);
    end();
}

/* ---------------------------------------------------------------------------------------- races */

static void racing_rank(int index, int size, void *argument)
{
    const struct stage *stage = argument;
    static struct trib_abort *handle; /* written by rank 0, read by the aborters below */
    static _Atomic int round;
    if (index == size - 1) { /* no rank: the aborter */
        while (atomic_load(&round) != stage->round + 1)
            check_sleep_ms(0);
        for (volatile int spin = 0; spin < stage->round * 997 % 20000; spin++)
            continue;
        (void)tri_abort_raise(handle, TRIB_ERR_ABORTED, "in a race");
        tri_abort_release(handle);
        return;
    }
    struct tri_transport *transport = open_rank(stage, index, size - 1);
    trib_stream stream = new_stream(index);
    if (index == 0) {
        handle = tri_abort_retain(state_of(transport));
        atomic_store(&round, stage->round + 1);
    }
    for (int i = 0; i < stage->round % 4; i++) {
        const trib_status status = allreduce(transport, stream);
        CHECK(status == TRIB_OK || status == TRIB_ERR_ABORTED);
        transports()->poll(transport);
    }
    const trib_status status = finish(transport, PLENTY_MS);
    CHECK(status == TRIB_OK || status == TRIB_ERR_ABORTED);
    end_stream(index, stream);
}

static void races(void)
{
    struct stage stage;
    begin(&stage, "abort races with calls, close and destroy");
    for (stage.round = 0; stage.round < 200; stage.round++) {
        check_ranks(4, racing_rank, &stage);
        CHECK_OK(transports()->id_create(&stage.id));
    }
    end();
}

/* --------------------------------------------------------------------------------- longer waits */

/* Nothing can be freed while a graph lives, and no caller waits for that. */
static void live_graph(void)
{
    struct tri_transport *ranks[2];
    struct stage stage;
    begin(&stage, "abort while a graph lives");
    if (open_two(ranks)) {
        fake_keep_graph(true);
        const double start = check_now_ms();
        stop(ranks[0], "with a graph");
        close_two(ranks);
        CHECK(check_now_ms() - start < SLACK_MS);
        check_sleep_ms(20);
        CHECK(fake_communicators() == 2);
        fake_keep_graph(false);
    }
    end();
}

struct two {
    struct tri_transport *ranks[2][2]; /* communicator, rank */
    trib_stream stream;
};

/* Thread 0 is inside a call on device 0, thread 1 waits for the device; thread 2 aborts thread 1's
 * communicator. */
static void two_member(int index, int size, void *argument)
{
    struct two *two = argument;
    (void)size;
    if (index == 2) {
        check_sleep_ms(100);
        stop(two->ranks[1][0], "the one who waits");
        return;
    }
    check_sleep_ms(index * 50);
    CHECK_STATUS(allreduce(two->ranks[index][0], two->stream), TRIB_ERR_ABORTED);
    if (index == 1) {
        CHECK(tri_abort_live(state_of(two->ranks[0][0])));
        stop(two->ranks[0][0], "the one inside");
    }
}

static void two_on_a_device(void)
{
    struct two two;
    struct stage stage;
    begin(&stage, "abort of a rank that waits for a device");
    two.stream = new_stream(0);
    if (open_two(two.ranks[0]) && open_two(two.ranks[1])) {
        check_ranks(3, two_member, &two);
        close_two(two.ranks[0]);
        close_two(two.ranks[1]);
    }
    end_stream(0, two.stream);
    end();
}

enum { MANY = 40, AT_ONCE = 4 };

/* A communicator of two ranks, of which the first waits for the second on a stream. */
struct pair {
    struct tri_transport *ranks[2];
    trib_stream streams[2];
};

static void connect(int index, int size, void *argument)
{
    struct pair *pair = argument;
    (void)size;
    CHECK_OK(allreduce(pair->ranks[index], pair->streams[index]));
}

static bool open_stuck(struct pair *pair)
{
    for (int i = 0; i < 2; i++)
        pair->streams[i] = new_stream(i);
    if (!open_two(pair->ranks))
        return false;
    check_ranks(2, connect, pair);
    CHECK_OK(allreduce(pair->ranks[0], pair->streams[0]));
    return true;
}

/* Completes although nothing else does. */
static bool becomes_free(const struct pair *pair)
{
    bool done = false;
    for (int i = 0; i < SLACK_MS && !done; i++) {
        CHECK_OK(devices()->stream_query(0, pair->streams[0], &done));
        if (!done)
            check_sleep_ms(1);
    }
    return CHECK_MSG(done, "a stream hangs after the abort");
}

static void part(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        CHECK_OK(finish(pair->ranks[i], PLENTY_MS));
        end_stream(i, pair->streams[i]);
    }
}

/* ------------------------------------------------------------------------ a device that is busy */

/* A cudaFree that waits frees memory in the background, and no caller waits for it. */
static void free_later(void)
{
    struct stage stage;
    void *memory = NULL;
    begin(&stage, "memory freed while the device is busy");
    CHECK_OK(devices()->alloc(1, &memory, 64));
    const int before = fake_blocks();
    fake_hold(FAKE_FREE, true);
    devices()->free_later(1, memory); /* a wait would be endless */
    CHECK(fake_current() == -1);
    CHECK(fake_blocks() == before);
    fake_hold(FAKE_FREE, false);
    for (int i = 0; i < SLACK_MS && fake_blocks() == before; i++)
        check_sleep_ms(1);
    CHECK(fake_blocks() == before - 1);
    end();
}

/* A communicator without a transport, which owns a workspace. */
static struct trib_comm bare(int32_t device)
{
    return (struct trib_comm){.backend = &tri_backend_nccl,
                              .device = device,
                              .owner = tri_owner_create(&tri_backend_nccl, device)};
}

/* The same for the destroy of a communicator. */
static void workspace(void)
{
    struct stage stage;
    struct trib_comm comm = bare(1);
    begin(&stage, "a workspace closed while the device is busy");
    CHECK_OK(tri_workspace_reserve(&comm.workspace, comm.owner, 1000));
    const int before = fake_blocks();
    fake_hold(FAKE_FREE, true);
    tri_workspace_close(&comm.workspace);
    CHECK(fake_blocks() == before);
    fake_hold(FAKE_FREE, false);
    for (int i = 0; i < SLACK_MS && fake_blocks() == before; i++)
        check_sleep_ms(1);
    CHECK(fake_blocks() == before - 1);
    tri_owner_release(comm.owner);
    end();
}

/* An event that cannot be recorded ends the communicator, and loses no workspace: its stream, on
 * which one rank waits for the other, completes. */
static void unmarked_workspace(void)
{
    struct pair pair;
    struct stage stage;
    struct trib_comm comm = bare(0);
    begin(&stage, "a workspace whose last use could not be recorded");
    if (open_stuck(&pair)) {
        CHECK_OK(tri_workspace_reserve(&comm.workspace, comm.owner, 1000));
        const int before = fake_blocks();
        fake_fail_record(true);
        CHECK_STATUS(tri_workspace_mark(&comm.workspace, state_of(pair.ranks[0]), pair.streams[0]),
                     TRIB_ERR_CUDA);
        CHECK_DETAIL("recording an event");
        fake_fail_record(false);
        CHECK_STATUS(tri_abort_status(state_of(pair.ranks[0])), TRIB_ERR_CUDA);
        tri_workspace_close(&comm.workspace);
        CHECK(tri_workspace_sweep() == 0);
        part(&pair);
        CHECK(quiesce(PLENTY_MS) == 0);
        CHECK(fake_blocks() == before - 1);
    }
    tri_owner_release(comm.owner);
    end();
}

/* One thread waits inside a CUDA call, one aborts, and one ensures that the test ends. */
struct busy {
    enum fake_call call;
    struct tri_transport *rank; /* the one that polls, and the one to abort */
    _Atomic bool aborted;
};

static void wait_inside(const struct busy *busy)
{
    struct tri_transport *other = NULL;
    trib_id id;
    if (busy->call == FAKE_QUERY) {
        transports()->poll(busy->rank);
        return;
    }
    CHECK_OK(transports()->id_create(&id));
    if (CHECK_OK(transports()->open(&other, &id, 0, 1, 5, NULL, PLENTY_MS)))
        CHECK_OK(finish(other, PLENTY_MS));
}

static void busy_member(int index, int size, void *argument)
{
    struct busy *busy = argument;
    (void)size;
    if (index == 0) {
        wait_inside(busy);
    } else if (index == 1) {
        for (int i = 0; i < SLACK_MS && fake_waiting(busy->call) == 0; i++)
            check_sleep_ms(1);
        CHECK(fake_waiting(busy->call) == 1);
        stop(busy->rank, "a device is busy");
        CHECK(fake_waiting(busy->call) == 1);
        atomic_store(&busy->aborted, true);
    } else {
        for (int i = 0; i < 3 * SLACK_MS && !atomic_load(&busy->aborted); i++)
            check_sleep_ms(1);
        fake_hold(busy->call, false);
    }
}

/* Takes cells of pinned memory until a new page has arrived, and then the rest of that page. */
static int take_all_cells(void *cells[])
{
    enum { A_PAGE = 64 };
    const int before = fake_blocks();
    int n = 0;
    while (fake_blocks() == before && n < A_PAGE * 8)
        CHECK_OK(devices()->alloc_pinned(&cells[n++], 8));
    for (int i = 1; i < A_PAGE; i++)
        CHECK_OK(devices()->alloc_pinned(&cells[n++], 8));
    return n;
}

static void abort_while(enum fake_call call, const char *name)
{
    struct tri_transport *ranks[2];
    struct busy busy = {.call = call};
    static void *cells[1024];
    struct stage stage;
    begin(&stage, name);
    if (open_two(ranks)) {
        const int n = take_all_cells(cells);
        busy.rank = ranks[0];
        fake_hold(call, true);
        check_ranks(3, busy_member, &busy);
        for (int i = 0; i < n; i++)
            devices()->free_pinned(cells[i]);
        close_two(ranks);
    }
    end();
}

/* NCCL waits inside for a stream that other work holds: neither an abort nor the close may. */
struct held_close {
    struct tri_transport *rank;
    _Atomic bool returned;
};

static void held_close_member(int index, int size, void *argument)
{
    struct held_close *held = argument;
    (void)size;
    if (index == 0) {
        CHECK_STATUS(finish(held->rank, PLENTY_MS), TRIB_ERR_ABORTED);
        atomic_store(&held->returned, true);
        return;
    }
    for (int i = 0; i < SLACK_MS && fake_waiting(FAKE_FINALIZE) == 0; i++)
        check_sleep_ms(1);
    CHECK(fake_waiting(FAKE_FINALIZE) > 0);
    CHECK(!atomic_load(&held->returned));
    stop(held->rank, "while one closes");
    for (int i = 0; i < SLACK_MS && !atomic_load(&held->returned); i++)
        check_sleep_ms(1);
    CHECK(atomic_load(&held->returned));
    CHECK(fake_waiting(FAKE_FINALIZE) > 0 && fake_communicators() == 2);
    fake_hold(FAKE_FINALIZE, false);
}

static void abort_of_a_close(void)
{
    struct tri_transport *ranks[2];
    struct held_close held = {.returned = false};
    struct stage stage;
    begin(&stage, "abort of a close while a stream is held");
    if (open_two(ranks)) {
        CHECK_OK(finish(ranks[0], PLENTY_MS));
        held.rank = ranks[1];
        fake_hold(FAKE_FINALIZE, true);
        check_ranks(2, held_close_member, &held);
    }
    end();
}

struct pinned {
    _Atomic bool over;
};

static void pinned_member(int index, int size, void *argument)
{
    struct pinned *pinned = argument;
    struct tri_transport *transport = NULL;
    trib_id id;
    (void)size;
    if (index == 1) { /* so that the test ends */
        for (int i = 0; i < 3 * SLACK_MS && !atomic_load(&pinned->over); i++)
            check_sleep_ms(1);
        fake_hold(FAKE_HOST_ALLOC, false);
        return;
    }
    CHECK_OK(transports()->id_create(&id));
    const double start = check_now_ms();
    CHECK_STATUS(transports()->open(&transport, &id, 0, 1, 5, NULL, DEADLINE_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("pinned memory");
    CHECK(check_now_ms() - start < DEADLINE_MS + SLACK_MS);
    CHECK(quiesce(50) > 0); /* the call that was given up still runs */
    atomic_store(&pinned->over, true);
}

/* The deadline holds although CUDA allocates no pinned memory while a device is busy. */
static void no_pinned_memory(void)
{
    struct pinned pinned = {.over = false};
    static void *cells[1024];
    struct stage stage;
    begin(&stage, "opening while the device is busy");
    CHECK(quiesce(PLENTY_MS) == 0);
    const int n = take_all_cells(cells);
    fake_hold(FAKE_HOST_ALLOC, true);
    check_ranks(2, pinned_member, &pinned);
    CHECK(quiesce(PLENTY_MS) == 0);
    for (int i = 0; i < n; i++)
        devices()->free_pinned(cells[i]);
    end();
}

/* The last device has never been used before, and is unusable. */
static void broken_device(void)
{
    const int32_t order[2] = {4, FAKE_DEVICES - 1};
    struct tri_transport *ranks[2];
    struct stage stage;
    begin(&stage, "a group with a device that fails");
    fake_break(FAKE_DEVICES - 1);
    CHECK_STATUS(transports()->open_group(ranks, order, 2, NULL, DEADLINE_MS), TRIB_ERR_CUDA);
    CHECK_DETAIL("device 7");
    CHECK(ranks[0] == NULL && ranks[1] == NULL);
    fake_break(-1);
    end();
}

/* ------------------------------------------------------------------------------- the abort flag */

/* Creating and destroying communicators needs no more pinned memory than one of them. */
static void words(void)
{
    struct tri_transport *ranks[2];
    struct stage stage;
    int before = 0;
    begin(&stage, "abort flags are used again");
    for (int round = 0; round < 200; round++) {
        if (!open_two(ranks))
            break;
        if (round % 2 == 0)
            stop(ranks[0], "again");
        close_two(ranks);
        CHECK(quiesce(PLENTY_MS) == 0);
        if (round == 0)
            before = fake_blocks();
    }
    CHECK_MSG(fake_blocks() == before, "%d blocks, %d before", fake_blocks(), before);
    end();
}

/* But a flag is not used again while queued work may read it: a workspace that is in use. */
static void word_in_use(void)
{
    struct tri_transport *ranks[2];
    struct trib_comm comm = bare(0);
    const uint32_t *word = NULL;
    struct stage stage;
    begin(&stage, "the abort flag of what is still queued");
    for (int round = 0; round < 20; round++) {
        if (!open_two(ranks))
            break;
        CHECK(transports()->abort_flag(ranks[0]) != word);
        if (round == 0) {
            word = transports()->abort_flag(ranks[0]);
            CHECK_OK(tri_workspace_reserve(&comm.workspace, comm.owner, 1000));
            CHECK_OK(tri_workspace_mark(&comm.workspace, state_of(ranks[0]), NULL));
            fake_hold(FAKE_EVENT, true);
            tri_workspace_close(&comm.workspace); /* set aside */
            stop(ranks[0], "with a list queued");
        }
        close_two(ranks);
        CHECK(quiesce(PLENTY_MS) == 0);
        CHECK(load_flag(word) == TRI_STOPPED);
    }
    fake_hold(FAKE_EVENT, false);
    CHECK(tri_workspace_sweep() == 0);
    if (open_two(ranks)) {
        CHECK(transports()->abort_flag(ranks[0]) == word); /* now it is free */
        CHECK(load_flag(transports()->abort_flag(ranks[0])) == 0);
        close_two(ranks);
    }
    tri_owner_release(comm.owner);
    end();
}

/* --------------------------------------------------------------------------- a rank that leaves */

enum { CALLS = 17 };

struct leaving {
    struct stage stage;
    int extra;          /* calls of the others beyond those that all make: */
    bool late;          /* after rank 2 has left; else before */
    _Atomic int ready;  /* ranks that have made those calls, */
    _Atomic int queued; /* and the calls of the others */
    _Atomic int gone;   /* 1: rank 2 has */
};

static void until(const _Atomic int *count, int n)
{
    for (int i = 0; i < PLENTY_MS && atomic_load(count) < n; i++)
        check_sleep_ms(1);
    CHECK(atomic_load(count) >= n);
}

static void extra_calls(struct leaving *leaving, struct tri_transport *transport,
                        trib_stream stream)
{
    for (int i = 0; i < leaving->extra; i++) {
        const trib_status status = allreduce(transport, stream);
        if (leaving->late) {
            CHECK(status == TRIB_ERR_CLOSED);
            CHECK_DETAIL("rank 2 left after call 17");
        }
    }
}

static void leaving_rank(int rank, int size, void *argument)
{
    struct leaving *leaving = argument;
    struct tri_transport *transport = open_rank(&leaving->stage, rank, size);
    trib_stream stream = new_stream(rank);
    if (transport == NULL)
        return;
    for (int i = 0; i < CALLS; i++)
        CHECK_OK(allreduce(transport, stream));
    atomic_fetch_add(&leaving->ready, 1);
    until(&leaving->ready, size);
    if (rank == 2) {
        if (!leaving->late)
            until(&leaving->queued, size - 1);
        CHECK_STATUS(finish(transport, PLENTY_MS),
                     leaving->late || leaving->extra == 0 ? TRIB_OK : TRIB_ERR_CLOSED);
        atomic_store(&leaving->gone, 1);
    } else {
        if (leaving->late)
            until(&leaving->gone, 1);
        extra_calls(leaving, transport, stream);
        atomic_fetch_add(&leaving->queued, 1);
        until(&leaving->gone, 1);
        CHECK_OK(devices()->stream_wait(rank, stream)); /* it hangs unless it is aborted */
        const trib_status expected = leaving->extra == 0 ? TRIB_OK : TRIB_ERR_CLOSED;
        CHECK_STATUS(tri_abort_status(state_of(transport)), expected);
        if (expected != TRIB_OK)
            CHECK_DETAIL("rank 2 left after call 17");
        CHECK_STATUS(finish(transport, PLENTY_MS), expected);
    }
    end_stream(rank, stream);
}

static void leaves(int extra, bool late, const char *name)
{
    struct leaving leaving = {.extra = extra, .late = late};
    begin(&leaving.stage, name);
    check_ranks(4, leaving_rank, &leaving);
    end();
}

/* A call races with a leave: the stream never hangs. Rank 0 makes one call too many. */
static void leaving_race_rank(int rank, int size, void *argument)
{
    struct tri_transport *transport = open_rank(argument, rank, size);
    trib_stream stream = new_stream(rank);
    if (transport == NULL)
        return;
    for (int i = 0; i < 1 + (rank == 0); i++) {
        const trib_status called = allreduce(transport, stream);
        CHECK(called == TRIB_OK || called == TRIB_ERR_CLOSED);
    }
    const trib_status status = finish(transport, PLENTY_MS);
    CHECK(status == TRIB_OK || status == TRIB_ERR_CLOSED);
    end_stream(rank, stream);
}

static void leaving_races(void)
{
    struct stage stage;
    begin(&stage, "a call races with a rank that leaves");
    for (stage.round = 0; stage.round < 100; stage.round++) {
        const double start = check_now_ms();
        check_ranks(2, leaving_race_rank, &stage);
        if (!CHECK(check_now_ms() - start < PLENTY_MS / 2))
            break;
        CHECK_OK(transports()->id_create(&stage.id));
    }
    end();
}

/* Messages are counted for each pair: rank 0 sends two to rank 1, which takes one. */
static void mail_leaves(void)
{
    const int32_t order[3] = {0, 1, 2};
    struct tri_transport *ranks[3];
    struct stage stage;
    begin(&stage, "messages to a rank that leaves");
    if (CHECK_OK(transports()->open_group(ranks, order, 3, NULL, PLENTY_MS))) {
        struct tri_call send = {
            .kind = TRI_SEND, .transport = ranks[0], .count = 1, .dtype = TRIB_F32, .peer = 1};
        struct tri_call receive = send, other = send;
        receive.kind = TRI_RECV;
        receive.transport = ranks[1];
        receive.peer = 0;
        other.peer = 2; /* not by this pair */
        CHECK_OK(transports()->collective(&send, 1));
        CHECK_OK(transports()->collective(&receive, 1));
        CHECK_OK(finish(ranks[1], PLENTY_MS));
        CHECK_OK(transports()->collective(&other, 1));
        CHECK_STATUS(transports()->collective(&send, 1), TRIB_ERR_CLOSED);
        CHECK_DETAIL("rank 1 left after call 0, with 1 messages received from rank 0");
        CHECK_STATUS(finish(ranks[0], PLENTY_MS), TRIB_ERR_CLOSED);
        CHECK_STATUS(finish(ranks[2], PLENTY_MS), TRIB_ERR_CLOSED);
    }
    end();
}

/* And rank 0 receives two from rank 1, which sends one. */
static void messages_of_a_leaving_rank(void)
{
    struct tri_transport *ranks[2];
    struct stage stage;
    begin(&stage, "messages from a rank that leaves");
    if (open_two(ranks)) {
        const struct tri_call send = {
            .kind = TRI_SEND, .transport = ranks[1], .count = 1, .dtype = TRIB_F32, .peer = 0};
        struct tri_call receive = send;
        receive.kind = TRI_RECV;
        receive.transport = ranks[0];
        receive.peer = 1;
        CHECK_OK(transports()->collective(&send, 1));
        CHECK_OK(transports()->collective(&receive, 1));
        CHECK_OK(finish(ranks[1], PLENTY_MS));
        CHECK_STATUS(transports()->collective(&receive, 1), TRIB_ERR_CLOSED);
        CHECK_DETAIL("rank 1 left after call 0, with 1 messages sent to rank 0");
        CHECK_STATUS(finish(ranks[0], PLENTY_MS), TRIB_ERR_CLOSED);
    }
    end();
}

/* A call that NCCL refuses does not count, for a rank that leaves either. */
static void refused_calls(void)
{
    struct tri_transport *ranks[2];
    struct stage stage;
    begin(&stage, "a call is refused, then a rank leaves");
    if (open_two(ranks)) {
        const struct tri_call call = {.kind = TRI_BARRIER, .transport = ranks[0]};
        CHECK_STATUS(transports()->collective(&call, 1), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_OK(finish(ranks[1], PLENTY_MS));
        CHECK_OK(finish(ranks[0], PLENTY_MS));
    }
    end();
}

/* A split is a call of all ranks. */
static void splits_alone(void)
{
    struct tri_transport *ranks[2], *child = NULL;
    struct stage stage;
    begin(&stage, "a rank has left, the other splits");
    if (open_two(ranks)) {
        CHECK_OK(finish(ranks[1], PLENTY_MS));
        CHECK_STATUS(transports()->split(&child, ranks[0], 0, 0, NULL, DEADLINE_MS),
                     TRIB_ERR_CLOSED);
        CHECK_DETAIL("rank 1 left after call 0, and rank 0 has made call 1");
        CHECK(child == NULL);
        CHECK_STATUS(finish(ranks[0], PLENTY_MS), TRIB_ERR_CLOSED);
    }
    end();
}

/* ---------------------------------------------------------------- while another thread captures */

/* Nothing here invalidates the capture that another thread is making. */
static void captures(void)
{
    struct stage stage;
    struct tri_transport *transport = NULL;
    struct trib_comm comm = bare(1);
    static void *cells[1024];
    trib_event event = NULL;
    void *memory = NULL;
    bool done = false;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal, before = mode;
    begin(&stage, "while another thread captures");
    CHECK(cudaThreadExchangeStreamCaptureMode(&before) == cudaSuccess);
    trib_stream stream = new_stream(1);
    CHECK_OK(devices()->event_create(1, &event));
    fake_capture(true);
    CHECK_OK(devices()->stream_query(1, stream, &done));
    CHECK_OK(devices()->event_query(1, event, &done));
    CHECK_OK(devices()->alloc(1, &memory, 64));
    CHECK_OK(devices()->free(1, memory));
    const int n = take_all_cells(cells);
    for (int i = 0; i < n; i++)
        devices()->free_pinned(cells[i]);
    if (CHECK_OK(transports()->open(&transport, &stage.id, 0, 1, 1, NULL, PLENTY_MS))) {
        transports()->poll(transport);
        CHECK_OK(tri_workspace_reserve(&comm.workspace, comm.owner, 1000));
        CHECK_OK(tri_workspace_mark(&comm.workspace, state_of(transport), stream));
        CHECK(!tri_workspace_in_use(&comm.workspace));
        tri_workspace_close(&comm.workspace);
        CHECK_OK(finish(transport, PLENTY_MS));
    }
    CHECK(quiesce(PLENTY_MS) == 0);
    CHECK_MSG(fake_spoiled() == 0, "%d calls spoil the capture", fake_spoiled());
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
    CHECK(mode == cudaStreamCaptureModeThreadLocal); /* as it was before all that */
    CHECK(cudaThreadExchangeStreamCaptureMode(&before) == cudaSuccess);
    fake_capture(false);
    CHECK_OK(devices()->event_destroy(1, event));
    end_stream(1, stream);
    tri_owner_release(comm.owner);
    end();
}

/* What a wait reports for an error of CUDA. */
static const struct {
    cudaError_t error;
    trib_status status;
} failed_waits[] = {{cudaErrorNotPermitted, TRIB_ERR_INVALID_USAGE},
                    {cudaErrorStreamCaptureUnsupported, TRIB_ERR_INVALID_USAGE},
                    {cudaErrorStreamCaptureImplicit, TRIB_ERR_INVALID_USAGE},
                    {cudaErrorCapturedEvent, TRIB_ERR_INVALID_USAGE},
                    {cudaErrorInvalidResourceHandle, TRIB_ERR_INVALID_USAGE},
                    {cudaErrorMemoryAllocation, TRIB_ERR_INVALID_USAGE},
                    {cudaErrorInvalidDevice, TRIB_ERR_INVALID_USAGE},
                    {cudaErrorInitializationError, TRIB_ERR_INVALID_USAGE},
                    {cudaErrorUnknown, TRIB_ERR_INVALID_USAGE},
                    {(cudaError_t)12345, TRIB_ERR_INVALID_USAGE},
                    {cudaErrorMpsClientTerminated, TRIB_ERR_CUDA},
                    {cudaErrorNvlinkUncorrectable, TRIB_ERR_CUDA},
                    {cudaErrorAssert, TRIB_ERR_CUDA},
                    {cudaErrorLaunchFailure, TRIB_ERR_CUDA},
                    {cudaErrorIllegalAddress, TRIB_ERR_CUDA},
                    {cudaErrorECCUncorrectable, TRIB_ERR_CUDA}};

/* A wait that CUDA refuses says nothing about the device; only a failure of the device does. */
static void refused_waits(void)
{
    struct stage stage;
    trib_event event = NULL;
    bool done = false;
    begin(&stage, "waits that are refused, and those for a device that has failed");
    trib_stream stream = new_stream(1);
    CHECK_OK(devices()->event_create(1, &event));
    for (size_t i = 0; i < sizeof failed_waits / sizeof *failed_waits; i++) {
        fake_fail_wait((int)failed_waits[i].error);
        CHECK_STATUS(devices()->stream_wait(1, stream), failed_waits[i].status);
        CHECK_STATUS(devices()->stream_query(1, stream, &done), failed_waits[i].status);
        CHECK_STATUS(devices()->event_wait(1, event), failed_waits[i].status);
        CHECK_STATUS(devices()->event_query(1, event, &done), failed_waits[i].status);
        CHECK_DETAIL("querying an event on device 1");
    }
    fake_fail_wait((int)cudaSuccess);
    fake_make_current(0);
    fake_fail_current(true);
    CHECK_STATUS(devices()->stream_wait(1, stream), TRIB_ERR_INVALID_USAGE);
    CHECK_STATUS(devices()->stream_query(1, stream, &done), TRIB_ERR_INVALID_USAGE);
    CHECK_STATUS(devices()->event_wait(1, event), TRIB_ERR_INVALID_USAGE);
    CHECK_STATUS(devices()->event_query(1, event, &done), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("waiting on device 1");
    fake_fail_current(false);
    CHECK_OK(devices()->event_destroy(1, event));
    end_stream(1, stream);
    end();
}

/* -------------------------------------------------------------------------------------- the log */

struct chat {
    _Atomic bool begun, let_go;
};

/* A callback that waits for the thread below. */
static void on_line(void *context, int32_t level, const char *line)
{
    struct chat *chat = context;
    (void)level, (void)line;
    atomic_store(&chat->begun, true);
    for (int i = 0; i < 2 * SLACK_MS && !atomic_load(&chat->let_go); i++)
        check_sleep_ms(1);
}

/* The background thread holds no lock while it logs: others go on. */
static void logs(void)
{
    struct tri_transport *ranks[2];
    struct chat chat = {.begun = false};
    struct stage stage;
    begin(&stage, "the log's callback waits for a rank");
    if (open_two(ranks)) {
        tri_log_set(on_line, &chat, TRIB_LOG_ERROR);
        fake_fail_abort(true);
        stop(ranks[0], "and NCCL complains");
        for (int i = 0; i < SLACK_MS && !atomic_load(&chat.begun); i++)
            check_sleep_ms(1);
        CHECK(atomic_load(&chat.begun));
        const double start = check_now_ms();
        CHECK_OK(finish(ranks[0], PLENTY_MS));
        CHECK(check_now_ms() - start < SLACK_MS);
        atomic_store(&chat.let_go, true);
        CHECK_OK(finish(ranks[1], PLENTY_MS));
        CHECK(quiesce(PLENTY_MS) == 0);
        fake_fail_abort(false);
        tri_log_set(NULL, NULL, 0);
    }
    end();
}

/* ----------------------------------------------------------------------------------- a watchdog */

/* Any thread sees NCCL's errors, of any rank; also when the communicator is gone. */
static void watchdog(void)
{
    struct tri_transport *ranks[2];
    struct stage stage;
    begin(&stage, "a watchdog asks");
    if (open_two(ranks)) {
        struct trib_abort *handle = tri_abort_retain(state_of(ranks[0]));
        CHECK_OK(tri_abort_ask(handle));
        fake_async_error(1, ncclRemoteError);
        CHECK(tri_abort_live(handle)); /* no thread has polled */
        CHECK_STATUS(tri_abort_ask(handle), TRIB_ERR_NCCL);
        CHECK_DETAIL("rank 1");
        fake_async_error(1, ncclSuccess);
        CHECK(!tri_abort_live(state_of(ranks[1])));
        close_two(ranks);
        CHECK_STATUS(tri_abort_ask(handle), TRIB_ERR_NCCL);
        tri_abort_release(handle);
    }
    end();
}

/* A thread polls all the time while communicators are created and destroyed. */
struct watched {
    struct trib_abort *_Atomic handle;
    _Atomic bool over;
};

static void watched_member(int index, int size, void *argument)
{
    struct watched *watched = argument;
    struct tri_transport *ranks[2];
    (void)size;
    for (int round = 0; index == 0 && round < 50; round++) {
        if (!open_two(ranks))
            break;
        struct trib_abort *old =
            atomic_exchange(&watched->handle, tri_abort_retain(state_of(ranks[0])));
        if (round % 2 == 0)
            stop(ranks[0], "watched");
        close_two(ranks);
        tri_abort_release(old);
    }
    if (index == 0)
        atomic_store(&watched->over, true);
    while (index != 0 && !atomic_load(&watched->over)) {
        struct trib_abort *handle = atomic_exchange(&watched->handle, NULL);
        if (handle == NULL)
            continue;
        for (int i = 0; i < 100; i++)
            (void)tri_abort_ask(handle);
        tri_abort_release(handle);
    }
}

static void watched_lives(void)
{
    struct watched watched = {.handle = NULL};
    struct stage stage;
    begin(&stage, "a watchdog polls while communicators are made and closed");
    check_ranks(2, watched_member, &watched);
    tri_abort_release(atomic_load(&watched.handle));
    end();
}

/* ----------------------------------------------------------------------- the background threads */

/* If no thread can be started at the beginning, no communicator is created. */
static void no_background_thread(void)
{
    struct tri_transport *transport = NULL;
    struct stage stage;
    begin(&stage, "no background thread");
    CHECK(quiesce(PLENTY_MS) == 0);
    fake_allow_threads(false);
    CHECK_STATUS(transports()->open(&transport, &stage.id, 0, 1, 0, NULL, DEADLINE_MS),
                 TRIB_ERR_SYSTEM);
    CHECK_DETAIL(
        "no thread for aborting and freeing communicators: Resource temporarily unavailable "
        "(errno 11); without one");
    CHECK(transport == NULL);
    fake_allow_threads(true);
    if (CHECK_OK(transports()->open(&transport, &stage.id, 0, 1, 0, NULL, PLENTY_MS)))
        CHECK_OK(finish(transport, PLENTY_MS));
    end();
}

/* Flags go up, one communicator after the other, even if no thread can be started and all existing
 * threads hang, waiting for a graph. Later everything is freed. */
static void abort_without_threads(void)
{
    struct pair pairs[6];
    const int n = sizeof pairs / sizeof pairs[0];
    struct stage stage;
    begin(&stage, "abort where no thread can be started");
    CHECK(quiesce(PLENTY_MS) == 0);
    for (int i = 0; i < n; i++)
        if (!open_stuck(&pairs[i]))
            return;
    fake_hold(FAKE_RECLAIM, true);
    fake_allow_threads(false);
    for (int i = 0; i < n; i++) {
        stop(pairs[i].ranks[0], "without threads");
        if (!becomes_free(&pairs[i])) { /* ensures that the test ends: */
            fake_allow_threads(true);
            check_end();
            return;
        }
    }
    CHECK(fake_communicators() == 2 * n);
    fake_hold(FAKE_RECLAIM, false);
    for (int i = 0; i < n; i++)
        part(&pairs[i]);
    fake_allow_threads(true);
    end();
}

/* Quiesce ends no thread that is still needed. */
static void abort_after_quiesce(void)
{
    struct pair pair;
    struct stage stage;
    begin(&stage, "abort after all background jobs have ended");
    if (open_stuck(&pair)) {
        CHECK(quiesce(PLENTY_MS) == 0);
        stop(pair.ranks[0], "after trib_quiesce");
        if (!becomes_free(&pair)) {
            check_end();
            return;
        }
        part(&pair);
    }
    CHECK(quiesce(PLENTY_MS) == 0);
    CHECK(tri_nccl_threads(TRI_NCCL_BACKGROUND) == 0);
    end();
}

/* How many threads there are once those that have returned have gone, too. */
static long settled_threads(void)
{
    long before = -1, now = process_threads();
    for (int i = 0; i < SLACK_MS / 50 && now != before; i++) {
        before = now;
        check_sleep_ms(50);
        now = process_threads();
    }
    return now;
}

/* Many are aborted, and as many closed, while nothing can be freed: there are few threads. */
static void many(bool aborted)
{
    static struct pair pairs[MANY];
    struct stage stage;
    begin(&stage, aborted ? "many are aborted at once" : "many are closed at once");
    CHECK(quiesce(PLENTY_MS) == 0);
    const long before = settled_threads();
    CHECK(before > 0);
    fake_hold(FAKE_RECLAIM, true);
    for (int i = 0; i < MANY; i++) {
        if (!open_stuck(&pairs[i]))
            return;
        if (aborted)
            stop(pairs[i].ranks[1], "one of many");
        else
            CHECK_OK(allreduce(pairs[i].ranks[1], pairs[i].streams[1]));
        part(&pairs[i]);
    }
    const long more = process_threads() - before;
    CHECK_MSG(more <= 8, "%d communicators that cannot be freed keep %ld threads", MANY, more);
    if (aborted) { /* the workers hang; after a while there is one more */
        for (int i = 0; i < PLENTY_MS && fake_waiting(FAKE_RECLAIM) <= AT_ONCE; i++)
            check_sleep_ms(1);
        CHECK(fake_waiting(FAKE_RECLAIM) > AT_ONCE);
    }
    CHECK(quiesce(0) >= MANY);
    CHECK(fake_communicators() == 2 * MANY);
    fake_hold(FAKE_RECLAIM, false);
    CHECK(quiesce(PLENTY_MS) == 0);
    CHECK(fake_communicators() == 0);
    const long after = settled_threads();
    CHECK_MSG(after == before, "%ld threads, %ld before", after, before);
    end();
}

enum { BUSY_MS = 300 };

static void *let_go_late(void *unused)
{
    check_sleep_ms(BUSY_MS);
    fake_hold(FAKE_RECLAIM, false);
    return unused;
}

/* A communicator is opened while another is being freed: the open waits for it. */
static void opens_afterwards(void)
{
    struct tri_transport *old[2], *new[2];
    struct stage stage;
    pthread_t thread;
    begin(&stage, "a communicator is opened while another is freed");
    if (open_two(old)) {
        fake_hold(FAKE_RECLAIM, true);
        stop(old[0], "and another one opens");
        close_two(old);
        CHECK(pthread_create(&thread, NULL, let_go_late, NULL) == 0);
        if (open_two(new)) {
            CHECK(fake_communicators() == 2);
            close_two(new);
        }
        CHECK(pthread_join(thread, NULL) == 0);
    }
    end();
}

/* An open waits once for what cannot be freed, and never longer than half of the remaining time. */
static void opens_all_the_same(void)
{
    const int32_t order[2] = {0, 1};
    struct tri_transport *old[2], *new[3][2] = {{NULL}};
    struct stage stage;
    double start = 0;
    begin(&stage, "a communicator is opened while another cannot be freed");
    if (open_two(old)) {
        fake_hold(FAKE_RECLAIM, true);
        stop(old[0], "and stays");
        close_two(old);
        start = check_now_ms();
        CHECK_OK(transports()->open_group(new[0], order, 2, NULL, 2 * DEADLINE_MS));
        CHECK(check_now_ms() - start < 2 * DEADLINE_MS);
        for (int i = 1; i < 3; i++) {
            start = check_now_ms();
            CHECK(open_two(new[i]));
            CHECK(check_now_ms() - start < (i == 1 ? 2000 : 0) + SLACK_MS);
        }
        for (int i = 0; i < 3; i++)
            if (new[i][0] != NULL) /* it was opened in time */
                close_two(new[i]);
        CHECK(fake_communicators() == 8);
        fake_hold(FAKE_RECLAIM, false);
    }
    end();
}

/* -------------------------------------------------------------------------- a process that ends */

static void one_life(int device, bool aborts)
{
    const int32_t order[2] = {device, device + 1};
    struct tri_transport *ranks[2];
    if (!CHECK_OK(transports()->open_group(ranks, order, 2, NULL, PLENTY_MS)))
        return;
    if (aborts)
        stop(ranks[0], "the process ends");
    close_two(ranks);
}

/* A child of fork neither waits for its parent's communicators nor joins threads. */
static bool in_child;

static void end_child(void)
{
    if (in_child)
        _exit(0);
}

static void leaving_child(void)
{
    int status = -1;
    const double start = check_now_ms();
    const pid_t child = fork();
    if (child == 0) {
        in_child = true;
        (void)alarm(PLENTY_MS / 1000);
        exit(1); /* end_child comes last, and makes it 0 */
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_MSG(status == 0, "the child ended with status %x", (unsigned)status);
    CHECK(check_now_ms() - start < PLENTY_MS / 8.0);
}

/* This program again: it exits while two communicators are being freed, on devices that were first
 * used after others had been freed. */
static int leaving_process(void)
{
    pthread_t thread;
    check_begin("a process that ends");
    CHECK(atexit(end_child) == 0);
    tri_process_use();
    one_life(0, false);
    CHECK(quiesce(PLENTY_MS) == 0);
    fake_hold(FAKE_RECLAIM, true);
    one_life(2, false);
    one_life(4, true);
    leaving_child();
    CHECK(pthread_create(&thread, NULL, let_go_late, NULL) == 0);
    CHECK(pthread_detach(thread) == 0);
    check_end();
    return check_finish("nccl_life_test: a process that ends");
}

/* This program again: what it aborted is never freed, and its exit does not wait for ever. */
static int stuck_process(void)
{
    check_begin("a process that ends, stuck");
    (void)alarm(PLENTY_MS / 1000);
    fake_hold(FAKE_RECLAIM, true);
    one_life(0, true);
    check_end();
    return check_finish("nccl_life_test: a process that ends, stuck");
}

static void leaving_waits(const char *how, const char *name)
{
    struct stage stage;
    int status = -1;
    begin(&stage, name);
    const pid_t process = fork();
    if (process == 0) {
        (void)execl("/proc/self/exe", "nccl_life_test", how, (char *)NULL);
        _exit(127);
    }
    CHECK(process > 0 && waitpid(process, &status, 0) == process);
    CHECK_MSG(status == 0, "it ended with status %x", (unsigned)status);
    end();
}

/* The cases, in the order of the file but for the first: no background thread may have begun. */
static void lives(void)
{
    leaving_waits("leave", "a process ends while communicators are freed");
    leaving_waits("stuck", "a process ends while one cannot be freed");
    no_background_thread();
    opens_afterwards();
    opens_all_the_same();
    kernels_loaded_once();
    group();
    threads();
    one_rank();
    one_rank_order();
    one_rank_scaled();
    scaled();
    mistakes();
    buffers();
    splits();
    never_opens();
    never_calls();
    never_ends();
    never_splits();
    same_device();
}

static void aborts_and_memory(void)
{
    races();
    live_graph();
    two_on_a_device();
    free_later();
    workspace();
    unmarked_workspace();
    abort_while(FAKE_HOST_ALLOC, "abort while another rank joins");
    abort_while(FAKE_QUERY, "abort while a rank polls");
    abort_of_a_close();
    words();
    word_in_use();
    no_pinned_memory();
    broken_device();
}

static void ranks_that_leave(void)
{
    leaves(0, false, "a rank leaves, the others have made as many calls");
    leaves(1, false, "a rank leaves, the others wait for it");
    leaves(1, true, "a rank has left, the others call");
    leaving_races();
    mail_leaves();
    messages_of_a_leaving_rank();
    refused_calls();
    splits_alone();
}

static void threads_beside(void)
{
    captures();
    refused_waits();
    logs();
    watchdog();
    watched_lives();
    abort_without_threads();
    abort_after_quiesce();
    many(true);
    many(false);
    states();
    opens_afterwards(); /* once more, after some were parked */
    marks();
    configurations();
    diagnosis("nccl_life_test");
    errors();
    batches();
}

int main(int n, char **arguments)
{
    CHECK(devices()->count() == FAKE_DEVICES);
    if (n > 1)
        return strcmp(arguments[1], "ask") == 0     ? diagnosing_process()
               : strcmp(arguments[1], "stuck") == 0 ? stuck_process()
                                                    : leaving_process();
    lives();
    aborts_and_memory();
    ranks_that_leave();
    threads_beside();
    return check_finish("nccl_life_test");
}
