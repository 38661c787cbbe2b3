/* One state of the model, and the ways in which it becomes another. */
#ifndef TRI_TESTS_PULL_MODEL_STATE_H
#define TRI_TESTS_PULL_MODEL_STATE_H

#include <stdint.h>

#include "kernels/cpu/pull_steps.h"
#include "tests/pull/model.h"
#include "tests/seen.h"

enum {
    MODEL_UNITS = 2 * TRI_PULL_UNIT, /* of scratch: for each worker, and each slot of a half */
    MODEL_SCRATCH = 2 * (MODEL_RANKS - 1) * MODEL_WORKERS * MODEL_UNITS,
    MODEL_BUFFER = MODEL_ELEMENTS * 4, /* bytes */
    MODEL_DATA = 2 * MODEL_BUFFER + MODEL_SCRATCH,
    MODEL_POST = 3, /* words: send, recv, state */
    MODEL_WORDS = MODEL_WORKERS * (1 + MODEL_RANKS * MODEL_POST),
    MODEL_IN_FLIGHT = 64
};

/* Where an access goes: word `at` of the owner's control, or byte `at` of its data. */
struct model_place {
    uint8_t owner, is_data;
    uint16_t at;
};

/* What has not arrived. */
struct model_store {
    uint64_t value[2];
    struct model_place place;
    uint8_t from, bytes; /* from: worker `from` % MODEL_WORKERS of rank `from` / MODEL_WORKERS */
    uint8_t call, adds, releases;
    uint8_t unused[7];
};

struct model_state {
    struct tri_pull_worker workers[MODEL_RANKS][MODEL_WORKERS];
    struct model_store stores[MODEL_IN_FLIGHT]; /* by worker, each one's in their order */
    uint64_t words[MODEL_RANKS][MODEL_WORDS];
    _Alignas(16) unsigned char data[MODEL_RANKS][MODEL_DATA]; /* two buffers, scratch */
    uint8_t call[MODEL_RANKS];
    uint8_t finished[MODEL_RANKS], gave_up[MODEL_RANKS];
    uint8_t n_stores;
};

/* What does not change. Addresses in `control` and `base` stand for those of a state. */
struct model_search {
    const struct model *model;
    struct tri_pull jobs[MODEL_CALLS];
    struct tri_pull_rank here[MODEL_CALLS][MODEL_RANKS];
    struct tri_pull_control control[MODEL_RANKS];
    uint32_t sent[MODEL_CALLS][MODEL_RANKS][MODEL_ELEMENTS];
    uint32_t expected[MODEL_CALLS][MODEL_RANKS][MODEL_ELEMENTS];
    _Alignas(16) unsigned char base[MODEL_RANKS][MODEL_DATA];
    struct seen seen;
    struct model_report report;
};

/* Where the buffers of a call begin, in bytes of the rank's data. */
size_t model_send_at(const struct model *model, size_t call, int rank);
size_t model_recv_at(const struct model *model, size_t call, int rank);
/* Elements of a rank's send, and of its recv. */
size_t model_sent(const struct model *model, size_t call);
size_t model_received(const struct model *model, size_t call);

/* May store `i` arrive? It does. */
bool model_may_arrive(const struct model_search *s, const struct model_state *state, size_t i);
void model_arrive(struct model_search *s, struct model_state *state, size_t i);

/* The rank begins the call that state->call has. */
void model_begin_call(struct model_search *s, struct model_state *state, int rank);
bool model_may_begin(const struct model_search *s, const struct model_state *state, int rank);
/* Ranks whose call has ended look at their results, and overwrite their buffers. */
void model_finish(struct model_search *s, struct model_state *state);

/* The worker's next step, if it can be made; false if it waits or has ended. */
bool model_step(struct model_search *s, struct model_state *state, int rank, int index);
/* Does it make no difference to others when the step is made? */
bool model_is_quiet(const struct model_state *state, int rank, int index);

#endif
