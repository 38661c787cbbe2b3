/* Indices that a float could not hold; and select of more than 2^31 elements, in place: most of
 * them alike, the few that stand out known. */
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse_kernels/sparse_kernels.h"

/* A million of the indices are above 2^24. */
enum { LONG = (1 << 24) + (1 << 20) + 3, LONG_BYTES = 150 << 20 };

void sparse_long_suite(const struct kernels_place *place)
{
    struct sparse_rig rig;
    if (sparse_rig_open(&rig, place, LONG_BYTES)) {
        sparse_select_long(&rig, LONG);
        sparse_feedback_long(&rig, LONG);
        sparse_end_long(&rig, LONG);
        sparse_chunks_long(&rig, LONG);
    }
    sparse_rig_close(&rig);
}

/* --------------------------------------------------------------------------------------- large */

enum { PIECE = 1 << 24, PEAKS = 4000, TIES = 300 };

struct plain {
    const struct kernels_place *place;
    size_t n;
    float *acc, *piece; /* device, host */
    uint32_t peaks[PEAKS], n_peaks;
};

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static float peak_value(uint32_t i)
{
    return (i % 2 == 0 ? 1.0f : -1.0f) * (1 + (float)(i * 2654435761u % 8191) / 8192);
}

/* Both ends, both sides of 2^31, and anywhere. */
static void find_peaks(struct plain *p)
{
    static const size_t fixed[] = {0,          1,          1u << 24,  (1u << 24) + 1,
                                   0x7fffffff, 0x80000000, 0x80000001};
    const size_t n_fixed = sizeof fixed / sizeof fixed[0];
    for (size_t i = 0; i < PEAKS; i++)
        p->peaks[i] =
            (uint32_t)(i < n_fixed ? fixed[i] : TIES * 2 + kernels_random() % (p->n - TIES * 2));
    p->peaks[n_fixed] = (uint32_t)(p->n - 1);
    qsort(p->peaks, PEAKS, sizeof p->peaks[0], by_number);
    p->n_peaks = 1;
    for (size_t i = 1; i < PEAKS; i++) /* each once */
        if (p->peaks[i] != p->peaks[i - 1])
            p->peaks[p->n_peaks++] = p->peaks[i];
}

static void upload_plain(struct plain *p)
{
    for (size_t first = 0, peak = 0; first < p->n; first += PIECE) {
        const size_t left = p->n - first, n = left < PIECE ? left : PIECE;
        for (size_t i = 0; i < n; i++)
            p->piece[i] = 0x1p-100f;
        for (; peak < p->n_peaks && p->peaks[peak] < first + n; peak++)
            p->piece[p->peaks[peak] - first] = peak_value(p->peaks[peak]);
        p->place->upload(p->acc + first, p->piece, n * sizeof(float));
    }
}

/* All peaks, each once, and then the lowest of the others. */
static void check_plain(const struct plain *p, uint32_t count, const uint32_t *index,
                        const float *value, uint32_t k)
{
    uint32_t at = 0, ties = k - p->n_peaks, next = 0;
    CHECK_MSG(count == k, "%u selected of %u", count, k);
    for (uint32_t i = 0; i < p->n_peaks && at < k; i++) {
        for (; ties > 0 && next < p->peaks[i]; next++, ties--, at++)
            CHECK_MSG(index[at] == next && value[at] == 0x1p-100f, "entry %u is %u, %g", at,
                      index[at], (double)value[at]);
        next = p->peaks[i] + 1;
        CHECK_MSG(index[at] == p->peaks[i] && value[at] == peak_value(p->peaks[i]),
                  "entry %u is %u, %g", at, index[at], (double)value[at]);
        at++;
    }
}

static void run_plain(struct plain *p, uint32_t k)
{
    const struct kernels_place *place = p->place;
    const struct tri_sparse_kernels *kernels = place->kernels->sparse;
    const struct tri_accumulator acc = {
        .buffer = {p->acc, NULL}, .dtype = TRIB_F32, .decay = 1, .count = p->n};
    const struct tri_entries out = {.count = place->alloc(4),
                                    .index = place->alloc(k * sizeof(uint32_t)),
                                    .value = place->alloc(k * sizeof(float)),
                                    .capacity = k,
                                    .dtype = TRIB_F32};
    const struct tri_selection selection = {.count = p->n, .k = k};
    void *scratch = place->alloc(kernels->scratch_bytes(p->n, k, k, TRIB_F32));
    uint32_t count = 0, *index = malloc(k * sizeof *index);
    float *value = malloc(k * sizeof *value);
    if (out.count == NULL || out.index == NULL || out.value == NULL || scratch == NULL ||
        index == NULL || value == NULL)
        abort();
    CHECK_OK(kernels->select(&acc, &selection, &out, scratch, place->stream));
    place->download(&count, out.count, sizeof count);
    place->download(index, out.index, k * sizeof *index);
    place->download(value, out.value, k * sizeof *value);
    check_plain(p, count, index, value, k);
    place->free(out.count);
    place->free(out.index);
    place->free(out.value);
    place->free(scratch);
    free(index);
    free(value);
}

void sparse_kernels_large(const struct kernels_place *place)
{
    struct plain p = {.place = place, .n = ((size_t)1 << 31) + 5003};
    check_begin("%s select of %zu", place->kernels->name, p.n);
    p.acc = place->alloc(p.n * sizeof(float));
    p.piece = malloc(PIECE * sizeof(float));
    if (p.acc == NULL || p.piece == NULL) {
        check_skip("select of more than 2^31 elements: not enough memory");
    } else {
        find_peaks(&p);
        upload_plain(&p);
        run_plain(&p, p.n_peaks);
        run_plain(&p, p.n_peaks + TIES);
        check_end();
    }
    place->free(p.acc);
    free(p.piece);
}
