#define _POSIX_C_SOURCE 200809L
#include "benches/busy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What sleeps has the duration as its argument, which is no address. */
static void rest(void *argument)
{
    const uintptr_t us = (uintptr_t)argument;
    const struct timespec time = {.tv_sec = (time_t)(us / 1000000),
                                  .tv_nsec = (long)(us % 1000000 * 1000)};
    (void)nanosleep(&time, NULL);
}

void bench_busy(const struct bench *bench, int rank, double us)
{
#ifdef TRI_BENCH_NCCL
    if (strcmp(bench->backend, "nccl") == 0) {
        if (bench_busy_cuda(rank, bench->stream[rank], us))
            return;
        fprintf(stderr, "a kernel could not be launched on GPU %d\n", rank);
        exit(EXIT_FAILURE);
    }
#endif
    BENCH_OK(
        trib_stream_submit(bench->device[rank], rest, (void *)(uintptr_t)us, bench->stream[rank]));
}
