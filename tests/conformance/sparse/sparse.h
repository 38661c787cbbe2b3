/* What every sparse allreduce must do, on every backend, through the public API alone.
 *
 * A trial is one state on every rank of a team, called step after step. After each step one thread
 * holds all ranks' inputs, residuals, results and statistics side by side and judges them: against
 * a reference that is made from the definitions in double precision (sparse_reference.h), and
 * against what must hold whatever was chosen: that nothing is lost, that all ranks have the same
 * bits, that words are counted as the header says. Where each rank has a process, the bytes of each
 * must be those of a team that was judged. Inputs are small multiples of 2^-10, so all sums
 * are exact and `==` decides. */
#ifndef TRI_TESTS_CONFORMANCE_SPARSE_H
#define TRI_TESTS_CONFORMANCE_SPARSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/conformance/sparse/reference.h"
#include "tests/team.h"

/* ------------------------------------------------------------------------------------- inputs */

enum sparse_input {
    SPARSE_SPREAD,    /* many small numbers, few large ones, ties among both */
    SPARSE_TIES,      /* -1, 0 and 1 */
    SPARSE_EQUAL,     /* the same number everywhere */
    SPARSE_ZERO,      /* 0, and -0 */
    SPARSE_EMPTY,     /* rank 0 has nothing */
    SPARSE_CORNER,    /* everything in the last eighth */
    SPARSE_DISJOINT,  /* rank r has every size-th element only */
    SPARSE_IDENTICAL, /* every rank the same */
    SPARSE_CANCEL,    /* ranks 2i and 2i + 1: x and -x */
    SPARSE_SHIFTED,   /* a mean far from 0 */
    SPARSE_FEW,       /* fewer than k that are not 0 */
    SPARSE_TINY,      /* denormals, some of which bf16 rounds to 0 */
    SPARSE_FINE,      /* up to 11 digits: more than bf16 has */
    SPARSE_SHRINKING, /* SPREAD, and the first step 128 times as large */
    SPARSE_FLOATS,    /* all bits of a float in use: sums are rounded */
    /* SPREAD; in every third step one element is so large that f16 does not hold the sum over all
     * ranks, or only just holds it. */
    SPARSE_OVERFLOW,
    /* SPREAD; in every third step (in some trials from the first on) one rank has an infinity or a
     * NaN. */
    SPARSE_BAD,
    SPARSE_INPUTS
};
const char *sparse_input_name(enum sparse_input input);

/* Element `index` of `count` of the gradient of `rank` in `step`: a number that every type has, but
 * for TINY and FLOATS, which are for f32 and f64, and FINE, which is not for bf16. */
double sparse_input(enum sparse_input input, uint64_t seed, uint64_t step, int rank, int size,
                    size_t index, size_t count);

/* -------------------------------------------------------------------------------------- trials */

struct sparse_plan {
    const char *algorithm;
    size_t count;
    uint64_t k;
    trib_dtype dtype; /* 0: f32 */
    uint32_t flags;   /* TRIB_SPARSE_..., USE_K apart */
    double decay;     /* 0: 1 */
    double momentum, clip;
    trib_dtype wire;
    uint32_t chunk;
    const char *constants;
    const int32_t *hosts; /* NULL: where the ranks run */
    enum sparse_input input;
    uint64_t seed;
    size_t shift; /* of every buffer, in elements */
    int turn;     /* rank r gets the gradients of rank (r + turn) % size */
};

struct sparse_rank {
    trib_sparse *state;
    trib_comm *comm;
    trib_device *device;
    trib_stream stream;
    struct guarded gradient, result, index, count;
    double *held;          /* the residual before the step; in place, the accumulator */
    double *velocity;      /* with momentum: the velocity before the step; */
    double *pushed;        /* the new one, as the step makes it, or in place the caller; */
    double *left;          /* and after the step */
    double *acc;           /* what the step has to share */
    double *residual;      /* after it */
    double *applied;       /* the result, dense */
    unsigned char *listed; /* entries: is this index in the list? */
    uint64_t residual_hash;
    char *snapshot;
    trib_sparse_statistics before, after;
    trib_status status;
    bool says_overflow; /* its detail: all acc were finite, and the result was not */
    uint32_t outcome;
};

enum { SPARSE_STEPS = 400 };

struct sparse_barrier;

/* Of a step, for each rank that is here: a hash of its result, its residual and which calls it has
 * counted; and the words that it has sent and received. */
struct sparse_seen {
    uint64_t hash[TEAM_MAX], words[TEAM_MAX];
};

struct sparse_trial {
    struct sparse_plan plan;
    struct team *team;
    struct sparse_rank ranks[TEAM_MAX];
    struct sparse_reference reference;
    struct sparse_barrier *barrier; /* a barrier of the ranks' threads */
    _Atomic bool stop;
    uint64_t step; /* steps made since creation */
    int todo;
    bool poisoned;                          /* this step, an acc or the result is not finite */
    struct sparse_seen trace[SPARSE_STEPS]; /* after each step */
};

/* Create the states. False if that failed. */
bool sparse_trial_open(struct sparse_trial *trial, struct team *team,
                       const struct sparse_plan *plan);
/* So many calls, each judged. Stops at the first that is wrong, and returns false. */
bool sparse_trial_steps(struct sparse_trial *trial, int steps);
/* Another k, on all ranks. */
bool sparse_trial_set_k(struct sparse_trial *trial, uint64_t k);
/* The states as new, on all ranks. */
bool sparse_trial_reset(struct sparse_trial *trial);
void sparse_trial_close(struct sparse_trial *trial);
/* All of it: a case of its own. The trace is returned in `trace` if that is not NULL. */
bool sparse_trial(struct team *team, const struct sparse_plan *plan, int steps,
                  struct sparse_seen *trace);
/* Check that the first `steps` of two traces are the same, as to the ranks that are here. `other`: what
 * the second is of. */
bool sparse_same_bytes(const struct team *team, const struct sparse_seen *trace,
                       const struct sparse_seen *twin, int steps, const char *other);
/* The same of the words, which a state that was imported may choose anew. */
void sparse_same_words(const struct team *team, const struct sparse_seen *trace,
                       const struct sparse_seen *twin, int steps);

/* Is the gradient acc and residual? With momentum in place it is the velocity. */
bool sparse_in_place(const struct sparse_plan *plan);
/* The type of its result. */
trib_dtype sparse_result_dtype(const struct sparse_plan *plan);
/* The options that the plan makes. */
trib_sparse_options sparse_options(const struct sparse_plan *plan);
/* "topka, 2 ranks, ..." */
const char *sparse_describe(const struct sparse_plan *plan, int size, char *text, size_t bytes);
/* The residual of a state, by its export; `count` numbers. */
bool sparse_residual(trib_sparse *state, size_t count, trib_dtype acc, trib_stream stream,
                     char *snapshot, double *out);
/* The velocity that the same export has. */
void sparse_velocity(const trib_sparse *state, size_t count, trib_dtype acc, const char *snapshot,
                     double *out);
uint64_t sparse_hash(uint64_t seed, const void *data, size_t bytes);

/* The judge: false if the step is wrong. Of a team apart the trace alone is made: who has its twin is
 * judged. */
bool sparse_judge(struct sparse_trial *trial);
/* The words of the step that was judged, against the formulas of tributary.h. */
bool sparse_judge_volume(struct sparse_trial *trial);

/* Steps judged so far, each rank's part counted. */
uint64_t sparse_judged(void);

/* --------------------------------------------------------------------------------------- suite */

/* Hosts of up to TEAM_MAX ranks: one rank each; two hosts that the ranks go to in turn; 1, 2, 3, ...
 * ranks, one host after the other, with numbers that begin above the ranks'. */
extern const int32_t sparse_hosts_each[TEAM_MAX], sparse_hosts_turns[TEAM_MAX],
    sparse_hosts_uneven[TEAM_MAX];

/* Every algorithm's name but auto, NULL at the end. */
extern const char *const sparse_algorithms[];

enum sparse_depth { SPARSE_WHOLE, SPARSE_QUICK, SPARSE_LIGHT };
/* SPARSE_QUICK if the environment has TRIB_TEST_QUICK, else SPARSE_WHOLE. */
enum sparse_depth sparse_depth(void);

/* What a suite runs on. With a twin, another team of as many ranks, every trial is made
 * on both, and the bytes of all results and residuals must be the same. */
struct sparse_session {
    struct team team, twin;
    bool has_twin;
    enum sparse_depth depth;
    uint64_t seed;
};

/* Every test of the suite for `size` ranks. `twin` may be NULL. */
void sparse_suite(const char *backend, const char *twin, int size, enum sparse_depth depth);
/* The trials among them, with each rank in a process of its own: in each of `size` processes, the rank
 * `own` on the device `ordinal`. All pass the same id. */
void sparse_suite_apart(const char *backend, const char *twin, const trib_id *id, int own, int size,
                        int32_t ordinal, enum sparse_depth depth);

/* One trial as a case of its own. */
void sparse_case(struct sparse_session *session, const struct sparse_plan *plan, int steps);
/* A failed test may have aborted the communicators: make sure that there are good ones. */
void sparse_session_mend(struct sparse_session *session);

/* Parts, for sparse.c */
void sparse_long_runs(struct sparse_session *session);
void sparse_sizes(struct sparse_session *session);
void sparse_inputs(struct sparse_session *session);
void sparse_variants(struct sparse_session *session);
void sparse_large(struct sparse_session *session);   /* more than 2^24 elements */
void sparse_changes(struct sparse_session *session); /* k, reset, export and import */
void sparse_sharing(struct sparse_session *session); /* states, streams, destroying */
void sparse_mistakes(
    struct sparse_session *session); /* calls that are refused, ranks that differ */
void sparse_aborts(struct sparse_session *session);

#endif
