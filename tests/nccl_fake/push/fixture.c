/* Ranks whose small calls push serves, through the whole library over the fake. */
#include "tests/nccl_fake/push/fixture.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/half.h"
#include "csrc/base/size.h"
#include "tests/nccl_fake/fake_kernels.h"
#include "tests/own_backend.h"

extern const struct tri_backend tri_backend_nccl;
extern const struct tri_kernels tri_kernels_cuda;

/* ------------------------------------------------------------------------------------ the cases */

static int events, blocks, mappings;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static int allocations;
static unsigned long allocated;
static struct refusals {
    int n;
    char last[256];
} all_calls, large_calls;

static void refuse(struct refusals *refusals, const char *line, const char *words)
{
    if (strstr(line, words) == NULL)
        return;
    refusals->n++;
    (void)strncpy(refusals->last, line, sizeof refusals->last - 1);
}

static void take_line(void *context, int32_t level, const char *line)
{
    (void)context;
    if (level != TRIB_LOG_INFO)
        return;
    pthread_mutex_lock(&log_lock);
    if (strstr(line, "by which they reach each other") != NULL) {
        allocations++;
        allocated = strtoul(strpbrk(line, "0123456789"), NULL, 10);
    }
    refuse(&all_calls, line, "NCCL serves all calls");
    refuse(&large_calls, line, "NCCL serves the large calls");
    pthread_mutex_unlock(&log_lock);
}

static int count_refusals(const struct refusals *refusals, const char *words)
{
    pthread_mutex_lock(&log_lock);
    const int n = refusals->n;
    CHECK_MSG(n == 0 || words == NULL || strstr(refusals->last, words) != NULL, "the log says: %s",
              refusals->last);
    pthread_mutex_unlock(&log_lock);
    return n;
}

int push_refusals(const char *words)
{
    return count_refusals(&all_calls, words);
}

int push_large_refusals(const char *words)
{
    return count_refusals(&large_calls, words);
}

int push_allocations(void)
{
    pthread_mutex_lock(&log_lock);
    const int n = allocations;
    pthread_mutex_unlock(&log_lock);
    return n;
}

unsigned long push_allocated(void)
{
    pthread_mutex_lock(&log_lock);
    const unsigned long bytes = allocated;
    pthread_mutex_unlock(&log_lock);
    return bytes;
}

/* Sparse kernels do not wait for the streams: what others have sent, or a sum, may be on its way. */
static trib_status select_nothing(const struct tri_accumulator *acc,
                                  const struct tri_selection *selection,
                                  const struct tri_entries *out, void *scratch, trib_stream stream)
{
    (void)acc;
    (void)selection;
    (void)out;
    (void)scratch;
    (void)stream;
    return TRIB_OK;
}

static trib_status merge_nothing(const struct tri_merge *merge, const struct tri_result *out,
                                 void *scratch, trib_stream stream)
{
    (void)merge;
    (void)out;
    (void)scratch;
    (void)stream;
    return TRIB_OK;
}

static trib_status decide_nothing(const struct tri_decide *decide, trib_stream stream)
{
    (void)stream;
    *decide->decision = 0;
    *decide->outcome = TRI_OUTCOME_NONE;
    return TRIB_OK;
}

/* What the library keeps for ever is there before the first case. */
static void set_up(void)
{
    static struct tri_kernels kernels;
    static struct tri_sparse_kernels sparse;
    trib_comm *comm = NULL;
    trib_id id;
    kernels = tri_kernels_cuda;
    kernels.forget = tri_kernels_cpu.forget;
    sparse = *tri_kernels_cpu.sparse;
    sparse.select = select_nothing;
    sparse.merge_dense = merge_nothing;
    sparse.decide = decide_nothing;
    kernels.sparse = &sparse;
    backend = tri_backend_nccl;
    backend.kernels = &kernels;
    CHECK_OK(trib_log_set(take_line, NULL, TRIB_LOG_INFO));
    CHECK_OK(trib_id_create(&id, "nccl"));
    CHECK_OK(trib_comm_create(&comm, &id, 0, 1, 0, NULL));
    CHECK_OK(trib_comm_destroy(comm));
    CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
}

void push_begin(const char *name)
{
    check_begin("push over a fake: %s", name);
    if (backend.name == NULL)
        set_up();
    fake_reach(true, true);
    pthread_mutex_lock(&log_lock);
    all_calls.n = large_calls.n = 0;
    pthread_mutex_unlock(&log_lock);
    events = fake_events();
    blocks = fake_blocks();
    mappings = fake_mappings();
}

void push_keep(int kept_mappings, int kept_blocks)
{
    mappings += kept_mappings;
    blocks += kept_blocks;
}

void push_end(void)
{
    CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
    CHECK_MSG(fake_communicators() == 0, "%d communicators are not freed", fake_communicators());
    CHECK_MSG(fake_mappings() == mappings, "%d mappings and what they need are left",
              fake_mappings() - mappings);
    CHECK_MSG(fake_events() == events, "%d events are left", fake_events() - events);
    CHECK_MSG(fake_blocks() == blocks, "%d blocks are left", fake_blocks() - blocks);
    CHECK_MSG(fake_freed_early() == 0, "%d communicators are freed early", fake_freed_early());
    CHECK_MSG(fake_spoiled() == 0, "%d calls spoil a capture", fake_spoiled());
    check_end();
}

/* ------------------------------------------------------------------------------------ the ranks */

static bool prepare(struct push_ranks *ranks, int size, size_t bytes)
{
    bool good = true;
    memset(ranks, 0, sizeof *ranks);
    ranks->size = size;
    for (int rank = 0; rank < size && good; rank++)
        good = CHECK_OK(trib_device_get(&ranks->devices[rank], "nccl", rank)) &&
               CHECK_OK(trib_stream_create(&ranks->streams[rank], ranks->devices[rank])) &&
               CHECK_OK(trib_device_alloc(&ranks->data[rank], ranks->devices[rank], bytes));
    return good;
}

bool push_open(struct push_ranks *ranks, int size, size_t bytes, const trib_options *options)
{
    trib_group *group = NULL;
    trib_options named = TRIB_OPTIONS_INIT;
    named.peer_bytes = PUSH_LITTLE;
    if (options != NULL)
        named = *options;
    named.backend = "nccl";
    const bool good = prepare(ranks, size, bytes) &&
                      CHECK_OK(trib_group_create(&group, NULL, size, &named)) &&
                      CHECK_OK(trib_group_split(ranks->comms, group));
    (void)push_counts(ranks, -1, -1);
    return good;
}

void push_destroy(const struct push_ranks *ranks)
{
    for (int rank = 0; rank < ranks->size; rank++)
        CHECK_OK(trib_comm_destroy(ranks->comms[rank]));
}

void push_drop(struct push_ranks *ranks)
{
    for (int rank = 0; rank < ranks->size; rank++) {
        CHECK_OK(trib_device_free(ranks->devices[rank], ranks->data[rank]));
        CHECK_OK(trib_stream_destroy(ranks->devices[rank], ranks->streams[rank]));
    }
}

void push_close(struct push_ranks *ranks)
{
    push_destroy(ranks);
    push_drop(ranks);
}

bool push_counts(struct push_ranks *ranks, long nccl, long pushes)
{
    return served_since(&ranks->served, nccl, pushes);
}

/* ------------------------------------------------------------------------------------- the data */

static void put(void *data, trib_dtype dtype, size_t i, double x)
{
    switch (dtype) {
    case TRIB_F16:
        ((uint16_t *)data)[i] = tri_f32_to_f16((float)x);
        break;
    case TRIB_F32:
        ((float *)data)[i] = (float)x;
        break;
    case TRIB_F64:
        ((double *)data)[i] = x;
        break;
    default:
        ((int32_t *)data)[i] = (int32_t)x;
        break;
    }
}

/* The numbers of a buffer are those of a block, again and again: `times` 1 to PERIOD. Exact in every type, and so are
 * sums of eight ranks, each with its number, from 1, times that. Blocks make fewer accesses for a sanitizer. */
enum { PERIOD = 5, BLOCK = 200 * PERIOD };

struct block {
    _Alignas(double) char bytes[BLOCK * sizeof(double)];
};

/* For `count` elements, which may need but a part of it. */
static void make_block(struct block *out, trib_dtype dtype, size_t count, double times)
{
    for (size_t i = 0; i < tri_least(BLOCK, count); i++)
        put(out->bytes, dtype, i, times * (double)(i % PERIOD + 1));
}

void push_fill_rank(const struct push_ranks *ranks, int rank, trib_dtype dtype, size_t count)
{
    const size_t width = trib_dtype_size(dtype);
    char *data = ranks->data[rank];
    struct block block;
    make_block(&block, dtype, count, rank + 1);
    for (size_t i = 0; i < count; i += BLOCK)
        memcpy(data + i * width, block.bytes, tri_least(BLOCK, count - i) * width);
}

void push_fill(const struct push_ranks *ranks, trib_dtype dtype, size_t count)
{
    for (int rank = 0; rank < ranks->size; rank++)
        push_fill_rank(ranks, rank, dtype, count);
}

bool push_holds(const struct push_ranks *ranks, int rank, trib_dtype dtype, size_t count,
                double times)
{
    const size_t width = trib_dtype_size(dtype);
    const char *data = ranks->data[rank];
    struct block wanted;
    make_block(&wanted, dtype, count, times * ranks->size * (ranks->size + 1) / 2);
    for (size_t i = 0; i < count; i += BLOCK) {
        const size_t n = tri_least(BLOCK, count - i);
        if (memcmp(data + i * width, wanted.bytes, n * width) != 0)
            return CHECK_MSG(false, "rank %d, elements %zu to %zu of %zu", rank, i, i + n - 1,
                             count);
    }
    return true;
}

bool push_summed(const struct push_ranks *ranks, trib_dtype dtype, size_t count)
{
    bool good = true;
    for (int rank = 0; rank < ranks->size; rank++)
        good = CHECK_OK(trib_comm_wait(ranks->comms[rank], ranks->streams[rank], PUSH_PLENTY_MS)) &&
               push_holds(ranks, rank, dtype, count, 1) && good;
    return good;
}

trib_status push_sum(const struct push_ranks *ranks, int rank, size_t count, trib_dtype dtype)
{
    return trib_allreduce(ranks->comms[rank], ranks->data[rank], ranks->data[rank], count, dtype,
                          TRIB_SUM, ranks->streams[rank]);
}

void push_sum_on(struct push_ranks *ranks, int rank, trib_stream stream)
{
    const trib_stream own = ranks->streams[rank];
    ranks->streams[rank] = stream;
    CHECK_OK(push_sum(ranks, rank, PUSH_N, TRIB_F32));
    ranks->streams[rank] = own;
}

bool push_works(const struct push_ranks *ranks)
{
    bool good = true;
    push_fill(ranks, TRIB_F32, PUSH_N);
    for (int rank = 0; rank < ranks->size; rank++)
        good = CHECK_OK(push_sum(ranks, rank, PUSH_N, TRIB_F32)) && good;
    return push_summed(ranks, TRIB_F32, PUSH_N) && good;
}

void push_each(struct push_ranks *ranks, void (*body)(int rank, int size, void *ranks))
{
    check_ranks(ranks->size, body, ranks);
}

void push_call_rank(int rank, int size, void *argument)
{
    const struct push_ranks *ranks = argument;
    (void)size;
    CHECK_OK(push_sum(ranks, rank, PUSH_N, TRIB_F32));
    CHECK_OK(trib_comm_wait(ranks->comms[rank], ranks->streams[rank], PUSH_PLENTY_MS));
}

bool push_is_done(const struct push_ranks *ranks, int rank)
{
    int32_t done = 0;
    CHECK_OK(trib_stream_query(&done, ranks->devices[rank], ranks->streams[rank]));
    return done != 0;
}
