/* Communicators whose ranks are in several processes, one or two in each: the backend "processes"
 * does what a backend must, and tells how processes end. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csrc/core/communicator.h"
#include "tests/conformance/backend/backend.h"
#include "tests/processes/member.h"

enum {
    RANKS = 4,
    SOME = 5,    /* elements */
    MANY = 50021 /* in several pieces, the last of which is short */
};

/* ----------------------------------------------------------------------------- every collective */

static int32_t value(int rank, size_t i)
{
    return (rank + 1) * 1000 + (int32_t)(i % 997);
}

static void fill(int32_t *data, int rank, size_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        data[i] = value(rank, from + i);
}

/* The elements are value(rank, from + i), summed over the ranks if `rank` is -1. */
static void expect(const struct member *member, const char *what, const int32_t *data, int rank,
                   size_t from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t right = rank < 0 ? 0 : value(rank, from + i);
        for (int other = 0; rank < 0 && other < member->size; other++)
            right += value(other, from + i);
        if (!CHECK_MSG(data[i] == right, "%s on rank %d: element %zu of %zu is %d, not %d", what,
                       member->rank, i, n, data[i], right))
            return;
    }
}

/* Room for a block of every rank. */
struct buffers {
    int32_t send[RANKS * MANY], recv[RANKS * MANY];
};

static void reduces(const struct member *m, struct buffers *b, size_t n)
{
    const size_t all = (size_t)m->size * n;
    fill(b->send, m->rank, 0, all);
    CHECK_OK(trib_allreduce(m->comm, b->send, b->recv, n, TRIB_I32, TRIB_SUM, m->stream));
    member_wait(m);
    expect(m, "allreduce", b->recv, -1, 0, n);
    fill(b->recv, m->rank, 0, n);
    CHECK_OK(trib_allreduce(m->comm, b->recv, b->recv, n, TRIB_I32, TRIB_MAX, m->stream));
    member_wait(m);
    expect(m, "allreduce in place", b->recv, m->size - 1, 0, n);
    fill(b->recv, m->rank, 7, n);
    CHECK_OK(trib_reduce(m->comm, b->send, b->recv, n, TRIB_I32, TRIB_SUM, 1, m->stream));
    member_wait(m);
    expect(m, "reduce", b->recv, m->rank == 1 ? -1 : m->rank, m->rank == 1 ? 0 : 7, n);
    CHECK_OK(trib_reduce_scatter(m->comm, b->send, b->recv, n, TRIB_I32, TRIB_SUM, m->stream));
    member_wait(m);
    expect(m, "reduce_scatter", b->recv, -1, (size_t)m->rank * n, n);
}

static void copies(const struct member *m, struct buffers *b, size_t n)
{
    const int root = m->size - 1;
    fill(b->send, m->rank, 0, n);
    CHECK_OK(trib_broadcast(m->comm, b->send, b->recv, n, TRIB_I32, root, m->stream));
    member_wait(m);
    expect(m, "broadcast", b->recv, root, 0, n);
    CHECK_OK(trib_allgather(m->comm, b->send, b->recv, n, TRIB_I32, m->stream));
    member_wait(m);
    for (int rank = 0; rank < m->size; rank++)
        expect(m, "allgather", b->recv + (size_t)rank * n, rank, 0, n);
}

/* A ring, a send to itself, and an alltoall, which is made of sends. */
static void messages(const struct member *m, struct buffers *b, size_t n)
{
    const int next = (m->rank + 1) % m->size, before = (m->rank + m->size - 1) % m->size;
    fill(b->send, m->rank, 0, (size_t)m->size * n);
    CHECK_OK(trib_batch_begin(m->comm));
    CHECK_OK(trib_recv(m->comm, b->recv, n, TRIB_I32, before, m->stream));
    CHECK_OK(trib_recv(m->comm, b->recv + n, n, TRIB_I32, m->rank, m->stream));
    CHECK_OK(trib_send(m->comm, b->send, n, TRIB_I32, next, m->stream));
    CHECK_OK(trib_send(m->comm, b->send + n, n, TRIB_I32, m->rank, m->stream));
    CHECK_OK(trib_batch_end(m->comm));
    member_wait(m);
    expect(m, "recv", b->recv, before, 0, n);
    expect(m, "recv of its own", b->recv + n, m->rank, n, n);
    CHECK_OK(trib_alltoall(m->comm, b->send, b->recv, n, TRIB_I32, m->stream));
    member_wait(m);
    for (int rank = 0; rank < m->size; rank++)
        expect(m, "alltoall", b->recv + (size_t)rank * n, rank, (size_t)m->rank * n, n);
}

/* Factors, a list, and a sparse allreduce of all entries. */
static void more(const struct member *m)
{
    static const float ones[SOME] = {1, 1, 1, 1, 1};
    const float sum = (float)(m->size * (m->size + 1) / 2);
    float data[SOME], result[SOME];
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    trib_sparse_options all = TRIB_SPARSE_OPTIONS_INIT;
    trib_sparse *sparse = NULL;
    const trib_tensor tensor = {data, SOME, TRIB_F32, 0};
    options.flags = TRIB_CALL_FACTOR;
    options.factor = m->rank + 1;
    all.algorithm = "topka";
    all.flags = TRIB_SPARSE_USE_K;
    all.k = SOME - 1;
    memcpy(data, ones, sizeof data);
    CHECK_OK(
        trib_allreduce_with(m->comm, data, result, SOME, TRIB_F32, TRIB_SUM, &options, m->stream));
    CHECK_OK(trib_allreduce_list(m->comm, &tensor, 1, TRIB_SUM, m->stream));
    CHECK_OK(trib_barrier(m->comm, m->stream));
    member_wait(m);
    for (int i = 0; i < SOME; i++)
        CHECK(result[i] == sum && data[i] == (float)m->size);
    data[SOME - 1] = 0;
    if (!CHECK_OK(trib_sparse_create(&sparse, m->comm, SOME, TRIB_F32, &all)))
        return;
    CHECK_OK(trib_sparse_allreduce(sparse, data, result, m->stream));
    member_wait(m);
    for (int i = 0; i < SOME; i++)
        CHECK(result[i] == (i < SOME - 1 ? (float)(m->size * m->size) : 0));
    CHECK_OK(trib_sparse_destroy(sparse));
}

/* The child's ranks are those of `parent` with this rank's parity, the last first. */
static void split(const struct member *parent, struct buffers *b)
{
    struct member child = *parent, none = *parent;
    int32_t right = 0, n = 0;
    for (int rank = parent->rank % 2; rank < parent->size; rank += 2, n++)
        right += value(rank, 0);
    CHECK_OK(trib_comm_split(&child.comm, parent->comm, parent->rank % 2, -parent->rank));
    CHECK(trib_comm_size(child.comm) == n &&
          trib_comm_rank(child.comm) == n - 1 - parent->rank / 2);
    fill(b->send, parent->rank, 0, 1);
    CHECK_OK(trib_allreduce(child.comm, b->send, b->recv, 1, TRIB_I32, TRIB_SUM, child.stream));
    member_wait(&child);
    CHECK_MSG(b->recv[0] == right, "%d, not %d", b->recv[0], right);
    CHECK_OK(trib_comm_split(&none.comm, parent->comm, parent->rank == 0 ? TRIB_NO_COLOR : 3, 0));
    CHECK(none.comm == NULL ? parent->rank == 0 : trib_comm_size(none.comm) == parent->size - 1);
    CHECK_OK(trib_comm_destroy(child.comm));
    CHECK_OK(trib_comm_destroy(none.comm));
}

struct dense {
    int index, processes, threads;
};

static void dense_rank(int thread, int threads, void *argument)
{
    const struct dense *dense = argument;
    struct member m;
    struct buffers *b = calloc(1, sizeof *b);
    if (b == NULL)
        abort();
    if (member_begin(&m, dense->index * threads + thread, dense->processes * threads, NULL)) {
        CHECK(m.comm->backend->transport->here(m.comm->transport) == threads);
        reduces(&m, b, SOME);
        reduces(&m, b, MANY);
        copies(&m, b, SOME);
        copies(&m, b, MANY);
        messages(&m, b, SOME);
        messages(&m, b, MANY);
        more(&m);
        split(&m, b);
        split(&m, b);
    }
    member_end(&m);
    free(b);
}

static void dense(int index, int n, void *threads)
{
    struct dense self = {index, n, *(const int *)threads};
    check_ranks(self.threads, dense_rank, &self);
}

static void all_collectives(int processes, int threads)
{
    check_begin("%d processes of %d ranks", processes, threads);
    processes_check(processes, MEMBER_DEADLINE_MS, dense, &threads);
    check_end();
}

/* ----------------------------------------------------------------------------------------- open */

/* A rank that did not come, and one that comes later; a rank that is there twice. */
static void late(int index, int n, void *argument)
{
    struct member m;
    trib_comm *none = NULL;
    const trib_id id = processes_id(0);
    trib_options short_wait = TRIB_OPTIONS_INIT;
    (void)argument;
    short_wait.timeout_ms = 50;
    if (!member_prepare(&m, index, n, 0))
        return;
    if (index == 0) {
        CHECK_STATUS(trib_comm_create(&none, &id, 0, n, 0, &short_wait), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("rank 0 of 2 waited 50 ms; these ranks did not join: 1");
        CHECK_STATUS(trib_comm_create(&none, &id, 0, 3, 0, NULL), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_DETAIL("size 3, earlier ranks passed 2");
    }
    processes_meet(0, n);
    if (member_join(&m, 0, NULL)) {
        CHECK_STATUS(trib_comm_create(&none, &id, index, n, 0, NULL), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_DETAIL("has joined already");
    }
    member_end(&m);
}

/* An id that one process makes; a group, whose ranks are all in one. */
static void others(int index, int n, void *argument)
{
    trib_id *id = argument;
    struct member m;
    trib_group *group = NULL;
    float data[3] = {1, 2, 4};
    const void *send[3] = {&data[0], &data[1], &data[2]};
    void *recv[3] = {&data[0], &data[1], &data[2]};
    const trib_stream streams[3] = {NULL, NULL, NULL};
    if (!member_prepare(&m, index, n, 0))
        return;
    if (index == 0)
        CHECK_OK(trib_id_create(id, NULL));
    processes_meet(0, n);
    CHECK_OK(trib_comm_create(&m.comm, id, index, n, 0, NULL));
    CHECK_OK(trib_group_create(&group, NULL, 3, NULL));
    CHECK_OK(trib_group_allreduce(group, send, recv, 1, TRIB_F32, TRIB_SUM, streams));
    CHECK_OK(trib_group_destroy(group));
    CHECK(data[0] == 7 && data[1] == 7 && data[2] == 7);
    member_end(&m);
}

static void opening(void)
{
    trib_id *id = children_share(sizeof *id);
    check_begin("ranks that are late, or there twice");
    processes_check(2, MEMBER_DEADLINE_MS, late, NULL);
    check_end();
    check_begin("ids and groups");
    processes_check(2, MEMBER_DEADLINE_MS, others, id);
    check_end();
    children_unshare(id, sizeof *id);
}

/* ----------------------------------------------------------------------------------------- ends */

static void end_somehow(int index, int n, void *argument)
{
    (void)n;
    (void)argument;
    if (index == 1)
        _exit(3);
    if (index == 2)
        (void)raise(SIGTERM);
    while (index == 3)
        (void)pause();
    if (index == 4 && freopen("/dev/null", "w", stdout) != NULL)
        CHECK(index == 0);
}

static void ends_are_told(void)
{
    struct child_end ends[5];
    check_begin("how processes end");
    processes_run(ends, 5, 500, end_somehow, NULL);
    CHECK(ends[0].code == 0 && ends[0].signal == 0 && !ends[0].late);
    CHECK(ends[1].code == 3 && ends[1].signal == 0 && !ends[1].late);
    CHECK(ends[2].code == -1 && ends[2].signal == SIGTERM && !ends[2].late);
    CHECK(ends[3].code == -1 && ends[3].signal == SIGKILL && ends[3].late);
    CHECK(ends[4].code == EXIT_FAILURE && ends[4].signal == 0 && !ends[4].late);
    check_end();
}

/* ---------------------------------------------------------------------------------- one process */

static void conforms(int index, int n, void *argument)
{
    (void)index;
    (void)n;
    (void)argument;
    backend_suite("processes", 3, BACKEND_LIGHT);
    CHECK(check_finish("the suite of backends") == EXIT_SUCCESS);
}

/* With all ranks in one process, and devices that are host's, it is a backend as any other. */
static void conformance(void)
{
    check_begin("the suite of backends");
    processes_check(1, MEMBER_DEADLINE_MS, conforms, NULL);
    check_end();
}

int main(void)
{
    conformance(); /* first: its process goes on counting the cases */
    ends_are_told();
    all_collectives(2, 1);
    all_collectives(3, 1);
    all_collectives(2, 2);
    opening();
    return check_finish("processes_test");
}
