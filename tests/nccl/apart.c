/* One of two ranks on nccl, in a process of its own. */
#define _POSIX_C_SOURCE 200809L
#include "tests/nccl/apart.h"

#include <stdlib.h>

const struct apart_path apart_paths[APART_PATHS] = {
    {"P2P", {{NULL, NULL}}, false},
    {"shared memory", {{"NCCL_P2P_DISABLE", "1"}}, false},
    {"sockets",
     {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"}, {"NCCL_NET", "Socket"}},
     true},
};

void apart_take(const struct apart_path *path)
{
    for (int i = 0; i < 3 && path->variables[i][0] != NULL; i++)
        (void)setenv(path->variables[i][0], path->variables[i][1], 1);
}

bool apart_open(struct apart_rank *rank, struct apart *apart, int index,
                const trib_options *options)
{
    void *data = NULL;
    const int32_t device = share_gpu(index, 2, apart->gpus);
    rank->rank = index;
    if (index == 0)
        CHECK_OK(trib_id_create(&apart->id, "nccl"));
    children_meet(&apart->made, 2);
    if (!CHECK_OK(trib_device_get(&rank->device, "nccl", device)) ||
        !CHECK_OK(trib_stream_create(&rank->stream, rank->device)) ||
        !CHECK_OK(trib_device_alloc(&data, rank->device, APART_ELEMENTS * sizeof(float))) ||
        !CHECK_OK(trib_comm_create(&rank->comm, &apart->id, index, 2, device, options)))
        return false;
    rank->data = data;
    return true;
}

void apart_close(struct apart_rank *rank)
{
    CHECK_OK(trib_comm_destroy(rank->comm));
    CHECK_OK(trib_device_free(rank->device, rank->data));
    CHECK_OK(trib_stream_destroy(rank->device, rank->stream));
}

void apart_go_on(struct apart_rank *rank)
{
    const int32_t other = 1 - rank->rank;
    trib_comm *alone = NULL;
    if (!CHECK_OK(trib_comm_shrink(&alone, rank->comm, &other, 1, 0)))
        return;
    CHECK_OK(trib_comm_destroy(rank->comm));
    rank->comm = alone;
    const float found = apart_sum(rank, 2);
    CHECK_MSG(found == 2, "%g", (double)found);
}

trib_status apart_add(const struct apart_rank *rank, size_t count)
{
    return trib_allreduce(rank->comm, rank->data, rank->data, count, TRIB_F32, TRIB_SUM,
                          rank->stream);
}

float apart_sum(const struct apart_rank *rank, float value)
{
    CHECK_OK(trib_device_copy(rank->device, rank->data, &value, sizeof value, rank->stream));
    CHECK_OK(apart_add(rank, APART_ELEMENTS));
    CHECK_OK(trib_device_copy(rank->device, &value, rank->data, sizeof value, rank->stream));
    CHECK_OK(trib_stream_wait(rank->device, rank->stream));
    CHECK_OK(trib_comm_status(rank->comm));
    return value;
}
