/* Sparse allreduce over a stream-ordered backend, without a GPU: the program has its own table,
 * with a host backend that does everything during the call, when nccl would queue it. So runs
 * happen in the caller's thread, fetches wait, the device makes the copies, and an abort may
 * overtake queued work. It can fail or be aborted on one rank on demand. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/abort.h"
#include "csrc/base/status.h"
#include "csrc/core/communicator.h"
#include "csrc/sparse/state.h"
#include "tests/api/sparse.h"
#include "tests/conformance/sparse/sparse.h"
#include "tests/own_backend.h"

extern const struct tri_backend tri_backend_host;

/* ---------------------------------------------------------------------------------- the backend */

/* Of this thread, which is a rank's. Below 0: never. */
static _Thread_local int until_no_memory = -1; /* allocations that still succeed */
static _Thread_local int until_abort = -1;     /* collectives until an abort follows one */
static _Thread_local int until_no_copy = -1;   /* copies and signs before the one that fails */
static _Thread_local bool stream_fails;        /* the next that is made */
static _Thread_local bool query_fails;         /* the next of an event */
static _Thread_local float took_ms;            /* between any two events; 0: as long as it was */
static _Thread_local int pushed;               /* devices pushed and not popped */
static _Thread_local int allocations, collectives;
static _Thread_local size_t allocated; /* bytes */
static _Atomic bool is_capturing;

static _Thread_local trib_abort *aborted_at_the_end; /* when the next stream is destroyed */

static bool out_of_memory(void)
{
    allocations++;
    return until_no_memory >= 0 && until_no_memory-- == 0;
}

static trib_status alloc(int32_t device, void **out, size_t bytes)
{
    *out = NULL;
    allocated += bytes;
    return out_of_memory() ? tri_fail(TRIB_ERR_OUT_OF_MEMORY, "injected: no memory")
                           : tri_backend_host.device->alloc(device, out, bytes);
}

static trib_status alloc_pinned(void **out, size_t bytes)
{
    *out = NULL;
    return out_of_memory() ? tri_fail(TRIB_ERR_OUT_OF_MEMORY, "injected: no memory")
                           : tri_backend_host.device->alloc_pinned(out, bytes);
}

static trib_status event_create(int32_t device, trib_event *out)
{
    *out = NULL;
    return out_of_memory() ? tri_fail(TRIB_ERR_OUT_OF_MEMORY, "injected: no memory")
                           : tri_backend_host.device->event_create(device, out);
}

static _Thread_local trib_event busy;  /* which passes */
static _Thread_local int until_passed; /* after as many questions */

static trib_status event_query(int32_t device, trib_event event, bool *out_done)
{
    *out_done = false;
    if (query_fails) {
        query_fails = false;
        return tri_fail(TRIB_ERR_CUDA, "injected: no answer");
    }
    if (event == busy && until_passed > 0) {
        until_passed--;
        return TRIB_OK;
    }
    return tri_backend_host.device->event_query(device, event, out_done);
}

static trib_status event_elapsed(int32_t device, trib_event start, trib_event end, float *out_ms)
{
    const trib_status status = tri_backend_host.device->event_elapsed(device, start, end, out_ms);
    if (took_ms != 0)
        *out_ms = took_ms;
    return status;
}

static trib_status stream_create(int32_t device, trib_stream *out)
{
    const bool fails = stream_fails;
    *out = NULL;
    stream_fails = false;
    return fails ? tri_fail(TRIB_ERR_CUDA, "injected: no stream")
                 : tri_backend_host.device->stream_create(device, out);
}

/* The tests' streams also run functions of theirs, which come first. */
static trib_status copy(int32_t device, void *dst, const void *src, size_t bytes,
                        trib_stream stream)
{
    const trib_status status = tri_backend_host.device->stream_wait(device, stream);
    if (until_no_copy >= 0 && until_no_copy-- == 0)
        return tri_fail(TRIB_ERR_CUDA, "injected failure");
    if (status == TRIB_OK && bytes != 0)
        memmove(dst, src, bytes);
    return status;
}

/* A call's first step. */
static trib_status choose(const struct tri_accumulator *acc, const struct tri_selection *selection,
                          const struct tri_entries *out, void *scratch, trib_stream stream)
{
    if (until_no_copy >= 0 && until_no_copy-- == 0)
        return tri_fail(TRIB_ERR_CUDA, "injected failure");
    return tri_backend_host.kernels->sparse->select(acc, selection, out, scratch, stream);
}

static _Thread_local bool record_fails;

static trib_status record(const struct tri_record *call, trib_stream stream)
{
    if (record_fails)
        return tri_fail(TRIB_ERR_CUDA, "injected failure");
    return tri_backend_host.kernels->sparse->record(call, stream);
}

static trib_status push_device(int32_t device, uintptr_t *previous)
{
    *previous = (uintptr_t)device + 1000;
    pushed++;
    return TRIB_OK;
}

static trib_status stream_destroy(int32_t device, trib_stream stream)
{
    if (aborted_at_the_end != NULL)
        CHECK_OK(trib_abort_raise(aborted_at_the_end, "at the end"));
    return tri_backend_host.device->stream_destroy(device, stream);
}

static void pop_device(uintptr_t previous)
{
    CHECK(previous >= 1000);
    pushed--;
}

static uint64_t capturing(int32_t device, trib_stream stream)
{
    (void)device;
    (void)stream;
    return atomic_load(&is_capturing);
}

/* Both ranks of a host have its sums, and one of them finds that an abort has ended them early. */
static _Thread_local int tears; /* 1: this rank has, 2: and finds that */
static _Atomic int both_have, is_torn;

static void tear(const struct tri_call *call)
{
    uint32_t *flag = (uint32_t *)(uintptr_t)tri_backend_host.transport->abort_flag(call->transport);
    if (tears == 0 || call->kind != TRI_REDUCE_SCATTER)
        return;
    team_barrier(&both_have, 2);
    if (tears == 2)
        __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
    team_barrier(&is_torn, 2);
    tears = 0;
}

static trib_status collective(const struct tri_call *calls, size_t n)
{
    struct tri_transport *transport = calls[0].transport;
    const struct tri_transport_ops *ops = tri_backend_host.transport;
    struct trib_abort *state = ops->abort_state(transport);
    CHECK(tri_abort_in_flight(state) > 0);
    collectives++;
    const trib_status status = ops->collective(calls, n);
    tear(calls);
    if (until_abort >= 0 && until_abort-- == 0)
        (void)tri_abort_raise(state, TRIB_ERR_ABORTED, "the communicator was aborted: injected");
    return status;
}

/* Calls run where they are queued: none waits. */
static void progress(struct tri_transport *transport, struct tri_progress *out)
{
    (void)transport;
    *out = (struct tri_progress){0};
}

static struct tri_device_ops device_ops;
static struct tri_transport_ops transport_ops;
static struct tri_sparse_kernels sparse_kernels;
static struct tri_kernels kernels;

static void make_backend(void)
{
    device_ops = *tri_backend_host.device;
    device_ops.alloc = alloc;
    device_ops.alloc_pinned = alloc_pinned;
    device_ops.event_create = event_create;
    device_ops.event_query = event_query;
    device_ops.event_elapsed = event_elapsed;
    device_ops.stream_create = stream_create;
    device_ops.stream_destroy = stream_destroy;
    device_ops.copy = copy;
    device_ops.fetch = copy;
    device_ops.push_device = push_device;
    device_ops.pop_device = pop_device;
    device_ops.capturing = capturing;
    transport_ops = *tri_backend_host.transport;
    transport_ops.submit = NULL;
    transport_ops.collective = collective;
    transport_ops.progress = progress;
    transport_ops.symmetric = NULL; /* whose memory does not come from this device */
    backend = tri_backend_host;
    backend.name = "queued";
    backend.device = &device_ops;
    sparse_kernels = *backend.kernels->sparse;
    sparse_kernels.select = choose;
    sparse_kernels.record = record;
    kernels = *backend.kernels;
    kernels.sparse = &sparse_kernels;
    backend.kernels = &kernels;
    backend.transport = &transport_ops;
}

/* ------------------------------------------------------------------------------------ no memory */

/* One rank has no memory for its state, at any of its allocations: no rank gets one, and all can go
 * on. */
static void creations(int rank, int size, void *team)
{
    const trib_sparse_options options = fixture_options("topka", 4, 0);
    const bool fails = rank == size - 1;
    struct fixture fixture;
    if (!fixture_open(&fixture, team, rank,
                      &options)) /* what the communicator keeps is there afterwards */
        return;
    enum { ALLOCATIONS = 4 }; /* counters, event, what stays, what depends on k */
    for (int at = 0; at < ALLOCATIONS; at++) {
        trib_sparse *sparse = NULL;
        until_no_memory = fails ? at : -1;
        CHECK_STATUS(trib_sparse_create(&sparse, fixture.comm, FIXTURE_COUNT, TRIB_F32, &options),
                     TRIB_ERR_OUT_OF_MEMORY);
        CHECK_DETAIL(fails ? "injected: no memory" : "so the call fails on all ranks");
        CHECK(sparse == NULL && until_no_memory == -1);
    }
    allocations = 0;
    trib_sparse *sparse = NULL;
    CHECK_OK(trib_sparse_create(&sparse, fixture.comm, FIXTURE_COUNT, TRIB_F32, &options));
    CHECK(allocations == ALLOCATIONS);
    CHECK_OK(trib_sparse_destroy(sparse));
    until_no_memory = fails ? 0 : -1; /* a larger k: the old one stays */
    CHECK_STATUS(trib_sparse_set_k(fixture.sparse, 700), TRIB_ERR_OUT_OF_MEMORY);
    CHECK(fixture_statistics(&fixture).k == 4 && until_no_memory == -1);
    fixture_fill(&fixture, 0, 6, 1);
    CHECK_OK(fixture_call(&fixture));
    for (int i = 0; i < 6; i++)
        CHECK(fixture.found[i] == (i < 2 ? 0 : (float)((i + 1) * size)));
    CHECK_OK(trib_sparse_set_k(fixture.sparse, 700));
    fixture_fill(&fixture, 0, 0, 0);
    CHECK_OK(fixture_call(&fixture));
    CHECK(fixture.found[0] == (float)size && fixture.found[1] == 2 * (float)size);
    fixture_close(&fixture);
    CHECK(pushed == 0);
}

/* What trib_sparse_bytes says is what a creation takes, and a call takes nothing. */
static void foretold(int rank, int size, void *team)
{
    static const uint32_t flags[] = {0, TRIB_SPARSE_IN_PLACE, TRIB_SPARSE_ENTRIES,
                                     TRIB_SPARSE_IN_PLACE | TRIB_SPARSE_ENTRIES};
    static const char *const constants[] = {NULL, "bert"};
    const trib_sparse_options first = fixture_options("auto", 1, 0);
    struct fixture fixture;
    (void)size;
    if (!fixture_open(&fixture, team, rank, &first)) /* with what the communicator keeps, and the
                                                        figures of its link */
        return;
    for (int32_t i = 0; i < trib_sparse_algorithm_count(); i++)
        for (size_t at = 0; at < 8; at++) {
            trib_sparse_options options =
                fixture_options(trib_sparse_algorithm_name(i), 37, flags[at / 2]);
            trib_sparse *sparse = NULL;
            uint64_t bytes = 0;
            options.constants = constants[at % 2];
            CHECK_OK(trib_sparse_bytes(&bytes, fixture.comm, FIXTURE_COUNT, TRIB_F32, &options));
            allocated = 0;
            CHECK_OK(trib_sparse_create(&sparse, fixture.comm, FIXTURE_COUNT, TRIB_F32, &options));
            CHECK_MSG(allocated == bytes, "%s: %zu bytes are taken, %llu were foretold",
                      options.algorithm, allocated, (unsigned long long)bytes);
            if ((options.flags & TRIB_SPARSE_ENTRIES) == 0)
                CHECK_OK(trib_sparse_allreduce(sparse, fixture.gradient, fixture.result,
                                               fixture.stream));
            CHECK(allocated == bytes);
            CHECK_OK(trib_sparse_destroy(sparse));
        }
    fixture_close(&fixture);
}

/* ------------------------------------------------------------------------- auto's measurement */

/* One rank has no memory for it: no rank measures, no rank gets a state, and all can go on. Their
 * figures are those of the slowest rank, and stay. */
static void measures(int rank, int size, void *team)
{
    enum { ALLOCATIONS = 4, EXCHANGES = 4 }; /* a cell, an event, what is exchanged, an event */
    const trib_sparse_options named = fixture_options("topka", 4, 0);
    const trib_sparse_options options = fixture_options("auto", 4, 0);
    struct fixture fixture;
    if (!fixture_open(&fixture, team, rank, &named)) /* with what the communicator keeps */
        return;
    const struct tri_measured *measured = &fixture.comm->measured;
    took_ms = EXCHANGES * (float)(rank + 1) * 100;
    for (int at = 0; at <= ALLOCATIONS; at++) {
        trib_sparse *sparse = NULL;
        const bool fails = rank == size - 1;
        until_no_memory = fails ? at : -1;
        CHECK_STATUS(trib_sparse_create(&sparse, fixture.comm, FIXTURE_COUNT, TRIB_F32, &options),
                     TRIB_ERR_OUT_OF_MEMORY);
        CHECK_DETAIL(fails ? "injected: no memory" : "so the call fails on all ranks");
        CHECK(sparse == NULL && until_no_memory == -1);
        /* The last one failed for the state, after the measurement. */
        CHECK_MSG((measured->bandwidth != 0) == (at == ALLOCATIONS), "allocation %d", at);
    }
    CHECK_MSG(fabs(measured->latency - 0.1 * size) < 1e-6, "%g s, not the slowest rank's",
              measured->latency);
    const struct tri_measured before = *measured;
    took_ms = 1;
    for (int i = 0; i < 2; i++) {
        trib_sparse *sparse = NULL;
        collectives = 0;
        CHECK_OK(trib_sparse_create(&sparse, fixture.comm, FIXTURE_COUNT, TRIB_F32, &options));
        CHECK_OK(trib_sparse_set_k(sparse, 9));
        CHECK_MSG(collectives == 2, "%d collectives of a creation and another k", collectives);
        CHECK_OK(trib_sparse_destroy(sparse));
    }
    CHECK(before.latency == measured->latency && before.bandwidth == measured->bandwidth);
    took_ms = 0;
    fixture_close(&fixture);
    CHECK(pushed == 0);
}

/* The communicator is aborted after each of the collectives of a creation that measures. */
struct measuring {
    struct team team;
    int at;
};

/* Those of two sizes, which are always exchanged: 15 exchanges and an agreement each; before them
 * the hosts, and what the ranks are about to do. */
enum { MEASURES = 2 * (15 + 1) + 2 };

static void overtaken(int rank, int size, void *argument)
{
    struct measuring *measuring = argument;
    struct fixture fixture;
    trib_sparse *sparse = NULL;
    if (!fixture_open(&fixture, &measuring->team, rank, NULL))
        return;
    until_abort = rank == measuring->at % size ? measuring->at : -1;
    CHECK_STATUS(trib_sparse_create(&sparse, fixture.comm, FIXTURE_COUNT, TRIB_F32, NULL),
                 TRIB_ERR_ABORTED);
    CHECK_DETAIL("injected");
    CHECK(sparse == NULL);
    until_abort = -1;
    fixture_close(&fixture);
}

static void measuring_aborted(void)
{
    struct measuring measuring = {.at = 0};
    check_begin("3 ranks: aborted after each collective of a measurement");
    for (; measuring.at < MEASURES; measuring.at++) {
        if (team_create(&measuring.team, "queued", 3, NULL))
            check_ranks(3, overtaken, &measuring);
        team_destroy(&measuring.team);
    }
    check_end();
}

/* ------------------------------------------------------------------------------------ no device */

/* The device of one rank fails in a call of all ranks: the communicator fails on all of them. */
enum missing { NO_STREAM, NO_COPY, NO_ANSWER, MISSING };

struct device_failure {
    struct team team;
    bool creates; /* it is a creation, not another k */
    enum missing missing;
    _Atomic int arrived;
};

static void failing_rank(int rank, int size, void *argument)
{
    struct device_failure *failure = argument;
    const trib_sparse_options options = fixture_options("topka", 4, 0);
    const bool fails = rank == size - 1;
    trib_sparse *sparse = NULL;
    struct fixture fixture;
    if (!fixture_open(&fixture, &failure->team, rank, &options))
        return;
    team_barrier(&failure->arrived, size); /* nobody is in fixture_open any more */
    stream_fails = fails && failure->missing == NO_STREAM;
    until_no_copy = fails && failure->missing == NO_COPY ? 0 : -1;
    query_fails = fails && failure->missing == NO_ANSWER;
    const trib_status status =
        failure->creates
            ? trib_sparse_create(&sparse, fixture.comm, FIXTURE_COUNT, TRIB_F32, &options)
            : trib_sparse_set_k(fixture.sparse, 5);
    CHECK_MSG(status == TRIB_ERR_CUDA, "%s: %s", trib_status_name(status), trib_last_detail());
    CHECK(sparse == NULL && !stream_fails && until_no_copy < 0 && !query_fails);
    CHECK(fixture_statistics(&fixture).k == 4);
    CHECK_STATUS(trib_comm_status(fixture.comm), TRIB_ERR_CUDA);
    CHECK_DETAIL("injected");
    fixture_close(&fixture);
}

static void device_fails(bool creates, enum missing missing)
{
    static const char *const names[MISSING] = {"stream", "copy", "answer"};
    struct device_failure failure = {.creates = creates, .missing = missing};
    check_begin("3 ranks: one has no %s for %s", names[missing],
                creates ? "a creation" : "another k");
    if (team_create(&failure.team, "queued", 3, NULL))
        check_ranks(3, failing_rank, &failure);
    team_destroy(&failure.team);
    check_end();
}

/* --------------------------------------------------------------------------------------- aborts */

struct aborting {
    struct team team;
    const char *algorithm;
    const int32_t *hosts; /* NULL: one */
    uint32_t flags;
    int at;          /* so many collectives of the call come before the abort */
    _Atomic int all; /* of the call, after its end */
    _Atomic int arrived;
};

/* What a rank reported, and what it exports, before and after. */
struct kept {
    trib_sparse_statistics statistics;
    char *data;
    size_t bytes;
};

static struct kept keep(struct fixture *fixture)
{
    struct kept kept = {.statistics = fixture_statistics(fixture)};
    kept.data = fixture_export(fixture, &kept.bytes);
    return kept;
}

/* The call that may be aborted. Only a call that the abort overtook may say so. */
static trib_status abortable_call(struct fixture *fixture, struct aborting *aborting)
{
    const bool aborts = fixture->rank == fixture->size - 1;
    collectives = 0;
    until_abort = aborts ? aborting->at : -1;
    const trib_status status =
        trib_sparse_allreduce(fixture->sparse, fixture->gradient, fixture->result, fixture->stream);
    const bool overtaken = !aborts || until_abort == -1;
    if (aborts && until_abort != -1)
        atomic_store(&aborting->all, collectives);
    CHECK_MSG(status == TRIB_OK || (overtaken && status == TRIB_ERR_ABORTED), "%s",
              trib_last_detail());
    until_abort = -1;
    return status;
}

/* A call that was not applied has changed nothing. */
static void unchanged(struct fixture *fixture, const struct aborting *aborting,
                      const struct kept *before, const struct kept *after, const float *accumulator)
{
    const trib_sparse_statistics *reported = &before->statistics, *found = &after->statistics;
    const bool in_place = (aborting->flags & TRIB_SPARSE_IN_PLACE) != 0;
    const size_t tail = in_place ? 0 : FIXTURE_COUNT * sizeof(float);
    CHECK_MSG(before->bytes == after->bytes &&
                  memcmp(before->data + 128, after->data + 128, tail) == 0,
              "%s: another residual", aborting->algorithm);
    CHECK_MSG(memcmp(accumulator, fixture->given, sizeof fixture->given) == 0,
              "%s: another accumulator", aborting->algorithm);
    CHECK(found->calls_applied == reported->calls_applied &&
          found->total_selected == reported->total_selected &&
          found->bytes_sent == reported->bytes_sent && found->words_sent == reported->words_sent);
    CHECK_STATUS(trib_sparse_status(fixture->sparse), TRIB_ERR_ABORTED);
}

/* A call that is aborted after one of its collectives, or after the last. On each rank: either
 * nothing has changed, or it was applied. */
static void aborted(int rank, int size, void *argument)
{
    struct aborting *aborting = argument;
    trib_sparse_options options = fixture_options(aborting->algorithm, 16, aborting->flags);
    struct fixture fixture;
    options.hosts = aborting->hosts;
    float accumulator[FIXTURE_COUNT];
    if (!fixture_open(&fixture, &aborting->team, rank, &options))
        return;
    fixture_fill(&fixture, (size_t)rank, 100, 1);
    CHECK_OK(fixture_call(&fixture));
    const struct kept before = keep(&fixture);
    fixture_push(&fixture);
    team_barrier(&aborting->arrived, size); /* nobody is in the first call any more */
    const trib_status status = abortable_call(&fixture, aborting);
    const struct kept after = keep(&fixture);
    CHECK_OK(trib_device_copy(fixture.device, accumulator, fixture.gradient, sizeof accumulator,
                              fixture.stream));
    const uint32_t outcome = fixture_outcome(&fixture);
    if (after.statistics.calls_applied == before.statistics.calls_applied) {
        unchanged(&fixture, aborting, &before, &after, accumulator);
        /* The abort may have come before a rank's call: then that was refused, and the outcome is
         * the one of the call before. */
        CHECK(outcome == 0 ||
              (status == TRIB_ERR_ABORTED && after.statistics.calls == before.statistics.calls));
    } else {
        CHECK(outcome == 1 &&
              after.statistics.calls_applied == before.statistics.calls_applied + 1);
    }
    CHECK(pushed == 0);
    free(before.data);
    free(after.data);
    fixture_close(&fixture);
}

static void aborts(int size, const char *algorithm, uint32_t flags, const int32_t *hosts)
{
    struct aborting aborting = {.algorithm = algorithm, .hosts = hosts, .flags = flags};
    check_begin("%s, %d ranks%s%s: aborted after each of its collectives", algorithm, size,
                hosts == NULL ? "" : " of several hosts",
                (flags & TRIB_SPARSE_IN_PLACE) != 0 ? ", in place" : "");
    for (int at = 0; atomic_load(&aborting.all) == 0 && at < 100; at++) {
        aborting.at = at;
        atomic_store(&aborting.arrived, 0);
        if (team_create(&aborting.team, "queued", size, NULL))
            check_ranks(size, aborted, &aborting);
        team_destroy(&aborting.team);
    }
    CHECK(atomic_load(&aborting.all) > 0);
    check_end();
}

/* A step of one rank that is no collective fails: nobody waits for that rank for ever. */
static void failed(int rank, int size, void *team)
{
    static _Atomic int arrived;
    const trib_sparse_options options = fixture_options("topka", 16, 0);
    const bool fails = rank == size - 1;
    struct fixture fixture;
    size_t bytes, other;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    fixture_fill(&fixture, (size_t)rank, 100, 1);
    CHECK_OK(fixture_call(&fixture));
    char *before = fixture_export(&fixture, &bytes);
    team_barrier(&arrived, size);
    until_no_copy = fails ? 0 : -1;
    const trib_status status =
        trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.result, fixture.stream);
    CHECK_MSG(status == TRIB_ERR_CUDA, "%s: %s", trib_status_name(status), trib_last_detail());
    CHECK_STATUS(trib_comm_status(fixture.comm), TRIB_ERR_CUDA);
    CHECK_DETAIL("injected failure");
    CHECK(fixture_outcome(&fixture) == 0 || !fails); /* the others' calls may have been refused */
    char *after = fixture_export(&fixture, &other);
    CHECK(bytes == other && memcmp(before, after, bytes) == 0);
    CHECK(pushed == 0);
    fixture_pull(&fixture);
    for (int i = 0; i < FIXTURE_COUNT && fails; i++)
        CHECK(fixture.found[i] == 0); /* not the call before */
    free(before);
    free(after);
    fixture_close(&fixture);
}

/* No rank applies what a host's sums may be wrong in, though nobody has aborted the communicator yet: ranks 1
 * and 2 are on one host. Their acc is lost, as the residual behind it is kept. */
static void torn(int rank, int size, void *team)
{
    static _Atomic int called;
    trib_sparse_options options = fixture_options("hier", 16, 0);
    struct fixture fixture;
    size_t bytes, other;
    options.hosts = sparse_hosts_uneven;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    fixture_fill(&fixture, (size_t)rank, 100, 1);
    CHECK_OK(fixture_call(&fixture));
    char *before = fixture_export(&fixture, &bytes);
    fixture_push(&fixture);
    tears = rank;
    CHECK_OK(
        trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.result, fixture.stream));
    team_barrier(&called, size);
    CHECK(tears == 0 && fixture_outcome(&fixture) == 0);
    CHECK_STATUS(trib_sparse_status(fixture.sparse), TRIB_ERR_MISMATCH);
    CHECK_OK(trib_comm_status(fixture.comm));
    char *after = fixture_export(&fixture, &other);
    CHECK(bytes == other && memcmp(before + 128, after + 128, FIXTURE_COUNT * sizeof(float)) == 0);
    fixture_pull(&fixture);
    for (int i = 0; i < FIXTURE_COUNT; i++)
        CHECK(fixture.found[i] == 0);
    free(before);
    free(after);
    fixture_close(&fixture);
}

/* A call with a NaN whose record fails: the result is 0 all the same. */
static void unrecorded(int rank, int size, void *team)
{
    const trib_sparse_options options = fixture_options("topka", 16, 0);
    struct fixture fixture;
    (void)size;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    fixture_fill(&fixture, (size_t)rank, 100, 1);
    CHECK_OK(fixture_call(&fixture));
    fixture.given[3] = NAN;
    fixture_push(&fixture);
    record_fails = true;
    const trib_status status =
        trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.result, fixture.stream);
    record_fails = false;
    CHECK_MSG(status == TRIB_ERR_CUDA, "%s: %s", trib_status_name(status), trib_last_detail());
    fixture_pull(&fixture);
    for (int i = 0; i < FIXTURE_COUNT; i++)
        CHECK(fixture.found[i] == 0);
    fixture_close(&fixture);
}

/* Another k, or an import, where a copy of one rank fails. */
struct changing {
    struct team team;
    bool imports;
    int at;   /* which copy */
    bool all; /* there are no more */
    trib_status status[TEAM_MAX];
    _Atomic int arrived, over;
};

/* A rank that has no other k still has its state. */
static void check_old_k(struct fixture *fixture, const char *before)
{
    size_t bytes = 0;
    char *after = fixture_export(fixture, &bytes);
    CHECK(trib_sparse_k(fixture->sparse) == 4);
    CHECK(memcmp(before + 128, after + 128, FIXTURE_COUNT * sizeof(float)) == 0);
    free(after);
}

static void change(int rank, int size, void *argument)
{
    struct changing *changing = argument;
    const trib_sparse_options options = fixture_options("topka", 4, 0);
    struct fixture fixture;
    size_t bytes = 0;
    int failed = 0;
    if (!fixture_open(&fixture, &changing->team, rank, &options))
        return;
    fixture_fill(&fixture, 0, 8, 1);
    CHECK_OK(fixture_call(&fixture));
    char *data = fixture_export(&fixture, &bytes);
    team_barrier(&changing->arrived, size);
    until_no_copy = rank == size - 1 ? changing->at : -1;
    changing->status[rank] =
        changing->imports ? trib_sparse_import(fixture.sparse, data, bytes, 0, fixture.stream)
                          : trib_sparse_set_k(fixture.sparse, 5);
    if (rank == size - 1)
        changing->all = until_no_copy >= 0;
    until_no_copy = -1;
    team_barrier(&changing->over, size);
    for (int i = 0; i < size; i++)
        failed += changing->status[i] != TRIB_OK;
    CHECK(failed > 0 || changing->all);
    CHECK_MSG(failed == 0 || failed == size || trib_comm_status(fixture.comm) != TRIB_OK,
              "copy %d: %d ranks do not have what the others have, and go on", changing->at,
              failed);
    if (!changing->imports && changing->status[rank] != TRIB_OK)
        check_old_k(&fixture, data);
    free(data);
    fixture_close(&fixture);
}

static void changes(bool imports)
{
    struct changing changing = {.imports = imports};
    check_begin("3 ranks: a copy of one rank fails in %s", imports ? "an import" : "another k");
    for (; !changing.all && changing.at < 100; changing.at++) {
        atomic_store(&changing.arrived, 0);
        atomic_store(&changing.over, 0);
        if (team_create(&changing.team, "queued", 3, NULL))
            check_ranks(3, change, &changing);
        team_destroy(&changing.team);
    }
    CHECK_MSG(changing.all && changing.at > 3, "%d copies", changing.at);
    check_end();
}

/* Another k waits for the calls before, on any stream. */
static void waits(int rank, int size, void *team)
{
    const trib_sparse_options options = fixture_options("topka", 4, 0);
    struct fixture fixture;
    (void)size;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    fixture_fill(&fixture, 0, 8, 1);
    CHECK_OK(fixture_call(&fixture));
    busy = fixture.sparse->memory.event;
    until_passed = 3;
    CHECK_OK(trib_sparse_set_k(fixture.sparse, 5));
    CHECK(until_passed == 0);
    busy = NULL;
    fixture_close(&fixture);
}

/* After another k a state holds what one with that k would have been created with. */
static void holds(int rank, int size, void *team)
{
    trib_sparse_options options = fixture_options("topka", 4, 0);
    struct fixture fixture;
    uint64_t bytes = 0;
    (void)size;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    for (options.k = 100; options.k <= FIXTURE_COUNT / 2; options.k += 200) {
        CHECK_OK(trib_sparse_bytes(&bytes, fixture.comm, FIXTURE_COUNT, TRIB_F32, &options));
        CHECK_OK(trib_sparse_set_k(fixture.sparse, options.k));
        CHECK_MSG(fixture.sparse->memory.held == bytes, "k %llu: %llu bytes are held, not %llu",
                  (unsigned long long)options.k, (unsigned long long)fixture.sparse->memory.held,
                  (unsigned long long)bytes);
    }
    fixture_close(&fixture);
}

/* -------------------------------------------------------------------------------------- capture */

static void captured(int rank, int size, void *team)
{
    struct fixture fixture;
    for (int32_t i = 0; i < trib_sparse_algorithm_count(); i++) {
        static const char waits[] =
            " topkaopt topksa oktopk gaussiank gaussiankconcat gaussianksa ";
        char word[32];
        const char *name = trib_sparse_algorithm_name(i);
        const trib_sparse_options options = fixture_options(name, 4, 0);
        if (!fixture_open(&fixture, team, rank, &options))
            return;
        fixture_fill(&fixture, 8, 4, 1);
        fixture_push(&fixture);
        atomic_store(&is_capturing, true);
        (void)snprintf(word, sizeof word, " %s ", name);
        const bool refused = strstr(waits, word) != NULL;
        CHECK_STATUS(
            trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.result, fixture.stream),
            refused ? TRIB_ERR_UNSUPPORTED : TRIB_OK);
        if (refused)
            CHECK_DETAIL("is being captured");
        CHECK_STATUS(trib_sparse_reset(fixture.sparse, fixture.stream), TRIB_ERR_UNSUPPORTED);
        fixture_pull(&fixture);
        CHECK(refused || fixture.found[11] == 4 * (float)size);
        fixture_close(&fixture);
    }
}

static int given; /* abort flags */

static void count_given(void *word)
{
    (void)word;
    given++;
}

/* A graph may run, and look at the abort flag, for ever: it is not used again. Otherwise it is. */
static void word(bool captures)
{
    const trib_sparse_options options = fixture_options("topka", 4, 0);
    struct team team;
    struct fixture fixture;
    check_begin("queued: the abort flag, %s a capture", captures ? "after" : "without");
    given = 0;
    if (team_create(&team, "queued", 1, NULL)) {
        tri_abort_own_flag(team.comms[0]->state, count_given);
        if (fixture_open(&fixture, &team, 0, &options)) {
            atomic_store(&is_capturing, captures);
            CHECK_OK(trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.result,
                                           fixture.stream));
            atomic_store(&is_capturing, false);
            fixture_close(&fixture);
        }
    }
    team_destroy(&team);
    CHECK(given == (captures ? 0 : 1));
    check_end();
}

/* TRIB_MATCH waits in each call, which a capture forbids: refused, and the communicator goes on. */
static void captured_and_matched(int rank, int size, void *team)
{
    static _Atomic int arrived, left;
    const trib_sparse_options options = fixture_options("topka", 4, 0);
    struct fixture fixture;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    team_barrier(&arrived, size);
    atomic_store(&is_capturing, true);
    CHECK_STATUS(
        trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.result, fixture.stream),
        TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("trib_sparse_allreduce on rank");
    CHECK_DETAIL("TRIB_MATCH");
    CHECK_STATUS(trib_allreduce(fixture.comm, fixture.result, fixture.result, 8, TRIB_F32, TRIB_SUM,
                                fixture.stream),
                 TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("trib_allreduce on rank");
    CHECK_DETAIL("TRIB_MATCH");
    team_barrier(&left, size);
    atomic_store(&is_capturing, false);
    CHECK_OK(trib_comm_status(fixture.comm));
    fixture_fill(&fixture, 8, 4, 1);
    CHECK_OK(fixture_call(&fixture));
    fixture_close(&fixture);
}

/* An abort after the last exchange: the call has not succeeded, and there is no state. */
static void aborted_after(int rank, int size, void *team)
{
    struct fixture fixture;
    trib_sparse *sparse = NULL;
    (void)size;
    if (!fixture_open(&fixture, team, rank, NULL))
        return;
    CHECK_OK(trib_comm_abort_handle(&aborted_at_the_end, fixture.comm));
    CHECK_STATUS(trib_sparse_create(&sparse, fixture.comm, FIXTURE_COUNT, TRIB_F32, NULL),
                 TRIB_ERR_ABORTED);
    CHECK_DETAIL("at the end");
    CHECK(sparse == NULL);
    trib_abort_release(aborted_at_the_end);
    aborted_at_the_end = NULL;
    fixture_close(&fixture);
}

int main(void)
{
    trib_options matches = TRIB_OPTIONS_INIT;
    static const int sizes[] = {1, 2, 3};
    make_backend();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int size = sizes[i];
        sparse_bad("queued", size);
        sparse_differ("queued", size);
        sparse_calls("queued", size);
        sparse_life("queued", size);
        sparse_late("queued", size, false); /* it waits for the others inside the call */
        if (sparse_depth() == SPARSE_WHOLE)
            sparse_suite("queued", NULL, size, SPARSE_QUICK);
        else if (size == 3)
            sparse_suite("queued", NULL, size, SPARSE_LIGHT);
    }
    if (sparse_depth() == SPARSE_WHOLE) /* two hosts of two ranks, and one that is alone */
        sparse_suite("queued", NULL, 5, SPARSE_LIGHT);
    fixture_ranks("queued", 3, NULL, creations, "one rank without memory");
    fixture_ranks("queued", 3, NULL, foretold, "memory as foretold");
    fixture_ranks("queued", 3, NULL, measures, "auto's measurement, one rank without memory");
    measuring_aborted();
    device_fails(true, NO_STREAM);
    device_fails(false, NO_STREAM);
    device_fails(false, NO_COPY);
    device_fails(true, NO_ANSWER);
    device_fails(false, NO_ANSWER);
    fixture_ranks("queued", 3, NULL, failed, "a step that fails on one rank");
    fixture_ranks("queued", 3, NULL, torn, "a sum that an abort may have ended early");
    fixture_ranks("queued", 2, NULL, unrecorded, "a call that is refused, and not recorded");
    fixture_ranks("queued", 2, NULL, aborted_after, "an abort at the end of a creation");
    fixture_ranks("queued", 2, NULL, waits, "another k waits for what was queued before");
    fixture_ranks("queued", 2, NULL, holds, "another k gives the room of the last one back");
    changes(false);
    changes(true);
    for (int32_t i = 1; i < trib_sparse_algorithm_count(); i++) {
        aborts(3, trib_sparse_algorithm_name(i), 0, NULL);
        aborts(3, trib_sparse_algorithm_name(i), TRIB_SPARSE_IN_PLACE, NULL);
    }
    aborts(3, "hier", 0, sparse_hosts_uneven);
    aborts(3, "hier", TRIB_SPARSE_IN_PLACE, sparse_hosts_uneven);
    fixture_ranks("queued", 2, NULL, captured, "calls on a stream that is being captured");
    atomic_store(&is_capturing, false);
    word(true);
    word(false);
    matches.flags = TRIB_MATCH;
    fixture_ranks("queued", 2, &matches, captured_and_matched, "a capture with TRIB_MATCH");
    return check_finish("sparse_stream_ordered_test");
}
