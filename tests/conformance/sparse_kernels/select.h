/* A call of select, and how it is made. */
#ifndef TRI_TESTS_CONFORMANCE_SPARSE_SELECT_H
#define TRI_TESTS_CONFORMANCE_SPARSE_SELECT_H

#include "tests/conformance/sparse_kernels/sparse_kernels.h"

/* One call. Offsets may be SPARSE_NONE. */
struct selecting {
    struct sparse_state state;
    struct sparse_list out;
    size_t first, count;
    uint32_t k;
    size_t threshold, header, kth, fallbacks;
    bool accumulate, clear;
    enum tri_guess guess;
};

/* A way to call it; `gradient` 0: in place. */
struct mode {
    const char *name;
    trib_dtype dtype, gradient, wire;
    bool accumulate, clear;
};

/* The call of n elements in an arena that is empty but for it; to be filled. */
struct selecting sparse_select_place(struct sparse_rig *rig, const struct mode *mode, size_t n,
                                     uint32_t k, unsigned shift);
void sparse_select_run(struct sparse_rig *rig, const struct selecting *s);

/* Cases in which few of very many elements are candidates. */
void sparse_select_chunks(struct sparse_rig *rig);

#endif
