/* The nccl backend beside a thread's own use of CUDA: queries create no context, and no call
 * changes the current device. Each rank's thread works while another rank's device is current. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "tests/team.h"

enum { ELEMENTS = 4096 };

/* Through the runtime, so that the test links without a driver. */
static bool has_context(int device)
{
    CUresult (*state)(CUdevice, unsigned int *, int *) = NULL;
    void *entry = NULL;
    enum cudaDriverEntryPointQueryResult found;
    unsigned int flags = 0;
    int active = 0;
    if (!CHECK(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &entry, 12000,
                                                cudaEnableDefault, &found) == cudaSuccess))
        return false;
    memcpy(&state, &entry, sizeof state); /* ISO C has no cast from void * to a function */
    CHECK(state(device, &flags, &active) == CUDA_SUCCESS);
    return active != 0;
}

/* First of all: later there are contexts. */
static void questions(int devices)
{
    uint32_t version = 0;
    int32_t count = 0;
    trib_id id;
    trib_group *group = NULL;
    const int32_t beyond[] = {0, 1000};
    trib_options options = TRIB_OPTIONS_INIT;
    options.backend = "nccl";
    check_begin("questions make no context");
    CHECK_OK(trib_backend_version(&version, "nccl"));
    CHECK_OK(trib_backend_devices(&count, "nccl"));
    CHECK(count == devices);
    CHECK_STATUS(trib_group_create(&group, beyond, 2, &options), TRIB_ERR_NO_DEVICE);
    CHECK_STATUS(trib_id_create(&id, "no such backend"), TRIB_ERR_UNKNOWN_NAME);
    for (int device = 0; device < devices; device++)
        CHECK_MSG(!has_context(device), "device %d has a context", device);
    check_end();
}

static bool current_is(int device, const char *after)
{
    int current = -1;
    CHECK(cudaGetDevice(&current) == cudaSuccess);
    return CHECK_MSG(current == device, "the current device is %d after %s, not %d", current, after,
                     device);
}

struct stranger {
    trib_id id;
    int devices;
};

/* Rank `rank` on device `rank`, driven by a thread whose current device is `elsewhere`. */
static void as_rank(int rank, int size, void *argument)
{
    const struct stranger *stranger = argument;
    const int elsewhere = (rank + 1) % stranger->devices;
    trib_comm *comm = NULL, *child = NULL;
    trib_device *device = NULL;
    trib_stream stream = NULL;
    void *data = NULL;
    CHECK(cudaSetDevice(elsewhere) == cudaSuccess);
    if (!CHECK_OK(trib_comm_create(&comm, &stranger->id, rank, size, rank, NULL)))
        return;
    current_is(elsewhere, "trib_comm_create");
    CHECK_OK(trib_device_get(&device, "nccl", rank));
    CHECK_OK(trib_device_alloc(&data, device, ELEMENTS * sizeof(float)));
    CHECK_OK(trib_stream_create(&stream, device));
    current_is(elsewhere, "allocating");
    CHECK_OK(trib_allreduce(comm, data, data, ELEMENTS, TRIB_F32, TRIB_SUM, stream));
    CHECK_OK(trib_allreduce(comm, data, data, ELEMENTS, TRIB_F32, TRIB_SUM, NULL));
    CHECK_OK(trib_barrier(comm, stream));
    current_is(elsewhere, "collectives");
    const trib_tensor list[] = {{data, ELEMENTS / 2, TRIB_F32, 0},
                                {(float *)data + ELEMENTS / 2, 7, TRIB_F32, 0}};
    CHECK_OK(trib_allreduce_list(comm, list, 2, TRIB_SUM, stream));
    CHECK_OK(trib_allreduce_list(comm, list, 2, TRIB_SUM, NULL));
    CHECK_OK(trib_weighted_average(comm, list, 2, 1, NULL, NULL, stream));
    current_is(elsewhere, "lists");
    CHECK_OK(trib_comm_split(&child, comm, 0, -rank));
    current_is(elsewhere, "trib_comm_split");
    CHECK(trib_allreduce(comm, data, data, ELEMENTS, 99, TRIB_SUM, stream) != TRIB_OK);
    CHECK_OK(trib_stream_wait(device, stream));
    CHECK_OK(trib_stream_wait(device, NULL));
    CHECK_OK(trib_comm_status(comm));
    current_is(elsewhere, "waiting, and a refused call");
    CHECK_OK(trib_comm_destroy(child));
    CHECK_OK(trib_comm_destroy(comm));
    CHECK_OK(trib_stream_destroy(device, stream));
    CHECK_OK(trib_device_free(device, data));
    current_is(elsewhere, "destroying");
}

static void strangers(int size, int devices)
{
    struct stranger stranger = {.devices = devices};
    check_begin("%d ranks of %d devices: the current device stays", size, devices);
    if (CHECK_OK(trib_id_create(&stranger.id, "nccl")))
        check_ranks(size, as_rank, &stranger);
    check_end();
}

/* A thread that never chose a device still has none afterwards, and no context elsewhere. */
static void newcomer(int index, int size, void *argument)
{
    trib_device *device = NULL;
    void *data = NULL;
    const int last = *(int *)argument - 1;
    (void)index, (void)size;
    CHECK_OK(trib_device_get(&device, "nccl", last));
    CHECK_OK(trib_device_alloc(&data, device, 64));
    CHECK_OK(trib_device_free(device, data));
    current_is(0, "a first call on the last device");
}

int main(void)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        check_skip("there is no GPU");
        return check_finish("caller_cuda_test");
    }
    questions(devices);
    check_begin("a thread without a device");
    check_ranks(1, newcomer, &devices);
    if (devices > 1)
        CHECK_MSG(!has_context(0), "working on the last device made a context on device 0");
    check_end();
    for (int size = 1; size <= devices; size++)
        strangers(size, devices);
    return check_finish("caller_cuda_test");
}
