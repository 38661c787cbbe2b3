/* The table of algorithms, in the order of trib_sparse_algorithm_name. */
#include <math.h>
#include <string.h>

#include "csrc/sparse/algorithm.h"

const struct tri_algorithm *const tri_algorithms[] = {
    &tri_sparse_dense,       &tri_sparse_topka,     &tri_sparse_topka2,
    &tri_sparse_topkaopt,    &tri_sparse_topksa,    &tri_sparse_gtopk,
    &tri_sparse_oktopk,      &tri_sparse_gaussiank, &tri_sparse_gaussiankconcat,
    &tri_sparse_gaussianksa, &tri_sparse_srs,       &tri_sparse_shared,
    &tri_sparse_chunked,     &tri_sparse_hier,      NULL,
};

const struct tri_algorithm *tri_algorithm_find(const char *name)
{
    size_t i = 0;
    while (tri_algorithms[i] != NULL && strcmp(tri_algorithms[i]->name, name) != 0)
        i++;
    return tri_algorithms[i];
}

bool tri_valid_threshold(const void *bytes, const struct tri_sparse_params *params)
{
    double f64;
    float f32;
    memcpy(&f32, bytes, sizeof f32);
    memcpy(&f64, bytes, sizeof f64);
    const double threshold = params->acc == TRIB_F64 ? f64 : (double)f32;
    return isfinite(threshold) && threshold >= 0;
}
