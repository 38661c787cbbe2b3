/* Two steps by which a packet of each rank reaches all ranks, so that between two hosts it travels
 * once: first to one rank of every other host, then from there to the others of that host.
 *
 * Which rank brings a packet to a host follows from the map of the hosts alone, so all ranks agree.
 * The packets of other hosts' ranks, one host after the other and on each in the order of its ranks,
 * go to this host's ranks in turn. So no rank brings more than its share, whatever the numbers of
 * ranks; and where all hosts have equally many, a packet stays with the ranks of its own index, which
 * machines connect best.
 *
 * On each host the packets lie in slots in the order in which they are brought: what one rank brings
 * is contiguous. */
#ifndef TRI_SPARSE_ALGORITHMS_ROUTES_H
#define TRI_SPARSE_ALGORITHMS_ROUTES_H

#include "csrc/sparse/algorithm.h"

struct tri_routes {
    int32_t hosts;
    int32_t ranks[TRI_MAX_LISTS]; /* how many there are on each host */
    int32_t index[TRI_MAX_LISTS]; /* of each rank among those of its host */
    int32_t mates;                /* ranks of this host; */
    int32_t mate[TRI_MAX_LISTS];  /* these, ascending */
    int32_t takes[TRI_MAX_LISTS]; /* on each host: the rank that brings this rank's packet there */

    /* Mate i brings what is in the slots [begin[i], begin[i + 1]): first its own packet. */
    int32_t begin[TRI_MAX_LISTS + 1];
    int32_t slot[TRI_MAX_LISTS];    /* of each rank's packet */
    int32_t rank_at[TRI_MAX_LISTS]; /* the rank of the packet in each slot */
};

/* By the rank, the size and the hosts of the parameters. */
void tri_routes_make(struct tri_routes *out, const struct tri_sparse_params *params);

#endif
