/* Lists whose lengths only their ranks know. */
#include "csrc/sparse/published/counted.h"

#include <string.h>

#include "csrc/sparse/link.h"

static size_t header_bytes(const struct tri_sparse_params *params)
{
    return (size_t)params->size * sizeof(struct tri_header);
}

size_t tri_counted_entries(const struct tri_sparse_params *params)
{
    return (size_t)params->size * tri_limit(params);
}

size_t tri_counted_capacity(const struct tri_sparse_params *params)
{
    const size_t all = tri_counted_entries(params);
    return all < params->count ? all : params->count;
}

void tri_counted_lay_out(struct tri_counted *counted, struct tri_arena *arena,
                         const struct tri_sparse_params *params)
{
    const bool merges = params->entries && params->size > 1;
    counted->headers = tri_arena_take(arena, header_bytes(params) + trib_dtype_size(params->acc));
    counted->chosen = tri_arena_entries(arena, tri_limit(params), params->wire);
    counted->merged =
        tri_arena_entries(arena, merges ? tri_counted_capacity(params) : 0, params->acc);
    if (counted->headers != NULL)
        counted->chosen.count = &counted->headers[params->rank].count;
}

struct tri_header *tri_counted_header(const struct tri_counted *counted, const struct tri_run *run)
{
    return &counted->headers[run->params->rank];
}

void *tri_counted_value(const struct tri_counted *counted, const struct tri_run *run)
{
    return counted->headers + run->params->size;
}

static double value_of(const void *data, trib_dtype dtype)
{
    double f64;
    float f32;
    memcpy(&f64, data, sizeof f64);
    memcpy(&f32, data, sizeof f32);
    return dtype == TRIB_F64 ? f64 : (double)f32;
}

trib_status tri_counted_fetch(struct tri_run *run, struct tri_counted *counted, double *value)
{
    struct tri_header
        fetched[TRI_MAX_LISTS + 1]; /* the value is in the one behind the last rank's */
    const struct tri_sparse_params *params = run->params;
    const size_t more = value == NULL ? 0 : trib_dtype_size(params->acc);
    TRI_TRY(tri_link_allgather(run, tri_counted_header(counted, run), counted->headers,
                               sizeof *counted->headers, 0));
    TRI_TRY(tri_run_fetch(run, fetched, counted->headers, header_bytes(params) + more));
    for (int32_t r = 0; r < params->size; r++)
        counted->counts[r] = fetched[r].count;
    counted->consistent = tri_run_consistent(run, fetched, sizeof *fetched, tri_limit(params));
    if (value != NULL)
        *value = value_of(&fetched[params->size], params->acc);
    return TRIB_OK;
}

trib_status tri_counted_finish(struct tri_run *run, struct tri_counted *counted,
                               const struct tri_entries *lists, bool cleared)
{
    const struct tri_entries nothing = tri_entries_part(&counted->chosen, 0, 0);
    TRI_TRY(lists == NULL ? tri_run_result(run, &nothing, 1, NULL)
                          : tri_run_result(run, lists, run->params->size, &counted->merged));
    TRI_TRY(
        tri_run_decide(run, counted->headers, sizeof *counted->headers, tri_limit(run->params)));
    return tri_run_apply(run, &counted->chosen, cleared);
}

trib_status tri_counted_gather(struct tri_run *run, struct tri_counted *counted,
                               const struct tri_entries *gathered, bool cleared)
{
    struct tri_entries lists[TRI_MAX_LISTS];
    size_t from = 0;
    if (!counted->consistent)
        return tri_counted_finish(run, counted, NULL, cleared);
    for (int32_t r = 0; r < run->params->size; from += counted->counts[r++])
        lists[r] = tri_entries_part(gathered, from, counted->counts[r]);
    TRI_TRY(tri_link_allgather_entries(run, &counted->chosen, counted->counts, gathered));
    return tri_counted_finish(run, counted, lists, cleared);
}
