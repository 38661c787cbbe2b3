/* Changes of a state between calls: another k, export and import, reset. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/api/sparse.h"

/* A memory of 1, 2, 3 ... 1000 is sent off in the order of size, whatever k is at the time. */
static void another_k(int rank, int size, void *team)
{
    static const double densities[] = {0.001, 0.25, 0.01, 1};
    struct fixture fixture;
    for (int32_t which = 0; which < 2; which++) {
        const trib_sparse_options options = fixture_options(which == 0 ? "topka" : "shared", 3, 0);
        int left = FIXTURE_COUNT;
        if (!fixture_open(&fixture, team, rank, &options))
            return;
        fixture_fill(&fixture, 0, FIXTURE_COUNT, 1);
        for (int call = 0; call < 6; call++) {
            if (call == 1)
                CHECK_OK(trib_sparse_set_k(fixture.sparse, 50));
            else if (call > 1)
                CHECK_OK(trib_sparse_set_density(fixture.sparse, densities[call - 2]));
            const int k = (int)fixture_statistics(&fixture).k;
            CHECK_OK(fixture_call(&fixture));
            for (int i = 0; i < FIXTURE_COUNT; i++)
                CHECK(fixture.found[i] ==
                      (i < left && i >= left - k ? (float)((i + 1) * size) : 0));
            left = left > k ? left - k : 0;
            fixture_fill(&fixture, 0, 0, 0);
        }
        CHECK(left == 0);
        CHECK(fixture_statistics(&fixture).calls == 6);
        CHECK_OK(trib_sparse_set_k(fixture.sparse, UINT64_MAX));
        CHECK(fixture_statistics(&fixture).k == FIXTURE_COUNT);
        fixture_close(&fixture);
    }
}

/* auto chooses anew with every k, and what is left over is not lost. */
static void another_choice(int rank, int size, void *team)
{
    const trib_sparse_options options = fixture_options(NULL, 2, 0);
    float sum[3] = {0, 0, 0};
    struct fixture fixture;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    for (int call = 0; call < 12; call++) {
        CHECK_OK(trib_sparse_set_k(fixture.sparse, call % 2 == 0 ? FIXTURE_COUNT : 1));
        fixture_fill(&fixture, (size_t)(190 * rank), 3, 1);
        CHECK_OK(fixture_call(&fixture));
        for (int i = 0; i < 3; i++)
            sum[i] += fixture.found[190 * rank + i];
        CHECK(strlen(fixture_statistics(&fixture).reason) > 20);
    }
    CHECK_OK(trib_sparse_set_density(fixture.sparse, 1));
    fixture_fill(&fixture, 0, 0, 0);
    CHECK_OK(fixture_call(&fixture));
    for (int i = 0; i < 3; i++)
        CHECK(sum[i] + fixture.found[190 * rank + i] == 12.0f * (float)(i + 1));
    (void)size;
    fixture_close(&fixture);
}

/* Two states, one of which takes over what the other was: from then on they do the same. */
static void out_and_in(int rank, int size, void *team)
{
    struct fixture old, new;
    for (int32_t i = 0; i < trib_sparse_algorithm_count(); i++) {
        const char *name = trib_sparse_algorithm_name(i);
        const trib_sparse_options options = fixture_options(name, 16, 0);
        size_t bytes, other_bytes;
        if (!fixture_open(&old, team, rank, &options) || !fixture_open(&new, team, rank, &options))
            return;
        for (int call = 0; call < 5; call++) {
            fixture_fill(&old, (size_t)(rank + call), 100, 1);
            CHECK_OK(fixture_call(&old));
        }
        char *data = fixture_export(&old, &bytes);
        CHECK_OK(trib_sparse_import(new.sparse, data, bytes, 0, new.stream));
        char *again = fixture_export(&new, &other_bytes);
        CHECK_MSG(bytes == other_bytes && memcmp(data, again, bytes) == 0,
                  "%s: an export that was imported is another one", name);
        for (int call = 0; call < 5; call++) {
            fixture_fill(&old, (size_t)(7 * rank + call), 100, 3);
            memcpy(new.given, old.given, sizeof old.given);
            CHECK_OK(fixture_call(&old));
            CHECK_OK(fixture_call(&new));
            CHECK_MSG(memcmp(old.found, new.found, sizeof old.found) == 0,
                      "%s: another result after an import", name);
        }
        (void)size;
        free(data);
        free(again);
        fixture_close(&old);
        fixture_close(&new);
    }
}

/* The residual of another algorithm, added twice; then everything is sent. */
static void added(int rank, int size, void *team)
{
    const trib_sparse_options one = fixture_options("gtopk", 1, 0);
    const trib_sparse_options all = fixture_options("dense", 1, 0);
    struct fixture from, to;
    size_t bytes;
    if (!fixture_open(&from, team, rank, &one) || !fixture_open(&to, team, rank, &all))
        return;
    fixture_fill(&from, 10, 3, 2); /* 2, 3, 4: the 4 is sent */
    CHECK_OK(fixture_call(&from));
    char *data = fixture_export(&from, &bytes);
    for (int i = 0; i < 2; i++)
        CHECK_OK(trib_sparse_import(to.sparse, data, bytes, 1, to.stream));
    fixture_fill(&to, 11, 1, 100);
    CHECK_OK(fixture_call(&to));
    CHECK(to.found[10] == 4 * (float)size && to.found[11] == 106 * (float)size);
    CHECK(to.found[12] == 0);
    free(data);
    fixture_close(&from);
    fixture_close(&to);
}

static void is_refused(struct fixture *fixture, const char *data, size_t bytes, const char *why)
{
    CHECK_STATUS(trib_sparse_import(fixture->sparse, data, bytes, 0, fixture->stream),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("trib_sparse_import on rank");
    CHECK_DETAIL(why);
}

/* An export with one bit changed. */
static void changed_exports(struct fixture *fixture, const char *data, size_t bytes)
{
    char *changed = malloc(bytes);
    if (changed == NULL)
        abort();
    CHECK_STATUS(trib_sparse_export(fixture->sparse, changed, bytes - 1, fixture->stream),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("trib_sparse_export_bytes");
    for (size_t at = 0; at < bytes; at += at < 200 ? 1 : 97) {
        memcpy(changed, data, bytes);
        changed[at] ^= 0x10;
        CHECK_STATUS(trib_sparse_import(fixture->sparse, changed, bytes, 0, fixture->stream),
                     TRIB_ERR_INVALID_ARGUMENT);
    }
    free(changed);
}

/* The export of a state with a residual to one in place, which has none, and the reverse. */
static void exports_in_place(struct fixture *fixture, struct fixture *bare, const char *data,
                             size_t bytes)
{
    size_t bare_bytes;
    char *bare_data = fixture_export(bare, &bare_bytes);
    is_refused(bare, data, bytes, "in place");
    is_refused(fixture, bare_data, bare_bytes, "in place");
    CHECK_OK(trib_sparse_import(bare->sparse, bare_data, bare_bytes, 0, bare->stream));
    free(bare_data);
}

static void not_exports(int rank, int size, void *team)
{
    const trib_sparse_options options = fixture_options("topka", 4, 0);
    const trib_sparse_options in_place = fixture_options("topka", 4, TRIB_SPARSE_IN_PLACE);
    struct fixture fixture, bare, shorter, wider;
    size_t bytes, other;
    (void)size;
    if (!fixture_open(&fixture, team, rank, &options) ||
        !fixture_open(&bare, team, rank, &in_place) || !fixture_open(&shorter, team, rank, NULL) ||
        !fixture_open(&wider, team, rank, NULL))
        return;
    CHECK_OK(trib_sparse_create(&shorter.sparse, shorter.comm, 999, TRIB_F32, &options));
    CHECK_OK(trib_sparse_create(&wider.sparse, wider.comm, FIXTURE_COUNT, TRIB_F64, &options));
    fixture_fill(&fixture, 0, 100, 1);
    CHECK_OK(fixture_call(&fixture));
    char *data = fixture_export(&fixture, &bytes);
    changed_exports(&fixture, data, bytes);
    is_refused(&fixture, data, 0, "head");
    is_refused(&fixture, data, 100, "head");
    is_refused(&fixture, data, bytes - 1, "whole");
    is_refused(&shorter, data, bytes, "1000 elements");
    is_refused(&wider, data, bytes, "f64");
    exports_in_place(&fixture, &bare, data, bytes);
    char *after = fixture_export(&fixture, &other);
    CHECK(bytes == other && memcmp(data, after, bytes) == 0);
    free(data);
    free(after);
    fixture_close(&fixture);
    fixture_close(&bare);
    fixture_close(&shorter);
    fixture_close(&wider);
}

/* A state that is reset, without waiting for anything, does what a new one does. */
static void as_new(int rank, int size, void *team)
{
    struct fixture used, new;
    (void)size;
    for (int32_t i = 0; i < trib_sparse_algorithm_count(); i++) {
        const char *name = trib_sparse_algorithm_name(i);
        const trib_sparse_options options = fixture_options(name, 16, 0);
        if (!fixture_open(&used, team, rank, &options) || !fixture_open(&new, team, rank, &options))
            return;
        fixture_fill(&used, (size_t)rank, 200, 1);
        fixture_push(&used);
        for (int call = 0; call < 3; call++)
            CHECK_OK(trib_sparse_allreduce(used.sparse, used.gradient, used.result, used.stream));
        CHECK_OK(trib_sparse_reset(used.sparse, used.stream));
        for (int call = 0; call < 4; call++) {
            fixture_fill(&used, (size_t)(3 * rank + call), 100, 5);
            memcpy(new.given, used.given, sizeof used.given);
            CHECK_OK(fixture_call(&used));
            CHECK_OK(fixture_call(&new));
            CHECK_MSG(memcmp(used.found, new.found, sizeof used.found) == 0,
                      "%s: another result after a reset", name);
        }
        CHECK(fixture_statistics(&used).calls == 7);
        fixture_close(&used);
        fixture_close(&new);
    }
}

/* The digest of an export, which guards against accidents, not against design. */
static void sign(char *data, size_t bytes)
{
    enum { AT = 24, HEAD = 128 };
    uint64_t digest = 0x9e3779b97f4a7c15u, word = 0;
    memcpy(data + AT, &word, sizeof word);
    for (size_t at = 0; at < bytes; at += sizeof word) {
        memcpy(&word, data + at, sizeof word);
        digest = (digest ^ word) * 0x100000001b3u;
        if (at >= HEAD)
            digest ^= digest >> 29;
    }
    memcpy(data + AT, &digest, sizeof digest);
}

/* Exports with a good digest, of thresholds and counts that no state has. `device` and `host` tell
 * the bytes of each part. */
static void forged(struct fixture *fixture, size_t device, size_t host)
{
    static const float thresholds[] = {NAN, INFINITY, -1};
    static const uint32_t count = 99;
    size_t bytes, begin = 128 + FIXTURE_COUNT * sizeof(float), other;
    char *data = fixture_export(fixture, &bytes), *changed = malloc(bytes);
    if (changed == NULL)
        abort();
    memcpy(changed, data, bytes);
    sign(changed, bytes);
    CHECK(memcmp(data, changed, bytes) == 0); /* or `sign` is another digest */
    for (size_t at = 0; at < device; at += 8)
        for (size_t i = 0; i < 3; i++) {
            memcpy(changed, data, bytes);
            memcpy(changed + begin + at, &thresholds[i], sizeof thresholds[i]);
            sign(changed, bytes);
            is_refused(fixture, changed, bytes, "thresholds");
        }
    for (size_t at = 0; at < host; at += sizeof count) {
        memcpy(changed, data, bytes);
        memcpy(changed + begin + (device + 15) / 16 * 16 + at, &count, sizeof count);
        sign(changed, bytes);
        is_refused(fixture, changed, bytes, "thresholds");
    }
    char *after = fixture_export(fixture, &other);
    CHECK(bytes == other && memcmp(data, after, bytes) == 0);
    CHECK_OK(trib_sparse_import(fixture->sparse, data, bytes, 0, fixture->stream));
    free(data);
    free(changed);
    free(after);
}

/* One with a good digest, of a residual that is longer than the state's. */
static void forged_length(struct fixture *fixture)
{
    enum { BYTES_AT = 16, RESIDUAL_AT = 96 };
    const uint64_t more = 1 << 20;
    uint64_t length;
    size_t bytes;
    char *data = fixture_export(fixture, &bytes), *longer = calloc(1, bytes + more);
    if (longer == NULL)
        abort();
    memcpy(longer, data, bytes);
    for (size_t at = BYTES_AT; at <= RESIDUAL_AT; at += RESIDUAL_AT - BYTES_AT) {
        memcpy(&length, longer + at, sizeof length);
        length += more;
        memcpy(longer + at, &length, sizeof length);
    }
    sign(longer, bytes + more);
    is_refused(fixture, longer, bytes + more, "residual of another length");
    free(data);
    free(longer);
}

static void forgeries(int rank, int size, void *team)
{
    static const struct {
        const char *name;
        size_t device, host;
    } cases[] = {
        {"topkaopt", 8, 8}, {"oktopk", 16, 16}, {"gaussiank", 0, 4}, {"gaussiankconcat", 0, 4}};
    struct fixture fixture;
    (void)size;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        trib_sparse_options options = fixture_options(cases[i].name, 16, 0);
        options.constants = "vgg";
        if (!fixture_open(&fixture, team, rank, &options))
            return;
        fixture_fill(&fixture, 0, 200, 1);
        CHECK_OK(fixture_call(&fixture));
        forged(&fixture, cases[i].device, cases[i].host);
        forged_length(&fixture);
        CHECK_OK(fixture_call(&fixture));
        CHECK_OK(trib_sparse_status(fixture.sparse));
        fixture_close(&fixture);
    }
}

/* What the calls before leave, asked for without waiting for them. */
static void read_out(int rank, int size, void *team)
{
    static const char *const names[] = {"topka", "gtopk", "oktopk", "chunked"};
    struct fixture fixture;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const trib_sparse_options options = fixture_options(names[i], 2, 0);
        size_t bytes;
        if (!fixture_open(&fixture, team, rank, &options))
            return;
        CHECK(trib_sparse_k(fixture.sparse) == 2);
        fixture_fill(&fixture, 0, 10, 1); /* 1 .. 10, of which 9 and 10 are sent */
        fixture_push(&fixture);
        for (int calls = 0; calls < 3; calls++) {
            CHECK_OK(trib_sparse_residual(fixture.sparse, fixture.result, fixture.stream));
            fixture_pull(&fixture);
            for (int at = 0; at < FIXTURE_COUNT && calls < 2 && i != 3; at++)
                CHECK_MSG(fixture.found[at] == (calls == 1 && at < 8 ? (float)(at + 1) : 0),
                          "%s: %g at %d after %d calls", names[i], (double)fixture.found[at], at,
                          calls);
            char *data = fixture_export(&fixture, &bytes);
            CHECK(memcmp(data + 128, fixture.found, sizeof fixture.found) == 0);
            free(data);
            CHECK_OK(trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.result,
                                           fixture.stream));
        }
        CHECK_OK(trib_sparse_set_k(fixture.sparse, 77));
        CHECK(trib_sparse_k(fixture.sparse) == 77);
        (void)size;
        fixture_close(&fixture);
    }
}

/* Rank 0 has queued a call more than the others when all is aborted: its schedule is one call
 * ahead. Where the states go on, the ranks agree on one. */
struct ahead {
    struct team team;
    const char *algorithm;
    _Atomic int arrived;
    char *exports[TEAM_MAX];
    size_t bytes;
};

static void one_ahead(int rank, int size, void *argument)
{
    struct ahead *ahead = argument;
    const trib_sparse_options options = fixture_options(ahead->algorithm, 4, 0);
    struct fixture fixture;
    if (!fixture_open(&fixture, &ahead->team, rank, &options))
        return;
    for (int call = 0; call < 3; call++) {
        fixture_fill(&fixture, (size_t)rank, 20, 1);
        CHECK_OK(fixture_call(&fixture));
    }
    team_barrier(&ahead->arrived, size);
    if (rank == 0) {
        const trib_status status =
            trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.result, fixture.stream);
        CHECK_MSG(status == TRIB_OK || status == TRIB_ERR_ABORTED, "%s", trib_last_detail());
    }
    if (rank == size - 1) {
        trib_abort *handle = NULL;
        check_sleep_ms(20);
        CHECK_OK(trib_comm_abort_handle(&handle, fixture.comm));
        CHECK_OK(trib_abort_raise(handle, "one rank is a call ahead"));
        trib_abort_release(handle);
    }
    CHECK(team_wait(&ahead->team, rank, 10000));
    size_t bytes;
    ahead->exports[rank] = fixture_export(&fixture, &bytes);
    if (rank == 0)
        ahead->bytes = bytes;
    fixture_close(&fixture);
}

static void goes_on(int rank, int size, void *argument)
{
    struct ahead *ahead = argument;
    const trib_sparse_options options = fixture_options(ahead->algorithm, 4, 0);
    struct fixture fixture;
    (void)size;
    if (!fixture_open(&fixture, &ahead->team, rank, &options))
        return;
    CHECK_OK(
        trib_sparse_import(fixture.sparse, ahead->exports[rank], ahead->bytes, 0, fixture.stream));
    for (int call = 0; call < 3; call++) {
        fixture_fill(&fixture, 500, 4, 1000);
        CHECK_OK(fixture_call(&fixture));
        CHECK_OK(trib_sparse_status(fixture.sparse));
        for (int i = 500; i < 504; i++)
            CHECK_MSG(fixture.found[i] == (float)((500 + i) * size), "%s: %g at %d",
                      ahead->algorithm, (double)fixture.found[i], i);
    }
    fixture_close(&fixture);
}

static void schedules(const char *backend, int size, const char *algorithm)
{
    struct ahead ahead = {.algorithm = algorithm};
    check_begin("%s, %d ranks: %s, one of them a call ahead, exported and imported", backend, size,
                algorithm);
    if (team_create(&ahead.team, backend, size, NULL))
        check_ranks(size, one_ahead, &ahead);
    team_destroy(&ahead.team);
    if (team_create(&ahead.team, backend, size, NULL))
        check_ranks(size, goes_on, &ahead);
    team_destroy(&ahead.team);
    for (int rank = 0; rank < size; rank++)
        free(ahead.exports[rank]);
    check_end();
}

void sparse_life(const char *backend, int size)
{
    if (size > 1) {
        schedules(backend, size, "shared");
        schedules(backend, size, "topkaopt");
    }
    fixture_ranks(backend, size, NULL, another_k, "k changed between calls");
    fixture_ranks(backend, size, NULL, another_choice, "auto, with another k each time");
    fixture_ranks(backend, size, NULL, out_and_in, "export and import");
    fixture_ranks(backend, size, NULL, read_out, "the residual and k");
    fixture_ranks(backend, size, NULL, added, "a residual added to another");
    fixture_ranks(backend, size, NULL, forgeries, "imports of what no state has written");
    fixture_ranks(backend, size, NULL, not_exports, "imports of what is no export");
    fixture_ranks(backend, size, NULL, as_new, "reset");
}
