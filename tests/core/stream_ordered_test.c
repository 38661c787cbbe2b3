/* core and lists over a stream-ordered backend, without a GPU: the program has its own table, with
 * a backend that does everything during the call. One thread drives a group of ranks. Any operation
 * of the backend can fail or be aborted on demand. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/status.h"
#include "csrc/core/communicator.h"
#include "kernels/cpu/kernels_cpu.h"
#include "tests/check.h"
#include "tests/own_backend.h"

enum { RANKS = 3, DEVICES = 4 };

/* ------------------------------------------------------------------------------ the backend */

struct local {
    struct trib_abort *state;
    uint32_t word;
    int32_t size, references;
};

struct tri_transport {
    struct local *local;
    int32_t rank;
    _Atomic uint64_t marked;
};

static int backend_calls;     /* of collective */
static int pushed;            /* devices pushed and not popped */
static bool abort_in_backend; /* an abort overtakes the next collective */
static int until_failure;     /* operations that still succeed; below 0: all */
static bool failed;           /* one of them has failed */
static bool touched;          /* a collective or a copy may have used the workspace */
static bool no_records;       /* events cannot be recorded */
static bool no_queries;       /* streams cannot be asked */
static bool never_done;       /* nor do they get anywhere */
static int records, frees;    /* of events, of memory */
static int befores, afters;   /* marks */
static int nows;              /* marks without a call, */
static uint64_t now_number;   /* and the number of the last one */
static bool captured;         /* every stream is, */
static int32_t eager = -1;    /* but those of this device */
static uint64_t capture = 1;  /* by this one, */
static int kept;              /* which has kept so much */
static bool keeps_nothing;    /* but fails */
static int asked;             /* how often, whether one is */
static uint32_t left_behind, left_behind_graphs; /* what the backend has not given back, and for how
                                                  * many graphs that waits */

static bool fails(void)
{
    if (until_failure < 0 || until_failure-- > 0)
        return false;
    failed = true;
    return true;
}

static trib_status outcome(void)
{
    return fails() ? tri_fail(TRIB_ERR_CUDA, "injected failure") : TRIB_OK;
}

static int32_t count(void)
{
    return DEVICES;
}

static trib_status version(uint32_t *out)
{
    *out = 1;
    return TRIB_OK;
}

static trib_status alloc(int32_t device, void **out, size_t bytes)
{
    (void)device;
    *out = fails() ? NULL : aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *out != NULL ? TRIB_OK : tri_fail(TRIB_ERR_OUT_OF_MEMORY, "injected failure");
}

static trib_status free_memory(int32_t device, void *data)
{
    (void)device;
    free(data);
    frees++;
    return TRIB_OK;
}

static trib_status alloc_pinned(void **out, size_t bytes)
{
    *out = fails() ? NULL : calloc(1, bytes);
    return *out != NULL ? TRIB_OK : tri_fail(TRIB_ERR_OUT_OF_MEMORY, "injected failure");
}

static trib_status copy(int32_t device, void *dst, const void *src, size_t bytes,
                        trib_stream stream)
{
    (void)device;
    (void)stream;
    memcpy(dst, src, bytes);
    touched = true;
    return outcome();
}

static enum tri_fault check_buffer(int32_t device, const void *data, size_t bytes, size_t *found)
{
    (void)device;
    (void)data;
    (void)bytes;
    *found = 0;
    return TRI_FAULT_NONE;
}

static enum tri_fault check_stream(int32_t device, trib_stream stream, size_t *found)
{
    (void)device;
    (void)stream;
    *found = 0;
    return TRI_FAULT_NONE;
}

static trib_status push_device(int32_t device, uintptr_t *previous)
{
    *previous = (uintptr_t)device + 1000;
    const trib_status status = outcome();
    pushed += status == TRIB_OK;
    return status;
}

static void pop_device(uintptr_t previous)
{
    CHECK(previous >= 1000);
    pushed--;
}

static trib_status wait_event(int32_t device, trib_event event, trib_stream stream)
{
    (void)device;
    (void)event;
    (void)stream;
    return outcome();
}

static trib_status record_event(int32_t device, trib_event event, trib_stream stream)
{
    records++;
    return no_records ? tri_fail(TRIB_ERR_CUDA, "injected failure")
                      : wait_event(device, event, stream);
}

static trib_status event_create(int32_t device, trib_event *out)
{
    (void)device;
    *out = fails() ? NULL : malloc(1);
    return *out != NULL ? TRIB_OK : tri_fail(TRIB_ERR_CUDA, "injected failure");
}

static trib_status event_query(int32_t device, trib_event event, bool *out_done)
{
    (void)device;
    (void)event;
    *out_done = !never_done;
    return TRIB_OK;
}

static trib_status stream_query(int32_t device, trib_stream stream, bool *out_done)
{
    if (no_queries)
        return tri_fail(TRIB_ERR_CUDA, "injected failure");
    return event_query(device, stream, out_done);
}

static trib_status event_destroy(int32_t device, trib_event event)
{
    (void)device;
    free(event);
    return TRIB_OK;
}

static _Atomic bool poll_fails;

static trib_status poll_errors(void *context)
{
    (void)context;
    return atomic_load(&poll_fails) ? tri_fail(TRIB_ERR_NCCL, "an asynchronous error") : TRIB_OK;
}

static trib_status open_group(struct tri_transport **out, const int32_t *devices, int32_t size,
                              const struct tri_config *config, uint32_t timeout_ms)
{
    (void)devices;
    (void)config;
    (void)timeout_ms;
    struct local *local = calloc(1, sizeof *local);
    local->state = tri_abort_create(&local->word, NULL, NULL);
    tri_abort_set_poll(local->state, poll_errors);
    local->size = local->references = size;
    for (int32_t i = 0; i < size; i++) {
        out[i] = malloc(sizeof *out[i]);
        *out[i] = (struct tri_transport){.local = local, .rank = i};
    }
    return TRIB_OK;
}

static trib_status open_one(struct tri_transport **out, const trib_id *id, int32_t rank,
                            int32_t size, int32_t device, const struct tri_config *config,
                            uint32_t timeout_ms)
{
    (void)id;
    (void)rank;
    (void)size;
    return open_group(out, &device, 1, config, timeout_ms);
}

static trib_status id_create(trib_id *out)
{
    memset(out, 1, sizeof *out);
    return TRIB_OK;
}

static bool id_is_mine(const trib_id *id)
{
    (void)id;
    return true;
}

static int32_t rank_of(const struct tri_transport *transport)
{
    return transport->rank;
}

static int32_t size_of(const struct tri_transport *transport)
{
    return transport->local->size;
}

static int32_t here(struct tri_transport *transport)
{
    return size_of(transport);
}

static struct trib_abort *abort_state(struct tri_transport *transport)
{
    return transport->local->state;
}

static const uint32_t *abort_flag(struct tri_transport *transport)
{
    return &transport->local->word;
}

/* The factor as an element: by way of the call's room, if it needs one. */
static void scale(const struct tri_call *call, void *element)
{
    const bool roomy = call->factor.device != NULL && call->dtype != TRIB_F32;
    CHECK((call->room != NULL) == roomy);
    void *out = roomy ? call->room : element;
    CHECK_OK(tri_kernels_cpu.scale(out, NULL, 1, call->dtype, &call->factor, NULL));
    if (roomy)
        memcpy(element, out, trib_dtype_size(call->dtype));
}

/* Call `i` of every rank; each rank has `each` calls in a row. */
static void reduce(const struct tri_call *calls, size_t each, size_t i, int32_t size)
{
    const void *src[RANKS];
    void *dst[RANKS];
    double factors[RANKS];
    for (int32_t rank = 0; rank < size; rank++) {
        const struct tri_call *call = &calls[(size_t)rank * each + i];
        CHECK(call->transport->rank == rank && call->scaled == calls[i].scaled);
        src[rank] = call->send;
        dst[rank] = call->recv;
        if (call->scaled)
            scale(call, (char *)factors + (size_t)rank * trib_dtype_size(call->dtype));
    }
    const struct tri_reduction reduction = {src, (size_t)size, calls[i].dtype, calls[i].op,
                                            calls[i].scaled ? factors : NULL};
    CHECK_OK(tri_kernels_cpu.reduce(dst, (size_t)size, &reduction, calls[i].count, NULL));
}

static void broadcast(const struct tri_call *calls, size_t each, size_t i, int32_t size)
{
    const struct tri_call *root = &calls[(size_t)calls[i].peer * each + i];
    for (int32_t rank = 0; rank < size; rank++) {
        const struct tri_call *call = &calls[(size_t)rank * each + i];
        memmove(call->recv, root->send, call->count * trib_dtype_size(call->dtype));
    }
}

/* The k-th send goes to the k-th receive. */
static void exchange(const struct tri_call *calls, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (calls[i].kind != TRI_SEND)
            continue;
        while (calls[at].kind != TRI_RECV)
            at++;
        memcpy(calls[at++].recv, calls[i].send, calls[i].count * trib_dtype_size(calls[i].dtype));
    }
}

static trib_status collective(const struct tri_call *calls, size_t n)
{
    const struct local *local = calls[0].transport->local;
    const size_t each = n / (size_t)local->size;
    backend_calls++;
    touched = true;
    CHECK(tri_abort_in_flight(local->state) > 0);
    if (abort_in_backend)
        (void)tri_abort_raise(local->state, TRIB_ERR_ABORTED, "an abort overtook the call");
    if (fails())
        return tri_fail(TRIB_ERR_NCCL, "injected failure");
    if (calls[0].kind == TRI_SEND || calls[0].kind == TRI_RECV) {
        exchange(calls, n);
        return TRIB_OK;
    }
    for (size_t i = 0; i < each; i++) {
        if (calls[i].kind == TRI_ALLREDUCE)
            reduce(calls, each, i, local->size);
        if (calls[i].kind == TRI_BROADCAST)
            broadcast(calls, each, i, local->size);
    }
    return TRIB_OK;
}

static trib_status close_one(struct tri_transport *transport, uint32_t timeout_ms)
{
    (void)transport;
    (void)timeout_ms;
    return TRIB_OK;
}

static void destroy(struct tri_transport *transport)
{
    struct local *local = transport->local;
    free(transport);
    if (--local->references != 0)
        return;
    tri_abort_detach(local->state);
    tri_abort_release(local->state);
    free(local);
}

/* Everything has run when it is queued; the watchdog learns it from the mark. */
static bool mark(struct tri_transport *transport, uint64_t number, trib_stream stream,
                 enum tri_mark when)
{
    (void)stream;
    befores += when == TRI_MARK_BEFORE;
    afters += when == TRI_MARK_AFTER;
    nows += when == TRI_MARK_NOW;
    now_number = when == TRI_MARK_NOW ? number : now_number;
    if (when != TRI_MARK_BEFORE)
        atomic_store(&transport->marked, number);
    return !captured;
}

static void progress(struct tri_transport *transport, struct tri_progress *out)
{
    const uint64_t marked = atomic_load(&transport->marked);
    *out = (struct tri_progress){.started = marked, .ended = marked, .marked = marked};
}

static uint64_t capturing(int32_t device, trib_stream stream)
{
    (void)stream;
    asked++;
    return captured && device != eager ? capture : 0;
}

static struct kept {
    void (*gone)(void *argument);
    void *argument;
} keeps[16];

static trib_status keep(int32_t device, trib_stream stream, void (*gone)(void *argument),
                        void *argument)
{
    (void)device;
    (void)stream;
    CHECK(captured && kept < 16);
    if (keeps_nothing) {
        gone(argument);
        return tri_fail(TRIB_ERR_CUDA, "injected failure");
    }
    keeps[kept++] = (struct kept){gone, argument};
    return TRIB_OK;
}

/* The graph is destroyed. */
static void let_go(void)
{
    while (kept > 0) {
        const struct kept *last = &keeps[--kept];
        last->gone(last->argument);
    }
}

static const struct tri_device_ops device_ops = {
    .count = count,
    .capturing = capturing,
    .keep = keep,
    .version = version,
    .alloc = alloc,
    .free = free_memory,
    .alloc_pinned = alloc_pinned,
    .free_pinned = free,
    .copy = copy,
    .fetch = copy,
    .check_buffer = check_buffer,
    .check_stream = check_stream,
    .push_device = push_device,
    .pop_device = pop_device,
    .stream_query = stream_query,
    .stream_wait_event = wait_event,
    .event_create = event_create,
    .event_record = record_event,
    .event_query = event_query,
    .event_destroy = event_destroy,
};

static const struct tri_transport_ops transport_ops = {
    .id_create = id_create,
    .id_is_mine = id_is_mine,
    .open = open_one,
    .open_group = open_group,
    .rank = rank_of,
    .size = size_of,
    .here = here,
    .abort_state = abort_state,
    .abort_flag = abort_flag,
    .collective = collective,
    .mark = mark,
    .progress = progress,
    .close = close_one,
    .destroy = destroy,
};

static uint32_t quiesce(uint64_t deadline_ns, uint32_t *graphs)
{
    (void)deadline_ns;
    *graphs += left_behind_graphs;
    return left_behind;
}

static struct tri_backend backend = {
    .name = "instant",
    .native = (1u << TRI_BARRIER) - 1,
    .device = &device_ops,
    .transport = &transport_ops,
    .kernels = &tri_kernels_cpu,
    .quiesce = quiesce,
};

/* --------------------------------------------------------------------------------- the cases */

enum { FLOATS = 40, DOUBLES = 9, TENSORS = 4 };

/* Each rank's list: two tensors of f32 in one array, one of f64, one that is empty. */
struct lists {
    float f32[RANKS][FLOATS];
    double f64[RANKS][DOUBLES];
    trib_tensor tensors[RANKS][TENSORS];
    const trib_tensor *of_ranks[RANKS];
};

static void fill(struct lists *lists)
{
    for (int rank = 0; rank < RANKS; rank++) {
        for (int i = 0; i < FLOATS; i++)
            lists->f32[rank][i] = (float)(10 * rank + i);
        for (int i = 0; i < DOUBLES; i++)
            lists->f64[rank][i] = 100 * rank + i;
        trib_tensor *tensors = lists->tensors[rank];
        tensors[0] = (trib_tensor){lists->f32[rank], 7, TRIB_F32, 0};
        tensors[1] = (trib_tensor){lists->f64[rank], DOUBLES, TRIB_F64, 0};
        tensors[2] = (trib_tensor){NULL, 0, TRIB_I8, 0};
        tensors[3] = (trib_tensor){lists->f32[rank] + 7, FLOATS - 7, TRIB_F32, 0};
        lists->of_ranks[rank] = tensors;
    }
}

static void one_call(trib_group *group, struct lists *lists)
{
    fill(lists);
    backend_calls = 0;
    CHECK_OK(trib_group_allreduce_list(group, lists->of_ranks, TENSORS, TRIB_SUM, NULL));
    CHECK(backend_calls == 1);
    for (int rank = 0; rank < RANKS; rank++) {
        for (int i = 0; i < FLOATS; i++)
            CHECK(lists->f32[rank][i] == (float)(30 + 3 * i));
        for (int i = 0; i < DOUBLES; i++)
            CHECK(lists->f64[rank][i] == 300 + 3 * i);
    }
    fill(lists);
    CHECK_OK(trib_group_broadcast_list(group, lists->of_ranks, TENSORS, 1, NULL));
    for (int rank = 0; rank < RANKS; rank++)
        for (int i = 0; i < FLOATS; i++)
            CHECK(lists->f32[rank][i] == (float)(10 + i));
    CHECK(pushed == 0);
}

/* Before the backend is called. */
static void refused_lists(trib_group *group, struct lists *lists)
{
    fill(lists);
    lists->tensors[2][3].count--;
    CHECK_STATUS(trib_group_allreduce_list(group, lists->of_ranks, TENSORS, TRIB_SUM, NULL),
                 TRIB_ERR_MISMATCH);
    CHECK_DETAIL("tensors[3]");
    fill(lists);
    lists->tensors[1][3].data = lists->f32[1] + 6;
    lists->tensors[1][3].count--;
    CHECK_STATUS(trib_group_allreduce_list(group, lists->of_ranks, TENSORS, TRIB_SUM, NULL),
                 TRIB_ERR_INVALID_BUFFER);
    CHECK_DETAIL("rank 1");
    CHECK(backend_calls == 2);
}

static void overtaken_list(trib_group *group, struct lists *lists)
{
    static struct lists before;
    fill(lists);
    before = *lists;
    abort_in_backend = true;
    CHECK_STATUS(trib_group_allreduce_list(group, lists->of_ranks, TENSORS, TRIB_SUM, NULL),
                 TRIB_ERR_ABORTED);
    abort_in_backend = false;
    CHECK(memcmp(before.f32, lists->f32, sizeof before.f32) == 0);
    CHECK(memcmp(before.f64, lists->f64, sizeof before.f64) == 0);
}

static void split_aborted(trib_group *group)
{
    trib_comm *comms[RANKS];
    CHECK_OK(trib_group_split(comms, group));
    for (int rank = 0; rank < RANKS; rank++) {
        trib_counters counters = TRIB_COUNTERS_INIT;
        CHECK_OK(trib_comm_counters(&counters, comms[rank]));
        CHECK(counters.lists_committed == 2);
        CHECK_STATUS(trib_comm_status(comms[rank]), TRIB_ERR_ABORTED);
        CHECK_OK(trib_comm_destroy(comms[rank]));
    }
}

static void group_lists(void)
{
    static struct lists lists;
    trib_group *group = NULL;
    check_begin("a group's list is one call to the backend");
    CHECK_OK(trib_group_create(&group, NULL, RANKS, NULL));
    one_call(group, &lists);
    refused_lists(group, &lists);
    check_end();

    check_begin("an abort that overtakes a list leaves its tensors");
    overtaken_list(group, &lists);
    split_aborted(group);
    check_end();
}

static trib_comm *open_alone(uint32_t flags)
{
    trib_options options = TRIB_OPTIONS_INIT;
    trib_comm *comm = NULL;
    trib_id id;
    options.flags = flags;
    CHECK_OK(trib_id_create(&id, NULL));
    CHECK_OK(trib_comm_create(&comm, &id, 0, 1, 0, &options));
    return comm;
}

static void averages(void)
{
    static struct lists lists;
    trib_counters counters = TRIB_COUNTERS_INIT;
    float total = -1, weight = 2;
    check_begin("weighted averages: totals");
    trib_comm *comm = open_alone(0);
    fill(&lists);
    CHECK_OK(trib_weighted_average(comm, NULL, 0, 3, NULL, &total, NULL));
    CHECK(total == 3);
    CHECK_OK(trib_weighted_average(comm, lists.tensors[0], 2, 3, &weight, &total, NULL));
    CHECK(total == 2 && lists.f32[0][5] == 5 && lists.f64[0][5] == 5);
    lists.f32[0][0] = NAN;
    CHECK_OK(trib_weighted_average(comm, lists.tensors[0], 2, 0, NULL, &total, NULL));
    CHECK(total == 0 && isnan(lists.f32[0][0]) && lists.f32[0][1] == 1);
    CHECK_OK(trib_weighted_average(comm, lists.tensors[0], 2, -1, NULL, &total, NULL));
    CHECK(isnan(total) && isnan(lists.f32[0][0]) && lists.f32[0][1] == 1);
    CHECK_OK(trib_comm_counters(&counters, comm));
    CHECK(counters.lists_committed == 2 && counters.lists_refused == 1);
    CHECK_STATUS(trib_weighted_average(comm, lists.tensors[0], 2, 1, NULL, lists.f32[0], NULL),
                 TRIB_ERR_INVALID_BUFFER);
    CHECK_DETAIL("device_total");
    CHECK_OK(trib_comm_destroy(comm));
    check_end();
}

/* With room for the factor, which the backend may need: f64 has it, f32 reads the factor itself. */
static void factors(void)
{
    static struct lists lists;
    float word = 3, f32[2] = {1, -2};
    double f64[2] = {1, -2};
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    check_begin("factors");
    trib_comm *comm = open_alone(0);
    fill(&lists);
    options.device_factor = &word;
    backend_calls = 0;
    CHECK_OK(trib_batch_begin(comm));
    CHECK_OK(trib_allreduce_with(comm, f32, f32, 2, TRIB_F32, TRIB_SUM, &options, NULL));
    CHECK_OK(trib_allreduce_with(comm, f64, f64, 2, TRIB_F64, TRIB_SUM, &options, NULL));
    CHECK_OK(trib_batch_end(comm));
    CHECK(backend_calls == 1);
    CHECK(f32[0] == 3 && f32[1] == -6 && f64[0] == 3 && f64[1] == -6);
    CHECK_OK(trib_allreduce_list_with(comm, lists.tensors[0], 2, TRIB_SUM, &options, NULL));
    CHECK(lists.f32[0][5] == 15 && lists.f64[0][5] == 15);
    options.device_factor = NULL;
    options.flags = TRIB_CALL_FACTOR;
    options.factor = -1;
    CHECK_OK(trib_allreduce_list_with(comm, lists.tensors[0], 2, TRIB_SUM, &options, NULL));
    CHECK(lists.f32[0][5] == -15 && lists.f64[0][5] == -15);
    CHECK_OK(trib_comm_destroy(comm));
    check_end();
}

static void batches(void)
{
    float a = 1, b = 2, c = 3;
    trib_stream other = &a;
    check_begin("a batch is one call to the backend, or none");
    trib_comm *comm = open_alone(0);
    backend_calls = 0;
    CHECK_OK(trib_batch_begin(comm));
    for (int i = 0; i < 30; i++)
        CHECK_OK(trib_allreduce(comm, &a, &a, 1, TRIB_F32, TRIB_SUM, NULL));
    CHECK(backend_calls == 0);
    CHECK_OK(trib_batch_end(comm));
    CHECK(backend_calls == 1);

    CHECK_OK(trib_batch_begin(comm));
    CHECK_STATUS(trib_allreduce(comm, &a, NULL, 1, TRIB_F32, TRIB_SUM, NULL),
                 TRIB_ERR_INVALID_BUFFER);
    CHECK_OK(trib_allreduce(comm, &a, &a, 1, TRIB_F32, TRIB_SUM, NULL));
    CHECK_STATUS(trib_allreduce(comm, &a, &a, 1, 0, TRIB_SUM, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_batch_end(comm), TRIB_ERR_INVALID_BUFFER);
    CHECK_DETAIL("`recv` is NULL");

    CHECK_OK(trib_batch_begin(comm));
    CHECK_OK(trib_allreduce(comm, &a, &a, 1, TRIB_F32, TRIB_SUM, NULL));
    CHECK_STATUS(trib_allreduce(comm, &b, &b, 1, TRIB_F32, TRIB_SUM, other),
                 TRIB_ERR_INVALID_USAGE);
    CHECK_STATUS(trib_batch_end(comm), TRIB_ERR_INVALID_USAGE);
    CHECK(backend_calls == 1);

    CHECK_STATUS(trib_send(comm, &b, 1, TRIB_F32, 0, NULL), TRIB_ERR_INVALID_USAGE);
    CHECK_OK(trib_batch_begin(comm));
    CHECK_OK(trib_send(comm, &b, 1, TRIB_F32, 0, NULL));
    CHECK_OK(trib_recv(comm, &c, 1, TRIB_F32, 0, NULL));
    CHECK_OK(trib_batch_end(comm));
    CHECK(c == 2 && backend_calls == 2);
    CHECK_STATUS(trib_batch_end(comm), TRIB_ERR_INVALID_USAGE);
    CHECK_OK(trib_comm_destroy(comm));
    check_end();
}

static uint64_t workspace_bytes(trib_comm *comm)
{
    trib_memory memory = TRIB_MEMORY_INIT;
    CHECK_OK(trib_comm_memory(&memory, comm));
    return memory.workspace_bytes;
}

static void counted(trib_comm *comm, uint64_t committed, uint64_t refused)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, comm));
    CHECK_MSG(counters.lists_committed == committed && counters.lists_refused == refused,
              "%llu lists committed and %llu refused, not %llu and %llu",
              (unsigned long long)counters.lists_committed,
              (unsigned long long)counters.lists_refused, (unsigned long long)committed,
              (unsigned long long)refused);
}

/* On a stream that is being captured each call has scratch of its own, which lives as long as the
 * graph, and uses no event of the workspace. */
static void captures(void)
{
    static struct lists lists;
    float total = -1, *data = lists.f32[0];
    check_begin("a stream that is being captured");
    trib_comm *comm = open_alone(0);
    fill(&lists);
    CHECK_OK(trib_allreduce_list(comm, lists.tensors[0], 2, TRIB_SUM, NULL));
    const uint64_t before = workspace_bytes(comm);
    const int recorded = records;
    captured = true;
    CHECK_OK(trib_allreduce_list(comm, lists.tensors[0], 2, TRIB_SUM, NULL));
    CHECK_OK(trib_broadcast_list(comm, lists.tensors[0], 2, 0, NULL));
    CHECK_OK(trib_weighted_average(comm, lists.tensors[0], 2, 3, NULL, &total, NULL));
    CHECK_OK(trib_weighted_average(comm, lists.tensors[0], 2, -1, NULL, NULL, NULL));
    CHECK_OK(trib_barrier(comm, NULL));
    CHECK(kept == 5 && total == 3 && records == recorded);
    CHECK_OK(trib_allreduce(comm, data, data, 5, TRIB_F32, TRIB_SUM, NULL));
    CHECK(kept == 5 && workspace_bytes(comm) > before);
    counted(comm, 4, 1);
    captured = false;
    CHECK_OK(trib_barrier(comm, NULL));
    CHECK(records == recorded + 1 && kept == 5);
    let_go();
    CHECK(workspace_bytes(comm) == before);
    counted(comm, 4, 1); /* those of graphs that are gone, too */
    captured = true;
    CHECK_OK(trib_barrier(comm, NULL));
    CHECK_OK(trib_allreduce_list(comm, lists.tensors[0], 2, TRIB_SUM, NULL));
    captured = false;
    counted(comm, 5, 1);
    CHECK_OK(trib_comm_destroy(comm)); /* before the graph */
    let_go();
    check_end();
}

static uint64_t device_bytes(void)
{
    trib_memory memory = TRIB_MEMORY_INIT;
    trib_device *device = NULL;
    CHECK_OK(trib_device_get(&device, "instant", 0));
    CHECK_OK(trib_device_memory(&memory, device));
    return memory.workspace_bytes + memory.pinned_bytes;
}

/* Without scratch nothing is queued, and nothing is kept. */
static void captures_without_scratch(void)
{
    static struct lists lists;
    check_begin("a captured call that gets no scratch");
    trib_comm *comm = open_alone(0);
    fill(&lists);
    const uint64_t before = device_bytes();
    backend_calls = 0;
    captured = true;
    for (int until = 0; until < 2; until++) {
        until_failure = until;
        CHECK_STATUS(trib_allreduce_list(comm, lists.tensors[0], 2, TRIB_SUM, NULL),
                     TRIB_ERR_OUT_OF_MEMORY);
        until_failure = until;
        CHECK_STATUS(trib_barrier(comm, NULL), TRIB_ERR_OUT_OF_MEMORY);
    }
    until_failure = -1;
    failed = false;
    keeps_nothing = true;
    CHECK_STATUS(trib_allreduce_list(comm, lists.tensors[0], 2, TRIB_SUM, NULL), TRIB_ERR_CUDA);
    CHECK_STATUS(trib_barrier(comm, NULL), TRIB_ERR_CUDA);
    keeps_nothing = false;
    CHECK(backend_calls == 0 && kept == 0 && device_bytes() == before);
    CHECK_OK(trib_barrier(comm, NULL));
    captured = false;
    let_go();
    CHECK(device_bytes() == before);
    CHECK_OK(trib_comm_destroy(comm));
    check_end();
}

/* A capture holds all of a batch that has scratch, or nothing of it; and the streams of all ranks of
 * a group, or of none. */
static void captures_in_part(void)
{
    static struct lists lists;
    trib_group *group = NULL;
    check_begin("a capture of a part");
    trib_comm *comm = open_alone(0);
    fill(&lists);
    CHECK_OK(trib_group_create(&group, NULL, RANKS, NULL));
    backend_calls = 0;
    for (int ends = 0; ends < 2; ends++) {
        captured = ends == 1;
        CHECK_OK(trib_batch_begin(comm));
        CHECK_OK(trib_barrier(comm, NULL));
        captured = ends == 0;
        CHECK_STATUS(trib_batch_end(comm), TRIB_ERR_INVALID_USAGE);
        CHECK_DETAIL("began or ended inside of the batch");
    }
    captured = true;
    CHECK_OK(trib_batch_begin(comm));
    CHECK_OK(trib_barrier(comm, NULL));
    capture = 2;
    CHECK_STATUS(trib_barrier(comm, NULL), TRIB_ERR_INVALID_USAGE);
    CHECK_STATUS(trib_batch_end(comm), TRIB_ERR_INVALID_USAGE);
    CHECK(kept == 2);
    let_go();
    eager = 1;
    CHECK_STATUS(trib_group_allreduce_list(group, lists.of_ranks, TENSORS, TRIB_SUM, NULL),
                 TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("the stream of this rank is not being captured, and that of rank 0 is:");
    eager = 0;
    CHECK_STATUS(trib_group_allreduce_list(group, lists.of_ranks, TENSORS, TRIB_SUM, NULL),
                 TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("the stream of this rank is being captured, and that of rank 0 is not:");
    eager = -1;
    CHECK(backend_calls == 0);
    let_go();
    CHECK_OK(trib_batch_begin(comm));
    CHECK_OK(trib_barrier(comm, NULL));
    CHECK_OK(trib_barrier(comm, NULL));
    CHECK_OK(trib_batch_end(comm));
    CHECK(kept == 2);
    const int recorded = records;
    one_call(group, &lists);
    CHECK(kept == 2 + 2 * RANKS && records == recorded);
    captured = false;
    let_go();
    one_call(group, &lists);
    CHECK(kept == 0 && records > recorded);
    CHECK_OK(trib_group_destroy(group));
    CHECK_OK(trib_comm_destroy(comm));
    check_end();
}

static void refused(trib_status status, const char *operation)
{
    CHECK_STATUS(status, TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL(operation);
    CHECK_DETAIL(
        "`stream` is being captured into a CUDA graph, and with TRIB_MATCH the ranks compare");
}

/* TRIB_MATCH refuses it in the same words wherever a call comes from, and a call asks once. */
static void captures_matched(void)
{
    float a = 1, b = 2;
    const trib_tensor tensor = {&a, 1, TRIB_F32, 0};
    const size_t one = 1, none = 0;
    check_begin("TRIB_MATCH on a stream that is being captured");
    trib_comm *comm = open_alone(TRIB_MATCH);
    backend_calls = 0;
    captured = true;
    refused(trib_allreduce(comm, &a, &a, 1, TRIB_F32, TRIB_SUM, NULL), "trib_allreduce");
    refused(trib_allreduce(comm, &a, &a, 0, TRIB_F32, TRIB_SUM, NULL), "trib_allreduce");
    refused(trib_allgatherv(comm, &a, &b, &one, &none, TRIB_F32, NULL), "trib_allgatherv");
    refused(trib_barrier(comm, NULL), "trib_barrier");
    refused(trib_allreduce_list(comm, &tensor, 1, TRIB_SUM, NULL), "trib_allreduce_list");
    CHECK_OK(trib_batch_begin(comm));
    refused(trib_allreduce(comm, &a, &a, 1, TRIB_F32, TRIB_SUM, NULL), "trib_allreduce");
    refused(trib_batch_end(comm), "trib_allreduce");
    captured = false;
    CHECK_OK(trib_batch_begin(comm));
    CHECK_OK(trib_allreduce(comm, &a, &a, 1, TRIB_F32, TRIB_SUM, NULL));
    captured = true; /* since then */
    refused(trib_batch_end(comm), "trib_batch_end");
    CHECK(backend_calls == 0);
    captured = false;
    asked = 0;
    CHECK_OK(trib_allreduce(comm, &a, &a, 1, TRIB_F32, TRIB_SUM, NULL));
    CHECK_MSG(asked == 1, "a call asks %d times", asked);
    CHECK_OK(trib_comm_destroy(comm));
    check_end();
}

/* ------------------------------------------------------------------ what is still in use stays */

static void quiesces(void)
{
    check_begin("trib_quiesce says what a backend has not given back");
    left_behind = 3;
    left_behind_graphs = 2;
    CHECK_STATUS(trib_quiesce(0), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("3 things");
    CHECK_DETAIL("2 live CUDA graphs");
    left_behind = left_behind_graphs = 0;
    CHECK_OK(trib_quiesce(0));
    check_end();
}

/* Uses of the workspace: by what compares calls, a barrier, a list. */
static trib_status use_workspace(trib_comm *comm, int which)
{
    float a = 1;
    const trib_tensor tensor = {&a, 1, TRIB_F32, 0};
    switch (which) {
    case 0:
        return trib_allreduce(comm, &a, &a, 1, TRIB_F32, TRIB_SUM, NULL);
    case 1:
        return trib_barrier(comm, NULL);
    default:
        return trib_allreduce_list(comm, &tensor, 1, TRIB_SUM, NULL);
    }
}

/* A use that fails halfway is marked as one that goes well: part of it may be queued. */
static void marks(void)
{
    check_begin("a use of the workspace that fails is marked");
    for (int which = 0; which < 3; which++) {
        int reached = 0;
        failed = true;
        for (int good = 0; failed; good++) {
            trib_comm *comm = open_alone(which == 0 ? TRIB_MATCH : 0);
            failed = touched = false;
            records = 0;
            until_failure = good;
            const trib_status status = use_workspace(comm, which);
            until_failure = -1;
            CHECK_MSG(!touched || records > 0, "use %d, %d operations: %s", which, good,
                      trib_status_name(status));
            reached += touched && status != TRIB_OK;
            CHECK_OK(trib_comm_destroy(comm));
        }
        CHECK(reached > 0);
    }
    check_end();
}

/* Without a mark nobody knows when the last use ends, and no stream can be asked: the memory
 * stays. */
static void unmarked(void)
{
    check_begin("a workspace whose last use could not be marked stays");
    trib_comm *comm = open_alone(0);
    CHECK_OK(use_workspace(comm, 2));
    no_records = no_queries = true;
    CHECK_STATUS(use_workspace(comm, 2), TRIB_ERR_CUDA);
    no_records = false;
    frees = 0;
    CHECK_OK(trib_comm_destroy(comm));
    CHECK(frees == 0);
    no_queries = false;
    check_end();
}

/* -------------------------------------------------------------------------------- what may fail */

/* Everything once. Returns what may fail: only what the backend said, or the state it led to. */
static void everything(uint32_t flags)
{
    static struct lists lists;
    const void *send[RANKS];
    void *recv[RANKS];
    trib_group *group = NULL;
    trib_status status[14];
    size_t n = 0;
    fill(&lists);
    for (int rank = 0; rank < RANKS; rank++)
        send[rank] = recv[rank] = lists.f32[rank];
    CHECK_OK(trib_group_create(&group, NULL, RANKS, NULL));
    status[n++] = trib_group_allreduce(group, send, recv, 5, TRIB_F32, TRIB_SUM, NULL);
    status[n++] = trib_group_allreduce_list(group, lists.of_ranks, TENSORS, TRIB_SUM, NULL);
    status[n++] = trib_group_broadcast_list(group, lists.of_ranks, TENSORS, 2, NULL);
    CHECK_OK(trib_group_destroy(group));

    trib_comm *comm = open_alone(flags);
    trib_stream other = &lists;
    float *data = lists.f32[0], *place = lists.f32[1], factor = 2;
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.device_factor = &factor;
    status[n++] = trib_allreduce(comm, data, place, 5, TRIB_F32, TRIB_SUM, NULL);
    status[n++] = trib_alltoall(comm, data, place, 5, TRIB_F32, NULL);
    status[n++] = trib_alltoall(comm, data, data, 5, TRIB_F32, NULL);
    status[n++] = trib_barrier(comm, other);
    status[n++] = trib_allreduce_list(comm, lists.tensors[0], TENSORS, TRIB_SUM, NULL);
    status[n++] = trib_weighted_average(comm, lists.tensors[0], 2, 2, NULL, place, other);
    status[n++] = trib_allreduce_with(comm, lists.f64[0], lists.f64[0], 5, TRIB_F64, TRIB_SUM,
                                      &options, other);
    status[n++] = trib_allreduce_list_with(comm, lists.tensors[0], 2, TRIB_SUM, &options, NULL);
    CHECK_OK(trib_comm_destroy(comm));
    for (size_t i = 0; i < n; i++)
        CHECK(status[i] == TRIB_OK || status[i] == TRIB_ERR_CUDA || status[i] == TRIB_ERR_NCCL ||
              status[i] == TRIB_ERR_OUT_OF_MEMORY);
    CHECK(pushed == 0);
}

/* The first operation of the backend fails, then the second, and so on until none does. */
static void walk(uint32_t flags)
{
    int failures = 0;
    check_begin("every operation of the backend fails once%s", flags == 0 ? "" : ", TRIB_MATCH");
    do {
        failed = false;
        until_failure = failures;
        everything(flags);
        failures += failed;
    } while (failed);
    until_failure = -1;
    CHECK_MSG(failures > 30, "only %d operations", failures);
    check_end();
}

/* Each mark has two sides. */
static int marks_of(uint32_t flags, int calls)
{
    static float data[4];
    trib_comm *comm = open_alone(flags);
    befores = afters = 0;
    for (int i = 0; i < calls; i++)
        CHECK_OK(trib_allreduce(comm, data, data, 4, TRIB_F32, TRIB_SUM, NULL));
    CHECK(befores == afters);
    CHECK_OK(trib_comm_destroy(comm));
    return befores;
}

/* A call that got no mark does not count as the mark of a burst. */
static void marks_after_capture(void)
{
    static float data[4];
    trib_comm *comm = open_alone(0);
    check_begin("calls in capture have no marks, and the next one has");
    befores = afters = 0;
    for (int call = 0; call < 3; call++) {
        captured = call < 2;
        CHECK(afters == 0);
        CHECK_OK(trib_allreduce(comm, data, data, 4, TRIB_F32, TRIB_SUM, NULL));
    }
    CHECK(afters == 1);
    CHECK_OK(trib_comm_destroy(comm));
    check_end();
}

static _Atomic bool reported;

static void hear(void *context, int32_t level, const char *line)
{
    (void)context;
    (void)level;
    if (strstr(line, "has ended, TRIB_ERR_NCCL: an asynchronous error") != NULL)
        atomic_store(&reported, true);
}

/* A graph is replayed, of which the watchdog does not know; or there is none. */
static void found_by_a_wait(void)
{
    enum { LONG_MS = 20000 };
    trib_comm *comm = open_alone(TRIB_UNRECORDED);
    check_begin("a wait finds an error by itself");
    atomic_store(&poll_fails, true);
    never_done = true;
    CHECK_STATUS(trib_comm_wait(comm, NULL, LONG_MS), TRIB_ERR_NCCL);
    never_done = false;
    atomic_store(&poll_fails, false);
    CHECK_OK(trib_comm_destroy(comm));
    check_end();
}

/* Nothing is queued, so the watchdog sleeps. */
static void found_by_a_question(void)
{
    enum { ASLEEP_MS = 1500, BOUND_MS = 5000 };
    trib_comm *comm = open_alone(0);
    trib_abort *handle = NULL;
    check_begin("an error that a question finds is reported at once");
    CHECK_OK(trib_log_set(hear, NULL, TRIB_LOG_WARN));
    CHECK_OK(trib_comm_abort_handle(&handle, comm));
    check_sleep_ms(ASLEEP_MS);
    atomic_store(&poll_fails, true);
    CHECK_STATUS(trib_abort_status(handle), TRIB_ERR_NCCL);
    atomic_store(&poll_fails, false);
    for (int ms = 0; ms < BOUND_MS && !atomic_load(&reported); ms++)
        check_sleep_ms(1);
    CHECK(atomic_load(&reported));
    CHECK_OK(trib_log_set(NULL, NULL, 0));
    trib_abort_release(handle);
    CHECK_OK(trib_comm_destroy(comm));
    check_end();
}

/* Calls on `stream` until one has no mark. Returns its number. */
static uint64_t burst(trib_comm *comm, trib_stream stream)
{
    static float data[4];
    do
        CHECK_OK(trib_allreduce(comm, data, data, 4, TRIB_F32, TRIB_SUM, stream));
    while (tri_recorder_marks(comm->recorder));
    return tri_recorder_entered(comm->recorder);
}

/* A wait makes the end of its stream's newest call known, once; not that of another stream's. */
static void marks_of_waits(uint32_t timeout_ms)
{
    char places[2];
    const trib_stream streams[] = {&places[0], &places[1]};
    trib_comm *comm = open_alone(0);
    check_begin("the end of a burst is marked by a wait of %u ms", timeout_ms);
    nows = records = 0;
    CHECK_OK(trib_comm_wait(comm, streams[0], timeout_ms));
    CHECK(nows == 0);
    const uint64_t number = burst(comm, streams[0]);
    CHECK_OK(trib_comm_wait(comm, streams[1], timeout_ms));
    CHECK(nows == 0);
    for (int wait = 0; wait < 2; wait++) {
        CHECK_OK(trib_comm_wait(comm, streams[0], timeout_ms));
        CHECK(nows == 1 && now_number == number);
    }
    burst(comm, streams[0]);
    const uint64_t newest = burst(comm, streams[1]);
    CHECK_OK(trib_comm_wait(comm, streams[1], timeout_ms));
    CHECK(nows == 2 && now_number == newest);
    CHECK_OK(
        trib_comm_wait(comm, streams[0], timeout_ms)); /* an earlier call: that has ended, too */
    CHECK(nows == 2);
    CHECK_MSG(records == (timeout_ms == 0 ? 0 : 6), "%d events", records);
    CHECK_OK(trib_comm_destroy(comm));
    check_end();
}

static void bursts(void)
{
    enum { CALLS = 1000 };
    check_begin("few calls of a burst are marked");
    const int few = marks_of(0, CALLS);
    CHECK_MSG(few >= 1 && few <= CALLS / 2, "%d marks", few);
    CHECK(marks_of(TRIB_TIMED, CALLS) == CALLS);
    CHECK(marks_of(TRIB_UNRECORDED, CALLS) == 0);
    check_end();
}

int main(void)
{
    until_failure = -1;
    group_lists();
    averages();
    factors();
    batches();
    captures();
    captures_without_scratch();
    captures_in_part();
    captures_matched();
    quiesces();
    marks();
    bursts();
    marks_after_capture();
    found_by_a_question();
    found_by_a_wait();
    marks_of_waits(0);
    marks_of_waits(1000);
    unmarked();
    walk(0);
    walk(TRIB_MATCH);
    return check_finish("stream_ordered_test");
}
