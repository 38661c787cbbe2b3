/* Two processes, and a side channel that is slow: one rank aborts while its calls wait for the other, whose
 * process hears of it only DELAY_MS later and makes its own calls before that. Neither what NCCL's kernel hands
 * on when an abort interrupts it, nor what is queued behind a call that the first rank has refused, may reach the
 * tensors there: lists that have been committed have the sums of both ranks, one behind the other, and of sparse
 * calls at most one is applied by one rank alone. Over each path that NCCL has inside a host; if the processes
 * share a GPU, over sockets. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nccl/apart.h"
#include "tests/peers/delay.h"

enum {
    TRIALS = 3,
    AHEAD = 3, /* calls that each rank queues */
    DELAY_MS = 20,
    SOON_MS = 10000,
    MEANWHILE_MS = 10, /* longer than a kernel of NCCL's takes to see an abort */
    CASE_MS = 60000
};

/* What the processes of one trial share. */
struct trial {
    const struct apart_path *path;
    size_t count;
    const char *algorithm; /* NULL: lists */
    struct apart apart;
    _Atomic int connected, raised, done;
    uint64_t applied[2]; /* sparse calls, of each rank */
};

/* ------------------------------------------------------------------------------------- one rank */

struct torn {
    struct apart_rank rank;
    trib_sparse *sparse;
    void *result;
};

static trib_status add(const struct torn *torn, const struct trial *trial)
{
    const struct apart_rank *rank = &torn->rank;
    if (trial->algorithm != NULL)
        return trib_sparse_allreduce(torn->sparse, rank->data, torn->result, rank->stream);
    const trib_tensor tensor = {.data = rank->data, .count = trial->count, .dtype = TRIB_F32};
    return trib_allreduce_list(rank->comm, &tensor, 1, TRIB_SUM, rank->stream);
}

/* Each rank begins with ones, so what `n` lists have written is 2^n. */
static void check_lists(const struct apart_rank *rank, const struct trial *trial)
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

static void note_applied(const struct torn *torn, struct trial *trial)
{
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    CHECK_OK(trib_sparse_statistics_get(&statistics, torn->sparse));
    trial->applied[torn->rank.rank] = statistics.calls_applied;
}

static void fill(const struct torn *torn, const struct trial *trial)
{
    float *ones = malloc(trial->count * sizeof *ones);
    for (size_t i = 0; i < trial->count; i++)
        ones[i] = 1;
    CHECK_OK(trib_device_copy(torn->rank.device, torn->rank.data, ones, trial->count * sizeof *ones,
                              torn->rank.stream));
    CHECK_OK(trib_stream_wait(torn->rank.device, torn->rank.stream));
    free(ones);
}

static bool begin(struct torn *torn, struct trial *trial, int index)
{
    trib_options options = TRIB_OPTIONS_INIT;
    trib_sparse_options sparse = TRIB_SPARSE_OPTIONS_INIT;
    options.peer_bytes = TRIB_NO_PEERS;
    sparse.algorithm = trial->algorithm;
    apart_take(trial->path);
    delay_aborts(DELAY_MS);
    if (!apart_open(&torn->rank, &trial->apart, index, &options))
        return false;
    fill(torn, trial);
    if (trial->algorithm != NULL &&
        (!CHECK_OK(
             trib_device_alloc(&torn->result, torn->rank.device, trial->count * sizeof(float))) ||
         !CHECK_OK(
             trib_sparse_create(&torn->sparse, torn->rank.comm, trial->count, TRIB_F32, &sparse))))
        return false;
    return CHECK_OK(add(torn, trial)) &&
           CHECK_OK(trib_stream_wait(torn->rank.device, torn->rank.stream));
}

static void add_some(const struct torn *torn, const struct trial *trial)
{
    for (int i = 0; i < AHEAD; i++) {
        const trib_status status = add(torn, trial);
        CHECK(status == TRIB_OK || status == TRIB_ERR_ABORTED);
    }
}

static void abort_early(const struct torn *torn, struct trial *trial)
{
    trib_abort *handle = NULL;
    add_some(torn, trial);
    check_sleep_ms(1);
    CHECK_OK(trib_comm_abort_handle(&handle, torn->rank.comm));
    atomic_store(&trial->raised, 1);
    CHECK_OK(trib_abort_raise(handle, "a rank gives up"));
    trib_abort_release(handle);
}

static void call_late(const struct torn *torn, struct trial *trial)
{
    while (atomic_load(&trial->raised) == 0)
        check_sleep_ms(0);
    check_sleep_ms(MEANWHILE_MS);
    add_some(torn, trial);
}

static void end(struct torn *torn)
{
    const double end = check_now_ms() + SOON_MS;
    while (trib_comm_status(torn->rank.comm) == TRIB_OK && check_now_ms() < end)
        check_sleep_ms(1);
    CHECK_STATUS(trib_comm_status(torn->rank.comm), TRIB_ERR_ABORTED);
    if (torn->sparse != NULL) {
        CHECK_OK(trib_sparse_destroy(torn->sparse));
        CHECK_OK(trib_device_free(torn->rank.device, torn->result));
    }
    apart_close(&torn->rank);
}

static void process(int index, int n, void *argument)
{
    struct trial *trial = argument;
    struct torn torn = {.sparse = NULL};
    if (!begin(&torn, trial, index))
        return;
    children_meet(&trial->connected, n);
    if (index == 0)
        abort_early(&torn, trial);
    else
        call_late(&torn, trial);
    CHECK_OK(trib_stream_wait(torn.rank.device, torn.rank.stream));
    if (trial->algorithm == NULL)
        check_lists(&torn.rank, trial);
    else
        note_applied(&torn, trial);
    children_meet(&trial->done, n);
    end(&torn);
}

/* ----------------------------------------------------------------------------------------- cases */

static void run_case(const struct apart_path *path, const char *algorithm, size_t count, int gpus)
{
    bool late = false; /* was a call of the other rank applied before it heard? */
    check_begin("an abort over %s, %s of %zu elements", path->name,
                algorithm == NULL ? "lists" : algorithm, count);
    for (int i = 0; i < TRIALS && !check_failed(); i++) {
        struct trial *trial = children_share(sizeof *trial);
        trial->path = path;
        trial->algorithm = algorithm;
        trial->count = count;
        trial->apart.gpus = gpus;
        children_run_all(2, CASE_MS, process, trial);
        const unsigned long long first = trial->applied[0], other = trial->applied[1];
        CHECK_MSG(other <= first + 1, "rank 0 has applied %llu calls, and rank 1 %llu", first,
                  other);
        late = late || other > first;
        children_unshare(trial, sizeof *trial);
    }
    CHECK_MSG(algorithm == NULL || late, "rank 1 never calls before it hears");
    check_end();
}

int main(void)
{
    static const struct {
        const char *algorithm;
        size_t count;
    } rows[] = {{NULL, 256},
                {NULL, 64 << 10},
                {NULL, APART_ELEMENTS},
                {"topka", 1 << 20},
                {"shared", 1 << 20}};
    const int gpus = share_gpus();
    if (gpus == 0)
        check_skip("nccl: there is no GPU");
    for (size_t i = 0; gpus != 0 && i < APART_PATHS; i++) {
        if (gpus < 2 && !apart_paths[i].sockets) {
            check_skip("nccl: %s needs 2 GPUs: there is 1", apart_paths[i].name);
            continue;
        }
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            run_case(&apart_paths[i], rows[r].algorithm, rows[r].count, gpus);
    }
    return check_finish("torn_nccl_test");
}
