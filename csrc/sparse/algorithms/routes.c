/* Two steps by which a packet of each rank reaches all ranks. */
#include "csrc/sparse/algorithms/routes.h"

/* Where a packet stands among those of other hosts, as `host` counts them. */
static int32_t place_at(const struct tri_routes *routes, const struct tri_sparse_params *params,
                        int32_t host, int32_t rank)
{
    int32_t place = routes->index[rank];
    for (int32_t before = 0; before < params->host_of[rank]; before++)
        place += before == host ? 0 : routes->ranks[before];
    return place;
}

static void count_ranks(struct tri_routes *routes, const struct tri_sparse_params *params)
{
    const int32_t own = params->host_of[params->rank];
    for (int32_t rank = 0; rank < params->size; rank++) {
        const int32_t host = params->host_of[rank];
        routes->index[rank] = routes->ranks[host]++;
        routes->hosts = host < routes->hosts ? routes->hosts : host + 1;
        if (host == own)
            routes->mate[routes->mates++] = rank;
    }
}

static void find_takers(struct tri_routes *routes, const struct tri_sparse_params *params)
{
    const int32_t own = params->host_of[params->rank];
    for (int32_t rank = 0; rank < params->size; rank++) {
        const int32_t host = params->host_of[rank];
        const int32_t place = place_at(routes, params, host, params->rank);
        /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a rank's host has that rank */
        if (host == own || place % routes->ranks[host] == routes->index[rank])
            routes->takes[host] = host == own ? params->rank : rank;
    }
}

static void assign_slots(struct tri_routes *routes, const struct tri_sparse_params *params)
{
    const int32_t own = params->host_of[params->rank], others = params->size - routes->mates;
    for (int32_t i = 0; i < routes->mates; i++) {
        const int32_t brings = (others - i + routes->mates - 1) / routes->mates;
        routes->slot[routes->mate[i]] = routes->begin[i];
        routes->begin[i + 1] = routes->begin[i] + 1 + brings;
    }
    for (int32_t rank = 0; rank < params->size; rank++) {
        const int32_t place = place_at(routes, params, own, rank);
        if (params->host_of[rank] != own)
            routes->slot[rank] = /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): the same */
                routes->begin[place % routes->mates] + 1 + place / routes->mates;
        routes->rank_at[routes->slot[rank]] = rank;
    }
}

void tri_routes_make(struct tri_routes *out, const struct tri_sparse_params *params)
{
    *out = (struct tri_routes){.hosts = 0};
    count_ranks(out, params);
    find_takers(out, params);
    assign_slots(out, params);
}
