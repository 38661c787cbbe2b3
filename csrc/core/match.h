/* TRIB_MATCH: do all ranks make the same call? */
#ifndef TRI_CORE_MATCH_H
#define TRI_CORE_MATCH_H

#include <stddef.h>
#include <stdint.h>

#include "csrc/backend.h"

struct trib_comm;

/* What a call looks like to the other ranks. No padding: it is compared and digested as bytes. */
struct tri_signature {
    uint64_t sequence; /* of this communicator's compared calls */
    uint64_t count;
    uint64_t digest; /* of lists and arrays */
    int32_t operation;
    trib_dtype dtype;
    trib_op op;
    int32_t peer;
};

/* Of a call as its operation uses it: fields that it has not are 0. */
struct tri_signature tri_signature(int operation, const struct tri_call *call, uint64_t digest);

/* `seed` with `bytes` bytes mixed in. */
uint64_t tri_digest(uint64_t seed, const void *data, size_t bytes);

/* Exchange signatures on `stream` and wait for them, as small_allgather.h says. TRIB_ERR_MISMATCH,
 * on every rank, if they are not all the same. TRIB_ERR_UNSUPPORTED, before anything is queued, on
 * a stream that is being captured. */
trib_status tri_match(struct trib_comm *comm, const struct tri_signature *signature,
                      trib_stream stream);

/* What became of the call that tri_match was asked about, if it was: returns `status`. A call that
 * all ranks have agreed on and one cannot queue ends the communicator: the others have queued it,
 * and what this rank called next would meet it. */
trib_status tri_match_done(struct trib_comm *comm, trib_status status);

#endif
