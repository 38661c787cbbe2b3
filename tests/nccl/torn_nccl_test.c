/* Two processes, and a side channel that is slow: one rank aborts while its list waits for the other, whose
 * process hears of it only DELAY_MS later and makes its own call before that. What NCCL's kernel hands on when
 * an abort interrupts it must not reach the tensors there: a list that has been committed has the sums of both
 * ranks. Over each path that NCCL has inside a host; if the processes share a GPU, over sockets. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nccl/apart.h"
#include "tests/peers/delay.h"

enum {
    TRIALS = 3,
    DELAY_MS = 20,
    SOON_MS = 10000,
    MEANWHILE_MS = 10, /* longer than a kernel of NCCL's takes to see an abort */
    CASE_MS = 60000
};

/* What the processes of one trial share. */
struct trial {
    const struct apart_path *path;
    size_t count;
    struct apart apart;
    _Atomic int connected, raised, done;
};

/* ------------------------------------------------------------------------------------- one rank */

static trib_status add(const struct apart_rank *rank, const struct trial *trial)
{
    const trib_tensor tensor = {.data = rank->data, .count = trial->count, .dtype = TRIB_F32};
    return trib_allreduce_list(rank->comm, &tensor, 1, TRIB_SUM, rank->stream);
}

/* Each rank begins with ones, so what `n` lists have written is 2^n. */
static void check_whole(const struct apart_rank *rank, const struct trial *trial)
{
    const size_t bytes = trial->count * sizeof(float);
    float *found = malloc(bytes);
    trib_counters counters = TRIB_COUNTERS_INIT;
    size_t wrong = 0;
    CHECK_OK(trib_comm_counters(&counters, rank->comm));
    CHECK_OK(trib_device_copy(rank->device, found, rank->data, bytes, rank->stream));
    CHECK_OK(trib_stream_wait(rank->device, rank->stream));
    const float expected = (float)(1u << counters.lists_committed);
    for (size_t i = 0; i < trial->count; i++)
        wrong += found[i] != expected;
    CHECK_MSG(wrong == 0, "rank %d: %zu of %zu elements are not %g after %llu lists", rank->rank,
              wrong, trial->count, (double)expected, (unsigned long long)counters.lists_committed);
    free(found);
}

static bool begin(struct apart_rank *rank, struct trial *trial, int index)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.peer_bytes = TRIB_NO_PEERS;
    apart_take(trial->path);
    delay_aborts(DELAY_MS);
    if (!apart_open(rank, &trial->apart, index, &options))
        return false;
    float *ones = malloc(trial->count * sizeof *ones);
    for (size_t i = 0; i < trial->count; i++)
        ones[i] = 1;
    CHECK_OK(trib_device_copy(rank->device, rank->data, ones, trial->count * sizeof *ones,
                              rank->stream));
    CHECK_OK(add(rank, trial));
    const bool whole = CHECK_OK(trib_stream_wait(rank->device, rank->stream));
    free(ones);
    return whole;
}

static void abort_early(const struct apart_rank *rank, struct trial *trial)
{
    trib_abort *handle = NULL;
    CHECK_OK(add(rank, trial));
    check_sleep_ms(1);
    CHECK_OK(trib_comm_abort_handle(&handle, rank->comm));
    atomic_store(&trial->raised, 1);
    CHECK_OK(trib_abort_raise(handle, "a rank gives up"));
    trib_abort_release(handle);
}

static void call_late(const struct apart_rank *rank, struct trial *trial)
{
    while (atomic_load(&trial->raised) == 0)
        check_sleep_ms(0);
    check_sleep_ms(MEANWHILE_MS);
    const trib_status status = add(rank, trial);
    CHECK(status == TRIB_OK || status == TRIB_ERR_ABORTED);
}

static void process(int index, int n, void *argument)
{
    struct trial *trial = argument;
    struct apart_rank rank = {.comm = NULL};
    if (!begin(&rank, trial, index))
        return;
    children_meet(&trial->connected, n);
    if (index == 0)
        abort_early(&rank, trial);
    else
        call_late(&rank, trial);
    CHECK_OK(trib_stream_wait(rank.device, rank.stream));
    check_whole(&rank, trial);
    children_meet(&trial->done, n);
    const double end = check_now_ms() + SOON_MS;
    while (trib_comm_status(rank.comm) == TRIB_OK && check_now_ms() < end)
        check_sleep_ms(1);
    CHECK_STATUS(trib_comm_status(rank.comm), TRIB_ERR_ABORTED);
    apart_close(&rank);
}

/* ----------------------------------------------------------------------------------------- cases */

static void run_case(const struct apart_path *path, size_t count, int gpus)
{
    check_begin("an abort over %s, %zu elements", path->name, count);
    for (int i = 0; i < TRIALS && !check_failed(); i++) {
        struct trial *trial = children_share(sizeof *trial);
        trial->path = path;
        trial->count = count;
        trial->apart.gpus = gpus;
        children_run_all(2, CASE_MS, process, trial);
        children_unshare(trial, sizeof *trial);
    }
    check_end();
}

int main(void)
{
    static const size_t counts[] = {256, 64 << 10, APART_ELEMENTS};
    const int gpus = share_gpus();
    if (gpus == 0)
        check_skip("nccl: there is no GPU");
    for (size_t i = 0; gpus != 0 && i < APART_PATHS; i++) {
        if (gpus < 2 && !apart_paths[i].sockets) {
            check_skip("nccl: %s needs 2 GPUs: there is 1", apart_paths[i].name);
            continue;
        }
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            run_case(&apart_paths[i], counts[c], gpus);
    }
    return check_finish("torn_nccl_test");
}
