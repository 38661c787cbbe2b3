/* TRIB_MATCH: do all ranks make the same call? */
#ifndef TRI_CORE_MATCH_H
#define TRI_CORE_MATCH_H

#include <stddef.h>
#include <stdint.h>

#include "csrc/backend.h"

struct trib_comm;

/* The part of a call that all ranks compare. No padding: it is compared and digested as bytes. */
struct tri_signature {
    uint64_t sequence; /* of this communicator's compared calls */
    uint64_t count;
    uint64_t digest; /* of lists and arrays */
    int32_t operation;
    trib_dtype dtype;
    trib_op op;
    int32_t peer;
    trib_variant variant;
    uint32_t unused; /* 0 */
};

/* The signature of a call; fields that its operation does not use are 0. */
struct tri_signature tri_signature(int operation, const struct tri_call *call, uint64_t digest);

/* `seed` with `bytes` bytes mixed in. */
uint64_t tri_digest(uint64_t seed, const void *data, size_t bytes);

/* Compare the ranks' signatures, by a tri_small_allgather on `stream`. Every rank gets
 * TRIB_ERR_MISMATCH if they are not all the same. On a stream that a graph captures, returns
 * TRIB_ERR_UNSUPPORTED and queues nothing. */
trib_status tri_match(struct trib_comm *comm, const struct tri_signature *signature,
                      trib_stream stream);

/* Report what became of the call that tri_match compared, if it did; returns `status`. If all ranks
 * made the same call and this one could not queue it, this ends the communicator: the others have
 * queued the call, and it would pair with this rank's next one. */
trib_status tri_match_done(struct trib_comm *comm, trib_status status);

#endif
