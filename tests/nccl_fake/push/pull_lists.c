/* Lists whose bucket pull serves: it packs them itself, from the second call of a list on. */
#include <string.h>

#include "tests/nccl_fake/fake_kernels.h"
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum { RANKS = 3, FIRST = 5, SECOND = 100001, MOST = 2600 };

/* How many ranks of pulls have packed, and tables have been written, since the last time. */
struct packed {
    long ranks;
    int written;
};

static struct packed before;

static struct packed packed_now(void)
{
    return (struct packed){fake_pulls().packed, fake_tables().written};
}

static bool packed(long ranks, int written)
{
    const struct packed now = packed_now();
    const struct packed since = {now.ranks - before.ranks, now.written - before.written};
    before = now;
    return CHECK_MSG(since.ranks == ranks && since.written == written,
                     "%ld ranks have packed, expected %ld; %d tables, expected %d", since.ranks,
                     ranks, since.written, written);
}

/* All of the rank's LARGE_N elements, as `n` tensors, at least 3. */
static void list_of(const struct push_ranks *ranks, int rank, trib_tensor *list, size_t n)
{
    float *data = ranks->data[rank];
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t left = LARGE_N - at;
        const size_t count = i == 0 ? FIRST : i == 1 ? SECOND : i + 1 < n ? 7 : left;
        list[i] = (trib_tensor){data + at, count, TRIB_F32, 0};
        at += count;
    }
}

static void sum_list(const struct push_ranks *ranks, int rank, size_t n)
{
    trib_tensor list[MOST];
    list_of(ranks, rank, list, n);
    CHECK_OK(trib_allreduce_list(ranks->comms[rank], list, n, TRIB_SUM, ranks->streams[rank]));
}

/* Of all ranks, by this thread; pull serves them, and they are right. */
static bool list_works(struct push_ranks *ranks, size_t n)
{
    push_fill(ranks, TRIB_F32, LARGE_N);
    for (int rank = 0; rank < RANKS; rank++)
        sum_list(ranks, rank, n);
    return push_summed(ranks, TRIB_F32, LARGE_N) && large_counts(ranks, 0, 0, 1, 0);
}

static bool begin(struct push_ranks *ranks, const char *name)
{
    push_begin(name);
    if (!large_open(ranks, RANKS, LARGE_ROOM))
        return false;
    before = packed_now();
    return true;
}

static void end(struct push_ranks *ranks)
{
    push_close(ranks);
    push_end();
}

static void again(void)
{
    struct push_ranks ranks;
    if (begin(&ranks, "a list again and again")) {
        CHECK(list_works(&ranks, 4) && packed(0, 0));
        CHECK(list_works(&ranks, 4) && packed(RANKS, RANKS));
        CHECK(list_works(&ranks, 4) && packed(RANKS, 0));
        CHECK(list_works(&ranks, 3) && packed(0, 0)); /* another one */
        CHECK(list_works(&ranks, 3) && packed(RANKS, RANKS));
        CHECK(list_works(&ranks, 500) && packed(0, 0)); /* unpacked by its table, too */
        CHECK(list_works(&ranks, 500) && packed(RANKS, RANKS));
        CHECK(list_works(&ranks, MOST) && packed(0, 0)); /* no table has room for it */
        CHECK(list_works(&ranks, MOST) && packed(0, 0));
        end(&ranks);
    }
}

/* A rank that has other tensors each time packs them itself. */
static void one_differs(void)
{
    struct push_ranks ranks;
    if (begin(&ranks, "a list that one rank has elsewhere each time")) {
        void *const data = ranks.data[1];
        for (int call = 0; call < 4; call++) {
            ranks.data[1] = (float *)data + (size_t)(call % 2) * 1024;
            CHECK(list_works(&ranks, 3));
            CHECK(packed(call == 0 ? 0 : RANKS - 1, call == 1 ? RANKS - 1 : 0));
        }
        ranks.data[1] = data;
        end(&ranks);
    }
}

/* Elements of which rank 0 has as much more as the others, by their weights, have less than the average. */
static void fill_average(const struct push_ranks *ranks, int rank)
{
    const float total = (float)(RANKS * (RANKS + 1) / 2);
    float *data = ranks->data[rank];
    for (size_t i = 0; i < LARGE_N; i++)
        data[i] = (float)(i % 100) + (rank == 0 ? total - 1 : -1);
}

static void average_rank(int rank, int size, void *argument)
{
    const struct push_ranks *ranks = argument;
    const float *data = ranks->data[rank];
    trib_tensor list[3];
    size_t wrong = 0;
    (void)size;
    fill_average(ranks, rank);
    list_of(ranks, rank, list, 3);
    CHECK_OK(trib_weighted_average(ranks->comms[rank], list, 3, (float)(rank + 1), NULL, NULL,
                                   ranks->streams[rank]));
    CHECK_OK(trib_comm_wait(ranks->comms[rank], ranks->streams[rank], PUSH_PLENTY_MS));
    for (size_t i = 0; i < LARGE_N; i++)
        wrong += data[i] != (float)(i % 100);
    CHECK_MSG(wrong == 0, "rank %d: %zu averages are wrong", rank, wrong);
}

/* The same list weighted is another one, and so it is again as a sum. */
static void averages(void)
{
    struct push_ranks ranks;
    if (begin(&ranks, "an average again and again")) {
        CHECK(list_works(&ranks, 3) && packed(0, 0));
        push_each(&ranks, average_rank);
        CHECK(packed(0, 0));
        push_each(&ranks, average_rank);
        CHECK(packed(RANKS, RANKS) && large_counts(&ranks, 0, 0, 2, 0));
        CHECK(list_works(&ranks, 3) && packed(0, 0));
        CHECK(list_works(&ranks, 3) && packed(RANKS, RANKS));
        end(&ranks);
    }
}

/* A broadcast of the same list, and one that a graph captures, leave its table as it is. */
static void between_rank(int rank, int size, void *argument)
{
    const struct push_ranks *ranks = argument;
    trib_tensor list[3];
    (void)size;
    list_of(ranks, rank, list, 3);
    CHECK_OK(trib_broadcast_list(ranks->comms[rank], list, 3, 1, ranks->streams[rank]));
    CHECK_OK(trib_comm_wait(ranks->comms[rank], ranks->streams[rank], PUSH_PLENTY_MS));
}

static void capture_list(struct push_ranks *ranks)
{
    for (int rank = 0; rank < RANKS; rank++) {
        cudaGraph_t graph = NULL;
        CHECK(cudaStreamBeginCapture(ranks->streams[rank], cudaStreamCaptureModeThreadLocal) ==
              cudaSuccess);
        sum_list(ranks, rank, 3);
        CHECK(cudaStreamEndCapture(ranks->streams[rank], &graph) == cudaSuccess);
        CHECK(graph != NULL && cudaGraphDestroy(graph) == cudaSuccess);
    }
}

static void between(void)
{
    struct push_ranks ranks;
    if (begin(&ranks, "a list, and the same otherwise between")) {
        CHECK(list_works(&ranks, 3) && list_works(&ranks, 3) && packed(RANKS, RANKS));
        push_each(&ranks, between_rank);
        (void)large_counts(&ranks, -1, -1, -1, -1);
        CHECK(packed(0, 0) && list_works(&ranks, 3) && packed(RANKS, 0));
        capture_list(&ranks);
        CHECK(packed(0, 0) && list_works(&ranks, 3) && packed(RANKS, 0));
        end(&ranks);
    }
}

/* What is not pull's, or has no table. */
static void others_rank(int rank, int size, void *argument)
{
    const struct push_ranks *ranks = argument;
    const trib_stream stream = ranks->streams[rank];
    trib_comm *comm = ranks->comms[rank];
    trib_tensor list[3];
    (void)size;
    list[0] = (trib_tensor){ranks->data[rank], LARGE_N, TRIB_F32, 0}; /* two buckets */
    list[1] = (trib_tensor){(float *)ranks->data[rank] + LARGE_N, FIRST, TRIB_I32, 0};
    for (int i = 0; i < 2; i++)
        CHECK_OK(trib_allreduce_list(comm, list, 2, TRIB_SUM, stream));
    list_of(ranks, rank, list, 3);
    for (int i = 0; i < 2; i++)
        CHECK_OK(trib_broadcast_list(comm, list, 3, 1, stream));
    for (int i = 0; i < 2; i++)
        CHECK_OK(trib_allreduce_list(comm, list, 1, TRIB_SUM, stream)); /* push's */
    CHECK_OK(trib_comm_wait(comm, stream, PUSH_PLENTY_MS));
}

static void others(void)
{
    struct push_ranks ranks;
    if (begin(&ranks, "lists that pull does not pack")) {
        push_fill(&ranks, TRIB_F32, LARGE_N);
        push_each(&ranks, others_rank);
        CHECK(packed(0, 0));
        end(&ranks);
    }
}

/* The last rank never calls: the tensors of the others stay as they were. */
static void torn(void)
{
    struct push_ranks ranks;
    trib_abort *handle = NULL;
    if (begin(&ranks, "a list that pull packs, and an abort ends")) {
        CHECK(list_works(&ranks, 3) && packed(0, 0));
        push_fill(&ranks, TRIB_F32, LARGE_N);
        float *const data = ranks.data[0], first = data[0], last = data[LARGE_N - 1];
        for (int rank = 0; rank + 1 < RANKS; rank++)
            sum_list(&ranks, rank, 3);
        CHECK(packed(0, RANKS - 1));
        CHECK_OK(trib_comm_abort_handle(&handle, ranks.comms[0]));
        CHECK_OK(trib_abort_raise(handle, "a test"));
        trib_abort_release(handle);
        for (int rank = 0; rank + 1 < RANKS; rank++)
            CHECK_STATUS(trib_comm_wait(ranks.comms[rank], ranks.streams[rank], PUSH_PLENTY_MS),
                         TRIB_ERR_ABORTED);
        CHECK(data[0] == first && data[LARGE_N - 1] == last);
        end(&ranks);
    }
}

void pull_lists(void)
{
    again();
    one_differs();
    averages();
    between();
    others();
    torn();
}
