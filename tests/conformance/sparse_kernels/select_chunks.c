/* select of tensors in whose tiles few elements are candidates: there the cuda table reserves places for
 * several tiles at a time (kernels/cuda/select_partition.cuh), of a chunk that is
 *
 *   (2 k + n / 64 + 4096) / 4 / warps   places, with 16 (or, f32 with a gradient, 20) warps on each of
 *                                       132 multiprocessors, and none if that is less than 16.
 *
 * A tile with a quarter of a chunk of candidates reserves its own. For every other table, and on other
 * GPUs, these are cases like any. */
#include <string.h>

#include "tests/conformance/sparse_kernels/select.h"

/* The first tiles have `dense` elements that are not 0 each, the others `thin`. */
struct chunked {
    const char *what;
    struct mode mode;
    size_t n, tile, dense_tiles, dense, thin;
    uint32_t k;
    enum tri_guess guess;
};

enum { MI = 1 << 20 };

static const struct chunked cases[] = {
    /* A chunk of 17 for about 2 tiles of about 3 candidates; what is left of it stays empty. */
    {"chunks in place",
     {"in place", TRIB_F32, 0, TRIB_F32, false, false},
     8 * MI,
     2048,
     0,
     0,
     4,
     8 * MI / 1000,
     TRI_GUESS_SAMPLE},
    /* 19 for about 4 tiles of 1 or 2. */
    {"chunks, clearing",
     {"clearing", TRIB_F32, TRIB_F32, TRIB_F32, true, true},
     11 * MI,
     1024,
     0,
     0,
     4,
     11 * MI / 1000,
     TRI_GUESS_SAMPLE},
    /* 31 for about 8 tiles of about 4: many warps need a second one. */
    {"a second chunk",
     {"f64 in place", TRIB_F64, 0, TRIB_F64, false, false},
     8 * MI,
     512,
     0,
     0,
     5,
     8 * MI / 125,
     TRI_GUESS_SAMPLE},
    /* Each warp's first tile takes 62 of 184,520 places, and then a chunk of 17, for which there is
     * room for half of the warps: one crosses the end. What was cleared is restored from chunks, too. */
    {"a chunk across the end of the room",
     {"clearing, bf16 wire", TRIB_F32, TRIB_F32, TRIB_BF16, true, true},
     11 * MI,
     1024,
     2640,
     62,
     2,
     100,
     TRI_GUESS_LOW},
    /* The same with second chunks: 17 are too few for 5 tiles of 4. */
    {"second chunks beyond the end of the room",
     {"f64 clearing", TRIB_F64, TRIB_F64, TRIB_F64, true, true},
     11 * MI / 2,
     512,
     2112,
     62,
     4,
     11 * MI / 400,
     TRI_GUESS_LOW},
};

/* Zeros, and in each tile as many others as it should have: in the gradient, or in acc. */
static void fill(struct sparse_rig *rig, const struct selecting *s, const struct chunked *of)
{
    const bool in_place = s->state.gradient == SPARSE_NONE;
    const size_t size = trib_dtype_size(of->mode.dtype);
    sparse_state_fill(rig, &s->state, SPARSE_ZERO, of->k);
    unsigned char *data =
        rig->arena.image + (in_place ? sparse_acc_at(rig, &s->state) : s->state.gradient);
    for (size_t tile = 0; tile < of->n / of->tile; tile++) {
        const size_t each = tile < of->dense_tiles ? of->dense : of->thin;
        for (size_t i = 0; i < each; i++) {
            const size_t at = tile * of->tile + i * (of->tile / each) + tile % 7;
            const double value = 1 + (double)((uint32_t)at * 2654435761u % 8191) / 8192;
            kernels_put(data + at * size, of->mode.dtype, at % 3 == 0 ? -value : value);
        }
    }
}

static void run_case(struct sparse_rig *rig, const struct chunked *of)
{
    check_begin("%s select %u of %zu: %s", rig->arena.place->kernels->name, of->k, of->n, of->what);
    while (rig->calls % 6 != 3) /* no velocity, with which there are no chunks */
        rig->calls++;
    struct selecting s = sparse_select_place(rig, &of->mode, of->n, of->k, 0);
    s.guess = of->guess;
    fill(rig, &s, of);
    sparse_select_run(rig, &s);
    check_end();
}

void sparse_select_chunks(struct sparse_rig *rig)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        run_case(rig, &cases[i]);
}
