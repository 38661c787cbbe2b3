/* One call of one rank on guarded memory: what it sends, what it should receive, all of it compared. */
#ifndef TRI_TESTS_CONFORMANCE_TRIAL_H
#define TRI_TESTS_CONFORMANCE_TRIAL_H

#include "tests/conformance/backend/backend.h"

enum trial_kind {
    TRIAL_ALLREDUCE,
    TRIAL_BROADCAST,
    TRIAL_REDUCE,
    TRIAL_ALLGATHER,
    TRIAL_REDUCE_SCATTER,
    TRIAL_ALLTOALL,
    TRIAL_GATHER,
    TRIAL_SCATTER,
    TRIAL_KINDS
};

extern const struct trial_traits {
    const char *name;
    bool reduces, rooted;
} trial_kinds[TRIAL_KINDS];

struct trial {
    struct suite *suite;
    trib_status (*call)(const struct trial *t, const void *send, void *recv);
    enum trial_kind kind;
    trib_dtype dtype;
    trib_op op; /* REFERENCE_MOVED of kinds that reduce nothing */
    size_t count;
    int rank, root;
    bool in_place;
    uint64_t seed;
    trib_variant variant;
    trib_status expected; /* unless that is TRIB_OK, the call writes nothing */
    bool in_order;        /* kernels of the library reduce: averages are exact, too */
};

/* As t->in_place says, with inputs of the trial's seed. Waits. Was everything right? */
bool trial_out_of_place(const struct trial *t, struct guarded *send, struct guarded *recv);
bool trial_in_place(const struct trial *t, struct guarded *both);

#endif
