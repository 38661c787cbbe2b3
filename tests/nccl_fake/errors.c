/* Errors that NCCL and CUDA report later: one that another process may have caused by ending does
 * not count at once, and a device that has failed is not the argument's fault. */
#include "tests/nccl_fake/errors.h"

#include <cuda.h>
#include <nccl.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/nccl/quiesce.h"
#include "tests/check.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fixture.h"

enum { PLENTY_MS = 20000, EXPLAINED_MS = 50, SLACK_MS = 1000 };

/* ------------------------------------------------------------------- NCCL's, of another process */

struct apart {
    trib_id id;
    ncclComm_t theirs;
    struct tri_transport *ours;
    trib_stream stream;
    struct trib_abort *state;
};

/* The other process, of which the backend knows nothing. */
static void join_elsewhere(struct apart *apart)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 1;
    memcpy(&id, &apart->id, sizeof id);
    fake_make_current(1);
    CHECK(ncclCommInitRankConfig(&apart->theirs, 2, id, 1, &config) == ncclSuccess);
    fake_make_current(-1);
}

static void join(int rank, int size, void *argument)
{
    struct apart *apart = argument;
    if (rank == 0)
        CHECK_OK(transports()->open(&apart->ours, &apart->id, 0, size, 0, NULL, PLENTY_MS));
    else
        join_elsewhere(apart);
}

static bool open_apart(struct apart *apart)
{
    CHECK_OK(transports()->id_create(&apart->id));
    check_ranks(2, join, apart);
    if (apart->ours == NULL || !CHECK_OK(devices()->stream_create(0, &apart->stream)))
        return false;
    apart->state = transports()->abort_state(apart->ours);
    return true;
}

static void close_apart(struct apart *apart)
{
    uint32_t graphs = 0;
    fake_async_error(0, ncclSuccess);
    (void)transports()->close(apart->ours, PLENTY_MS);
    CHECK_OK(devices()->stream_wait(0, apart->stream));
    CHECK_OK(devices()->stream_destroy(0, apart->stream));
    transports()->destroy(apart->ours);
    fake_make_current(1);
    CHECK(ncclCommAbort(apart->theirs) == ncclSuccess);
    fake_make_current(-1);
    CHECK(tri_nccl_quiesce(tri_deadline_ns(PLENTY_MS), &graphs) == 0);
    CHECK(fake_communicators() == 0);
}

/* Nobody explains it: it counts after a while. */
static void unexplained(void)
{
    struct apart apart = {.ours = NULL};
    check_begin("nccl over a fake: nobody explains an error");
    if (open_apart(&apart)) {
        fake_async_error(0, ncclRemoteError);
        const double start = check_now_ms();
        CHECK_OK(tri_abort_ask(apart.state));
        transports()->poll(apart.ours);
        CHECK(tri_abort_live(apart.state));
        while (tri_abort_ask(apart.state) == TRIB_OK && check_now_ms() < start + SLACK_MS)
            check_sleep_ms(1);
        CHECK(check_now_ms() >= start + EXPLAINED_MS - 1);
        CHECK_STATUS(tri_abort_ask(apart.state), TRIB_ERR_NCCL);
        CHECK_DETAIL("rank 0");
        close_apart(&apart);
    }
    check_end();
}

/* Someone knows better in time. */
static void explained(void)
{
    struct apart apart = {.ours = NULL};
    check_begin("nccl over a fake: a death explains an error");
    if (open_apart(&apart)) {
        fake_async_error(0, ncclSystemError);
        CHECK_OK(tri_abort_ask(apart.state));
        CHECK(tri_abort_raise(apart.state, TRIB_ERR_CLOSED, "rank 1 has died"));
        CHECK_STATUS(tri_abort_ask(apart.state), TRIB_ERR_CLOSED);
        CHECK_DETAIL("rank 1 has died");
        close_apart(&apart);
    }
    check_end();
}

/* A call in which NCCL reports it ends the communicator at once: NCCL interrupts kernels then. */
static void failed_call(void)
{
    struct apart apart = {.ours = NULL};
    check_begin("nccl over a fake: a call fails");
    if (open_apart(&apart)) {
        fake_async_error(0, ncclRemoteError);
        CHECK_STATUS(allreduce(apart.ours, apart.stream), TRIB_ERR_NCCL);
        CHECK(!tri_abort_live(apart.state));
        close_apart(&apart);
    }
    check_end();
}

/* What no other process can have caused counts at once: whoever asks, and if asking fails. */
static void own_error(bool fails)
{
    check_begin("nccl over a fake: an error of this process%s", fails ? ", which asking is" : "");
    for (int polls = 0; polls < 2; polls++) {
        struct apart apart = {.ours = NULL};
        if (!open_apart(&apart))
            break;
        if (fails)
            fake_fail_async_query(true);
        else
            fake_async_error(0, ncclInternalError);
        if (polls)
            transports()->poll(apart.ours);
        CHECK_STATUS(polls ? tri_abort_status(apart.state) : tri_abort_ask(apart.state),
                     fails ? TRIB_ERR_INVALID_USAGE : TRIB_ERR_NCCL);
        fake_fail_async_query(false);
        close_apart(&apart);
    }
    check_end();
}

/* ----------------------------------------------------------------------------- CUDA's, for good */

/* Neither a stream nor memory of a device that has failed is called wrong. */
static void failed_device(void)
{
    trib_stream stream = NULL;
    void *data = NULL;
    size_t found = 0;
    check_begin("nccl over a fake: a device has failed");
    if (CHECK_OK(devices()->stream_create(2, &stream)) &&
        CHECK_OK(devices()->alloc(2, &data, 64))) {
        fake_query_result(CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(devices()->check_stream(2, stream, &found) == TRI_FAULT_NONE);
        CHECK(devices()->check_buffer(2, data, 64, &found) == TRI_FAULT_NONE);
        fake_query_result(CUDA_ERROR_INVALID_HANDLE);
        CHECK(devices()->check_stream(2, stream, &found) == TRI_FAULT_UNKNOWN_STREAM);
        CHECK(devices()->check_buffer(2, data, 64, &found) == TRI_FAULT_NOT_DEVICE_MEMORY);
        fake_query_result(CUDA_SUCCESS);
        CHECK(devices()->check_stream(2, stream, &found) == TRI_FAULT_NONE);
        CHECK_OK(devices()->free(2, data));
        CHECK_OK(devices()->stream_destroy(2, stream));
    }
    check_end();
}

/* The driver's quick answer fails: CUDA's full one still tells a capture from none. */
static void failed_question(void)
{
    trib_stream stream = NULL;
    check_begin("nccl over a fake: the driver does not say whether a stream is captured");
    if (CHECK_OK(devices()->stream_create(2, &stream))) {
        fake_query_result(CUDA_ERROR_UNKNOWN);
        CHECK(devices()->capturing(2, stream) == 0);
        struct fake_graph *graph = fake_capture_begin(stream);
        const uint64_t unsaid = devices()->capturing(2, stream);
        fake_query_result(CUDA_SUCCESS);
        CHECK(unsaid != 0 && unsaid == devices()->capturing(2, stream));
        fake_capture_end(stream);
        fake_graph_destroy(graph);
        CHECK(devices()->capturing(2, stream) == 0);
        CHECK_OK(devices()->stream_destroy(2, stream));
    }
    check_end();
}

void errors(void)
{
    unexplained();
    explained();
    failed_call();
    own_error(false);
    own_error(true);
    failed_device();
    failed_question();
}
