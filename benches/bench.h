/* What the programs of this folder share: ranks as threads, timing, the peer measured beside us.
 *
 * A body is what one rank queues on its stream. It is timed on the device, by events around each
 * iteration, and on the host, by the clock around the enqueueing. A row's samples are, for each
 * iteration, the maximum over the ranks. */
#ifndef TRI_BENCHES_BENCH_H
#define TRI_BENCHES_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "tributary.h"

enum { BENCH_MAX_RANKS = 64 };

struct bench_call; /* collective.h */
struct bench_peer;

/* Everything that is set up once a run. */
struct bench {
    const char *backend;
    int ranks;
    trib_device *device[BENCH_MAX_RANKS];
    trib_comm *comm[BENCH_MAX_RANKS];
    trib_stream stream[BENCH_MAX_RANKS];
    const struct bench_peer *peer;
    void *peer_state;
};

/* What a user would do without us, on the same streams, with the same buffers. */
struct bench_peer {
    const char *name; /* the column's heading */
    void *(*open)(const struct bench *bench);
    void (*close)(void *state);
    /* Queue the peer's form of `rank`'s call. False if it has none. */
    bool (*run)(const struct bench *bench, int rank, const struct bench_call *call);
    /* NULL, or: queue an allreduce (sum, in place) of `n` f32 tensors, `grouped` into one or not. */
    void (*run_list)(const struct bench *bench, int rank, const trib_tensor *tensors, size_t n,
                     bool grouped);
};

/* Median, 99th percentile and minimum of samples in microseconds. */
struct bench_stats {
    double median, p99, min;
};

struct bench_result {
    struct bench_stats device; /* time between events, maximum over the ranks */
    double host;               /* microseconds to queue one call, mean, maximum over the ranks */
};

/* Print the failure and exit, unless `status` is TRIB_OK. */
#define BENCH_OK(call) bench_ok((call), #call)
void bench_ok(trib_status status, const char *call);

/* `ranks` 0: all devices of nccl, 2 of host. `backend` NULL: the best that has a device. */
void bench_open(struct bench *bench, const char *backend, int ranks, uint32_t flags);
void bench_close(struct bench *bench);

typedef void (*bench_body)(const struct bench *bench, int rank, void *argument);

/* Run `body` on all ranks: `warmup` times untimed, `iterations` times timed. */
struct bench_result bench_time(const struct bench *bench, bench_body body, void *argument,
                               int warmup, int iterations);

/* Sorts `samples`. */
struct bench_stats bench_stats(double *samples, size_t n);

/* Memory of rank `rank`'s device. */
void *bench_alloc(const struct bench *bench, int rank, size_t bytes);
void bench_free(const struct bench *bench, int rank, void *data);
/* Copy to or from host memory, and wait. */
void bench_copy(const struct bench *bench, int rank, void *dst, const void *src, size_t bytes);

/* One line about the machine: backend, its version, ranks, peer. */
void bench_print_setting(const struct bench *bench);

#endif
