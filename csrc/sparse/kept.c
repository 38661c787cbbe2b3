/* What a state keeps of its tensor: where it lies, and sums of it. */
#include "csrc/sparse/kept.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/core/validate.h"

enum { PIECE = 1 << 20 };

static trib_status fetch(const struct trib_sparse *sparse, void *dst, const void *src, size_t bytes,
                         trib_stream stream)
{
    return sparse->backend->device->fetch(sparse->device, dst, src, bytes, stream);
}

trib_status tri_kept_find(struct tri_kept *out, const struct trib_sparse *sparse,
                          trib_stream stream)
{
    const struct tri_sparse_scalars *scalars = sparse->scalars;
    uint32_t current = 0, velocity = 0;
    TRI_TRY(tri_workspace_wait(&sparse->memory, stream));
    TRI_TRY(fetch(sparse, &current, &scalars->current, sizeof current, stream));
    TRI_TRY(fetch(sparse, &velocity, &scalars->velocity, sizeof velocity, stream));
    out->residual = sparse->residual[current != 0];
    out->velocity = sparse->velocity[velocity != 0];
    return TRIB_OK;
}

static void add_up(void *to, const void *from, size_t bytes, trib_dtype dtype)
{
    if (dtype == TRIB_F64) {
        double *sum = to;
        for (size_t i = 0; i < bytes / sizeof *sum; i++) {
            double value;
            memcpy(&value, (const char *)from + i * sizeof value, sizeof value);
            sum[i] += value;
        }
        return;
    }
    float *sum = to;
    for (size_t i = 0; i < bytes / sizeof *sum; i++) {
        float value;
        memcpy(&value, (const char *)from + i * sizeof value, sizeof value);
        sum[i] += value;
    }
}

/* In pieces, so that it needs little host memory. */
trib_status tri_kept_add(const struct trib_sparse *sparse, int operation, char *sum,
                         const char *data, size_t bytes, trib_stream stream)
{
    void *piece = malloc(PIECE);
    trib_status status = TRIB_OK;
    if (piece == NULL)
        return tri_fail_call(sparse->comm, operation, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory to add an export");
    for (size_t at = 0; at < bytes && status == TRIB_OK; at += PIECE) {
        const size_t part = bytes - at < PIECE ? bytes - at : PIECE;
        status = fetch(sparse, piece, sum + at, part, stream);
        if (status != TRIB_OK)
            break;
        add_up(piece, data + at, part, sparse->params.acc);
        status = fetch(sparse, sum + at, piece, part, stream);
    }
    free(piece);
    return status;
}
