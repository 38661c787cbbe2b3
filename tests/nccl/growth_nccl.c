/* Does anything grow when communicators are made, used, and closed or aborted again and again? The
 * library, and beside it plain NCCL that does the same. By hand:
 *
 *   growth_nccl MODE [ROUNDS [EVERY [WINDOW_MS [GPUS]]]]
 *
 * MODE   close, abort: the library; plain-close, plain-abort: NCCL with its own calls
 * ROUNDS how many communicators, 200; EVERY: print a line after so many rounds, 20
 * WINDOW_MS  an abort comes at a random moment of so many ms after the ranks begin their first,
 *            connecting call, 100; 0: after all calls have run
 * GPUS   how many, all
 *
 * Every line: GPU memory in use on each device, threads, descriptors, resident memory. */
#define _POSIX_C_SOURCE 200809L
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/process.h"
#include "tributary.h"

enum { GPUS = 16, CALLS = 4, ELEMENTS = 1 << 20, QUIET_MS = 60000 };

static int gpus;
static unsigned int seed = 1;
static void *data[GPUS];
static cudaStream_t streams[GPUS];

static void must(bool good, const char *what)
{
    if (good)
        return;
    (void)fprintf(stderr, "growth_nccl: %s failed: %s\n", what, trib_last_detail());
    exit(1);
}

static void nap_us(long us)
{
    const struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    (void)nanosleep(&pause, NULL);
}

/* A random moment of the window, the same for every mode with the same number of rounds. */
static long moment_us(long window_ms)
{
    return window_ms == 0 ? 0 : (long)((double)rand_r(&seed) / RAND_MAX * (double)window_ms * 1000);
}

/* --------------------------------------------------------------------------------- a line */

static void report(int round)
{
    (void)printf("round %5d", round);
    for (int i = 0; i < gpus; i++) {
        size_t unused = 0, all = 0;
        must(cudaSetDevice(i) == cudaSuccess && cudaMemGetInfo(&unused, &all) == cudaSuccess,
             "asking for memory");
        (void)printf("  gpu%d %8.1f MB", i, (double)(all - unused) / 1048576);
    }
    (void)printf("  threads %3ld  descriptors %4ld  resident %7ld KB\n", process_threads(),
                 process_descriptors(), process_resident_kb());
    (void)fflush(stdout);
}

/* --------------------------------------------------------------------------------- ranks */

struct round {
    int rank;
    bool aborted; /* it will be */
    trib_comm *comm;
    ncclComm_t plain;
};

/* In an aborted round, calls may fail. */
static void *library_rank(void *argument)
{
    const struct round *round = argument;
    const int i = round->rank;
    const trib_tensor list[] = {{data[i], 1000, TRIB_F32, 0}};
    for (int call = 0; call < CALLS; call++) {
        const trib_status a =
            trib_allreduce(round->comm, data[i], data[i], ELEMENTS, TRIB_F32, TRIB_SUM, streams[i]);
        const trib_status b = trib_allreduce_list(round->comm, list, 1, TRIB_SUM, streams[i]);
        must(round->aborted || (a == TRIB_OK && b == TRIB_OK), "a collective");
    }
    (void)cudaStreamSynchronize(streams[i]);
    return NULL;
}

static void *plain_rank(void *argument)
{
    const struct round *round = argument;
    const int i = round->rank;
    must(cudaSetDevice(i) == cudaSuccess, "cudaSetDevice");
    for (int call = 0; call < 2 * CALLS; call++) {
        const size_t count = call % 2 == 0 ? ELEMENTS : 1000;
        const ncclResult_t result =
            ncclAllReduce(data[i], data[i], count, ncclFloat, ncclSum, round->plain, streams[i]);
        must(round->aborted || result == ncclSuccess, "ncclAllReduce");
        if (result != ncclSuccess)
            break;
    }
    (void)cudaStreamSynchronize(streams[i]);
    return NULL;
}

/* Start all ranks; at a random moment call `end_it`, if given; wait for all. */
static void run(void *(*rank)(void *), struct round *rounds, long window_ms,
                void (*end_it)(struct round *))
{
    pthread_t threads[GPUS];
    const bool early = end_it != NULL && window_ms > 0;
    for (int i = 0; i < gpus; i++) {
        rounds[i].aborted = early;
        must(pthread_create(&threads[i], NULL, rank, &rounds[i]) == 0, "pthread_create");
    }
    if (early) {
        nap_us(moment_us(window_ms));
        end_it(rounds);
    }
    for (int i = 0; i < gpus; i++)
        (void)pthread_join(threads[i], NULL);
    if (end_it != NULL && !early)
        end_it(rounds);
}

/* --------------------------------------------------------------------------------- the library */

static void library_abort(struct round *rounds)
{
    trib_abort *handle = NULL;
    must(trib_comm_abort_handle(&handle, rounds[0].comm) == TRIB_OK, "trib_comm_abort_handle");
    must(trib_abort_raise(handle, "growth") == TRIB_OK, "trib_abort_raise");
    trib_abort_release(handle);
}

static void library_round(bool aborts, long window_ms)
{
    struct round rounds[GPUS] = {{0}};
    trib_group *group = NULL;
    trib_comm *comms[GPUS];
    trib_options options = TRIB_OPTIONS_INIT;
    options.backend = "nccl";
    must(trib_group_create(&group, NULL, gpus, &options) == TRIB_OK, "trib_group_create");
    must(trib_group_split(comms, group) == TRIB_OK, "trib_group_split");
    for (int i = 0; i < gpus; i++)
        rounds[i] = (struct round){.rank = i, .comm = comms[i]};
    run(library_rank, rounds, window_ms, aborts ? library_abort : NULL);
    for (int i = 0; i < gpus; i++)
        must(trib_comm_destroy(comms[i]) == TRIB_OK, "trib_comm_destroy");
    must(trib_quiesce(QUIET_MS) == TRIB_OK, "trib_quiesce");
}

/* --------------------------------------------------------------------------------- plain NCCL */

/* All ranks in one group, as the library does: raise the flags, let the calls return, free at the
 * group's end. */
static void plain_abort(struct round *rounds)
{
    must(ncclGroupStart() == ncclSuccess, "ncclGroupStart");
    for (int i = 0; i < gpus; i++)
        must(ncclCommAbort(rounds[i].plain) == ncclSuccess, "ncclCommAbort");
}

static void plain_round(bool aborts, long window_ms)
{
    struct round rounds[GPUS] = {{0}};
    ncclComm_t comms[GPUS];
    ncclUniqueId id;
    must(ncclGetUniqueId(&id) == ncclSuccess, "ncclGetUniqueId");
    must(ncclGroupStart() == ncclSuccess, "ncclGroupStart");
    for (int i = 0; i < gpus; i++) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 1;
        must(cudaSetDevice(i) == cudaSuccess, "cudaSetDevice");
        must(ncclCommInitRankConfig(&comms[i], gpus, id, i, &config) == ncclSuccess, "an init");
    }
    must(ncclGroupEnd() == ncclSuccess, "ncclGroupEnd");
    for (int i = 0; i < gpus; i++)
        rounds[i] = (struct round){.rank = i, .plain = comms[i]};
    run(plain_rank, rounds, window_ms, aborts ? plain_abort : NULL);
    if (aborts)
        must(ncclGroupEnd() == ncclSuccess, "ncclGroupEnd of the abort");
    for (int i = 0; i < gpus && !aborts; i++)
        must(ncclCommDestroy(comms[i]) == ncclSuccess, "ncclCommDestroy");
}

/* --------------------------------------------------------------------------------- all of it */

static void prepare(void)
{
    for (int i = 0; i < gpus; i++)
        must(cudaSetDevice(i) == cudaSuccess &&
                 cudaMalloc(&data[i], ELEMENTS * sizeof(float)) == cudaSuccess &&
                 cudaMemset(data[i], 0, ELEMENTS * sizeof(float)) == cudaSuccess &&
                 cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking) == cudaSuccess,
             "preparing a device");
}

static long number(char **arguments, int n, int at, long otherwise)
{
    return at < n ? strtol(arguments[at], NULL, 10) : otherwise;
}

int main(int n, char **arguments)
{
    static const char *const modes[] = {"close", "abort", "plain-close", "plain-abort"};
    int mode = 0, found = 0;
    while (mode < 4 && (n < 2 || strcmp(arguments[1], modes[mode]) != 0))
        mode++;
    if (mode == 4) {
        (void)fprintf(stderr, "usage: growth_nccl close|abort|plain-close|plain-abort "
                              "[ROUNDS [EVERY [WINDOW_MS [GPUS]]]]\n");
        return 2;
    }
    const long rounds = number(arguments, n, 2, 200), every = number(arguments, n, 3, 20);
    const long window_ms = number(arguments, n, 4, 100);
    must(cudaGetDeviceCount(&found) == cudaSuccess && found >= 2, "finding two GPUs");
    gpus = (int)number(arguments, n, 5, found > GPUS ? GPUS : found);
    must(rounds > 0 && every > 0 && window_ms >= 0 && gpus >= 2 && gpus <= found && gpus <= GPUS,
         "understanding the numbers");
    prepare();
    (void)printf("%s, %d GPUs, aborts within %ld ms\n", modes[mode], gpus, window_ms);
    report(0);
    for (int round = 1; round <= rounds; round++) {
        (mode < 2 ? library_round : plain_round)(mode % 2 == 1, window_ms);
        if (round == 1 || round % every == 0)
            report(round);
    }
    return 0;
}
