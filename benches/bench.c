/* What the programs of this folder share: ranks as threads, timing, percentiles. */
#define _POSIX_C_SOURCE 200809L
#include "benches/bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "benches/peer.h"

void bench_ok(trib_status status, const char *call)
{
    if (status == TRIB_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", call, trib_status_name(status), trib_last_detail());
    exit(EXIT_FAILURE);
}

static void *must(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(EXIT_FAILURE);
    }
    return memory;
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

void bench_open(struct bench *bench, const char *backend, int ranks, uint32_t flags)
{
    trib_device *first = NULL;
    BENCH_OK(trib_device_get(&first, backend, 0));
    memset(bench, 0, sizeof *bench);
    bench->backend = trib_device_backend(first);
    int32_t devices = 0;
    BENCH_OK(trib_backend_devices(&devices, bench->backend));
    const bool host = strcmp(bench->backend, "host") == 0;
    bench->ranks = ranks > 0 ? ranks : host ? 2 : devices;
    if (bench->ranks > devices || bench->ranks > BENCH_MAX_RANKS) {
        fprintf(stderr, "%d ranks asked for, %s has %d devices\n", bench->ranks, bench->backend,
                devices);
        exit(EXIT_FAILURE);
    }
    trib_options options = TRIB_OPTIONS_INIT;
    options.backend = bench->backend;
    options.flags = flags;
    trib_group *group = NULL;
    BENCH_OK(trib_group_create(&group, NULL, bench->ranks, &options));
    BENCH_OK(trib_group_split(bench->comm, group));
    for (int rank = 0; rank < bench->ranks; rank++) {
        BENCH_OK(trib_device_get(&bench->device[rank], bench->backend, rank));
        BENCH_OK(trib_stream_create(&bench->stream[rank], bench->device[rank]));
    }
    bench->peer = &bench_peer_memcpy;
#ifdef TRI_BENCH_NCCL
    if (!host)
        bench->peer = &bench_peer_nccl;
#endif
    bench->peer_state = must(bench->peer->open(bench));
}

void bench_close(struct bench *bench)
{
    bench->peer->close(bench->peer_state);
    for (int rank = 0; rank < bench->ranks; rank++)
        BENCH_OK(trib_stream_destroy(bench->device[rank], bench->stream[rank]));
    for (int rank = 0; rank < bench->ranks; rank++)
        BENCH_OK(trib_comm_destroy(bench->comm[rank]));
}

struct rank_run {
    pthread_t thread;
    const struct bench *bench;
    pthread_barrier_t *barrier;
    bench_body body;
    void *argument;
    int rank, warmup, iterations;
    double *device_us; /* one an iteration */
    double host_us;
};

/* Queue everything, then read the events: nothing but the body lies between two of them. */
static void time_rank(struct rank_run *run)
{
    const struct bench *bench = run->bench;
    trib_device *device = bench->device[run->rank];
    trib_stream stream = bench->stream[run->rank];
    trib_event *events = must(calloc((size_t)run->iterations + 1, sizeof *events));
    for (int i = 0; i <= run->iterations; i++)
        BENCH_OK(trib_event_create(&events[i], device));
    for (int i = 0; i < run->warmup; i++)
        run->body(bench, run->rank, run->argument);
    BENCH_OK(trib_stream_wait(device, stream));
    pthread_barrier_wait(run->barrier);

    double host = 0;
    BENCH_OK(trib_event_record(device, events[0], stream));
    for (int i = 0; i < run->iterations; i++) {
        const double start = now_us();
        run->body(bench, run->rank, run->argument);
        host += now_us() - start;
        BENCH_OK(trib_event_record(device, events[i + 1], stream));
    }
    BENCH_OK(trib_stream_wait(device, stream));
    run->host_us = host / run->iterations;
    for (int i = 0; i < run->iterations; i++) {
        float ms = 0;
        BENCH_OK(trib_event_elapsed(&ms, device, events[i], events[i + 1]));
        run->device_us[i] = (double)ms * 1e3;
    }
    for (int i = 0; i <= run->iterations; i++)
        BENCH_OK(trib_event_destroy(device, events[i]));
    free(events);
}

static void *rank_main(void *argument)
{
    time_rank(argument);
    return NULL;
}

struct bench_result bench_time(const struct bench *bench, bench_body body, void *argument,
                               int warmup, int iterations)
{
    struct rank_run runs[BENCH_MAX_RANKS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)bench->ranks);
    for (int rank = 0; rank < bench->ranks; rank++) {
        runs[rank] = (struct rank_run){.bench = bench, .barrier = &barrier, .body = body,
                                       .argument = argument, .rank = rank, .warmup = warmup,
                                       .iterations = iterations};
        runs[rank].device_us = must(calloc((size_t)iterations, sizeof(double)));
        if (pthread_create(&runs[rank].thread, NULL, rank_main, &runs[rank]) != 0)
            must(NULL);
    }
    struct bench_result result = {.host = 0};
    double *slowest = must(calloc((size_t)iterations, sizeof(double)));
    for (int rank = 0; rank < bench->ranks; rank++) {
        pthread_join(runs[rank].thread, NULL);
        for (int i = 0; i < iterations; i++)
            if (runs[rank].device_us[i] > slowest[i])
                slowest[i] = runs[rank].device_us[i];
        if (runs[rank].host_us > result.host)
            result.host = runs[rank].host_us;
        free(runs[rank].device_us);
    }
    pthread_barrier_destroy(&barrier);
    result.device = bench_stats(slowest, (size_t)iterations);
    free(slowest);
    return result;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct bench_stats bench_stats(double *samples, size_t n)
{
    qsort(samples, n, sizeof *samples, ascending);
    const size_t last = n - 1;
    return (struct bench_stats){.median = (samples[last / 2] + samples[n / 2]) / 2,
                                .p99 = samples[(last * 99 + 50) / 100],
                                .min = samples[0]};
}

void *bench_alloc(const struct bench *bench, int rank, size_t bytes)
{
    void *data = NULL;
    BENCH_OK(trib_device_alloc(&data, bench->device[rank], bytes));
    return data;
}

void bench_free(const struct bench *bench, int rank, void *data)
{
    BENCH_OK(trib_device_free(bench->device[rank], data));
}

void bench_copy(const struct bench *bench, int rank, void *dst, const void *src, size_t bytes)
{
    trib_stream stream = bench->stream[rank];
    BENCH_OK(trib_device_copy(bench->device[rank], dst, src, bytes, stream));
    BENCH_OK(trib_stream_wait(bench->device[rank], stream));
}

void bench_print_setting(const struct bench *bench)
{
    uint32_t version = 0;
    BENCH_OK(trib_backend_version(&version, bench->backend));
    printf("# tributary %u, backend %s (%u), %d ranks, one thread a rank, beside %s\n",
           trib_version(), bench->backend, version, bench->ranks,
           bench->peer->name);
    printf("# microseconds; median and 99th percentile over the iterations of the maximum over the "
           "ranks\n");
}
