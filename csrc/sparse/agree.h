/* What all ranks must have in common before a state is made, its k is set or it imports. The calls here end on all
 * ranks: a rank that cannot make its part, or does not come in time, ends the communicator (small_allgather.h). */
#ifndef TRI_SPARSE_AGREE_H
#define TRI_SPARSE_AGREE_H

#include "csrc/sparse/options.h"

/* One rank's idea of the state to be. Every field is a number, and there is no padding: it is compared
 * and digested as bytes. */
struct tri_proposal {
    uint64_t count, k;
    double decay;
    uint64_t constants; /* digest of the name; 0: none */
    int32_t operation;
    int32_t algorithm; /* place in tri_algorithms; -1: auto */
    int32_t chosen;    /* place of what auto chose: ranks on unlike machines may round otherwise */
    trib_dtype dtype, wire;
    uint32_t flags, chunk, norm_every;
    uint64_t number; /* of the state, among those of the communicator */
};

struct tri_proposal tri_proposal_of(const struct tri_sparse_settings *settings,
                                    const struct tri_choice *choice, int operation,
                                    uint32_t number);

/* Of a state: what travels in every header. */
uint32_t tri_proposal_signature(const struct tri_proposal *proposal);

/* A call of all ranks, blocking, with a deadline (deadline.h) from its beginning to its end: `call(argument,
 * stream)` on a stream of its own, with TRIB_MATCH after all ranks were found to make it. Whatever one rank alone may be refused is found out in `call`, and
 * told to the others by tri_agree_refused: so none waits for a rank that has gone. */
typedef trib_status tri_agreeing(void *argument, trib_stream stream);
trib_status tri_agree_meet(struct trib_comm *comm, int operation, tri_agreeing *call,
                           void *argument);

/* A call of all ranks, blocking, on `stream`. TRIB_OK if all propose the same and could all do their
 * part: `own` is how that went here, and is returned if it is a failure. `*least` (NULL allowed) becomes
 * the smallest of the ranks'. */
trib_status tri_agree(struct trib_comm *comm, const struct tri_proposal *proposal, trib_status own,
                      uint64_t *least, trib_stream stream);

/* The same call by a rank that has nothing to propose, since what it was called with is refused for the
 * reason `why`, which is returned; those who do propose get TRIB_ERR_MISMATCH. */
trib_status tri_agree_refused(struct trib_comm *comm, int operation, trib_status why,
                              trib_stream stream);

/* A call of all ranks, blocking: comm->hosts, if it is not known yet. */
trib_status tri_agree_hosts(struct trib_comm *comm, trib_stream stream);

#endif
