/* What tests do with the fake's streams beside the library. */
#include "tests/nccl_fake/streams.h"

#include "tests/check.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_work.h"

static bool is_released(void *argument)
{
    return !(*(struct fake_held *const *)argument)->held;
}

void fake_hold_stream(struct fake_held *held, cudaStream_t stream)
{
    static const struct fake_work_kind kind = {is_released, NULL};
    held->held = true;
    fake_submit(stream, &kind, &held, sizeof held);
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
