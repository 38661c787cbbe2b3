/* The handshake of calls that all ranks make together: creating a state, setting its k, importing.
 * The ranks compare what they are about to do, and then all of them do it, or none. Every function
 * here ends on every rank: a rank that fails on its way, or is late, ends the communicator
 * (small_allgather.h). */
#ifndef TRI_SPARSE_HANDSHAKE_H
#define TRI_SPARSE_HANDSHAKE_H

#include "csrc/sparse/options.h"

/* The call that one rank is about to make. Every field is a number and there is no padding, because
 * it is compared and digested as bytes. */
struct tri_handshake {
    uint64_t count, k;
    double decay, momentum, clip;
    uint64_t constants; /* digest of the name; 0: none */
    uint64_t hosts;     /* of the map, if the algorithm goes by it; or 0 */
    int32_t operation;
    int32_t algorithm; /* index in tri_algorithms; -1: auto */
    int32_t
        chosen; /* index of auto's choice: unlike machines may round its estimates differently */
    trib_dtype dtype, wire;
    uint32_t flags, chunk, norm_every;
    uint64_t number; /* of the state, among those of the communicator */
};

struct tri_handshake tri_handshake_of(const struct tri_sparse_settings *settings,
                                      const struct tri_choice *choice, int operation,
                                      uint32_t number);

/* Identifies the state in every header. */
uint32_t tri_handshake_signature(const struct tri_handshake *handshake);

/* The functions below are for the body of a tri_all_ranks_run (core/all_ranks.h). It checks
 * everything that may be invalid on one rank alone, and reports it by tri_handshake_reject, so that
 * no rank waits for one that has returned. */

/* Blocking call of all ranks, on `stream`. TRIB_OK if all handshakes are equal and no rank passes a
 * failure as `own`, the status of its preparations; a rank that does gets its own back. `*least`
 * (may be NULL) becomes the smallest of all ranks. */
trib_status tri_handshake_exchange(struct trib_comm *comm, const struct tri_handshake *handshake,
                                   trib_status own, uint64_t *least, trib_stream stream);

/* The same call by a rank whose arguments are invalid for the reason `why`, which it returns. The
 * ranks that call tri_handshake_exchange get TRIB_ERR_MISMATCH. */
trib_status tri_handshake_reject(struct trib_comm *comm, int operation, trib_status why,
                                 trib_stream stream);

/* Blocking call of all ranks: sets comm->hosts and comm->host_of, unless they are. */
trib_status tri_handshake_hosts(struct trib_comm *comm, trib_stream stream);

#endif
