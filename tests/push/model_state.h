/* One state of the model, and the ways in which it becomes another. */
#ifndef TRI_TESTS_PUSH_MODEL_STATE_H
#define TRI_TESTS_PUSH_MODEL_STATE_H

#include <stdint.h>

#include "kernels/cpu/push_steps.h"
#include "tests/push/model.h"
#include "tests/seen.h"

enum {
    MODEL_SCRATCH = 2 * (MODEL_RANKS - 1) * MODEL_CHUNKS * TRI_PUSH_CHUNK,
    MODEL_ELEMENTS = MODEL_RANKS * MODEL_CHUNKS * TRI_PUSH_CHUNK / 4,
    MODEL_IN_FLIGHT = 64
};

/* A store that has not arrived: `value` for byte `at` of `owner`'s scratch. */
struct model_store {
    uint64_t value;
    uint16_t at;
    uint8_t owner;
    bool restores;
};

struct model_state {
    struct tri_push_worker workers[MODEL_RANKS][MODEL_WORKERS];
    struct model_store stores[MODEL_IN_FLIGHT]; /* in the order of their places */
    uint32_t n_stores;
    uint32_t turn[MODEL_RANKS];
    uint8_t call[MODEL_RANKS];
    unsigned char scratch[MODEL_RANKS][MODEL_SCRATCH];
};

/* What does not change. Addresses in `base` stand for those of a state's scratch. */
struct model_search {
    const struct model *model;
    struct tri_push jobs[MODEL_CALLS];
    struct tri_push_rank here[MODEL_CALLS][MODEL_RANKS];
    struct tri_push_control control[MODEL_RANKS];
    uint32_t sent[MODEL_CALLS][MODEL_RANKS][MODEL_ELEMENTS];
    uint32_t recv[MODEL_RANKS][MODEL_ELEMENTS];
    uint32_t expected[MODEL_CALLS][MODEL_RANKS][MODEL_ELEMENTS];
    _Alignas(16) unsigned char base[MODEL_RANKS][MODEL_SCRATCH];
    struct seen seen;
    struct model_report report;
};

/* Store `i` arrives. */
void model_arrive(struct model_search *s, struct model_state *state, size_t i);
bool model_same_place(const struct model_store *a, const struct model_store *b);

/* The rank begins the call that state->call has. */
void model_begin_call(struct model_search *s, struct model_state *state, int rank);
/* The rank's call has ended: may its next one begin? */
bool model_may_begin(const struct model_search *s, const struct model_state *state, int rank);

/* The worker's next step, if it can be made; false if it waits or has ended. */
bool model_step(struct model_search *s, struct model_state *state, int rank, int index);

#endif
