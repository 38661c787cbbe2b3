/* Shared by the programs of this folder: ranks and their threads, timing, the peer beside us.
 *
 * The ranks are threads of this process, or each has a process of its own (bench_fork). Of what is
 * kept by rank a process has that of its own ranks; results are those of all.
 *
 * A body is what a thread queues for its rank, or for all ranks where one thread drives them. It is
 * timed on the device, by events around each iteration, and on the host, by the clock around the
 * enqueueing. A row's samples are, for each iteration, the maximum over the ranks. */
#ifndef TRI_BENCHES_BENCH_H
#define TRI_BENCHES_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "tributary.h"

enum { BENCH_MAX_RANKS = 64 };

/* In place of a rank: all of them, from the one thread that drives them. */
enum { BENCH_ALL = -1 };

struct bench_call; /* collective.h */
struct bench_peer;
struct bench_graphs;  /* graph.h */
struct bench_meeting; /* processes.h */

/* Everything that is set up once per run. */
struct bench {
    const char *backend;
    int ranks;
    int first, end;    /* the ranks of this process: from the first on, and before the end */
    int threads;       /* of all processes: `ranks`, one each, or 1 that drives all */
    trib_group *group; /* where one thread drives all ranks; else NULL, and comm is set */
    trib_comm *comm[BENCH_MAX_RANKS]; /* by rank, as the next two */
    trib_device *device[BENCH_MAX_RANKS];
    trib_stream stream[BENCH_MAX_RANKS];
    const struct bench_peer *peer;
    void *peer_state;
    const struct bench_graphs *graphs; /* NULL: nothing captures the streams of this backend */
    struct bench_meeting *meeting;
};

/* The same work without Tributary, on the same streams, with the same buffers. */
struct bench_peer {
    const char *name; /* the column's heading */
    void *(*open)(const struct bench *bench);
    void (*close)(void *state);
    /* Queue the peer's form of `calls[rank]`, or of all ranks' calls for BENCH_ALL. */
    void (*run)(const struct bench *bench, int rank, const struct bench_call *calls);
    /* NULL, or: queue an allreduce (sum, in place) of `n` f32 tensors, `grouped` into one or not.
     * Of one rank. */
    void (*run_list)(const struct bench *bench, int rank, const trib_tensor *tensors, size_t n,
                     bool grouped);
};

/* Median, 99th percentile and minimum of samples in microseconds. */
struct bench_stats {
    double median, p99, min;
};

struct bench_result {
    struct bench_stats device; /* time between events, maximum over the ranks */
    struct bench_stats
        least;   /* the same, minimum: of the rank that comes last, for which the others
                                * wait */
    double host; /* microseconds in one body, mean, maximum over the threads */
};

/* End the program without success. One process of several runs no handlers of exit: CUDA's may wait
 * for what waits for the other ranks. */
__attribute__((noreturn)) void bench_fail(void);

/* Print the failure and exit, unless `status` is TRIB_OK. */
#define BENCH_OK(call) bench_ok((call), #call)
void bench_ok(trib_status status, const char *call);

/* `memory`, unless it is NULL: then say so and exit. */
void *bench_must(void *memory);

/* Before the program uses the library or CUDA: become a process for each rank (bench_split, in
 * processes.h). Returns their number, which benches are then opened with. `backend` and `ranks` are
 * as below; one line says what is invalid. */
int bench_fork(const char *backend, int ranks);

/* `backend` NULL: the best that has a device. `ranks` 0: all devices of nccl, 2 of host.
 * `threads` 1: one thread drives all ranks, through `group`; 0 or `ranks`: a thread each. */
void bench_open(struct bench *bench, const char *backend, int ranks, int threads, uint32_t flags);
/* The same with options of the communicators, all but the backend. */
void bench_open_with(struct bench *bench, const char *backend, int ranks, int threads,
                     const trib_options *with);
void bench_close(struct bench *bench);

/* `rank` is BENCH_ALL where one thread drives all ranks. */
typedef void (*bench_body)(const struct bench *bench, int rank, void *argument);

/* Run `body` once on a thread for each rank, or on one for all, until all have returned, those of
 * other processes too. */
void bench_on_threads(const struct bench *bench, bench_body body, void *argument);
/* The ranks that `rank` of a body means: from the first on, and before the end. */
int bench_first(int rank);
int bench_end(const struct bench *bench, int rank);
/* Until their streams have run. */
void bench_wait(const struct bench *bench, int rank);

/* Run `body` for all ranks, in threads of their own: `warmup` times untimed, `iterations` times
 * timed. */
struct bench_result bench_time(const struct bench *bench, bench_body body, void *argument,
                               int warmup, int iterations);

/* The same, and `prepare` queues something untimed before each body. */
struct bench_result bench_time_prepared(const struct bench *bench, bench_body prepare,
                                        bench_body body, void *argument, int warmup,
                                        int iterations);

/* Is `name` one of the names, with commas between, in `list`; or is that "all"? */
bool bench_in_list(const char *list, const char *name);

/* Microseconds of the monotonic clock. */
double bench_now_us(void);

/* Sorts `samples`. */
struct bench_stats bench_stats(double *samples, size_t n);

/* Memory of rank `rank`'s device. */
void *bench_alloc(const struct bench *bench, int rank, size_t bytes);
void bench_free(const struct bench *bench, int rank, void *data);
/* Symmetric memory of all ranks, out[rank]; each has a thread. */
void bench_alloc_symmetric(const struct bench *bench, void **out, size_t bytes);
void bench_free_symmetric(const struct bench *bench, void **data);
/* Copy to or from host memory, and wait. */
void bench_copy(const struct bench *bench, int rank, void *dst, const void *src, size_t bytes);

/* One line about the machine: backend, its version, ranks, threads or processes, peer. */
void bench_print_setting(const struct bench *bench);

#endif
