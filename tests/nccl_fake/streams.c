/* What tests do with the fake's streams beside the library. */
#include "tests/nccl_fake/streams.h"

#include "tests/check.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_work.h"

/* The work of the stream. */
struct holding {
    const struct fake_held *held;
};

static bool is_released(void *argument)
{
    return !((const struct holding *)argument)->held->held;
}

void fake_hold_stream(struct fake_held *held, cudaStream_t stream)
{
    static const struct fake_work_kind kind = {is_released, NULL};
    const struct holding holding = {held};
    held->held = true;
    fake_submit(stream, &kind, &holding, sizeof holding);
}

void fake_release_stream(struct fake_held *held)
{
    pthread_mutex_lock(&fake_lock);
    held->held = false;
    fake_progress();
    pthread_mutex_unlock(&fake_lock);
}

void fake_replay(cudaGraph_t graph, int device, cudaStream_t stream)
{
    cudaGraphExec_t exec = NULL;
    fake_make_current(device);
    CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
    fake_make_current(-1);
}
