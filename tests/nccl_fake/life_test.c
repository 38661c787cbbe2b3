/* The life of the nccl backend over the fake: open, split, abort, deadlines, close, and races
 * between them. Runs without a GPU, and is meant to be run under the thread and address sanitizers.
 */
#include <stdatomic.h>

#include "csrc/backend.h"
#include "csrc/base/status.h"
#include "kernels/cuda/kernels_cuda.h"
#include "tests/check.h"
#include "tests/nccl_fake/fake.h"

extern const struct tri_backend tri_backend_nccl;

/* For what is not linked here: kernels, of which nothing runs, and the public functions. */
const struct tri_kernels tri_kernels_cuda = {.name = "none"};
const char *trib_last_detail(void)
{
    return tri_detail();
}

enum { DEADLINE_MS = 200, SLACK_MS = 1000, PLENTY_MS = 20000 };

static const struct tri_transport_ops *transports(void)
{
    return tri_backend_nccl.transport;
}

static const struct tri_device_ops *devices(void)
{
    return tri_backend_nccl.device;
}

/* ------------------------------------------------------------------------------------ fixture */

struct stage {
    trib_id id;
    int round;
};

static void begin(struct stage *stage, const char *name)
{
    check_begin("nccl over a fake: %s", name);
    CHECK_OK(transports()->id_create(&stage->id));
}

/* Everything is freed, within a while: the reaper works in the background. */
static void end(void)
{
    for (int i = 0; i < SLACK_MS && fake_communicators() != 0; i++)
        check_sleep_ms(1);
    CHECK_MSG(fake_communicators() == 0, "%d communicators are not freed", fake_communicators());
    check_end();
}

static struct tri_transport *open_rank(const struct stage *stage, int rank, int size)
{
    struct tri_transport *transport = NULL;
    CHECK_OK(transports()->open(&transport, &stage->id, rank, size, rank, PLENTY_MS));
    return transport;
}

static struct trib_abort *state_of(struct tri_transport *transport)
{
    return transports()->abort_state(transport);
}

/* An allreduce, as core issues it. */
static trib_status allreduce(struct tri_transport *transport, trib_stream stream)
{
    static float memory[4];
    const struct tri_call call = {.kind = TRI_ALLREDUCE,
                                  .transport = transport,
                                  .send = memory,
                                  .recv = memory,
                                  .count = 4,
                                  .dtype = TRIB_F32,
                                  .op = TRIB_SUM,
                                  .stream = stream};
    if (!tri_abort_enter(state_of(transport)))
        return tri_abort_status(state_of(transport));
    const trib_status status = transports()->collective(&call, 1);
    tri_abort_leave(state_of(transport));
    return status != TRIB_OK ? status : tri_abort_status(state_of(transport));
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

/* An aborted stream comes free; waiting for it must not last. */
static void end_stream(int device, trib_stream stream)
{
    CHECK_OK(devices()->stream_wait(device, stream));
    CHECK_OK(devices()->stream_destroy(device, stream));
}

/* ------------------------------------------------------------------------------- in good order */

/* One thread drives all ranks, and what was current on it stays so. */
static void group(void)
{
    const int32_t order[4] = {3, 1, 0, 2};
    struct tri_transport *ranks[4];
    struct tri_call calls[4];
    trib_stream streams[4];
    struct stage stage;
    begin(&stage, "a group");
    fake_make_current(5);
    if (CHECK_OK(transports()->open_group(ranks, order, 4, PLENTY_MS))) {
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
    begin(&stage, "a thread a rank");
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
    if (CHECK_OK(transports()->open(&transport, &stage.id, 0, 1, 2, PLENTY_MS))) {
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
        CHECK(fake_communicators() == 0); /* NCCL has no part in it */
        CHECK_OK(finish(transport, PLENTY_MS));
    }
    CHECK_OK(devices()->free(2, memory));
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
    CHECK_OK(devices()->alloc_shared(&pinned, 64));
    CHECK_STATUS(devices()->alloc_shared(&too_large, 65), TRIB_ERR_INVALID_ARGUMENT);
    trib_stream stream = new_stream(3);
    CHECK(devices()->check_buffer(2, memory, 64, &found) == TRI_FAULT_NONE);
    CHECK(devices()->check_buffer(2, (char *)memory + 4, 64, &found) == TRI_FAULT_TOO_SHORT);
    CHECK(found == 60);
    CHECK(devices()->check_buffer(1, memory, 64, &found) == TRI_FAULT_OTHER_DEVICE);
    CHECK(found == 2);
    CHECK(devices()->check_buffer(2, &local, 4, &found) == TRI_FAULT_NOT_DEVICE_MEMORY);
    CHECK(devices()->check_buffer(2, pinned, 64, &found) == TRI_FAULT_NONE);
    CHECK(devices()->check_stream(3, stream, &found) == TRI_FAULT_NONE);
    CHECK(devices()->check_stream(3, NULL, &found) == TRI_FAULT_NONE);
    CHECK(devices()->check_stream(2, stream, &found) == TRI_FAULT_OTHER_DEVICE);
    CHECK(found == 3);
    end_stream(3, stream);
    devices()->free_shared(pinned);
    CHECK_OK(devices()->free(2, memory));
    end();
}

/* Odd and even ranks apart, backwards; the last rank has no colour. Then the parent is aborted, and
 * the children go on. */
static void split_rank(int rank, int size, void *argument)
{
    struct tri_transport *parent = open_rank(argument, rank, size), *child = NULL;
    trib_stream stream = new_stream(rank);
    const int color = rank == size - 1 ? TRIB_NO_COLOR : rank % 2;
    if (parent == NULL)
        return;
    CHECK_OK(transports()->split(&child, parent, color, -rank, PLENTY_MS));
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

/* ----------------------------------------------------------------------- a rank that never comes
 */

static void lonely_rank(int rank, int size, void *argument)
{
    const struct stage *stage = argument;
    struct tri_transport *transport = NULL;
    const double start = check_now_ms();
    CHECK_STATUS(transports()->open(&transport, &stage->id, rank, size + 1, rank, DEADLINE_MS),
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

/* All but the last are inside their first call, which waits there, when that one aborts. */
static void first_call_rank(int rank, int size, void *argument)
{
    struct tri_transport *transport = open_rank(argument, rank, size);
    trib_stream stream = new_stream(rank);
    if (transport == NULL)
        return;
    if (rank == size - 1) {
        check_sleep_ms(50);
        stop(transport, "one never came");
    } else {
        CHECK_STATUS(allreduce(transport, stream), TRIB_ERR_ABORTED);
        CHECK_DETAIL("one never came");
    }
    CHECK_STATUS(allreduce(transport, stream), TRIB_ERR_ABORTED);
    transports()->poll(transport);
    CHECK(*transports()->abort_word(transport) == 1);
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
    CHECK_OK(allreduce(transport, stream));
    if (rank != 0)
        CHECK_OK(allreduce(transport, stream));
    const double start = check_now_ms();
    const trib_status status = finish(transport, DEADLINE_MS);
    CHECK(status == TRIB_OK || status == TRIB_ERR_TIMEOUT); /* the last one to close */
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
        CHECK_STATUS(transports()->split(&child, parent, 0, rank, DEADLINE_MS), TRIB_ERR_TIMEOUT);
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
    CHECK(transports()->open(&transport, &stage->id, rank, size, 0, DEADLINE_MS) != TRIB_OK);
    CHECK(transport == NULL);
}

static void same_device(void)
{
    struct stage stage;
    begin(&stage, "two ranks on one device");
    check_ranks(2, same_device_rank, &stage);
    end();
}

/* --------------------------------------------------------------------------------------- races */

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

/* ---------------------------------------------------------------------------- what waits longer */

/* Nothing can be freed while a graph lives, and nobody has to wait for that. */
static void live_graph(void)
{
    const int32_t order[2] = {0, 1};
    struct tri_transport *ranks[2];
    struct stage stage;
    begin(&stage, "abort while a graph lives");
    if (CHECK_OK(transports()->open_group(ranks, order, 2, PLENTY_MS))) {
        fake_keep_graph(true);
        const double start = check_now_ms();
        stop(ranks[0], "with a graph");
        for (int i = 0; i < 2; i++)
            CHECK_OK(finish(ranks[i], PLENTY_MS));
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

/* Thread 0 sits in a call on device 0, thread 1 waits for the device; thread 2 aborts thread 1's.
 */
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
    const int32_t order[2] = {0, 1};
    struct two two;
    struct stage stage;
    begin(&stage, "abort of one who waits for a device");
    two.stream = new_stream(0);
    if (CHECK_OK(transports()->open_group(two.ranks[0], order, 2, PLENTY_MS)) &&
        CHECK_OK(transports()->open_group(two.ranks[1], order, 2, PLENTY_MS))) {
        check_ranks(3, two_member, &two);
        for (int i = 0; i < 4; i++)
            CHECK_OK(finish(two.ranks[i / 2][i % 2], PLENTY_MS));
    }
    end_stream(0, two.stream);
    end();
}

int main(void)
{
    CHECK(devices()->count() == FAKE_DEVICES);
    group();
    threads();
    one_rank();
    buffers();
    splits();
    never_opens();
    never_calls();
    never_ends();
    never_splits();
    same_device();
    races();
    live_graph();
    two_on_a_device();
    return check_finish("nccl_life_test");
}
