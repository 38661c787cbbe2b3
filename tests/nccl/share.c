/* Processes, a rank each, on fewer GPUs than there are processes. */
#define _POSIX_C_SOURCE 200809L
#include "tests/nccl/share.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/children.h"
#include "tests/team.h"

enum { COUNT_MS = 60000 };

static void count_devices(int index, int n, void *argument)
{
    (void)index;
    (void)n;
    *(int *)argument = team_limit("nccl");
}

int share_gpus(void)
{
    struct child_end end;
    int *shared = children_share(sizeof *shared);
    children_run(&end, 1, COUNT_MS, count_devices, shared);
    const int gpus = *shared;
    if (end.code != 0) { /* no machine without GPUs, but one that is broken */
        check_begin("the count of GPUs");
        children_check(&end, 0);
        check_end();
    }
    children_unshare(shared, sizeof *shared);
    return gpus;
}

int32_t share_gpu(int index, int n, int gpus)
{
    char host[64];
    if (gpus >= n)
        return index;
    (void)snprintf(host, sizeof host, "tributary-test-%d", index);
    (void)setenv("NCCL_HOSTID", host, 1);
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    (void)setenv("NCCL_NET", "Socket", 1);
    return index % gpus;
}
