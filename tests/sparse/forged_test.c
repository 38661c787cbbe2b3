/* Numbers of another rank from which the host makes lengths and addresses: one rank sends wrong
 * ones. The call fails on all ranks, and none applies it. Over a backend whose runs happen in the
 * caller's thread, where the last rank's allgathers can be damaged on their way. */
#include <stdlib.h>
#include <string.h>

#include "csrc/sparse/algorithms/regions.h"
#include "tests/api/sparse.h"
#include "tests/own_backend.h"

extern const struct tri_backend tri_backend_host;

enum { SIZE = 3, K = 400 };

/* ---------------------------------------------------------------------------------- the backend */

/* Of this thread, which is a rank's. */
static _Thread_local void (*forge)(uint32_t *sent); /* NULL: nothing is damaged */
static _Thread_local size_t forged_bytes;           /* of the allgather that is damaged, and */
static _Thread_local int before_it;                 /* how many of as many bytes come first */

static trib_status copy(int32_t device, void *dst, const void *src, size_t bytes,
                        trib_stream stream)
{
    const trib_status status = tri_backend_host.device->stream_wait(device, stream);
    if (status == TRIB_OK && bytes != 0)
        memmove(dst, src, bytes);
    return status;
}

static trib_status push_device(int32_t device, uintptr_t *previous)
{
    (void)device;
    *previous = 0;
    return TRIB_OK;
}

static void pop_device(uintptr_t previous)
{
    (void)previous;
}

static uint64_t capturing(int32_t device, trib_stream stream)
{
    (void)device;
    (void)stream;
    return false;
}

static trib_status collective(const struct tri_call *calls, size_t n)
{
    const size_t bytes = calls->count * trib_dtype_size(calls->dtype);
    void *damaged = NULL;
    if (forge != NULL && n == 1 && calls->kind == TRI_ALLGATHER && bytes == forged_bytes &&
        before_it-- == 0) {
        const void *sent = calls->send;
        memcpy(&damaged, &sent, sizeof damaged); /* the algorithm's own memory */
        forge(damaged);
        forge = NULL;
    }
    return tri_backend_host.transport->collective(calls, n);
}

/* Calls run where they are queued: none waits. */
static void progress(struct tri_transport *transport, struct tri_progress *out)
{
    (void)transport;
    *out = (struct tri_progress){0};
}

static struct tri_device_ops device_ops;
static struct tri_transport_ops transport_ops;

static void make_backend(void)
{
    device_ops = *tri_backend_host.device;
    device_ops.copy = copy;
    device_ops.fetch = copy;
    device_ops.push_device = push_device;
    device_ops.pop_device = pop_device;
    device_ops.capturing = capturing;
    transport_ops = *tri_backend_host.transport;
    transport_ops.submit = NULL;
    transport_ops.collective = collective;
    transport_ops.progress = progress;
    backend = tri_backend_host;
    backend.name = "forged";
    backend.device = &device_ops;
    backend.transport = &transport_ops;
}

/* --------------------------------------------------------------------------------- what is sent */

static struct tri_regions_row *row_of(uint32_t *sent)
{
    return (struct tri_regions_row *)(void *)sent;
}

/* Of the positions: the lists have K entries, about a third of them in each region. */
static void first_is_left_out(uint32_t *sent)
{
    row_of(sent)->positions[0] = 1;
}

static void position_is_huge(uint32_t *sent)
{
    row_of(sent)->positions[1] = UINT32_MAX;
}

static void positions_descend(uint32_t *sent)
{
    row_of(sent)->positions[2] = row_of(sent)->positions[1] - 1;
}

static void part_is_longer_than_region(uint32_t *sent)
{
    uint32_t *positions = row_of(sent)->positions;
    positions[1] = positions[2] = positions[3];
}

static void last_is_left_out(uint32_t *sent)
{
    row_of(sent)->positions[SIZE]--;
}

static void last_is_above_the_count(uint32_t *sent)
{
    row_of(sent)->positions[SIZE]++;
}

static void all_is_above_the_capacity(uint32_t *sent)
{
    row_of(sent)->header.count = row_of(sent)->positions[SIZE] = FIXTURE_COUNT + 1;
}

static void count_is_huge(uint32_t *sent)
{
    *sent = UINT32_MAX;
}

/* As many as one rank may have, but not if the others have any. */
static void count_is_all(uint32_t *sent)
{
    *sent = K;
}

static void bound_is_huge(uint32_t *sent)
{
    sent[1] = sent[2] = FIXTURE_COUNT + 1;
}

static void bounds_descend(uint32_t *sent)
{
    sent[1] = 900;
    sent[2] = 100;
}

/* ------------------------------------------------------------------------------------ the calls */

struct forgery {
    const char *what, *algorithm, *constants;
    void (*forge)(uint32_t *sent);
    size_t bytes; /* of the allgather that is damaged, */
    int before;   /* and how many such come before it in the call */
    const char *detail;
};

enum { ROW = sizeof(struct tri_regions_row), COUNT = 4, BOUNDS = SIZE * 4 };

static const struct forgery forgeries[] = {
    {"its first entry in no region", "topksa", NULL, first_is_left_out, ROW, 0,
     "rank 2 sent 1 as the number of its entries, expected 0 to 0"},
    {"a position beyond its list", "topksa", NULL, position_is_huge, ROW, 0,
     "rank 2 sent 4294967295 as the number of its entries below bound 1, expected 0 to 333"},
    {"positions that descend", "gaussianksa", NULL, positions_descend, ROW, 0, "below bound 2"},
    {"more entries than a region has", "topksa", NULL, part_is_longer_than_region, ROW, 0,
     "rank 2 sent 400 as the number of its entries below bound 1, expected 0 to 333"},
    {"its last entry in no region", "oktopk", NULL, last_is_left_out, ROW, 0,
     "rank 2 sent 399 as the number of its entries below bound 3, expected 400 to 400"},
    {"an entry more than its count", "oktopk", NULL, last_is_above_the_count, ROW, 0,
     "rank 2 sent 401 as the number of its entries below bound 3"},
    {"more entries than there may be, in its second row", "oktopk", "vgg",
     all_is_above_the_capacity, ROW, 1,
     "rank 2 sent 1001 as the number of its entries, expected 0 to 1000"},
    {"a count beyond all memory", "topksa", NULL, count_is_huge, COUNT, 0,
     "rank 2 sent 4294967295 as the number of its sums, expected 0 to 334"},
    {"a count beyond all memory", "gaussianksa", NULL, count_is_huge, COUNT, 0, "of its sums"},
    {"a count beyond all memory", "oktopk", NULL, count_is_huge, COUNT, 1, "of its sums"},
    {"too many sums together", "oktopk", NULL, count_is_all, COUNT, 1,
     "rank 2 sent 400 as the number of its sums, expected 0 to "},
    {"a count beyond all memory", "oktopk", "vgg", count_is_huge, COUNT, 1, "of its sums"},
    {"a count beyond all memory", "oktopk", "bert", count_is_huge, COUNT, 1, "of its sums"},
    {"a bound beyond the tensor", "oktopk", "vgg", bound_is_huge, BOUNDS, 0,
     "rank 2 sent 1001 as a bound of regions, expected 0 to 1000"},
    {"bounds that descend", "oktopk", "bert", bounds_descend, BOUNDS, 0,
     "rank 2 sent 100 as a bound of regions, expected 900 to 1000"},
};

struct trial {
    struct team team;
    const struct forgery *forgery;
    uint32_t flags;
    _Atomic int arrived;
};

/* The call fails, and leaves what it found: the residual (an export without its first 128 bytes,
 * which count calls), the statistics, in place the gradient. */
static void failing_call(struct fixture *fixture, struct trial *trial)
{
    const trib_sparse_statistics before = fixture_statistics(fixture);
    const bool in_place = (trial->flags & TRIB_SPARSE_IN_PLACE) != 0;
    const size_t residual = in_place ? 0 : FIXTURE_COUNT * sizeof(float);
    float gradient[FIXTURE_COUNT];
    size_t bytes, other;
    char *kept = fixture_export(fixture, &bytes);
    fixture_push(fixture);
    team_barrier(&trial->arrived, fixture->size); /* nobody is in the first call any more */
    forge = fixture->rank == fixture->size - 1 ? trial->forgery->forge : NULL;
    forged_bytes = trial->forgery->bytes;
    before_it = trial->forgery->before;
    CHECK_STATUS(/* it is a mistake, which trib_comm_status reports */
                 trib_sparse_allreduce(fixture->sparse, fixture->gradient, fixture->result,
                                       fixture->stream),
                 TRIB_ERR_ABORTED);
    CHECK_DETAIL(trial->forgery->detail);
    CHECK(forge == NULL);
    CHECK_STATUS(trib_comm_status(fixture->comm), TRIB_ERR_MISMATCH);
    CHECK_DETAIL(trial->forgery->detail);
    CHECK(fixture_outcome(fixture) == 0);
    CHECK(fixture_statistics(fixture).calls_applied == before.calls_applied);
    char *left = fixture_export(fixture, &other);
    CHECK(bytes == other && memcmp(kept + 128, left + 128, residual) == 0);
    CHECK_OK(trib_device_copy(fixture->device, gradient, fixture->gradient, sizeof gradient,
                              fixture->stream));
    CHECK(memcmp(gradient, fixture->given, sizeof gradient) == 0);
    fixture_pull(fixture);
    for (int i = 0; i < FIXTURE_COUNT; i++)
        CHECK(fixture->found[i] == 0);
    free(kept);
    free(left);
}

/* A sound call first, which leaves a residual; then another k, so that regions are made anew. */
static void take_part(int rank, int size, void *argument)
{
    struct trial *trial = argument;
    trib_sparse_options options = fixture_options(trial->forgery->algorithm, K - 1, trial->flags);
    struct fixture fixture;
    (void)size;
    options.constants = trial->forgery->constants;
    if (!fixture_open(&fixture, &trial->team, rank, &options))
        return;
    fixture_fill(&fixture, (size_t)rank, 900, 1);
    CHECK_OK(fixture_call(&fixture));
    CHECK(fixture_outcome(&fixture) == 1);
    CHECK_OK(trib_sparse_set_k(fixture.sparse, K));
    fixture_fill(&fixture, 0, 900, 1);
    for (int i = 0; i < FIXTURE_COUNT; i += 2) /* the largest are everywhere */
        fixture.given[i] += 5000;
    failing_call(&fixture, trial);
    fixture_close(&fixture);
}

static void check_forgery(const struct forgery *forgery, uint32_t flags)
{
    struct trial trial = {.forgery = forgery, .flags = flags};
    check_begin("%s%s%s%s: a rank sends %s", forgery->algorithm,
                forgery->constants == NULL ? "" : " ",
                forgery->constants == NULL ? "" : forgery->constants, flags == 0 ? "" : " in place",
                forgery->what);
    if (CHECK(team_create(&trial.team, "forged", SIZE, NULL)))
        check_ranks(SIZE, take_part, &trial);
    team_destroy(&trial.team);
    check_end();
}

int main(void)
{
    make_backend();
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        check_forgery(&forgeries[i], 0);
        check_forgery(&forgeries[i], TRIB_SPARSE_IN_PLACE);
    }
    return check_finish("forged_test");
}
