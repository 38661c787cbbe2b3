/* The conformance suite of kernel tables: commit, and pack and unpack of large tensors. */
#include "tests/conformance/kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES = 96 << 20 };

/* --------------------------------------------------------------------------------------- commit */

/* The place's words; the decision, the total and its copy lie in the arena. */
struct words {
    uint32_t *abort_flag;
    struct tri_list_counts *counts;
};

static void commit_case(struct arena *arena, const struct words *words, uint32_t abort_flag,
                        trib_dtype dtype, const double *total, bool wants_total)
{
    const struct kernels_place *place = arena->place;
    struct tri_list_counts counts = {41, 17, 99};
    arena_reset(arena);
    const size_t decision = arena_place(arena, sizeof(uint32_t), 0);
    const size_t sum = arena_place(arena, sizeof(double), 0);
    const size_t copy = arena_place(arena, sizeof(float), 4);
    place->upload(words->abort_flag, &abort_flag, sizeof abort_flag);
    place->upload(words->counts, &counts, sizeof counts);
    if (total != NULL)
        kernels_put(arena->image + sum, dtype, *total);
    arena_upload(arena);

    const struct tri_commit job = {.abort_flag = words->abort_flag,
                                   .counts = words->counts,
                                   .total = total != NULL ? arena->device + sum : NULL,
                                   .total_dtype = dtype,
                                   .total_out =
                                       wants_total ? (float *)(void *)(arena->device + copy) : NULL,
                                   .decision = (uint32_t *)(void *)(arena->device + decision)};
    CHECK_OK(place->kernels->commit(&job, place->stream));

    const bool go = abort_flag == 0 && (total == NULL || (isfinite(*total) && *total > 0));
    const bool none = abort_flag == 0 && total != NULL && *total == 0;
    const uint32_t expected = go ? 1 : 0, refused = !go && !none && abort_flag == 0 ? 1 : 0;
    memcpy(arena->image + decision, &expected, sizeof expected);
    if (wants_total) {
        kernels_put(arena->image + copy, TRIB_F32, go || none ? *total : (double)NAN);
        arena_mark(arena, copy, 1, TRIB_F32);
    }
    if (total != NULL)
        arena_mark(arena, sum, 1, dtype);
    (void)arena_check(arena, "decision, total and its copy");
    place->download(&counts, words->counts, sizeof counts);
    CHECK_MSG(counts.committed == 41 + expected && counts.refused == 17 + refused,
              "committed is %u and refused %u after %s", (unsigned)counts.committed,
              (unsigned)counts.refused,
              go        ? "a commit"
              : refused ? "a refusal"
                        : "neither");
    CHECK(counts.newest == (abort_flag != 0 ? TRI_COMMIT_ABORTED
                            : go            ? TRI_COMMIT_DONE
                                            : TRI_COMMIT_WEIGHTS));
}

/* The words of `n` calls, which lie in the arena. */
struct calls {
    size_t n, at, decision, current, velocity;
};

static struct calls place_calls(struct arena *arena, size_t n)
{
    struct calls calls = {.n = n};
    calls.at = arena_place(arena, n * sizeof(struct tri_revocable), 0);
    calls.decision = arena_place(arena, n * sizeof(uint32_t), 0);
    calls.current = arena_place(arena, n * sizeof(uint32_t), 0);
    calls.velocity = arena_place(arena, n * sizeof(uint32_t), 0);
    return calls;
}

static uint32_t *word_of(unsigned char *base, size_t words, size_t i)
{
    return (uint32_t *)(void *)(base + words) + i;
}

/* Every third call has no velocity. The call `refused` was not applied (n: all were). */
static void fill_calls(struct arena *arena, const struct calls *calls, size_t refused)
{
    struct tri_revocable *at = (struct tri_revocable *)(void *)(arena->image + calls->at);
    for (size_t i = 0; i < calls->n; i++) {
        at[i] = (struct tri_revocable){
            .decision = word_of(arena->device, calls->decision, i),
            .current = word_of(arena->device, calls->current, i),
            .velocity = i % 3 == 0 ? NULL : word_of(arena->device, calls->velocity, i)};
        *word_of(arena->image, calls->decision, i) = i != refused;
        *word_of(arena->image, calls->current, i) = i % 2;
        *word_of(arena->image, calls->velocity, i) = i / 2 % 2;
    }
}

static void calls_case(struct arena *arena, const struct words *words, uint32_t abort_flag,
                       size_t n, size_t refused)
{
    const struct kernels_place *place = arena->place;
    struct tri_list_counts counts = {41, 17, 99};
    arena_reset(arena);
    const size_t decision = arena_place(arena, sizeof(uint32_t), 0);
    const struct calls calls = place_calls(arena, n);
    place->upload(words->abort_flag, &abort_flag, sizeof abort_flag);
    place->upload(words->counts, &counts, sizeof counts);
    fill_calls(arena, &calls, refused);
    arena_upload(arena);
    const struct tri_commit job = {
        .abort_flag = words->abort_flag,
        .counts = words->counts,
        .total_dtype = TRIB_F32,
        .calls = (const struct tri_revocable *)(void *)(arena->device + calls.at),
        .ncalls = n,
        .decision = word_of(arena->device, decision, 0)};
    CHECK_OK(place->kernels->commit(&job, place->stream));
    const bool go = abort_flag == 0 && refused == n;
    *word_of(arena->image, decision, 0) = go;
    for (size_t i = 0; !go && i < n; i++) {
        *word_of(arena->image, calls.decision, i) = 0;
        *word_of(arena->image, calls.current, i) ^= i != refused;
        *word_of(arena->image, calls.velocity, i) ^= i != refused && i % 3 != 0;
    }
    (void)arena_check(arena, "decisions and what they chose");
    place->download(&counts, words->counts, sizeof counts);
    CHECK(counts.committed == 41u + go && counts.refused == 17u + (!go && abort_flag == 0));
    CHECK(counts.newest == (go                ? TRI_COMMIT_DONE
                            : abort_flag != 0 ? TRI_COMMIT_ABORTED
                                              : TRI_COMMIT_CALL));
}

static void commit_calls(struct arena *arena, const struct words *words)
{
    static const size_t sizes[] = {1, 2, 3, 127, 128, 129, 1000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (uint32_t abort_flag = 0; abort_flag < 2; abort_flag++) {
            const size_t n = sizes[s];
            calls_case(arena, words, abort_flag, n, n);
            calls_case(arena, words, abort_flag, n, 0);
            calls_case(arena, words, abort_flag, n, n / 2);
            calls_case(arena, words, abort_flag, n, n - 1);
        }
}

void kernels_commit(struct arena *arena)
{
    static const uint32_t abort_flags[] = {0, 1, 0x80000000u};
    /* The last two are finite as f64 only, and as f32 are infinite and 0. */
    static const double totals[] = {1,   3.5,      1e-45,     0,    -0.0,  -1,    -1e-45,
                                    NAN, INFINITY, -INFINITY, 3e38, 1e300, 1e-300};
    const struct kernels_place *place = arena->place;
    const struct words words = {place->alloc_pinned(64), place->alloc_pinned(64)};
    check_begin("%s commit", place->kernels->name);
    for (size_t a = 0; a < sizeof abort_flags / sizeof abort_flags[0]; a++) {
        commit_case(arena, &words, abort_flags[a], TRIB_F32, NULL, false);
        for (size_t t = 0; t < sizeof totals / sizeof totals[0]; t++)
            for (int wants_total = 0; wants_total < 2; wants_total++) {
                const double f32 = (double)(float)totals[t];
                commit_case(arena, &words, abort_flags[a], TRIB_F32, &f32, wants_total);
                commit_case(arena, &words, abort_flags[a], TRIB_F64, &totals[t], wants_total);
            }
    }
    commit_calls(arena, &words);
    check_end();
    place->free_pinned(words.abort_flag);
    place->free_pinned(words.counts);
}

/* ---------------------------------------------------------------------------------------- large */

enum { PIECE = 64 << 20, PERIOD = (1 << 20) + 7 };

/* Bytes [from, from + n) of an endless text. */
static void text(unsigned char *out, const unsigned char *period, size_t from, size_t n)
{
    for (size_t done = 0; done < n;) {
        const size_t at = (from + done) % PERIOD;
        const size_t step = n - done < PERIOD - at ? n - done : PERIOD - at;
        memcpy(out + done, period + at, step);
        done += step;
    }
}

struct large {
    const struct kernels_place *place;
    unsigned char *period, *piece, *found;
};

static void large_write(const struct large *large, char *data, size_t from, size_t n)
{
    for (size_t i = 0; i < n; i += PIECE) {
        const size_t step = n - i < PIECE ? n - i : PIECE;
        text(large->piece, large->period, from + i, step);
        large->place->upload(data + i, large->piece, step);
    }
}

static void large_check(const struct large *large, const char *data, size_t from, size_t n,
                        const char *what)
{
    for (size_t i = 0; i < n; i += PIECE) {
        const size_t step = n - i < PIECE ? n - i : PIECE;
        text(large->piece, large->period, from + i, step);
        large->place->download(large->found, data + i, step);
        CHECK_MSG(memcmp(large->piece, large->found, step) == 0, "%s: bytes %zu to %zu differ",
                  what, i, i + step);
    }
}

/* Three i8 slices, the middle one longer than 2^31, out of one stretch of memory. */
static void large_case(const struct large *large, char *data, char *bucket_data,
                       const uint32_t *decision)
{
    const size_t counts[] = {1003, ((size_t)1 << 31) + 12345, 77};
    const struct kernels_place *place = large->place;
    struct tri_slice slices[3];
    size_t from = 0, end = 0;
    for (int i = 0; i < 3; i++) {
        slices[i] = (struct tri_slice){data + from, counts[i], end, TRIB_I8};
        from += counts[i];
        end = (end + counts[i] + 15) / 16 * 16;
    }
    const struct tri_bucket bucket = {bucket_data, end, TRIB_I8};
    large_write(large, data, 0, from);
    large_write(large, bucket_data, 17, end);
    CHECK_OK(place->kernels->pack(slices, 3, &bucket, NULL, place->stream));
    for (int i = 0; i < 3; i++)
        large_check(large, bucket_data + slices[i].offset, (size_t)((char *)slices[i].data - data),
                    counts[i], "pack");
    large_write(large, bucket_data, 29, end);
    CHECK_OK(place->kernels->unpack(slices, 3, &bucket, 0, decision, place->stream));
    for (int i = 0; i < 3; i++)
        large_check(large, slices[i].data, 29 + slices[i].offset, counts[i], "unpack");
}

void kernels_large(const struct kernels_place *place)
{
    const size_t bytes = ((size_t)1 << 31) + (1 << 20);
    const uint32_t yes = 1;
    struct large large = {place, malloc(PERIOD), malloc(PIECE), malloc(PIECE)};
    char *data = place->alloc(bytes), *bucket = place->alloc(bytes);
    uint32_t *decision = place->alloc(sizeof yes);
    check_begin("%s pack and unpack, more than 2^31 elements", place->kernels->name);
    if (large.period == NULL || large.piece == NULL || large.found == NULL || data == NULL ||
        bucket == NULL || decision == NULL) {
        check_skip("more than 2^31 elements: not enough memory");
    } else {
        kernels_fill(large.period, TRIB_U8, PERIOD, KERNELS_TAME);
        place->upload(decision, &yes, sizeof yes);
        large_case(&large, data, bucket, decision);
        check_end();
    }
    place->free(data);
    place->free(bucket);
    place->free(decision);
    free(large.period);
    free(large.piece);
    free(large.found);
}

/* ---------------------------------------------------------------------------------------- suite */

bool kernels_slice(int n, char **arguments)
{
    if (n < 2 || strcmp(arguments[1], "--slice") != 0 || (n == 3 && check_slice(arguments[2])))
        return true;
    fprintf(stderr, "%s: expected --slice I/N, 1 <= I <= N\n", arguments[0]);
    return false;
}

static void kernels_lists(struct arena *arena, bool quick)
{
    kernels_commit(arena);
    kernels_plain(arena, quick);
    kernels_edges(arena, quick);
    kernels_decision(arena, quick);
    kernels_weighted(arena, quick);
    kernels_scale(arena, quick);
}

static void kernels_reductions(struct arena *arena, bool quick)
{
    kernels_reduce(arena, quick);
    kernels_reduce_scaled(arena, quick);
}

void kernels_suite(const struct kernels_place *place)
{
    const struct {
        const char *name;
        void (*run)(struct arena *arena, bool quick);
        bool has; /* the table */
    } parts[] = {{"lists", kernels_lists, true},
                 {"push", kernels_push, true},
                 {"pull", kernels_pull, place->kernels->pull != NULL},
                 {"reduce", kernels_reductions, place->kernels->reduce != NULL}};
    struct arena arena;
    if (arena_open(&arena, place, ARENA_BYTES))
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (parts[i].has && check_part(parts[i].name) != CHECK_PART_LEFT_OUT)
                parts[i].run(&arena, getenv("TRIB_TEST_QUICK") != NULL);
    arena_close(&arena);
}
