/* One rank whose calls CUDA graphs capture, and the parts of captured_cases. */
#ifndef TRI_TESTS_NCCL_CAPTURED_FIXTURE_H
#define TRI_TESTS_NCCL_CAPTURED_FIXTURE_H

#include <cuda_runtime_api.h>

#include "tests/team.h"

enum { N = 1000, CUT = 300, REPLAYS = 1000, PERIOD = 97, PLENTY_MS = 20000 };

struct captured;

/* What one call, or several, do to the tensors. */
struct kind {
    const char *name;
    void (*make)(struct captured *self); /* may be NULL */
    trib_status (*queue)(struct captured *self, const trib_tensor *tensors, trib_stream stream);
    double (*expected)(const struct captured *self, size_t round, size_t i);
    uint64_t lists; /* that it queues */
    bool not_eager; /* while a replay runs: a reducer has one step at a time, and calls of two
                     * communicators have one order on all ranks */
};

/* One rank. */
struct captured {
    const struct kind *kind;
    const struct team *team;
    int rank, size;
    trib_device *device;
    trib_comm *comm;
    trib_stream stream, beside;
    float *data, *other, *word; /* device: N, N, and one */
    trib_tensor tensors[2], others[2];
    float *host;
    trib_reducer *reducer;
    trib_comm *second; /* of the same ranks */
    trib_event fork;
    cudaGraphExec_t replay;
};

struct cast {
    const struct kind *kind;
    struct team team;
    _Atomic int met[8];
};

/* A case: `body` on each rank of a fresh communicator, with a cast. */
void captured_run(int size, const struct kind *kind, const char *name, uint32_t flags,
                  void (*body)(int rank, int size, void *argument));

void captured_open(struct captured *self, const struct cast *cast, int rank);
void captured_close(struct captured *self);

/* The values of `round`, of which every rank has its own. */
float captured_input(int rank, size_t round, size_t i);
/* The word on the device. */
float captured_weight(int rank);
void captured_put(struct captured *self, const trib_tensor *tensors, size_t round);
void captured_move(struct captured *self, void *to, const void *from, size_t floats);
void captured_settle(struct captured *self);
bool captured_holds(struct captured *self, const trib_tensor *tensors, size_t round,
                    const char *how,
                    double (*expected)(const struct captured *self, size_t round, size_t i));

/* What captured_holds expects. */
double captured_untouched(const struct captured *self, size_t round, size_t i);
double captured_sum(const struct captured *self, size_t round, size_t i);
double captured_last(const struct captured *self, size_t round, size_t i); /* the last rank's */
double captured_average(const struct captured *self, size_t round, size_t i);
double captured_weighted(const struct captured *self, size_t round, size_t i);

void captured_begin(trib_stream stream);
/* Ends a good capture, whose graph the caller has; makes it executable, of which only that stays. (A
 * thread ends all its captures before it makes a graph executable.) */
cudaGraph_t captured_take(trib_stream stream);
cudaGraphExec_t captured_make(cudaGraph_t graph);
/* Both. */
cudaGraphExec_t captured_end(trib_stream stream);
bool captured_launch(struct captured *self);
void captured_drop(struct captured *self);

/* What its kind does, with the values of `round`: by a call; by a launch of the replay. */
bool captured_call(struct captured *self, size_t round);
bool captured_replay(struct captured *self, size_t round);

/* A rank that failed alone would leave the others waiting: end what they wait for. */
void captured_give_up(struct captured *self);

uint64_t captured_lists(struct captured *self); /* committed */

/* Its kind is captured once and replayed, among eager calls: a case. */
void captured_replays(int size, const struct kind *kind);

trib_status captured_queue_sum(struct captured *self, const trib_tensor *tensors,
                               trib_stream stream);
trib_status captured_queue_list(struct captured *self, const trib_tensor *tensors,
                                trib_stream stream);

/* The parts, each several cases; `fake`: as for captured_cases. */
void captured_calls(int size);
void captured_moves(int size);
void captured_reducers(int size, bool fake);
void captured_ranks(void);       /* of 2 ranks */
void captured_groups(bool fake); /* of 2 ranks */

#endif
