/* Shared by the programs of this folder: ranks and their threads, timing, percentiles. */
#define _POSIX_C_SOURCE 200809L
#include "benches/bench.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "benches/graph.h"
#include "benches/peer.h"
#include "benches/processes.h"

void bench_ok(trib_status status, const char *call)
{
    if (status == TRIB_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", call, trib_status_name(status), trib_last_detail());
    bench_fail();
}

void *bench_must(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        bench_fail();
    }
    return memory;
}

bool bench_in_list(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at++)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return strcmp(list, "all") == 0;
}

double bench_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Backend, ranks and threads; one line says what is invalid. */
static void choose(struct bench *bench, const char *backend, int ranks, int threads)
{
    trib_device *first = NULL;
    int32_t devices = 0;
    BENCH_OK(trib_device_get(&first, backend, 0));
    bench->backend = trib_device_backend(first);
    BENCH_OK(trib_backend_devices(&devices, bench->backend));
    bench->ranks = ranks != 0 ? ranks : strcmp(bench->backend, "host") == 0 ? 2 : devices;
    if (bench->ranks < 1 || bench->ranks > devices || bench->ranks > BENCH_MAX_RANKS) {
        fprintf(stderr, "%d ranks asked for, %s has %d devices\n", bench->ranks, bench->backend,
                devices);
        exit(EXIT_FAILURE);
    }
    bench->threads = threads != 0 ? threads : bench->ranks;
    if (bench->threads != 1 && bench->threads != bench->ranks) {
        fprintf(stderr, "%d threads asked for: %d ranks take 1 or %d\n", threads, bench->ranks,
                bench->ranks);
        exit(EXIT_FAILURE);
    }
}

/* A bench that is not open: what was asked for, and then what was chosen. */
static int ask_ranks(void *argument)
{
    struct bench *asked = argument;
    trib_capabilities can = TRIB_CAPABILITIES_INIT;
    choose(asked, asked->backend, asked->ranks, 0);
    BENCH_OK(trib_backend_capabilities(&can, asked->backend));
    if ((can.flags & TRIB_CAN_PROCESSES) == 0) {
        fprintf(stderr,
                "processes: %s connects none, its ranks are threads of one process; nccl does\n",
                asked->backend);
        exit(EXIT_FAILURE);
    }
    return asked->ranks;
}

int bench_fork(const char *backend, int ranks)
{
    struct bench asked = {.backend = backend, .ranks = ranks};
    const int n = bench_ask(ask_ranks, &asked);
    bench_split(n);
    return n;
}

void bench_open(struct bench *bench, const char *backend, int ranks, int threads, uint32_t flags)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = flags;
    bench_open_with(bench, backend, ranks, threads, &options);
}

/* The communicator of a rank that has a process of its own. */
static void join(struct bench *bench, const trib_options *options)
{
    const int rank = bench->first;
    trib_id id = {{0}};
    if (rank == 0)
        BENCH_OK(trib_id_create(&id, bench->backend));
    bench_tell(bench, &id, sizeof id);
    BENCH_OK(trib_comm_create(&bench->comm[rank], &id, rank, bench->ranks, rank, options));
}

static void make_group(struct bench *bench, const trib_options *options, int threads)
{
    BENCH_OK(trib_group_create(&bench->group, NULL, bench->ranks, options));
    if (threads != 1) {
        BENCH_OK(trib_group_split(bench->comm, bench->group));
        bench->group = NULL;
    }
}

void bench_open_with(struct bench *bench, const char *backend, int ranks, int threads,
                     const trib_options *with)
{
    const bool alone = bench_processes() == 1;
    memset(bench, 0, sizeof *bench);
    choose(bench, backend, ranks, threads);
    bench->first = alone ? 0 : bench_process();
    bench->end = alone ? bench->ranks : bench->first + 1;
    bench->meeting = bench_meeting_open(bench->threads);
    trib_options options = *with;
    options.backend = bench->backend;
    if (alone)
        make_group(bench, &options, threads);
    else
        join(bench, &options);
    for (int rank = bench->first; rank < bench->end; rank++) {
        BENCH_OK(trib_device_get(&bench->device[rank], bench->backend, rank));
        BENCH_OK(trib_stream_create(&bench->stream[rank], bench->device[rank]));
    }
    bench->peer = &bench_peer_memcpy;
#ifdef TRI_BENCH_NCCL
    if (strcmp(bench->backend, "nccl") == 0) {
        bench->peer = &bench_peer_nccl;
        bench->graphs = &bench_graphs_cuda;
    }
#endif
    bench->peer_state = bench_must(bench->peer->open(bench));
}

void bench_close(struct bench *bench)
{
    bench->peer->close(bench->peer_state);
    for (int rank = bench->first; rank < bench->end; rank++)
        BENCH_OK(trib_stream_destroy(bench->device[rank], bench->stream[rank]));
    for (int rank = bench->first; rank < bench->end; rank++)
        BENCH_OK(trib_comm_destroy(bench->comm[rank]));
    BENCH_OK(trib_group_destroy(bench->group));
    bench_meeting_close(bench->meeting);
}

int bench_first(int rank)
{
    return rank == BENCH_ALL ? 0 : rank;
}

int bench_end(const struct bench *bench, int rank)
{
    return rank == BENCH_ALL ? bench->ranks : rank + 1;
}

void bench_wait(const struct bench *bench, int rank)
{
    for (int r = bench_first(rank); r < bench_end(bench, rank); r++)
        BENCH_OK(trib_stream_wait(bench->device[r], bench->stream[r]));
}

struct driver {
    pthread_t thread;
    const struct bench *bench;
    bench_body body;
    void *argument;
    int rank; /* or BENCH_ALL */
};

static void *driver_main(void *argument)
{
    const struct driver *driver = argument;
    driver->body(driver->bench, driver->rank, driver->argument);
    return NULL;
}

void bench_on_threads(const struct bench *bench, bench_body body, void *argument)
{
    struct driver drivers[BENCH_MAX_RANKS];
    const int n = bench->group != NULL ? 1 : bench->end - bench->first;
    for (int i = 0; i < n; i++) {
        drivers[i] = (struct driver){.bench = bench,
                                     .body = body,
                                     .argument = argument,
                                     .rank = bench->group != NULL ? BENCH_ALL : bench->first + i};
        if (pthread_create(&drivers[i].thread, NULL, driver_main, &drivers[i]) != 0) {
            fprintf(stderr, "thread %d could not be started\n", i);
            bench_fail();
        }
    }
    for (int i = 0; i < n; i++)
        pthread_join(drivers[i].thread, NULL);
    if (bench_processes() > 1)
        bench_meet(bench);
}

/* One timing. The events of a rank belong to the thread that drives it while that runs. */
struct timing {
    const struct bench *bench;
    bench_body prepare; /* may be NULL */
    bench_body body;
    void *argument;
    int warmup, iterations;
    /* Around iteration i: events[rank][i * stride] and the one after it. Without anything to
     * prepare the end of one is the start of the next. */
    trib_event *events[BENCH_MAX_RANKS];
    int stride;
    double host[BENCH_MAX_RANKS]; /* at the first rank of each thread */
};

static void record(const struct timing *timing, int driven, int i)
{
    const struct bench *bench = timing->bench;
    for (int rank = bench_first(driven); rank < bench_end(bench, driven); rank++)
        BENCH_OK(
            trib_event_record(bench->device[rank], timing->events[rank][i], bench->stream[rank]));
}

/* Queue everything, then wait: nothing but the body lies between two events. */
static void drive(const struct bench *bench, int rank, void *argument)
{
    struct timing *timing = argument;
    for (int i = 0; i < timing->warmup; i++) {
        if (timing->prepare != NULL)
            timing->prepare(bench, rank, timing->argument);
        timing->body(bench, rank, timing->argument);
    }
    bench_wait(bench, rank);
    bench_meet(bench);

    double host = 0;
    for (int i = 0; i < timing->iterations; i++) {
        if (timing->prepare != NULL)
            timing->prepare(bench, rank, timing->argument);
        if (i == 0 || timing->stride > 1)
            record(timing, rank, i * timing->stride);
        const double start = bench_now_us();
        timing->body(bench, rank, timing->argument);
        host += bench_now_us() - start;
        record(timing, rank, i * timing->stride + 1);
    }
    bench_wait(bench, rank);
    timing->host[bench_first(rank)] = host / timing->iterations;
}

/* Run all drivers to their end. The most host time of one. */
static double drive_all(struct timing *timing)
{
    const struct bench *bench = timing->bench;
    double host = 0;
    bench_on_threads(bench, drive, timing);
    for (int rank = bench->first; rank < bench->end; rank++)
        host = fmax(host, timing->host[rank]);
    bench_most(bench, &host, 1);
    return host;
}

static size_t event_count(const struct timing *timing)
{
    return (size_t)timing->iterations * (size_t)timing->stride + 1;
}

static void make_events(struct timing *timing)
{
    const size_t n = event_count(timing);
    for (int rank = timing->bench->first; rank < timing->bench->end; rank++) {
        timing->events[rank] = bench_must(calloc(n, sizeof(trib_event)));
        for (size_t i = 0; i < n; i++)
            BENCH_OK(trib_event_create(&timing->events[rank][i], timing->bench->device[rank]));
    }
}

static void drop_events(struct timing *timing)
{
    for (int rank = timing->bench->first; rank < timing->bench->end; rank++) {
        for (size_t i = 0; i < event_count(timing); i++)
            BENCH_OK(trib_event_destroy(timing->bench->device[rank], timing->events[rank][i]));
        free(timing->events[rank]);
    }
}

static double elapsed_us(const struct timing *timing, int rank, size_t i)
{
    const trib_event *around = &timing->events[rank][i * (size_t)timing->stride];
    float ms = 0;
    BENCH_OK(trib_event_elapsed(&ms, timing->bench->device[rank], around[0], around[1]));
    return (double)ms * 1e3;
}

static void read_events(const struct timing *timing, struct bench_result *result)
{
    const struct bench *bench = timing->bench;
    const size_t n = (size_t)timing->iterations;
    double *slowest = bench_must(calloc(n, sizeof(double)));
    double *fastest = bench_must(calloc(n, sizeof(double)));
    for (size_t i = 0; i < n; i++) {
        slowest[i] = fastest[i] = elapsed_us(timing, bench->first, i);
        for (int rank = bench->first + 1; rank < bench->end; rank++) {
            const double us = elapsed_us(timing, rank, i);
            slowest[i] = fmax(slowest[i], us);
            fastest[i] = fmin(fastest[i], us);
        }
    }
    bench_most(bench, slowest, n);
    bench_least(bench, fastest, n);
    result->device = bench_stats(slowest, n);
    result->least = bench_stats(fastest, n);
    free(slowest);
    free(fastest);
}

struct bench_result bench_time(const struct bench *bench, bench_body body, void *argument,
                               int warmup, int iterations)
{
    return bench_time_prepared(bench, NULL, body, argument, warmup, iterations);
}

struct bench_result bench_time_prepared(const struct bench *bench, bench_body prepare,
                                        bench_body body, void *argument, int warmup, int iterations)
{
    struct timing timing = {.bench = bench,
                            .prepare = prepare,
                            .body = body,
                            .argument = argument,
                            .warmup = warmup,
                            .iterations = iterations,
                            .stride = prepare == NULL ? 1 : 2};
    make_events(&timing);
    struct bench_result result = {.host = drive_all(&timing)};
    read_events(&timing, &result);
    drop_events(&timing);
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

struct symmetric {
    void **data;
    size_t bytes;
};

static void alloc_symmetric(const struct bench *bench, int rank, void *argument)
{
    const struct symmetric *symmetric = argument;
    BENCH_OK(trib_symmetric_alloc(&symmetric->data[rank], bench->comm[rank], symmetric->bytes));
}

void bench_alloc_symmetric(const struct bench *bench, void **out, size_t bytes)
{
    struct symmetric symmetric = {out, bytes};
    bench_on_threads(bench, alloc_symmetric, &symmetric);
}

static void free_symmetric(const struct bench *bench, int rank, void *data)
{
    BENCH_OK(trib_symmetric_free(bench->comm[rank], ((void **)data)[rank]));
}

void bench_free_symmetric(const struct bench *bench, void **data)
{
    bench_on_threads(bench, free_symmetric, data);
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
    printf("# tributary %u, backend %s (%u), %d ranks, one %s, beside %s\n", trib_version(),
           bench->backend, version, bench->ranks,
           bench->group            ? "thread for all"
           : bench_processes() > 1 ? "process per rank"
                                   : "thread per rank",
           bench->peer->name);
    printf("# microseconds; median and 99th percentile over the iterations of the maximum over the "
           "ranks\n");
}
